package erasure

import (
	"context"

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
}

// PlaceHold stores legal holds on a person's data: one per legal entity, or one for the
// tenant if a caller who sees all legal entities names none. A hold that is placed before
// the keys are destroyed ends an erasure that has begun: the worker refuses it in its next
// step. After an error the returned holds are stored. Faults of Request, and
// erasure.until_invalid.
func (s *Service) PlaceHold(ctx context.Context, principal ports.Principal, n NewHold) ([]Hold, error) {
	if err := requirePerson(principal); err != nil {
		return nil, err
	}
	subject, err := parseSubject(n.Subject)
	if err != nil {
		return nil, err
	}
	reason, err := checkReason(n.Reason)
	if err != nil {
		return nil, err
	}
	if n.Until != nil && *n.Until < s.today() {
		return nil, fault.New(fault.Invalid, "erasure.until_invalid", "the last day of the hold is over already; name one from today on").WithField("/until")
	}
	dir, err := s.config.directory(ctx, principal.TenantID)
	if err != nil {
		return nil, err
	}
	partitions, all, err := dir.choose(principal, n.LegalEntities)
	if err != nil {
		return nil, err
	}
	if all {
		partitions = []event.PartitionID{0}
	}
	if err := s.config.adoptHolds(ctx, principal.TenantID, dir); err != nil {
		return nil, err
	}
	now := s.config.now()
	var out []Hold
	for _, p := range partitions {
		h := ports.LegalHold{
			ID: s.config.IDs.NewID(now), TenantID: principal.TenantID, Subject: subject, Partition: p,
			Reason: reason, PlacedBy: principal.PersonID, PlacedAt: now, Until: n.Until,
		}
		if err := s.config.Journal.RecordRevision(ctx, principal.TenantID, requests.Actor(principal), placed(dir, h)); err != nil {
			return out, err
		}
		if _, err := s.config.applyHold(ctx, h); err != nil {
			return out, err
		}
		out = append(out, dir.hold(h))
	}
	return out, nil
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
	if err := s.config.Journal.RecordRevision(ctx, principal.TenantID, requests.Actor(principal), lifted(h)); err != nil {
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
