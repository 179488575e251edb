package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/fault"
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
}

// Webhooks manages the endpoints of subscriptions: webhooks.Service.
type Webhooks interface {
	List(ctx context.Context, c webhooks.Caller) ([]webhooks.Listed, error)
	Endpoint(ctx context.Context, c webhooks.Caller, id string) (webhooks.Endpoint, error)
	Attempts(ctx context.Context, c webhooks.Caller, id string, limit int) ([]webhooks.Attempt, error)
	Set(ctx context.Context, p ports.Principal, id string, to webhooks.Setting) (e webhooks.Endpoint, created bool, err error)
	Delete(ctx context.Context, p ports.Principal, id string) error
	Rotate(ctx context.Context, p ports.Principal, id string) (webhooks.Endpoint, error)
	Test(ctx context.Context, p ports.Principal, id string) (webhooks.Tested, error)
}

func (s *Server) webhooks() (Webhooks, error) {
	if s.config.Webhooks == nil {
		return nil, fault.New(fault.FailedPrecondition, "webhook.not_served", "this server sends nothing to webhooks; ask another one")
	}
	return s.config.Webhooks, nil
}

// webhookCaller returns the service and the caller with its rights on endpoints.
func (s *Server) webhookCaller(ctx context.Context) (Webhooks, webhooks.Caller, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, webhooks.Caller{}, err
	}
	p := callOf(ctx).principal
	err = s.config.Access.Authorize(ctx, p, tenancy.Action{Name: actionSubscriptionOperate})
	if err != nil && fault.KindOf(err) != fault.Forbidden {
		return nil, webhooks.Caller{}, err
	}
	return service, webhooks.Caller{Principal: p, Operator: err == nil}, nil
}

// headerNames is never nil.
func headerNames(e *ports.WebhookEndpoint) []string { return append([]string{}, e.HeaderNames...) }

func attemptAnswer(a *ports.WebhookAttempt, legalEntity string) api.WebhookAttempt {
	return api.WebhookAttempt{
		EventID: a.EventID.String(), LegalEntity: legalEntity, Sequence: numberText(a.Sequence), Attempt: a.Attempt, AttemptedAt: timeText(a.At),
		Delivered: a.Code == "", Status: a.Status, Code: a.Code, DurationMs: a.Duration.Milliseconds(), NextAttemptAt: optionalTime(a.Next),
	}
}

// listWebhooks answers GET /api/webhooks.
func (s *Server) listWebhooks(ctx context.Context, _ request) (response, error) {
	service, caller, err := s.webhookCaller(ctx)
	if err != nil {
		return nil, err
	}
	all, err := service.List(ctx, caller)
	if err != nil {
		return nil, err
	}
	out := api.WebhookList{Webhooks: make([]api.Webhook, len(all))}
	for i := range all {
		e := &all[i]
		w := api.Webhook{
			Subscription: e.Subscription.ID, SubscriberID: e.Subscription.SubscriberID, Status: string(e.Subscription.Status), Owner: e.Subscription.Owner,
			URL: e.URL, HeaderNames: headerNames(&e.WebhookEndpoint), SecretNumber: e.SecretNumber, DisabledAt: optionalTime(e.DisabledAt), DisabledCode: e.DisabledCode,
		}
		if e.Last != nil {
			w.LastAttempt = attemptAnswer(&e.Last.WebhookAttempt, e.Last.LegalEntity)
		}
		out.Webhooks[i] = w
	}
	return reply(http.StatusOK, out)
}

// listWebhookAttempts answers GET /api/subscriptions/{id}/attempts.
func (s *Server) listWebhookAttempts(ctx context.Context, r request) (response, error) {
	limit, err := parsePageLimit(r.query("limit"))
	if err != nil {
		return nil, err
	}
	service, caller, err := s.webhookCaller(ctx)
	if err != nil {
		return nil, err
	}
	list, err := service.Attempts(ctx, caller, r.path("id"), limit)
	if err != nil {
		return nil, err
	}
	out := api.WebhookAttemptList{Attempts: make([]api.WebhookAttempt, len(list))}
	for i := range list {
		out.Attempts[i] = attemptAnswer(&list[i].WebhookAttempt, list[i].LegalEntity)
	}
	return reply(http.StatusOK, out)
}

// deleteWebhookEndpoint answers DELETE /api/subscriptions/{id}/endpoint.
func (s *Server) deleteWebhookEndpoint(ctx context.Context, r request) (response, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	if err := service.Delete(ctx, callOf(ctx).principal, r.path("id")); err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.SubscriptionDeleted{ID: r.path("id"), Deleted: true})
}

// endpointAnswer shows an endpoint; its secret only if it is new.
func endpointAnswer(status int, e webhooks.Endpoint) (answer, error) {
	schedule := make([]int64, len(e.Schedule))
	for i, pause := range e.Schedule {
		schedule[i] = int64(pause / time.Second)
	}
	out := api.WebhookEndpoint{
		HeaderNames: headerNames(&e.WebhookEndpoint), RetryScheduleSeconds: schedule,
		URL: e.URL, Secret: e.Secret, SecretNumber: e.SecretNumber, DisabledCode: e.DisabledCode,
		CreatedAt: optionalTime(e.CreatedAt), UpdatedAt: optionalTime(e.UpdatedAt), PreviousSecretUntil: optionalTime(e.PreviousUntil), DisabledAt: optionalTime(e.DisabledAt),
	}
	return reply(status, out)
}

// getWebhookEndpoint answers GET /api/subscriptions/{id}/endpoint.
func (s *Server) getWebhookEndpoint(ctx context.Context, r request) (response, error) {
	service, caller, err := s.webhookCaller(ctx)
	if err != nil {
		return nil, err
	}
	e, err := service.Endpoint(ctx, caller, r.path("id"))
	if err != nil {
		return nil, err
	}
	return endpointAnswer(http.StatusOK, e)
}

// setWebhookEndpoint answers PUT /api/subscriptions/{id}/endpoint.
func (s *Server) setWebhookEndpoint(ctx context.Context, r request, body *api.NewWebhookEndpoint) (response, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	to := webhooks.Setting{URL: body.URL}
	if body.Headers != nil {
		to.Headers = make([]ports.Header, 0, len(body.Headers))
		for name, value := range body.Headers {
			to.Headers = append(to.Headers, ports.Header{Name: name, Value: value})
		}
	}
	e, created, err := service.Set(ctx, callOf(ctx).principal, r.path("id"), to)
	if err != nil {
		return nil, err
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return endpointAnswer(status, e)
}

// rotateWebhookSecret answers POST /api/subscriptions/{id}/rotate-secret.
func (s *Server) rotateWebhookSecret(ctx context.Context, r request) (response, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	e, err := service.Rotate(ctx, callOf(ctx).principal, r.path("id"))
	if err != nil {
		return nil, err
	}
	return endpointAnswer(http.StatusOK, e)
}

// testWebhook answers POST /api/subscriptions/{id}/test.
func (s *Server) testWebhook(ctx context.Context, r request) (response, error) {
	service, err := s.webhooks()
	if err != nil {
		return nil, err
	}
	t, err := service.Test(ctx, callOf(ctx).principal, r.path("id"))
	if err != nil {
		return nil, err
	}
	return reply(http.StatusOK, api.WebhookTest{Delivered: t.Code == "", Status: t.Status, Code: t.Code, DurationMs: t.Duration.Milliseconds()})
}
