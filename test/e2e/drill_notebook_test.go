package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// notebook is what a subscriber writes down about what reaches it.
type notebook struct {
	name    string
	timeout time.Duration // of its messages; 0 for a feed, which expects no answers

	mutex      sync.Mutex
	seen       map[string]bool
	last       map[string]int64              // sequence of the last event that was new, by key
	held       map[string]map[int64]*handout // what a consumer has and has not answered, by key and sequence
	latest     map[string]*handout           // by event
	attempts   map[string]map[int]*handout   // by event and attempt
	before     map[string]bool               // what happened before its subscription's beginning
	again      []repeat
	repeats    int
	first      int // repeats that claim to be first attempts
	violations []string
}

// handout is one time that an event was handed out.
type handout struct {
	consumer string
	from, at time.Time // when it was handed out: at the earliest and at the latest
	until    time.Time // when it is handed out again unless it is answered; zero: not known
	ended    time.Time // when its answer was confirmed; zero: it was not
	taken    bool      // it was, and nothing is to come again
	refused  bool      // the subscriber refused it or let it time out, as its manner is
}

// repeat is an event that came again.
type repeat struct {
	id             string
	earlier, later *handout
}

func newNotebook(name string, timeout time.Duration) *notebook {
	return &notebook{
		name: name, timeout: timeout,
		seen: map[string]bool{}, last: map[string]int64{}, held: map[string]map[int64]*handout{}, latest: map[string]*handout{}, attempts: map[string]map[int]*handout{},
	}
}

func (b *notebook) violate(format string, args ...any) {
	if len(b.violations) < 20 {
		b.violations = append(b.violations, b.name+": "+fmt.Sprintf(format, args...))
	}
}

// came notes an event of a feed under the key whose order was promised.
func (b *notebook) came(key, id string, sequence int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.note(key, id, sequence, 1, nil)
}

func (b *notebook) note(key, id string, sequence int64, attempt int, h *handout) {
	earlier := b.latest[id]
	if b.latest[id] = h; b.seen[id] {
		b.repeats++
		b.again = append(b.again, repeat{id, earlier, h})
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

// handed is what is known of an event from a poll: the store says when its time is over,
// and thereby when it began.
func (b *notebook) handed(consumer string, e *delivered) *handout {
	began := e.Delivery.Deadline.Add(-b.timeout)
	h := &handout{consumer: consumer, from: began, at: began, until: e.Delivery.Deadline}
	if b.attempts[e.ID] == nil {
		b.attempts[e.ID] = map[int]*handout{}
	}
	b.attempts[e.ID][e.Delivery.Attempt] = h
	return h
}

// inTime leaves out events whose time was over before they came: of a node, or a machine,
// that stood still. They come again, and somebody else may have them already; so nobody
// who is sensible works on them.
func inTime(events []delivered) []delivered {
	now := time.Now()
	return slices.DeleteFunc(events, func(e delivered) bool { return !e.Delivery.Deadline.After(now) })
}

// takeInOrder notes events whose order is that of legal entities, and gives those that
// came in time.
func (b *notebook) takeInOrder(events []delivered) []delivered {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	events = inTime(events)
	for i := range events {
		e := &events[i]
		b.note(e.Scope.LegalEntity, e.ID, e.sequence(), e.Delivery.Attempt, b.handed("", e))
	}
	return events
}

// take notes events that a consumer of a group was handed, and gives those that came in
// time: nobody else may have an earlier one of the same key.
func (b *notebook) take(consumer string, events []delivered) []delivered {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	events = inTime(events)
	now := time.Now()
	for i := range events {
		e := &events[i]
		for sequence, h := range b.held[e.key()] {
			if sequence <= e.sequence() && h.consumer != consumer && h.until.After(now) {
				b.violate("%s: sequence %d was handed to %s while %s had %d", e.key(), e.sequence(), consumer, h.consumer, sequence)
			}
		}
		if b.held[e.key()] == nil {
			b.held[e.key()] = map[int64]*handout{}
		}
		h := b.handed(consumer, e)
		b.held[e.key()][e.sequence()] = h
		b.note(e.key(), e.ID, e.sequence(), e.Delivery.Attempt, h)
	}
	return events
}

// received notes a webhook, which tells neither its attempt nor when it was handed out,
// nor whether its answer was taken: each of that is within the time of its message.
func (b *notebook) received(e *placedEvent) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	b.note(e.key(), e.ID, e.sequence(), 2, &handout{from: now.Add(-b.timeout), at: now, ended: now.Add(b.timeout)})
}

// gave notes that a consumer is about to answer, or not to answer as its manner is.
func (b *notebook) gave(e delivered, refused bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.held[e.key()], e.sequence())
	b.attempts[e.ID][e.Delivery.Attempt].refused = refused
}

