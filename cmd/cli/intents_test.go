package cli

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
)

const intentID = "01JQ8E6Z6G3V5T8C9N2M4K7R1P"

func TestIntents_List(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "")
	o := serveAnswers(t, client.IntentList{
		HasMore: true, NextCursor: "c-1", Names: client.PersonNames{"p-1": "Anna Berg"},
		Intents: []client.IntentSummary{{
			IntentID: intentID, Type: "gl.post_journal", LegalEntity: "DEMF", Status: "pending_approval", RequestedBy: "p-1", Documents: []string{"gl.journal/J-1"},
			Needs: []client.ApprovalNeed{{Roles: []string{"controller", "cfo"}}, {}}, CreatedAt: time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC),
		}, {IntentID: "2", Type: "gl.post_journal", Status: "denied", Refusal: client.Refusal{Code: "sod.same_person"}, RequestedBy: "p-2"}},
	})
	err := o.run(t, "intents", "list", "--waiting-for-me", "--role", "controller", "--min-age-hours", "48", "--from", "2026-03-01", "--newest-first")
	require.NoError(t, err)
	require.Equal(t, []string{"GET /api/intents?direction=backward&min_age_hours=48&role=controller&submitted_from=2026-03-01&waiting_for_me=true"}, o.requests())
	out := o.printed()
	require.Regexp(t, `(?m)^`+intentID+` +2026-03-31 12:00Z +gl.post_journal +DEMF +gl.journal/J-1 +p-1 \(Anna Berg\) +pending_approval +controller or cfo, any role$`, out)
	require.Regexp(t, `p-2 +denied: sod.same_person`, out, "the server told no name of p-2")
	require.Contains(t, out, "--cursor c-1")
}

func TestIntents_Show(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "")
	at := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	o := serveAnswers(t, client.Intent{
		IntentID: intentID, Status: "executed", Type: "gl.post_journal", LegalEntity: "DEMF", CreatedAt: at,
		Actor:     client.Actor{Type: "human", ID: "p-1", Name: "gl_accountant"},
		Approvals: []client.Approval{{PersonID: "p-2", Role: "controller", Decision: "approved", At: at}, {PersonID: "p-3", Role: "cfo", Decision: "approved", At: at}},
		Names:     client.PersonNames{"p-1": "Anna Berg", "p-2": "Nadia Approver"},
	})
	require.NoError(t, o.run(t, "intents", "show", intentID))
	out := o.printed()
	require.Contains(t, out, "2026-03-31 12:00Z by human p-1 (Anna Berg, gl_accountant)")
	require.Contains(t, out, "2026-03-31 12:00Z by p-2 (Nadia Approver) as controller")
	require.Contains(t, out, "2026-03-31 12:00Z by p-3 as cfo", "the server told no name of p-3")
}

// An approval covers the plan that was shown.
func TestIntents_Approve(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "")
	o := serveAnswers(t,
		client.Intent{IntentID: intentID, Status: "pending_approval", Type: "gl.post_journal", LegalEntity: "DEMF", PlanHash: "63b2", Payload: []byte(`{"amount":1.50}`)},
		client.IntentOutcome{IntentID: intentID, Status: "executed", Events: []client.IntentEvent{{Type: "gl.journal.posted", ID: "e-1", Stream: "gl.journal/1", Sequence: "7"}}})
	err := o.run(t, "intents", "approve", intentID, "--comment", "seen")
	require.NoError(t, err)
	require.Equal(t, []string{"GET /api/intents/" + intentID, "POST /api/intents/" + intentID + "/approve?legal_entity=DEMF"}, o.requests())
	require.Equal(t, []string{`{"comment":"seen","plan_hash":"63b2"}`}, o.bodies())
	out := o.printed()
	require.Contains(t, out, "Intent "+intentID+" is executed")
	require.Contains(t, out, "gl.journal.posted e-1, gl.journal/1, sequence 7")
}

func TestIntents_End(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "USMF")
	for _, verb := range []string{"reject", "withdraw"} {
		o := serveAnswers(t, client.IntentOutcome{IntentID: intentID, Status: verb})
		err := o.run(t, "intents", verb, intentID)
		require.Error(t, err, "a reason is required")
		err = o.run(t, "intents", verb, intentID, "--reason", "not ours")
		require.NoError(t, err)
		require.Equal(t, []string{"POST /api/intents/" + intentID + "/" + verb + "?legal_entity=USMF"}, o.requests())
		require.Equal(t, []string{`{"reason":"not ours"}`}, o.bodies())
	}
}

func TestSod_Report(t *testing.T) {
	t.Setenv("BACKBONE_LEGAL_ENTITY", "")
	at := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	o := serveAnswers(t, client.SegregationReport{
		Refusals: []client.RefusedAttempts{{ActorID: "p-1", Attempt: "approve", IntentType: "gl.post_journal", LegalEntity: "DEMF", Code: "sod.same_person", Rule: "S8", Times: 3, LastAt: at, LastIntent: intentID}},
		Names:    client.PersonNames{"p-1": "Anna Berg"},
		Steps:    []client.DocumentSteps{{Document: "gl.journal/J-1", LegalEntity: "DEMF", Steps: []client.SegregationStep{{Type: "gl.journal.posted", RecordedAt: at}}}},
	})
	require.NoError(t, o.run(t, "sod", "report", "--person", "p-1", "--from", "2026-03-01"))
	require.Equal(t, []string{"GET /api/sod/report?from=2026-03-01&person=p-1"}, o.requests())
	out := o.printed()
	require.Regexp(t, `(?m)^p-1 \(Anna Berg\) +approve +gl.post_journal +DEMF +sod.same_person +S8 +3 +2026-03-31 12:00Z +`+intentID, out)
	require.Regexp(t, `(?m)^gl.journal/J-1 in DEMF\n +2026-03-31 12:00Z +gl.journal.posted +-$`, out)
}
