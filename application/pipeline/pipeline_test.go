package pipeline_test

import (
	"strings"
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

func TestSubmit_ExecutesWithRuleTrace(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	out, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":50}`))
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	require.Len(t, out.Events, 1)
	require.Equal(t, "cash/main", out.Events[0].Stream.String())
	require.EqualValues(t, 1, out.Events[0].StreamVersion)

	e, err := b.store.Events.EventByID(t.Context(), b.entity.Partition, out.Events[0].ID)
	require.NoError(t, err)
	require.Equal(t, out.IntentID, e.IntentID)
	require.Contains(t, string(e.RulesEvaluated), `"cash.limit"`)

	stored, again, err := b.service.Get(t.Context(), b.entity, out.IntentID)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, stored.Status)
	require.Equal(t, out.Events, again.Events)
	require.Equal(t, out.Rules, again.Rules)
}

func TestSubmit_RecordsRefusals(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	for name, c := range map[string]struct {
		caller  string
		payload string
		code    string
		kept    string
	}{
		"role":   {"p-guest", `{"amount":5}`, "intent.forbidden", `{"amount":5}`},
		"schema": {"p-cashier", `{"amount":"much"}`, "intent.schema_invalid", `{}`},
		"state":  {"p-cashier", `{"amount":-5}`, "cash.overdrawn", `{"amount":-5}`},
		"policy": {"p-cashier", `{"amount":13}`, "cash.closed", `{"amount":13}`},
		"kept":   {"p-cashier", `{"amount":5,"slip":"by "}`, "cash.slip_invalid", `{"amount":1}`},
		"both":   {"p-cashier", `{"amount":13,"slip":"by Ada"}`, "cash.closed", `{"amount":1}`},
	} {
		who := person(c.caller, "guest")
		if c.caller == "p-cashier" {
			who = cashier
		}
		_, err := b.service.Submit(t.Context(), who, b.moveCash(c.payload))
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
		require.Equal(t, []string{intent.Refused}, b.eventsAbout(t, id), name)
	}
	require.Zero(t, b.balance(t))
}

func TestSubmit_ReducedPayload(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	for _, payload := range []string{`{"amount":5,"slip":"by Ada"}`, `{"amount":500,"slip":"by Ada"}`} {
		out, err := b.service.Submit(t.Context(), cashier, b.moveCash(payload))
		require.NoError(t, err)
		stored, _, err := b.service.Get(t.Context(), b.entity, out.IntentID)
		require.NoError(t, err)
		require.JSONEq(t, `{"amount":1}`, string(stored.Payload), out.Status)
	}
}

