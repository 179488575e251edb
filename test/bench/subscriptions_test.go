//go:build bench

package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// The events that one subscription catches up with, if the books have so many.
const subscribedEvents = 10_000

// polledBatch is the number of events of a poll, and the last one.
type polledBatch struct {
	events   int
	id       string
	sequence string
}

// subscriptionAPI is a way to the subscriptions.
type subscriptionAPI interface {
	poll(ctx context.Context, id, consumer string, limit int) (polledBatch, error)
	// acknowledge ends the last event and all before it that the consumer has.
	acknowledge(ctx context.Context, id, consumer, legalEntity string, last polledBatch) error
}

// goAPI is the service in this process.
type goAPI struct {
	service *subscriptions.Service
	owner   ports.Principal
}

func (d goAPI) poll(ctx context.Context, id, consumer string, limit int) (h polledBatch, err error) {
	b, err := d.service.Poll(ctx, d.owner, subscriptions.Poll{ID: id, Consumer: consumer, Limit: limit})
	if h.events = len(b.Deliveries); h.events > 0 {
		last := &b.Deliveries[h.events-1].Event
		h.id, h.sequence = last.ID.String(), strconv.FormatUint(uint64(last.Sequence), 10)
	}
	return h, err
}

func (d goAPI) acknowledge(ctx context.Context, id, consumer, legalEntity string, last polledBatch) error {
	e, err := event.ParseID(last.id)
	if err != nil {
		return err
	}
	n, err := strconv.ParseUint(last.sequence, 10, 64)
	if err != nil {
		return err
	}
	_, err = d.service.Acknowledge(ctx, d.owner, subscriptions.Acknowledgement{ID: id, Consumer: consumer, LegalEntity: legalEntity, EventID: e, Sequence: event.Sequence(n)})
	return err
}

// httpAPI is one connection of a consumer.
type httpAPI struct{ *client }

func (o httpAPI) poll(_ context.Context, id, consumer string, limit int) (h polledBatch, err error) {
	answer, err := o.want(http.StatusOK, http.MethodGet, fmt.Sprintf("/api/subscriptions/%s/poll?limit=%d&consumer=%s", id, limit, consumer), "", nil)
	if err != nil {
		return h, err
	}
	if h.events = countEvents(answer); h.events == 0 {
		return h, nil
	}
	// The delivery is an event's last member, and the id its first.
	const between, id0, sequence = `"}},{"id":"`, `{"events":[{"id":"`, `"sequence":"`
	at := bytes.LastIndex(answer, []byte(between)) + len(between)
	if h.events == 1 {
		at = len(id0)
	}
	h.id = string(answer[at : at+len(event.ID{}.String())])
	rest := answer[at:]
	rest = rest[bytes.Index(rest, []byte(sequence))+len(sequence):]
	h.sequence = string(rest[:bytes.IndexByte(rest, '"')])
	return h, nil
}

func (o httpAPI) acknowledge(_ context.Context, id, consumer, legalEntity string, last polledBatch) error {
	body := fmt.Appendf(nil, `{"event_id":%q,"sequence":%q,"legal_entity":%q,"consumer":%q}`, last.id, last.sequence, legalEntity, consumer)
	_, err := o.want(http.StatusOK, http.MethodPost, "/api/subscriptions/"+id+"/acknowledge", "", body)
	return err
}

// subscriptionFixture measures subscriptions of one person of the demonstration, who sees all event types.
type subscriptionFixture struct {
	*books
	t     *testing.T
	node  *node
	owner ports.Principal
	count int // events that are taken
	made  int
}

func newSubscriber(t *testing.T, s *bookFixtures) *subscriptionFixture {
	t.Helper()
	u := &subscriptionFixture{t: t, node: s.node(t), books: s.books(t)}
	u.count = min(subscribedEvents, u.whole.events)
	var err error
	u.owner, err = u.node.server.App.Tenancy.Authenticate(t.Context(), u.tokens["controller"])
	require.NoError(t, err)
	require.Equal(t, demo.Tenant, u.owner.TenantID)
	return u
}

// catchUp takes the last events of the books, a poll and an acknowledgement at a time,
// until all are acknowledged.
func (u *subscriptionFixture) catchUp(name string, consumers, limit int, order string, to func(consumer int) subscriptionAPI) *variant {
	return &variant{name: name, measure: func(period time.Duration) (s sample) {
		for s.elapsed < period {
			one := u.once(consumers, limit, order, to)
			s.count += one.count
			s.elapsed += one.elapsed
			s.latencies = append(s.latencies, one.elapsed)
		}
		return s
	}}
}

