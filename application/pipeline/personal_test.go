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
)

// stored reads an intent and opens its payload as a reader would.
func (h *clubhouse) stored(t *testing.T, id event.ID) (sealed, opened string) {
	t.Helper()
	i, _, err := h.service.Get(t.Context(), h.entity, id)
	require.NoError(t, err)
	documents := []module.SealedDocument{{At: pipeline.Location(i), Document: i.Payload}}
	require.NoError(t, h.room.Open(t.Context(), documents, module.Planning{}))
	return string(i.Payload), string(documents[0].Document)
}

// refusedAs wants a refusal and gives the stored intent, "" if there is none.
func (h *clubhouse) refusedAs(t *testing.T, err error, code string) intent.Intent {
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

func TestAnIntentIsStoredSealed(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	out, err := h.service.Submit(t.Context(), clerk, h.join(5))
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	sealed, opened := h.stored(t, out.IntentID)
	require.NotContains(t, sealed, canary)
	require.JSONEq(t, `{"member":"M-1","email":"`+canary+`","fee":5}`, opened)
	require.Contains(t, opened, `"email" : "`, "every other byte is as it came")

	w := h.watch.seen[0].Intent
	require.Equal(t, []event.SealedSubject{{Subject: "member:M-1", KeyClass: uint8(shredding.KeyPIISubject), KeyVersion: 1, Pointers: []string{"/email"}}}, w.Sealed)
	require.Equal(t, []event.SealedSubject{{Subject: "member:M-1", KeyVersion: 1, Pointers: []string{"/data/email"}}}, h.watch.seen[0].Events[0].Sealed)
	require.Equal(t, 2, h.room.seals, "the event and the intent, once each")

	// The next planning folds the sealed event.
	_, err = h.service.Submit(t.Context(), clerk, h.join(5))
	require.NoError(t, err)
}

func TestWithoutASealerNothingPersonalIsTaken(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	c := h.service.Config
	c.Sealer, c.Opener = nil, nil
	bare := pipeline.New(c)
	out, err := h.service.Submit(t.Context(), clerk, h.join(500))
	require.NoError(t, err)
	_, err = bare.Approve(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID})
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
	_, err = bare.Submit(t.Context(), clerk, h.join(500))
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
	req := h.join(5)
	req.Payload = json.RawMessage(`{"member":"M-2","fee":5}`)
	_, err = bare.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
}

// TestParkedIntentsKeepTheirBytes: what was sealed once is not sealed again by what
// happens to the intent later.
func TestParkedIntentsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	submit := func() (event.ID, string) {
		out, err := h.service.Submit(t.Context(), clerk, h.join(500))
		require.NoError(t, err)
		require.Equal(t, intent.PendingApproval, out.Status)
		sealed, opened := h.stored(t, out.IntentID)
		require.Contains(t, opened, canary)
		return out.IntentID, sealed
	}
	approved, before := submit()
	out, err := h.service.Approve(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: approved, IdempotencyKey: "yes"})
	require.NoError(t, err)
	require.Equal(t, intent.Executed, out.Status)
	after, _ := h.stored(t, approved)
	require.Equal(t, before, after)
	last := h.watch.seen[len(h.watch.seen)-1]
	require.Empty(t, last.Intent.Sealed)
	require.NotEmpty(t, last.Events[0].Sealed)

	rejected, before := submit()
	opens := h.room.opens
	_, err = h.service.Reject(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: rejected})
	require.NoError(t, err)
	require.Equal(t, opens, h.room.opens, "a rejection needs no value")
	after, _ = h.stored(t, rejected)
	require.Equal(t, before, after)
}

func TestAnApprovalAboutTheErasedIsRefused(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	out, err := h.service.Submit(t.Context(), clerk, h.join(500))
	require.NoError(t, err)
	yes := pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID, PlanHash: out.PlanHash}

	away := fault.New(fault.Unavailable, "kms.unavailable", "away; try again")
	h.room.set(func(s *strongroom) { s.away = away })
	_, err = h.service.Approve(t.Context(), board, yes)
	require.ErrorIs(t, err, away, "an outage is no erasure")
	h.room.set(func(s *strongroom) { s.away, s.fenced = nil, map[string]bool{"member:M-1": true} })
	_, err = h.service.Approve(t.Context(), board, yes)
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))

	h.room.set(func(s *strongroom) { s.gone["member:M-1"] = true })
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

