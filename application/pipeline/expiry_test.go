package pipeline_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
)

func TestWithdraw(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 200)
	back := pipeline.Decision{LegalEntity: b.entity, Intent: id, Comment: "submitted twice", IdempotencyKey: "back"}
	for _, who := range []pipeline.Caller{supervisor, person("p-other", "cashier")} {
		_, err := b.service.Withdraw(t.Context(), who, back)
		require.Equal(t, "intent.not_requester", fault.CodeOf(err))
		require.Equal(t, fault.Forbidden, fault.KindOf(err))
	}
	personal := back
	personal.Comment = "as ada@example.org asked"
	_, err := b.service.Withdraw(t.Context(), cashier, personal)
	require.Equal(t, "pii.in_text", fault.CodeOf(err))

	out, err := b.service.Withdraw(t.Context(), cashier, back)
	require.NoError(t, err)
	require.Equal(t, intent.Withdrawn, out.Status)
	require.Empty(t, out.Events)
	require.Equal(t, []string{intent.Waiting, intent.DecisionRefused, intent.DecisionRefused, intent.WithdrawnEvent}, b.eventsAbout(t, id))
	again, err := b.service.Withdraw(t.Context(), cashier, back)
	require.NoError(t, err)
	require.True(t, again.Replayed)

	_, err = b.service.Approve(t.Context(), supervisor, pipeline.Decision{LegalEntity: b.entity, Intent: id})
	require.Equal(t, "intent.wrong_state", fault.CodeOf(err))
	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, "withdrawn", stored.Approvals[0].Decision)
	require.Equal(t, "submitted twice", stored.Approvals[0].Comment)
}

func TestExpire(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	old := []event.ID{b.submitLoan(t, 200), b.submitLoan(t, 2000)}
	_, err := b.service.Approve(t.Context(), supervisor, pipeline.Decision{LegalEntity: b.entity, Intent: old[1]})
	require.NoError(t, err)
	young, err := b.service.Intents.Intent(t.Context(), b.entity.Partition, b.submitLoan(t, 300))
	require.NoError(t, err)

	n, err := b.service.Expire(t.Context(), b.entity, young.CreatedAt.Add(-time.Microsecond))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []string{intent.Waiting, intent.ExpiredEvent}, b.eventsAbout(t, old[0]))
	require.Equal(t, []string{intent.Waiting, intent.ApprovalRecorded, intent.ExpiredEvent}, b.eventsAbout(t, old[1]))
	require.Equal(t, []string{intent.Waiting}, b.eventsAbout(t, young.ID))
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(old[0]), 2, 1)
	require.NoError(t, err)
	require.Equal(t, event.System, events[0].ActorType)
	require.Equal(t, "backbone", events[0].ActorID)
	stored, _, err := b.service.Get(t.Context(), b.entity, old[1])
	require.NoError(t, err)
	require.Equal(t, intent.Expired, stored.Status)
	require.Len(t, stored.Approvals, 1, "expiry is no person's decision")

	n, err = b.service.Expire(t.Context(), b.entity, young.CreatedAt.Add(-time.Microsecond))
	require.NoError(t, err)
	require.Zero(t, n)
}

// Two nodes share the work, and only one of them ends an intent.
func TestExpiry_SharedByNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFixtureWith(t, loanModule{})
		id := b.submitLoan(t, 200)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		for _, node := range []string{"a", "b"} {
			expiry := pipeline.NewExpiry(pipeline.ExpiryConfig{
				Service: b.service, Entities: b.store.Directory, Leases: b.store.Leases, Node: node, Limit: time.Hour, Interval: time.Minute,
				Clock: clock{}, Logger: slog.New(slog.DiscardHandler),
			})
			running.Go(func() { expiry.Run(ctx) })
		}
		<-time.After(time.Hour - 1)
		synctest.Wait()
		require.Equal(t, []string{intent.Waiting}, b.eventsAbout(t, id), "not before the limit")
		<-time.After(1)
		synctest.Wait()
		require.Equal(t, []string{intent.Waiting, intent.ExpiredEvent}, b.eventsAbout(t, id))
	})
}

// Approval, rejection, withdrawal and expiry compete; one wins, and its event is the last.
func TestOutcomes_Compete(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	events := map[intent.Status]string{
		intent.Executed: intent.Approved, intent.Rejected: intent.RejectedEvent, intent.Withdrawn: intent.WithdrawnEvent, intent.Expired: intent.ExpiredEvent,
	}
	for range 20 {
		id := b.submitLoan(t, 200)
		d := pipeline.Decision{LegalEntity: b.entity, Intent: id, Comment: "now"}
		var won [4]bool
		var running sync.WaitGroup
		for i, end := range []func() error{
			func() error { _, err := b.service.Approve(t.Context(), supervisor, d); return err },
			func() error { _, err := b.service.Reject(t.Context(), person("p-s2", "supervisor"), d); return err },
			func() error { _, err := b.service.Withdraw(t.Context(), cashier, d); return err },
			func() error {
				n, err := b.service.Expire(t.Context(), b.entity, time.Now().Add(time.Hour))
				if err == nil && n == 0 {
					err = fault.New(fault.Conflict, "lost", "another outcome came first")
				}
				return err
			},
		} {
			running.Go(func() { won[i] = end() == nil })
		}
		running.Wait()
		winners := 0
		for _, w := range won {
			if w {
				winners++
			}
		}
		require.Equal(t, 1, winners)
		stored, _, err := b.service.Get(t.Context(), b.entity, id)
		require.NoError(t, err)
		require.Equal(t, []string{intent.Waiting, events[stored.Status]}, b.eventsAbout(t, id))
	}
}
