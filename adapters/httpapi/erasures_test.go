package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// erasureStub answers erasure requests from memory: an approved request is completed by
// the next read.
type erasureStub struct {
	mu       sync.Mutex
	requests []erasure.Status
	holds    []erasure.Hold
	asked    []string // states of the last List
	keys     map[string]int
}

var (
	erasureStart = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	previewScope = strings.Repeat("0a", 32)
	requestDue   = event.MustDate("2026-04-30")
	held         = event.MustDate("2027-12-31")
)

func (b *erasureStub) Request(_ context.Context, p ports.Principal, r erasure.NewRequest) (erasure.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.LegalEntities != nil && !slices.Contains([]string{"USMF", "DEMF"}, r.LegalEntities[0]) {
		return erasure.Status{}, fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity; name another").WithField("/legal_entities")
	}
	if i, known := b.keys[r.IdempotencyKey]; known {
		again := b.requests[i]
		again.Replayed = true
		return again, nil
	}
	if r.IdempotencyKey != "" {
		b.keys = map[string]int{r.IdempotencyKey: len(b.requests)}
	}
	made := erasure.Status{
		ID: event.ID{15: byte(len(b.requests) + 1)}, Subject: r.Subject, LegalEntities: []string{"USMF", "DEMF"}, Basis: r.Basis, Reason: r.Reason,
		State: string(shredding.ErasurePreviewed), RequestedBy: p.PersonID, RequestedAt: erasureStart, DueOn: requestDue, DaysLeft: 30,
		Scope: previewScope,
		Preview: erasure.Preview{
			Events: 20, Intents: 2, Types: []erasure.TypeCount{{Type: "hr.employee.hired", LegalEntity: "USMF", Events: 20, Fields: 41}},
			LegalEntities: []string{"USMF", "DEMF"}, Projections: []string{"hr_staff"}, CountedAt: erasureStart,
			Retained: []erasure.Retained{{Class: "regulatory", Until: held}}, Holds: []erasure.Hold{},
		},
		Classes: []erasure.Class{{Class: "standard", Erased: true}, {Class: "regulatory", Refused: "retention", Until: &held}},
		Steps:   []erasure.Step{{State: "requested", Done: true, At: erasureStart}, {State: "previewed", Done: true}, {State: "approved", Attempts: 1, LastError: "keys.unavailable"}},
	}
	if r.LegalEntities != nil {
		made.LegalEntities = r.LegalEntities
	}
	if r.DueOn != nil {
		made.DueOn = *r.DueOn
	}
	b.requests = append(b.requests, made)
	return made, nil
}

func (b *erasureStub) change(id event.ID, f func(*erasure.Status)) (erasure.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.requests {
		if b.requests[i].ID == id {
			f(&b.requests[i])
			return b.requests[i], nil
		}
	}
	return erasure.Status{}, fault.New(fault.NotFound, "erasure.not_found", "there is no such erasure request; list them")
}

func (b *erasureStub) Approve(_ context.Context, p ports.Principal, id event.ID, scope string) (erasure.Status, error) {
	if scope != "" && scope != previewScope {
		return erasure.Status{}, fault.New(fault.FailedPrecondition, "erasure.scope_changed", "look again")
	}
	return b.change(id, func(s *erasure.Status) {
		s.State, s.ApprovedBy, s.ApprovedAt = string(shredding.ErasureApproved), p.PersonID, erasureStart.Add(time.Hour)
	})
}

func (b *erasureStub) end(id event.ID, p ports.Principal, state shredding.ErasureState, reason string) (erasure.Status, error) {
	return b.change(id, func(s *erasure.Status) { s.State, s.EndedBy, s.EndReason = string(state), p.PersonID, reason })
}

func (b *erasureStub) Reject(_ context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error) {
	return b.end(id, p, shredding.ErasureRejected, reason)
}

func (b *erasureStub) Withdraw(_ context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error) {
	return b.end(id, p, shredding.ErasureWithdrawn, reason)
}

func (b *erasureStub) Get(_ context.Context, _ ports.Principal, id event.ID) (erasure.Status, error) {
	return b.change(id, func(s *erasure.Status) {
		if s.State == string(shredding.ErasureApproved) {
			s.State, s.DestroyedAt, s.CompletedAt = string(shredding.ErasureCompleted), erasureStart.Add(2*time.Hour), erasureStart.Add(3*time.Hour)
		}
	})
}

