package cli

import (
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

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
)

// answeringServer is a terminal with a server that answers each request with the next of
// the answers, and all further ones with the last.
type answeringServer struct {
	terminal

	mu    sync.Mutex
	asked []string
	sent  []string // bodies
}

func (o *answeringServer) bodies() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.sent)
}

func (o *answeringServer) requests() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.asked)
}

func serveAnswers(t *testing.T, answers ...any) *answeringServer {
	t.Helper()
	o := &answeringServer{}
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
	o.server, o.token = server.URL, "bbk_x"
	return o
}

func erasureAt(status string, done int) client.ErasureRequest {
	at, left := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC), 30
	e := client.ErasureRequest{
		ID: erasureID, Subject: "employee:E-1", LegalEntities: []string{"USMF", "DEMF"}, Basis: "gdpr_art_17", Reason: "Letter of 12 March.",
		Status: status, RequestedBy: "p-compliance", RequestedAt: at, DueOn: "2026-04-30", DaysLeft: &left,
		Preview: client.ErasurePreview{
			Events: 20, Intents: 2, Projections: []string{"hr_staff"},
			Types: []client.ErasureTypeCount{
				{Type: "hr.employee.hired", LegalEntity: "USMF", Events: 20, Fields: 41}, {Type: "ap.set_vendor_contact", LegalEntity: "DEMF", Intent: true, Events: 2, Fields: 2},
			},
		},
		Classes: []client.ErasureClass{{Class: "standard", Erased: true}, {Class: "regulatory", Refused: "retention", Until: "2036-12-31"}},
	}
	for i, step := range []string{"requested", "previewed", "approved", "destroyed", "completed"} {
		e.Steps = append(e.Steps, client.ErasureStep{Step: step, Done: i < done})
	}
	return e
}

const erasureID = "01JQ8E6Z6G3V5T8C9N2M4K7R1P"

// status is `backbone erasure status`.
func (o *answeringServer) status(t *testing.T, flags ...string) error {
	t.Helper()
	return o.run(t, append([]string{"erasure", "status", erasureID}, flags...)...)
}

// request is `backbone erasure request`.
func (o *answeringServer) request(t *testing.T, flags ...string) error {
	t.Helper()
	return o.run(t, append([]string{"erasure", "request", "employee:E-1", "--basis", "gdpr_art_17", "--reason", "Letter"}, flags...)...)
}

func TestErasureStatus(t *testing.T) {
	t.Parallel()
	o := serveAnswers(t, erasureAt("previewed", 2))
	require.NoError(t, o.status(t))
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

	o = serveAnswers(t, erasureAt("previewed", 2))
	require.NoError(t, o.status(t, "--json"))
	var answer map[string]any
	require.NoError(t, json.Unmarshal(o.out.Bytes(), &answer))
	require.Equal(t, "previewed", answer["status"])
	require.NotContains(t, answer, "approved_at")

	o.token = ""
	require.Equal(t, "client.token_missing", fault.CodeOf(o.status(t)))
}

func TestErasureStatusWait(t *testing.T) {
	t.Parallel()
	stuck := erasureAt("approved", 3)
	stuck.Steps[3].Attempts, stuck.Steps[3].Error = 2, "keys.unavailable"
	done := erasureAt("completed", 5)
	done.DaysLeft, done.DestroyedAt, done.CompletedAt = nil, done.RequestedAt.Add(time.Hour), done.RequestedAt.Add(time.Hour)
	o := serveAnswers(t, erasureAt("previewed", 2), stuck, done)
	require.NoError(t, o.status(t, "--wait"))
	require.Equal(t, "Erasure 01JQ8E6Z6G3V5T8C9N2M4K7R1P waits until another person runs  backbone erasure approve 01JQ8E6Z6G3V5T8C9N2M4K7R1P\n"+
		"  waits for another person's approval\n  approved, next step failed 2 times (keys.unavailable)\n  completed\n", o.err.String())
	require.Contains(t, o.out.String(), "is completed\n")
	require.Contains(t, o.out.String(), "class standard    erased\n")
	require.Contains(t, o.out.String(), "backbone erasure certificate")
	require.Len(t, o.requests(), 3)

	refused := erasureAt("refused", 2)
	refused.DaysLeft, refused.EndReason = nil, "legal_hold"
	o = serveAnswers(t, refused)
	require.Equal(t, "erasure.ended", fault.CodeOf(o.status(t, "--wait")))
	require.Contains(t, o.out.String(), "ended             legal_hold\n")
}

