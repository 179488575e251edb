package pipeline_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/test/testkit"
)

// storedIntent reads an intent's payload, as stored and opened.
func (h *membershipFixture) storedIntent(t *testing.T, id event.ID) (sealed, opened string) {
	t.Helper()
	i, _, err := h.service.Get(t.Context(), h.entity, id)
	require.NoError(t, err)
	documents := []module.SealedDocument{{At: module.LocationOf(&i), Document: i.Payload}}
	require.NoError(t, h.vault.Open(t.Context(), documents, module.Planning{}))
	return string(i.Payload), string(documents[0].Document)
}

// requireRefusal checks the refusal's code and returns the stored intent, if there is one.
func (h *membershipFixture) requireRefusal(t *testing.T, err error, code string) intent.Intent {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, f.Code)
	if f.IntentID == "" {
		return intent.Intent{}
	}
	id, err := event.ParseID(f.IntentID)
	require.NoError(t, err)
	i, _, err := h.service.Get(t.Context(), h.entity, id)
	require.NoError(t, err)
	return i
}

func TestSubmit_StoresPayloadSealed(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	out, err := h.service.Submit(t.Context(), clerk, h.registerMember(5))
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	sealed, opened := h.storedIntent(t, out.IntentID)
	require.NotContains(t, sealed, canary)
	require.JSONEq(t, `{"member":"M-1","email":"`+canary+`","fee":5}`, opened)
	require.Contains(t, opened, `"email" : "`, "every other byte is unchanged")

	w := h.appender.requests[0].Intent
	require.Equal(t, []event.SealedSubject{{Subject: "member:M-1", KeyClass: uint8(shredding.KeyPIISubject), KeyVersion: 1, Pointers: []string{"/email"}}}, w.Sealed)
	require.Equal(t, []event.SealedSubject{{Subject: "member:M-1", KeyVersion: 1, Pointers: []string{"/data/email"}}}, h.appender.requests[0].Events[0].Sealed)
	require.Equal(t, 2, h.vault.seals, "the event and the intent, once each")

	// The next planning folds the sealed event.
	_, err = h.service.Submit(t.Context(), clerk, h.registerMember(5))
	require.NoError(t, err)
}

func TestSubmit_PersonalDataWithoutSealer(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	c := h.service.Config
	c.Sealer, c.Opener = nil, nil
	bare := testkit.Must(pipeline.New(c))
	out, err := h.service.Submit(t.Context(), clerk, h.registerMember(500))
	require.NoError(t, err)
	_, err = bare.Approve(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID})
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
	_, err = bare.Submit(t.Context(), clerk, h.registerMember(500))
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
	req := h.registerMember(5)
	req.Payload = json.RawMessage(`{"member":"M-2","fee":5}`)
	_, err = bare.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
}

// TestApprove_KeepsSealedBytes checks that a decision does not seal the payload again.
func TestApprove_KeepsSealedBytes(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	submit := func() (event.ID, string) {
		out, err := h.service.Submit(t.Context(), clerk, h.registerMember(500))
		require.NoError(t, err)
		require.Equal(t, intent.PendingApproval, out.Status)
		sealed, opened := h.storedIntent(t, out.IntentID)
		require.Contains(t, opened, canary)
		return out.IntentID, sealed
	}
	approved, before := submit()
	out, err := h.service.Approve(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: approved, IdempotencyKey: "yes"})
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	after, _ := h.storedIntent(t, approved)
	require.Equal(t, before, after)
	last := h.appender.requests[len(h.appender.requests)-1]
	require.Empty(t, last.Intent.Sealed)
	require.NotEmpty(t, last.Events[0].Sealed)

	rejected, before := submit()
	opens := h.vault.opens
	_, err = h.service.Reject(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: rejected})
	require.NoError(t, err)
	require.Equal(t, opens, h.vault.opens, "a rejection needs no value")
	after, _ = h.storedIntent(t, rejected)
	require.Equal(t, before, after)
}

func TestApprove_ErasedSubject(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	out, err := h.service.Submit(t.Context(), clerk, h.registerMember(500))
	require.NoError(t, err)
	yes := pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID, PlanHash: out.PlanHash}

	unavailable := fault.New(fault.Unavailable, "kms.unavailable", "no connection; try again")
	h.vault.set(func(s *fakeVault) { s.unavailable = unavailable })
	_, err = h.service.Approve(t.Context(), board, yes)
	require.ErrorIs(t, err, unavailable, "an outage is no erasure")
	h.vault.set(func(s *fakeVault) { s.unavailable, s.fenced = nil, map[string]bool{"member:M-1": true} })
	_, err = h.service.Approve(t.Context(), board, yes)
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))

	h.vault.set(func(s *fakeVault) { s.destroyed["member:M-1"] = true })
	_, err = h.service.Approve(t.Context(), board, yes)
	f, _ := fault.As(err)
	require.Equal(t, shredding.CodeSubjectErased, f.Code)
	require.Equal(t, "/payload/email", f.Field)
	stored, _, err := h.service.Get(t.Context(), h.entity, out.IntentID)
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, stored.Status)
	require.Equal(t, out.PlanHash, stored.PlanHash)
	_, err = h.service.Reject(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID})
	require.NoError(t, err, "it can still be ended")
}