func (b *erasureStub) List(_ context.Context, _ ports.Principal, states []string, limit int) ([]erasure.Status, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(append([]string{}, states...), fmt.Sprint(limit))
	return slices.Clone(b.requests), nil
}

func (b *erasureStub) Certificate(ctx context.Context, p ports.Principal, id event.ID) ([]byte, error) {
	s, err := b.Get(ctx, p, id)
	if err == nil && s.State != string(shredding.ErasureCompleted) {
		err = fault.New(fault.Conflict, "erasure.not_completed", "the request is %s, and its certificate is signed once it is completed; ask again then", s.State)
	}
	if err != nil {
		return nil, err
	}
	return []byte(`{ "note": "` + id.String() + `" }` + "\n"), nil
}

func (b *erasureStub) PlaceHold(_ context.Context, p ports.Principal, h erasure.NewHold) ([]erasure.Hold, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	codes := h.LegalEntities
	if codes == nil {
		codes = []string{""}
	}
	var placed []erasure.Hold
	for _, code := range codes {
		placed = append(placed, erasure.Hold{
			ID: event.ID{14: 1, 15: byte(len(b.holds) + 1)}, Subject: h.Subject, LegalEntity: code, Reason: h.Reason, PlacedBy: p.PersonID, PlacedAt: erasureStart, Until: h.Until,
		})
		b.holds = append(b.holds, placed[len(placed)-1])
	}
	return placed, h.IdempotencyKey != "", nil
}

func (b *erasureStub) ReleaseHold(_ context.Context, p ports.Principal, id event.ID) (erasure.Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, h := range b.holds {
		if h.ID == id {
			b.holds = slices.Delete(b.holds, i, i+1)
			h.ReleasedBy, h.ReleasedAt = p.PersonID, erasureStart.Add(time.Hour)
			return h, nil
		}
	}
	return erasure.Hold{}, fault.New(fault.NotFound, "erasure.not_found", "there is no such hold; list them")
}

func (b *erasureStub) Holds(_ context.Context, _ ports.Principal, subject string) ([]erasure.Hold, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.holds), func(h erasure.Hold) bool { return h.Subject != subject }), nil
}

func startErasureAPI(t testing.TB) (*apiFixture, *erasureStub) {
	t.Helper()
	b := &erasureStub{}
	return startAPI(t, func(c *httpapi.Config) { c.Erasures = b }), b
}

const erasureRequestBody = `{"subject":"employee:E-1","basis":"gdpr_art_17","reason":"Letter of 12 March."}`

func (h *apiFixture) requestErasure(t *testing.T, token string) string {
	t.Helper()
	a := h.do(t, testRequest{method: "POST", path: "/api/erasure-requests", token: token, body: erasureRequestBody})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
	return a.json(t)["id"].(string)
}

func TestErasureApproval(t *testing.T) {
	t.Parallel()
	h, b := startErasureAPI(t)
	made := h.do(t, testRequest{method: "POST", path: "/api/erasure-requests", token: "compliance", body: erasureRequestBody})
	require.Equal(t, http.StatusCreated, made.status, string(made.body))
	shown := made.json(t)
	require.Equal(t, "previewed", shown["status"])
	require.Equal(t, "2026-04-30", shown["due_on"])
	require.EqualValues(t, 30, shown["days_left"])
	require.Equal(t, "p-compliance", shown["requested_by"])
	preview := shown["preview"].(map[string]any)
	require.EqualValues(t, 20, preview["events"])
	require.Equal(t, []any{map[string]any{"type": "hr.employee.hired", "legal_entity": "USMF", "events": 20.0, "fields": 41.0}}, preview["types"])
	require.Equal(t, []any{"hr_staff"}, preview["projections"])
	require.Equal(t, []any{map[string]any{"class": "regulatory", "until": "2027-12-31"}}, preview["retained"])
	path := "/api/erasure-requests/" + shown["id"].(string)
	post := func(verb, token, body string) testAnswer {
		return h.do(t, testRequest{method: "POST", path: path + verb, token: token, body: body})
	}
	require.Equal(t, "erasure.same_person", post("/approve", "compliance", "").json(t)["code"])
	require.Equal(t, "erasure.same_person", post("/reject", "compliance", `{"reason":"No."}`).json(t)["code"])
	require.Equal(t, "erasure.not_completed", h.do(t, testRequest{method: "GET", path: path + "/certificate", token: "auditor"}).json(t)["code"])

	require.Equal(t, previewScope, preview["scope"])
	stale := post("/approve", "compliance_approver", `{"scope":"another"}`)
	require.Equal(t, "erasure.scope_changed", stale.json(t)["code"])
	approved := post("/approve", "compliance_approver", `{"scope":"`+previewScope+`"}`)
	require.Equal(t, http.StatusOK, approved.status, string(approved.body))
	require.Equal(t, "approved", approved.json(t)["status"])
	require.Equal(t, "p-compliance_approver", approved.json(t)["approved_by"])
	done := h.do(t, testRequest{method: "GET", path: path, token: "auditor"}).json(t)
	require.Equal(t, "completed", done["status"])
	require.Equal(t, "2026-03-31T15:00:00.000000Z", done["completed_at"])
	require.NotContains(t, done, "days_left", "nothing is left to do")
	certificate := h.do(t, testRequest{method: "GET", path: path + "/certificate", token: "compliance"})
	require.Equal(t, "application/json", certificate.header.Get("Content-Type"))
	require.Equal(t, `{ "note": "`+shown["id"].(string)+`" }`+"\n", string(certificate.body), "the signed bytes as they are")

	for verb, want := range map[string][2]string{"/reject": {"compliance_approver", "rejected"}, "/withdraw": {"compliance", "withdrawn"}} {
		path = "/api/erasure-requests/" + h.requestErasure(t, "compliance")
		ended := post(verb, want[0], `{"reason":"Still employed."}`).json(t)
		require.Equal(t, want[1], ended["status"])
		require.Equal(t, "Still employed.", ended["end_reason"])
	}
	all := h.do(t, testRequest{method: "GET", path: "/api/erasure-requests?status=previewed,approved&limit=7", token: "compliance_approver"})
	require.Len(t, all.json(t)["erasure_requests"], 3)
	require.Equal(t, []string{"previewed", "approved", "7"}, b.asked)
}

