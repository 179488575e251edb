package cli

import (
	"bytes"
	"encoding/json"
	"io"
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
	sent  []string // bodies
}

func (o *officer) bodies() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.sent)
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
		if body, _ := io.ReadAll(r.Body); len(body) > 0 {
			o.sent = append(o.sent, strings.TrimSpace(string(body)))
		}
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
	require.Equal(t, "Erasure 01JQ8E6Z6G3V5T8C9N2M4K7R1P waits until another person runs  backbone erasure approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P\n"+
		"  waits for another person's approval\n  approved, next step failed 2 times (keys.unavailable)\n  completed\n", o.err.String())
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

// previewedAs is a request that waits for the approval of a scope.
func previewedAs(scope string) httpclient.Erasure {
	e := erasureAt("previewed", 2)
	e.Preview.Scope = scope
	return e
}

func TestAnErasureThatNeedsANewApprovalIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	approved := erasureAt("approved", 3)
	const id = "01JQ8E6Z6G3V5T8C9N2M4K7R1P"
	waitsAgain := func(err error, o *officer) {
		t.Helper()
		require.Equal(t, "erasure.scope_changed", fault.CodeOf(err))
		require.ErrorContains(t, err, "needs a new approval")
		require.Contains(t, o.out.String(), "is previewed\n")
	}
	o := newOfficer(t, previewedAs("aa"), approved, approved, previewedAs("bb"))
	waitsAgain(ApproveErasure(t.Context(), o.ClientOptions, true, id), o)
	require.Equal(t, []string{`{"scope":"aa"}`}, o.bodies(), "what was seen is what is approved")
	require.Contains(t, o.err.String(), "Approving what it concerns now: employee:E-1 in USMF, DEMF, 20 events, 2 intents; standard to be erased, regulatory kept until 2036-12-31 (retention)\n")

	o = newOfficer(t, previewedAs("aa"), approved, previewedAs("bb"))
	waitsAgain(o.run(t, true), o)
	o = newOfficer(t, previewedAs("aa"), previewedAs("bb")) // approved and back between two looks
	waitsAgain(o.run(t, true), o)
	o = newOfficer(t, erasureAt("requested", 1), previewedAs("aa"), approved, previewedAs("bb"))
	waitsAgain(RequestErasure(t.Context(), o.ClientOptions, true, NewErasure{}, ""), o)
	require.Contains(t, o.err.String(), "waits until another person runs  backbone erasure approve "+id)

	o = newOfficer(t, erasureAt("requested", 1))
	require.Equal(t, "erasure.move_refused", fault.CodeOf(ApproveErasure(t.Context(), o.ClientOptions, false, id)), "without a scope anything would be approved")
	require.Equal(t, []string{"GET /api/erasure-requests/" + id}, o.requests())
}

func TestARequestThatIsRefusedAtOnceFails(t *testing.T) {
	t.Parallel()
	refused := func(reason string, until ...string) *officer {
		e := erasureAt("refused", 2)
		e.EndReason, e.Classes = reason, nil
		for _, day := range until {
			e.Classes = append(e.Classes, httpclient.ErasureClass{Class: "standard", Refused: reason, Until: day})
		}
		return newOfficer(t, e)
	}
	for want, o := range map[string]*officer{
		"a legal hold until 2027-12-31,":                                 refused("legal_hold", "2027-12-31", "2027-12-31"),
		"a legal hold until it is released,":                             refused("legal_hold", "", ""),
		"minimum retention until 2030-12-31, in part until 2036-12-31, ": refused("retention", "2036-12-31", "2030-12-31"),
	} {
		err := RequestErasure(t.Context(), o.ClientOptions, false, NewErasure{}, "")
		require.Equal(t, "erasure.ended", fault.CodeOf(err))
		require.ErrorContains(t, err, want)
		require.Contains(t, o.out.String(), "is refused\n")
		require.NoError(t, o.run(t, false), "looking at it is no failure")
	}
	rejected := erasureAt("rejected", 2)
	o := newOfficer(t, rejected)
	require.NoError(t, o.run(t, false))
	require.Contains(t, o.out.String(), "class standard    not erased\n")
}