// previewedAs is a request that needs the approval of a scope.
func previewedAs(scope string) client.ErasureRequest {
	e := erasureAt("previewed", 2)
	e.Preview.Scope = scope
	return e
}

func TestErasureWaitNewApproval(t *testing.T) {
	t.Parallel()
	approved := erasureAt("approved", 3)
	waitsAgain := func(err error, o *answeringServer) {
		t.Helper()
		require.Equal(t, "erasure.scope_changed", fault.CodeOf(err))
		require.ErrorContains(t, err, "needs a new approval")
		require.Contains(t, o.out.String(), "is previewed\n")
	}
	o := serveAnswers(t, previewedAs("aa"), approved, approved, previewedAs("bb"))
	waitsAgain(o.run(t, "erasure", "approve", erasureID, "--wait"), o)
	require.Equal(t, []string{`{"scope":"aa"}`}, o.bodies(), "what was seen is what is approved")
	require.Contains(t, o.err.String(), "Approving what it concerns now: employee:E-1 in USMF, DEMF, 20 events, 2 intents; standard to be erased, regulatory kept until 2036-12-31 (retention)\n")

	o = serveAnswers(t, previewedAs("aa"), approved, previewedAs("bb"))
	waitsAgain(o.status(t, "--wait"), o)
	o = serveAnswers(t, previewedAs("aa"), previewedAs("bb")) // approved and back between two reads
	waitsAgain(o.status(t, "--wait"), o)
	o = serveAnswers(t, erasureAt("requested", 1), previewedAs("aa"), approved, previewedAs("bb"))
	waitsAgain(o.request(t, "--wait"), o)
	require.Contains(t, o.err.String(), "waits until another person runs  backbone erasure approve "+erasureID)

	o = serveAnswers(t, erasureAt("requested", 1))
	require.Equal(t, "erasure.move_refused", fault.CodeOf(o.run(t, "erasure", "approve", erasureID)), "without a scope anything would be approved")
	require.Equal(t, []string{"GET /api/erasure-requests/" + erasureID}, o.requests())
}

func TestErasureRequestRefused(t *testing.T) {
	t.Parallel()
	refused := func(reason string, until ...string) *answeringServer {
		e := erasureAt("refused", 2)
		e.EndReason, e.Classes = reason, nil
		for _, day := range until {
			e.Classes = append(e.Classes, client.ErasureClass{Class: "standard", Refused: reason, Until: day})
		}
		return serveAnswers(t, e)
	}
	for want, o := range map[string]*answeringServer{
		"a legal hold until 2027-12-31,":                                 refused("legal_hold", "2027-12-31", "2027-12-31"),
		"a legal hold until it is released,":                             refused("legal_hold", "", ""),
		"minimum retention until 2030-12-31, in part until 2036-12-31, ": refused("retention", "2036-12-31", "2030-12-31"),
	} {
		err := o.request(t)
		require.Equal(t, "erasure.ended", fault.CodeOf(err))
		require.ErrorContains(t, err, want)
		require.Contains(t, o.out.String(), "is refused\n")
		require.NoError(t, o.status(t), "looking at it is no failure")
	}
	rejected := erasureAt("rejected", 2)
	o := serveAnswers(t, rejected)
	require.NoError(t, o.status(t))
	require.Contains(t, o.out.String(), "class standard    not erased\n")
}

