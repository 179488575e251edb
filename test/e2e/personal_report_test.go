package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reportLines are the lines of a report about a person by kind.
func reportLines(t *testing.T, text string) map[string][]map[string]any {
	t.Helper()
	out := map[string][]map[string]any{}
	for line := range strings.Lines(text) {
		var l map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		out[l["kind"].(string)] = append(out[l["kind"].(string)], l)
	}
	require.Len(t, out["report"], 1)
	require.Len(t, out["end"], 1)
	return out
}

// TestPersonalReads records who reads personal data, lets an auditor read for a time, and
// reports all that is stored about a person, before and after the erasure.
func TestPersonalReads(t *testing.T) {
	t.Parallel()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	s := newPersonFixture(t, d, "E-700", "USMF", "DEMF")
	s.events = s.hire(t, s.here, 3)
	s.hire(t, s.there, 1)
	s.otherEvent = s.module.record(t, person(s.here, "E-701", object{"name": "Bea Norris", "relatives": []object{{"person_id": "E-700", "name": "Ada Mosley"}}}))[0]

	// An auditor with a grant and a reason.
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	require.Contains(t, s.officer.succeed(t, "disclosures", "grant", "p-auditor", "--class", "identity", "--until", until, "--reason", "audit 2026"), "p-auditor")
	require.Equal(t, maskedValue, s.auditor.data(t, s.here, s.events[0])["name"], "without a reason")
	read := must(s.auditor.do("GET", "/api/events/"+s.events[0]+"?legal_entity="+s.here, "", "Access-Reason", "ticket 4711"))
	require.Equal(t, http.StatusOK, read.status, read)
	require.Contains(t, string(read.body), "Ada Mosley")
	require.NotContains(t, string(read.body), "ada@example.org")
	listed := s.auditor.succeed(t, "access-log", "--person", "p-auditor", "--subject", s.subject)
	require.Contains(t, listed, "ticket 4711")
	require.Contains(t, listed, "identity")

	// The person's own report.
	expect(t, http.StatusBadRequest, "access.reason_missing", must(s.officer.do("GET", "/api/personal-data/report?subject="+s.subject, "")))
	for _, c := range []client{s.auditor, s.approver, s.module, d.as(t, "admin"), d.as(t, "controller")} {
		expect(t, http.StatusForbidden, "auth.forbidden", must(c.do("GET", "/api/personal-data/report?subject="+s.subject, "", "Access-Reason", "curious")))
	}
	expect(t, http.StatusBadRequest, "pii.subject_invalid", must(s.officer.do("GET", "/api/personal-data/report?subject=Ada", "", "Access-Reason", "request of the person")))
	text := s.officer.succeed(t, "personal-data", "report", s.subject, "--reason", "request of the person")
	report := reportLines(t, text)
	require.Len(t, report["event"], 4)
	require.Equal(t, 4, strings.Count(text, "ada@example.org"))
	require.Len(t, report["records"], 2)
	records := report["records"][0]["records"].(map[string]any)
	require.Equal(t, "What is known of a person.", records["purpose"])
	require.Equal(t, "pii_subject", records["retention_class"])
	require.NotEmpty(t, report["access"])
	require.Equal(t, map[string]any{"kind": "end", "events": 4.0, "intents": 0.0, "accesses": float64(len(report["access"]))}, report["end"][0])

	// A relative is another person: the report about one does not tell about the other.
	relative := s.officer.succeed(t, "personal-data", "report", "relative:E-700", "--reason", "request of the person")
	require.Len(t, reportLines(t, relative)["event"], 1)
	require.Contains(t, relative, "Ada Mosley")
	require.NotContains(t, relative, "Bea Norris")
	require.Contains(t, s.officer.succeed(t, "access-log", "--kind", "report", "--subject", s.subject), "request of the person")

	// After the erasure the report says so, and holds no values.
	eraseSubject(t, s.officer, s.approver, s.subject)
	text = s.officer.succeed(t, "personal-data", "report", s.subject, "--reason", "request of the person")
	erased := reportLines(t, text)
	require.Len(t, erased["event"], 4)
	require.NotContains(t, text, "Mosley")
	require.NotContains(t, text, "ada@example.org")
	require.Contains(t, text, redactedValue)
	require.Len(t, erased["erasure"], 1)
	require.Equal(t, "completed", erased["erasure"][0]["erasure"].(map[string]any)["status"])
}