// TestRefusalsKeepNoPersonalValue goes through every way to be refused.
func TestRefusalsKeepNoPersonalValue(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	invalid := h.join(5)
	invalid.Payload = json.RawMessage(`{"member":"M-1","email":"` + canary + `","fee":"` + canary + `"}`)
	sealedByCaller := h.join(5)
	sealedByCaller.Payload = json.RawMessage(`{"member":"M-1","email":"{}","fee":5,"` + "$pii" + `":1}`)
	noPseudonym := h.join(5)
	noPseudonym.Payload = json.RawMessage(`{"member":"` + canary + `","email":"` + canary + `","fee":5}`)
	for name, c := range map[string]struct {
		caller pipeline.Caller
		req    pipeline.Request
		code   string
		kept   bool
	}{
		"role":         {person("p-guest", "guest"), h.join(5), "intent.forbidden", false},
		"schema":       {clerk, invalid, "intent.schema_invalid", false},
		"reserved":     {clerk, sealedByCaller, "intent.schema_invalid", false},
		"no pseudonym": {clerk, noPseudonym, "pii.subject_invalid", false},
		"policy":       {clerk, h.join(feeDenied), "club.full", true},
		"planner":      {clerk, h.join(feeTellsRefusal), "club.fee_negative", true},
		"facts":        {clerk, h.join(feeTellsPolicy), "policy.personal_facts", true},
		"trace":        {clerk, h.join(feeTellsTrace), "policy.personal_facts", true},
	} {
		_, err := h.service.Submit(t.Context(), c.caller, c.req)
		stored := h.refusedAs(t, err, c.code)
		require.NotEmpty(t, stored.ID, name)
		require.NotContains(t, string(stored.Payload), canary)
		require.NotContains(t, stored.Refusal.Detail, canary)
		require.Equal(t, c.code, stored.Refusal.Code)
		require.Equal(t, !c.kept, string(stored.Payload) == "{}", "%s: %s", name, stored.Payload)
	}
	_, err := h.service.Submit(t.Context(), clerk, h.join(feeTellsRefusal))
	require.Contains(t, err.Error(), canary, "the caller is told their own words")
	require.Zero(t, h.room.opens)
}

// TestOthersAreNotToldPersonalValues: who approves may see another class of values
// than who submitted, and a log shows none to anybody.
func TestOthersAreNotToldPersonalValues(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	out, err := h.service.Submit(t.Context(), clerk, h.join(feeTellsBoard))
	require.NoError(t, err)
	_, err = h.service.Approve(t.Context(), board, pipeline.Decision{LegalEntity: h.entity, Intent: out.IntentID, PlanHash: out.PlanHash})
	f, ok := fault.As(err)
	require.True(t, ok, "%v", err)
	require.Equal(t, []any{"club.closed", fault.FailedPrecondition}, []any{f.Code, f.Kind})
	require.Contains(t, f.Detail, ";", "the next step")
	require.NotContains(t, fmt.Sprintf("%+v", *f), canary)

	for _, dry := range []bool{false, true} {
		req := h.join(feeBreaks)
		req.DryRun = dry
		_, err = h.service.Submit(t.Context(), clerk, req)
		require.Error(t, err)
		for e := err; e != nil; e = errors.Unwrap(e) {
			require.NotContains(t, e.Error(), canary, "it will be logged")
		}
		require.Equal(t, fault.Internal, fault.KindOf(err))
	}
}

func TestRefusalsBySealing(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	h.room.set(func(s *strongroom) { s.fenced["member:M-1"] = true })
	_, err := h.service.Submit(t.Context(), clerk, h.join(5))
	stored := h.refusedAs(t, err, shredding.CodeSubjectErased)
	require.Equal(t, intent.Denied, stored.Status)
	require.NotContains(t, string(stored.Payload), canary)

	h.room.set(func(s *strongroom) { s.away = fault.New(fault.Unavailable, "kms.unavailable", "away; try again") })
	written := len(h.watch.seen)
	_, err = h.service.Submit(t.Context(), clerk, h.join(5))
	require.Empty(t, h.refusedAs(t, err, "kms.unavailable").ID)
	require.Len(t, h.watch.seen, written, "nothing happened that should be kept")

	// The store itself finds the subject erased, or the keys gone, under its lock.
	h.room.set(func(s *strongroom) { s.away, s.fenced = nil, map[string]bool{} })
	h.watch.fail = shredding.Erased("/events/0/data/email")
	_, err = h.service.Submit(t.Context(), clerk, h.join(5))
	require.NotEmpty(t, h.refusedAs(t, err, shredding.CodeSubjectErased).ID)
	f, _ := fault.As(err)
	require.Empty(t, f.Field, "the caller never saw the events")
}

