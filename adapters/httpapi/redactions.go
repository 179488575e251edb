package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Redactions redacts values that were stored in clear: redaction.Service. It finds only requests
// that the principal may see.
type Redactions interface {
	Request(ctx context.Context, p ports.Principal, r redaction.NewRequest) (redaction.Status, error)
	Preview(ctx context.Context, p ports.Principal, id event.ID) (redaction.Status, error)
	// Approve takes the scope of the preview that the approver saw, and fails with
	// redaction.scope_changed if the scope has changed. "" approves the current scope.
	Approve(ctx context.Context, p ports.Principal, id event.ID, scope string) (redaction.Status, error)
	Reject(ctx context.Context, p ports.Principal, id event.ID, reason string) (redaction.Status, error)
	Withdraw(ctx context.Context, p ports.Principal, id event.ID, reason string) (redaction.Status, error)
	Get(ctx context.Context, p ports.Principal, id event.ID) (redaction.Status, error)
	List(ctx context.Context, p ports.Principal, states []string, limit int) ([]redaction.Status, error)
	Certificate(ctx context.Context, p ports.Principal, id event.ID) ([]byte, error)
}

var redactionHandlers = handlers{
	"requestRedaction":         withBody((*Server).requestRedaction),
	"listRedactionRequests":    (*Server).listRedactionRequests,
	"getRedactionRequest":      (*Server).getRedactionRequest,
	"previewRedactionRequest":  (*Server).previewRedactionRequest,
	"approveRedactionRequest":  withBody((*Server).approveRedactionRequest),
	"rejectRedactionRequest":   withBody((*Server).rejectRedactionRequest),
	"withdrawRedactionRequest": withBody((*Server).withdrawRedactionRequest),
	"getRedactionCertificate":  (*Server).getRedactionCertificate,
}

const (
	codeRedactionNotFound = "redaction.not_found"
	actionApproveRedact   = "redaction.approve"
)

// requestRedaction answers POST /api/redaction-requests.
func (s *Server) requestRedaction(ctx context.Context, r *request, body *api.NewRedactionRequest) (any, error) {
	switch {
	case body.LegalEntity == "":
		return nil, missingMember("/legal_entity")
	case body.EventID == "":
		return nil, missingMember("/event_id")
	case len(body.Pointers) == 0:
		return nil, missingMember("/pointers")
	case body.Reason == "":
		return nil, missingMember("/reason")
	}
	id, err := event.ParseID(body.EventID)
	if err != nil {
		return nil, fault.New(fault.Invalid, "redaction.event_invalid", "this is not the id of an event; send its 26 characters").WithField("/event_id")
	}
	made, err := s.config.Redactions.Request(ctx, callOf(ctx).principal, redaction.NewRequest{
		LegalEntity: body.LegalEntity, EventID: id, Pointers: body.Pointers, Reason: body.Reason, IdempotencyKey: r.idempotencyKey(),
	})
	if err != nil {
		return nil, err
	}
	return replyReplayed(createdStatus(!made.Replayed), redactionAnswer(made), made.Replayed)
}

// findRedaction finds the request in the path, if the caller may see it.
func (s *Server) findRedaction(ctx context.Context, r *request) (redaction.Status, error) {
	id, err := parseID(r.path("id"), codeRedactionNotFound)
	if err != nil {
		return redaction.Status{}, err
	}
	return s.config.Redactions.Get(ctx, callOf(ctx).principal, id)
}

// getRedactionRequest answers GET /api/redaction-requests/{id}.
func (s *Server) getRedactionRequest(ctx context.Context, r *request) (any, error) {
	found, err := s.findRedaction(ctx, r)
	return redactionAnswer(found), err
}

// listRedactionRequests answers GET /api/redaction-requests.
func (s *Server) listRedactionRequests(ctx context.Context, r *request) (any, error) {
	states := r.list("status")
	if slices.ContainsFunc(states, func(text string) bool { return !shredding.RedactionState(text).Valid() }) {
		return nil, invalidParameter("status", "a list of states such as previewed,approved")
	}
	limit := r.pageLimit("limit")
	if r.err != nil {
		return nil, r.err
	}
	all, err := s.config.Redactions.List(ctx, callOf(ctx).principal, states, limit)
	return api.RedactionRequestList{RedactionRequests: convert(all, redactionAnswer)}, err
}