// TestSubmit_RefusalPersonalValues covers every kind of refusal.
func TestSubmit_RefusalPersonalValues(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	invalid := h.registerMember(5)
	invalid.Payload = json.RawMessage(`{"member":"M-1","email":"` + canary + `","fee":"` + canary + `"}`)
	sealedByCaller := h.registerMember(5)
	sealedByCaller.Payload = json.RawMessage(`{"member":"M-1","email":"{}","fee":5,"` + "$pii" + `":1}`)
	noPseudonym := h.registerMember(5)
	noPseudonym.Payload = json.RawMessage(`{"member":"` + canary + `","email":"` + canary + `","fee":5}`)
	for name, c := range map[string]struct {
		caller pipeline.Caller
		req    pipeline.Request
		code   string
		kept   bool
	}{
		"role":         {person("p-guest", "guest"), h.registerMember(5), "intent.forbidden", true},
		"role, schema": {person("p-guest", "guest"), invalid, "intent.forbidden", false},
		"schema":       {clerk, invalid, "intent.schema_invalid", false},
		"reserved":     {clerk, sealedByCaller, "intent.schema_invalid", false},
		"no pseudonym": {clerk, noPseudonym, "pii.subject_invalid", false},
		"policy":       {clerk, h.registerMember(feeDenied), "membership.full", true},
		"planner":      {clerk, h.registerMember(feeLeaksInRefusal), "membership.fee_negative", true},
		"facts":        {clerk, h.registerMember(feeLeaksToPolicy), "policy.personal_facts", true},
		"trace":        {clerk, h.registerMember(feeLeaksToTrace), "policy.personal_facts", true},
	} {
		_, err := h.service.Submit(t.Context(), c.caller, c.req)
		stored := h.requireRefusal(t, err, c.code)
		require.NotEmpty(t, stored.ID, name)
		require.NotContains(t, string(stored.Payload), canary)
		require.NotContains(t, stored.Refusal.Detail, canary)
		require.Equal(t, c.code, stored.Refusal.Code)
		require.Equal(t, !c.kept, string(stored.Payload) == "{}", "%s: %s", name, stored.Payload)
	}
	_, err := h.service.Submit(t.Context(), clerk, h.registerMember(feeLeaksInRefusal))
	require.Contains(t, err.Error(), canary, "submitters may read the values that they sent")
	require.Zero(t, h.vault.opens)
}

// TestSubmit_ErrorPersonalValues covers approvers, who may read other classes of values
// than the submitter, and logs, which must hold no personal values.
func TestSubmit_ErrorPersonalValues(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	out, err := h.service.Submit(t.Context(), clerk, h.registerMember(feeLeaksToApprover))
	require.NoError(t, err)
	_, err = h.service.Approve(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID, PlanHash: out.PlanHash})
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, []any{"membership.closed", fault.FailedPrecondition}, []any{f.Code, f.Kind})
	require.Contains(t, f.Detail, ";", "the next step")
	require.NotContains(t, fmt.Sprintf("%+v", *f), canary)

	for _, dry := range []bool{false, true} {
		req := h.registerMember(feeLeaksInInternalError)
		req.DryRun = dry
		_, err = h.service.Submit(t.Context(), clerk, req)
		require.Error(t, err)
		for e := err; e != nil; e = errors.Unwrap(e) {
			require.NotContains(t, e.Error(), canary, "it will be logged")
		}
		require.Equal(t, fault.Internal, fault.KindOf(err))
	}
}

func TestSubmit_SealingRefusals(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	h.vault.set(func(s *fakeVault) { s.fenced["member:M-1"] = true })
	_, err := h.service.Submit(t.Context(), clerk, h.registerMember(5))
	stored := h.requireRefusal(t, err, shredding.CodeSubjectErased)
	require.Equal(t, intent.Denied, stored.Status)
	require.NotContains(t, string(stored.Payload), canary)

	h.vault.set(func(s *fakeVault) {
		s.unavailable = fault.New(fault.Unavailable, "kms.unavailable", "no connection; try again")
	})
	written := len(h.appender.requests)
	_, err = h.service.Submit(t.Context(), clerk, h.registerMember(5))
	require.Empty(t, h.requireRefusal(t, err, "kms.unavailable").ID)
	require.Len(t, h.appender.requests, written, "no decision was made, so nothing is stored")

	// The store finds the subject erased, or the keys destroyed, under its lock.
	h.vault.set(func(s *fakeVault) { s.unavailable, s.fenced = nil, map[string]bool{} })
	h.appender.fail = shredding.Erased("/events/0/data/email")
	_, err = h.service.Submit(t.Context(), clerk, h.registerMember(5))
	require.NotEmpty(t, h.requireRefusal(t, err, shredding.CodeSubjectErased).ID)
	f, _ := fault.As(err)
	require.Empty(t, f.Field, "the caller does not know the events")
}

