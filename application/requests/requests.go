// Package requests is what the requests that two persons decide on have in common: erasures
// (application/erasure) and redactions (application/redaction). One person requests, another
// one approves what was previewed, and a worker carries it out step by step.
//
// The states of a request, and the moves between them, are in domain/shredding. The store
// settles every race: a request moves from a revision only once.
package requests

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	// MaxReason is how long a reason is at most, in bytes.
	MaxReason = 1000

	defaultListing = 100
	maxListing     = 1000
)

// IsPerson reports whether the caller is a person. Services and agents decide about nothing.
func IsPerson(p ports.Principal) bool {
	return p.ActorType == event.Human && p.PersonID != "" && p.TenantID != ""
}

// CleanReason returns a reason without the space around it. ok is false if it is too long, or
// if something in it looks like personal data: it is stored for ever. It may be "".
func CleanReason(text string) (reason string, ok bool) {
	reason = strings.TrimSpace(text)
	unprintable := strings.ContainsFunc(reason, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' || r == '\uFFFD' })
	return reason, len(reason) <= MaxReason && !unprintable && shredding.CheckText("/reason", reason) == nil
}

// States parses states that a listing is restricted to. ok is false if there is no such state.
func States[S interface {
	~string
	Valid() bool
}](names []string) (states []S, ok bool) {
	states = make([]S, len(names))
	for i, name := range names {
		if states[i] = S(name); !states[i].Valid() {
			return nil, false
		}
	}
	return states, true
}

// Limits returns how many requests a listing answers, and how many to read for it: a caller who
// does not see all legal entities is not shown all that is read. 0 is 100; at most 1,000 are read.
func Limits(p ports.Principal, limit int) (answered, read int) {
	if limit <= 0 {
		limit = defaultListing
	}
	if len(p.LegalEntities) > 0 {
		return limit, maxListing
	}
	return limit, min(limit, maxListing)
}

// CheckKey checks an idempotency key. idempotency.key_invalid.
func CheckKey(key string) error {
	if len(key) > concurrency.MaxIdempotencyKey {
		return fault.New(fault.Invalid, "idempotency.key_invalid", "an idempotency key has at most %d bytes; send a shorter one", concurrency.MaxIdempotencyKey)
	}
	return nil
}

// KeyMismatch is the fault of an idempotency key that was used for another request.
func KeyMismatch(kind Kind) error {
	return fault.New(fault.Conflict, "idempotency.mismatch", "this idempotency key was used for another %s request; use a new key", kind)
}

// KeyedIDs derives the id of a request with an idempotency key from the key and the day, so that
// the store finds the first request by its primary key. before is the id of the day before.
func KeyedIDs(kind Kind, p ports.Principal, key string, at time.Time) (today, before event.ID) {
	return keyedID(kind, p, key, at), keyedID(kind, p, key, at.AddDate(0, 0, -1))
}

func keyedID(kind Kind, p ports.Principal, key string, at time.Time) event.ID {
	h := sha256.New()
	for _, part := range []string{"backbone/" + string(kind) + "-request/v1", p.TenantID, p.PersonID, key} {
		h.Write([]byte(part))
		h.Write([]byte{0})
	}
	var id event.ID
	_ = id.SetTime(uint64(at.UTC().Truncate(24 * time.Hour).UnixMilli())) // fails after the year 10889
	copy(id[6:], h.Sum(nil))
	return id
}

// Replayed returns the first of the requests with the ids that is stored, which an earlier call
// with the same idempotency key stored. isSame reports whether it asks for the same as this
// call. Fault idempotency.mismatch.
func Replayed[R any](ctx context.Context, kind Kind, read func(context.Context, event.ID) (R, error), isSame func(R) bool, ids ...event.ID) (first R, found bool, err error) {
	for _, id := range ids {
		switch first, err = read(ctx, id); {
		case fault.KindOf(err) == fault.NotFound:
			continue
		case err != nil:
			return first, false, err
		case !isSame(first):
			return first, false, KeyMismatch(kind)
		}
		return first, true, nil
	}
	return first, false, nil
}

// Decision is the present state of a request and the persons who decided on it.
type Decision struct{ State, RequestedBy, ApprovedBy, EndedBy string }

// ActorOf returns the actor of the event of a request's present state: the caller, if the state is
// the caller's decision, else the zero actor, which is the system. A call that is repeated, or that
// comes after one that died, finds states that others decided. ok is false for an approval of
// another person: only the event of the approver is one, so the system records none.
func ActorOf(caller event.Actor, d Decision) (actor event.Actor, ok bool) {
	decided := ""
	switch d.State {
	case "requested", "previewed":
		decided = d.RequestedBy
	case "approved":
		return caller, caller.ID != "" && caller.ID == d.ApprovedBy
	case "rejected", "withdrawn":
		decided = d.EndedBy
	}
	if caller.ID != decided {
		caller = event.Actor{}
	}
	return caller, true
}
