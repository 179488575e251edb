package erasure

import (
	"context"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// NewHold asks for a legal hold.
type NewHold struct {
	Subject       string
	LegalEntities []string // codes; none: all that the caller sees
	Reason        string
	Until         *event.Date // the last day; nil: until it is released

	IdempotencyKey string // remembered for this day and the one before; may be ""
}

// PlaceHold stores legal holds on a person's data: one per legal entity, or one for the
// tenant if a caller who sees all legal entities names none. A hold that is placed before
// the keys are destroyed ends an erasure that has begun: the worker refuses it in its next
// step. After an error some of the holds may be stored. Of the same key again, PlaceHold returns the
// holds that it placed (replayed). Faults of Request, and erasure.until_invalid.
func (s *Service) PlaceHold(ctx context.Context, principal ports.Principal, n NewHold) (placed []Hold, replayed bool, err error) {
	if err := requirePerson(principal); err != nil {
		return nil, false, err
	}
	subject, err := parseSubject(n.Subject)
	if err != nil {
		return nil, false, err
	}
	reason, err := checkReason(n.Reason)
	if err != nil {
		return nil, false, err
	}
	if err := requests.CheckKey(n.IdempotencyKey); err != nil {
		return nil, false, err
	}
	if n.Until != nil && *n.Until < s.today() {
		return nil, false, fault.New(fault.Invalid, "erasure.until_invalid", "the last day of the hold is over already; name one from today on").WithField("/until")
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return nil, false, err
	}
	partitions, all, err := dir.choose(principal, n.LegalEntities)
	if err != nil {
		return nil, false, err
	}
	if all {
		partitions = []event.PartitionID{0}
	}
	if err := s.config.adoptHolds(ctx, principal.TenantID, dir); err != nil {
		return nil, false, err
	}
	now := s.config.now()
	holds := make([]ports.LegalHold, len(partitions))
	for i, p := range partitions {
		holds[i] = ports.LegalHold{
			ID: s.config.IDs.NewID(now), TenantID: principal.TenantID, Subject: subject, Partition: p,
			Reason: reason, PlacedBy: principal.PersonID, PlacedAt: now, Until: n.Until,
		}
	}
	if n.IdempotencyKey != "" {
		replayed, err = s.findKeyedHolds(ctx, principal, dir, n.IdempotencyKey, holds)
	}
	if err != nil {
		return nil, false, err
	}
	// The first one comes last, so that a key under which it is recorded is complete.
	for i := len(holds) - 1; i >= 0; i-- {
		if holds[i], err = s.placeHold(ctx, principal, dir, holds[i]); err != nil {
			return nil, false, err
		}
	}
	for _, h := range holds {
		placed = append(placed, dir.hold(h))
	}
	return placed, replayed, nil
}

// placeHold records a hold and stores what is recorded under its id: the hold of an earlier call
// with the same idempotency key, if there was one. Fault idempotency.mismatch: that is another hold.
func (s *Service) placeHold(ctx context.Context, principal ports.Principal, dir directory, h ports.LegalHold) (ports.LegalHold, error) {
	if err := s.config.Journal.RecordRevision(ctx, h.TenantID, principal.Actor(), placed(dir, h)); err != nil {
		return h, err
	}
	recorded, found, err := s.recordedHold(ctx, h.TenantID, dir, h.ID)
	switch {
	case err != nil:
		return h, err
	case !found || !asksForSame(recorded, h):
		return h, requests.KeyMismatch(holdKind)
	}
	return s.config.applyHold(ctx, recorded)
}

// holdKind names legal holds in faults, and in the ids that follow from idempotency keys.
const holdKind requests.Kind = "hold"

// findKeyedHolds gives holds the ids that follow from an idempotency key and their place, and
// reports whether an earlier call has recorded all of them. Fault idempotency.mismatch: it asked for
// others.
func (s *Service) findKeyedHolds(ctx context.Context, principal ports.Principal, dir directory, key string, holds []ports.LegalHold) (recorded bool, err error) {
	for _, day := range []time.Time{holds[0].PlacedAt.AddDate(0, 0, -1), holds[0].PlacedAt} {
		idOf := func(place int) event.ID {
			id, _ := requests.KeyedIDs(holdKind, principal, key+"\x00"+strconv.Itoa(place), day)
			return id
		}
		for i := range holds {
			holds[i].ID = idOf(i)
		}
		if _, recorded, err = s.recordedHold(ctx, principal.TenantID, dir, holds[0].ID); err != nil {
			return false, err
		}
		for i := 0; recorded && i <= len(holds); i++ { // nothing is recorded behind the last one
			h, found, err := s.recordedHold(ctx, principal.TenantID, dir, idOf(i))
			if err != nil {
				return false, err
			}
			if found != (i < len(holds)) || found && !asksForSame(h, holds[i]) {
				return false, requests.KeyMismatch(holdKind)
			}
		}
		if recorded {
			break
		}
	}
	return recorded, nil
}

// recordedHold returns a hold as the log has it.
func (s *Service) recordedHold(ctx context.Context, tenantID string, dir directory, id event.ID) (h ports.LegalHold, found bool, err error) {
	events, err := s.config.Journal.Revisions(ctx, tenantID, holdStream(id))
	if err != nil {
		return h, false, err
	}
	recorded, err := holdsOf(tenantID, dir, events)
	h, found = recorded[id]
	return h, found, err
}

// asksForSame reports whether two calls asked for the same hold.
func asksForSame(a, b ports.LegalHold) bool {
	return a.Subject == b.Subject && a.Partition == b.Partition && a.Reason == b.Reason && sameDay(a.Until, b.Until)
}

// ReleaseHold ends a hold. It does not repeat the requests that the hold refused.
// erasure.not_found.
func (s *Service) ReleaseHold(ctx context.Context, principal ports.Principal, id event.ID) (Hold, error) {
	if err := requirePerson(principal); err != nil {
		return Hold{}, err
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return Hold{}, err
	}
	// The register does not return a hold by its id, so its legal entity is not known before
	// it is released.
	if len(principal.LegalEntities) > 0 {
		return Hold{}, fault.New(fault.Forbidden, "erasure.needs_all_entities", "only a person who sees all legal entities releases holds; ask such a colleague")
	}
	if err := s.config.adoptHolds(ctx, principal.TenantID, dir); err != nil {
		return Hold{}, err
	}
	events, err := s.config.Journal.Revisions(ctx, principal.TenantID, holdStream(id))
	if err != nil {
		return Hold{}, err
	}
	h := ports.LegalHold{ID: id, TenantID: principal.TenantID, ReleasedBy: principal.PersonID, ReleasedAt: s.config.now()}
	if len(events) == 0 { // lifted in an earlier release, or unknown
		h, err = s.config.Register.ReleaseHold(ctx, h.TenantID, id, h.ReleasedBy, h.ReleasedAt)
		return dir.hold(h), err
	}
	if err := s.config.Journal.RecordRevision(ctx, principal.TenantID, principal.Actor(), lifted(h)); err != nil {
		return Hold{}, err
	}
	if events, err = s.config.Journal.Revisions(ctx, principal.TenantID, holdStream(id)); err != nil {
		return Hold{}, err
	}
	recorded, err := holdsOf(principal.TenantID, dir, events) // of two persons at the same time the first one lifted it
	if err == nil {
		h, err = s.config.applyHold(ctx, recorded[id])
	}
	return dir.hold(h), err
}

// Holds lists a person's holds that are in force today and that the caller sees.
// pii.subject_invalid.
func (s *Service) Holds(ctx context.Context, principal ports.Principal, subject string) ([]Hold, error) {
	of, err := parseSubject(subject)
	if err != nil {
		return nil, err
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return nil, err
	}
	holds, err := s.config.Register.Holds(ctx, principal.TenantID, of, s.today())
	if err != nil {
		return nil, err
	}
	out := []Hold{}
	for _, h := range holds {
		if h.Partition == 0 || dir.sees(principal, []event.PartitionID{h.Partition}) {
			out = append(out, dir.hold(h))
		}
	}
	return out, nil
}
