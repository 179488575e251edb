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

// deliveryLog records the deliveries to a subscriber, and those that break a promise.
type deliveryLog struct {
	name    string
	timeout time.Duration // of its messages; 0 for a feed, which expects no answers

	mutex              sync.Mutex
	seen               map[string]bool
	last               map[string]int64                     // sequence of the last event that was new, by key
	held               map[string]map[int64]*deliveryRecord // unanswered deliveries, by key and sequence
	latest             map[string]*deliveryRecord           // by event
	attempts           map[string]map[int]*deliveryRecord   // by event and attempt
	beforeSubscription map[string]bool                      // events before the start of its subscription
	repeated           []repeat
	repeats            int
	first              int // repeats that were delivered as first attempts
	violations         []string
}

// deliveryRecord is one delivery of an event.
type deliveryRecord struct {
	consumer string
	from, at time.Time // when it was delivered: at the earliest and at the latest
	until    time.Time // when it is delivered again unless it is answered; zero: unknown
	ended    time.Time // when its answer was confirmed; zero: it was not
	accepted bool      // the answer was applied: no further delivery may follow
	refused  bool      // the subscriber refused it or let it time out, as configured
}

// repeat is an event that was delivered again.
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

// recordFeedEvent records an event of a feed under the key whose order was promised.
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

// recordDelivery records an event of a poll. Its deadline also gives the time of its delivery.
func (b *deliveryLog) recordDelivery(consumer string, e *delivered) *deliveryRecord {
	began := e.Delivery.Deadline.Add(-b.timeout)
	h := &deliveryRecord{consumer: consumer, from: began, at: began, until: e.Delivery.Deadline}
	if b.attempts[e.ID] == nil {
		b.attempts[e.ID] = map[int]*deliveryRecord{}
	}
	b.attempts[e.ID][e.Delivery.Attempt] = h
	return h
}

// dropExpired leaves out events whose deadline has passed, since a node or the machine was
// stalled. They are delivered again, perhaps already to another consumer, so a consumer does
// not work on them.
func dropExpired(events []delivered) []delivered {
	now := time.Now()
	return slices.DeleteFunc(events, func(e delivered) bool { return !e.Delivery.Deadline.After(now) })
}

// recordOrderedPoll records events that are ordered by legal entity, and returns those before
// their deadline.
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