func TestARequestForNobodyIsWarnedOf(t *testing.T) {
	t.Parallel()
	e := previewedAs("aa")
	e.Preview.Events, e.Preview.Intents, e.Preview.Types, e.Preview.Projections = 0, 0, nil, nil
	o := newOfficer(t, e)
	require.NoError(t, RequestErasure(t.Context(), o.ClientOptions, false, NewErasure{}, ""))
	require.Contains(t, o.out.String(), "Warning: nothing is known about this subject; check the id")
	e.Preview.Events, *e.DaysLeft = 1, 1
	o = newOfficer(t, e)
	require.NoError(t, o.run(t, false))
	require.NotContains(t, o.out.String(), "Warning")
	require.Contains(t, o.out.String(), "1 event, 0 intents\n")
	require.Contains(t, o.out.String(), ", 1 day left\n")
}

func TestErasuresAreListedByUrgency(t *testing.T) {
	t.Parallel()
	late, ended := erasureAt("fenced", 3), erasureAt("rejected", 2)
	over := -3
	late.ID, late.DaysLeft, late.DueOn = "01JQ8E6Z6G3V5T8C9N2M4K7R1Q", &over, "2026-03-28"
	ended.ID, ended.DaysLeft = "01JQ8E6Z6G3V5T8C9N2M4K7R1R", nil
	answer := func(all ...any) map[string]any { return map[string]any{"erasure_requests": all} }
	o := newOfficer(t, answer(erasureAt("previewed", 2), late), answer(ended, late))
	require.NoError(t, ListErasures(t.Context(), o.ClientOptions, ErasureList{Limit: 7}))
	lines := strings.Split(o.out.String(), "\n")
	require.Len(t, lines, 5, "a request that ends meanwhile is listed once")
	require.Equal(t, "ID                          SUBJECT       STATUS     DAYS LEFT  DUE         EVENTS  REQUESTED BY", lines[0])
	require.Contains(t, lines[1], "R1Q  employee:E-1  fenced     -3 ")
	require.Contains(t, lines[2], "R1P  employee:E-1  previewed  30 ")
	require.Contains(t, lines[3], "R1R  employee:E-1  rejected   - ")
	require.Equal(t, []string{
		"GET /api/erasure-requests?limit=1000&status=requested%2Cpreviewed%2Capproved%2Cfenced%2Cdestroyed%2Creceipted%2Cannounced%2Cevicted%2Crebuilt%2Cverified",
		"GET /api/erasure-requests?limit=5&status=completed%2Crejected%2Cwithdrawn%2Cexpired%2Crefused",
	}, o.requests())

	o = newOfficer(t, answer(erasureAt("previewed", 2), late))
	require.NoError(t, ListErasures(t.Context(), o.ClientOptions, ErasureList{Statuses: []string{"fenced", "previewed"}, Limit: 1}))
	require.Contains(t, o.out.String(), late.ID)
	require.NotContains(t, o.out.String(), "R1P")
	require.Contains(t, o.err.String(), "more open requests")
	require.Equal(t, []string{"GET /api/erasure-requests?limit=1000&status=fenced%2Cpreviewed"}, o.requests())

	o = newOfficer(t, answer())
	require.NoError(t, ListErasures(t.Context(), o.ClientOptions, ErasureList{}))
	require.Equal(t, "There are no such erasure requests.\n", o.out.String())
	require.Equal(t, "request.parameter_invalid", fault.CodeOf(ListErasures(t.Context(), o.ClientOptions, ErasureList{Limit: 1001})))
}

func TestHoldsAreListed(t *testing.T) {
	t.Parallel()
	o := newOfficer(t, map[string]any{"legal_holds": []any{httpclient.Hold{ID: "01JQ", Subject: "employee:E-1", Reason: "File 4711", PlacedBy: "p-1"}}})
	require.NoError(t, ListHolds(t.Context(), o.ClientOptions, "employee:E-1"))
	require.Equal(t, "ID    SUBJECT       LEGAL ENTITY  UNTIL           PLACED BY  RELEASED BY  REASON\n01JQ  employee:E-1  all           until released  p-1        -            File 4711\n", o.out.String())
	require.Equal(t, []string{"GET /api/legal-holds?subject=employee%3AE-1"}, o.requests())
	o = newOfficer(t, map[string]any{"legal_holds": []any{}})
	require.NoError(t, ListHolds(t.Context(), o.ClientOptions, "employee:E-1"))
	require.Equal(t, "There is no legal hold in force.\n", o.out.String())
}