// previewRedactionRequest answers POST /api/redaction-requests/{id}/preview.
func (s *Server) previewRedactionRequest(ctx context.Context, r *request) (any, error) {
	id, err := parseID(r.path("id"), codeRedactionNotFound)
	if err != nil {
		return nil, err
	}
	previewed, err := s.config.Redactions.Preview(ctx, callOf(ctx).principal, id)
	return redactionAnswer(previewed), err
}

// approveRedactionRequest answers POST /api/redaction-requests/{id}/approve.
func (s *Server) approveRedactionRequest(ctx context.Context, r *request, body *api.ApproveErasure) (any, error) {
	return s.decideRedaction(ctx, r, body.Scope, s.config.Redactions.Approve)
}

// rejectRedactionRequest answers POST /api/redaction-requests/{id}/reject.
func (s *Server) rejectRedactionRequest(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	return s.decideRedaction(ctx, r, body.Reason, s.config.Redactions.Reject)
}

// decideRedaction records the decision of the second person, with its scope or reason. It asks
// the access policy again, because only now the requester is known.
func (s *Server) decideRedaction(
	ctx context.Context, r *request, argument string,
	decision func(ctx context.Context, p ports.Principal, id event.ID, argument string) (redaction.Status, error),
) (any, error) {
	found, err := s.findRedaction(ctx, r)
	if err != nil {
		return nil, err
	}
	p := callOf(ctx).principal
	if err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: actionApproveRedact, Requester: found.RequestedBy}); err != nil {
		return nil, err
	}
	decided, err := decision(ctx, p, found.ID, argument)
	return redactionAnswer(decided), err
}

// withdrawRedactionRequest answers POST /api/redaction-requests/{id}/withdraw.
func (s *Server) withdrawRedactionRequest(ctx context.Context, r *request, body *api.RejectRequest) (any, error) {
	if body.Reason == "" {
		return nil, missingMember("/reason")
	}
	id, err := parseID(r.path("id"), codeRedactionNotFound)
	if err != nil {
		return nil, err
	}
	withdrawn, err := s.config.Redactions.Withdraw(ctx, callOf(ctx).principal, id, body.Reason)
	return redactionAnswer(withdrawn), err
}

// getRedactionCertificate answers GET /api/redaction-requests/{id}/certificate with the stored
// bytes, which its signature covers.
func (s *Server) getRedactionCertificate(ctx context.Context, r *request) (any, error) {
	id, err := parseID(r.path("id"), codeRedactionNotFound)
	if err != nil {
		return nil, err
	}
	certificate, err := s.config.Redactions.Certificate(ctx, callOf(ctx).principal, id)
	return answer{status: http.StatusOK, body: certificate}, err
}

func redactionAnswer(x redaction.Status) api.RedactionRequest {
	return api.RedactionRequest{
		ID: x.ID.String(), LegalEntity: x.LegalEntity, EventID: x.EventID.String(), Sequence: strconv.FormatUint(uint64(x.Sequence), 10),
		Pointers: nonNil(x.Pointers), Reason: x.Reason, Status: x.State,
		Preview: api.RedactionPreview{
			EventType: x.Preview.EventType, SchemaVersion: int64(x.Preview.SchemaVersion), Stream: x.Preview.Stream, EffectiveDate: x.Preview.EffectiveDate,
			CheckedAt: optionalTime(x.Preview.CheckedAt), Scope: x.Scope,
		},
		RequestedBy: x.RequestedBy, RequestedAt: timeText(x.RequestedAt), ApprovedBy: x.ApprovedBy, ApprovedAt: optionalTime(x.ApprovedAt),
		Attempts: x.Attempts, Error: x.LastError, CompletedAt: optionalTime(x.CompletedAt), EndedBy: x.EndedBy, EndReason: x.EndReason,
	}
}
