package pipeline_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

var cashier = person("p-cashier", "cashier")

func TestIntentIsExecutedWithItsTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":50}`))
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	require.Len(t, out.Events, 1)
	require.Equal(t, "till/main", out.Events[0].Stream.String())
	require.EqualValues(t, 1, out.Events[0].StreamVersion)

	e, err := b.store.EventByID(t.Context(), b.entity.Partition, out.Events[0].ID)
	require.NoError(t, err)
	require.Equal(t, out.IntentID, e.IntentID)
	require.Contains(t, string(e.RulesEvaluated), `"till.limit"`)

	stored, again, err := b.service.Get(t.Context(), b.entity, out.IntentID)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, stored.Status)
	require.Equal(t, out.Events, again.Events)
	require.Equal(t, out.Rules, again.Rules)
}

func TestRefusalsAreRecordedAndWriteNoEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		caller  string
		payload string
		code    string
		kept    string
	}{
		"role":   {"p-guest", `{"amount":5}`, "intent.forbidden", `{}`},
		"schema": {"p-cashier", `{"amount":"much"}`, "intent.schema_invalid", `{}`},
		"state":  {"p-cashier", `{"amount":-5}`, "till.overdrawn", `{"amount":-5}`},
		"policy": {"p-cashier", `{"amount":13}`, "till.closed", `{"amount":13}`},
		"kept":   {"p-cashier", `{"amount":5,"slip":"by "}`, "till.slip_invalid", `{"amount":1}`},
		"both":   {"p-cashier", `{"amount":13,"slip":"by Ada"}`, "till.closed", `{"amount":1}`},
	} {
		who := person(c.caller, "guest")
		if c.caller == "p-cashier" {
			who = cashier
		}
		_, err := b.service.Submit(t.Context(), who, b.move(c.payload))
		f, ok := fault.As(err)
		require.True(t, ok, name)
		require.Equal(t, c.code, f.Code, name)
		require.NotEmpty(t, f.IntentID, name)
		id, err := event.ParseID(f.IntentID)
		require.NoError(t, err)
		stored, out, err := b.service.Get(t.Context(), b.entity, id)
		require.NoError(t, err)
		require.Equal(t, intent.Denied, stored.Status)
		require.Equal(t, c.code, stored.Refusal.Code)
		require.JSONEq(t, c.kept, string(stored.Payload))
		require.Empty(t, out.Events)
	}
	head, err := b.store.Head(t.Context(), b.entity.Partition)
	require.NoError(t, err)
	require.Zero(t, head.Sequence)
}

func TestAPlannerMayKeepLessOfThePayload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, payload := range []string{`{"amount":5,"slip":"by Ada"}`, `{"amount":500,"slip":"by Ada"}`} {
		out, err := b.service.Submit(t.Context(), cashier, b.move(payload))
		require.NoError(t, err)
		stored, _, err := b.service.Get(t.Context(), b.entity, out.IntentID)
		require.NoError(t, err)
		require.JSONEq(t, `{"amount":1}`, string(stored.Payload), out.Status)
	}
}

func TestDryRunShowsThePlanAndWritesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := b.move(`{"amount":500}`)
	req.DryRun = true
	out, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	require.Equal(t, intent.Planned, out.Status)
	require.Len(t, out.Drafts, 1)
	require.Len(t, out.Needs, 1)
	require.NotEmpty(t, out.PlanHash)
	_, _, err = b.service.Get(t.Context(), b.entity, out.IntentID)
	require.Equal(t, "intent.not_found", fault.CodeOf(err))
}

