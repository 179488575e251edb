package custom

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Trial is the result of folding, from an empty state, the last stored events that a definition
// selects.
type Trial struct {
	Considered int // events that the key program received
	Events     int // of these, the ones that counted
	Entities   []TrialEntity
	Warnings   []Warning
}

// Warning names a likely mistake in a definition that is accepted all the same.
type Warning struct {
	Code   string // CodeCountsNothing or CodeUnregistered
	Detail string
	Field  string // of the definition
}

// The codes of warnings.
const (
	CodeCountsNothing = "projection.counts_nothing"
	CodeUnregistered  = "projection.type_unregistered"
)

// TrialEntity holds the rows of one legal entity.
type TrialEntity struct {
	Entity ports.LegalEntity
	Events int
	Rows   []ports.ProjectionRow // by key; sealed values are copies
}

// tryAndWarn runs the trial, unless the creation skips it, and adds warnings about likely
// mistakes.
func (s *Service) tryAndWarn(ctx context.Context, c Creation, d checked) (t Trial, err error) {
	if !c.SkipTrial || c.DryRun {
		if t, err = s.runTrial(ctx, d.program, c.Definition, d.read); err != nil {
			return t, err
		}
		if t.Events == 0 {
			t.Warnings = append(t.Warnings, countsNothing(t.Considered))
		}
	}
	if s.config.Unregistered == nil || len(c.Definition.Filter.Types) == 0 {
		return t, nil
	}
	missing, err := s.config.Unregistered(ctx, c.Definition.TenantID, c.Definition.Filter.Types)
	if err != nil {
		return t, err
	}
	for _, name := range missing {
		t.Warnings = append(t.Warnings, Warning{
			Code: CodeUnregistered, Field: fmt.Sprintf("/filter/types/%d", slices.Index(c.Definition.Filter.Types, name)),
			Detail: fmt.Sprintf("event type %q is not registered; correct it, or register the type", name),
		})
	}
	return t, nil
}

// countsNothing warns of a definition for which no event counted. It blames the filter if that
// selected no event, else the key.
func countsNothing(considered int) Warning {
	w := Warning{Code: CodeCountsNothing, Field: "/key", Detail: fmt.Sprintf("it counted 0 of the last %d events; check the key program on them, and the filter's entities and tags", considered)}
	if considered == 0 {
		w.Field, w.Detail = "/filter", "it counted 0 of 0 events: no stored event matches the filter; check the filter if there should be one"
	}
	return w
}

// runTrial folds the last events that a definition selects.
func (s *Service) runTrial(ctx context.Context, p *program, d projection.Definition, read []ports.LegalEntity) (t Trial, err error) {
	for _, le := range read {
		if t.Events >= s.trialEvents {
			break
		}
		one := TrialEntity{Entity: le}
		rows := map[string]ports.ProjectionRow{}
		err := s.replayLast(ctx, candidateQuery(d, le.Partition), s.trialEvents-t.Events, func(e event.Recorded) error {
			t.Considered++
			counted, err := p.selectEvents(ctx, d.TenantID, []event.Recorded{e})
			if err == nil {
				rows, err = p.foldAll(ctx, counted, rows)
			}
			if err != nil {
				return trialFailed(ctx, err, &e)
			}
			one.Events += len(counted)
			return nil
		})
		if err != nil {
			return t, err
		}
		for _, key := range slices.Sorted(maps.Keys(rows)) {
			one.Rows = append(one.Rows, rows[key])
		}
		t.Events += one.Events
		t.Entities = append(t.Entities, one)
	}
	return t, nil
}

// replayLast calls do for each of the last n events that a query selects, oldest first. It finds
// them without their data and then reads the data in pages.
func (s *Service) replayLast(ctx context.Context, q ports.EventQuery, n int, do func(event.Recorded) error) error {
	q.Direction, q.Limit, q.WithoutData = ports.Backward, n, true
	found, err := s.config.Events.SearchEvents(ctx, q, 0)
	if err != nil || len(found.Events) == 0 {
		return err
	}
	q.Direction, q.WithoutData = ports.Forward, false
	q.Until, q.After = found.Events[0].Sequence, found.Events[len(found.Events)-1].Sequence-1
	return eachPage(ctx, s.config.Events, q, func(page []event.Recorded) error {
		for i := range page {
			if err := do(page[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// candidateQuery queries the events of a partition that a definition's filter may select.
func candidateQuery(d projection.Definition, p event.PartitionID) ports.EventQuery {
	q := ports.EventQuery{Partition: p, Types: d.Filter.Types}
	switch {
	case len(d.Filter.Entities) == 1 && d.Filter.Entities[0].ID != "":
		q.Key = event.EntityKey(d.Filter.Entities[0].Type, d.Filter.Entities[0].ID)
	case len(d.Filter.Tags) > 0:
		q.Key = event.TagKey(d.Filter.Tags[0])
	}
	return q
}

// trialFailed names the event and the cause.
func trialFailed(ctx context.Context, err error, e *event.Recorded) error {
	f, ok := fault.As(err)
	if !ok || ctx.Err() != nil || f.Kind == fault.Unavailable || f.Kind == fault.Timeout {
		return err
	}
	return fault.New(fault.FailedPrecondition, "projection.trial_failed",
		"the definition cannot process event %s of %s: %s; correct it, or create it without a trial", e.ID, e.Scope.LegalEntity, f.Detail).
		WithField(f.Field).With("cause", f.Code).With("event_id", e.ID.String())
}
