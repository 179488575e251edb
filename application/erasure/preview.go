package erasure

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// The reasons why a key class, or a whole request, is refused.
const (
	refusedByHold      = "legal_hold"
	refusedByRetention = "retention"
	endedByExpiry      = "approval_expired"
)

// survey holds what a request concerns at one moment, and what it may erase.
type survey struct {
	partitions []event.PartitionID
	found      map[shredding.KeyClass]bool // classes with records
	classes    []ports.ErasureClass        // all of them, ascending
	preview    Preview
	scope      event.Hash
}

// refusalReason returns the reason if no class may be erased, else "".
func refusalReason(classes []ports.ErasureClass) string {
	reason := ""
	for _, c := range classes {
		if c.Erased {
			return ""
		}
		reason = cmp.Or(reason, c.Refused)
	}
	return reason
}

// survey counts a person's records, copies and holds, and decides per key class.
func (c Config) survey(ctx context.Context, r ports.ErasureRequest) (survey, error) {
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return survey{}, err
	}
	now := c.now()
	s := survey{partitions: r.Partitions}
	if r.AllEntities {
		s.partitions = dir.all
	}
	s.preview = Preview{
		LegalEntities: dir.codes(s.partitions), CountedAt: now,
		Types: []TypeCount{}, Projections: []string{}, Holds: []Hold{}, Retained: []Retained{},
	}
	keep, err := c.count(ctx, r.TenantID, r.Subject, dir, &s)
	if err != nil {
		return s, err
	}
	if err := c.findCopies(ctx, r.Subject, &s); err != nil {
		return s, err
	}
	holds, err := c.Register.Holds(ctx, r.TenantID, r.Subject, event.DateOf(now))
	if err != nil {
		return s, err
	}
	holds = slices.DeleteFunc(holds, func(h ports.LegalHold) bool { return h.Partition != 0 && !slices.Contains(s.partitions, h.Partition) })
	for _, h := range holds {
		s.preview.Holds = append(s.preview.Holds, dir.hold(h))
	}
	s.decide(keep, holds)
	s.preview.Classes = describeClasses(s.classes)
	s.scope = scopeOf(r, s.partitions, s.classes)
	return s, nil
}

// retainedType is an event type under one key class. Versions of a type may differ in class,
// and the retention of one version does not apply to values that another version sealed.
type retainedType struct {
	eventType string
	class     shredding.KeyClass
}