func TestApprovalByAnotherPerson(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":500}`))
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, out.Status)
	require.Zero(t, b.balance(t))

	both := person("p-cashier", "cashier", "supervisor")
	_, err = b.service.Approve(t.Context(), both, pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: "", Comment: ""})
	require.Equal(t, "sod.same_person", fault.CodeOf(err))
	_, err = b.service.Approve(t.Context(), person("p-guest", "guest"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: "", Comment: ""})
	require.Equal(t, "intent.forbidden", fault.CodeOf(err))
	robot := person("s-robot", "supervisor")
	robot.Principal.ActorType = event.System
	_, err = b.service.Approve(t.Context(), robot, pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: "", Comment: ""})
	require.Equal(t, "intent.approval_needs_person", fault.CodeOf(err))
	_, err = b.service.Approve(t.Context(), person("p-boss", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: "another plan", Comment: ""})
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "intent.plan_changed", f.Code)
	require.Equal(t, out.IntentID.String(), f.IntentID)
	// What is said with a decision is kept for ever.
	_, err = b.service.Approve(t.Context(), person("p-boss", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "as ada@example.org asked"})
	require.Equal(t, "pii.in_text", fault.CodeOf(err))
	_, err = b.service.Reject(t.Context(), person("p-boss", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "ask ada@example.org"})
	require.Equal(t, "pii.in_text", fault.CodeOf(err))

	done, err := b.service.Approve(t.Context(), person("p-boss", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: out.PlanHash, Comment: "fine"})
	require.NoError(t, err)
	require.Equal(t, intent.Executed, done.Status)
	require.EqualValues(t, 500, b.balance(t))
	stored, _, err := b.service.Get(t.Context(), b.entity, out.IntentID)
	require.NoError(t, err)
	require.Equal(t, "p-boss", stored.Approvals[0].PersonID)
	require.Contains(t, string(stored.Rules), "approved by p-boss as supervisor")

	_, err = b.service.Approve(t.Context(), person("p-boss2", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: "", Comment: ""})
	require.Equal(t, "intent.wrong_state", fault.CodeOf(err))
}

func TestRacingApproversExecuteOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":500}`))
	require.NoError(t, err)
	var won atomic.Int32
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := b.service.Approve(t.Context(), person("p-boss"+string(rune('a'+i)), "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, PlanHash: out.PlanHash, Comment: ""})
			if err == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	require.EqualValues(t, 500, b.balance(t))
}

func TestRejectEndsAnIntent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":500}`))
	require.NoError(t, err)
	rejected, err := b.service.Reject(t.Context(), person("p-boss", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "not today"})
	require.NoError(t, err)
	require.Equal(t, intent.Rejected, rejected.Status)
	require.Zero(t, b.balance(t))
}

// A kept state may be behind; neither an overdraft nor a wrong refusal may come of
// it.
func TestKeptStatesOfAnotherNodeAreNeverTrustedBlindly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.second(t)
	_, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":10}`))
	require.NoError(t, err)
	_, err = other.Submit(t.Context(), cashier, b.move(`{"amount":1}`)) // other keeps balance 11
	require.NoError(t, err)
	_, err = b.service.Submit(t.Context(), cashier, b.move(`{"amount":50}`))
	require.NoError(t, err)

	_, err = other.Submit(t.Context(), cashier, b.move(`{"amount":-60}`)) // right only on fresh state
	require.NoError(t, err)
	require.EqualValues(t, 1, b.balance(t))
	_, err = b.service.Submit(t.Context(), cashier, b.move(`{"amount":-60}`)) // its kept state says 61
	require.Equal(t, "till.overdrawn", fault.CodeOf(err))
	require.EqualValues(t, 1, b.balance(t))
}

func TestConflictsAreRetriedAndThenExplained(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.second(t)
	var times atomic.Int32
	b.appender.mu.Lock()
	b.appender.before = func(r ports.AppendRequest) {
		if len(r.Events) > 0 && times.Add(1) <= 2 {
			_, err := other.Submit(t.Context(), person("p-other", "cashier"), b.move(`{"amount":1}`))
			require.NoError(t, err)
		}
	}
	b.appender.mu.Unlock()
	_, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":5}`))
	require.NoError(t, err)
	require.EqualValues(t, 7, b.balance(t))

	times.Store(-1000)
	_, err = b.service.Submit(t.Context(), cashier, b.move(`{"amount":5}`))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "append.wrong_expected_version", f.Code)
	require.NotNil(t, f.Expected)
	require.NotNil(t, f.Actual)
	id, err := event.ParseID(f.IntentID)
	require.NoError(t, err)
	stored, _, err := b.service.Get(t.Context(), b.entity, id)
	require.NoError(t, err)
	require.Equal(t, intent.Failed, stored.Status)
}

