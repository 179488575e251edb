package httpapi

import (
	"context"
	"net/http"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/webhook"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Webhooks looks after the endpoints of subscriptions: webhook.Service.
type Webhooks interface {
	Endpoint(ctx context.Context, p ports.Principal, id string) (webhook.Endpoint, error)
	Set(ctx context.Context, p ports.Principal, id, url string) (e webhook.Endpoint, created bool, err error)
	Rotate(ctx context.Context, p ports.Principal, id string) (webhook.Endpoint, error)
	Test(ctx context.Context, p ports.Principal, id string) (webhook.Tested, error)
}

func (s *Server) webhooks() (Webhooks, error) {
	if s.config.Webhooks == nil {
		return nil, fault.New(fault.FailedPrecondition, "webhook.not_served", "this server sends nothing to webhooks; ask another one")
	}
	return s.config.Webhooks, nil
}

// endpointAnswer shows an endpoint; its secret only if it is new.
func endpointAnswer(status int, e webhook.Endpoint) (answer, error) {
	out := api.WebhookEndpoint{
		URL: e.URL, Secret: e.Secret, SecretNumber: e.SecretNumber, DisabledCode: e.DisabledCode,
		CreatedAt: optionalTime(e.CreatedAt), UpdatedAt: optionalTime(e.UpdatedAt), PreviousSecretUntil: optionalTime(e.PreviousUntil), DisabledAt: optionalTime(e.DisabledAt),
	}
	return reply(status, out)
}

// GetWebhookEndpoint answers GET /api/subscriptions/{id}/endpoint.
func (s *Server) GetWebhookEndpoint(ctx context.Context, r api.GetWebhookEndpointRequestObject) (api.GetWebhookEndpointResponseObject, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	e, err := service.Endpoint(ctx, callOf(ctx).principal, r.ID)
	if err != nil {
		return nil, err
	}
	return endpointAnswer(http.StatusOK, e)
}

// SetWebhookEndpoint answers PUT /api/subscriptions/{id}/endpoint.
func (s *Server) SetWebhookEndpoint(ctx context.Context, r api.SetWebhookEndpointRequestObject) (api.SetWebhookEndpointResponseObject, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	e, created, err := service.Set(ctx, callOf(ctx).principal, r.ID, r.Body.URL)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return endpointAnswer(status, e)
}

// RotateWebhookSecret answers POST /api/subscriptions/{id}/rotate-secret.
func (s *Server) RotateWebhookSecret(ctx context.Context, r api.RotateWebhookSecretRequestObject) (api.RotateWebhookSecretResponseObject, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	e, err := service.Rotate(ctx, callOf(ctx).principal, r.ID)
	if err != nil {
		return nil, err
	}
	return endpointAnswer(http.StatusOK, e)
}

// TestWebhook answers POST /api/subscriptions/{id}/test.
func (s *Server) TestWebhook(ctx context.Context, r api.TestWebhookRequestObject) (api.TestWebhookResponseObject, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	t, err := service.Test(ctx, callOf(ctx).principal, r.ID)
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.WebhookTest{Delivered: t.Code == "", Status: t.Status, Code: t.Code, DurationMs: t.Duration.Milliseconds()})
}

func (a answer) VisitGetWebhookEndpointResponse(w http.ResponseWriter) error  { return a.write(w) }
func (a answer) VisitSetWebhookEndpointResponse(w http.ResponseWriter) error  { return a.write(w) }
func (a answer) VisitRotateWebhookSecretResponse(w http.ResponseWriter) error { return a.write(w) }
func (a answer) VisitTestWebhookResponse(w http.ResponseWriter) error         { return a.write(w) }
