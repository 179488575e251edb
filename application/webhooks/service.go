package webhooks

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Secrets derives keys from a secret of the tenant that the key store keeps.
type Secrets interface {
	// Derive always returns the same 32 bytes for a tenant, purpose and label.
	Derive(ctx context.Context, tenantID, purpose, label string) (shredding.Secret, error)
}

// Subscriptions finds subscriptions.
type Subscriptions interface {
	// Subscription returns fault subscription.not_found if there is none.
	Subscription(ctx context.Context, tenantID, id string) (subscription.Subscription, error)
	// Subscriptions lists those of a tenant; tenant "" lists all.
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
}

// Entities lists the legal entities of a tenant.
type Entities interface {
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// ServiceConfig is what a Service needs.
type ServiceConfig struct {
	Endpoints     ports.WebhookEndpoints
	Attempts      ports.WebhookAttempts
	Decisions     ports.WebhookDecisions
	Entities      Entities
	Subscriptions Subscriptions
	Principals    ports.Principals // finds the owners of subscriptions
	Secrets       Secrets
	Sender        ports.WebhookSender
	Clock         ports.Clock
	IDs           ports.IDSource
	// Resume resumes a subscription that was paused because its endpoint answered 410; nil: the
	// owner resumes it.
	Resume func(ctx context.Context, owner ports.Principal, id string) error
	// MayDisclose refuses a person who may not have personal values sent in clear; fault
	// auth.forbidden.
	MayDisclose func(ctx context.Context, owner ports.Principal) error
	Timeout     time.Duration // of one attempt; positive
	Overlap     time.Duration // how long the previous secret signs too; 0: not at all
}

// Service manages endpoints.
type Service struct{ config ServiceConfig }

// NewService makes a Service. It refuses a Timeout that is not positive.
func NewService(c ServiceConfig) (*Service, error) {
	return &Service{c}, fault.RequirePositive("webhooks.ServiceConfig", struct{ Timeout time.Duration }{c.Timeout})
}

// Endpoint is an endpoint with its secret, which only the call that makes the secret returns.
type Endpoint struct {
	ports.WebhookEndpoint
	Secret   string          // "": not returned
	Schedule []time.Duration // the pauses after failed attempts of a message
}

// findOwned finds a webhook's subscription of the caller. Other callers do not learn whether it
// exists.
func (s *Service) findOwned(ctx context.Context, p ports.Principal, id string) (subscription.Subscription, error) {
	return s.findVisible(ctx, Caller{Principal: p}, id)
}

// codeDeleted marks a deleted endpoint. Its row stays as long as its subscription, so that
// an endpoint that is created again gets another secret.
const codeDeleted = "webhook.endpoint_deleted"

// IsDeleted reports whether a row is that of a deleted endpoint.
func IsDeleted(e *ports.WebhookEndpoint) bool { return e.DisabledCode == codeDeleted }

// deletedURL is the address of a deleted endpoint.
const deletedURL = "https://deleted.invalid/"

// find reads the endpoint of a subscription. Fault webhook.endpoint_not_found.
func (s *Service) find(ctx context.Context, sub *subscription.Subscription) (Endpoint, error) {
	e, err := s.config.Endpoints.WebhookEndpoint(ctx, sub.UID)
	if err == nil && e.DisabledCode == codeDeleted {
		err = fault.New(fault.NotFound, "webhook.endpoint_not_found", "this subscription has no endpoint; give it one")
	}
	return Endpoint{WebhookEndpoint: e, Schedule: Schedule(&sub.Settings)}, err
}

// Endpoint returns the endpoint of a subscription, without its secret.
func (s *Service) Endpoint(ctx context.Context, c Caller, id string) (Endpoint, error) {
	sub, err := s.findVisible(ctx, c, id)
	if err != nil {
		return Endpoint{}, err
	}
	e, err := s.find(ctx, &sub)
	e.URL = c.visibleURL(&sub, e.URL)
	return e, err
}

// ownEndpoint finds the endpoint of a subscription of the caller, with what was recorded about it
// before the row was read.
func (s *Service) ownEndpoint(ctx context.Context, p ports.Principal, id string) (e Endpoint, record ports.WebhookRecord, err error) {
	sub, err := s.findOwned(ctx, p, id)
	if err != nil {
		return e, record, err
	}
	if record, err = s.config.Decisions.Endpoint(ctx, sub.TenantID, sub.UID); err != nil {
		return e, record, err
	}
	e, err = s.find(ctx, &sub)
	return e, record, err
}

// EndpointSettings is the part of an endpoint that its owner sets.
type EndpointSettings struct {
	URL string
	// Headers are sent with every delivery, such as those that the receiver's gateway requires;
	// nil leaves them unchanged, and an empty list removes them.
	Headers []ports.Header
	// PersonalReason says why personal values are sent in clear, as the owner may read them; "":
	// they are masked.
	PersonalReason string
}

// maxReason bounds the reason for personal values, in bytes.
const maxReason = 500

// checkPersonal checks that personal values may be sent in clear, and why.
func (s *Service) checkPersonal(ctx context.Context, p ports.Principal, reason string) error {
	if reason == "" {
		return nil
	}
	if strings.TrimSpace(reason) == "" || len(reason) > maxReason {
		return fault.New(fault.Invalid, "webhook.personal_reason_invalid", "a reason for personal data has 1 to 500 bytes; say who receives them and why").WithField("/personal_data/reason")
	}
	if err := shredding.CheckText("/personal_data/reason", reason); err != nil {
		return err
	}
	return s.config.MayDisclose(ctx, p)
}

// Set creates the endpoint of a subscription, or changes its address or headers, and enables
// it if it was disabled. A subscription that was paused with it is resumed. The result has
// the secret if the endpoint is new; a new address keeps it. A stored endpoint that is not as
// it was recorded is replaced by a new one. Faults: webhook.url_invalid,
// webhook.host_not_allowed, webhook.header_invalid, webhook.headers_missing,
// webhook.personal_reason_invalid, auth.forbidden, webhook.endpoint_changed.
func (s *Service) Set(ctx context.Context, p ports.Principal, id string, to EndpointSettings) (e Endpoint, created bool, err error) {
	if err := s.config.Sender.Check(to.URL); err != nil {
		return Endpoint{}, false, err
	}
	sub, err := s.findOwned(ctx, p, id)
	if err != nil {
		return Endpoint{}, false, err
	}
	if err := s.checkHost(ctx, p.TenantID, to.URL); err != nil {
		return Endpoint{}, false, err
	}
	if err := s.checkPersonal(ctx, p, to.PersonalReason); err != nil {
		return Endpoint{}, false, err
	}
	now := event.Micros(s.config.Clock.Now())
	e.Schedule = Schedule(&sub.Settings)
	record, err := s.config.Decisions.Endpoint(ctx, sub.TenantID, sub.UID) // before the row is read, so that the later of two callers fails
	if err != nil {
		return Endpoint{}, false, err
	}
	e.WebhookEndpoint, err = s.config.Endpoints.WebhookEndpoint(ctx, sub.UID)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Endpoint{}, false, err
	}
	switch {
	case e.Revision == 0, e.Digest() != record.Digest:
		created = true
		e.WebhookEndpoint = ports.WebhookEndpoint{
			Subscription: sub.UID, TenantID: sub.TenantID, SecretNumber: max(e.SecretNumber, record.SecretNumber) + 1, Revision: e.Revision, CreatedAt: now,
		}
	case e.URL == to.URL && e.DisabledAt.IsZero() && to.Headers == nil && e.PersonalReason == to.PersonalReason:
		return e, false, nil
	case len(e.Headers) > 0 && to.Headers == nil && origin(e.URL) != origin(to.URL):
		return Endpoint{}, false, fault.New(fault.Invalid, "webhook.headers_missing",
			"the endpoint's own headers go to no other host than the one that they were given for; give headers with the new address, or an empty object for none").WithField("/headers")
	}
	gone := e.DisabledCode == codeGone
	e.URL, e.PersonalReason, e.DisabledAt, e.DisabledCode = to.URL, to.PersonalReason, time.Time{}, ""
	if to.Headers != nil {
		if err := s.setHeaders(ctx, &e.WebhookEndpoint, to.Headers); err != nil {
			return Endpoint{}, false, err
		}
	}
	if gone && sub.Status == subscription.Paused && s.config.Resume != nil {
		// Before the endpoint is enabled: nothing is sent until then, and after a failure the
		// owner's next call resumes the subscription again.
		if err := s.config.Resume(ctx, p, id); err != nil {
			return Endpoint{}, false, err
		}
	}
	secret, err := s.save(ctx, sub.ID, &e.WebhookEndpoint, record, p)
	if created {
		e.Secret = secret
	}
	return e, created, err
}

