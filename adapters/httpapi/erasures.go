package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Erasures erases personal data and keeps legal holds: erasure.Service. It covers only
// what the caller may see.
type Erasures interface {
	Request(ctx context.Context, p ports.Principal, r erasure.NewRequest) (erasure.Status, error)
	// Approve takes the scope of the preview that the approver saw, and fails with
	// erasure.scope_changed if the scope has changed. "" approves the present scope.
	Approve(ctx context.Context, p ports.Principal, id event.ID, scope string) (erasure.Status, error)
	Reject(ctx context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error)
	Withdraw(ctx context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error)
	Get(ctx context.Context, p ports.Principal, id event.ID) (erasure.Status, error)
	List(ctx context.Context, p ports.Principal, states []string, limit int) ([]erasure.Status, error)
	// Certificate returns the file's bytes; erasure.not_completed before it is complete.
	Certificate(ctx context.Context, p ports.Principal, id event.ID) ([]byte, error)
	PlaceHold(ctx context.Context, p ports.Principal, h erasure.NewHold) ([]erasure.Hold, error)
	ReleaseHold(ctx context.Context, p ports.Principal, id event.ID) (erasure.Hold, error)
	Holds(ctx context.Context, p ports.Principal, subject string) ([]erasure.Hold, error)
}

var erasureHandlers = handlers{
	"requestErasure":         withBody((*Server).requestErasure),
	"getErasureRequest":      (*Server).getErasureRequest,
	"listErasureRequests":    (*Server).listErasureRequests,
	"approveErasureRequest":  withBody((*Server).approveErasureRequest),
	"rejectErasureRequest":   withBody((*Server).rejectErasureRequest),
	"withdrawErasureRequest": withBody((*Server).withdrawErasureRequest),
	"getErasureCertificate":  (*Server).getErasureCertificate,
}

const (
	codeErasureNotFound = "erasure.not_found"
	actionApproveErase  = "erasure.approve"
)

// erasures returns the service, or the fault of a server without keys.
func (s *Server) erasures() (Erasures, error) {
	if s.config.Erasures == nil {
		return nil, fault.New(fault.FailedPrecondition, "pii.keys_missing", "this server has no key service and nothing to erase; ask an operator to configure one")
	}
	return s.config.Erasures, nil
}

// requestErasure answers POST /api/erasure-requests.
func (s *Server) requestErasure(ctx context.Context, r request, body *api.NewErasureRequest) (response, error) {
	b := body
	switch {
	case b.Subject == "":
		return nil, missingMember("/subject")
	case b.Basis == "":
		return nil, missingMember("/basis")
	case b.Reason == "":
		return nil, missingMember("/reason")
	}
	if err := checkLegalEntities(b.LegalEntities); err != nil {
		return nil, err
	}
	request := erasure.NewRequest{Subject: b.Subject, LegalEntities: b.LegalEntities, Basis: b.Basis, Reason: b.Reason, IdempotencyKey: r.header("Idempotency-Key")}
	var err error
	if request.DueOn, err = optionalDate("/due_on", b.DueOn); err != nil {
		return nil, err
	}
	service, err := s.erasures()
	if err != nil {
		return nil, err
	}
	made, err := service.Request(ctx, callOf(ctx).principal, request)
	if err != nil {
		return nil, err
	}
	status := http.StatusCreated
	if made.Replayed {
		status = http.StatusOK
	}
	a, err := reply(status, erasureAnswer(made))
	a.replayed = made.Replayed
	return a, err
}

// checkLegalEntities refuses an empty list, which could mean none or all. The service
// checks whether the caller may see the legal entities.
func checkLegalEntities(codes []string) error {
	if codes != nil && len(codes) == 0 {
		return fault.New(fault.Invalid, "request.member_empty", "name a legal entity, or leave the member out for all").WithField("/legal_entities")
	}
	return nil
}

func optionalDate(pointer, text string) (*event.Date, error) {
	if text == "" {
		return nil, nil
	}
	d, err := event.ParseDate(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "request.date_invalid", "this is an ISO date such as 2026-03-31; correct it").WithField(pointer)
	}
	return &d, nil
}

// findErasure finds a request that the caller may see.
func (s *Server) findErasure(ctx context.Context, idText string) (Erasures, erasure.Status, error) {
	id, err := parseID(idText, codeErasureNotFound)
	if err != nil {
		return nil, erasure.Status{}, err
	}
	service, err := s.erasures()
	if err != nil {
		return nil, erasure.Status{}, err
	}
	found, err := service.Get(ctx, callOf(ctx).principal, id)
	return service, found, err
}

// getErasureRequest answers GET /api/erasure-requests/{id}.
func (s *Server) getErasureRequest(ctx context.Context, r request) (response, error) {
	_, found, err := s.findErasure(ctx, r.path("id"))
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, erasureAnswer(found))
}

// listErasureRequests answers GET /api/erasure-requests.
func (s *Server) listErasureRequests(ctx context.Context, r request) (response, error) {
	var states []string
	if r.query("status") != "" {
		states = strings.Split(r.query("status"), ",")
	}
	if slices.ContainsFunc(states, func(text string) bool { return !shredding.ErasureState(text).Valid() }) {
		return nil, invalidParameter("status", "a list of states such as previewed,approved")
	}
	limit, err := parsePageLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	service, err := s.erasures()
	if err != nil {
		return nil, err
	}
	all, err := service.List(ctx, callOf(ctx).principal, states, limit)
	if err != nil {
		return nil, err
	}
	out := api.ErasureRequestList{ErasureRequests: make([]api.ErasureRequest, len(all))}
	for i := range all {
		out.ErasureRequests[i] = erasureAnswer(all[i])
	}
	return reply(http.StatusOK, out)
}

