package webhooks

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// runner delivers to one endpoint. reconcile replaces it when the endpoint or its subscription
// changes.
type runner struct {
	d        *Dispatcher
	endpoint ports.WebhookEndpoint
	sub      subscription.Subscription
	leaving  bool               // another node should deliver to it; set only while the runner does not run
	stop     context.CancelFunc // ends everything
	drain    context.CancelFunc // stops fetching messages; deliveries in flight finish

	pausing ports.Lock // around waiting for a pause

	mu        sync.Mutex
	failures  int       // in a row
	notBefore time.Time // no attempt is made before
}

// pauseAfter is the failure in a row at which deliveries to an endpoint begin to pause.
const pauseAfter = 3

// codeDisabled is the fault of an attempt that finds its endpoint disabled.
const codeDisabled = "webhook.endpoint_disabled"

// answerMargin is the time between the end of an attempt and the end of the message's lease.
const answerMargin = 2 * time.Second

// work fetches messages until fetching ends, and delivers until ctx ends.
func (r *runner) work(fetching, ctx context.Context) {
	for fetching.Err() == nil {
		if !r.waitForPause(fetching) {
			return
		}
		if err := r.next(fetching, ctx); err != nil && fetching.Err() == nil {
			r.d.Logger.WarnContext(ctx, "deliveries to a webhook were interrupted; it will be tried again", "subscription", r.sub.ID, "code", fault.CodeOf(err))
			r.pause(r.d.FirstPause)
		}
	}
}

// waitForPause waits until attempts may be made again. One worker waits for the time and the others
// for that worker, so that they go on in the order in which they came.
func (r *runner) waitForPause(ctx context.Context) bool {
	if r.pausing.Acquire(ctx) != nil {
		return false
	}
	defer r.pausing.Release()
	r.mu.Lock()
	wait := time.Until(r.notBefore)
	r.mu.Unlock()
	if wait <= 0 {
		return ctx.Err() == nil
	}
	return ports.Sleep(ctx, wait) == nil
}

func (r *runner) pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if until := time.Now().Add(d); until.After(r.notBefore) {
		r.notBefore = until
	}
}

// next delivers one message.
func (r *runner) next(fetching, ctx context.Context) error {
	owner, err := r.d.config.Principals.PrincipalByPerson(fetching, r.sub.TenantID, r.sub.Owner)
	if err != nil {
		r.pause(r.d.LongestPause)
		return err
	}
	if owner.Expired(r.d.config.Clock.Now()) {
		r.pause(r.d.LongestPause)
		return fault.New(fault.Forbidden, "webhook.owner_expired", "the owner's access has expired, so nothing is sent on its behalf; renew it, or delete the subscription")
	}
	m, found, err := r.d.Consumer.Next(fetching, owner, r.sub.ID, r.d.PollWait)
	if err != nil || !found {
		return err
	}
	lease := r.sub.Settings.MessageTimeout // by the store's clock; it began before Next returned
	timeout := min(r.d.config.Timeout, max(lease-answerMargin, lease/2))
	began := time.Now()
	code, answer, err := r.attempt(ctx, owner, m, timeout)
	if (ctx.Err() == nil || answer.Status != 0) && code != codeDisabled {
		r.recordAttempt(m, code, answer, err, time.Since(began))
	}
	if ctx.Err() != nil {
		if answer.Status == 0 {
			return ctx.Err() // the lease expires, and the message is sent again with the same id
		}
		// The endpoint did answer: its answer is still stored.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerMargin)
		defer cancel()
		ctx = last
	}
	if code == "" && err == nil {
		r.resetFailures()
		return r.d.Consumer.Acknowledge(ctx, owner, r.sub.ID, m)
	}
	if err != nil && !isEndpointFailure(err) {
		// This service failed, for example to reach the key service, and not the endpoint.
		r.pause(r.d.FirstPause)
		if isOwnFailure(err) {
			return r.d.Consumer.Requeue(ctx, owner, r.sub.ID, m)
		}
		return r.d.Consumer.Refuse(ctx, owner, r.sub.ID, m, code)
	}
	if code == codeDisabled {
		r.stop() // the message is due again when its lease ends
		return nil
	}
	r.pauseAfterFailure(answer)
	var disabled error
	if answer.Status == statusGone {
		r.stop()
		ctx = context.WithoutCancel(ctx) // stop has cancelled it
		disabled = r.disable(ctx, owner, code)
	}
	return errors.Join(r.d.Consumer.Refuse(ctx, owner, r.sub.ID, m, code), disabled)
}

// isOwnFailure reports whether this service failed for a reason that passes, so that the attempt
// does not count.
func isOwnFailure(err error) bool {
	if err == nil || isEndpointFailure(err) {
		return false
	}
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.TooMany:
		return true
	default:
		return false
	}
}