// recordPoll records deliveries to a consumer of a group, and returns those before their
// deadline: no other consumer may hold an earlier event of the same key.
func (b *deliveryLog) recordPoll(consumer string, events []delivered) []delivered {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	events = dropExpired(events)
	now := time.Now()
	for i := range events {
		e := &events[i]
		for sequence, h := range b.held[e.key()] {
			if sequence <= e.sequence() && h.consumer != consumer && h.until.After(now) {
				b.addViolation("%s: sequence %d was delivered to %s while %s had %d", e.key(), e.sequence(), consumer, h.consumer, sequence)
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

// recordWebhook records a webhook. It carries neither its attempt nor its time, and the result
// of its answer is unknown: each is assumed within the timeout of the message.
func (b *deliveryLog) recordWebhook(e *placedEvent) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	b.recordEvent(e.key(), e.ID, e.sequence(), 2, &deliveryRecord{from: now.Add(-b.timeout), at: now, ended: now.Add(b.timeout)})
}

// recordAnswerSent records that a consumer is about to answer, or will not answer as
// configured.
func (b *deliveryLog) recordAnswerSent(e delivered, refused bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.held[e.key()], e.sequence())
	b.attempts[e.ID][e.Delivery.Attempt].refused = refused
}

// recordAcknowledged records confirmed acknowledgements without the ignored ones. An event that
// another consumer has received since is unanswered; all other events are done, also if an
// earlier equal answer was the one applied.
func (b *deliveryLog) recordAcknowledged(events []delivered, ignored map[string]string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	for _, e := range events {
		h := b.attempts[e.ID][e.Delivery.Attempt]
		h.ended, h.accepted = now, ignored[e.ID] != "other_consumer"
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

// outage is a period in which a fault may have lost the answer of a subscriber.
type outage struct {
	what     string
	from, to time.Time
	stall    bool // no fault: a process waited for a processor or a disk
}

// outages are recorded by the faults. Locks and lost notifications are not among them: they
// repeat no delivery.
type outages struct {
	mutex sync.Mutex
	list  []outage
}

// start begins an outage, which ends when over is called.
func (o *outages) start(what string) (over func()) {
	began := time.Now()
	return func() {
		o.mutex.Lock()
		defer o.mutex.Unlock()
		o.list = append(o.list, outage{what: what, from: began, to: time.Now()})
	}
}

// addStall records that a process was stalled.
func (o *outages) addStall(process string, from, to time.Time) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.list = append(o.list, outage{process + " was stalled", from, to, true})
}

func (o *outages) all() []outage {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return append([]outage(nil), o.list...)
}

// verdict counts repeats by their cause.
type verdict struct {
	refused      int            // the subscriber refused them
	stalled      int            // they were in flight when a process was stalled
	outages      map[string]int // they were in flight when an outage began
	unexplained  []string       // no cause was found
	contradicted []string       // no cause could: an acknowledgement was confirmed, or the deadline had not passed
}

// notRefused counts repeats that neither the subscriber nor a stall caused.
func (v *verdict) notRefused() (n int) {
	n = len(v.contradicted) + len(v.unexplained)
	for _, of := range v.outages {
		n += of
	}
	return n
}

// explainRepeats looks for the cause of each repeat: the earlier delivery was not acknowledged,
// because the subscriber refused it, or because of an outage between that delivery and the
// answer or, without an answer, the next delivery.
func (b *deliveryLog) explainRepeats(broken []outage) *verdict {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	v := &verdict{outages: map[string]int{}}
	for _, r := range b.repeated {
		if r.earlier == nil || r.later == nil {
			v.unexplained = append(v.unexplained, r.id)
			continue
		}
		to := r.later.at
		if e := r.earlier.ended; !e.IsZero() && e.Before(to) {
			to = e
		}
		text := fmt.Sprintf("%s: delivered at %s, again at %s, confirmed at %s", r.id, clock(r.earlier.at), clock(r.later.at), clock(r.earlier.ended))
		switch why, stall, found := outageDuring(broken, r.earlier.from, to); {
		case r.earlier.accepted && r.earlier.ended.Before(r.later.from), !r.earlier.refused && r.later.from.Before(r.earlier.until):
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

// outageDuring finds an outage that overlaps a period. It returns a stall only if there is no
// other outage.
func outageDuring(broken []outage, from, to time.Time) (what string, stall, found bool) {
	for _, o := range broken {
		if o.from.After(to) || from.After(o.to) {
			continue
		}
		if !o.stall {
			return o.what, false, true
		}
		what, stall, found = o.what, true, true
	}
	return what, stall, found
}

// requireExplained requires that the subscriber, a stall or an outage caused each repeat, and
// returns how many repeats the subscriber did not refuse.
func (b *deliveryLog) requireExplained(t *testing.T, broken []outage) (suffered int) {
	t.Helper()
	v := b.explainRepeats(broken)
	seen, repeats := b.count()
	t.Logf("%s: %d events, %d repeats: %d refused, %d during stalls, %v", b.name, seen, repeats, v.refused, v.stalled, v.outages)
	require.Empty(t, v.contradicted, b.name)
	require.Empty(t, v.unexplained, b.name)
	return v.notRefused()
}

// TestExplainRepeats repeats an event for every cause, and for none.
func TestExplainRepeats(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	broken := []outage{
		{what: "stall", from: second(9), to: second(11), stall: true}, {what: "first", from: second(10), to: second(12)},
		{what: "second", from: second(20), to: second(21)}, {what: "stall", from: second(30), to: second(31), stall: true},
	}
	answered := func(from, to int, accepted bool) *deliveryRecord {
		return &deliveryRecord{from: second(from), at: second(from), ended: second(to), accepted: accepted}
	}
	open := func(from int) *deliveryRecord { return &deliveryRecord{from: second(from), at: second(from)} }
	leased := func(h *deliveryRecord, n int) *deliveryRecord { h.until = second(n); return h }
	refused := func(h *deliveryRecord) *deliveryRecord { h.refused = true; return h }
	for _, c := range []struct {
		name           string
		earlier, later *deliveryRecord
		want           verdict
	}{
		{"the answer was late because of an outage", answered(9, 13, false), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"delivered during an outage", open(11), open(14), verdict{outages: map[string]int{"first": 1}}},
		{"never answered before an outage", open(17), open(20), verdict{outages: map[string]int{"second": 1}}},
		{"between two outages", answered(13, 19, false), open(16), verdict{unexplained: []string{"E"}}},
		{"outage after the repeat explains nothing", open(5), open(8), verdict{unexplained: []string{"E"}}},
		{"answered before an outage", answered(7, 8, false), open(11), verdict{unexplained: []string{"E"}}},
		{"a process was stalled", answered(29, 33, false), open(32), verdict{stalled: 1}},
		{"a process was stalled, then an outage began", answered(9, 13, false), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"acknowledged before the stall", answered(29, 31, true), open(32), verdict{contradicted: []string{"E"}}},
		{"refused", refused(open(13)), open(16), verdict{refused: 1}},
		{"refused during an outage", refused(answered(11, 12, false)), open(12), verdict{refused: 1}},
		{"acknowledged after its next delivery", answered(9, 13, true), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"acknowledged before its next delivery, during an outage", answered(9, 11, true), open(12), verdict{contradicted: []string{"E"}}},
		{"acknowledged before its next delivery by a consumer that refuses", refused(answered(1, 2, true)), open(3), verdict{contradicted: []string{"E"}}},
		{"before its deadline, during an outage", leased(open(10), 13), open(12), verdict{contradicted: []string{"E"}}},
		{"before its deadline, refused", refused(leased(open(10), 13)), open(12), verdict{refused: 1}},
		{"at its deadline", leased(open(10), 13), open(13), verdict{outages: map[string]int{"first": 1}}},
		{"a feed", nil, nil, verdict{unexplained: []string{"E"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newDeliveryLog("reader", hastyTimeout)
			b.recordEvent("key", "E", 1, 1, c.earlier)
			b.recordEvent("key", "E", 1, 2, c.later)
			got := b.explainRepeats(broken)
			require.Equal(t, c.want.refused, got.refused)
			require.Equal(t, c.want.stalled, got.stalled)
			require.Len(t, got.outages, len(c.want.outages))
			for what, n := range c.want.outages {
				require.Equal(t, n, got.outages[what])
			}
			require.Len(t, got.contradicted, len(c.want.contradicted))
			require.Len(t, got.unexplained, len(c.want.unexplained))
			require.Equal(t, 1-c.want.refused-c.want.stalled, got.notRefused())
		})
	}
}

// TestDeliveryLog delivers an event to three consumers, of which the first answers too late.
func TestDeliveryLog(t *testing.T) {
	b := newDeliveryLog("reader", hastyTimeout)
	now := time.Now()
	times := func(attempt int, deadline time.Time) (e delivered) {
		e.ID, e.Sequence = "E", "7"
		e.Delivery.Attempt, e.Delivery.Deadline = attempt, deadline
		return e
	}
	first, second := times(1, now.Add(time.Minute)), times(2, now.Add(2*time.Minute))
	require.Len(t, b.recordPoll("a", []delivered{first}), 1)
	require.Empty(t, b.recordPoll("a", []delivered{times(1, now)}), "its deadline passed before the poll returned")
	require.Empty(t, b.recordOrderedPoll([]delivered{times(1, now)}))
	b.recordAnswerSent(first, false)
	b.recordPoll("b", []delivered{second})
	b.recordAcknowledged([]delivered{first}, map[string]string{"E": "other_consumer"})
	require.Len(t, b.explainRepeats(nil).unexplained, 1)
	from := first.Delivery.Deadline.Add(-hastyTimeout)
	require.Equal(t, map[string]int{"a crash": 1}, b.explainRepeats([]outage{{what: "a crash", from: from.Add(-time.Minute), to: from}}).outages)
	b.recordAnswerSent(second, false)
	b.recordAcknowledged([]delivered{second}, nil)
	require.Empty(t, b.explainRepeats(nil).contradicted)
	b.recordPoll("c", []delivered{times(3, time.Now().Add(2*time.Minute))})
	require.Len(t, b.explainRepeats(nil).contradicted, 1)
	require.Empty(t, b.violations)
}