func TestSubmit_ResealsAfterMovedKey(t *testing.T) {
	t.Parallel()
	for moved, want := range map[int]string{1: "", 3: "", 4: shredding.CodeKeyMoved} {
		for _, fee := range []int{5, 500} {
			h := newMembershipFixture(t)
			h.appender.moved = moved
			_, err := h.service.Submit(t.Context(), clerk, h.registerMember(fee))
			require.Equal(t, want, fault.CodeOf(err))
			require.Equal(t, moved, h.vault.forgets)
			require.NotEqual(t, h.appender.requests[0].Intent.Intent.Payload, h.appender.requests[1].Intent.Intent.Payload)
			if fee == 5 {
				require.NotEqual(t, h.appender.requests[0].Events[0].Payload, h.appender.requests[1].Events[0].Payload)
			}
			if want != "" {
				stored := h.requireRefusal(t, err, want)
				require.Equal(t, intent.Failed, stored.Status)
			}
		}
	}
}

func TestSubmit_DryRunSealsNothing(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	req := h.registerMember(500)
	req.DryRun = true
	out, err := h.service.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	require.Contains(t, string(out.Drafts[0].Data.(member).Email), canary)
	require.NotEmpty(t, out.PlanHash)
	require.Zero(t, h.vault.seals)
	require.Empty(t, h.appender.requests)
	req = h.registerMember(feeLeaksToPolicy)
	req.DryRun = true
	_, err = h.service.Submit(t.Context(), clerk, req)
	require.Equal(t, "policy.personal_facts", fault.CodeOf(err))
}

func TestSubmit_KeyedHashes(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	req := h.registerMember(500)
	req.DryRun = true
	keyed, err := h.service.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	c := h.service.Config
	c.Fingerprints = nil
	unkeyed := testkit.Must(pipeline.New(c))
	plain, err := unkeyed.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	require.Len(t, keyed.PlanHash, 64)
	require.NotEqual(t, plain.PlanHash, keyed.PlanHash)

	req.DryRun, req.IdempotencyKey = false, "k"
	first, err := h.service.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	require.Equal(t, keyed.PlanHash, first.PlanHash, "one plan, one hash")
	again, err := h.service.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	_, err = unkeyed.Submit(t.Context(), clerk, req)
	require.Equal(t, "intent.idempotency_mismatch", fault.CodeOf(err), "the stored fingerprint is the keyed one")
}

// TestSubmit_PersonalValuesInStore scans every path into the store, after a check
// that the scan itself works.
func TestSubmit_PersonalValuesInStore(t *testing.T) {
	t.Parallel()
	h := newMembershipFixture(t)
	h.appender.forbidden = []string{"M-1"}
	_, err := h.service.Submit(t.Context(), clerk, h.registerMember(5))
	require.NoError(t, err)
	require.NotEmpty(t, h.appender.found, "a subject's id is found, so a value would be")
	h.appender.found = nil
	h.appender.forbidden = encodingsOf(canary)

	submit := func(fee int, key string, dry bool) pipeline.Outcome {
		req := h.registerMember(fee)
		req.IdempotencyKey, req.DryRun = key, dry
		out, _ := h.service.Submit(t.Context(), clerk, req)
		return out
	}
	submit(5, "a", false)
	submit(5, "a", false) // replay
	submit(5, "b", true)
	for _, fee := range []int{feeDenied, feeLeaksInRefusal, feeLeaksToPolicy, feeLeaksToTrace} {
		submit(fee, "", false)
	}
	for i, end := range []func(pipeline.Decision) (pipeline.Outcome, error){
		func(d pipeline.Decision) (pipeline.Outcome, error) { return h.service.Approve(t.Context(), board, d) },
		func(d pipeline.Decision) (pipeline.Outcome, error) { return h.service.Reject(t.Context(), board, d) },
	} {
		parked := submit(500, string(rune('c'+i)), false)
		for range 2 { // and its replay
			_, err := end(pipeline.Decision{LegalEntity: h.entity, Intent: parked.IntentID, PlanHash: parked.PlanHash, IdempotencyKey: "end"})
			require.NoError(t, err)
		}
	}
	h.appender.moved = 2
	submit(5, "moved", false)
	draft := event.Draft{Type: "membership.member.registered", Stream: event.StreamID{Type: "membership", ID: "raw"}, Data: json.RawMessage(h.registerMember(5).Payload)}
	request := eventappend.Request{
		LegalEntity: h.entity, Actor: clerk.Actor, PersonID: "p-clerk", Drafts: []event.Draft{draft, draft, draft}, IdempotencyKey: "raw", Digest: event.Hash{1},
	}
	for range 2 {
		_, _, err := h.append.Append(t.Context(), request)
		require.NoError(t, err)
	}
	require.Greater(t, len(h.appender.requests), 12)
	require.Greater(t, h.appender.searched, 500)
}
