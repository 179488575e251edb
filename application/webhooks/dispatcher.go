package webhooks

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Message is a delivered event.
type Message struct {
	Event   event.Recorded
	Attempt int // 1: the first
}

// Consumer polls and answers the subscriptions of endpoints. The subscription keeps the order: a
// message is delivered only after the earlier ones of its key are done.
type Consumer interface {
	// Next waits for a message; found is false if none came.
	Next(ctx context.Context, owner ports.Principal, id string, wait time.Duration) (m Message, found bool, err error)
	Acknowledge(ctx context.Context, owner ports.Principal, id string, m Message) error
	// Refuse has a message tried again later, or parked after its last attempt.
	Refuse(ctx context.Context, owner ports.Principal, id string, m Message, code string) error
	// Requeue undoes the delivery of a message, so that it is delivered again and the attempt does
	// not count.
	Requeue(ctx context.Context, owner ports.Principal, id string, m Message) error
	Pause(ctx context.Context, owner ports.Principal, id string) error
}

// Encoder writes an event as the owner of a subscription may see it.
type Encoder interface {
	// EncodeFor shows personal values for the reason, which it records; without one it masks them.
	EncodeFor(ctx context.Context, owner ports.Principal, e event.Recorded, reason string) ([]byte, error)
}

// Observer is notified of attempts and leases.
type Observer interface {
	// WebhookAttempt reports an attempt; code is "" if the endpoint accepted the event.
	WebhookAttempt(code string, duration time.Duration)
	// WebhookLease reports that this node has "taken" an endpoint, "released" it for
	// another node, or "lost" it: the lease, or the endpoint itself.
	WebhookLease(change string)
}

// Config is what a Dispatcher needs.
type Config struct {
	*Service
	Consumer Consumer
	Encoder  Encoder
	Leases   ports.Leases // on endpoints, so that one node delivers to each; the order does not depend on them
	Node     string       // holds the leases; unique among the processes that ever ran
	Logger   *slog.Logger // nil: silent
	Observer Observer     // nil: none

	Concurrency int // deliveries to one endpoint at the same time; positive
	Timing
}

// Timing holds the intervals of a Dispatcher. They are no settings: servers use
// StandardTiming.
type Timing struct {
	ReconcileInterval time.Duration // how often to look for endpoints
	TTL               time.Duration // of a lease; another node takes over the endpoints of a dead one after it
	PollWait          time.Duration // of one poll for a message
	FirstPause        time.Duration // after the third failure in a row, doubled with each further one
	LongestPause      time.Duration // bound of FirstPause as it doubles
	StallAfter        time.Duration // without a successful reconcile, after which the health check fails
}

// StandardTiming is the timing of servers.
var StandardTiming = Timing{
	ReconcileInterval: 2 * time.Second, TTL: 10 * time.Second, PollWait: 25 * time.Second, FirstPause: time.Second, LongestPause: time.Minute, StallAfter: 30 * time.Second,
}

// Dispatcher delivers to the endpoints whose leases this node holds.
type Dispatcher struct {
	Config
	member *sharing.Member

	running map[event.ID]*runner // by Run only
	pruned  time.Time            // by Run only

	lastReconcile atomic.Pointer[time.Time] // when reconcile last succeeded; nil: the dispatcher does not run

	mu       sync.Mutex
	attempts map[event.ID][]ports.WebhookAttempt // that are not stored yet
}

// NewDispatcher makes a Dispatcher. It does nothing until it runs. It refuses a Concurrency or
// Timing that is not positive.
func NewDispatcher(c Config) (*Dispatcher, error) {
	if err := errors.Join(fault.RequirePositive("webhooks.Config", c.Timing), fault.RequirePositive("webhooks.Config", struct{ Concurrency int }{c.Concurrency})); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	member := sharing.New(sharing.Config{
		Leases: c.Leases, Work: sharedWork, Holder: c.Node, TTL: c.TTL, Now: time.Now, Logger: c.Logger.With("work", sharedWork),
	})
	return &Dispatcher{Config: c, member: member, running: map[event.ID]*runner{}, attempts: map[event.ID][]ports.WebhookAttempt{}}, nil
}

