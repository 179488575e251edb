package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// delivered is an event from a poll.
type delivered struct {
	placedEvent
	Delivery struct {
		Attempt  int       `json:"attempt"`
		Deadline time.Time `json:"deadline"`
	} `json:"delivery"`
}

func (e *placedEvent) key() string {
	return e.Scope.LegalEntity + "/" + e.Stream.Type + "/" + e.Stream.ID
}

// sequenceOf reads a sequence of the API, 0 if it is broken.
func sequenceOf(text string) domain.Sequence {
	n, _ := strconv.ParseUint(text, 10, 64)
	return domain.Sequence(n)
}

// readers are the subscribers and feed readers of a fleet.
type readers struct {
	fleet  *fleet
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex    sync.Mutex
	failures []error

	group, ordered, clumsy, all, stream, hook *deliveryLog
	late                                      []*deliveryLog

	feed   sync.Mutex // held while the reader of the whole log records an event
	cursor string     // its position

	troubled atomic.Bool
}

const (
	fleetStreamEntity, fleetStream = "FLTA", "M-0"
	groupConsumers                 = 4
	clumsyConsumers                = 2
	pollLimit                      = 10
	webhookWorkers                 = 4 // deliveries to one endpoint at the same time, as configured by default
)

// subscribe makes all subscriptions and starts their readers. From the moment that troubled is set,
// some of them fail now and then.
func subscribe(t *testing.T, f *fleet) *readers {
	t.Helper()
	r := &readers{fleet: f}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { r.cancel(); r.done.Wait() })
	r.group, r.clumsy, r.hook = newDeliveryLog(f, "group", subscription.PerStream), newDeliveryLog(f, "clumsy", subscription.PerStream), newDeliveryLog(f, "hook", subscription.PerStream)
	r.ordered, r.all, r.stream = newDeliveryLog(f, "ordered", subscription.PerLegalEntity), newDeliveryLog(f, "all", subscription.PerLegalEntity), newDeliveryLog(f, "stream", subscription.PerStream)
	machines := `"event_types":["` + machineType + `"],`
	for id, more := range map[string]string{
		"group":   machines + `"settings":{"partition_by":"entity:machine",` + endlessRetries + `}`,
		"ordered": `"settings":{"partition_by":"legal_entity",` + endlessRetries + `}`,
		"clumsy":  machines + `"settings":{"partition_by":"stream",` + endlessRetries + `}`,
	} {
		f.as(t, subscriberOf(id), http.StatusCreated, "/api/subscriptions", fmt.Sprintf(`{"id":%q,"subscriber_type":"service","subscriber_id":"fleet",%s}`, id, more))
	}
	f.as(t, "module", http.StatusCreated, "/api/subscriptions", `{"id":"hook","subscriber_type":"webhook","subscriber_id":"fleet",`+machines+`"settings":{"partition_by":"stream",`+endlessRetries+`}}`)
	receiver := httptest.NewServer(r.receiver())
	t.Cleanup(receiver.Close)
	allowHosts(t, f.client(f.nodes[0], "admin"), receiver.URL)
	require.NoError(t, f.client(f.nodes[0], "module").want(http.StatusCreated, nil, "PUT", "/api/subscriptions/hook/endpoint", fmt.Sprintf(`{"url":%q}`, receiver.URL)))

	for i := range groupConsumers {
		r.run(func() error { return r.consume(r.group, i, fmt.Sprintf("c-%d", i), nil) })
	}
	r.run(func() error { return r.consume(r.ordered, 1, "", nil) })
	mishap := func(n int) string {
		switch {
		case !r.troubled.Load():
			return ""
		case n%197 == 0:
			return "timeout"
		case n%13 == 0:
			return "nack"
		}
		return ""
	}
	for i := range clumsyConsumers {
		r.run(func() error { return r.consume(r.clumsy, 2+i, fmt.Sprintf("k-%d", i), mishap) })
	}
	r.run(r.followAll)
	r.run(r.followStream)
	return r
}

// subscriberOf is the role of a subscription's owner. A service gets events of its modules only, so
// a person subscribes to those of all modules.
func subscriberOf(subscription string) string {
	if subscription == "ordered" || strings.HasPrefix(subscription, "late-") {
		return "approver"
	}
	return "module"
}

func (r *readers) run(f func() error) {
	r.done.Go(func() {
		if err := f(); err != nil && r.ctx.Err() == nil {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.failures = append(r.failures, err)
		}
	})
}

// failure is why readers ended before they were stopped, nil if none did.
func (r *readers) failure() error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return errors.Join(r.failures...)
}

// stop ends all readers and requires that none has failed.
func (r *readers) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	r.done.Wait()
	require.NoError(t, r.failure())
}

