package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDrillKeyServiceOutageOfFreshNode starts a node while the key service is down, so that it
// has no key in memory. The node serves requests that need none, answers others with a
// retryable error, and redacts only erased values. A running erasure waits and completes later.
func TestDrillKeyServiceOutageOfFreshNode(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	kms := startKeyServer(t)
	i := installWith(t, kms.settings(t)...)
	_, first := i.serve(t)
	admin := first.as(i.admin)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	registerPersons(t, admin)
	i.machines(t, first.server)
	module, auditor := i.enroll(t, "s-hr", "module", "--service"), i.enroll(t, "p-0002", "auditor")
	officer, second := first.as(i.enroll(t, "p-0003", "compliance")), first.as(i.enroll(t, "p-0004", "compliance_approver"))
	record := func(id string) string {
		t.Helper()
		return first.as(module).record(t, person("FRMF", id, object{"name": "Ada Mosley"}))[0]
	}
	kept, leaving, gone := record("E-1"), record("E-2"), record("E-3")
	machine := first.as(module).record(t, machineServiced("FRMF", "M-1", `{"hours":1}`))[0]
	eraseSubject(t, officer, second, "employee:E-3")
	r := officer.requestErasure(t, "employee:E-2")

	kms.kill(t)
	_, fresh := i.serve(t)
	require.NoError(t, fresh.want(200, nil, "GET", "/livez", ""))
	testkit.EventuallyNoError(t, endTime, func() error { // a busy database may answer a probe late
		var state health
		if err := fresh.want(200, &state, "GET", "/readyz", ""); err != nil {
			return err
		}
		if got := []string{state.Status, state.Checks["kms"], state.Checks["key_store"], state.Checks["database"]}; !slices.Equal(got, []string{"degraded", "degraded", "ok", "ok"}) {
			return fmt.Errorf("it is %s", got)
		}
		return nil
	})

	away := func(a answer) {
		t.Helper()
		require.Equal(t, http.StatusServiceUnavailable, a.status, a)
		require.NotEmpty(t, a.header.Get("Retry-After"))
		require.Contains(t, a.code(), "kms.")
		require.NotContains(t, string(a.body), redactedValue)
		require.NotContains(t, string(a.body), "Ada Mosley")
	}
	away(must(fresh.as(module).do("GET", "/api/events/"+kept+"?legal_entity=FRMF", "")))
	away(must(fresh.as(module).do("GET", "/api/events?stream_type=scope&stream_id=FRMF", "")))
	away(must(fresh.as(module).do("POST", "/api/events", batch(person("FRMF", "E-1", object{"name": "Ada Mosley"})))))
	away(must(fresh.as(module).do("POST", "/api/events", batch(person("FRMF", "E-9", object{"name": "Ada Mosley"})))))
	require.Equal(t, redactedValue, fresh.as(module).data(t, "FRMF", gone)["name"], "the key store reports its key as destroyed")
	require.Equal(t, maskedValue, fresh.as(auditor).data(t, "FRMF", kept)["name"], "masking needs no key")
	require.NotEmpty(t, fresh.as(module).data(t, "FRMF", machine)["hours"])
	fresh.as(module).record(t, machineServiced("FRMF", "M-1", `{"hours":2}`), person("FRMF", "E-1", object{"grade": 1}))
	// Idempotency keys of requests without personal data need no fingerprint secret.
	for _, status := range []int{http.StatusCreated, http.StatusOK} {
		a := must(fresh.as(module).do("POST", "/api/events", batch(machineServiced("FRMF", "M-1", `{"hours":3}`)), "Idempotency-Key", "outage"))
		require.Equal(t, status, a.status, a)
	}

	// The keys are destroyed without the key service; the receipt waits for it.
	second.approveErasure(t, r.ID)
	testkit.EventuallyNoError(t, endTime, func() error {
		for _, step := range officer.erasure(t, r.ID).Steps {
			if step.Step == "receipted" && step.Attempts > 0 && step.Error == "kms.unavailable" {
				return nil
			}
		}
		return fmt.Errorf("it is %s", officer.erasure(t, r.ID).Status)
	})
	for _, c := range []client{first.as(module), fresh.as(module)} {
		expect(t, http.StatusGone, "pii.subject_erased", must(c.do("POST", "/api/events", batch(person("FRMF", "E-2", object{"name": "Ada Mosley"})))))
		testkit.Eventually(t, endTime, func() bool { return c.data(t, "FRMF", leaving)["name"] == redactedValue })
	}

	kms.start(t)
	officer.awaitErasure(t, r.ID)
	testkit.Eventually(t, endTime, func() bool {
		a := must(fresh.as(module).do("GET", "/api/events/"+kept+"?legal_entity=FRMF", ""))
		return a.status == http.StatusOK
	})
	require.Equal(t, "Ada Mosley", fresh.as(module).data(t, "FRMF", kept)["name"])
	fresh.as(module).record(t, person("FRMF", "E-1", object{"name": "Ada Mosley"}))
	require.Zero(t, command(t, i.env, "verify").code)
}
