//go:build slow

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// notebook is what a subscriber writes down about what reaches it.
type notebook struct {
	name string

	mutex      sync.Mutex
	seen       map[string]bool
	last       map[string]int64 // sequence of the last event that was new, by key
	held       map[string]map[int64]handed
	before     map[string]bool // what happened before its subscription's beginning
	repeats    int
	first      int // repeats that claim to be first attempts
	violations []string
}

// handed is an event that a consumer has and has not answered.
type handed struct {
	consumer string
	until    time.Time
}

func newNotebook(name string) *notebook {
	return &notebook{name: name, seen: map[string]bool{}, last: map[string]int64{}, held: map[string]map[int64]handed{}}
}

func (b *notebook) violate(format string, args ...any) {
	if len(b.violations) < 20 {
		b.violations = append(b.violations, b.name+": "+fmt.Sprintf(format, args...))
	}
}

// came notes an event under the key whose order was promised.
func (b *notebook) came(key, id string, sequence int64, attempt int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.note(key, id, sequence, attempt)
}

func (b *notebook) note(key, id string, sequence int64, attempt int) {
	if b.seen[id] {
		b.repeats++
		if attempt <= 1 {
			b.first++
		}
		return
	}
	b.seen[id] = true
	if last := b.last[key]; sequence <= last {
		b.violate("%s: sequence %d after %d", key, sequence, last)
	}
	b.last[key] = sequence
}

// take notes events that a consumer of a group was handed: nobody else may have an
// earlier one of the same key.
func (b *notebook) take(consumer string, events []delivered) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	for _, e := range events {
		for sequence, h := range b.held[e.key()] {
			if sequence <= e.sequence() && h.consumer != consumer && h.until.After(now) {
				b.violate("%s: sequence %d was handed to %s while %s had %d", e.key(), e.sequence(), consumer, h.consumer, sequence)
			}
		}
		if b.held[e.key()] == nil {
			b.held[e.key()] = map[int64]handed{}
		}
		b.held[e.key()][e.sequence()] = handed{consumer, e.Delivery.Deadline}
		b.note(e.key(), e.ID, e.sequence(), e.Delivery.Attempt)
	}
}

// gave notes that a consumer is about to answer.
func (b *notebook) gave(e delivered) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.held[e.key()], e.sequence())
}

func (b *notebook) count() (seen, repeats int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.seen), b.repeats
}

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

func (e *placedEvent) sequence() int64 {
	n, _ := strconv.ParseInt(e.Sequence, 10, 64) // a broken one is out of order
	return n
}

// readers are all who follow the fleet.
type readers struct {
	fleet  *fleet
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex    sync.Mutex
	failures []error

	group, ordered, clumsy, all, stream, hook *notebook
	late                                      []*notebook

	feed   sync.Mutex // the reader of the whole log is between two events
	cursor string     // where it is
}

const (
	fleetStreamEntity, fleetStream = "FLTA", "M-0"
	groupConsumers                 = 4
	pollLimit                      = 10
)

