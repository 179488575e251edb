package webhook

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Message is an event that was handed out.
type Message struct {
	Event   event.Recorded
	Attempt int // 1: the first
}

// Engine hands out what is due and takes answers: the persistent subscriptions. It
// keeps the order, and hands out no message before an earlier one of its key is done
// with.
type Engine interface {
	// Next waits for a message; found is false if none came.
	Next(ctx context.Context, owner ports.Principal, id string, wait time.Duration) (m Message, found bool, err error)
	Acknowledge(ctx context.Context, owner ports.Principal, id string, m Message) error
	// Refuse has a message tried again later, or parked after its last attempt.
	Refuse(ctx context.Context, owner ports.Principal, id string, m Message, code string) error
	// GiveBack has a message handed out again as if it had not been.
	GiveBack(ctx context.Context, owner ports.Principal, id string, m Message) error
	Pause(ctx context.Context, owner ports.Principal, id string) error
}

// Directory finds what endpoints belong to.
type Directory interface {
	// Subscriptions lists those of all tenants for "".
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
	// PrincipalByPerson returns fault principal.not_found if there is none.
	PrincipalByPerson(ctx context.Context, tenantID, personID string) (ports.Principal, error)
}

// Encoder writes an event as the owner of a subscription may see it.
type Encoder interface {
	EncodeFor(ctx context.Context, owner ports.Principal, e event.Recorded) ([]byte, error)
}

// Leases gives an endpoint to one node at a time.
type Leases interface {
	Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error)
	Release(ctx context.Context, holder string, resources []ports.LeaseResource) error
}

// Observer is told what came of attempts; code is "" for one that was taken.
type Observer interface {
	WebhookAttempt(code string, duration time.Duration)
}

// Config is what a Dispatcher needs. Numbers of 0 take their default.
type Config struct {
	*Service
	Engine    Engine
	Directory Directory
	Encoder   Encoder
	Leases    Leases
	Node      string
	Logger    *slog.Logger // nil: silent
	Observer  Observer     // nil: nobody watches

	Concurrency int           // deliveries to one endpoint at the same time; 4
	Look        time.Duration // how often to look for endpoints; 2 s
	TTL         time.Duration // of a lease; 10 s
	Wait        time.Duration // of one question for a message; 25 s
	Rest        time.Duration // after the third failure in a row, doubled with each; 1 s
	Longest     time.Duration // rest; 60 s
}

// Dispatcher delivers to the endpoints whose leases this node holds.
type Dispatcher struct {
	Config
	holder string

	running map[event.ID]*runner // by Run only
}

// NewDispatcher makes a Dispatcher. It does nothing until it runs.
func NewDispatcher(c Config) *Dispatcher {
	or := func(d *time.Duration, fallback time.Duration) {
		if *d <= 0 {
			*d = fallback
		}
	}
	or(&c.Look, 2*time.Second)
	or(&c.TTL, 10*time.Second)
	or(&c.Wait, 25*time.Second)
	or(&c.Rest, time.Second)
	or(&c.Longest, time.Minute)
	if c.Concurrency <= 0 {
		c.Concurrency = 4
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Dispatcher{Config: c, holder: c.Node + "/" + rand.Text()[:8], running: map[event.ID]*runner{}}
}

// Defaults are settings for subscriptions of webhooks that say nothing else: the
// attempts of a message spread over a day, and no breaker, since a dispatcher rests by
// itself before an endpoint that fails.
func Defaults(s *subscription.Settings) {
	if s.MaxRetries == 0 && s.RetryFirst == 0 && s.RetryLongest == 0 {
		s.MaxRetries, s.RetryFirst, s.RetryLongest = 14, 5*time.Second, 12*time.Hour
	}
	if s.BreakerAfter == 0 {
		s.BreakerAfter = subscription.NoBreaker
	}
}

func resource(uid event.ID) ports.LeaseResource {
	return ports.LeaseResource{Name: "webhook/" + uid.String()}
}

// Run delivers until ctx ends; then it gives its leases back.
func (d *Dispatcher) Run(ctx context.Context) {
	var working sync.WaitGroup
	look := time.NewTicker(d.Look)
	defer look.Stop()
	for {
		if err := d.look(ctx, &working); err != nil && ctx.Err() == nil {
			d.Logger.WarnContext(ctx, "webhooks could not be looked after; it will be tried again", "code", fault.CodeOf(err))
		}
		select {
		case <-ctx.Done():
			d.leave(ctx, &working)
			return
		case <-look.C:
		}
	}
}

func (d *Dispatcher) leave(ctx context.Context, working *sync.WaitGroup) {
	resources := make([]ports.LeaseResource, 0, len(d.running))
	for uid, r := range d.running {
		r.stop()
		resources = append(resources, resource(uid))
	}
	working.Wait()
	if len(resources) == 0 {
		return
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = d.Leases.Release(leaving, d.holder, resources) // they expire otherwise
}

// look starts what is to run here and stops what is not.
func (d *Dispatcher) look(ctx context.Context, working *sync.WaitGroup) error {
	asking, cancel := context.WithTimeout(ctx, d.TTL/2)
	defer cancel()
	endpoints, err := d.config.Endpoints.WebhookEndpoints(asking)
	if err != nil {
		return err
	}
	wanted := map[event.ID]*runner{}
	if len(endpoints) > 0 {
		if wanted, err = d.wanted(asking, endpoints); err != nil {
			return err
		}
	}
	for uid, r := range d.running {
		if w := wanted[uid]; w == nil || w.endpoint.Revision != r.endpoint.Revision || w.sub.Revision != r.sub.Revision {
			r.stop()
			delete(d.running, uid)
		}
	}
	for uid, r := range wanted {
		if d.running[uid] != nil {
			continue
		}
		bounded, stop := context.WithCancel(ctx)
		r.stop = stop
		d.running[uid] = r
		for range d.Concurrency {
			working.Go(func() { r.work(bounded) })
		}
	}
	return nil
}

// wanted are the endpoints that are to be delivered to by this node.
func (d *Dispatcher) wanted(ctx context.Context, endpoints []ports.WebhookEndpoint) (map[event.ID]*runner, error) {
	all, err := d.Directory.Subscriptions(ctx, "")
	if err != nil {
		return nil, err
	}
	subs := make(map[event.ID]subscription.Subscription, len(all))
	for _, s := range all {
		subs[s.UID] = s
	}
	out := map[event.ID]*runner{}
	var resources []ports.LeaseResource
	byName := map[string]event.ID{}
	for _, e := range endpoints {
		sub, there := subs[e.Subscription]
		if !there {
			if err := d.config.Endpoints.DeleteWebhookEndpoint(ctx, e.Subscription); err != nil {
				return nil, err
			}
			continue
		}
		if !e.DisabledAt.IsZero() || sub.Status != subscription.Active {
			continue
		}
		out[e.Subscription] = &runner{d: d, endpoint: e, sub: sub}
		resources = append(resources, resource(e.Subscription))
		byName[resource(e.Subscription).Name] = e.Subscription
	}
	if len(resources) == 0 {
		return out, nil
	}
	leases, err := d.Leases.Hold(ctx, d.holder, d.TTL, resources)
	if err != nil {
		return nil, err
	}
	held := make(map[event.ID]*runner, len(leases))
	for _, l := range leases {
		uid := byName[l.Name]
		held[uid] = out[uid]
	}
	return held, nil
}