// Delete deletes the endpoint of a subscription: nothing is sent any more, and messages keep
// waiting. Its headers are deleted, and no later endpoint gets its secret. Fault
// webhook.endpoint_not_found.
func (s *Service) Delete(ctx context.Context, p ports.Principal, id string) error {
	e, record, err := s.ownEndpoint(ctx, p, id)
	if err != nil {
		return err
	}
	now := event.Micros(s.config.Clock.Now())
	e.URL, e.HeaderNames, e.Headers, e.PersonalReason, e.PreviousUntil, e.DisabledAt, e.DisabledCode = deletedURL, nil, nil, "", time.Time{}, now, codeDeleted
	e.SecretNumber = max(e.SecretNumber, record.SecretNumber)
	_, err = s.save(ctx, id, &e.WebhookEndpoint, record, p)
	return err
}

// save records a change of an endpoint and then writes its row, which counts only with the
// record: a row whose write was cut off sends nothing until the owner sets the endpoint again.
// It returns the secret.
func (s *Service) save(ctx context.Context, id string, e *ports.WebhookEndpoint, before ports.WebhookRecord, by ports.Principal) (secret string, err error) {
	e.Revision++
	e.UpdatedAt = event.Micros(s.config.Clock.Now())
	if secret, err = s.secret(ctx, e); err != nil {
		return "", err
	}
	decision := ports.WebhookDecision{
		Endpoint: *e, SubscriptionID: id, SecretSHA256: sha256.Sum256([]byte(secret)), Deleted: IsDeleted(e), Before: before, By: by,
	}
	if err := s.config.Decisions.DecideEndpoint(ctx, decision); err != nil {
		return "", err
	}
	return secret, s.config.Endpoints.SaveWebhookEndpoint(ctx, *e)
}