func TestSubmit_DryRun(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	req := b.moveCash(`{"amount":500}`)
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

func TestApprove(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	out, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":500}`))
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
	// The comment of a decision is never erased.
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

func TestApprove_Concurrently(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	out, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":500}`))
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

func TestReject(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	out, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":500}`))
	require.NoError(t, err)
	rejected, err := b.service.Reject(t.Context(), person("p-boss", "supervisor"), pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "not today"})
	require.NoError(t, err)
	require.Equal(t, intent.Rejected, rejected.Status)
	require.Zero(t, b.balance(t))
}

// A stale cached state causes neither an overdraft nor a wrong refusal.
func TestSubmit_StaleCache(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	other := b.secondNode(t)
	_, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":10}`))
	require.NoError(t, err)
	_, err = other.Submit(t.Context(), cashier, b.moveCash(`{"amount":1}`)) // other caches balance 11
	require.NoError(t, err)
	_, err = b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":50}`))
	require.NoError(t, err)

	_, err = other.Submit(t.Context(), cashier, b.moveCash(`{"amount":-60}`)) // allowed on fresh state only
	require.NoError(t, err)
	require.EqualValues(t, 1, b.balance(t))
	_, err = b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":-60}`)) // its cached state says 61
	require.Equal(t, "cash.overdrawn", fault.CodeOf(err))
	require.EqualValues(t, 1, b.balance(t))
}

func TestSubmit_RetriesConflicts(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	other := b.secondNode(t)
	var times atomic.Int32
	b.appender.mu.Lock()
	b.appender.before = func(r ports.AppendRequest) {
		if len(r.Events) > 0 && times.Add(1) <= 2 {
			_, err := other.Submit(t.Context(), person("p-other", "cashier"), b.moveCash(`{"amount":1}`))
			require.NoError(t, err)
		}
	}
	b.appender.mu.Unlock()
	_, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":5}`))
	require.NoError(t, err)
	require.EqualValues(t, 7, b.balance(t))

	times.Store(-1000)
	_, err = b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":5}`))
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

func TestSubmit_Concurrently(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	_, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":3}`))
	require.NoError(t, err)
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":-1}`)); err == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, won.Load(), int32(3))
	require.GreaterOrEqual(t, b.balance(t), int64(0))
}

func TestSubmit_IdempotencyKeys(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	req := b.moveCash(`{"amount":5}`)
	req.IdempotencyKey = "k-1"
	first, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	again, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.IntentID, again.IntentID)
	require.Equal(t, first.Events, again.Events)
	require.EqualValues(t, 5, b.balance(t))

	changed := b.moveCash(`{"amount":6}`)
	changed.IdempotencyKey = "k-1"
	_, err = b.service.Submit(t.Context(), cashier, changed)
	require.Equal(t, "intent.idempotency_mismatch", fault.CodeOf(err))

	// Keys are scoped to a person.
	_, err = b.service.Submit(t.Context(), person("p-other", "cashier"), changed)
	require.NoError(t, err)

	// A refusal leaves the key free.
	refused := b.moveCash(`{"amount":-50}`)
	refused.IdempotencyKey = "k-2"
	_, err = b.service.Submit(t.Context(), cashier, refused)
	require.Equal(t, "cash.overdrawn", fault.CodeOf(err))
	_, err = b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":90}`))
	require.NoError(t, err)
	_, err = b.service.Submit(t.Context(), cashier, refused)
	require.NoError(t, err)
}

// Two tenants may name their legal entities, persons and keys alike.
func TestSubmit_IdempotencyKeyOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	other, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "globex", Code: b.entity.Code, Name: "US", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	req := b.moveCash(`{"amount":5}`)
	req.IdempotencyKey = "k-1"
	theirs := req
	theirs.LegalEntity = other
	stranger := cashier
	stranger.Principal.TenantID = other.TenantID
	var during, repeated error
	b.appender.before = func(r ports.AppendRequest) {
		if r.Partition == b.entity.Partition {
			_, repeated = b.service.Submit(t.Context(), cashier, req)
			_, during = b.service.Submit(t.Context(), stranger, theirs)
		}
	}
	_, err = b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	require.Equal(t, "idempotency.in_progress", fault.CodeOf(repeated))
	require.NoError(t, during)
}

func TestSubmit_ConcurrentBusinessKey(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	var won, named atomic.Int32
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			_, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":1,"slip":"s 1"}`))
			f, _ := fault.As(err)
			switch {
			case err == nil:
				won.Add(1)
			case f.Code == "cash.slip_used" && f.Holder != nil && f.Holder.EventID != "" && f.Holder.DocumentID == "s 1":
				named.Add(1)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	require.EqualValues(t, 1, b.balance(t))
	// All requests write to one stream, so some may fail on its version instead.
	require.Positive(t, named.Load())
}

// The repetition would be refused on the changed state; it gets the first outcome.
func TestSubmit_ReplayAfterStateChanged(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	_, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":5}`))
	require.NoError(t, err)
	req := b.moveCash(`{"amount":-5}`)
	req.IdempotencyKey = "take-all"
	first, err := b.service.Submit(t.Context(), cashier, req)
	require.NoError(t, err)
	again, err := b.service.Submit(t.Context(), cashier, req) // the cash box is empty now
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, first.Events, again.Events)
	require.Zero(t, b.balance(t))
}

func TestApprove_Replay(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	boss := person("p-boss", "supervisor")
	out, err := b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":500}`))
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

	out, err = b.service.Submit(t.Context(), cashier, b.moveCash(`{"amount":600}`))
	require.NoError(t, err)
	no := pipeline.Decision{LegalEntity: b.entity, Intent: out.IntentID, Comment: "no", IdempotencyKey: "no-1"}
	_, err = b.service.Reject(t.Context(), boss, no)
	require.NoError(t, err)
	again, err = b.service.Reject(t.Context(), boss, no)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, intent.Rejected, again.Status)
}

// Correlation id and source are stored in the intent's row and in the skeleton of its
// events, and are never erased.
func TestSubmit_Identifiers(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	long := strings.Repeat("x", 513)
	for field, set := range map[string]func(*pipeline.Request, string){
		"/correlation_id":   func(r *pipeline.Request, s string) { r.CorrelationID = s },
		"/source/system":    func(r *pipeline.Request, s string) { r.Source = event.Source{System: s, Channel: "c"} },
		"/source/channel":   func(r *pipeline.Request, s string) { r.Source = event.Source{System: "s", Channel: s} },
		"/source/reference": func(r *pipeline.Request, s string) { r.Source = event.Source{System: "s", Channel: "c", Reference: s} },
	} {
		for text, code := range map[string]string{
			canary: "pii.in_identifier", "DE89 3704 0044 0532 0130 00": "pii.in_identifier", "+49 170 1234567": "pii.in_identifier",
			long: "append.identifier_invalid", "a\x00b": "append.identifier_invalid", "a\xffb": "append.identifier_invalid",
		} {
			for _, fee := range []int{5, 500, feeDenied} {
				for _, dry := range []bool{false, true} {
					req := h.registerMember(fee)
					req.DryRun = dry
					set(&req, text)
					_, err := h.service.Submit(t.Context(), clerk, req)
					f, ok := fault.As(err)
					require.True(t, ok, "%s %.20q %d: %v", field, text, fee, err)
					require.Equal(t, code, f.Code, "%s %.20q %d", field, text, fee)
					require.Equal(t, field, f.Field)
					require.Empty(t, f.IntentID, "a row would keep it")
				}
			}
		}
		req := h.registerMember(5)
		set(&req, "order-9")
		_, err := h.service.Submit(t.Context(), clerk, req)
		require.NoError(t, err)
	}
	require.Len(t, h.appender.requests, 4)
}
