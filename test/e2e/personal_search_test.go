package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// personalSearch is the answer of a search for persons.
type personalSearch struct {
	Persons []struct {
		Subject string `json:"subject"`
		Places  []struct {
			LegalEntity string `json:"legal_entity"`
			Type        string `json:"type"`
			Path        string `json:"path"`
			Class       string `json:"class"`
		} `json:"places"`
	} `json:"persons"`
	Behind []string `json:"behind"`
}

// TestPersonalSearch finds a person by name and by address until the person is erased, and leaves
// the text of no search behind.
func TestPersonalSearch(t *testing.T) {
	t.Parallel()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	s := newPersonFixture(t, d, "E-800", "USMF", "DEMF")
	s.hire(t, s.here, 2)
	s.hire(t, s.there, 1)
	search := func(c client, body string) (found personalSearch) {
		t.Helper()
		a := must(c.do("POST", "/api/personal-data/search", body, "Access-Reason", "request of the person"))
		require.Equal(t, http.StatusOK, a.status, string(a.body))
		require.NoError(t, json.Unmarshal(a.body, &found))
		return found
	}
	testkit.Eventually(t, endTime, func() bool {
		found := search(s.officer, `{"email":"ADA@example.org"}`)
		return len(found.Persons) > 0 && len(found.Behind) == 0
	}, "the person is found, and no legal entity is behind")
	found := search(s.approver, `{"name":"mosley, ADA","legal_entity":"DEMF"}`)
	require.Len(t, found.Persons, 1)
	require.Equal(t, s.subject, found.Persons[0].Subject)
	require.Len(t, found.Persons[0].Places, 1)
	require.Equal(t, []string{"DEMF", "$.name", "identity"}, []string{found.Persons[0].Places[0].LegalEntity, found.Persons[0].Places[0].Path, found.Persons[0].Places[0].Class})
	require.Empty(t, search(s.officer, `{"name":"Ada Norris"}`).Persons)
	require.Contains(t, s.officer.succeed(t, "personal-data", "search", "--name", "Mosley", "--reason", "request of the person"), s.subject)

	expect(t, http.StatusBadRequest, "access.reason_missing", must(s.officer.do("POST", "/api/personal-data/search", `{"name":"Mosley"}`)))
	for body, code := range map[string]string{
		`{}`: "personal_search.text_missing", `{"name":"a","email":"b"}`: "personal_search.text_missing", `{"name":" - "}`: "personal_search.text_invalid", `{"name":"a","limit":1001}`: "",
	} {
		expect(t, http.StatusBadRequest, code, must(s.officer.do("POST", "/api/personal-data/search", body, "Access-Reason", "test")))
	}
	for _, c := range []client{s.auditor, s.module, d.as(t, "admin"), d.as(t, "controller")} {
		expect(t, http.StatusForbidden, "auth.forbidden", must(c.do("POST", "/api/personal-data/search", `{"name":"Mosley"}`, "Access-Reason", "curious")))
	}
	log := s.auditor.succeed(t, "access-log", "--kind", "personal_search", "--subject", s.subject)
	require.Contains(t, log, "request of the person")
	require.NotContains(t, log, "osley")

	eraseSubject(t, s.officer, s.approver, s.subject)
	require.Empty(t, search(s.officer, `{"email":"ada@example.org"}`).Persons)
	for _, p := range search(s.officer, `{"name":"Mosley"}`).Persons {
		require.NotEqual(t, s.subject, p.Subject)
	}
}
