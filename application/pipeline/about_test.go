package pipeline_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// eventsAbout lists the types of the events about an intent, and checks that the row's last
// event binds it.
func (b *cashFixture) eventsAbout(t *testing.T, id event.ID) (types []string) {
	t.Helper()
	stored, out, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	last, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, After: stored.LastSequence - 1, Limit: 1})
	require.NoError(t, err)
	require.Len(t, last, 1)
	require.Equal(t, id, last[0].IntentID)
	binding, bound := intent.BindingOf(last[0].Payload)
	require.True(t, bound)
	want, err := stored.Bind()
	require.NoError(t, err)
	require.Equal(t, want, binding)
	for _, e := range out.Events {
		require.NotEqual(t, "intent", e.Stream.Type, "they are not made by the intent")
	}
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(id), 1, 100)
	require.NoError(t, err)
	for _, e := range events {
		require.Equal(t, stored.CorrelationID, e.CorrelationID)
		types = append(types, e.Type)
	}
	if len(stored.Rules) > 0 {
		require.JSONEq(t, string(stored.Rules), string(last[0].RulesEvaluated), "the event has the rule trace of the row")
	}
	return types
}

// Every outcome but plain execution is an event, written with the row that it binds.
func TestOutcomes_AreEvents(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	decide := func(id event.ID) pipeline.Decision {
		return pipeline.Decision{LegalEntity: b.entity, Intent: id, Comment: "seen"}
	}

	plain, err := b.service.Submit(t.Context(), cashier, b.giveLoan(1))
	require.NoError(t, err)
	require.Empty(t, b.eventsAbout(t, plain.IntentID))
	head, err := b.store.Events.Head(t.Context(), b.entity.Partition)
	require.NoError(t, err)
	require.EqualValues(t, 1, head.Sequence, "plain execution has no event of its own")

	id := b.submitLoan(t, 2000)
	_, err = b.service.Approve(t.Context(), supervisor, decide(id))
	require.NoError(t, err)
	require.Equal(t, []string{intent.Waiting, intent.ApprovalRecorded}, b.eventsAbout(t, id))
	done, err := b.service.Approve(t.Context(), director, decide(id))
	require.NoError(t, err)
	require.Len(t, done.Events, 1)
	require.Equal(t, []string{intent.Waiting, intent.ApprovalRecorded, intent.Approved}, b.eventsAbout(t, id))
	_, read, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, done.Events, read.Events)

	rejected := b.submitLoan(t, 200)
	_, err = b.service.Submit(t.Context(), cashier, b.giveLoan(1))
	require.NoError(t, err)
	_, err = b.service.Approve(t.Context(), supervisor, decide(rejected))
	require.Equal(t, "intent.plan_changed", fault.CodeOf(err))
	require.Equal(t, []string{intent.Waiting, intent.Waiting}, b.eventsAbout(t, rejected))
	_, err = b.service.Reject(t.Context(), supervisor, decide(rejected))
	require.NoError(t, err)
	require.Equal(t, []string{intent.Waiting, intent.Waiting, intent.RejectedEvent}, b.eventsAbout(t, rejected))

	// The event has the approver as its actor, the decision and no payload.
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(rejected), 3, 1)
	require.NoError(t, err)
	require.Equal(t, supervisor.Actor.ID, events[0].ActorID)
	data, err := events[0].Data()
	require.NoError(t, err)
	var about struct {
		Status   string
		Decision struct {
			PersonID string `json:"person_id"`
			Comment  string
		}
	}
	require.NoError(t, json.Unmarshal(data, &about))
	require.Equal(t, "rejected", about.Status)
	require.Equal(t, supervisor.Principal.PersonID, about.Decision.PersonID)
	require.Equal(t, "seen", about.Decision.Comment)
}

// A refusal is an event with the rules that led to it, and its row has them too.
func TestOutcomes_RefusalIsAnEvent(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	for payload, rule := range map[string]string{`{"amount":"much"}`: "", `{"amount":-5}`: "", `{"amount":13}`: "cash.closed"} {
		_, err := b.service.Submit(t.Context(), cashier, b.moveCash(payload))
		f, ok := fault.As(err)
		require.True(t, ok)
		id, err := event.ParseID(f.IntentID)
		require.NoError(t, err)
		require.Equal(t, []string{intent.Refused}, b.eventsAbout(t, id))
		events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(id), 1, 1)
		require.NoError(t, err)
		require.Contains(t, string(events[0].Payload), f.Code)
		require.NotContains(t, string(events[0].Payload), f.Detail, "the words may quote the request")
		require.Contains(t, string(events[0].RulesEvaluated), rule)
	}
}

// A decision that a person may not make is an event with the rule that forbade it. The intent
// waits as before, and its row is still the one that its last event binds.
func TestApprove_RefusedDecisionIsAnEvent(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 2000)
	d := pipeline.Decision{LegalEntity: b.entity, Intent: id}
	_, err := b.service.Approve(t.Context(), supervisor, d)
	require.NoError(t, err)
	before, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	refusals := []struct {
		attempt, code, rule string
		decide              func() error
	}{
		{"approve", "sod.same_person", "S8", func() error {
			_, err := b.service.Approve(t.Context(), person(cashier.Principal.PersonID, "director"), d)
			return err
		}},
		{"approve", "sod.same_person", "S2", func() error { _, err := b.service.Approve(t.Context(), supervisor, d); return err }},
		{"reject", "intent.forbidden", "", func() error { _, err := b.service.Reject(t.Context(), person("p-guest", "guest"), d); return err }},
		{"withdraw", "intent.not_requester", "", func() error { _, err := b.service.Withdraw(t.Context(), director, d); return err }},
	}
	for _, r := range refusals {
		require.Equal(t, r.code, fault.CodeOf(r.decide()))
	}
	after, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, before, after)
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(id), 3, 100)
	require.NoError(t, err)
	require.Len(t, events, len(refusals))
	for i, e := range events {
		require.Equal(t, intent.DecisionRefused, e.Type)
		data, err := e.Data()
		require.NoError(t, err)
		var about struct {
			Attempt string
			Refusal struct{ Code, Rule string }
		}
		require.NoError(t, json.Unmarshal(data, &about))
		require.Equal(t, refusals[i].attempt, about.Attempt)
		require.Equal(t, refusals[i].code, about.Refusal.Code)
		require.Equal(t, refusals[i].rule, about.Refusal.Rule)
		_, bound := intent.BindingOf(e.Payload)
		require.False(t, bound)
	}
	done, err := b.service.Approve(t.Context(), director, d)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, done.Status)
}
