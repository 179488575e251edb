package fanout_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/fanout"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// growingLog is a log, and what knows its heads.
type growingLog struct {
	mu      sync.Mutex
	events  map[event.PartitionID][]event.Recorded
	changed chan struct{}
	lies    func([]event.Recorded) []event.Recorded // about what was read; nil: never
	payload []byte                                  // of what is written from now on
	largest int                                     // bytes of payloads in one answer
}

func newLog() *growingLog {
	return &growingLog{events: map[event.PartitionID][]event.Recorded{}, changed: make(chan struct{})}
}

func (l *growingLog) write(p event.PartitionID, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range n {
		e := event.Recorded{Skeleton: event.Skeleton{
			Partition: p, Sequence: event.Sequence(len(l.events[p]) + 1), Type: "shop.item.sold", RecordedAt: time.Now(),
			Scope: event.Scope{TenantID: "acme", LegalEntity: fmt.Sprintf("LE%d", p)}, Stream: event.StreamID{Type: "item", ID: "1"},
		}}
		e.Payload = l.payload
		e.ID = event.ID{0: byte(p), 13: byte(e.Sequence >> 16), 14: byte(e.Sequence >> 8), 15: byte(e.Sequence)}
		l.events[p] = append(l.events[p], e)
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *growingLog) Events(_ context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.events[q.Partition]
	out := all[min(int(q.After), len(all)):]
	out = out[:min(q.Limit, len(out))]
	bytes := 0
	for i := range out {
		if size := len(out[i].Payload); q.Bytes <= 0 || i == 0 || bytes+size <= q.Bytes {
			bytes += size
			continue
		}
		out = out[:i]
		break
	}
	l.largest = max(l.largest, bytes)
	if l.lies != nil {
		return l.lies(out), nil
	}
	return out, nil
}

func (l *growingLog) Heads() (map[event.PartitionID]ports.Head, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[event.PartitionID]ports.Head{}
	for p, events := range l.events {
		out[p] = ports.Head{Sequence: event.Sequence(len(events))}
	}
	return out, l.changed
}

func (l *growingLog) PartitionHeads(context.Context) (map[event.PartitionID]ports.Head, error) {
	heads, _ := l.Heads()
	return heads, nil
}

func (l *growingLog) Encode(_ context.Context, events []event.Recorded, reference bool) ([][]byte, error) {
	out := make([][]byte, len(events))
	for i, e := range events {
		out[i] = fmt.Appendf(nil, `{"sequence":"%d","reference":%t}`, e.Sequence, reference)
	}
	return out, nil
}

// broker keeps messages, leaves out those it has, and fails when the test wants it to.
type broker struct {
	mu       sync.Mutex
	stored   map[event.PartitionID][]event.Sequence
	bodies   map[event.Sequence]string // of partition 1
	disorder []string
	fail     func(messages []ports.Message) (store int, claim ports.Published, err error, broken bool)
	block    chan struct{} // closed to let Publish go on; nil: it does not wait
	blocked  chan struct{} // gets a value when Publish waits
}

func newBroker() *broker {
	return &broker{stored: map[event.PartitionID][]event.Sequence{}, bodies: map[event.Sequence]string{}}
}

func (b *broker) Publish(_ context.Context, messages []ports.Message) (ports.Published, error) {
	b.mu.Lock()
	block, blocked := b.block, b.blocked
	b.mu.Unlock()
	if block != nil {
		blocked <- struct{}{}
		<-block
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fail != nil {
		if store, claim, err, broken := b.fail(messages); broken {
			b.store(messages[:store])
			return claim, err
		}
	}
	return ports.Published{Stored: len(messages), Duplicates: b.store(messages)}, nil
}

func (b *broker) store(messages []ports.Message) (duplicates int) {
	for _, m := range messages {
		have := b.stored[m.Partition]
		switch next := event.Sequence(len(have) + 1); {
		case m.Sequence < next:
			duplicates++
		case m.Sequence > next:
			b.disorder = append(b.disorder, fmt.Sprintf("partition %d: %d came after %d", m.Partition, m.Sequence, len(have)))
			duplicates++
		default:
			b.stored[m.Partition] = append(have, m.Sequence)
			if m.Partition == 1 {
				b.bodies[m.Sequence] = string(m.Body)
			}
		}
	}
	return duplicates
}

func (b *broker) has(p event.PartitionID) event.Sequence {
	b.mu.Lock()
	defer b.mu.Unlock()
	return event.Sequence(len(b.stored[p]))
}

type inMemory = memory.Publishers

// checkedCursors are cursors that must never pass what the broker has.
type checkedCursors struct {
	*inMemory
	broker *broker // nil: not looked at

	mu     sync.Mutex
	passed []string
	fenced int
	breaks func() error // before a move; nil: none
}

func (w *checkedCursors) MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broker != nil {
		if has := w.broker.has(p); to > has {
			w.passed = append(w.passed, fmt.Sprintf("partition %d: the cursor moves to %d, the broker has %d", p, to, has))
		}
	}
	if w.breaks != nil {
		if err := w.breaks(); err != nil {
			return err
		}
	}
	err := w.inMemory.MovePublished(ctx, publisher, p, term, from, to)
	if fault.CodeOf(err) == "publisher.fenced" {
		w.fenced++
	}
	return err
}

func (w *checkedCursors) through(t *testing.T, p event.PartitionID) event.Sequence {
	t.Helper()
	list, err := w.PublisherCursors(context.Background(), "nats")
	require.NoError(t, err)
	for _, c := range list {
		if c.Partition == p {
			return c.PublishedThrough
		}
	}
	return 0
}

type fanoutFixture struct {
	log     *growingLog
	broker  *broker
	cursors *checkedCursors
	leases  *memory.Leases
}

func newFixture() *fanoutFixture {
	b := newBroker()
	return &fanoutFixture{
		log: newLog(), broker: b, leases: memory.New(memory.Config{Clock: system.Clock{}}).Leases,
		cursors: &checkedCursors{inMemory: memory.New(memory.Config{Clock: system.Clock{}}).Publishers, broker: b},
	}
}

// Times of config.
const (
	ttl          = 300 * time.Millisecond
	renewal      = ttl / 3
	firstPause   = time.Millisecond
	longestPause = 20 * time.Millisecond
	stallAfter   = 10 * ttl
)

// config is a node's, in simulated time.
func (r *fanoutFixture) config(node string) fanout.Config {
	return fanout.Config{
		Name: "nats", Node: node, Publisher: r.broker, Cursors: r.cursors, Leases: r.leases, Heads: r.log, Log: r.log, Encoder: r.log, Clock: system.Clock{},
		Limits: fanout.Limits{Batch: 16, Workers: 4},
		Timing: fanout.Timing{TTL: ttl, FirstPause: firstPause, LongestPause: longestPause, StallAfter: stallAfter},
	}
}

// run starts a node; the function it returns stops it.
func run(t *testing.T, c fanout.Config) (d *fanout.Dispatcher, stop func()) {
	t.Helper()
	d = testkit.Must(fanout.New(c))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { d.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(stop)
	return d, stop
}

// pass lets simulated time pass, and waits until the nodes have done what was due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// settled checks that everything is published without a pause, and what must hold at the end.
func (r *fanoutFixture) settled(t *testing.T, partitions ...event.PartitionID) {
	t.Helper()
	synctest.Wait()
	heads, _ := r.log.Heads()
	for _, p := range partitions {
		require.Equal(t, heads[p].Sequence, r.cursors.through(t, p), "partition %d", p)
		require.Equal(t, heads[p].Sequence, r.broker.has(p))
	}
	r.broker.mu.Lock()
	disorder := slices.Clone(r.broker.disorder)
	r.broker.mu.Unlock() // a caller that moves a cursor asks the broker while it holds its own lock
	require.Empty(t, disorder)
	r.cursors.mu.Lock()
	defer r.cursors.mu.Unlock()
	require.Empty(t, r.cursors.passed)
}

// unreliable stores some of what it gets, says less, says nothing, or says that it
// failed although it did not.
func unreliable(seed uint64) func([]ports.Message) (int, ports.Published, error, bool) {
	random := rand.New(rand.NewPCG(seed, 1))
	away := fault.New(fault.Unavailable, "publisher.unavailable", "away; wait")
	return func(m []ports.Message) (int, ports.Published, error, bool) {
		some := random.IntN(len(m) + 1)
		switch random.IntN(6) {
		case 0: // nothing happened
			return 0, ports.Published{}, away, true
		case 1: // all is stored, the answer is lost
			return len(m), ports.Published{}, away, true
		case 2: // some are stored and it says so
			return some, ports.Published{Stored: some}, away, true
		case 3: // some are stored, it knows of fewer
			return some, ports.Published{Stored: random.IntN(some + 1)}, away, true
		case 4: // it forgets the error
			return some, ports.Published{Stored: some}, nil, true
		default:
			return 0, ports.Published{}, nil, false
		}
	}
}
