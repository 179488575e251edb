package e2e

import (
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestKeyPutBack puts the key of an erased person back as a superuser of the database. At no
// time an erased value can be read. The server says that it is degraded, verify finds the key,
// and replay destroys it again.
func TestKeyPutBack(t *testing.T) {
	t.Parallel()
	kms := startKeyServer(t)
	i := installWith(t, append(kms.settings(t), "BACKBONE_ERASURE_GATE_INTERVAL=1s", "BACKBONE_VAULT_KEY_LIFE=1s")...)
	_, anonymous := i.serve(t)
	admin := anonymous.as(i.admin)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	require.NoError(t, admin.want(201, nil, "POST", "/api/event-types", hireType))
	i.machines(t, anonymous.server)
	hr := anonymous.as(i.enroll(t, "s-hr", "module", "--service"))
	officer, second := anonymous.as(admin.enroll(t, "p-0002", "compliance")), anonymous.as(admin.enroll(t, "p-0003", "compliance_approver"))
	var stored struct {
		Events []struct {
			ID string `json:"id"`
		} `json:"events"`
	}
	require.NoError(t, hr.want(201, &stored, "POST", "/api/events", batch(recordEmployee("FRMF", "E-1"))))
	// read returns the status and the value of the person.
	read := func() (int, string) {
		t.Helper()
		a, err := hr.do("GET", "/api/events/"+stored.Events[0].ID+"?legal_entity=FRMF", "")
		require.NoError(t, err)
		require.NotContains(t, string(a.body), "e-1@example.org")
		var e struct {
			Event struct {
				Data struct {
					Email string `json:"email"`
				} `json:"data"`
			} `json:"event"`
		}
		if a.status == http.StatusOK {
			require.NoError(t, a.decode(&e))
		}
		return a.status, e.Event.Data.Email
	}
	receipts := func() string {
		t.Helper()
		var h health
		require.NoError(t, anonymous.want(200, &h, "GET", "/readyz", ""))
		return h.Checks["receipts"]
	}
	super, err := pgx.Connect(t.Context(), i.owner)
	require.NoError(t, err)
	t.Cleanup(func() { _ = super.Close(t.Context()) })
	sql := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			_, err := super.Exec(t.Context(), statement)
			require.NoError(t, err, statement)
		}
	}
	sql(`CREATE TEMPORARY TABLE subjects AS SELECT * FROM keystore.data_subjects WHERE subject_id = 'employee:E-1'`,
		`CREATE TEMPORARY TABLE keys AS SELECT * FROM keystore.data_subject_keys WHERE subject_id = 'employee:E-1'`)

	eraseSubject(t, officer, second, "employee:E-1")
	sound := func() {
		t.Helper()
		testkit.Eventually(t, endTime, func() bool { read(); return receipts() == "ok" }, "the gate is open")
		testkit.Eventually(t, endTime, func() bool { status, email := read(); return status == http.StatusOK && email == redactedValue }, "the value reads [REDACTED]")
		verdict := command(t, i.env, "verify")
		require.Zero(t, verdict.code, verdict)
		require.Contains(t, verdict.stdout, "Keys of erased persons: sound")
	}
	sound()

	putBack := []string{
		`DELETE FROM keystore.data_subject_keys WHERE subject_id = 'employee:E-1'`,
		`DELETE FROM keystore.data_subjects WHERE subject_id = 'employee:E-1'`,
		`INSERT INTO keystore.data_subjects SELECT * FROM subjects`,
		`INSERT INTO keystore.data_subject_keys SELECT * FROM keys`,
	}
	unfence := `DELETE FROM keystore.subject_fences WHERE subject_id = 'employee:E-1'`
	forge := `UPDATE keystore.data_subject_keys SET fingerprint = substr(sha256('another'), 1, 16) WHERE subject_id = 'employee:E-1'`
	for name, statements := range map[string][]string{
		"as it was":                          append(putBack[:4:4], unfence),
		"with the fence":                     putBack,
		"fenced, with another fingerprint":   append(putBack[:4:4], forge),
		"unfenced, with another fingerprint": append(putBack[:4:4], unfence, forge),
		"removed":                            append(putBack[:2:2], unfence),
	} {
		t.Log(name)
		sql(append(append([]string{"BEGIN"}, statements...), "COMMIT")...)
		verified := background(t, i.env, "verify") // it looks again after some seconds
		testkit.Eventually(t, endTime, func() bool { read(); return receipts() != "ok" }, "readiness is degraded")
		require.Equal(t, "degraded", receipts())
		status, _ := read()
		require.Equal(t, http.StatusServiceUnavailable, status)
		verdict := verified()
		require.Equal(t, 1, verdict.code, verdict)
		require.Contains(t, verdict.stdout, "Keys of erased persons: TAMPERED")
		replayed := command(t, i.env, "erasure", "replay")
		require.Zero(t, replayed.code, replayed)
		sound()
		a, err := hr.do("POST", "/api/events", batch(recordEmployee("FRMF", "E-1")))
		require.NoError(t, err)
		require.Equal(t, http.StatusGone, a.status, a)
	}
}
