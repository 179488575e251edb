package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
)

// TestVerifyOnServer_Interrupted cancels the run although the read of it was interrupted.
func TestVerifyOnServer_Interrupted(t *testing.T) {
	t.Parallel()
	const run = "/api/verifications/01JQ8E6Z6G3V5T8C9N2M4K7R1P"
	ctx, interrupt := context.WithCancel(t.Context())
	cancelled := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "GET " + run:
			interrupt()
			<-r.Context().Done() // of the client
			return
		case "POST " + run + "/cancel":
			cancelled <- struct{}{}
		}
		_ = json.NewEncoder(w).Encode(client.Verification{ID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", Status: "running"})
	}))
	t.Cleanup(server.Close)
	d := &terminal{server: server.URL, token: "bbk_x"}
	require.Error(t, d.runWithin(ctx, "verify"))
	require.Len(t, cancelled, 1)
}

// TestVerification_Page says of a log what `backbone verify` says.
func TestVerification_Page(t *testing.T) {
	t.Parallel()
	finding := client.VerificationFinding{Kind: "checksum_mismatch", Sequence: "7", EventID: "01JQ", Detail: "edited"}
	var out bytes.Buffer
	require.NoError(t, printPage(&out, func(p *page) {
		p.verification(client.Verification{
			ID: "01JR", Status: "tampered", Findings: 3,
			Results: []client.VerificationResult{{
				LegalEntity: "_ADMIN", Events: "9", HeadSequence: "9", UnboundIntents: "1", UnboundNumbers: "2", UnboundRequests: "1", Redactions: 4, Erasures: 5,
				Policy: client.VerificationPolicy{Sha256: "0123456789abcdef01", Release: "1.0", InForce: true}, Findings: []client.VerificationFinding{finding}, SuppressedFindings: 1,
			}},
			EventTypes: []client.VerificationEventTypes{{Shared: true, Changes: 1, HeadChange: 1, HeadChecksum: "6ed1", Findings: []client.VerificationFinding{{Kind: "sequence_gap", Sequence: "1", Detail: "cut"}}}, {}},
		}, "")
	}))
	require.Equal(t, `LEGAL ENTITY  EVENTS  HEAD  HEAD CHECKSUM  REDACTIONS  ERASURES  VERDICT
_ADMIN        9       9     -              4           5         TAMPERED (2 findings)
_ADMIN: 1 intent from before events bound them; the number must not grow
_ADMIN: 2 numbers of series from before events said which they took; the number must not grow
_ADMIN: 1 idempotency key from before events bound them; they expire
_ADMIN: the policies that were recorded last (0123456789abcdef…, release 1.0) are those of the server
_ADMIN sequence 7 (event 01JQ): checksum_mismatch: edited
_ADMIN: 1 further finding
Event types of built-in modules: 1 change, head 1 6ed1: TAMPERED (1 finding)
Event types of built-in modules change 1: sequence_gap: cut
Event types of the tenant: no changes: sound
Tampered: the places are listed above. Compare with a backup and with exported heads before you change anything.
`, out.String())
}
