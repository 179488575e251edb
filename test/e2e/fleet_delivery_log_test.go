package e2e

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/oracle"
	"github.com/erpbackbone/backbone/test/testkit"
)

// deliveryLog is what one subscriber of the fleet got, held to the rules of the simulation, and to
// those of leases: a message is delivered again after the subscriber has refused it, or after its
// lease has ended, and while a consumer has a message no other one gets a message of its key.
type deliveryLog struct {
	*oracle.Receiver
	fleet *fleet
	name  string

	mutex              sync.Mutex
	latest             map[string]*delivery           // of each event
	held               map[string]map[int64]*delivery // unanswered ones, by key and sequence
	beforeSubscription map[string]bool                // events before the start of its subscription
	repeats            int
	lost               int // repeats that the subscriber did not ask for
}

// delivery is one delivery of an event.
type delivery struct {
	consumer string
	until    time.Time // when its lease ends
	refused  bool      // the subscriber refused it, or gives no answer
}

// messageTimeout is how long a subscriber of the fleet may take for an answer. It outlasts the faults, so
// that only messages that were lost come again.
const messageTimeout = 30 * time.Second

func newDeliveryLog(f *fleet, name, order string) *deliveryLog {
	return &deliveryLog{Receiver: oracle.NewReceiver(f.rules, name, oracle.KeyOf(order)), fleet: f, name: name, latest: map[string]*delivery{}, held: map[string]map[int64]*delivery{}}
}

// recorded is an event of the API as the rules know it.
func (f *fleet) recorded(e *placedEvent) *domain.Recorded {
	out := &domain.Recorded{}
	out.ID, _ = domain.ParseID(e.ID) // a broken one is not in the log
	out.Scope.LegalEntity, out.Partition = e.Scope.LegalEntity, f.partitions[e.Scope.LegalEntity]
	out.Stream, out.Sequence = domain.StreamID{Type: e.Stream.Type, ID: e.Stream.ID}, sequenceOf(e.Sequence)
	return out
}

// recordFeedEvent records an event of a feed, which expects no answer.
func (b *deliveryLog) recordFeedEvent(e *placedEvent) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.record(e, &delivery{})
	b.Deliver(b.fleet.recorded(e))
}

// recordWebhook records an event of a webhook, which is accepted or comes again.
func (b *deliveryLog) recordWebhook(e *placedEvent, accepted bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.record(e, &delivery{refused: !accepted})
	recorded := b.fleet.recorded(e)
	if b.DeliverAgain(recorded); accepted {
		b.Accept(recorded)
	}
}

// record counts a delivery, and returns the one before it, nil if there was none.
func (b *deliveryLog) record(e *placedEvent, d *delivery) *delivery {
	before := b.latest[e.ID]
	if b.latest[e.ID] = d; before != nil {
		if b.repeats++; !before.refused {
			b.lost++
		}
	}
	return before
}

// recordPoll records deliveries to a consumer, and returns those whose lease runs: the others are
// delivered again, perhaps already to another consumer, so a consumer does not work on them.
func (b *deliveryLog) recordPoll(consumer string, events []delivered) []delivered {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	now := time.Now()
	events = slices.DeleteFunc(events, func(e delivered) bool { return !e.Delivery.Deadline.After(now) })
	for i := range events {
		e := &events[i]
		recorded, n := b.fleet.recorded(&e.placedEvent), int64(sequenceOf(e.Sequence))
		for sequence, h := range b.held[e.key()] {
			b.fleet.rules(sequence > n || h.consumer == consumer || !h.until.After(now), "one consumer has a key", "%s: %d of %s came to %s while %s had %d", b.name, n, e.key(), consumer, h.consumer, sequence)
		}
		if b.held[e.key()] == nil {
			b.held[e.key()] = map[int64]*delivery{}
		}
		d := &delivery{consumer: consumer, until: e.Delivery.Deadline}
		b.held[e.key()][n] = d
		if before := b.record(&e.placedEvent, d); before != nil {
			began := e.Delivery.Deadline.Add(-messageTimeout)
			b.fleet.rules(before.refused || !began.Before(before.until), "one consumer has a message", "%s: %d of %s came again while its lease ran until %s", b.name, n, e.key(), before.until)
			b.fleet.rules(e.Delivery.Attempt > 1, "attempts are counted", "%s: %d of %s came again as the first attempt", b.name, n, e.key())
		}
		b.Deliver(recorded)
	}
	return events
}

// recordAnswerSent records that a consumer is about to answer, or will not answer on purpose.
func (b *deliveryLog) recordAnswerSent(e delivered, refused bool) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	delete(b.held[e.key()], int64(sequenceOf(e.Sequence)))
	if d := b.latest[e.ID]; d.until.Equal(e.Delivery.Deadline) { // it was not delivered again since
		d.refused = refused
	}
}

// recordAcknowledged records confirmed acknowledgements without the ignored ones. An event that
// another consumer has received since is unanswered; all other events are done, also if an
// earlier equal answer was the one applied.
func (b *deliveryLog) recordAcknowledged(events []delivered, ignored map[string]string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for i := range events {
		if e := &events[i]; ignored[e.ID] != "other_consumer" {
			delete(b.held[e.key()], int64(sequenceOf(e.Sequence)))
			b.Done(b.fleet.partitions[e.Scope.LegalEntity], sequenceOf(e.Sequence))
		}
	}
}

// count returns how many events came, how many came again, and how many of these the subscriber did
// not ask for.
func (b *deliveryLog) count() (seen, repeats, lost int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return len(b.latest), b.repeats, b.lost
}

func quoted(events []delivered) string {
	ids := make([]string, len(events))
	for i := range events {
		ids[i] = strconv.Quote(events[i].ID)
	}
	return strings.Join(ids, ",")
}

// requireComplete requires that a subscriber has got the events of the logs that a filter selects, and
// no others.
func (b *deliveryLog) requireComplete(t *testing.T, books oracle.Books, selects func(e *domain.Recorded) bool) (events int) {
	t.Helper()
	wanted := func(e *domain.Recorded) bool { return selects(e) && !b.beforeSubscription[e.ID.String()] }
	for _, log := range books {
		for i := range log {
			if wanted(&log[i]) {
				events++
			}
		}
	}
	testkit.Eventually(t, settleTime, func() bool { seen, _, _ := b.count(); return seen >= events }, b.name, " has all of ", events)
	b.Complete(books, wanted)
	seen, repeats, lost := b.count()
	require.Equal(t, events, seen, "%s got an event that is not for it", b.name)
	t.Logf("%s: %d events, %d repeats, %d of them not asked for", b.name, seen, repeats, lost)
	return events
}