// subscribe makes all subscriptions and starts who reads them. troubled says whether
// some of them fail now and then.
func subscribe(t *testing.T, f *fleet, troubled bool) *readers {
	t.Helper()
	r := &readers{fleet: f}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	t.Cleanup(func() { r.cancel(); r.done.Wait() })
	for name, b := range map[string]**notebook{"group": &r.group, "ordered": &r.ordered, "clumsy": &r.clumsy, "all": &r.all, "stream": &r.stream, "hook": &r.hook} {
		*b = newNotebook(name)
	}
	timeout := 30_000
	if troubled {
		timeout = 3000
	}
	patience := patience(timeout)
	machines := `"event_types":["` + machineType + `"],`
	for id, more := range map[string]string{
		"group":   machines + `"settings":{"partition_by":"entity:machine",` + patience + `}`,
		"ordered": `"settings":{"partition_by":"legal_entity",` + patience + `}`,
		"clumsy":  machines + `"settings":{"partition_by":"stream",` + patience + `}`,
	} {
		f.as(t, "module", http.StatusCreated, "/api/subscriptions", fmt.Sprintf(`{"id":%q,"subscriber_type":"service","subscriber_id":"fleet",%s}`, id, more))
	}
	f.as(t, "module", http.StatusCreated, "/api/subscriptions", `{"id":"hook","subscriber_type":"webhook","subscriber_id":"fleet",`+machines+`"settings":{"partition_by":"stream",`+patience+`}}`)
	receiver := httptest.NewServer(r.receiver(troubled))
	t.Cleanup(receiver.Close)
	require.NoError(t, f.on(f.nodes[0], "module").want(http.StatusCreated, nil, "PUT", "/api/subscriptions/hook/endpoint", fmt.Sprintf(`{"url":%q}`, receiver.URL)))

	for i := range groupConsumers {
		r.run(func() error { return r.consume(r.group, i, fmt.Sprintf("c-%d", i), nil) })
	}
	r.run(func() error { return r.consume(r.ordered, 1, "", nil) })
	mishap := func(int) string { return "" }
	if troubled {
		mishap = func(n int) string {
			switch {
			case n%97 == 0:
				return "timeout"
			case n%13 == 0:
				return "nack"
			}
			return ""
		}
	}
	for i := range 2 {
		r.run(func() error { return r.consume(r.clumsy, 2+i, fmt.Sprintf("k-%d", i), mishap) })
	}
	r.run(r.followAll)
	r.run(r.followStream)
	return r
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

// stop ends all readers; what they met is in their notebooks.
func (r *readers) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	r.done.Wait()
	require.Empty(t, r.failures)
}

// consume is a consumer of a subscription that answers each event by itself, or with
// its last of a legal entity all before it where the order is that of legal entities.
func (r *readers) consume(b *notebook, first int, consumer string, mishap func(n int) string) error {
	at := "/api/subscriptions/" + b.name
	handled := 0
	for turn := first; r.ctx.Err() == nil; turn++ {
		a, err := r.fleet.ask(r.ctx, turn, "module", "GET", fmt.Sprintf("%s/poll?limit=%d&wait_ms=1000&consumer=%s", at, pollLimit, consumer), "")
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
			for _, e := range p.Events {
				b.came(e.Scope.LegalEntity, e.ID, e.sequence(), e.Delivery.Attempt)
			}
			last := map[string]delivered{}
			for _, e := range p.Events {
				last[e.Scope.LegalEntity] = e
			}
			for entity, e := range last {
				body := fmt.Sprintf(`{"event_id":%q,"sequence":%q,"legal_entity":%q}`, e.ID, e.Sequence, entity)
				if err := r.answer(turn, at+"/acknowledge", body); err != nil {
					return err
				}
			}
			continue
		}
		b.take(consumer, p.Events)
		failed := map[string]bool{} // keys: what follows is refused too, to keep its order
		answers := map[string][]string{}
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
			b.gave(e)
			answers[action] = append(answers[action], strconv.Quote(e.ID))
			if mishap == nil { // each by itself
				if err := r.settle(turn, at, consumer, answers); err != nil {
					return err
				}
			}
		}
		if err := r.settle(turn, at, consumer, answers); err != nil {
			return err
		}
	}
	return nil
}

// settle acknowledges and refuses, by what happened to the events; what timed out is not
// answered at all.
func (r *readers) settle(first int, at, consumer string, answers map[string][]string) error {
	defer clear(answers)
	if ids := strings.Join(answers[""], ","); ids != "" {
		if err := r.answer(first, at+"/acknowledge", fmt.Sprintf(`{"event_ids":[%s],"consumer":%q}`, ids, consumer)); err != nil {
			return err
		}
	}
	if ids := strings.Join(answers["nack"], ","); ids != "" {
		return r.answer(first, at+"/nack", fmt.Sprintf(`{"event_ids":[%s],"action":"retry","code":"fleet.clumsy","reason":"It fell down."}`, ids))
	}
	return nil
}

func (r *readers) answer(first int, path, body string) error {
	a, err := r.fleet.ask(r.ctx, first, "module", "POST", path, body)
	if err == nil && a.status != http.StatusOK {
		err = fmt.Errorf("%s: %s", path, a)
	}
	return err
}

