package e2e

import (
	"os"
	"path/filepath"
	"regexp"
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
	admin := anonymous.as(i.admin)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	token := admin.enroll(t, "p-auditor", "auditor")
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
	require.NotZero(t, command(t, []string{"BACKBONE_TOKEN=" + admin.enroll(t, "p-clerk", "ap_clerk")}, "verify", "--server", anonymous.server).code)

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

	// The server compares the key store too, and finds what the command finds with its configuration.
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/principals", `{"person_id":"p-nadia","name":"Nadia","kind":"person","roles":["ap_clerk"],"reason":"joined"}`))
	opened := verifyWith("--open-keys")
	require.Zero(t, opened.code, opened)
	require.Contains(t, opened.stdout, "Keys of erased persons: sound")
	require.Regexp(t, `_ADMIN: the policies that were recorded last .* are those of the server`, opened.stdout)
	kinds := regexp.MustCompile(`(?m)^(_ADMIN sequence \d+: (?:key_store|hold)_mismatch): `)
	for tamper, restore := range map[string]string{
		`INSERT INTO keystore.legal_holds (hold_id, placed_at, partition_id, tenant_id, subject_id, reason, placed_by) VALUES (gen_random_uuid(), now(), 0, 'acme', 'person:p-nadia', 'x', 'x')`: `DELETE FROM keystore.legal_holds`,
		`SET session_replication_role = replica; CREATE TABLE kept AS TABLE keystore.data_subjects; DELETE FROM keystore.data_subjects`:                                                          `INSERT INTO keystore.data_subjects SELECT * FROM kept`,
	} {
		_, err = super.Exec(t.Context(), tamper)
		require.NoError(t, err)
		// Each looks again after some seconds, so both run at once.
		serverRun := background(t, []string{"BACKBONE_TOKEN=" + token}, "verify", "--server", anonymous.server)
		byCommand := command(t, i.env, "verify")
		byServer := serverRun()
		require.Equal(t, []int{1, 1}, []int{byServer.code, byCommand.code}, "%v %v", byServer, byCommand)
		require.NotEmpty(t, kinds.FindAllString(byCommand.stdout, -1), byCommand)
		require.Equal(t, kinds.FindAllString(byCommand.stdout, -1), kinds.FindAllString(byServer.stdout, -1))
		_, err = super.Exec(t.Context(), restore)
		require.NoError(t, err)
	}

	// A run whose server is killed counts as interrupted, and the results of the others stay.
	require.NoError(t, running.cmd.Process.Kill())
	<-running.ended
	_, another := i.serve(t)
	testkit.Eventually(t, endTime, func() bool {
		return another.as(token).want(200, &list, "GET", "/api/verifications", "") == nil
	}, "the other server answers")
	var states []string
	for _, v := range list.Verifications {
		states = append(states, v.Status)
	}
	require.Equal(t, []string{"tampered", "tampered", "sound", "tampered", "sound", "sound"}, states)
	require.Zero(t, command(t, []string{"BACKBONE_TOKEN=" + token}, "verify", "--server", another.server).code)
}