func TestAMovedKeySealsEverythingAgain(t *testing.T) {
	t.Parallel()
	for moved, want := range map[int]string{1: "", 3: "", 4: shredding.CodeKeyMoved} {
		for _, fee := range []int{5, 500} {
			h := openClub(t)
			h.watch.moved = moved
			_, err := h.service.Submit(t.Context(), clerk, h.join(fee))
			require.Equal(t, want, fault.CodeOf(err))
			require.Equal(t, moved, h.room.forgot)
			require.NotEqual(t, h.watch.seen[0].Intent.Intent.Payload, h.watch.seen[1].Intent.Intent.Payload)
			if fee == 5 {
				require.NotEqual(t, h.watch.seen[0].Events[0].Payload, h.watch.seen[1].Events[0].Payload)
			}
			if want != "" {
				stored := h.refusedAs(t, err, want)
				require.Equal(t, intent.Failed, stored.Status)
			}
		}
	}
}

func TestDryRunsShowTheCallersValuesAndSealNothing(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	req := h.join(500)
	req.DryRun = true
	out, err := h.service.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	require.Contains(t, string(out.Drafts[0].Data.(member).Email), canary)
	require.NotEmpty(t, out.PlanHash)
	require.Zero(t, h.room.seals)
	require.Empty(t, h.watch.seen)
	req = h.join(feeTellsPolicy)
	req.DryRun = true
	_, err = h.service.Submit(t.Context(), clerk, req)
	require.Equal(t, "policy.personal_facts", fault.CodeOf(err))
}

func TestPlanHashesAndFingerprintsAreKeyed(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	req := h.join(500)
	req.DryRun = true
	keyed, err := h.service.Submit(t.Context(), clerk, req)
	require.NoError(t, err)
	c := h.service.Config
	c.Fingerprints = nil
	plain, err := pipeline.New(c).Submit(t.Context(), clerk, req)
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
	_, err = pipeline.New(c).Submit(t.Context(), clerk, req)
	require.Equal(t, "intent.idempotency_mismatch", fault.CodeOf(err), "the stored fingerprint is the keyed one")
}

// TestNothingGoesToTheStoreInClear takes every way into the store under watch. The
// watch itself is tried first.
func TestNothingGoesToTheStoreInClear(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	h.watch.forbids = []string{"M-1"}
	_, err := h.service.Submit(t.Context(), clerk, h.join(5))
	require.NoError(t, err)
	require.NotEmpty(t, h.watch.found, "a subject's id is found, so a value would be")
	h.watch.found = nil
	h.watch.forbids = spellings(canary)

	submit := func(fee int, key string, dry bool) pipeline.Outcome {
		req := h.join(fee)
		req.IdempotencyKey, req.DryRun = key, dry
		out, _ := h.service.Submit(t.Context(), clerk, req)
		return out
	}
	submit(5, "a", false)
	submit(5, "a", false) // replay
	submit(5, "b", true)
	for _, fee := range []int{feeDenied, feeTellsRefusal, feeTellsPolicy, feeTellsTrace} {
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
	h.watch.moved = 2
	submit(5, "moved", false)
	draft := event.Draft{Type: "club.member.registered", Stream: event.StreamID{Type: "club", ID: "raw"}, Data: json.RawMessage(h.join(5).Payload)}
	request := eventappend.Request{
		LegalEntity: h.entity, Actor: clerk.Actor, PersonID: "p-clerk", Drafts: []event.Draft{draft, draft, draft}, IdempotencyKey: "raw", Fingerprint: event.Hash{1},
	}
	for range 2 {
		_, _, err := h.append.Append(t.Context(), request)
		require.NoError(t, err)
	}
	require.Greater(t, len(h.watch.seen), 12)
	require.Greater(t, h.watch.searched, 500)
}
