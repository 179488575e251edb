package redaction_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/verifytest"
)

// editedRequests shows other requests for redactions than the store has. Rows about streams,
// persons and redactions are not judged here.
type editedRequests struct {
	verifytest.Store
	edit func([]ports.RedactionRequest) []ports.RedactionRequest
}

func (e editedRequests) RedactionRequests(ctx context.Context, tenantID string, states []shredding.RedactionState, limit int) ([]ports.RedactionRequest, error) {
	rows, err := e.Store.RedactionRequests(ctx, tenantID, states, limit)
	return e.edit(rows), err
}

// TestVerify_Requests edits the rows of a completed redaction and of one that waits.
func TestVerify_Requests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.approved(t, moved, "/data/remark")
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	waiting := f.request(t, visit, "/data/report")
	change := func(edit func(*ports.RedactionRequest)) func([]ports.RedactionRequest) []ports.RedactionRequest {
		return func(rows []ports.RedactionRequest) []ports.RedactionRequest {
			edit(&rows[slices.IndexFunc(rows, func(r ports.RedactionRequest) bool { return r.ID == waiting.ID })])
			return rows
		}
	}
	for name, c := range map[string]struct {
		edit func([]ports.RedactionRequest) []ports.RedactionRequest
		want int
	}{
		"as stored": {func(rows []ports.RedactionRequest) []ports.RedactionRequest { return rows }, 0},
		"requester": {change(func(r *ports.RedactionRequest) { r.RequestedBy = "p-9" }), 1},
		"pointers":  {change(func(r *ports.RedactionRequest) { r.Pointers = []string{"/data/form"} }), 1},
		"scope":     {change(func(r *ports.RedactionRequest) { r.Scope = event.Hash{1} }), 1},
		"approved by hand": {change(func(r *ports.RedactionRequest) {
			r.State, r.ApprovedBy, r.Revision = shredding.RedactionApproved, "p-9", 2
		}), 1},
		"removed": {func([]ports.RedactionRequest) []ports.RedactionRequest { return nil }, 2},
		"invented": {func(rows []ports.RedactionRequest) []ports.RedactionRequest {
			return append(rows, ports.RedactionRequest{ID: f.events[moved], TenantID: "acme", State: shredding.RedactionPreviewed, Revision: 1})
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := editedRequests{verifytest.Of(f.store), c.edit}
			reports, err := verify.Run(t.Context(), store, "acme", []string{ports.AdministrativeCode}, nil)
			require.NoError(t, err)
			found := 0
			for _, x := range reports[0].Findings {
				if x.Kind == verify.RedactionMismatch || x.Kind == verify.RedactionUnapproved {
					found++
				}
			}
			require.Equal(t, c.want, found, "%v", reports[0].Findings)
		})
	}
}

// TestAttack_RedactsWithTwoInventedPersons has a session with the eraser's credentials store the
// request, its approval and the redaction.
func TestAttack_RedactsWithTwoInventedPersons(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	waiting := f.request(t, visit, "/data/report") // from then on no row without an event is adopted
	e := f.stored(t, moved)
	invented, err := f.store.Redactions.AddRedaction(t.Context(), ports.RedactionRequest{
		ID: event.ID{7}, TenantID: "acme", Partition: e.Partition, Sequence: e.Sequence, EventID: e.ID, Pointers: []string{"/data/remark"}, Reason: "invented",
		RequestedBy: "p-8", Scope: event.HashPayload(e.Salt, e.Payload),
	})
	require.NoError(t, err)
	requested, err := f.store.Redactions.RedactionRequest(t.Context(), "acme", waiting.ID) // a person requested this one
	require.NoError(t, err)
	for _, r := range []ports.RedactionRequest{invented, requested} {
		e, err := f.store.Events.EventByID(t.Context(), r.Partition, r.EventID)
		require.NoError(t, err)
		_, err = f.store.Redactions.ApproveRedaction(t.Context(), r.Partition, r.ID, "p-9", r.Scope)
		require.NoError(t, err)
		to := ports.RedactedPayload{OldHash: r.Scope, Salt: event.Salt{1}}
		to.Payload, err = jsondoc.Splice(nil, e.Payload, r.Pointers[0], []byte(shredding.Redacted))
		require.NoError(t, err)
		to.NewHash = event.HashPayload(to.Salt, to.Payload)
		_, err = f.store.Redactions.RedactPayload(t.Context(), r, to)
		require.NoError(t, err)
	}
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	for _, r := range []ports.RedactionRequest{invented, requested} {
		state := f.state(t, r.ID)
		require.Equal(t, []string{"rebuilt", "redaction.approval_unrecorded"}, []string{state.State, state.LastError})
		stored, err := f.store.Redactions.RedactionRequest(t.Context(), "acme", r.ID)
		require.NoError(t, err)
		unrecorded, _ := fault.As(f.config.RequireApproval(t.Context(), stored))
		require.Contains(t, unrecorded.Detail, "run `backbone verify`", "another approval cannot help")
		_, err = f.config.Exports.Get(t.Context(), "redactions/"+r.ID.String()+".json")
		require.Equal(t, fault.NotFound, fault.KindOf(err), "no certificate is signed")
	}
	reports, err := verify.Run(t.Context(), verifytest.Of(f.store), "acme", []string{ports.AdministrativeCode}, nil)
	require.NoError(t, err)
	found := 0
	for _, x := range reports[0].Findings {
		if x.Kind == verify.RedactionUnapproved {
			found++
		}
	}
	require.Equal(t, 2, found, "%v", reports[0].Findings)
}