func TestErasureRequestIdempotency(t *testing.T) {
	t.Parallel()
	h, _ := startErasureAPI(t)
	keyed := testRequest{
		method: "POST", path: "/api/erasure-requests", token: "compliance", header: map[string]string{"Idempotency-Key": "k-1"},
		body: `{"subject":"employee:E-1","basis":"gdpr_art_17","reason":"Letter of 12 March."}`,
	}
	first := h.do(t, keyed)
	require.Equal(t, http.StatusCreated, first.status, string(first.body))
	require.Empty(t, first.header.Get("Idempotency-Replayed"))
	again := h.do(t, keyed)
	require.Equal(t, http.StatusOK, again.status)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"))
	require.Equal(t, first.body, again.body)
}

func TestLegalHolds(t *testing.T) {
	t.Parallel()
	h, _ := startErasureAPI(t)
	placed := h.do(t, testRequest{method: "POST", path: "/api/legal-holds", token: "compliance",
		body: `{"subject":"employee:E-1","legal_entities":["USMF","DEMF"],"reason":"Proceedings 4711.","until":"2027-12-31"}`})
	require.Equal(t, http.StatusCreated, placed.status, string(placed.body))
	all := placed.json(t)["legal_holds"].([]any)
	require.Len(t, all, 2)
	first := all[0].(map[string]any)
	require.Equal(t, []any{"USMF", "2027-12-31", "p-compliance"}, []any{first["legal_entity"], first["until"], first["placed_by"]})
	everywhere := h.do(t, testRequest{method: "POST", path: "/api/legal-holds", token: "compliance", body: `{"subject":"employee:E-1","reason":"Proceedings 4711."}`})
	require.NotContains(t, everywhere.json(t)["legal_holds"].([]any)[0], "legal_entity")
	replayed := h.do(t, testRequest{method: "POST", path: "/api/legal-holds", token: "compliance", body: `{"subject":"employee:E-3","reason":"Proceedings 4711."}`,
		header: map[string]string{"Idempotency-Key": "k-1"}})
	require.Equal(t, http.StatusOK, replayed.status)
	require.Equal(t, "true", replayed.header.Get("Idempotency-Replayed"))
	listed := func(subject string) []any {
		return h.do(t, testRequest{method: "GET", path: "/api/legal-holds?subject=" + subject, token: "auditor"}).json(t)["legal_holds"].([]any)
	}
	require.Len(t, listed("employee:E-1"), 3)
	require.Empty(t, listed("employee:E-2"))
	released := h.do(t, testRequest{method: "POST", path: "/api/legal-holds/" + first["id"].(string) + "/release", token: "compliance"})
	require.Equal(t, http.StatusOK, released.status, string(released.body))
	require.Equal(t, "p-compliance", released.json(t)["released_by"])
	require.Len(t, listed("employee:E-1"), 2)
}

