package conformance

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// PublisherCursorPromise is one behaviour of every store of cursors, checked on a new
// store; T fails by FailNow, as *testing.T does.
type PublisherCursorPromise struct {
	Name  string
	Check func(t require.TestingT, s ports.PublisherCursors)
}

// PublisherCursorPromises lists what RunPublisherCursors checks.
func PublisherCursorPromises() []PublisherCursorPromise {
	return []PublisherCursorPromise{
		{"cursor begins at zero and is kept", cursorKept},
		{"publishers and partitions have separate cursors", ownCursors},
		{"lower term is fenced", lowerTermFenced},
		{"term that has not begun is fenced", unbegunTermFenced},
		{"cursor moves forward from its position only", movesFromWhereItIs},
		{"one of many moves a cursor", oneMoves},
		{"failures are counted until the next move", failuresCounted},
		{"cancelled call changes nothing", cancelledMove},
	}
}

// RunPublisherCursors checks ports.PublisherCursors: positions, terms and failures. Each
// sub-test gets an empty store.
func RunPublisherCursors(t *testing.T, newStore func(t *testing.T) ports.PublisherCursors) {
	t.Helper()
	for _, p := range PublisherCursorPromises() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			p.Check(t, newStore(t))
		})
	}
}

const publisherPartition = event.PartitionID(17)

func begin(t require.TestingT, s ports.PublisherCursors, term uint64) ports.PublisherCursor {
	c, err := s.BeginPublishing(context.Background(), "nats", publisherPartition, term)
	require.NoError(t, err)
	return c
}

func move(s ports.PublisherCursors, term uint64, from, to event.Sequence) error {
	return s.MovePublished(context.Background(), "nats", publisherPartition, term, from, to)
}

func only(t require.TestingT, s ports.PublisherCursors) ports.PublisherCursor {
	list, err := s.PublisherCursors(context.Background(), "nats")
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func cursorKept(t require.TestingT, s ports.PublisherCursors) {
	list, err := s.PublisherCursors(context.Background(), "")
	require.NoError(t, err)
	require.NotNil(t, list)
	require.Empty(t, list)
	require.Equal(t, ports.PublisherCursor{Publisher: "nats", Partition: publisherPartition, Term: 1}, begin(t, s, 1))
	require.NoError(t, move(s, 1, 0, 4))
	require.NoError(t, move(s, 1, 4, 9))
	c := only(t, s)
	require.Equal(t, event.Sequence(9), c.PublishedThrough)
	require.False(t, c.MovedAt.IsZero())
	again := begin(t, s, 1)
	require.Equal(t, c, again, "the same term begins where it was")
	require.Equal(t, event.Sequence(9), begin(t, s, 3).PublishedThrough, "and so does a later one")
}

func ownCursors(t require.TestingT, s ports.PublisherCursors) {
	ctx := context.Background()
	for i, k := range []publisherOf{{"a", 1}, {"a", 2}, {"b", 1}} {
		_, err := s.BeginPublishing(ctx, k.name, k.partition, uint64(i+1))
		require.NoError(t, err)
		require.NoError(t, s.MovePublished(ctx, k.name, k.partition, uint64(i+1), 0, event.Sequence(10*(i+1))))
	}
	all, err := s.PublisherCursors(ctx, "")
	require.NoError(t, err)
	var got []publisherOf
	for i, c := range all {
		got = append(got, publisherOf{c.Publisher, c.Partition})
		require.Equal(t, event.Sequence(10*(i+1)), c.PublishedThrough)
	}
	require.Equal(t, []publisherOf{{"a", 1}, {"a", 2}, {"b", 1}}, got)
	one, err := s.PublisherCursors(ctx, "b")
	require.NoError(t, err)
	require.Len(t, one, 1)
}

type publisherOf struct {
	name      string
	partition event.PartitionID
}

func lowerTermFenced(t require.TestingT, s ports.PublisherCursors) {
	begin(t, s, 4)
	require.NoError(t, move(s, 4, 0, 5))
	begin(t, s, 6) // another node took over
	ctx := context.Background()
	_, err := s.BeginPublishing(ctx, "nats", publisherPartition, 4)
	require.Equal(t, "publisher.fenced", fault.CodeOf(err))
	require.Equal(t, "publisher.fenced", fault.CodeOf(move(s, 4, 5, 6)), "a worker that was paused past its lease moves nothing")
	require.Equal(t, "publisher.fenced", fault.CodeOf(s.RecordPublishFailure(ctx, "nats", publisherPartition, 4, "publisher.unavailable")))
	c := only(t, s)
	require.Equal(t, event.Sequence(5), c.PublishedThrough)
	require.Equal(t, uint64(6), c.Term)
	require.Zero(t, c.Failures)
	require.NoError(t, move(s, 6, 5, 6))
}

func unbegunTermFenced(t require.TestingT, s ports.PublisherCursors) {
	require.Equal(t, "publisher.fenced", fault.CodeOf(move(s, 1, 0, 1)), "there is no cursor")
	begin(t, s, 2)
	require.Equal(t, "publisher.fenced", fault.CodeOf(move(s, 3, 0, 1)), "it has not read where the cursor is")
	require.Zero(t, only(t, s).PublishedThrough)
}

func movesFromWhereItIs(t require.TestingT, s ports.PublisherCursors) {
	begin(t, s, 1)
	require.NoError(t, move(s, 1, 0, 5))
	for _, m := range [][2]event.Sequence{{0, 5}, {4, 6}, {6, 7}, {5, 5}, {5, 4}} {
		require.Equal(t, "publisher.cursor_moved", fault.CodeOf(move(s, 1, m[0], m[1])), "from %d to %d", m[0], m[1])
	}
	require.Equal(t, event.Sequence(5), only(t, s).PublishedThrough)
}

func oneMoves(t require.TestingT, s ports.PublisherCursors) {
	begin(t, s, 1)
	for range races {
		at := only(t, s).PublishedThrough
		oneWinner(t, race(8, func(i int) (err error) {
			// A move waits only briefly for the lock on the cursor; then the caller tries again.
			for err = move(s, 1, at, at+event.Sequence(i+1)); fault.KindOf(err) == fault.Unavailable; {
				err = move(s, 1, at, at+event.Sequence(i+1))
			}
			return err
		}), "publisher.cursor_moved")
	}
}

func failuresCounted(t require.TestingT, s ports.PublisherCursors) {
	ctx := context.Background()
	begin(t, s, 1)
	for range 3 {
		require.NoError(t, s.RecordPublishFailure(ctx, "nats", publisherPartition, 1, "publisher.unavailable"))
	}
	c := only(t, s)
	require.Equal(t, 3, c.Failures)
	require.Equal(t, "publisher.unavailable", c.LastError)
	require.False(t, c.FailedAt.IsZero())
	require.Equal(t, 3, begin(t, s, 2).Failures, "another holder knows of them")
	require.NoError(t, move(s, 2, 0, 1))
	c = only(t, s)
	require.Zero(t, c.Failures)
	require.Empty(t, c.LastError)
	require.True(t, c.FailedAt.IsZero())
}

func cancelledMove(t require.TestingT, s ports.PublisherCursors) {
	begin(t, s, 1)
	ctx := cancelled()
	require.ErrorIs(t, s.MovePublished(ctx, "nats", publisherPartition, 1, 0, 5), context.Canceled)
	_, err := s.PublisherCursors(ctx, "nats")
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, only(t, s).PublishedThrough)
}