// answered notes that acknowledgements were confirmed but for those that were ignored.
// What another consumer has meanwhile is still to be answered; everything else is over,
// also if the first of several equal answers did it.
func (b *notebook) answered(events []delivered, ignored map[string]string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	for _, e := range events {
		h := b.attempts[e.ID][e.Delivery.Attempt]
		h.ended, h.taken = now, ignored[e.ID] != "other_consumer"
	}
}

func (b *notebook) count() (seen, repeats int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.seen), b.repeats
}

func quoted(events []delivered) string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = strconv.Quote(events[i].ID)
	}
	return strings.Join(ids, ",")
}

// outage is a time in which something was broken that may lose the answer of a subscriber.
type outage struct {
	what       string
	from, till time.Time
	stall      bool // nothing was broken: somebody was not given a processor, or waited for a disk
}

// outages are written down by those who break something. Locks and lost signals are not
// among them: nothing comes again because of those.
type outages struct {
	mutex sync.Mutex
	list  []outage
}

// begin notes that something breaks now; it is whole again when over is called.
func (o *outages) begin(what string) (over func()) {
	began := time.Now()
	return func() {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		o.list = append(o.list, outage{what: what, from: began, till: time.Now()})
	}
}

// stood notes that somebody stood still.
func (o *outages) stood(who string, from, till time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.list = append(o.list, outage{who + " stood still", from, till, true})
}

func (o *outages) all() []outage {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return append([]outage(nil), o.list...)
}

// verdict is why events came again, by how many did.
type verdict struct {
	own     int            // the subscriber refused them
	stalled int            // they were under way when somebody stood still
	outages map[string]int // they were under way when something broke
	strange []string       // nothing explains them
	wrong   []string       // nothing could: an acknowledgement was confirmed, or their time was not over
}

// suffered counts what came again and was neither the subscriber's own doing nor the
// machine's.
func (v *verdict) suffered() (n int) {
	n = len(v.wrong) + len(v.strange)
	for _, of := range v.outages {
		n += of
	}
	return n
}

// judge looks for what explains each repeat: the earlier time that the event was handed
// out ended in no acknowledgement because the subscriber wanted it so, or because
// something broke between then and the answer or, without an answer, the next time.
func (b *notebook) judge(broken []outage) *verdict {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	v := &verdict{outages: map[string]int{}}
	for _, r := range b.again {
		if r.earlier == nil || r.later == nil {
			v.strange = append(v.strange, r.id)
			continue
		}
		till := r.later.at
		if e := r.earlier.ended; !e.IsZero() && e.Before(till) {
			till = e
		}
		text := fmt.Sprintf("%s: handed out at %s, again at %s, confirmed at %s", r.id, clock(r.earlier.at), clock(r.later.at), clock(r.earlier.ended))
		switch why, stall, found := during(broken, r.earlier.from, till); {
		case r.earlier.taken && r.earlier.ended.Before(r.later.from), !r.earlier.refused && r.later.from.Before(r.earlier.until):
			v.wrong = append(v.wrong, text)
		case r.earlier.refused:
			v.own++
		case stall:
			v.stalled++
		case found:
			v.outages[why]++
		default:
			v.strange = append(v.strange, text)
		}
	}
	return v
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// during finds what was broken at some moment of a time. Who stood still is named only
// if nothing was.
func during(broken []outage, from, till time.Time) (what string, stall, found bool) {
	for _, o := range broken {
		if o.from.After(till) || from.After(o.till) {
			continue
		}
		if !o.stall {
			return o.what, false, true
		}
		what, stall, found = o.what, true, true
	}
	return what, stall, found
}

// explain requires that the subscriber or an outage is the reason of everything that comes
// again, and gives how much of it the subscriber did not refuse.
func (b *notebook) explain(t *testing.T, broken []outage) (suffered int) {
	t.Helper()
	v := b.judge(broken)
	seen, repeats := b.count()
	t.Logf("%s: %d events, %d came again: %d refused, %d while somebody stood still, %v", b.name, seen, repeats, v.own, v.stalled, v.outages)
	require.Empty(t, v.wrong, b.name)
	require.Empty(t, v.strange, b.name)
	return v.suffered()
}