func (u *subscriptionFixture) once(consumers, limit int, order string, to func(consumer int) subscriptionAPI) sample {
	t, service := u.t, u.node.server.App.Subscriptions
	t.Helper()
	u.made++
	sub := subscription.Subscription{
		ID: fmt.Sprintf("catch-up-%d", u.made), SubscriberType: "service", SubscriberID: "bench",
		Filter: subscription.Filter{LegalEntities: []string{u.whole.Code}},
		Settings: subscription.Settings{
			Start: subscription.Start{
				From: subscription.Position, Positions: map[string]event.Sequence{u.whole.Code: event.Sequence(u.whole.events - u.count + 1)},
			},
			PartitionBy: order, MaxInFlight: max(1000, consumers*limit),
		},
	}
	_, _, err := service.Create(t.Context(), u.owner, sub)
	require.NoError(t, err)
	var taken atomic.Int64
	var finished sync.Map // consumer -> when it acknowledged last
	started := time.Now()
	drive(t, consumers, time.Minute, func(ctx context.Context, consumer int) (int, error) {
		if int(taken.Load()) == u.count {
			return 0, context.Canceled // ends all consumers
		}
		box, name := to(consumer), fmt.Sprintf("c%d", consumer)
		got, err := box.poll(ctx, sub.ID, name, limit)
		if err != nil || got.events == 0 {
			return 0, err
		}
		if err := box.acknowledge(ctx, sub.ID, name, u.whole.Code, got); err != nil {
			return 0, err
		}
		finished.Store(consumer, time.Since(started))
		taken.Add(int64(got.events))
		return got.events, nil
	})
	require.EqualValues(t, u.count, taken.Load(), "events that were delivered once")
	s := sample{count: u.count}
	finished.Range(func(_, at any) bool { s.elapsed = max(s.elapsed, at.(time.Duration)); return true })
	require.NoError(t, service.Delete(t.Context(), subscriptions.Caller{Principal: u.owner}, sub.ID))
	return s
}

// reading reads the same events a page at a time.
func (u *subscriptionFixture) reading(limit int) *variant {
	return &variant{name: fmt.Sprintf("reading alone, pages of %d", limit), measure: func(period time.Duration) sample {
		first := u.whole.events - u.count
		after := first
		return drive(u.t, 1, period, func(ctx context.Context, _ int) (int, error) {
			got, err := u.node.server.App.Store.Audit.ChainPage(ctx, u.whole.Partition, event.Sequence(after), min(limit, u.whole.events-after))
			if after += len(got); after == u.whole.events {
				after = first
			}
			return len(got), err
		})
	}}
}

// reportSubscriptions measures how fast consumers catch up through one subscription.
func reportSubscriptions(t *testing.T, o options, s *bookFixtures, figures *table) {
	u := newSubscriber(t, s)
	inGo := goAPI{u.node.server.App.Subscriptions, u.owner}
	clients := newClients(t, 4, u.node.address, u.tokens["controller"])
	inProcess := func(int) subscriptionAPI { return inGo }
	remote := func(consumer int) subscriptionAPI { return httpAPI{clients[consumer]} }
	reading := u.reading(subscriptions.MaxPoll)
	catchUp := func(name string, consumers, limit int, order string, to func(int) subscriptionAPI) *variant {
		return u.catchUp("subscription "+name, consumers, limit, order, to)
	}
	most, hundred := catchUp("in Go, polls of 1,000", 1, 1000, subscription.PerLegalEntity, inProcess), catchUp("in Go, polls of 100", 1, 100, subscription.PerLegalEntity, inProcess)
	remoteMost, remoteHundred := catchUp("over HTTP, polls of 1,000", 1, 1000, subscription.PerLegalEntity, remote), catchUp("over HTTP, polls of 100", 1, 100, subscription.PerLegalEntity, remote)
	rows := []struct {
		*variant
		to *variant
		of string
	}{
		{most, reading, "reading"},
		{catchUp("in Go, polls of 1,000, no order", 1, 1000, subscription.NoOrder, inProcess), most, "in order"},
		{catchUp("in Go, polls of 1,000, in order by stream", 1, 1000, subscription.PerStream, inProcess), most, "in order by legal entity"},
		{hundred, most, "polls of 1,000"},
		{catchUp("in Go, polls of 100, no order, 4 consumers", 4, 100, subscription.NoOrder, inProcess), hundred, "1 consumer in order"},
		{catchUp("in Go, polls of 100, in order by stream, 4 consumers", 4, 100, subscription.PerStream, inProcess), hundred, "1 consumer in order"},
		{remoteMost, most, "in Go"},
		{remoteHundred, hundred, "in Go"},
		{catchUp("over HTTP, polls of 100, no order, 4 consumers", 4, 100, subscription.NoOrder, remote), remoteHundred, "1 consumer in order"},
		{catchUp("over HTTP, polls of 100, in order by stream, 4 consumers", 4, 100, subscription.PerStream, remote), remoteHundred, "1 consumer in order"},
	}
	variants := []*variant{reading}
	for _, r := range rows {
		variants = append(variants, r.variant)
	}
	statements := newStatistics(t, s.cluster, o)
	o.period /= 8 // a catch-up is not cut short, so this is how often it is begun
	o.profiled(t, "subscriptions", func() { takeTurns(t, o, statements, variants...) })

	figures.addText(fmt.Sprintf("One subscription's %d events: reading alone, %d at a time", u.count, subscriptions.MaxPoll), "%s", perSecond(reading.rate(), "events"))
	for _, r := range rows {
		name := "Catch-up by " + r.name
		ratio := fmt.Sprintf("%.2f of %s", r.ratio(r.to), r.of)
		seconds := quantile(r.latencies(), 0.5).Seconds()
		figures.add(figure{name: name, value: fmt.Sprintf("%.2f s, %s", seconds, perSecond(r.rate(), "events")), ratio: ratio})
	}
}
