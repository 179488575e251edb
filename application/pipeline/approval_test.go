package pipeline_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

var (
	supervisor = person("p-supervisor", "supervisor")
	director   = person("p-director", "director")
)

// submitLoan submits a loan that is expected to wait.
func (b *cashFixture) submitLoan(t *testing.T, amount int) event.ID {
	t.Helper()
	out, err := b.service.Submit(t.Context(), cashier, b.giveLoan(amount))
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, out.Status)
	return out.IntentID
}

// conflictOnce lets another node change the state between planning and the first write
// that keep selects.
func (b *cashFixture) conflictOnce(t *testing.T, keep func(ports.AppendRequest) bool, amount int) {
	t.Helper()
	other := b.secondNode(t)
	var done atomic.Bool
	b.appender.mu.Lock()
	defer b.appender.mu.Unlock()
	b.appender.before = func(r ports.AppendRequest) {
		if keep(r) && done.CompareAndSwap(false, true) {
			_, err := other.Submit(t.Context(), cashier, b.giveLoan(amount))
			require.NoError(t, err)
		}
	}
}

func writesNoEvents(r ports.AppendRequest) bool { return len(r.Events) == 0 }

// A changed plan is stored again after a conflict, without this approval and with the earlier
// ones.
func TestApprove_ChangedPlanMeetsConflict(t *testing.T) {
	t.Parallel()
	for _, earlier := range []int{0, 1} {
		b := newFixtureWith(t, loanModule{})
		id := b.submitLoan(t, 2000)
		decide := func(who pipeline.Caller, key string) (pipeline.Outcome, error) {
			return b.service.Approve(t.Context(), who, pipeline.Decision{LegalEntity: b.entity, Intent: id, IdempotencyKey: key})
		}
		if earlier > 0 {
			out, err := decide(supervisor, "")
			require.NoError(t, err)
			require.Equal(t, intent.PendingApproval, out.Status)
			require.Len(t, out.Needs, 1, "the supervisor's need is met")
		}
		_, err := b.service.Submit(t.Context(), cashier, b.giveLoan(1)) // changes the plan
		require.NoError(t, err)
		b.conflictOnce(t, writesNoEvents, 1)
		_, err = decide(director, "yes")
		require.Equal(t, "intent.plan_changed", fault.CodeOf(err))

		stored, _, err := b.service.Get(t.Context(), b.entity, id)
		require.NoError(t, err)
		require.Equal(t, intent.PendingApproval, stored.Status)
		require.Len(t, stored.Approvals, earlier)
		require.Equal(t, 2+earlier, stored.Revision)

		// The same person approves the new plan, under the same key.
		out, err := decide(director, "yes")
		require.NoError(t, err)
		require.False(t, out.Replayed)
		if earlier > 0 {
			require.Equal(t, intent.Executed, out.Status)
		} else {
			require.Equal(t, intent.PendingApproval, out.Status)
		}
	}
}

// An intent whose plan has changed waits with the documents of the new plan, in its row and in the
// event that binds it.
func TestApprove_ChangedPlanWritesOtherDocuments(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, loanOnOwnStream)
	_, err := b.service.Submit(t.Context(), cashier, b.giveLoan(1))
	require.NoError(t, err)
	_, err = b.service.Approve(t.Context(), supervisor, pipeline.Decision{LegalEntity: b.entity, Intent: id})
	require.Equal(t, "intent.plan_changed", fault.CodeOf(err))

	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, []string{"loan/after-1"}, stored.Documents)
	require.Equal(t, []string{intent.Waiting, intent.Waiting}, b.eventsAbout(t, id))
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, intent.StreamOf(id), 2, 1)
	require.NoError(t, err)
	require.Contains(t, string(events[0].Payload), `"documents":["loan/after-1"]`)
}

