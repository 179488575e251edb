package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestVerificationOnServer lets an auditor verify the tenant with a token alone, and finds there
// what was tampered with.
func TestVerificationOnServer(t *testing.T) {
	t.Parallel()
	i := install(t)
	running, anonymous := i.serve(t)
	require.NoError(t, anonymous.as(i.admin).want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	token := i.enroll(t, "p-auditor", "auditor")
	auditor := anonymous.as(token)
	heads := filepath.Join(t.TempDir(), "heads.json")
	verifyWith := func(more ...string) result {
		return command(t, []string{"BACKBONE_TOKEN=" + token}, append([]string{"verify", "--server", anonymous.server}, more...)...)
	}
	sound := verifyWith("--export-head", heads)
	require.Zero(t, sound.code, sound)
	require.Regexp(t, `(?m)^FRMF .* sound$`, sound.stdout)
	require.Regexp(t, `(?m)^_ADMIN .* sound$`, sound.stdout)
	require.Contains(t, sound.stdout, "Event types of built-in modules")
	text, err := os.ReadFile(heads)
	require.NoError(t, err)
	require.Contains(t, string(text), `"log_name": "ledger.example.org"`)
	require.Zero(t, command(t, i.env, "verify", "--head", heads).code, "the file is that of a verification with the database")
	again := verifyWith("--head", heads)
	require.Zero(t, again.code, again)
	require.NotZero(t, command(t, []string{"BACKBONE_TOKEN=" + i.enroll(t, "p-clerk", "ap_clerk")}, "verify", "--server", anonymous.server).code)

	var list struct {
		Verifications []struct {
			ID        string `json:"id"`
			Status    string `json:"status"`
			StartedBy string `json:"started_by"`
		} `json:"verifications"`
	}
	require.NoError(t, auditor.want(200, &list, "GET", "/api/verifications", ""))
	require.Len(t, list.Verifications, 2)
	require.Equal(t, "p-auditor", list.Verifications[0].StartedBy)
	require.NoError(t, auditor.want(409, nil, "POST", "/api/verifications/"+list.Verifications[0].ID+"/cancel", ""))

	super, err := pgx.Connect(t.Context(), i.owner)
	require.NoError(t, err)
	t.Cleanup(func() { _ = super.Close(t.Context()) })
	_, err = super.Exec(t.Context(), `UPDATE backbone.legal_entities SET name = 'Spain' WHERE code = 'FRMF'`)
	require.NoError(t, err)
	found := verifyWith()
	require.Equal(t, 1, found.code, found)
	require.Contains(t, found.stdout, "legal_entity_mismatch")
	require.Contains(t, found.stdout, "Tampered")
	_, err = super.Exec(t.Context(), `UPDATE backbone.legal_entities SET name = 'France' WHERE code = 'FRMF'`)
	require.NoError(t, err)

	// A run whose server is killed counts as interrupted, and the results of the others stay.
	require.NoError(t, running.cmd.Process.Kill())
	<-running.ended
	_, another := i.serve(t)
	testkit.Eventually(t, endTime, func() bool {
		return another.as(token).want(200, &list, "GET", "/api/verifications", "") == nil
	}, "the other server answers")
	require.Equal(t, []string{"tampered", "sound", "sound"}, []string{list.Verifications[0].Status, list.Verifications[1].Status, list.Verifications[2].Status})
	require.Zero(t, command(t, []string{"BACKBONE_TOKEN=" + token}, "verify", "--server", another.server).code)
}
