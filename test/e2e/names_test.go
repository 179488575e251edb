package e2e

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestNamesOfPersons enrolls a person with a name. Auditors see it, no other caller and no table
// does, and it goes with an erasure of the person, whose access stays.
func TestNamesOfPersons(t *testing.T) {
	t.Parallel()
	i := install(t, "BACKBONE_VAULT_KEY_LIFE=1s")
	withoutKeys := command(t, []string{"BACKBONE_DATABASE_DSN=" + i.app}, "enroll", "--tenant", "acme", "--person", "p-anna", "--role", "ap_clerk", "--name", "Anna Meyer")
	require.Equal(t, 1, withoutKeys.code)
	require.Contains(t, withoutKeys.stderr, "config.kms_missing")
	i.enroll(t, "p-anna", "ap_clerk", "--name", "Anna Meyer")
	service := command(t, i.env, append([]string{"enroll", "--tenant", "acme", "--person", "s-x", "--role", "importer", "--service", "--name", "Anna"}, serviceFlags("p-0001")...)...)
	require.Contains(t, service.stderr, "principal.name_of_service")
	_, anonymous := i.serve(t)
	inUse := command(t, i.env, "enroll", "--tenant", "acme", "--person", "p-anna", "--renew", "--name", "Anna Mayer")
	require.Contains(t, inUse.stderr, "kmsd.keys_in_use", "the keys lie in the process of the server")
	require.Zero(t, command(t, i.env, "enroll", "--tenant", "acme", "--person", "p-anna", "--renew").code)
	admin := anonymous.as(i.admin)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	auditor := anonymous.as(admin.enroll(t, "p-auditor", "auditor"))
	officer, second := anonymous.as(admin.enroll(t, "p-0002", "compliance")), anonymous.as(admin.enroll(t, "p-0003", "compliance_approver"))
	var made struct {
		Token string `json:"token"`
	}
	require.NoError(t, admin.want(201, &made, "POST", "/api/admin/principals", `{"person_id":"p-nadia","name":"Nadia Approver","kind":"person","roles":["gl_accountant"],"reason":"joined"}`))
	require.NoError(t, admin.want(400, nil, "POST", "/api/admin/principals", `{"person_id":"s-x","name":"Nadia","kind":"service","roles":["importer"],"modules":["ap"],"responsible_person":"p-nadia"}`))
	nameOf := func(c client, person string) string {
		t.Helper()
		var list struct {
			Principals []struct {
				Name string `json:"name"`
			} `json:"principals"`
		}
		require.NoError(t, c.want(200, &list, "GET", "/api/admin/principals?person_id="+person, ""))
		require.Len(t, list.Principals, 1)
		return list.Principals[0].Name
	}
	require.Equal(t, "Nadia Approver", nameOf(auditor, "p-nadia"))
	require.Equal(t, "Anna Meyer", nameOf(auditor, "p-anna"), "given on the command line, and kept by a renewal without a name")
	require.Empty(t, nameOf(admin, "p-nadia"))
	var read struct {
		Accesses []struct {
			PersonID  string `json:"person_id"`
			Operation string `json:"operation"`
			Class     string `json:"class"`
			Values    int    `json:"values"`
		} `json:"accesses"`
	}
	require.NoError(t, officer.want(200, &read, "GET", "/api/access-log?subject=person:p-nadia", ""))
	require.Len(t, read.Accesses, 1, "who saw the name")
	require.Equal(t, "p-auditor listPrincipals identity 1", fmt.Sprint(read.Accesses[0].PersonID, " ", read.Accesses[0].Operation, " ", read.Accesses[0].Class, " ", read.Accesses[0].Values))
	stored, err := auditor.do("GET", "/api/events?legal_entity=_ADMIN&stream_type=type&stream_id=backbone.principal.named", "")
	require.NoError(t, err)
	require.Equal(t, 200, stored.status, string(stored.body))
	require.NotContains(t, string(stored.body), "Nadia", "an auditor reads no personal values of events")
	report := func() string {
		t.Helper()
		a, err := officer.do("GET", "/api/personal-data/report?subject=person:p-nadia", "", "Access-Reason", "request of the person")
		require.NoError(t, err)
		require.Equal(t, 200, a.status, string(a.body))
		require.Len(t, reportLines(t, string(a.body))["event"], 1)
		return string(a.body)
	}
	require.Contains(t, report(), "Nadia Approver")
	inFrance, err := officer.do("GET", "/api/personal-data/report?subject=person:p-nadia&legal_entity=FRMF", "", "Access-Reason", "request of the person")
	require.NoError(t, err)
	require.Equal(t, 200, inFrance.status, string(inFrance.body))
	require.Empty(t, reportLines(t, string(inFrance.body))["event"])

	// The name is joined to what the person did, wherever an auditor reads it.
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"USMF","name":"US","time_zone":"UTC"}`))
	configureLedger(t, admin, admin.enroll(t, "p-accountant", "gl_accountant"))
	done := anonymous.as(made.Token).must(t, "USMF", "gl.define_account", object{"code": "6100", "name": "Rent", "type": "expense"})
	reads := []string{
		"/api/intents/" + done.IntentID + "?legal_entity=USMF", "/api/intents?legal_entity=USMF&actor=p-nadia",
		"/api/events/" + done.Events[0].ID + "/lineage?legal_entity=USMF", "/api/events/process/" + done.CorrelationID,
	}
	joined := func(c client, path string) string {
		t.Helper()
		var read struct {
			Names map[string]string `json:"names"`
		}
		a, err := c.do("GET", path, "")
		require.NoError(t, err)
		require.Equal(t, 200, a.status, "%s: %s", path, a)
		require.Contains(t, string(a.body), "p-nadia", path)
		require.NoError(t, a.decode(&read))
		return read.Names["p-nadia"]
	}
	for _, path := range reads {
		require.Equal(t, "Nadia Approver", joined(auditor, path), path)
		require.Empty(t, joined(anonymous.as(made.Token), path), path)
	}

	require.Contains(t, eraseSubject(t, officer, second, "person:p-nadia").LegalEntities, "_ADMIN")
	testkit.Eventually(t, endTime, func() bool { return nameOf(auditor, "p-nadia") == "" }, "the name is gone")
	for _, path := range reads {
		require.Empty(t, joined(auditor, path), path)
	}
	require.NotContains(t, report(), "Nadia")
	require.NoError(t, anonymous.as(made.Token).want(200, nil, "GET", "/api/event-types", ""), "access does not depend on the name")
	require.NoError(t, admin.want(410, nil, "POST", "/api/admin/principals", `{"person_id":"p-nadia","name":"Nadia Approver","kind":"person","renew":true}`))
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/principals", `{"person_id":"p-nadia","kind":"person","renew":true}`))
	verdict := command(t, i.env, "verify")
	require.Zero(t, verdict.code, verdict)
}