func TestErasureRequestUnknownSubject(t *testing.T) {
	t.Parallel()
	e := previewedAs("aa")
	e.Preview.Events, e.Preview.Intents, e.Preview.Types, e.Preview.Projections = 0, 0, nil, nil
	o := serveAnswers(t, e)
	require.NoError(t, o.request(t))
	require.Contains(t, o.out.String(), "Warning: nothing is known about this subject; check the id")
	e.Preview.Events, *e.DaysLeft = 1, 1
	o = serveAnswers(t, e)
	require.NoError(t, o.status(t))
	require.NotContains(t, o.out.String(), "Warning")
	require.Contains(t, o.out.String(), "1 event, 0 intents\n")
	require.Contains(t, o.out.String(), ", 1 day left\n")
}

func TestErasureListOrder(t *testing.T) {
	t.Parallel()
	late, ended := erasureAt("fenced", 3), erasureAt("rejected", 2)
	over := -3
	late.ID, late.DaysLeft, late.DueOn = "01JQ8E6Z6G3V5T8C9N2M4K7R1Q", &over, "2026-03-28"
	ended.ID, ended.DaysLeft = "01JQ8E6Z6G3V5T8C9N2M4K7R1R", nil
	answer := func(all ...any) map[string]any { return map[string]any{"erasure_requests": all} }
	o := serveAnswers(t, answer(erasureAt("previewed", 2), late), answer(ended, late))
	require.NoError(t, o.run(t, "erasure", "list", "--limit", "7"))
	lines := strings.Split(o.out.String(), "\n")
	require.Len(t, lines, 5, "a request that ends between the two calls is listed once")
	require.Equal(t, "ID                          SUBJECT       STATUS     DAYS LEFT  DUE         EVENTS  REQUESTED BY", lines[0])
	require.Contains(t, lines[1], "R1Q  employee:E-1  fenced     -3 ")
	require.Contains(t, lines[2], "R1P  employee:E-1  previewed  30 ")
	require.Contains(t, lines[3], "R1R  employee:E-1  rejected   - ")
	require.Equal(t, []string{
		"GET /api/erasure-requests?limit=1000&status=requested%2Cpreviewed%2Capproved%2Cfenced%2Cdestroyed%2Creceipted%2Cannounced%2Cevicted%2Crebuilt%2Cverified",
		"GET /api/erasure-requests?limit=5&status=completed%2Crejected%2Cwithdrawn%2Cexpired%2Crefused",
	}, o.requests())

	o = serveAnswers(t, answer(erasureAt("previewed", 2), late))
	require.NoError(t, o.run(t, "erasure", "list", "--status", "fenced,previewed", "--limit", "1"))
	require.Contains(t, o.out.String(), late.ID)
	require.NotContains(t, o.out.String(), "R1P")
	require.Contains(t, o.err.String(), "more open requests")
	require.Equal(t, []string{"GET /api/erasure-requests?limit=1000&status=fenced%2Cpreviewed"}, o.requests())

	o = serveAnswers(t, answer())
	require.NoError(t, o.run(t, "erasure", "list"))
	require.Equal(t, "There are no such erasure requests.\n", o.out.String())
	require.Equal(t, "request.parameter_invalid", fault.CodeOf(o.run(t, "erasure", "list", "--limit", "1001")))
}

func TestHoldList(t *testing.T) {
	t.Parallel()
	o := serveAnswers(t, map[string]any{"legal_holds": []any{client.LegalHold{ID: "01JQ", Subject: "employee:E-1", Reason: "File 4711", PlacedBy: "p-1"}}})
	require.NoError(t, o.run(t, "holds", "list", "employee:E-1"))
	require.Equal(t, "ID    SUBJECT       LEGAL ENTITY  UNTIL           PLACED BY  RELEASED BY  REASON\n01JQ  employee:E-1  all           until released  p-1        -            File 4711\n", o.out.String())
	require.Equal(t, []string{"GET /api/legal-holds?subject=employee%3AE-1"}, o.requests())
	o = serveAnswers(t, map[string]any{"legal_holds": []any{}})
	require.NoError(t, o.run(t, "holds", "list", "employee:E-1"))
	require.Equal(t, "There is no legal hold in force.\n", o.out.String())
}
