package webhooks_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

var (
	owner         = ports.Principal{TenantID: "acme", PersonID: "p-1", ActorType: event.Human, RoleLabel: "module"}
	administrator = ports.Principal{TenantID: "acme", PersonID: "p-admin", ActorType: event.Human, RoleLabel: "admin"}
)

// webhookFixture is everything around the package: an engine with messages of several keys, an
// endpoint, and secrets.
type webhookFixture struct {
	ports.Principals // only PrincipalByPerson is called

	mu        sync.Mutex
	hangs     atomic.Bool // the list of subscriptions does not answer
	queue     []*queued
	changed   chan struct{}
	refusals  []string
	given     int // back
	paused    int
	resumed   int
	stuck     error // of resuming
	sub       subscription.Subscription
	gone      bool
	keys      error     // of the key service
	expires   time.Time // of the owner's access
	answer    func(r ports.WebhookRequest) (ports.WebhookAnswer, error)
	sent      []ports.WebhookRequest
	encoding  []context.Context // of the attempts
	personal  []bool            // with every encoded event
	discloses bool
	more      []ports.LegalEntity
	underWay  int
	most      int
	clock     system.Clock
	endpoints *memory.Webhooks
	log       *conformance.AdministrativeLog
	leases    *memory.Leases
}

// queued is a message; those of one key are handed out one after another.
type queued struct {
	e        event.Recorded
	key      string
	leased   bool
	done     bool
	attempts int
}

func newFixture() *webhookFixture {
	h := &webhookFixture{
		changed: make(chan struct{}), endpoints: memory.New(memory.Config{}).Webhooks, leases: memory.New(memory.Config{Clock: system.Clock{}}).Leases,
		sub: subscription.Subscription{UID: event.ID{7}, TenantID: "acme", ID: "orders", SubscriberType: "webhook", SubscriberID: "x", Status: subscription.Active, Owner: "p-1", Revision: 1},
	}
	h.sub.Settings.MessageTimeout = 30 * time.Second
	h.log = testkit.Must(conformance.NewAdministrativeLog(h.clock))
	for _, host := range []string{"example.org", "example.org:8443", "evil.example.org"} {
		if err := h.log.Webhooks().DecideHost(context.Background(), "acme", host, true, "", administrator); err != nil {
			panic(err)
		}
	}
	return h
}

func (h *webhookFixture) mayDisclose(_ context.Context, p ports.Principal) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.discloses && p.PersonID == owner.PersonID {
		return nil
	}
	return fault.New(fault.Forbidden, "auth.forbidden", "no")
}

func (h *webhookFixture) wake() { close(h.changed); h.changed = make(chan struct{}) }

func (h *webhookFixture) add(keys ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range keys {
		n := len(h.queue) + 1
		h.queue = append(h.queue, &queued{key: k, e: event.Recorded{Skeleton: event.Skeleton{ID: event.ID{15: byte(n)}, Type: "shop.item.sold", Partition: 5, Sequence: event.Sequence(n), RecordedAt: h.clock.Now()}}})
	}
	h.wake()
}

func (h *webhookFixture) Next(ctx context.Context, _ ports.Principal, _ string, wait time.Duration) (webhooks.Message, bool, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		h.mu.Lock()
		held := map[string]bool{}
		for _, q := range h.queue {
			if q.done {
				continue
			}
			if !q.leased && !held[q.key] {
				q.leased = true
				q.attempts++
				h.mu.Unlock()
				return webhooks.Message{Event: q.e, Attempt: q.attempts}, true, nil
			}
			held[q.key] = true
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-ctx.Done():
			return webhooks.Message{}, false, ctx.Err()
		case <-over.C:
			return webhooks.Message{}, false, nil
		case <-changed:
		}
	}
}

func (h *webhookFixture) end(m webhooks.Message, done bool, code string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queue[m.Event.Sequence-1]
	q.leased, q.done = false, done
	if !done {
		h.refusals = append(h.refusals, code)
	}
	h.wake()
	return nil
}

func (h *webhookFixture) Acknowledge(_ context.Context, _ ports.Principal, _ string, m webhooks.Message) error {
	return h.end(m, true, "")
}

func (h *webhookFixture) Refuse(_ context.Context, _ ports.Principal, _ string, m webhooks.Message, code string) error {
	return h.end(m, false, code)
}

func (h *webhookFixture) Requeue(_ context.Context, _ ports.Principal, _ string, m webhooks.Message) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	q := h.queue[m.Event.Sequence-1]
	q.leased = false
	q.attempts--
	h.given++
	h.wake()
	return nil
}

func (h *webhookFixture) Pause(context.Context, ports.Principal, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.paused++
	h.sub.Status = subscription.Paused
	h.sub.Revision++
	return nil
}

// resume is what the service does about a subscription that was paused.
func (h *webhookFixture) resume(_ context.Context, p ports.Principal, id string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.resumed++
	if p.PersonID != h.sub.Owner || id != h.sub.ID {
		return fault.New(fault.NotFound, "subscription.not_found", "no")
	}
	if h.stuck != nil {
		return h.stuck
	}
	h.sub.Status = subscription.Active
	h.sub.Revision++
	return nil
}

