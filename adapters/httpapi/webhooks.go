package httpapi

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/ports"
)

var webhookHandlers = handlers{
	"listWebhooks":          (*Server).listWebhooks,
	"listWebhookAttempts":   (*Server).listWebhookAttempts,
	"deleteWebhookEndpoint": (*Server).deleteWebhookEndpoint,
	"getWebhookEndpoint":    (*Server).getWebhookEndpoint,
	"setWebhookEndpoint":    withBody((*Server).setWebhookEndpoint),
	"rotateWebhookSecret":   (*Server).rotateWebhookSecret,
	"testWebhook":           (*Server).testWebhook,
	"listWebhookHosts":      (*Server).listWebhookHosts,
	"allowWebhookHost":      (*Server).allowWebhookHost,
	"removeWebhookHost":     (*Server).removeWebhookHost,
}

// Webhooks manages the endpoints of subscriptions: webhooks.Service.
type Webhooks interface {
	List(ctx context.Context, c webhooks.Caller) ([]webhooks.ListedEndpoint, error)
	Endpoint(ctx context.Context, c webhooks.Caller, id string) (webhooks.Endpoint, error)
	Attempts(ctx context.Context, c webhooks.Caller, id string, limit int) ([]webhooks.Attempt, error)
	Set(ctx context.Context, p ports.Principal, id string, to webhooks.EndpointSettings) (e webhooks.Endpoint, created bool, err error)
	Delete(ctx context.Context, p ports.Principal, id string) error
	Rotate(ctx context.Context, p ports.Principal, id string) (webhooks.Endpoint, error)
	Test(ctx context.Context, p ports.Principal, id string) (webhooks.TestResult, error)
	Hosts(ctx context.Context, p ports.Principal) ([]ports.WebhookHost, error)
	AllowHost(ctx context.Context, p ports.Principal, host, reason string) error
	RemoveHost(ctx context.Context, p ports.Principal, host, reason string) error
}

// listWebhookHosts answers GET /api/admin/webhook-hosts.
func (s *Server) listWebhookHosts(ctx context.Context, _ *request) (any, error) {
	all, err := s.config.Webhooks.Hosts(ctx, callOf(ctx).principal)
	return api.WebhookHostList{Hosts: convert(all, func(h ports.WebhookHost) api.WebhookHost {
		return api.WebhookHost{Host: h.Host, Reason: h.Reason, AddedBy: h.AddedBy, AddedAt: timeText(h.AddedAt)}
	})}, err
}

// allowWebhookHost answers PUT /api/admin/webhook-hosts/{host}.
func (s *Server) allowWebhookHost(ctx context.Context, r *request) (any, error) {
	return s.changeWebhookHosts(ctx, r, "allowed", s.config.Webhooks.AllowHost)
}

// removeWebhookHost answers DELETE /api/admin/webhook-hosts/{host}.
func (s *Server) removeWebhookHost(ctx context.Context, r *request) (any, error) {
	return s.changeWebhookHosts(ctx, r, "removed", s.config.Webhooks.RemoveHost)
}

func (s *Server) changeWebhookHosts(ctx context.Context, r *request, done string, change func(ctx context.Context, p ports.Principal, host, reason string) error) (any, error) {
	p := callOf(ctx).principal
	if err := change(ctx, p, r.path("host"), r.query("reason")); err != nil {
		return nil, err
	}
	s.log.InfoContext(ctx, "the hosts that webhooks may send to were changed", "tenant", p.TenantID, "host", r.path("host"), "change", done, "by", p.PersonID)
	return s.listWebhookHosts(ctx, r)
}

// webhookCaller returns the caller with its rights on endpoints.
func (s *Server) webhookCaller(ctx context.Context) (webhooks.Caller, error) {
	isOperator, err := s.operatesSubscriptions(ctx)
	return webhooks.Caller{Principal: callOf(ctx).principal, Operator: isOperator}, err
}

// headerNames is never nil.
func headerNames(e *ports.WebhookEndpoint) []string { return append([]string{}, e.HeaderNames...) }

func attemptAnswer(a webhooks.Attempt) api.WebhookAttempt {
	return api.WebhookAttempt{
		EventID: a.EventID.String(), LegalEntity: a.LegalEntity, Sequence: numberText(a.Sequence), Attempt: a.Attempt, AttemptedAt: timeText(a.At),
		Delivered: a.Code == "", Status: a.Status, Code: a.Code, DurationMs: a.Duration.Milliseconds(), NextAttemptAt: optionalTime(a.Next),
	}
}