// leasePrefix begins the names of the leases on endpoints. No transaction checks their terms: if
// two nodes deliver to one endpoint, the lease of each message still keeps the order. So expired
// ones may be pruned.
const leasePrefix = "webhook/"

// sharedWork names the work that the nodes share.
const sharedWork = "webhook"

func resource(uid event.ID) ports.LeaseResource {
	return ports.LeaseResource{Name: leasePrefix + uid.String()}
}

// Run delivers until ctx ends; then it releases its leases.
func (d *Dispatcher) Run(ctx context.Context) {
	var working sync.WaitGroup
	look := time.NewTicker(d.ReconcileInterval)
	defer look.Stop()
	d.recordReconcile()
	defer d.lastReconcile.Store(nil)
	for ctx.Err() == nil {
		err := d.reconcile(ctx, &working)
		switch {
		case err == nil:
			d.recordReconcile()
		case ctx.Err() == nil:
			d.Logger.WarnContext(ctx, "endpoints of webhooks could not be read or leased; it will be tried again", "code", fault.CodeOf(err))
		}
		select {
		case <-ctx.Done():
		case <-look.C:
		}
	}
	d.leave(ctx, &working)
}

func (d *Dispatcher) leave(ctx context.Context, working *sync.WaitGroup) {
	for _, r := range d.running {
		r.stop()
	}
	working.Wait()
	d.member.Leave(ctx)
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	d.saveAttempts(leaving)
}

// recordAttempt buffers the outcome of an attempt until saveAttempts stores it.
func (d *Dispatcher) recordAttempt(uid event.ID, a ports.WebhookAttempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := append(d.attempts[uid], a)
	d.attempts[uid] = all[max(len(all)-maxStoredAttempts, 0):]
}

// saveAttempts stores the attempts since the last call. If that fails they are lost: people
// read them, but no decision depends on them.
func (d *Dispatcher) saveAttempts(ctx context.Context) {
	d.mu.Lock()
	attempts := d.attempts
	d.attempts = map[event.ID][]ports.WebhookAttempt{}
	d.mu.Unlock()
	for _, uid := range slices.SortedFunc(maps.Keys(attempts), event.ID.Compare) {
		if err := d.config.Attempts.AddWebhookAttempts(ctx, uid, attempts[uid], maxStoredAttempts); err != nil && ctx.Err() == nil {
			d.Logger.WarnContext(ctx, "attempts to deliver could not be stored", "code", fault.CodeOf(err))
		}
	}
}

// pruneEvery is how often the leases of deleted endpoints are removed.
const pruneEvery = time.Minute

// prune removes the leases of deleted endpoints. A node with an older list of endpoints may
// take such a lease again; it is removed after it has expired.
func (d *Dispatcher) prune(ctx context.Context, endpoints []ports.WebhookEndpoint) error {
	if time.Since(d.pruned) < min(pruneEvery, 30*d.ReconcileInterval) {
		return nil
	}
	keep := make([]string, 0, len(endpoints))
	for _, e := range endpoints {
		if e.DisabledCode != codeDeleted {
			keep = append(keep, resource(e.Subscription).Name)
		}
	}
	_, err := d.Leases.Prune(ctx, leasePrefix, keep)
	d.pruned = time.Now()
	return err
}