// consume is a consumer of a subscription. It answers each event by itself or, where events are
// ordered by legal entity, all of a legal entity with the last one.
func (r *readers) consume(b *deliveryLog, first int, consumer string, mishap func(n int) string) error {
	handled := 0
	for turn := first; r.ctx.Err() == nil; turn++ {
		a, err := r.fleet.sendToAny(r.ctx, turn, subscriberOf(b.name), "GET", fmt.Sprintf("/api/subscriptions/%s/poll?limit=%d&wait_ms=1000&consumer=%s", b.name, pollLimit, consumer), "")
		if err != nil {
			return err
		}
		var p struct {
			Events []delivered `json:"events"`
		}
		if a.status != http.StatusOK {
			return fmt.Errorf("%s: %s", b.name, a)
		} else if err := a.decode(&p); err != nil {
			return err
		}
		if consumer == "" { // in the order of legal entities
			p.Events = b.recordPoll(consumer, p.Events)
			last := map[string]delivered{}
			for _, e := range p.Events {
				last[e.Scope.LegalEntity] = e
			}
			for entity, e := range last {
				body := fmt.Sprintf(`{"event_id":%q,"sequence":%q,"legal_entity":%q}`, e.ID, e.Sequence, entity)
				if _, err := r.answer(turn, b.name, "acknowledge", body); err != nil {
					return err
				}
				of := slices.DeleteFunc(slices.Clone(p.Events), func(o delivered) bool { return o.Scope.LegalEntity != entity })
				b.recordAcknowledged(of, nil)
			}
			continue
		}
		p.Events = b.recordPoll(consumer, p.Events)
		failed := map[string]bool{} // keys: later events of a key are refused too, to keep their order
		answers := map[string][]delivered{}
		for _, e := range p.Events {
			handled++
			action := ""
			if mishap != nil && e.Delivery.Attempt == 1 {
				action = mishap(handled)
			}
			if failed[e.key()] {
				action = "nack"
			}
			failed[e.key()] = failed[e.key()] || action != ""
			b.recordAnswerSent(e, action != "")
			answers[action] = append(answers[action], e)
			if mishap == nil { // each by itself
				if err := r.acknowledge(b, turn, consumer, answers); err != nil {
					return err
				}
			}
		}
		if err := r.acknowledge(b, turn, consumer, answers); err != nil {
			return err
		}
	}
	return nil
}

// acknowledge acknowledges and refuses events by their outcome; timed-out events get no
// answer.
func (r *readers) acknowledge(b *deliveryLog, first int, consumer string, answers map[string][]delivered) error {
	defer clear(answers)
	if of := answers[""]; len(of) > 0 {
		ignored, err := r.answer(first, b.name, "acknowledge", fmt.Sprintf(`{"event_ids":[%s],"consumer":%q}`, quoted(of), consumer))
		if err != nil {
			return err
		}
		b.recordAcknowledged(of, ignored)
	}
	if of := answers["nack"]; len(of) > 0 {
		_, err := r.answer(first, b.name, "nack", fmt.Sprintf(`{"event_ids":[%s],"action":"retry","code":"fleet.clumsy","reason":"It fell down."}`, quoted(of)))
		return err
	}
	return nil
}

// answer sends an answer until a node accepts it, and returns the reasons for ignored events.
func (r *readers) answer(first int, subscription, action, body string) (ignored map[string]string, err error) {
	a, err := r.fleet.sendToAny(r.ctx, first, subscriberOf(subscription), "POST", "/api/subscriptions/"+subscription+"/"+action, body)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%s of %s: %s", action, subscription, a)
	}
	if err != nil {
		return nil, err
	}
	var out struct {
		Ignored []struct {
			EventID string `json:"event_id"`
			Reason  string `json:"reason"`
		} `json:"ignored"`
	}
	err = a.decode(&out)
	ignored = map[string]string{}
	for _, i := range out.Ignored {
		ignored[i.EventID] = i.Reason
	}
	return ignored, err
}