// unrecorded is the fault of an endpoint whose row is not as the administrative log has it.
func unrecorded() error {
	return fault.New(fault.FailedPrecondition, "webhook.endpoint_unrecorded",
		"the stored endpoint is not as it was recorded, so nothing is sent to it: a change was cut off, or its row was edited; set it again, and have `backbone verify` run")
}

// mayReceive refuses an endpoint whose host is not allowed any more, or which the administrative
// log does not support. It comes before personal values are opened, which would record a
// disclosure that never left. Faults webhook.host_not_allowed, webhook.endpoint_unrecorded.
func (s *Service) mayReceive(ctx context.Context, e *ports.WebhookEndpoint) error {
	if err := s.checkHost(ctx, e.TenantID, e.URL); err != nil {
		return err
	}
	record, err := s.config.Decisions.Endpoint(ctx, e.TenantID, e.Subscription)
	if err == nil && e.Digest() != record.Digest {
		err = unrecorded()
	}
	return err
}

// Rotate makes a new secret and returns it. The previous one signs too for the time Overlap, so
// that receivers can install the new one. Faults: webhook.endpoint_not_found,
// webhook.endpoint_unrecorded, webhook.endpoint_changed.
func (s *Service) Rotate(ctx context.Context, p ports.Principal, id string) (Endpoint, error) {
	e, record, err := s.ownEndpoint(ctx, p, id)
	if err == nil && e.Digest() != record.Digest {
		err = unrecorded()
	}
	if err != nil {
		return Endpoint{}, err
	}
	e.SecretNumber++
	e.PreviousUntil = event.Micros(s.config.Clock.Now()).Add(s.config.Overlap)
	e.Secret, err = s.save(ctx, id, &e.WebhookEndpoint, record, p)
	return e, err
}

