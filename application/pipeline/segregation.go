package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// SegregationRequest asks who was refused what, and what a person did.
type SegregationRequest struct {
	LegalEntities []ports.LegalEntity
	Person        string    // "": all persons, whose steps are left out
	From, To      time.Time // recorded then; To is exclusive; zero does not bound
}

// SegregationReport is what a SegregationRequest found, in a stable order.
type SegregationReport struct {
	Refusals []RefusedAttempts
	Steps    []DocumentSteps
}

// RefusedAttempts are the refusals of one person that have the same cause.
type RefusedAttempts struct {
	LegalEntity string
	ActorID     string
	IntentType  string
	Attempt     string // "submit", "approve", "reject" or "withdraw"
	Code        string
	Rule        string // of segregation of duties, such as "S1"; "" for other refusals
	Times       int
	First, Last time.Time
	LastIntent  event.ID
	Documents   []string // of the last one
}

// DocumentSteps is what one person did with one stream.
type DocumentSteps struct {
	LegalEntity string
	ActorID     string
	Document    string // type/id; of a decision, the streams that the intent writes
	Steps       []Step
}

// Step is one event of the person.
type Step struct {
	Event    event.ID
	Type     string
	Intent   event.ID // zero if no intent made it
	Recorded time.Time
}

// maxSegregationEvents bounds the events that one report reads: the refusals of all persons, or
// all events of one.
const maxSegregationEvents = 10_000

var refusalTypes = []string{intent.Refused, intent.DecisionRefused}

// Segregation reports refused attempts, and with a person also the person's steps by
// document, from the events of the legal entities. It is complete or refused. Faults:
// report.too_many_events.
func (s *Service) Segregation(ctx context.Context, r SegregationRequest) (SegregationReport, error) {
	w := segregation{refusals: map[refusalKey]*RefusedAttempts{}, steps: map[stepKey]*DocumentSteps{}}
	read := 0
	for _, le := range r.LegalEntities {
		q := ports.EventQuery{Partition: le.Partition, ActorID: r.Person}
		if r.Person == "" {
			q.Types = refusalTypes
		}
		some, err := s.limitToPeriod(ctx, &q, r.From, r.To)
		if err != nil {
			return SegregationReport{}, err
		}
		if !some {
			continue
		}
		for e, err := range module.Events(ctx, s.Events, q) {
			if err != nil {
				return SegregationReport{}, err
			}
			if read++; read > maxSegregationEvents {
				return SegregationReport{}, fault.New(fault.Invalid, "report.too_many_events", "more than %d events of the period would be counted; ask for a shorter one, for one legal entity or one person", maxSegregationEvents).
					WithField("from")
			}
			if err := w.add(le.Code, &e); err != nil {
				return SegregationReport{}, err
			}
		}
	}
	return w.report(), nil
}

// limitToPeriod sets the sequences of a period, which spares the store events before it. It
// reports false if no event was recorded by the end of the period.
func (s *Service) limitToPeriod(ctx context.Context, q *ports.EventQuery, from, to time.Time) (some bool, err error) {
	if !from.IsZero() {
		if q.After, err = s.Events.SequenceAt(ctx, q.Partition, from.Add(-time.Microsecond)); err != nil {
			return false, err
		}
	}
	if to.IsZero() {
		return true, nil
	}
	q.Until, err = s.Events.SequenceAt(ctx, q.Partition, to.Add(-time.Microsecond))
	return q.Until > q.After, err
}

type refusalKey struct{ legalEntity, actor, intentType, attempt, code, rule string }

type stepKey struct{ legalEntity, actor, document string }

type segregation struct {
	refusals map[refusalKey]*RefusedAttempts
	steps    map[stepKey]*DocumentSteps
}

// add counts a refusal, or lists any other event as a step.
func (w *segregation) add(code string, e *event.Recorded) error {
	if slices.Contains(refusalTypes, e.Type) {
		return w.addRefusal(code, e)
	}
	return w.addStep(code, e)
}

func (w *segregation) addRefusal(code string, e *event.Recorded) error {
	a, err := aboutOf(e)
	if err != nil || a.Refusal == nil {
		return err
	}
	k := refusalKey{code, e.ActorID, a.IntentType, cmp.Or(a.Attempt, "submit"), a.Refusal.Code, a.Refusal.Rule}
	r := w.refusals[k]
	if r == nil {
		r = &RefusedAttempts{LegalEntity: code, ActorID: k.actor, IntentType: k.intentType, Attempt: k.attempt, Code: k.code, Rule: k.rule, First: e.RecordedAt}
		w.refusals[k] = r
	}
	r.Times++
	r.Last, r.LastIntent, r.Documents = e.RecordedAt, e.IntentID, a.Documents
	return nil
}

// addStep lists an event under its stream. A decision is a step of the documents that its intent
// writes.
func (w *segregation) addStep(code string, e *event.Recorded) error {
	documents := []string{e.Stream.String()}
	if intent.IsAbout(e.Type) {
		a, err := aboutOf(e)
		if err != nil {
			return err
		}
		if len(a.Documents) > 0 {
			documents = a.Documents
		}
	}
	for _, document := range documents {
		k := stepKey{code, e.ActorID, document}
		d := w.steps[k]
		if d == nil {
			d = &DocumentSteps{LegalEntity: code, ActorID: e.ActorID, Document: document}
			w.steps[k] = d
		}
		d.Steps = append(d.Steps, Step{Event: e.ID, Type: e.Type, Intent: e.IntentID, Recorded: e.RecordedAt})
	}
	return nil
}

func (w *segregation) report() (out SegregationReport) {
	for _, r := range w.refusals {
		out.Refusals = append(out.Refusals, *r)
	}
	slices.SortFunc(out.Refusals, func(a, b RefusedAttempts) int {
		return cmp.Or(cmp.Compare(a.LegalEntity, b.LegalEntity), cmp.Compare(a.ActorID, b.ActorID), cmp.Compare(a.Code, b.Code), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.IntentType, b.IntentType), cmp.Compare(a.Attempt, b.Attempt))
	})
	for _, d := range w.steps {
		out.Steps = append(out.Steps, *d)
	}
	slices.SortFunc(out.Steps, func(a, b DocumentSteps) int {
		return cmp.Or(cmp.Compare(a.LegalEntity, b.LegalEntity), a.Steps[0].Recorded.Compare(b.Steps[0].Recorded), cmp.Compare(a.Document, b.Document))
	})
	return out
}

// aboutOf reads the data of an event about an intent.
func aboutOf(e *event.Recorded) (a about, err error) {
	data, err := e.Data()
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	return a, err
}
