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

// deliveryLog is what a subscriber writes down about what reaches it.
type deliveryLog struct {
	name    string
	timeout time.Duration // of its messages; 0 for a feed, which expects no answers

	mutex              sync.Mutex
	seen               map[string]bool
	last               map[string]int64                     // sequence of the last event that was new, by key
	held               map[string]map[int64]*deliveryRecord // what a consumer has and has not answered, by key and sequence
	latest             map[string]*deliveryRecord           // by event
	attempts           map[string]map[int]*deliveryRecord   // by event and attempt
	beforeSubscription map[string]bool                      // what happened before its subscription's beginning
	repeated           []repeat
	repeats            int
	first              int // repeats that claim to be first attempts
	violations         []string
}

// deliveryRecord is one time that an event was handed out.
type deliveryRecord struct {
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
	earlier, later *deliveryRecord
}

func newDeliveryLog(name string, timeout time.Duration) *deliveryLog {
	return &deliveryLog{
		name: name, timeout: timeout,
		seen: map[string]bool{}, last: map[string]int64{}, held: map[string]map[int64]*deliveryRecord{}, latest: map[string]*deliveryRecord{}, attempts: map[string]map[int]*deliveryRecord{},
	}
}

func (b *deliveryLog) addViolation(format string, args ...any) {
	if len(b.violations) < 20 {
		b.violations = append(b.violations, b.name+": "+fmt.Sprintf(format, args...))
	}
}

// recordFeedEvent notes an event of a feed under the key whose order was promised.
func (b *deliveryLog) recordFeedEvent(key, id string, sequence int64) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.recordEvent(key, id, sequence, 1, nil)
}

func (b *deliveryLog) recordEvent(key, id string, sequence int64, attempt int, h *deliveryRecord) {
	earlier := b.latest[id]
	if b.latest[id] = h; b.seen[id] {
		b.repeats++
		b.repeated = append(b.repeated, repeat{id, earlier, h})
		if attempt <= 1 {
			b.first++
		}
		return
	}
	b.seen[id] = true
	if last := b.last[key]; sequence <= last {
		b.addViolation("%s: sequence %d after %d", key, sequence, last)
	}
	b.last[key] = sequence
}

// recordDelivery is what is known of an event from a poll: the store says when its time is over,
// and thereby when it began.
func (b *deliveryLog) recordDelivery(consumer string, e *delivered) *deliveryRecord {
	began := e.Delivery.Deadline.Add(-b.timeout)
	h := &deliveryRecord{consumer: consumer, from: began, at: began, until: e.Delivery.Deadline}
	if b.attempts[e.ID] == nil {
		b.attempts[e.ID] = map[int]*deliveryRecord{}
	}
	b.attempts[e.ID][e.Delivery.Attempt] = h
	return h
}

// dropExpired leaves out events whose time was over before they came: of a node, or a machine,
// that was stalled. They are delivered again, perhaps already to another consumer, so no
// who is sensible works on them.
func dropExpired(events []delivered) []delivered {
	now := time.Now()
	return slices.DeleteFunc(events, func(e delivered) bool { return !e.Delivery.Deadline.After(now) })
}

// recordOrderedPoll notes events whose order is that of legal entities, and gives those that
// came in time.
func (b *deliveryLog) recordOrderedPoll(events []delivered) []delivered {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	events = dropExpired(events)
	for i := range events {
		e := &events[i]
		b.recordEvent(e.Scope.LegalEntity, e.ID, e.sequence(), e.Delivery.Attempt, b.recordDelivery("", e))
	}
	return events
}

// recordPoll notes events that a consumer of a group was handed, and gives those that came in
// time: no other consumer may hold an earlier one of the same key.
func (b *deliveryLog) recordPoll(consumer string, events []delivered) []delivered {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	events = dropExpired(events)
	now := time.Now()
	for i := range events {
		e := &events[i]
		for sequence, h := range b.held[e.key()] {
			if sequence <= e.sequence() && h.consumer != consumer && h.until.After(now) {
				b.addViolation("%s: sequence %d was handed to %s while %s had %d", e.key(), e.sequence(), consumer, h.consumer, sequence)
			}
		}
		if b.held[e.key()] == nil {
			b.held[e.key()] = map[int64]*deliveryRecord{}
		}
		h := b.recordDelivery(consumer, e)
		b.held[e.key()][e.sequence()] = h
		b.recordEvent(e.key(), e.ID, e.sequence(), e.Delivery.Attempt, h)
	}
	return events
}