func (s *Service) secret(ctx context.Context, e *ports.WebhookEndpoint) (text string, err error) {
	key, err := s.config.Secrets.Derive(ctx, e.TenantID, secretPurpose, secretLabel(e.Subscription, e.SecretNumber))
	if err != nil {
		return "", err
	}
	defer key.Zero()
	err = key.Use(func(b []byte) error {
		text = secretText(b)
		return nil
	})
	return text, err
}

// TestResult is the outcome of a test delivery.
type TestResult struct {
	Status   int           // of the answer; 0: none
	Code     string        // of the failure; "": success
	Duration time.Duration // until the answer
}

// Test sends a message of the type backbone.webhook.test, also to a disabled endpoint. Its
// outcome changes nothing.
func (s *Service) Test(ctx context.Context, p ports.Principal, id string) (TestResult, error) {
	e, _, err := s.ownEndpoint(ctx, p, id)
	if err != nil {
		return TestResult{}, err
	}
	now := s.config.Clock.Now()
	text := fmt.Appendf(nil, `{"subscription":%q}`, id)
	began := time.Now()
	var answer ports.WebhookAnswer
	if err = s.mayReceive(ctx, &e.WebhookEndpoint); err == nil {
		answer, err = s.send(ctx, &e.WebhookEndpoint, "test_"+s.config.IDs.NewID(now).String(), body("backbone.webhook.test", now, text), s.config.Timeout)
	}
	if err := ctx.Err(); err != nil {
		return TestResult{}, err
	}
	out := TestResult{Status: answer.Status, Code: failureCode(answer, err), Duration: time.Since(began)}
	if err != nil && answer.Status == 0 && !isEndpointFailure(err) {
		return TestResult{}, err // this service failed
	}
	return out, nil
}

// send signs a message with every secret that is valid now, and sends it. The caller has asked
// mayReceive.
func (s *Service) send(ctx context.Context, e *ports.WebhookEndpoint, id string, text []byte, timeout time.Duration) (ports.WebhookAnswer, error) {
	now := s.config.Clock.Now()
	numbers := []int{e.SecretNumber}
	if e.SecretNumber > 1 && now.Before(e.PreviousUntil) {
		numbers = append(numbers, e.SecretNumber-1)
	}
	var keys [][]byte
	defer func() {
		for _, k := range keys {
			clear(k)
		}
	}()
	for _, n := range numbers {
		key, err := s.config.Secrets.Derive(ctx, e.TenantID, secretPurpose, secretLabel(e.Subscription, n))
		if err != nil {
			return ports.WebhookAnswer{}, err
		}
		_ = key.Use(func(b []byte) error { keys = append(keys, append([]byte{}, b...)); return nil })
		key.Zero()
	}
	headers, err := s.headers(ctx, e)
	if err != nil {
		return ports.WebhookAnswer{}, err
	}
	if len(keys) != len(numbers) {
		return ports.WebhookAnswer{}, fault.New(fault.Internal, "webhook.secret_gone", "the endpoint's secret cannot be used; report this")
	}
	return s.config.Sender.Send(ctx, ports.WebhookRequest{
		URL: e.URL, ID: id, Timestamp: now, Signature: sign(keys, id, now, text), Headers: headers, Body: text, Timeout: timeout,
	})
}