// receiver takes webhooks; in trouble it refuses every seventh, and is slow with others.
func (r *readers) receiver(troubled bool) http.Handler {
	var mutex sync.Mutex
	n := 0
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		var body struct {
			Data placedEvent `json:"data"`
		}
		err := json.NewDecoder(q.Body).Decode(&body)
		mutex.Lock()
		n++
		fails := troubled && n%7 == 0
		hangs := troubled && n%211 == 0
		mutex.Unlock()
		switch {
		case hangs:
			<-q.Context().Done() // the sender gives up
			return
		case fails || err != nil:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.hook.came(body.Data.key(), body.Data.ID, body.Data.sequence(), 2) // a webhook does not tell its attempt
		w.WriteHeader(http.StatusNoContent)
	})
}

// silence is how long a feed may be silent before its reader takes the node for dead.
const silence = 4 * time.Second

// join makes a subscription that goes on where the feed of the whole log is.
func (r *readers) join(t *testing.T) {
	t.Helper()
	b := newNotebook(fmt.Sprintf("late-%d", len(r.late)))
	r.feed.Lock()
	r.all.mutex.Lock()
	cursor := r.cursor
	b.before = maps.Clone(r.all.seen)
	r.all.mutex.Unlock()
	r.feed.Unlock()
	a, err := r.fleet.ask(t.Context(), len(r.late), "module", "POST", "/api/subscriptions", fmt.Sprintf(
		`{"id":%q,"subscriber_type":"service","subscriber_id":"fleet","settings":{"partition_by":"legal_entity","start_from":"cursor","start_cursor":%q,%s}}`, b.name, cursor, patience(3000)))
	require.NoError(t, err)
	require.Contains(t, []int{http.StatusCreated, http.StatusOK}, a.status, a)
	r.late = append(r.late, b)
	turn := len(r.late)
	r.run(func() error { return r.consume(b, turn, "", nil) })
}

// patience is the settings of who is handed events again for as long as it takes.
func patience(timeout int) string {
	return fmt.Sprintf(`"message_timeout_ms":%d,"max_retry_count":1000,"breaker_after":0,"retry_first_ms":1,"retry_longest_ms":200`, timeout)
}

// followAll reads the whole log as server-sent events, from node to node.
func (r *readers) followAll() error {
	for turn := 0; r.ctx.Err() == nil; turn++ {
		if err := r.listen(turn); err != nil {
			return err
		}
	}
	return nil
}

// listen reads one feed to its end. An error is one that no broken connection excuses.
func (r *readers) listen(turn int) error {
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	n := r.fleet.nodes[turn%len(r.fleet.nodes)]
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, n.server()+"/api/subscribe/streams/$all", nil)
	if err != nil {
		return err
	}
	q.Header.Set("Authorization", "Bearer "+r.fleet.tokens["auditor"])
	q.Header.Set("Accept", "text/event-stream")
	if r.cursor != "" { // nobody else writes it
		q.Header.Set("Last-Event-ID", r.cursor)
	}
	a, err := (&http.Client{Transport: r.fleet.http.Transport}).Do(q)
	if err != nil {
		return r.pause(nil)
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		if a.StatusCode >= 500 {
			return r.pause(nil)
		}
		return fmt.Errorf("the feed answered %s", a.Status)
	}
	lines := bufio.NewScanner(a.Body)
	lines.Buffer(nil, 4<<20)
	id, kind, data := "", "", ""
	for lines.Scan() {
		watchdog.Reset(silence)
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
				r.all.came(e.Scope.LegalEntity, e.ID, e.sequence(), 1)
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

// pause is a short one before a reader knocks again.
func (r *readers) pause(err error) error {
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
			_ = r.pause(nil)
			continue
		}
		conn.SetReadLimit(4 << 20)
		err = r.hear(conn, &next)
		_ = conn.CloseNow()
		if err != nil {
			return err
		}
	}
	return nil
}

var errHeard = errors.New("a message that no feed sends")

func (r *readers) hear(conn *websocket.Conn, next *int) error {
	for {
		ctx, cancel := context.WithTimeout(r.ctx, silence)
		_, text, err := conn.Read(ctx)
		cancel()
		if err != nil {
			return nil //nolint:nilerr // the next node goes on
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
			r.stream.came("versions", m.Event.ID, int64(m.Event.Stream.Version), 1)
			*next = m.Event.Stream.Version + 1
		case "heartbeat", "caughtUp", "error":
		default:
			return errHeard
		}
	}
}