// approveErasureRequest answers POST /api/erasure-requests/{id}/approve.
func (s *Server) approveErasureRequest(ctx context.Context, r request, body *api.ApproveErasure) (response, error) {
	return s.decideErasure(ctx, r.path("id"), func(service Erasures, id event.ID) (erasure.Status, error) {
		return service.Approve(ctx, callOf(ctx).principal, id, body.Scope)
	})
}

// rejectErasureRequest answers POST /api/erasure-requests/{id}/reject.
func (s *Server) rejectErasureRequest(ctx context.Context, r request, body *api.RejectRequest) (response, error) {
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	return s.decideErasure(ctx, r.path("id"), func(service Erasures, id event.ID) (erasure.Status, error) {
		return service.Reject(ctx, callOf(ctx).principal, id, body.Reason)
	})
}

// decideErasure records the decision of the second person. The policy is asked again,
// because only now the requester is known.
func (s *Server) decideErasure(ctx context.Context, idText string, decision func(Erasures, event.ID) (erasure.Status, error)) (answer, error) {
	service, found, err := s.findErasure(ctx, idText)
	if err != nil {
		return answer{}, err
	}
	if err := s.config.Access.Authorize(ctx, callOf(ctx).principal, tenancy.Action{Name: actionApproveErase, Requester: found.RequestedBy}); err != nil {
		return answer{}, err
	}
	decided, err := decision(service, found.ID)
	if err != nil {
		return answer{}, err
	}
	return reply(http.StatusOK, erasureAnswer(decided))
}

// withdrawErasureRequest answers POST /api/erasure-requests/{id}/withdraw.
func (s *Server) withdrawErasureRequest(ctx context.Context, r request, body *api.RejectRequest) (response, error) {
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	service, found, err := s.findErasure(ctx, r.path("id"))
	if err != nil {
		return nil, err
	}
	withdrawn, err := service.Withdraw(ctx, callOf(ctx).principal, found.ID, body.Reason)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, erasureAnswer(withdrawn))
}

// getErasureCertificate answers GET /api/erasure-requests/{id}/certificate with the
// stored bytes, which its signature covers.
func (s *Server) getErasureCertificate(ctx context.Context, r request) (response, error) {
	service, found, err := s.findErasure(ctx, r.path("id"))
	if err != nil {
		return nil, err
	}
	if found.State != string(shredding.ErasureCompleted) {
		return nil, fault.New(fault.Conflict, "erasure.not_completed", "the request is %s, and its certificate is signed once it is completed; ask again then", found.State)
	}
	certificate, err := service.Certificate(ctx, callOf(ctx).principal, found.ID)
	if err != nil {
		return nil, err
	}
	return answer{status: http.StatusOK, body: certificate}, nil
}

func erasureAnswer(e erasure.Status) api.ErasureRequest {
	out := api.ErasureRequest{
		ID: e.ID.String(), Subject: e.Subject, LegalEntities: list(e.LegalEntities), Basis: e.Basis, Reason: e.Reason, Status: e.State,
		Preview: api.ErasurePreview{
			Events: e.Preview.Events, Intents: e.Preview.Intents, Types: make([]api.ErasureTypeCount, len(e.Preview.Types)),
			LegalEntities: list(e.Preview.LegalEntities), Projections: list(e.Preview.Projections), Holds: holdAnswers(e.Preview.Holds),
			Retained: make([]api.RetainedClass, len(e.Preview.Retained)), CountedAt: optionalTime(e.Preview.CountedAt), Scope: e.Scope,
		},
		RequestedBy: e.RequestedBy, RequestedAt: timeText(e.RequestedAt), DueOn: e.DueOn.String(), ApprovedBy: e.ApprovedBy,
		ApprovedAt: optionalTime(e.ApprovedAt), Classes: make([]api.ErasureClass, len(e.Classes)), Steps: make([]api.ErasureStep, len(e.Steps)),
		DestroyedAt: optionalTime(e.DestroyedAt), CompletedAt: optionalTime(e.CompletedAt), EndedBy: e.EndedBy, EndReason: e.EndReason,
	}
	for i, t := range e.Preview.Types {
		out.Preview.Types[i] = api.ErasureTypeCount{Type: t.Type, LegalEntity: t.LegalEntity, Intent: t.Intent, Events: t.Events, Fields: t.Fields}
	}
	for i, c := range e.Preview.Retained {
		out.Preview.Retained[i] = api.RetainedClass{Class: c.Class, Until: c.Until.String()}
	}
	for i, c := range e.Classes {
		out.Classes[i] = api.ErasureClass{Class: c.Class, Erased: c.Erased, Refused: c.Refused, Until: dateText(c.Until)}
	}
	for i, t := range e.Steps {
		out.Steps[i] = api.ErasureStep{Step: t.State, Done: t.Done, At: optionalTime(t.At), Attempts: t.Attempts, Error: t.LastError}
	}
	if !shredding.ErasureState(e.State).Final() {
		out.DaysLeft = &e.DaysLeft
	}
	return out
}

func dateText(d *event.Date) string {
	if d == nil {
		return ""
	}
	return d.String()
}
