package pipeline_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// The report counts refused attempts by person and cause, and lists the steps of a person by
// document, waiting decisions included.
func TestSegregation(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 2000)
	d := pipeline.Decision{LegalEntity: b.entity, Intent: id}
	selfApproving := person(cashier.Principal.PersonID, "supervisor")
	for range 3 {
		_, err := b.service.Approve(t.Context(), selfApproving, d)
		require.Error(t, err)
	}
	_, err := b.service.Submit(t.Context(), supervisor, b.giveLoan(loanNeedsNothing))
	require.Error(t, err)
	_, err = b.service.Approve(t.Context(), supervisor, d)
	require.NoError(t, err)

	all := pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}}
	report := testkit.Must(b.service.Segregation(t.Context(), all))
	require.Empty(t, report.Steps)
	require.Len(t, report.Refusals, 2)
	own, denied := report.Refusals[0], report.Refusals[1]
	require.Equal(t, cashier.Actor.ID, own.ActorID)
	require.Equal(t, []any{"approve", "sod.same_person", "S8", 3, id}, []any{own.Attempt, own.Code, own.Rule, own.Times, own.LastIntent})
	require.Equal(t, []string{"loan/main"}, own.Documents)
	require.Equal(t, supervisor.Actor.ID, denied.ActorID)
	require.Equal(t, []any{"submit", "policy.undecided", 1}, []any{denied.Attempt, denied.Code, denied.Times})

	one := all
	one.Person = supervisor.Actor.ID
	report = testkit.Must(b.service.Segregation(t.Context(), one))
	require.Equal(t, []pipeline.RefusedAttempts{denied}, report.Refusals)
	require.Len(t, report.Steps, 1)
	require.Equal(t, "loan/main", report.Steps[0].Document)
	require.Equal(t, intent.ApprovalRecorded, report.Steps[0].Steps[0].Type)
	require.Equal(t, id, report.Steps[0].Steps[0].Intent)

	later, earlier := all, all
	later.From, earlier.To = time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	for _, r := range []pipeline.SegregationRequest{later, earlier} {
		require.Empty(t, testkit.Must(b.service.Segregation(t.Context(), r)).Refusals)
	}
	all.From, all.To = earlier.To, later.From
	require.Len(t, testkit.Must(b.service.Segregation(t.Context(), all)).Refusals, 2)
}

// refusals appends refusals of a person, each with text of so many bytes.
func (b *cashFixture) refusals(t *testing.T, personID string, n, bytes int) {
	t.Helper()
	payload := fmt.Appendf(nil, `{"data":{"intent_type":"loan.give_loan","refusal":{"code":"intent.forbidden","kind":"forbidden","detail":%q}},"dimensions":{},"entity_refs":[]}`, strings.Repeat("x", bytes))
	for n > 0 {
		events := make([]event.Prepared, min(n, 100))
		for i := range events {
			id := b.service.IDs.NewID(time.Now())
			events[i] = event.Prepared{
				Skeleton: event.Skeleton{
					ID: id, Type: intent.Refused, SchemaVersion: 1, Stream: intent.StreamOf(id),
					Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: personID, ActorName: "clerk",
				},
				Payload: payload,
			}
		}
		_, err := b.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: events})
		require.NoError(t, err)
		n -= len(events)
	}
}

// A report is complete or refused. One about a person reads that person's events only.
func TestSegregation_TooManyRefusals(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	b.refusals(t, "p-1", 10_001, 0)
	b.refusals(t, "p-2", 3, 0)
	for _, person := range []string{"", "p-1"} {
		_, err := b.service.Segregation(t.Context(), pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}, Person: person})
		require.Equal(t, "report.too_many_events", fault.CodeOf(err))
	}
	report := testkit.Must(b.service.Segregation(t.Context(), pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}, Person: "p-2"}))
	require.Len(t, report.Refusals, 1)
	require.Equal(t, 3, report.Refusals[0].Times)
	require.Empty(t, report.Steps)
}

// measuredLog keeps the bytes of payloads in its largest answer.
type measuredLog struct {
	pipeline.Log
	largest int
}

func (l *measuredLog) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	events, err := l.Log.Events(ctx, q)
	l.measure(events)
	return events, err
}

func (l *measuredLog) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	found, err := l.Log.SearchEvents(ctx, q, scan)
	l.measure(found.Events)
	return found, err
}

func (l *measuredLog) measure(events []event.Recorded) {
	bytes := 0
	for i := range events {
		bytes += len(events[i].Payload)
	}
	l.largest = max(l.largest, bytes)
}

// A report of large events reads few of them at a time.
func TestSegregation_LargeEvents(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	const events = 20
	b.refusals(t, "p-1", events, 1<<20)
	log := &measuredLog{Log: b.store.Events}
	c := b.service.Config
	c.Events = log
	report := testkit.Must(testkit.Must(pipeline.New(c)).Segregation(t.Context(), pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}}))
	require.Equal(t, events, report.Refusals[0].Times)
	require.NotZero(t, log.largest)
	require.LessOrEqual(t, log.largest, 9<<20)
}