// recordAttempt stores the outcome of an attempt, for the endpoint's owner and operators.
func (r *runner) recordAttempt(m Message, code string, answer ports.WebhookAnswer, err error, took time.Duration) {
	now := r.d.config.Clock.Now()
	a := ports.WebhookAttempt{
		EventID: m.Event.ID, Partition: m.Event.Partition, Sequence: m.Event.Sequence, Attempt: m.Attempt, At: event.Micros(now),
		Status: answer.Status, Code: code, Duration: took,
	}
	switch s := &r.sub.Settings; {
	case code == "", answer.Status == statusGone: // after 410 the owner has to act
	case isOwnFailure(err):
		a.Next = event.Micros(now.Add(r.d.FirstPause))
	case m.Attempt <= s.MaxRetries:
		a.Next = event.Micros(now.Add(s.Backoff(m.Attempt)))
	}
	r.d.recordAttempt(r.sub.UID, a)
}

func (r *runner) attempt(ctx context.Context, owner ports.Principal, m Message, timeout time.Duration) (code string, a ports.WebhookAnswer, err error) {
	began := time.Now()
	// Read again, so that a new secret signs from the next delivery on.
	e, err := r.d.config.Endpoints.WebhookEndpoint(ctx, r.sub.UID)
	var data []byte
	if err == nil && !e.DisabledAt.IsZero() {
		err = fault.New(fault.FailedPrecondition, codeDisabled, "the endpoint is disabled; set it again")
	}
	if err == nil {
		err = r.d.mayReceive(ctx, &e)
	}
	reason := ""
	if err == nil && e.PersonalReason != "" {
		switch err = r.d.config.MayDisclose(ctx, owner); {
		case err == nil:
			reason = e.PersonalReason
		case fault.KindOf(err) == fault.Forbidden:
			err = nil // the right was withdrawn since
		}
	}
	if err == nil {
		data, err = r.d.Encoder.EncodeFor(ctx, owner, m.Event, reason)
	}
	if err == nil {
		a, err = r.d.send(ctx, &e, m.Event.ID.String(), body(m.Event.Type, m.Event.RecordedAt, data), timeout)
	}
	code = failureCode(a, err)
	if r.d.Observer != nil && ctx.Err() == nil {
		r.d.Observer.WebhookAttempt(code, time.Since(began))
	}
	return code, a, err
}

func (r *runner) resetFailures() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = 0
}

// pauseAfterFailure pauses deliveries for as long as the endpoint asks, else for a time that grows
// with its failures in a row.
func (r *runner) pauseAfterFailure(a ports.WebhookAnswer) {
	r.mu.Lock()
	r.failures++
	n := r.failures
	r.mu.Unlock()
	if a.RetryAfter > 0 && (a.Status == 429 || a.Status == 503) {
		r.pause(a.RetryAfter)
		return
	}
	if n >= pauseAfter || a.Status == 429 {
		pause := r.d.LongestPause
		if shift := max(n-pauseAfter, 0); shift < 16 {
			pause = min(pause, r.d.FirstPause<<shift)
		}
		r.pause(pause)
	}
}

// disable stops deliveries until the owner enables the endpoint again.
func (r *runner) disable(ctx context.Context, owner ports.Principal, code string) error {
	record, err := r.d.config.Decisions.Endpoint(ctx, r.sub.TenantID, r.sub.UID)
	if err != nil {
		return err
	}
	e, err := r.d.config.Endpoints.WebhookEndpoint(ctx, r.sub.UID)
	if err != nil {
		return err
	}
	if e.URL != r.endpoint.URL || !e.DisabledAt.IsZero() || e.Digest() != record.Digest {
		return nil // another delivery has disabled it, or the owner has changed it
	}
	e.DisabledAt, e.DisabledCode = event.Micros(r.d.config.Clock.Now()), code
	if _, err := r.d.save(ctx, r.sub.ID, &e, record, ports.Principal{}); err != nil {
		return err
	}
	r.d.Logger.WarnContext(ctx, "an endpoint wants no more deliveries; its subscription is paused", "subscription", r.sub.ID)
	return r.d.Consumer.Pause(ctx, owner, r.sub.ID)
}

// failureCode returns the code of a failed delivery, "" after a success: a status of 2xx.
func failureCode(a ports.WebhookAnswer, err error) string {
	switch {
	case err != nil:
		return fault.CodeOf(err)
	case a.Status >= 200 && a.Status < 300:
		return ""
	default:
		return "webhook.status_" + strconv.Itoa(a.Status)
	}
}

// isEndpointFailure reports whether the endpoint failed, and not this service.
func isEndpointFailure(err error) bool { return strings.HasPrefix(fault.CodeOf(err), "webhook.") }

// statusGone is the answer of an endpoint that wants no more deliveries.
const statusGone = 410

// codeGone is the code with which such an endpoint is disabled.
const codeGone = "webhook.status_410"