// retention returns the years for which registrations of built-in modules and of a tenant require
// data to be kept.
func (c Config) retention(ctx context.Context, tenantID string) (map[retainedType]int, error) {
	types, _, err := c.Types.EventTypes(ctx, "")
	if err != nil {
		return nil, err
	}
	own, _, err := c.Types.EventTypes(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	types = append(types, own...)
	years := map[retainedType]int{}
	for _, t := range types {
		class, err := shredding.ParseKeyClass(string(t.RetentionClass))
		if err != nil {
			return nil, err
		}
		k := retainedType{t.Type, class}
		years[k] = max(years[k], t.MinRetentionYears)
	}
	return years, nil
}

// count counts the records and returns until when each class must be kept: the day of the
// newest record of a type, in the legal entity's time zone, plus the years of retention that
// its registration requires.
func (c Config) count(ctx context.Context, tenantID string, subject shredding.Subject, dir directory, s *survey) (keep map[shredding.KeyClass]event.Date, err error) {
	retained, err := c.retention(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	keep, s.found = map[shredding.KeyClass]event.Date{}, map[shredding.KeyClass]bool{}
	for _, p := range s.partitions {
		counts, err := c.Records.CountPersonalRecords(ctx, p, subject)
		if err != nil {
			return nil, err
		}
		le := dir.byPartition[p]
		for _, n := range counts {
			s.found[n.Class] = true
			s.preview.Types = append(s.preview.Types, TypeCount{Type: n.Type, LegalEntity: le.Code, Intent: n.Intent, Events: n.Records, Fields: n.Fields})
			if n.Intent {
				s.preview.Intents += n.Records
				continue
			}
			s.preview.Events += n.Records
			years := retained[retainedType{n.Type, n.Class}]
			if years == 0 {
				continue
			}
			until := event.DateOf(le.Today(n.NewestAt).Time().AddDate(years, 0, 0))
			if until > le.Today(s.preview.CountedAt) {
				keep[n.Class] = max(keep[n.Class], until)
			}
		}
	}
	for _, class := range slices.Sorted(maps.Keys(keep)) {
		s.preview.Retained = append(s.preview.Retained, Retained{Class: class.String(), Until: keep[class]})
	}
	return keep, nil
}

// findCopies lists the projections that hold copies.
func (c Config) findCopies(ctx context.Context, subject shredding.Subject, s *survey) error {
	for _, name := range c.Copies.HoldersOfCopies() {
		var rows int64
		for _, p := range s.partitions {
			n, err := c.Copies.CountCopies(ctx, name, p, subject)
			if err != nil {
				return err
			}
			rows += n
		}
		if rows > 0 {
			s.preview.Projections = append(s.preview.Projections, name)
		}
	}
	return nil
}

// decide decides for each key class whether it is erased or must be kept. A hold concerns
// the person, so every class is kept, in all legal entities of the request. If all records
// must be kept, the classes without records are kept as well: a request that erases nothing
// must not end as completed.
func (s *survey) decide(keep map[shredding.KeyClass]event.Date, holds []ports.LegalHold) {
	allKept, last := len(s.found) > 0, event.Date(0)
	for class := range s.found {
		until, kept := keep[class]
		allKept, last = allKept && kept, max(last, until)
	}
	for _, class := range shredding.KeyClasses() {
		c := ports.ErasureClass{Class: class, Erased: true}
		until, kept := keep[class]
		if !kept && allKept {
			until, kept = last, !s.found[class]
		}
		if kept {
			c = ports.ErasureClass{Class: class, Refused: refusedByRetention, Until: &until}
		}
		if len(holds) > 0 {
			c.Erased, c.Refused = false, refusedByHold
			for _, h := range holds {
				if h.Until == nil { // the hold has no end date
					c.Until = nil
					break
				}
				if c.Until == nil || *h.Until > *c.Until {
					c.Until = h.Until
				}
			}
		}
		s.classes = append(s.classes, c)
	}
}

// scopeOf returns the digest to which an approval is bound: the request, the partitions,
// and which key classes are erased. A new legal entity, or a class whose retention begins
// or ends, changes it and so needs a new approval. New events of the person need none, so
// the digest leaves out the counts.
func scopeOf(r ports.ErasureRequest, partitions []event.PartitionID, classes []ports.ErasureClass) event.Hash {
	h := sha256.New()
	fmt.Fprintf(h, "backbone/erasure-scope/v1\n%s\n%s\n%s\n", r.ID, r.TenantID, r.Subject)
	for _, p := range partitions {
		fmt.Fprintf(h, "partition %d\n", p)
	}
	for _, c := range classes {
		fmt.Fprintf(h, "class %d %t %s\n", c.Class, c.Erased, c.Refused)
	}
	return event.Hash(h.Sum(nil))
}

// preview counts a request's scope and stores it. Afterwards the request waits for an
// approval, or is refused if all of its data must be kept.
func (c Config) preview(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	s, err := c.survey(ctx, r)
	if err != nil {
		return r, err
	}
	if r, err = c.storePreview(ctx, r, s); err != nil {
		return r, err
	}
	return c.refuseIfAllKept(ctx, r)
}

// storePreview stores a survey as the scope to approve. The register drops an earlier approval.
func (c Config) storePreview(ctx context.Context, r ports.ErasureRequest, s survey) (ports.ErasureRequest, error) {
	encoded, err := json.Marshal(s.preview)
	if err != nil {
		return r, err
	}
	r.State, r.Partitions, r.Preview, r.Scope, r.Classes = shredding.ErasurePreviewed, s.partitions, encoded, s.scope, s.classes
	return c.move(ctx, r)
}

// refuseIfAllKept ends a previewed request that must keep every class.
func (c Config) refuseIfAllKept(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	reason := refusalReason(r.Classes)
	if r.State != shredding.ErasurePreviewed || reason == "" {
		return r, nil
	}
	return c.refuse(ctx, r, reason)
}

// move stores a request's next state. If another process has moved the request, move returns
// it as that process stored it.
func (c Config) move(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	moved, err := c.Register.MoveErasure(ctx, r)
	return c.takeOrReread(ctx, r, moved, err)
}

// takeOrReread returns the moved request. If another process changed it first, it returns the
// stored request, from whose state the next step continues.
func (c Config) takeOrReread(ctx context.Context, r, moved ports.ErasureRequest, err error) (ports.ErasureRequest, error) {
	if fault.CodeOf(err) != "erasure.changed" {
		return moved, err
	}
	return c.Register.Erasure(ctx, r.TenantID, r.ID)
}
