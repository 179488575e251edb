package pipeline_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// timedOutPolicy is a policy engine that times out on one rule.
type timedOutPolicy struct {
	ports.PolicyEngine
	rule string // none if empty
}

func (h *timedOutPolicy) Decide(ctx context.Context, query string, input, out any) error {
	if h.rule != "" && strings.HasSuffix(query, "."+h.rule) {
		return fault.New(fault.Unavailable, "policy.undecided", "not in time; send it again").WithRetryAfter(time.Second)
	}
	return h.PolicyEngine.Decide(ctx, query, input, out)
}

// A policy's time-out is no refusal: nothing is stored, the idempotency key stays free,
// and the same request succeeds when the policy answers.
func TestSubmit_PolicyTimeout(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"submit", "decision"} {
		b := newCashFixture(t)
		policies := &timedOutPolicy{PolicyEngine: b.service.Policies, rule: rule}
		c := b.service.Config
		c.Policies = policies
		service := testkit.Must(pipeline.New(c))
		req := b.moveCash(`{"amount":5}`)
		req.IdempotencyKey = "key-" + rule
		_, err := service.Submit(t.Context(), cashier, req)
		f, ok := fault.As(err)
		require.True(t, ok, "%s: %v", rule, err)
		require.Equal(t, "policy.undecided", f.Code)
		require.Equal(t, fault.Unavailable, f.Kind)
		require.Positive(t, f.RetryAfter)
		require.Empty(t, f.IntentID, "there is no intent to read")
		head, err := b.store.Events.Head(t.Context(), b.entity.Partition)
		require.NoError(t, err)
		require.Zero(t, head.Sequence)

		policies.rule = ""
		out, err := service.Submit(t.Context(), cashier, req)
		require.NoError(t, err, rule)
		require.Equal(t, intent.Executed, out.Status)
		require.False(t, out.Replayed)
	}
}

// An approval whose policy timed out leaves the intent parked.
func TestApprove_PolicyTimeout(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	waiting, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":500}`))
	require.NoError(t, err)
	c := b.service.Config
	policies := &timedOutPolicy{PolicyEngine: b.service.Policies, rule: "decision"}
	c.Policies = policies
	service := testkit.Must(pipeline.New(c))
	approve := func() (pipeline.Outcome, error) {
		return service.Approve(t.Context(), person("p-chief", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: waiting.IntentID})
	}
	_, err = approve()
	require.Equal(t, fault.Unavailable, fault.KindOf(err))
	stored, _, err := b.service.Get(t.Context(), b.entity, waiting.IntentID)
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, stored.Status)
	policies.rule = ""
	out, err := approve()
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
}