// TestErasureProblemDocuments sends requests that must be refused; each gets its own problem
// document.
func TestErasureProblemDocuments(t *testing.T) {
	t.Parallel()
	h, b := startErasureAPI(t)
	path := "/api/erasure-requests/" + h.requestErasure(t, "compliance")
	const unknown = "/api/erasure-requests/01JWZX3V9K5T7Q8R2M4N6P0ABC"
	post := func(path, token, body string) testRequest {
		return testRequest{method: "POST", path: path, token: token, body: body}
	}
	get := func(path, token string) testRequest { return testRequest{method: "GET", path: path, token: token} }
	for _, c := range []struct {
		name   string
		status int
		ask    testRequest
	}{
		{"erasure_by_admin", 403, post("/api/erasure-requests", "admin", `{"subject": [broken`)},
		{"erasure_by_auditor", 403, post("/api/erasure-requests", "auditor", erasureRequestBody)},
		{"erasure_by_approver", 403, post("/api/erasure-requests", "compliance_approver", erasureRequestBody)},
		{"erasure_read_by_operator", 403, get(path, "operator")},
		{"erasure_approved_by_operator", 403, post(path+"/approve", "operator", "")},
		{"erasure_approved_by_service", 403, post(path+"/approve", "compliance_service", "")},
		{"erasure_same_person", 403, post(path+"/approve", "compliance", "")},
		{"erasure_subject_missing", 400, post("/api/erasure-requests", "compliance", `{"basis":"court_order","reason":"x"}`)},
		{"erasure_basis_missing", 400, post("/api/erasure-requests", "compliance", `{"subject":"employee:E-1","reason":"x"}`)},
		{"erasure_reason_missing", 400, post("/api/erasure-requests", "compliance", `{"subject":"employee:E-1","basis":"court_order"}`)},
		{"erasure_due_on_invalid", 400, post("/api/erasure-requests", "compliance", `{"subject":"employee:E-1","basis":"court_order","reason":"x","due_on":"soon"}`)},
		{"erasure_legal_entities_empty", 400, post("/api/erasure-requests", "compliance", `{"subject":"employee:E-1","basis":"court_order","reason":"x","legal_entities":[]}`)},
		{"erasure_legal_entity_unknown", 404, post("/api/erasure-requests", "compliance", `{"subject":"employee:E-1","basis":"court_order","reason":"x","legal_entities":["XXXX"]}`)},
		{"erasure_actor_in_body", 400, post("/api/erasure-requests", "compliance", `{"subject":"employee:E-1","basis":"court_order","reason":"x","requested_by":"p-2"}`)},
		{"erasure_not_found", 404, get(unknown, "compliance")},
		{"erasure_approve_not_found", 404, post(unknown+"/approve", "compliance_approver", "")},
		{"erasure_id_malformed", 404, get("/api/erasure-requests/17", "compliance")},
		{"erasure_reject_without_reason", 400, post(path+"/reject", "compliance_approver", `{"reason":""}`)},
		{"erasure_withdraw_without_reason", 400, post(path+"/withdraw", "compliance", `{}`)},
		{"erasure_not_completed", 409, get(path+"/certificate", "compliance")},
		{"erasure_status_unknown", 400, get("/api/erasure-requests?status=lost", "compliance")},
		{"erasure_filter_unknown", 400, get("/api/erasure-requests?state=approved", "compliance")},
		{"hold_by_admin", 403, post("/api/legal-holds", "admin", `{"subject":"employee:E-1","reason":"x"}`)},
		{"hold_by_approver", 403, post("/api/legal-holds", "compliance_approver", `{"subject":"employee:E-1","reason":"x"}`)},
		{"hold_subject_missing", 400, post("/api/legal-holds", "compliance", `{"reason":"x"}`)},
		{"hold_reason_missing", 400, post("/api/legal-holds", "compliance", `{"subject":"employee:E-1"}`)},
		{"hold_until_invalid", 400, post("/api/legal-holds", "compliance", `{"subject":"employee:E-1","reason":"x","until":"31.12.2027"}`)},
		{"hold_legal_entities_empty", 400, post("/api/legal-holds", "compliance", `{"subject":"employee:E-1","reason":"x","legal_entities":[]}`)},
		{"hold_not_found", 404, post("/api/legal-holds/01JWZX3V9K5T7Q8R2M4N6P0ABC/release", "compliance", "")},
		{"hold_id_malformed", 404, post("/api/legal-holds/17/release", "compliance", "")},
		{"holds_subject_missing", 400, get("/api/legal-holds?subject=", "compliance")},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := h.do(t, c.ask)
			require.Equal(t, c.status, a.status, string(a.body))
			expect(t, c.name, a)
		})
	}
	require.Len(t, b.requests, 1)
	require.Equal(t, "previewed", b.requests[0].State, "nothing was decided")
	require.Empty(t, b.holds)

	bare := startAPI(t)
	for _, a := range []testRequest{
		post("/api/erasure-requests", "compliance", erasureRequestBody), get("/api/erasure-requests", "compliance"), get(unknown, "compliance"),
		post(unknown+"/approve", "compliance", ""), post("/api/legal-holds", "compliance", `{"subject":"employee:E-1","reason":"x"}`),
		get("/api/legal-holds?subject=employee:E-1", "compliance"), post("/api/legal-holds/01JWZX3V9K5T7Q8R2M4N6P0ABC/release", "compliance", ""),
	} {
		expect(t, "erasure_without_keys", bare.do(t, a))
	}
}

