package pipeline_test

import (
	"fmt"
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

// A report is complete or refused.
func TestSegregation_TooManyRefusals(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	const batches, perBatch = 101, 100
	for i := range batches {
		events := make([]event.Prepared, perBatch)
		for j := range events {
			events[j] = event.Prepared{
				Skeleton: event.Skeleton{
					ID: b.service.IDs.NewID(time.Now()), Type: intent.Refused, SchemaVersion: 1, Stream: event.StreamID{Type: "intent", ID: fmt.Sprint(i, "-", j)},
					Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
				},
				Payload: []byte(`{"data":{"intent_type":"loan.give_loan","refusal":{"code":"intent.forbidden","kind":"forbidden"}},"dimensions":{},"entity_refs":[]}`),
			}
		}
		_, err := b.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: events})
		require.NoError(t, err)
	}
	_, err := b.service.Segregation(t.Context(), pipeline.SegregationRequest{LegalEntities: []ports.LegalEntity{b.entity}})
	require.Equal(t, "report.too_many_events", fault.CodeOf(err))
}
