package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var projectionPromises = []promise{
	{"EachEventIsAppliedExactlyOnceInOrder", advanceOnce},
	{"ABatchHoldsAtMostTheLimit", advanceLimit},
	{"OnlyTheAskedTypesAreHandedOver", advanceTypes},
	{"AFailedHandlerLeavesCheckpointAndReadModelUntouched", handlerFails},
	{"SeveralWorkersPassEachEventOnce", advanceRace},
	{"VersionsAndPartitionsHaveTheirOwnCheckpoints", ownCheckpoints},
	{"PartitionHeadsKnowEveryPartition", partitionHeads},
	{"RecordedAtFindsEventsOfSeveralPartitions", recordedTimes},
}

// recorder is a projection that writes one row per event, numbered by how often
// it saw the event, so that a repetition is seen in the read model.
type recorder struct {
	*book
	mu    sync.Mutex
	seen  []event.Sequence
	sizes []int
	after func() error // runs after the writes, before the end of Apply
}

func (r *recorder) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sizes = append(r.sizes, len(b.Events))
	for _, e := range b.Events {
		if err := r.readModel.Put(ctx, tx, r.le.Partition, fmt.Sprintf("%06d", e.Sequence), e.ID.String()); err != nil {
			return err
		}
		r.seen = append(r.seen, e.Sequence)
	}
	if r.after != nil {
		return r.after()
	}
	return nil
}

func (b *book) step(name string, version int, types []string, limit int) ports.ProjectionAdvance {
	return ports.ProjectionAdvance{ProjectionWork: b.work(name, version), Types: types, Limit: limit}
}

func (b *book) work(name string, version int) ports.ProjectionWork {
	return ports.ProjectionWork{Projection: name, Version: version, Partition: b.le.Partition}
}

func (r *recorder) advance(t tester, name string, limit int) (ports.Checkpoint, int) {
	t.Helper()
	c, passed, err := r.store.Advance(context.Background(), r.step(name, 1, []string{r.opened.Type, r.changed.Type}, limit), r)
	require.NoError(t, err)
	return c, passed
}

func (r *recorder) committed(t tester) map[string]string {
	t.Helper()
	rows, err := r.readModel.Committed(context.Background(), r.le.Partition)
	require.NoError(t, err)
	return rows
}

// catchUp advances until nothing is left and returns the last checkpoint.
func (r *recorder) catchUp(t *testing.T, name string, limit int) ports.Checkpoint {
	t.Helper()
	for range 100 {
		if c, passed := r.advance(t, name, limit); passed == 0 {
			return c
		}
	}
	t.Fatal("the projection does not catch up")
	return ports.Checkpoint{}
}

func advanceOnce(t *testing.T, s *suite) {
	b := s.ten(t)
	h, name := &recorder{book: b}, b.unique("projection")
	c := h.catchUp(t, name, 3)
	require.Equal(t, event.Sequence(10), c.Sequence)
	require.Equal(t, upTo(10), h.seen)
	b.write(t, b.event(s.opened, stream("1")))
	c = h.catchUp(t, name, 3)
	require.Equal(t, event.Sequence(11), c.Sequence)
	require.Equal(t, upTo(11), h.seen)
	rows := h.committed(t)
	require.Len(t, rows, 11)
	for _, e := range b.all(t) {
		require.Equal(t, e.ID.String(), rows[fmt.Sprintf("%06d", e.Sequence)])
	}
	list, err := b.store.Checkpoints(context.Background(), name, 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, b.le.Partition, list[0].Partition)
	require.Equal(t, event.Sequence(11), list[0].Sequence)
	require.Equal(t, "running", list[0].Status)
	require.Equal(t, name, list[0].Projection)
	require.Equal(t, 1, list[0].Version)
}

func advanceLimit(t *testing.T, s *suite) {
	b := s.ten(t)
	h := &recorder{book: b}
	h.catchUp(t, b.unique("projection"), 4)
	require.Equal(t, []int{4, 4, 2}, h.sizes, "a handler gets at most the limit, and is not called without events")
}

func advanceTypes(t *testing.T, s *suite) {
	b := s.newBook(t)
	for range 3 {
		b.write(t, b.event(s.closed, stream("1")), b.event(s.closed, stream("1")), b.event(s.opened, stream("1")), b.event(s.closed, stream("1")))
	}
	h, name := &recorder{book: b}, b.unique("projection") // asks for opened and changed
	c := h.catchUp(t, name, 2)
	require.Equal(t, []event.Sequence{3, 7, 11}, h.seen)
	require.Equal(t, event.Sequence(12), c.Sequence, "the checkpoint passes events of other types")
}