// recordWebhook notes a webhook, which tells neither its attempt nor when it was handed out,
// nor whether its answer was taken: each of that is within the time of its message.
func (b *deliveryLog) recordWebhook(e *placedEvent) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	b.recordEvent(e.key(), e.ID, e.sequence(), 2, &deliveryRecord{from: now.Add(-b.timeout), at: now, ended: now.Add(b.timeout)})
}

// recordAnswerSent notes that a consumer is about to answer, or not to answer as its manner is.
func (b *deliveryLog) recordAnswerSent(e delivered, refused bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.held[e.key()], e.sequence())
	b.attempts[e.ID][e.Delivery.Attempt].refused = refused
}

// recordAcknowledged notes that acknowledgements were confirmed but for those that were ignored.
// What another consumer received since then is still unanswered; everything else is done,
// also if the first of several equal answers did it.
func (b *deliveryLog) recordAcknowledged(events []delivered, ignored map[string]string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	for _, e := range events {
		h := b.attempts[e.ID][e.Delivery.Attempt]
		h.ended, h.taken = now, ignored[e.ID] != "other_consumer"
	}
}

func (b *deliveryLog) count() (seen, repeats int) {
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
	stall      bool // nothing was broken: a process waited for a processor or a disk
}

// outages are written down by those who break something. Locks and lost signals are not
// among them: nothing comes again because of those.
type outages struct {
	mutex sync.Mutex
	list  []outage
}

// start notes that something breaks now; it is whole again when over is called.
func (o *outages) start(what string) (over func()) {
	began := time.Now()
	return func() {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		o.list = append(o.list, outage{what: what, from: began, till: time.Now()})
	}
}

// addStall records that a process was stalled.
func (o *outages) addStall(who string, from, till time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.list = append(o.list, outage{who + " was stalled", from, till, true})
}

func (o *outages) all() []outage {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return append([]outage(nil), o.list...)
}

// verdict is why events came again, by how many did.
type verdict struct {
	refused      int            // the subscriber refused them
	stalled      int            // they were in flight when a process was stalled
	outages      map[string]int // they were under way when something broke
	unexplained  []string       // nothing explains them
	contradicted []string       // nothing could: an acknowledgement was confirmed, or their time was not over
}

// notRefused counts what came again and was neither the subscriber's own doing nor the
// machine's.
func (v *verdict) notRefused() (n int) {
	n = len(v.contradicted) + len(v.unexplained)
	for _, of := range v.outages {
		n += of
	}
	return n
}

// explainRepeats looks for what explains each repeat: the earlier time that the event was handed
// out ended in no acknowledgement because the subscriber wanted it so, or because
// something broke between then and the answer or, without an answer, the next time.
func (b *deliveryLog) explainRepeats(broken []outage) *verdict {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	v := &verdict{outages: map[string]int{}}
	for _, r := range b.repeated {
		if r.earlier == nil || r.later == nil {
			v.unexplained = append(v.unexplained, r.id)
			continue
		}
		till := r.later.at
		if e := r.earlier.ended; !e.IsZero() && e.Before(till) {
			till = e
		}
		text := fmt.Sprintf("%s: handed out at %s, again at %s, confirmed at %s", r.id, clock(r.earlier.at), clock(r.later.at), clock(r.earlier.ended))
		switch why, stall, found := outageDuring(broken, r.earlier.from, till); {
		case r.earlier.taken && r.earlier.ended.Before(r.later.from), !r.earlier.refused && r.later.from.Before(r.earlier.until):
			v.contradicted = append(v.contradicted, text)
		case r.earlier.refused:
			v.refused++
		case stall:
			v.stalled++
		case found:
			v.outages[why]++
		default:
			v.unexplained = append(v.unexplained, text)
		}
	}
	return v
}

func clock(t time.Time) string { return t.Format("15:04:05.000") }

// outageDuring finds what was broken at some moment of a time. A stall is named only
// if nothing was.
func outageDuring(broken []outage, from, till time.Time) (what string, stall, found bool) {
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

// requireExplained requires that the subscriber or an outage is the reason of everything that comes
// again, and gives how much of it the subscriber did not refuse.
func (b *deliveryLog) requireExplained(t *testing.T, broken []outage) (suffered int) {
	t.Helper()
	v := b.explainRepeats(broken)
	seen, repeats := b.count()
	t.Logf("%s: %d events, %d came again: %d refused, %d during stalls, %v", b.name, seen, repeats, v.refused, v.stalled, v.outages)
	require.Empty(t, v.contradicted, b.name)
	require.Empty(t, v.unexplained, b.name)
	return v.notRefused()
}
