package wire

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpclient"
	"github.com/erpbackbone/backbone/domain/fault"
)

// officer is a terminal before a server that answers each request with the next of
// the answers, and the last one ever after.
type officer struct {
	ClientOptions
	out, err bytes.Buffer

	mu    sync.Mutex
	asked []string
}

func (o *officer) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func newOfficer(t *testing.T, answers ...any) *officer {
	t.Helper()
	o := &officer{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.asked = append(o.asked, r.Method+" "+r.URL.RequestURI())
		_ = json.NewEncoder(w).Encode(answers[0])
		if len(answers) > 1 {
			answers = answers[1:]
		}
	}))
	t.Cleanup(server.Close)
	o.ClientOptions = ClientOptions{Server: server.URL, Token: "bbk_x", Out: &o.out, Err: &o.err}
	return o
}

func erasureAt(status string, done int) httpclient.Erasure {
	at, left := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC), 30
	e := httpclient.Erasure{
		ID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", Subject: "employee:E-1", LegalEntities: []string{"USMF", "DEMF"}, Basis: "gdpr_art_17", Reason: "Letter of 12 March.",
		Status: status, RequestedBy: "p-compliance", RequestedAt: at, DueOn: "2026-04-30", DaysLeft: &left,
		Preview: httpclient.ErasurePreview{
			Events: 20, Intents: 2, Projections: []string{"hr_staff"},
			Types: []httpclient.ErasureTypeCount{
				{Type: "hr.employee.hired", LegalEntity: "USMF", Events: 20, Fields: 41}, {Type: "ap.set_vendor_contact", LegalEntity: "DEMF", Intent: true, Events: 2, Fields: 2},
			},
		},
		Classes: []httpclient.ErasureClass{{Class: "standard", Erased: true}, {Class: "regulatory", Refused: "retention", Until: "2036-12-31"}},
	}
	for i, step := range []string{"requested", "previewed", "approved", "destroyed", "completed"} {
		e.Steps = append(e.Steps, httpclient.ErasureStep{Step: step, Done: i < done})
	}
	return e
}

func (o *officer) run(t *testing.T, wait bool) error {
	t.Helper()
	return ErasureStatus(t.Context(), o.ClientOptions, wait, "01JQ8E6Z6G3V5T8C9N2M4K7R1P")
}

func TestAnErasureIsShown(t *testing.T) {
	t.Parallel()
	o := newOfficer(t, erasureAt("previewed", 2))
	require.NoError(t, o.run(t, false))
	require.Equal(t, `Erasure 01JQ8E6Z6G3V5T8C9N2M4K7R1P is previewed
  subject           employee:E-1 in USMF, DEMF
  basis             gdpr_art_17: Letter of 12 March.
  requested         2026-03-31 12:00Z by p-compliance
  due               2026-04-30, 30 days left
  concerns          20 events, 2 intents
                    USMF hr.employee.hired, 20 events with 41 values
                    DEMF ap.set_vendor_contact, 2 intents with 2 values
  read models       hr_staff
  class standard    to be erased
  class regulatory  kept until 2036-12-31 (retention)
Next: another person runs  backbone erasure approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P
`, o.out.String())
	require.Equal(t, []string{"GET /api/erasure-requests/01JQ8E6Z6G3V5T8C9N2M4K7R1P"}, o.requests())
	require.Empty(t, o.err.String())

	o = newOfficer(t, erasureAt("previewed", 2))
	o.JSON = true
	require.NoError(t, o.run(t, false))
	var shown map[string]any
	require.NoError(t, json.Unmarshal(o.out.Bytes(), &shown))
	require.Equal(t, "previewed", shown["status"])
	require.NotContains(t, shown, "approved_at")

	o.Token = ""
	require.Equal(t, "client.token_missing", fault.CodeOf(o.run(t, false)))
}

func TestAnErasureIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	stuck := erasureAt("approved", 3)
	stuck.Steps[3].Attempts, stuck.Steps[3].Error = 2, "keys.unavailable"
	done := erasureAt("completed", 5)
	done.DaysLeft, done.DestroyedAt, done.CompletedAt = nil, done.RequestedAt.Add(time.Hour), done.RequestedAt.Add(time.Hour)
	o := newOfficer(t, erasureAt("previewed", 2), stuck, done)
	require.NoError(t, o.run(t, true))
	require.Equal(t, "  waits for approval\n  approved, next step failed 2 times (keys.unavailable)\n  completed\n", o.err.String())
	require.Contains(t, o.out.String(), "is completed\n")
	require.Contains(t, o.out.String(), "class standard    erased\n")
	require.Contains(t, o.out.String(), "backbone erasure certificate")
	require.Len(t, o.requests(), 3)

	refused := erasureAt("refused", 2)
	refused.DaysLeft, refused.EndReason = nil, "legal_hold"
	o = newOfficer(t, refused)
	require.Equal(t, "erasure.ended", fault.CodeOf(o.run(t, true)))
	require.Contains(t, o.out.String(), "ended             legal_hold\n")
}

func TestErasuresAreListedByUrgency(t *testing.T) {
	t.Parallel()
	late, ended := erasureAt("fenced", 3), erasureAt("rejected", 2)
	over := -3
	late.ID, late.DaysLeft = "01JQ8E6Z6G3V5T8C9N2M4K7R1Q", &over
	ended.ID, ended.DaysLeft = "01JQ8E6Z6G3V5T8C9N2M4K7R1R", nil
	o := newOfficer(t, map[string]any{"erasure_requests": []any{ended, erasureAt("previewed", 2), late}})
	require.NoError(t, ListErasures(t.Context(), o.ClientOptions, ErasureList{Statuses: []string{"fenced", "previewed"}, Limit: 7}))
	lines := strings.Split(o.out.String(), "\n")
	require.Equal(t, "ID                          SUBJECT       STATUS     DAYS LEFT  DUE         EVENTS  REQUESTED BY", lines[0])
	require.Contains(t, lines[1], "R1Q  employee:E-1  fenced     -3 ")
	require.Contains(t, lines[2], "R1P  employee:E-1  previewed  30 ")
	require.Contains(t, lines[3], "R1R  employee:E-1  rejected   - ")
	require.Equal(t, []string{"GET /api/erasure-requests?limit=7&status=fenced%2Cpreviewed"}, o.requests())

	o = newOfficer(t, map[string]any{"erasure_requests": []any{}})
	require.NoError(t, ListErasures(t.Context(), o.ClientOptions, ErasureList{}))
	require.Equal(t, "There are no such erasure requests.\n", o.out.String())
}

func TestHoldsAreListed(t *testing.T) {
	t.Parallel()
	o := newOfficer(t, map[string]any{"legal_holds": []any{httpclient.Hold{ID: "01JQ", Subject: "employee:E-1", Reason: "File 4711", PlacedBy: "p-1"}}})
	require.NoError(t, ListHolds(t.Context(), o.ClientOptions, "employee:E-1"))
	require.Equal(t, "ID    SUBJECT       LEGAL ENTITY  UNTIL     PLACED BY  RELEASED BY  REASON\n01JQ  employee:E-1  all           released  p-1        -            File 4711\n", o.out.String())
	require.Equal(t, []string{"GET /api/legal-holds?subject=employee%3AE-1"}, o.requests())
	o = newOfficer(t, map[string]any{"legal_holds": []any{}})
	require.NoError(t, ListHolds(t.Context(), o.ClientOptions, "employee:E-1"))
	require.Equal(t, "There is no legal hold in force.\n", o.out.String())
}