func TestRacersNeverOverdraw(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":3}`))
	require.NoError(t, err)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":-1}`)); err == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, won.Load(), int32(3))
	require.GreaterOrEqual(t, b.balance(t), int64(0))
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := b.move(`{"amount":5}`)
	req.IdempotencyKey = "k-1"
	first, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	again, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.IntentID, again.IntentID)
	require.Equal(t, first.Events, again.Events)
	require.EqualValues(t, 5, b.balance(t))

	changed := b.move(`{"amount":6}`)
	changed.IdempotencyKey = "k-1"
	_, err = b.service.Submit(t.Context(), cashier, changed)
	require.Equal(t, "intent.idempotency_mismatch", fault.CodeOf(err))

	// Another person's key of the same text is another key.
	_, err = b.service.Submit(t.Context(), person("p-other", "cashier"), changed)
	require.NoError(t, err)

	// A refusal does not use the key up.
	refused := b.move(`{"amount":-50}`)
	refused.IdempotencyKey = "k-2"
	_, err = b.service.Submit(t.Context(), cashier, refused)
	require.Equal(t, "till.overdrawn", fault.CodeOf(err))
	_, err = b.service.Submit(t.Context(), cashier, b.move(`{"amount":90}`))
	require.NoError(t, err)
	_, err = b.service.Submit(t.Context(), cashier, refused)
	require.NoError(t, err)
}

func TestSameBusinessKeyFromManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var won, named atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			_, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":1,"slip":"s 1"}`))
			f, _ := fault.As(err)
			switch {
			case err == nil:
				won.Add(1)
			case f.Code == "till.slip_used" && f.Holder != nil && f.Holder.EventID != "" && f.Holder.DocumentID == "s 1":
				named.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	require.EqualValues(t, 1, b.balance(t))
	// The till is one hot stream, so some racers may give up on the stream itself.
	require.Positive(t, named.Load())
}

// State that moved on would refuse the repetition; the first outcome counts.
func TestRepetitionAfterStateMovedOnIsNotRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":5}`))
	require.NoError(t, err)
	req := b.move(`{"amount":-5}`)
	req.IdempotencyKey = "take-all"
	first, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	again, err := b.service.Submit(t.Context(), cashier, req) // the till is empty now
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.Events, again.Events)
	require.Zero(t, b.balance(t))
}

func TestDecisionsAreRepeatable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	boss := person("p-boss", "supervisor")
	out, err := b.service.Submit(t.Context(), cashier, b.move(`{"amount":500}`))
	require.NoError(t, err)
	yes := pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "fine", IdempotencyKey: "yes-1"}
	done, err := b.service.Approve(t.Context(), boss, yes)
	require.NoError(t, err)
	again, err := b.service.Approve(t.Context(), boss, yes)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, done.Events, again.Events)
	require.EqualValues(t, 500, b.balance(t))

	yes.Comment = "another word"
	_, err = b.service.Approve(t.Context(), boss, yes)
	require.Equal(t, "intent.idempotency_mismatch", fault.CodeOf(err))

	out, err = b.service.Submit(t.Context(), cashier, b.move(`{"amount":600}`))
	require.NoError(t, err)
	no := pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "no", IdempotencyKey: "no-1"}
	_, err = b.service.Reject(t.Context(), boss, no)
	require.NoError(t, err)
	again, err = b.service.Reject(t.Context(), boss, no)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, intent.Rejected, again.Status)
}
