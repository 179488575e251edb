package memory

import (
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// KeyLeases is the part of a key store that an append uses.
type KeyLeases interface {
	// LeaseKeys returns the state of the key of every id, in order, and prevents changes to
	// these keys until release is called. The database calls it with its own lock held, so
	// it must not call the database.
	LeaseKeys(ids []ports.SubjectKeyID) (keys []ports.SubjectKey, release func())
}

// need is a key that a request needs, in the version that its values are sealed with.
type need struct {
	id      ports.SubjectKeyID
	version uint32
	field   string // the first that is sealed with it
}

func neededKeys(r *ports.AppendRequest) []need {
	var out []need
	add := func(prefix string, sealed []event.SealedSubject) {
		for _, s := range sealed {
			n := need{
				id:      ports.SubjectKeyID{Partition: r.Partition, Subject: shredding.Subject(s.Subject), Class: shredding.KeyClass(s.KeyClass)},
				version: s.KeyVersion, field: prefix,
			}
			if len(s.Pointers) > 0 {
				n.field += s.Pointers[0]
			}
			out = append(out, n)
		}
	}
	for i := range r.Events {
		if len(r.Events[i].Sealed) > 0 {
			add(fmt.Sprintf("/events/%d", i), r.Events[i].Sealed)
		}
	}
	if r.Intent != nil {
		add("/payload", r.Intent.Sealed)
	}
	return out
}

// holdKeys checks that every key of the request is active in the version its values
// are sealed with, and keeps it so until release.
func (s *state) holdKeys(r *ports.AppendRequest) (release func(), err error) {
	wanted := neededKeys(r)
	if len(wanted) == 0 {
		return func() {}, nil
	}
	if s.keys == nil {
		return nil, fault.New(fault.FailedPrecondition, "pii.keys_missing",
			"this store has no key store, so personal values cannot be stored; give it one")
	}
	ids := make([]ports.SubjectKeyID, len(wanted))
	for i := range wanted {
		ids[i] = wanted[i].id
	}
	keys, release := s.keys.LeaseKeys(ids)
	for i, k := range keys {
		switch {
		case k.State != shredding.KeyActive:
			release()
			return nil, shredding.Erased(wanted[i].field)
		case k.Active != wanted[i].version:
			release()
			return nil, fault.New(fault.Conflict, "pii.key_moved",
				"the key of this subject has another version; seal the values again and send the request again").
				WithField(wanted[i].field).WithRetryAfter(time.Millisecond)
		}
	}
	return release, nil
}
