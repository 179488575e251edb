package httpapi

import (
	"context"
	"net/http"
	"slices"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Erasures erases personal data and keeps legal holds: erasure.Service. It finds only requests
// and holds that the principal may see.
type Erasures interface {
	Request(ctx context.Context, p ports.Principal, r erasure.NewRequest) (erasure.Status, error)
	// Approve takes the scope of the preview that the approver saw, and fails with
	// erasure.scope_changed if the scope has changed. "" approves the current scope.
	Approve(ctx context.Context, p ports.Principal, id event.ID, scope string) (erasure.Status, error)
	Reject(ctx context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error)
	Withdraw(ctx context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error)
	Get(ctx context.Context, p ports.Principal, id event.ID) (erasure.Status, error)
	List(ctx context.Context, p ports.Principal, states []string, limit int) ([]erasure.Status, error)
	// Certificate returns the stored bytes of the certificate; erasure.not_completed before the
	// erasure is complete.
	Certificate(ctx context.Context, p ports.Principal, id event.ID) ([]byte, error)
	PlaceHold(ctx context.Context, p ports.Principal, h erasure.NewHold) (placed []erasure.Hold, replayed bool, err error)
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

// requestErasure answers POST /api/erasure-requests.
func (s *Server) requestErasure(ctx context.Context, r *request, body *api.NewErasureRequest) (any, error) {
	switch {
	case body.Subject == "":
		return nil, missingMember("/subject")
	case body.Basis == "":
		return nil, missingMember("/basis")
	case body.Reason == "":
		return nil, missingMember("/reason")
	}
	if err := checkLegalEntities(body.LegalEntities); err != nil {
		return nil, err
	}
	due, err := parseOptionalDate("/due_on", body.DueOn)
	if err != nil {
		return nil, err
	}
	made, err := s.config.Erasures.Request(ctx, callOf(ctx).principal, erasure.NewRequest{
		Subject: body.Subject, LegalEntities: body.LegalEntities, Basis: body.Basis, Reason: body.Reason, DueOn: due, IdempotencyKey: r.idempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return replyReplayed(createdStatus(!made.Replayed), erasureAnswer(made), made.Replayed)
}

// checkLegalEntities refuses an empty list, which could mean none or all. The service
// checks whether the caller may see the legal entities.
func checkLegalEntities(codes []string) error {
	if codes != nil && len(codes) == 0 {
		return fault.New(fault.Invalid, "request.member_empty", "name a legal entity, or leave the member out for all").WithField("/legal_entities")
	}
	return nil
}

func parseOptionalDate(pointer, text string) (*event.Date, error) {
	if text == "" {
		return nil, nil
	}
	d, err := event.ParseDate(text)
	if err != nil {
		return nil, fault.New(fault.Invalid, "request.date_invalid", "this is an ISO date such as 2026-03-31; correct it").WithField(pointer)
	}
	return &d, nil
}

// findErasure finds the request in the path, if the caller may see it.
func (s *Server) findErasure(ctx context.Context, r *request) (erasure.Status, error) {
	id, err := parseID(r.path("id"), codeErasureNotFound)
	if err != nil {
		return erasure.Status{}, err
	}
	return s.config.Erasures.Get(ctx, callOf(ctx).principal, id)
}

// getErasureRequest answers GET /api/erasure-requests/{id}.
func (s *Server) getErasureRequest(ctx context.Context, r *request) (any, error) {
	found, err := s.findErasure(ctx, r)
	return erasureAnswer(found), err
}

// listErasureRequests answers GET /api/erasure-requests.
func (s *Server) listErasureRequests(ctx context.Context, r *request) (any, error) {
	states := r.list("status")
	if slices.ContainsFunc(states, func(text string) bool { return !shredding.ErasureState(text).Valid() }) {
		return nil, invalidParameter("status", "a list of states such as previewed,approved")
	}
	limit := r.pageLimit("limit")
	if r.err != nil {
		return nil, r.err
	}
	all, err := s.config.Erasures.List(ctx, callOf(ctx).principal, states, limit)
	return api.ErasureRequestList{ErasureRequests: convert(all, erasureAnswer)}, err
}

// approveErasureRequest answers POST /api/erasure-requests/{id}/approve.
func (s *Server) approveErasureRequest(ctx context.Context, r *request, body *api.ApproveErasure) (any, error) {
	return s.decideErasure(ctx, r, body.Scope, s.config.Erasures.Approve)
}

// rejectErasureRequest answers POST /api/erasure-requests/{id}/reject.
func (s *Server) rejectErasureRequest(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	return s.decideErasure(ctx, r, body.Reason, s.config.Erasures.Reject)
}

// decideErasure records the decision of the second person, with its scope or reason. It asks
// the access policy again, because only now the requester is known.
func (s *Server) decideErasure(
	ctx context.Context, r *request, argument string,
	decision func(ctx context.Context, p ports.Principal, id event.ID, argument string) (erasure.Status, error),
) (any, error) {
	found, err := s.findErasure(ctx, r)
	if err != nil {
		return nil, err
	}
	p := callOf(ctx).principal
	if err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: actionApproveErase, Requester: found.RequestedBy}); err != nil {
		return nil, err
	}
	decided, err := decision(ctx, p, found.ID, argument)
	return erasureAnswer(decided), err
}

// withdrawErasureRequest answers POST /api/erasure-requests/{id}/withdraw.
func (s *Server) withdrawErasureRequest(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	id, err := parseID(r.path("id"), codeErasureNotFound)
	if err != nil {
		return nil, err
	}
	withdrawn, err := s.config.Erasures.Withdraw(ctx, callOf(ctx).principal, id, body.Reason)
	return erasureAnswer(withdrawn), err
}

// getErasureCertificate answers GET /api/erasure-requests/{id}/certificate with the
// stored bytes, which its signature covers.
func (s *Server) getErasureCertificate(ctx context.Context, r *request) (any, error) {
	id, err := parseID(r.path("id"), codeErasureNotFound)
	if err != nil {
		return nil, err
	}
	certificate, err := s.config.Erasures.Certificate(ctx, callOf(ctx).principal, id)
	return answer{status: http.StatusOK, body: certificate}, err
}

func erasureAnswer(e erasure.Status) api.ErasureRequest {
	out := api.ErasureRequest{
		ID: e.ID.String(), Subject: e.Subject, LegalEntities: nonNil(e.LegalEntities), Basis: e.Basis, Reason: e.Reason, Status: e.State,
		Preview: api.ErasurePreview{
			Events: e.Preview.Events, Intents: e.Preview.Intents,
			Types: convert(e.Preview.Types, func(t erasure.TypeCount) api.ErasureTypeCount {
				return api.ErasureTypeCount{Type: t.Type, LegalEntity: t.LegalEntity, Intent: t.Intent, Events: t.Events, Fields: t.Fields}
			}),
			LegalEntities: nonNil(e.Preview.LegalEntities), Projections: nonNil(e.Preview.Projections), Holds: convert(e.Preview.Holds, holdAnswer),
			Retained: convert(e.Preview.Retained, func(c erasure.Retained) api.RetainedClass {
				return api.RetainedClass{Class: c.Class, Until: c.Until.String()}
			}),
			CountedAt: optionalTime(e.Preview.CountedAt), Scope: e.Scope,
		},
		RequestedBy: e.RequestedBy, RequestedAt: timeText(e.RequestedAt), DueOn: e.DueOn.String(), ApprovedBy: e.ApprovedBy, ApprovedAt: optionalTime(e.ApprovedAt),
		Classes: convert(e.Classes, func(c erasure.Class) api.ErasureClass {
			return api.ErasureClass{Class: c.Class, Erased: c.Erased, Refused: c.Refused, Until: dateText(c.Until)}
		}),
		Steps: convert(e.Steps, func(t erasure.Step) api.ErasureStep {
			return api.ErasureStep{Step: t.State, Done: t.Done, At: optionalTime(t.At), Attempts: t.Attempts, Error: t.LastError}
		}),
		DestroyedAt: optionalTime(e.DestroyedAt), CompletedAt: optionalTime(e.CompletedAt), EndedBy: e.EndedBy, EndReason: e.EndReason,
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