// A changed plan that has no unmet need is executed: parked, it could never be decided.
func TestApprove_ChangedPlanWithoutUnmetNeed(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 2000)
	for range 100 {
		_, err := b.service.Submit(t.Context(), cashier, b.giveLoan(100))
		require.NoError(t, err)
	}
	yes := pipeline.Decision{LegalEntity: b.entity, Intent: id, IdempotencyKey: "yes"}
	out, err := b.service.Approve(t.Context(), supervisor, yes)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	require.Empty(t, out.Needs)
	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, stored.Status)
	require.Empty(t, stored.Approvals, "the approval was for another plan")

	again, err := b.service.Approve(t.Context(), supervisor, yes)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, out.Events, again.Events)
}

// A policy that contradicts itself gives no decision; nothing is executed without the
// approval that it may have meant.
func TestSubmit_ContradictingPolicy(t *testing.T) {
	t.Parallel()
	for _, amount := range []int{loanNeedsNothing, loanAllowedYetNeed} {
		for _, dry := range []bool{false, true} {
			b := newFixtureWith(t, loanModule{})
			req := b.giveLoan(amount)
			req.DryRun = dry
			_, err := b.service.Submit(t.Context(), cashier, req)
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, "policy.undecided", f.Code)
			require.Equal(t, fault.Forbidden, f.Kind)
			given, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, loans, 1, 1)
			require.NoError(t, err)
			require.Empty(t, given)
		}
	}
}

// An outcome names the needs that no approval meets, whether it was just made or read.
func TestApprove_Needs(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	id := b.submitLoan(t, 2000)
	yes := pipeline.Decision{LegalEntity: b.entity, Intent: id, IdempotencyKey: "yes"}
	first, err := b.service.Approve(t.Context(), supervisor, yes)
	require.NoError(t, err)
	require.Len(t, first.Needs, 1)
	again, err := b.service.Approve(t.Context(), supervisor, yes)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.Needs, again.Needs)
	stored, read, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, first.Needs, read.Needs)
	require.Len(t, stored.Needs, 2)

	_, err = b.service.Approve(t.Context(), director, yes)
	require.NoError(t, err)
	_, read, err = b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Empty(t, read.Needs)
}

// An intent of a module that is disabled can be rejected. It cannot be approved, because nothing
// plans it.
func TestReject_ModuleIsDisabled(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	d := pipeline.Decision{LegalEntity: b.entity, Intent: b.submitLoan(t, 200)}
	c := b.service.Config
	c.Catalog = testkit.Must(module.Build(typestest.Schemas{}, pipeline.Module{}))
	without := testkit.Must(pipeline.New(c))

	_, err := without.Approve(t.Context(), supervisor, d)
	require.Equal(t, "intent.type_unknown", fault.CodeOf(err))
	_, err = without.Reject(t.Context(), person("p-guest", "guest"), d)
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	out, err := without.Reject(t.Context(), supervisor, d)
	require.NoError(t, err)
	require.Equal(t, intent.Rejected, out.Status)
	require.Equal(t, []string{intent.Waiting, intent.DecisionRefused, intent.RejectedEvent}, b.eventsAbout(t, d.Intent))
}

// leavingCaller is a policy engine during whose decision the caller leaves.
type leavingCaller struct {
	ports.PolicyEngine
	leave context.CancelFunc
}

func (c leavingCaller) Decide(ctx context.Context, query string, input, out any) error {
	err := c.PolicyEngine.Decide(ctx, query, input, out)
	if strings.HasSuffix(query, ".decision") {
		c.leave()
	}
	return err
}

func TestSubmit_RefusalIsRecordedThoughCallerLeft(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, loanModule{})
	ctx, leave := context.WithCancel(t.Context())
	c := b.service.Config
	c.Policies = leavingCaller{c.Policies, leave}
	_, err := testkit.Must(pipeline.New(c)).Submit(ctx, cashier, b.giveLoan(loanNeedsNothing))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "policy.undecided", f.Code)
	id, err := event.ParseID(f.IntentID)
	require.NoError(t, err, "the refusal was not stored")
	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, intent.Denied, stored.Status)
}