func TestClientOfErasures(t *testing.T) {
	t.Parallel()
	h, _ := startErasureAPI(t)
	ctx, compliance, approver, auditor := t.Context(), h.clientOf(t, "compliance"), h.clientOf(t, "compliance_approver"), h.clientOf(t, "auditor")
	made, err := compliance.RequestErasure(ctx, client.RequestErasureParams{IdempotencyKey: "k"}, client.NewErasureRequest{
		Subject: "employee:E-1", LegalEntities: []string{"USMF"}, Basis: "court_order", Reason: "File 4711.", DueOn: "2026-04-15",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"USMF"}, made.LegalEntities)
	require.Equal(t, "2026-04-15", made.DueOn)
	require.Equal(t, 30, *made.DaysLeft)
	require.Equal(t, []client.RetainedClass{{Class: "regulatory", Until: "2027-12-31"}}, made.Preview.Retained)
	require.Equal(t, client.ErasureStep{Step: "approved", Attempts: 1, Error: "keys.unavailable"}, made.Steps[2])
	_, err = compliance.ApproveErasureRequest(ctx, made.ID, client.ApproveErasure{})
	require.Equal(t, "erasure.same_person", fault.CodeOf(err))
	approved, err := approver.ApproveErasureRequest(ctx, made.ID, client.ApproveErasure{Scope: made.Preview.Scope})
	require.NoError(t, err)
	require.Equal(t, erasureStart.Add(time.Hour), approved.ApprovedAt)
	done, err := auditor.GetErasureRequest(ctx, made.ID)
	require.NoError(t, err)
	require.Equal(t, "completed", done.Status)
	require.Nil(t, done.DaysLeft)
	all, err := auditor.ListErasureRequests(ctx, client.ListErasureRequestsParams{Status: "completed", Limit: 5})
	require.NoError(t, err)
	require.Equal(t, []client.ErasureRequest{done}, all.ErasureRequests)
	var certificate json.RawMessage
	_, err = auditor.GetErasureCertificate(ctx, made.ID, client.Document(&certificate))
	require.NoError(t, err)
	require.Equal(t, `{ "note": "`+made.ID+`" }`+"\n", string(certificate))
	ended, err := approver.RejectErasureRequest(ctx, h.requestErasure(t, "compliance"), client.RejectRequest{Reason: "No."})
	require.NoError(t, err)
	require.Equal(t, []string{"rejected", "No."}, []string{ended.Status, ended.EndReason})
	ended, err = compliance.WithdrawErasureRequest(ctx, h.requestErasure(t, "compliance"), client.RejectRequest{Reason: "No."})
	require.NoError(t, err)
	require.Equal(t, []string{"withdrawn", "No."}, []string{ended.Status, ended.EndReason})

	placed, err := compliance.PlaceLegalHold(ctx, client.PlaceLegalHoldParams{}, client.NewLegalHold{Subject: "employee:E-1", LegalEntities: []string{"USMF"}, Reason: "File 4711.", Until: "2027-12-31"})
	require.NoError(t, err)
	found, err := auditor.ListLegalHolds(ctx, client.ListLegalHoldsParams{Subject: "employee:E-1"})
	require.NoError(t, err)
	require.Equal(t, placed, found)
	released, err := compliance.ReleaseLegalHold(ctx, placed.LegalHolds[0].ID)
	require.NoError(t, err)
	require.Equal(t, "p-compliance", released.ReleasedBy)
}