func (h *webhookFixture) Subscriptions(ctx context.Context, _ string) ([]subscription.Subscription, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.gone {
		return nil, nil
	}
	return []subscription.Subscription{h.sub}, nil
}

func (h *webhookFixture) Subscription(_ context.Context, tenant, id string) (subscription.Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if tenant != h.sub.TenantID || id != h.sub.ID {
		return subscription.Subscription{}, fault.New(fault.NotFound, "subscription.not_found", "no")
	}
	return h.sub, nil
}

func (h *webhookFixture) PrincipalByPerson(context.Context, string, string) (ports.Principal, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := owner
	p.ExpiresAt = h.expires
	return p, nil
}

func (h *webhookFixture) EncodeFor(ctx context.Context, p ports.Principal, e event.Recorded, reason string) ([]byte, error) {
	h.mu.Lock()
	h.encoding, h.personal = append(h.encoding, ctx), append(h.personal, reason != "")
	h.mu.Unlock()
	return json.Marshal(map[string]any{"sequence": e.Sequence, "for": p.PersonID})
}

// context is that of the n-th attempt.
func (h *webhookFixture) context(n int) context.Context {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.encoding[n-1]
}

func (h *webhookFixture) Derive(_ context.Context, tenant, purpose, label string) (shredding.Secret, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys != nil {
		return shredding.Secret{}, h.keys
	}
	mac := hmac.New(sha256.New, []byte(tenant+"/"+purpose))
	mac.Write([]byte(label))
	return shredding.NewSecret(mac.Sum(nil)), nil
}

func (h *webhookFixture) Check(url string) error {
	if !strings.HasPrefix(url, "https://") {
		return fault.New(fault.Invalid, "webhook.url_invalid", "no")
	}
	return nil
}

func (h *webhookFixture) CheckHeader(header ports.Header) error {
	if strings.HasPrefix(header.Name, "webhook-") {
		return fault.New(fault.Invalid, "webhook.header_invalid", "no")
	}
	return nil
}

func (h *webhookFixture) LegalEntities(context.Context, string) ([]ports.LegalEntity, error) {
	return append([]ports.LegalEntity{{Partition: 5, TenantID: "acme", Code: "USMF"}}, h.more...), nil
}

func (h *webhookFixture) Send(_ context.Context, r ports.WebhookRequest) (ports.WebhookAnswer, error) {
	h.mu.Lock()
	h.sent = append(h.sent, r)
	h.underWay++
	h.most = max(h.most, h.underWay)
	answer := h.answer
	h.mu.Unlock()
	defer func() { h.mu.Lock(); h.underWay--; h.mu.Unlock() }()
	if answer == nil {
		return ports.WebhookAnswer{Status: 204}, nil
	}
	return answer(r)
}

func (h *webhookFixture) service() *webhooks.Service { return h.serviceWith(h.endpoints) }

func (h *webhookFixture) serviceWith(endpoints ports.WebhookEndpoints) *webhooks.Service {
	return testkit.Must(webhooks.NewService(webhooks.ServiceConfig{Endpoints: endpoints, Attempts: h.endpoints, Decisions: h.log.Webhooks(), MayDisclose: h.mayDisclose, Entities: h, Subscriptions: h, Principals: h, Secrets: h, Sender: h, Clock: h.clock, IDs: system.NewIDs(), Resume: h.resume, Timeout: 15 * time.Second, Overlap: 24 * time.Hour}))
}

func (h *webhookFixture) run(t *testing.T, node string, change func(*webhooks.Config)) (stop func()) {
	t.Helper()
	c := webhooks.Config{
		Service: h.service(), Consumer: h, Encoder: h, Leases: h.leases, Node: node,
		Concurrency: 4, Timing: webhooks.StandardTiming,
	}
	if change != nil {
		change(&c)
	}
	d := testkit.Must(webhooks.NewDispatcher(c))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return stop
}

// pass lets simulated time pass, and waits until the nodes have done what was due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// reconcile lets every node look once more for endpoints.
func reconcile() { pass(webhooks.StandardTiming.ReconcileInterval) }

// attempts are the codes of the refusals so far, and how many requests were sent.
func (h *webhookFixture) attempts() (sent int, refusals []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sent), slices.Clone(h.refusals)
}

// requireDelivered checks that the deliveries of so many messages are done, without a pause.
func (h *webhookFixture) requireDelivered(t *testing.T, n int) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, n, h.delivered())
}

func (h *webhookFixture) set(t *testing.T) webhooks.Endpoint {
	t.Helper()
	e, created, err := h.service().Set(t.Context(), owner, "orders", webhooks.EndpointSettings{URL: "https://example.org/hook"})
	require.NoError(t, err)
	require.True(t, created)
	return e
}

func (h *webhookFixture) delivered() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, q := range h.queue {
		if q.done {
			n++
		}
	}
	return n
}