func handlerFails(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx := context.Background()
	h, name := &recorder{book: b}, b.unique("projection")
	c, passed := h.advance(t, name, 3)
	require.Equal(t, 3, passed)
	require.Equal(t, event.Sequence(3), c.Sequence)
	broken := errors.New("the handler broke")
	h.after = func() error { return broken }
	for range 2 {
		_, _, err := b.store.Advance(ctx, b.step(name, 1, []string{s.changed.Type}, 3), h)
		require.ErrorIs(t, err, broken)
		require.Len(t, h.committed(t), 3, "the rows of a failed batch were kept")
		list, err := b.store.Checkpoints(ctx, name, 1)
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, event.Sequence(3), list[0].Sequence, "the checkpoint moved past a failed batch")
	}
	h.after = nil
	h.catchUp(t, name, 3)
	require.Equal(t, append(append(upTo(6), 4, 5, 6), upTo(10)[3:]...), h.seen)
	require.Len(t, h.committed(t), 10)
}

func advanceRace(t *testing.T, s *suite) {
	b := s.ten(t)
	for range 5 {
		h, name := &recorder{book: b}, b.unique("projection")
		total := make([]int, 4)
		errs := race(len(total), func(i int) error {
			for {
				_, passed, err := b.store.Advance(context.Background(), b.step(name, 1, []string{s.changed.Type}, 1), h)
				if err != nil || passed == 0 {
					return err
				}
				total[i] += passed
			}
		})
		sum := 0
		for i := range errs {
			require.NoError(t, errs[i])
			sum += total[i]
		}
		require.Equal(t, 10, sum)
		require.Equal(t, upTo(10), h.seen)
	}
}

func ownCheckpoints(t *testing.T, s *suite) {
	a, b := s.ten(t), s.ten(t)
	ctx := context.Background()
	name := a.unique("projection")
	for _, c := range []struct {
		book    *book
		version int
		limit   int
	}{{a, 1, 4}, {a, 2, 3}, {b, 1, 2}} {
		h := &recorder{book: c.book}
		checkpoint, passed, err := s.store.Advance(ctx, c.book.step(name, c.version, []string{s.changed.Type}, c.limit), h)
		require.NoError(t, err)
		require.Equal(t, c.limit, passed)
		require.Equal(t, event.Sequence(c.limit), checkpoint.Sequence)
		require.Equal(t, upTo(c.limit), h.seen)
	}
	list, err := s.store.Checkpoints(ctx, name, 1)
	require.NoError(t, err)
	got := map[event.PartitionID]event.Sequence{}
	for _, c := range list {
		got[c.Partition] = c.Sequence
	}
	require.Equal(t, map[event.PartitionID]event.Sequence{a.le.Partition: 4, b.le.Partition: 2}, got)
}

func partitionHeads(t *testing.T, s *suite) {
	a, b, empty := s.ten(t), s.newBook(t), s.newBook(t)
	b.write(t, b.event(s.opened, stream("1")))
	heads, err := s.store.PartitionHeads(context.Background())
	require.NoError(t, err)
	require.Equal(t, event.Sequence(10), heads[a.le.Partition].Sequence)
	require.Equal(t, event.Sequence(1), heads[b.le.Partition].Sequence)
	require.Zero(t, heads[empty.le.Partition].Sequence)
}

func recordedTimes(t *testing.T, s *suite) {
	a, b := s.ten(t), s.newBook(t)
	b.write(t, b.event(s.opened, stream("1")))
	at := func(p event.PartitionID, n event.Sequence) ports.EventPlace {
		return ports.EventPlace{Partition: p, Sequence: n}
	}
	got, err := s.store.RecordedAt(context.Background(), []ports.EventPlace{
		at(a.le.Partition, 3), at(b.le.Partition, 1), at(a.le.Partition, 10), at(a.le.Partition, 3), // one of them twice
		at(a.le.Partition, 0), at(a.le.Partition, 11), at(b.le.Partition, 2), at(4_000_000, 1),
	})
	require.NoError(t, err)
	want := map[ports.EventPlace]time.Time{}
	for _, book := range []*book{a, b} {
		for _, e := range book.all(t) {
			if n := e.Sequence; book == b || n == 3 || n == 10 {
				want[at(book.le.Partition, n)] = e.RecordedAt
			}
		}
	}
	require.Len(t, want, 3)
	require.Equal(t, want, got)
	none, err := s.store.RecordedAt(context.Background(), nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

var wakeUpPromises = []promise{
	{"AListenerHearsThatAPartitionGrew", wakeUp},
}

// wakeUp appends until the listener hears of it, since one signal may be lost.
func wakeUp(t *testing.T, s *suite) {
	b := s.newBook(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	heard := make(chan struct{})
	var once sync.Once
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.store.Listen(ctx, func(p event.PartitionID) {
			if p == b.le.Partition {
				once.Do(func() { close(heard) })
			}
		})
	}()
	waitFor(t, heard, func() { b.write(t, b.event(s.opened, stream("1"))) })
	cancel()
	waitFor(t, ended, func() {})
}