// reconcile starts the runners of endpoints that this node should deliver to and stops the rest.
func (d *Dispatcher) reconcile(ctx context.Context, working *sync.WaitGroup) error {
	asking, cancel := context.WithTimeout(ctx, d.TTL/2)
	defer cancel()
	d.saveAttempts(asking)
	endpoints, err := d.config.Endpoints.WebhookEndpoints(asking, "")
	if err != nil {
		return err
	}
	if err := d.prune(asking, endpoints); err != nil {
		return err
	}
	wanted := map[event.ID]*runner{}
	if len(endpoints) > 0 {
		if wanted, err = d.wanted(asking, endpoints); err != nil {
			return err
		}
	}
	defer d.reportChanges(slices.Collect(maps.Keys(d.running)), wanted)
	for uid, r := range d.running {
		switch w := wanted[uid]; {
		case w == nil:
			r.stop()
			delete(d.running, uid)
		case w.leaving, w.endpoint.Revision != r.endpoint.Revision, w.sub.Revision != r.sub.Revision:
			r.drain() // deliveries in flight finish; an interruption would cost the message an attempt, perhaps its only one
			delete(d.running, uid)
		}
	}
	for uid, r := range wanted {
		if d.running[uid] != nil || r.leaving {
			continue
		}
		bounded, stop := context.WithCancel(ctx)
		taking, drain := context.WithCancel(bounded)
		r.stop, r.drain = stop, drain
		d.running[uid] = r
		var own sync.WaitGroup
		for range d.Concurrency {
			own.Go(func() { r.work(taking, bounded) })
		}
		working.Go(func() {
			own.Wait()
			stop() // frees the context of a drained runner, which d.running does not list any more
		})
	}
	return nil
}

// reportChanges reports which endpoints this node has started or stopped delivering to.
func (d *Dispatcher) reportChanges(before []event.ID, wanted map[event.ID]*runner) {
	if d.Observer == nil {
		return
	}
	for uid := range d.running {
		if !slices.Contains(before, uid) {
			d.Observer.WebhookLease("taken")
		}
	}
	for _, uid := range before {
		switch r := wanted[uid]; {
		case d.running[uid] != nil:
		case r != nil && r.leaving:
			d.Observer.WebhookLease("released")
		default:
			d.Observer.WebhookLease("lost")
		}
	}
}

// wanted returns runners of the endpoints that this node should deliver to.
func (d *Dispatcher) wanted(ctx context.Context, endpoints []ports.WebhookEndpoint) (map[event.ID]*runner, error) {
	all, err := d.config.Subscriptions.Subscriptions(ctx, "")
	if err != nil {
		return nil, err
	}
	subs := make(map[event.ID]subscription.Subscription, len(all))
	for _, s := range all {
		subs[s.UID] = s
	}
	out := map[event.ID]*runner{}
	var resources []ports.LeaseResource
	for _, e := range endpoints {
		sub, exists := subs[e.Subscription]
		if !exists {
			if err := d.config.Endpoints.DeleteWebhookEndpoint(ctx, e.Subscription); err != nil {
				return nil, err
			}
			continue
		}
		if !e.DisabledAt.IsZero() || sub.Status != subscription.Active {
			continue
		}
		out[e.Subscription] = &runner{d: d, endpoint: e, sub: sub, pausing: ports.NewLock()}
		resources = append(resources, resource(e.Subscription))
	}
	if len(resources) == 0 {
		return out, nil
	}
	if _, err := d.member.Renew(ctx, resources, nil); err != nil {
		return nil, err
	}
	for uid, r := range out {
		_, _, isHeld := d.member.Lease(resource(uid))
		r.leaving = !d.member.IsPreferred(resource(uid))
		if !isHeld && !r.leaving { // the node that holds it has to release it first
			delete(out, uid)
		}
	}
	return out, nil
}

// Health returns an error if this node has not read and leased endpoints for too long, and
// nil if it has or does not run. Endpoints that fail or are far behind are healthy. Fault
// webhook.stalled.
func (d *Dispatcher) Health() error {
	last := d.lastReconcile.Load()
	if last == nil {
		return nil
	}
	if since := time.Since(*last); since > d.StallAfter {
		return fault.New(fault.Unavailable, "webhook.stalled", "this node has not read its webhooks for %s; see that the database answers, then restart this node", since.Round(time.Second))
	}
	return nil
}

// recordReconcile stores when reconcile last succeeded.
func (d *Dispatcher) recordReconcile() {
	now := time.Now() // by this process's own monotonic clock
	d.lastReconcile.Store(&now)
}