// receiver accepts webhooks. With troubled set it refuses every seventh, and leaves
// some without an answer.
func (r *readers) receiver() http.Handler {
	var mutex sync.Mutex
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body struct {
			Data placedEvent `json:"data"`
		}
		err := json.NewDecoder(q.Body).Decode(&body)
		mutex.Lock()
		n++
		fails := r.troubled.Load() && n%7 == 0
		hangs := r.troubled.Load() && n%499 == 0
		mutex.Unlock()
		if err == nil {
			r.hook.recordWebhook(&body.Data, !hangs && !fails)
		}
		switch {
		case hangs:
			<-q.Context().Done() // the sender times out
		case fails || err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

// feedSilence is how long a feed may be silent before its reader tries another node.
const feedSilence = 4 * time.Second

// subscribeAtFeedCursor makes a subscription that starts at the position of the feed of the
// whole log.
func (r *readers) subscribeAtFeedCursor(t *testing.T) {
	t.Helper()
	b := newDeliveryLog(r.fleet, fmt.Sprintf("late-%d", len(r.late)), subscription.PerLegalEntity)
	r.feed.Lock()
	r.all.mutex.Lock()
	cursor := r.cursor
	b.beforeSubscription = map[string]bool{}
	for id := range r.all.latest {
		b.beforeSubscription[id] = true
	}
	r.all.mutex.Unlock()
	r.feed.Unlock()
	a, err := r.fleet.sendToAny(t.Context(), len(r.late), subscriberOf(b.name), "POST", "/api/subscriptions", fmt.Sprintf(
		`{"id":%q,"subscriber_type":"service","subscriber_id":"fleet","settings":{"partition_by":"legal_entity","start_from":"cursor","start_cursor":%q,%s}}`, b.name, cursor, endlessRetries))
	require.NoError(t, err)
	require.Contains(t, []int{http.StatusCreated, http.StatusOK}, a.status, a)
	r.late = append(r.late, b)
	turn := len(r.late)
	r.run(func() error { return r.consume(b, turn, "", nil) })
}

// endlessRetries are settings under which events are retried without end.
var endlessRetries = fmt.Sprintf(`"message_timeout_ms":%d,"max_retry_count":1000,"breaker_after":0,"retry_first_ms":1,"retry_longest_ms":200`, messageTimeout.Milliseconds())

// followAll reads the whole log as server-sent events, from node to node.
func (r *readers) followAll() error {
	for turn := 0; r.ctx.Err() == nil; turn++ {
		if err := r.listen(turn); err != nil {
			return err
		}
	}
	return nil
}

// listen reads one feed until its connection ends, and returns an error for anything else.
func (r *readers) listen(turn int) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	watchdog := time.AfterFunc(feedSilence, cancel)
	defer watchdog.Stop()
	n := r.fleet.nodes[turn%len(r.fleet.nodes)]
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, n.server()+"/api/subscribe/streams/$all", nil)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+r.fleet.tokens["auditor"])
	q.Header.Set("Accept", "text/event-stream")
	if r.cursor != "" { // no other goroutine writes it
		q.Header.Set("Last-Event-ID", r.cursor)
	}
	a, err := (&http.Client{Transport: r.fleet.http.Transport}).Do(q)
	if err != nil {
		return r.waitAfter(nil)
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		if a.StatusCode >= 500 {
			return r.waitAfter(nil)
		}
		return fmt.Errorf("the feed answered %s", a.Status)
	}
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 4<<20)
	id, kind, data := "", "", ""
	for lines.Scan() {
		watchdog.Reset(feedSilence)
		line := lines.Text()
		switch name, value, _ := strings.Cut(line, ": "); {
		case name == "id":
			id = value
		case name == "event":
			kind = value
		case name == "data":
			data = value
		case line == "":
			var e placedEvent
			if kind == "event" {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					return err
				}
			}
			r.feed.Lock()
			if kind == "event" {
				r.all.recordFeedEvent(&e)
			}
			if id != "" {
				r.cursor = id
			}
			r.feed.Unlock()
			id, kind, data = "", "", ""
		}
	}
	return nil
}

// waitAfter pauses before a reader connects again.
func (r *readers) waitAfter(err error) error {
	wait := time.NewTimer(50 * time.Millisecond)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-r.ctx.Done():
	}
	return err
}

// followStream reads one stream over WebSockets, from node to node.
func (r *readers) followStream() error {
	next := 0
	for turn := 1; r.ctx.Err() == nil; turn++ {
		n := r.fleet.nodes[turn%len(r.fleet.nodes)]
		query := url.Values{"legal_entity": {fleetStreamEntity}, "from": {strconv.Itoa(next)}}
		ctx, cancel := context.WithTimeout(r.ctx, answerTime)
		conn, response, err := websocket.Dial(ctx, "ws://"+n.address+"/api/subscribe/streams/machine/"+fleetStream+"?"+query.Encode(),
			&websocket.DialOptions{Subprotocols: []string{"backbone.v1", "bearer." + r.fleet.tokens["auditor"]}})
		cancel()
		if err != nil {
			if response != nil && response.StatusCode < 500 && response.StatusCode != http.StatusSwitchingProtocols {
				return err
			}
			_ = r.waitAfter(nil)
			continue
		}
		conn.SetReadLimit(4 << 20)
		err = r.readFeed(conn, &next)
		_ = conn.CloseNow()
		if err != nil {
			return err
		}
	}
	return nil
}

var errUnknownMessage = errors.New("a message that no feed sends")

func (r *readers) readFeed(conn *websocket.Conn, next *int) error {
	for {
		ctx, cancel := context.WithTimeout(r.ctx, feedSilence)
		_, text, err := conn.Read(ctx)
		cancel()
		if err != nil {
			return nil //nolint:nilerr // continues at the next node
		}
		var m struct {
			Type  string      `json:"type"`
			Event placedEvent `json:"event"`
		}
		if err := json.Unmarshal(text, &m); err != nil {
			return err
		}
		switch m.Type {
		case "event":
			r.stream.recordFeedEvent(&m.Event)
			*next = m.Event.Stream.Version + 1
		case "heartbeat", "caughtUp", "error":
		default:
			return errUnknownMessage
		}
	}
}
