package archive

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Plan says what a run would do.
type Plan struct {
	Before   time.Time    `json:"before"` // only what was recorded before
	Entities []EntityPlan `json:"legal_entities"`
}

// EntityPlan is the part of a legal entity.
type EntityPlan struct {
	TenantID    string `json:"tenant_id"`
	LegalEntity string `json:"legal_entity"`
	Events      uint64 `json:"events"`      // that were recorded before
	InSegments  uint64 `json:"in_segments"` // of these, those in the ranges of segments
	ToArchive   uint64 `json:"to_archive"`  // the others; a run leaves those that have to stay
	Held        int    `json:"held"`        // that stay because of a legal hold
	Redacting   int    `json:"redacting"`   // that stay because of an open redaction
	// Behind are the projections that have not read all of them; a run does nothing until they have.
	Behind []string `json:"projections_behind"`
}

// Plan counts what a run would do. It changes nothing.
func (a *Archiver) Plan(ctx context.Context, s Selection) (Plan, error) {
	before, err := a.before(s)
	if err != nil {
		return Plan{}, err
	}
	entities, err := a.entitiesOf(ctx, s)
	if err != nil {
		return Plan{}, err
	}
	plan := Plan{Before: before, Entities: []EntityPlan{}}
	for _, le := range entities {
		p, err := a.planEntity(ctx, le, before)
		if err != nil {
			return Plan{}, err
		}
		plan.Entities = append(plan.Entities, p)
	}
	return plan, nil
}

func (a *Archiver) planEntity(ctx context.Context, le ports.LegalEntity, before time.Time) (EntityPlan, error) {
	p := EntityPlan{TenantID: le.TenantID, LegalEntity: le.Code, Behind: []string{}}
	through, err := a.Log.SequenceAt(ctx, le.Partition, before.Add(-time.Microsecond))
	if err != nil || through == 0 {
		return p, err
	}
	p.Events = uint64(through)
	gaps, err := a.gaps(ctx, le.Partition, through)
	if err != nil {
		return p, err
	}
	isOpen := func(n event.Sequence) bool {
		return slices.ContainsFunc(gaps, func(g gap) bool { return g.first <= n && n <= g.last })
	}
	for _, g := range gaps {
		p.ToArchive += uint64(g.last - g.first + 1)
	}
	p.InSegments = p.Events - p.ToArchive
	subjects, err := a.heldSubjects(ctx, le)
	if err != nil {
		return p, err
	}
	held, redacted, err := a.staying(ctx, le, subjects, through)
	if err != nil {
		return p, err
	}
	for n := range held {
		if isOpen(n) {
			p.Held++
		}
	}
	for n := range redacted {
		if isOpen(n) {
			p.Redacting++
		}
	}
	behind, err := a.Register.ProjectionsBehind(ctx, le.Partition, through)
	p.Behind = append(p.Behind, behind...)
	return p, err
}
