package webhooks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// runner delivers to one endpoint, as it was when the runner began.
type runner struct {
	d        *Dispatcher
	endpoint ports.WebhookEndpoint
	sub      subscription.Subscription
	leaving  bool               // another node should have it; of a runner that does not run
	stop     context.CancelFunc // ends everything
	drain    context.CancelFunc // ends the taking of messages

	mu        sync.Mutex
	failures  int       // in a row
	notBefore time.Time // no attempt is made before
}

// pauseAfter is how many failures in a row an endpoint may have before it is left alone
// for a while.
const pauseAfter = 3

// codeDisabled is the fault of an endpoint that was disabled by another delivery.
const codeDisabled = "webhook.endpoint_disabled"

// answerMargin is left between an attempt and the end of the message's lease.
const answerMargin = 2 * time.Second

// work takes messages until taking ends, and delivers until ctx does.
func (r *runner) work(taking, ctx context.Context) {
	for taking.Err() == nil {
		if !r.waitForPause(taking) {
			return
		}
		if err := r.next(taking, ctx); err != nil && taking.Err() == nil {
			r.d.Logger.WarnContext(ctx, "a webhook could not go on; it will be tried again", "subscription", r.sub.ID, "code", fault.CodeOf(err))
			r.pause(r.d.Rest)
		}
	}
}

// waitForPause waits until attempts may be made again.
func (r *runner) waitForPause(ctx context.Context) bool {
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
func (r *runner) next(taking, ctx context.Context) error {
	owner, err := r.d.Directory.PrincipalByPerson(taking, r.sub.TenantID, r.sub.Owner)
	if err != nil {
		r.pause(r.d.Longest)
		return err
	}
	if owner.Expired(r.d.config.Clock.Now()) {
		r.pause(r.d.Longest)
		return fault.New(fault.Forbidden, "webhook.owner_expired", "the owner's access has expired, and with it what was sent in its name; renew it, or delete the subscription")
	}
	m, found, err := r.d.Engine.Next(taking, owner, r.sub.ID, r.d.Wait)
	if err != nil || !found {
		return err
	}
	lease := r.sub.Settings.MessageTimeout // by the store's clock, which began before ours
	timeout := min(r.d.config.Timeout, max(lease-answerMargin, lease/2))
	began := time.Now()
	code, answer, err := r.attempt(ctx, owner, m, timeout)
	if (ctx.Err() == nil || answer.Status != 0) && code != codeDisabled {
		r.recordAttempt(m, code, answer, err, time.Since(began))
	}
	if ctx.Err() != nil {
		if answer.Status == 0 {
			return ctx.Err() // the message's lease ends by itself; if it arrived, it comes again with the same id
		}
		// The endpoint did answer: that is kept.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerMargin)
		defer cancel()
		ctx = last
	}
	if code == "" && err == nil {
		r.resetFailures()
		return r.d.Engine.Acknowledge(ctx, owner, r.sub.ID, m)
	}
	if err != nil && !deliveryFault(err) {
		// Ours, such as the key service: no fault of the endpoint.
		r.pause(r.d.Rest)
		if isOwnFailure(err) {
			return r.d.Engine.Requeue(ctx, owner, r.sub.ID, m) // it comes back: no attempt is lost
		}
		return r.d.Engine.Refuse(ctx, owner, r.sub.ID, m, code)
	}
	if code == codeDisabled {
		r.stop() // the message waits until its lease ends
		return nil
	}
	r.pauseAfterFailure(answer)
	var disabled error
	if answer.Status == statusGone {
		r.stop()
		ctx = context.WithoutCancel(ctx) // of this very runner
		disabled = r.disable(ctx, owner, code)
	}
	return errors.Join(r.d.Engine.Refuse(ctx, owner, r.sub.ID, m, code), disabled)
}

// isOwnFailure tells failures that lose no attempt from those that do.
func isOwnFailure(err error) bool {
	if err == nil || deliveryFault(err) {
		return false
	}
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.TooMany:
		return true
	default:
		return false
	}
}

// recordAttempt keeps what came of an attempt, for whoever looks at the endpoint.
func (r *runner) recordAttempt(m Message, code string, answer ports.WebhookAnswer, err error, took time.Duration) {
	now := r.d.config.Clock.Now()
	a := ports.WebhookAttempt{
		EventID: m.Event.ID, Partition: m.Event.Partition, Sequence: m.Event.Sequence, Attempt: m.Attempt, At: event.Micros(now),
		Status: answer.Status, Code: code, Duration: took,
	}
	switch s := &r.sub.Settings; {
	case code == "", answer.Status == statusGone: // the latter waits for the owner, not for a time
	case isOwnFailure(err):
		a.Next = event.Micros(now.Add(r.d.Rest))
	case m.Attempt <= s.MaxRetries:
		a.Next = event.Micros(now.Add(s.Backoff(m.Attempt)))
	}
	r.d.recordAttempt(r.sub.UID, a)
}

func (r *runner) attempt(ctx context.Context, owner ports.Principal, m Message, timeout time.Duration) (code string, a ports.WebhookAnswer, err error) {
	began := time.Now()
	// As it is now: a secret that was replaced signs from the next delivery on.
	e, err := r.d.config.Endpoints.WebhookEndpoint(ctx, r.sub.UID)
	var data []byte
	if err == nil && !e.DisabledAt.IsZero() {
		err = fault.New(fault.FailedPrecondition, codeDisabled, "the endpoint was disabled meanwhile; set it again")
	}
	if err == nil {
		data, err = r.d.Encoder.EncodeFor(ctx, owner, m.Event)
	}
	if err == nil {
		a, err = r.d.send(ctx, &e, m.Event.ID.String(), body(m.Event.Type, m.Event.RecordedAt, data), timeout)
	}
	code = failure(a, err)
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

// pauseAfterFailure lets the endpoint rest as it asks for, or as its failures suggest.
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
		pause := r.d.Longest
		if shift := max(n-pauseAfter, 0); shift < 16 {
			pause = min(pause, r.d.Rest<<shift)
		}
		r.pause(pause)
	}
}

// disable ends deliveries until the owner says otherwise.
func (r *runner) disable(ctx context.Context, owner ports.Principal, code string) error {
	e, err := r.d.config.Endpoints.WebhookEndpoint(ctx, r.sub.UID)
	if err != nil {
		return err
	}
	if e.URL != r.endpoint.URL || !e.DisabledAt.IsZero() {
		return nil // another delivery did it, or the owner has acted
	}
	now := event.Micros(r.d.config.Clock.Now())
	e.DisabledAt, e.DisabledCode = now, code
	if err := r.d.save(ctx, &e, now); err != nil {
		return err
	}
	r.d.Logger.WarnContext(ctx, "an endpoint wants nothing more; its subscription is paused", "subscription", r.sub.ID)
	return r.d.Engine.Pause(ctx, owner, r.sub.ID)
}