// listWebhooks answers GET /api/webhooks.
func (s *Server) listWebhooks(ctx context.Context, _ *request) (any, error) {
	caller, err := s.webhookCaller(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.config.Webhooks.List(ctx, caller)
	return api.WebhookList{Webhooks: convert(all, func(e webhooks.ListedEndpoint) api.Webhook {
		w := api.Webhook{
			Subscription: e.Subscription.ID, SubscriberID: e.Subscription.SubscriberID, Status: string(e.Subscription.Status), Owner: e.Subscription.Owner,
			URL: e.URL, HeaderNames: headerNames(&e.WebhookEndpoint), SecretNumber: e.SecretNumber, DisabledAt: optionalTime(e.DisabledAt), DisabledCode: e.DisabledCode,
		}
		if e.Last != nil {
			w.LastAttempt = attemptAnswer(*e.Last)
		}
		return w
	})}, err
}

// listWebhookAttempts answers GET /api/subscriptions/{id}/attempts.
func (s *Server) listWebhookAttempts(ctx context.Context, r *request) (any, error) {
	limit := r.pageLimit("limit")
	if r.err != nil {
		return nil, r.err
	}
	caller, err := s.webhookCaller(ctx)
	if err != nil {
		return nil, err
	}
	all, err := s.config.Webhooks.Attempts(ctx, caller, r.path("id"), limit)
	return api.WebhookAttemptList{Attempts: convert(all, attemptAnswer)}, err
}

// deleteWebhookEndpoint answers DELETE /api/subscriptions/{id}/endpoint.
func (s *Server) deleteWebhookEndpoint(ctx context.Context, r *request) (any, error) {
	err := s.config.Webhooks.Delete(ctx, callOf(ctx).principal, r.path("id"))
	return api.SubscriptionDeleted{ID: r.path("id"), Deleted: true}, err
}

// endpointAnswer shows an endpoint; its secret only if it is new.
func endpointAnswer(e webhooks.Endpoint) api.WebhookEndpoint {
	schedule := make([]int64, len(e.Schedule))
	for i, pause := range e.Schedule {
		schedule[i] = int64(pause / time.Second)
	}
	return api.WebhookEndpoint{
		HeaderNames: headerNames(&e.WebhookEndpoint), RetryScheduleSeconds: schedule,
		URL: e.URL, PersonalReason: e.PersonalReason, Secret: e.Secret, SecretNumber: e.SecretNumber, DisabledCode: e.DisabledCode,
		CreatedAt: optionalTime(e.CreatedAt), UpdatedAt: optionalTime(e.UpdatedAt), PreviousSecretUntil: optionalTime(e.PreviousUntil), DisabledAt: optionalTime(e.DisabledAt),
	}
}

// getWebhookEndpoint answers GET /api/subscriptions/{id}/endpoint.
func (s *Server) getWebhookEndpoint(ctx context.Context, r *request) (any, error) {
	caller, err := s.webhookCaller(ctx)
	if err != nil {
		return nil, err
	}
	e, err := s.config.Webhooks.Endpoint(ctx, caller, r.path("id"))
	return endpointAnswer(e), err
}

// setWebhookEndpoint answers PUT /api/subscriptions/{id}/endpoint.
func (s *Server) setWebhookEndpoint(ctx context.Context, r *request, body *api.NewWebhookEndpoint) (any, error) {
	to := webhooks.EndpointSettings{URL: body.URL, PersonalReason: body.PersonalData.Reason}
	if body.Headers != nil {
		to.Headers = make([]ports.Header, 0, len(body.Headers))
		for name, value := range body.Headers {
			to.Headers = append(to.Headers, ports.Header{Name: name, Value: value})
		}
	}
	e, created, err := s.config.Webhooks.Set(ctx, callOf(ctx).principal, r.path("id"), to)
	if err != nil {
		return nil, err
	}
	return reply(createdStatus(created), endpointAnswer(e))
}

// rotateWebhookSecret answers POST /api/subscriptions/{id}/rotate-secret.
func (s *Server) rotateWebhookSecret(ctx context.Context, r *request) (any, error) {
	e, err := s.config.Webhooks.Rotate(ctx, callOf(ctx).principal, r.path("id"))
	return endpointAnswer(e), err
}

// testWebhook answers POST /api/subscriptions/{id}/test.
func (s *Server) testWebhook(ctx context.Context, r *request) (any, error) {
	t, err := s.config.Webhooks.Test(ctx, callOf(ctx).principal, r.path("id"))
	return api.WebhookTest{Delivered: t.Code == "", Status: t.Status, Code: t.Code, DurationMs: t.Duration.Milliseconds()}, err
}
