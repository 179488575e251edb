package appender_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// pauseAppender pauses the only appender of a store after the commit of a first request, so
// that requests queue up and form one group.
func pauseAppender(t *testing.T, s *postgres.Database, p event.PartitionID) (resume func()) {
	t.Helper()
	reached, open := pgtest.Observer(s).PauseAfterCommit(t)
	plug := send(context.Background(), s, pgtest.Invoice(p, 1))
	pgtest.Receive(t, reached, "the first request's commit")
	return func() {
		open()
		require.NoError(t, (<-plug).err)
	}
}

type outcome struct {
	result ports.AppendResult
	err    error
}

// appendInOneGroup queues the requests while the only appender is paused, so that they share a
// group, and returns their results in order.
func appendInOneGroup(t *testing.T, s *postgres.Database, p event.PartitionID, requests ...ports.AppendRequest) []outcome {
	t.Helper()
	resume := pauseAppender(t, s, p)
	var wg sync.WaitGroup
	out := make([]outcome, len(requests))
	for i := range requests {
		wg.Go(func() { out[i].result, out[i].err = s.Appender.Append(context.Background(), requests[i]) })
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == len(requests) }, "the requests wait in the queue")
	resume()
	wg.Wait()
	return out
}

func TestAppend_RejectedValueFailsItsRequestOnly(t *testing.T) {
	t.Parallel()
	const secret = "ada@example.org"
	poisons := map[string]func(*ports.AppendRequest){
		"a value that no text may hold, in the first round trip":   func(r *ports.AppendRequest) { r.Events[0].Stream.ID = secret + "\xff" },
		"a value that no JSON may hold, in the second round trip":  func(r *ports.AppendRequest) { r.Events[0].Payload = []byte(`{"a":"` + secret + `"`) },
		"an unexpected constraint":                                 func(r *ports.AppendRequest) { r.Events[0].Source.Channel = "forbidden " + secret },
		"a key that is too long":                                   func(r *ports.AppendRequest) { r.Events[0].Keys = []string{secret + strings.Repeat("k", 600)} },
		"an event id that is taken":                                func(r *ports.AppendRequest) { r.Events[0].ID = takenID },
		"the same, in two requests of one group, poisons only one": nil,
	}
	for name, spoil := range poisons {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := pgtest.Database(t)
			pgtest.Execute(t, dsn, `ALTER TABLE backbone.events ADD CONSTRAINT unforeseen CHECK (source_channel NOT LIKE 'forbidden%')`)
			s := pgtest.Open(t, dsn, pgtest.SingleAppender)
			p := pgtest.NewPartitions(t, s, 1)[0]
			taken := pgtest.Invoice(p, 1)
			taken.Events[0].ID = takenID
			_, err := s.Appender.Append(t.Context(), taken)
			require.NoError(t, err)

			requests := make([]ports.AppendRequest, 20)
			for i := range requests {
				requests[i] = pgtest.Invoice(p, 1)
			}
			if spoil == nil {
				requests[7].Events[0].ID = requests[6].Events[0].ID
			} else {
				spoil(&requests[7])
			}
			for i, o := range appendInOneGroup(t, s, p, requests...) {
				if i != 7 && (spoil != nil || i != 6) {
					require.NoError(t, o.err)
					continue
				}
				if o.err == nil {
					continue // one of the two with the same id
				}
				require.Equal(t, "append.rejected_by_store", fault.CodeOf(o.err))
				for e := o.err; e != nil; e = errors.Unwrap(e) {
					require.NotContains(t, e.Error(), secret)
				}
			}
			require.Equal(t, 21, pgtest.RequireVerified(t, s, p))
		})
	}
}

var takenID = event.ID{1, 2, 3}

func TestGroup_OversizeRequestIsAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	seen := &pgtest.Groups{}
	s := pgtest.Open(t, dsn, pgtest.SingleAppender, func(c *postgres.Config) { c.Metrics = seen })
	p := pgtest.NewPartitions(t, s, 1)[0]
	big := pgtest.Invoice(p, 1)
	big.Events[0].Payload = []byte(`{"data":"` + strings.Repeat("x", 1<<20) + `"}`)
	big.Events[0].PayloadHashDone = false
	many := pgtest.Invoice(p, 600)
	requests := []ports.AppendRequest{pgtest.Invoice(p, 1), big, pgtest.Invoice(p, 1), many, pgtest.Invoice(p, 1)}
	for _, o := range appendInOneGroup(t, s, p, requests...) {
		require.NoError(t, o.err)
	}
	// The first request, the three small ones together, each large one alone.
	require.ElementsMatch(t, []int{1, 3, 1, 1}, seen.Seen())
	require.Equal(t, 605, pgtest.RequireVerified(t, s, p))
}

func TestGroup_OnePartitionPerGroup(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	seen := &pgtest.Groups{}
	s := pgtest.Open(t, dsn, pgtest.SingleAppender, func(c *postgres.Config) { c.Metrics, c.Limits.OnePartitionPerGroup = seen, true })
	p := pgtest.NewPartitions(t, s, 2)
	for _, o := range appendInOneGroup(t, s, p[0], pgtest.Invoice(p[0], 1), pgtest.Invoice(p[1], 1), pgtest.Invoice(p[0], 1), pgtest.Invoice(p[1], 1)) {
		require.NoError(t, o.err)
	}
	require.ElementsMatch(t, []int{1, 2, 2}, seen.Seen())
	require.Equal(t, 3, pgtest.RequireVerified(t, s, p[0]))
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p[1]))
}

func TestAppend_CancelledInQueueWritesNothing(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.SingleAppender)
	p := pgtest.NewPartitions(t, s, 1)[0]
	resume := pauseAppender(t, s, p)
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	abandoned := pgtest.Invoice(p, 1)
	go func() {
		_, err := s.Appender.Append(ctx, abandoned)
		given <- err
	}()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 1 })
	cancel()
	require.ErrorIs(t, <-given, context.Canceled)
	resume()
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
	_, err = s.Events.EventByID(t.Context(), p, abandoned.Events[0].ID)
	require.Equal(t, "event.not_found", fault.CodeOf(err))
	require.Equal(t, 2, pgtest.RequireVerified(t, s, p))
}

func TestQueue_FullQueueRefuses(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.SingleAppender, func(c *postgres.Config) { c.Limits.QueueRequests, c.Limits.PartitionRequests = 3, 2 })
	books := pgtest.NewPartitions(t, s, 2)
	p := books[0]
	resume := pauseAppender(t, s, p)
	answers := make(chan error, 3)
	send := func() {
		_, err := s.Appender.Append(context.Background(), pgtest.Invoice(p, 1))
		answers <- err
	}
	go send()
	go send()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 2 })
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	f, ok := fault.As(err)
	require.True(t, ok)
	require.Equal(t, "append.queue_full", f.Code)
	require.Equal(t, fault.Unavailable, f.Kind)
	require.Positive(t, f.RetryAfter)
	// The other partition has room left, until the whole queue is full.
	go func() {
		_, err := s.Appender.Append(context.Background(), pgtest.Invoice(books[1], 1))
		answers <- err
	}()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == 3 })
	_, err = s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 1))
	require.Equal(t, "append.queue_full", fault.CodeOf(err))
	resume()
	for range cap(answers) {
		require.NoError(t, <-answers)
	}
}

func TestClose_AnswersQueuedRequests(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.SingleAppender)
	p := pgtest.NewPartitions(t, s, 1)[0]
	release := pgtest.LockHead(t, dsn, p)
	observer := pgtest.Connect(t, dsn)
	answers := make(chan error, 5)
	for range cap(answers) {
		go func() {
			_, err := s.Appender.Append(context.Background(), pgtest.Invoice(p, 1))
			answers <- err
		}()
	}
	testkit.Eventually(t, pgtest.WaitLimit, func() bool { return pgtest.CountLockWaiters(t, observer) == 1 })
	closed := make(chan struct{})
	go func() {
		s.Close()
		close(closed)
	}()
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := s.Appender.Append(ctx, pgtest.Invoice(p, 1))
		return fault.CodeOf(err) == "append.shutting_down"
	})
	release()
	pgtest.Receive(t, closed, "the end of Close")
	written := 0
	for range cap(answers) {
		if err := <-answers; err == nil {
			written++
		} else {
			require.Equal(t, "append.shutting_down", fault.CodeOf(err))
		}
	}
	require.Positive(t, written)
	again := pgtest.Open(t, dsn)
	require.Equal(t, written, pgtest.RequireVerified(t, again, p))
}

func TestAppend_ConcurrentBusinessKeyIsClaimedOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	stores := []*postgres.Database{pgtest.Open(t, dsn), pgtest.Open(t, dsn)} // two nodes
	p := pgtest.NewPartitions(t, stores[0], 1)[0]
	outcomes := make([]outcome, 64)
	var wg sync.WaitGroup
	for i := range outcomes {
		r := pgtest.Invoice(p, 1)
		r.Events[0].BusinessKeys = []event.BusinessKey{{EventType: r.Events[0].Type, Key: "V-1042|2026-17", Document: r.Events[0].Stream.ID}}
		wg.Go(func() { outcomes[i].result, outcomes[i].err = stores[i%2].Appender.Append(context.Background(), r) })
	}
	wg.Wait()
	require.Equal(t, 1, pgtest.RequireVerified(t, stores[0], p))
	all, err := stores[0].Audit.ChainPage(t.Context(), p, 0, 0)
	require.NoError(t, err)
	holders := 0
	for _, o := range outcomes {
		if o.err == nil {
			continue
		}
		holders++
		f, ok := fault.As(o.err)
		require.True(t, ok)
		require.Equal(t, concurrency.CodeDuplicateKey, f.Code)
		require.Equal(t, &fault.Holder{EventID: all[0].ID.String(), DocumentID: all[0].Stream.ID, Sequence: "1"}, f.Holder)
	}
	require.Equal(t, 63, holders)
}

func TestAppend_ConcurrentExpectedVersionIsMetOnce(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	stores := []*postgres.Database{pgtest.Open(t, dsn), pgtest.Open(t, dsn)}
	p := pgtest.NewPartitions(t, stores[0], 1)[0]
	stream := event.StreamID{Type: "invoice", ID: "contested"}
	for round := range 10 {
		errs := make([]error, 16)
		var wg sync.WaitGroup
		for i := range errs {
			r := pgtest.Invoice(p, 1)
			r.Events[0].Stream = stream
			r.Streams = []concurrency.StreamExpectation{{Stream: stream, Expected: concurrency.Exactly(event.Version(round))}}
			wg.Go(func() { _, errs[i] = stores[i%2].Appender.Append(context.Background(), r) })
		}
		wg.Wait()
		winners := 0
		for _, err := range errs {
			if err == nil {
				winners++
				continue
			}
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, concurrency.CodeWrongExpectedVersion, f.Code)
			require.NotNil(t, f.Holder)
			require.NotEmpty(t, f.Holder.EventID)
		}
		require.Equal(t, 1, winners)
	}
	require.Equal(t, 10, pgtest.RequireVerified(t, stores[0], p))
}

func TestAppend_ClockSkewIsRefused(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	with := func(clock ports.Clock) *postgres.Database {
		return pgtest.Open(t, dsn, func(c *postgres.Config) { c.Clock = clock })
	}
	clock := &jumpingClock{}
	s := with(clock)
	p := pgtest.NewPartitions(t, s, 1)[0]
	refused := func(s *postgres.Database) {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.Equal(t, "append.clock_skew", fault.CodeOf(err))
		require.Equal(t, fault.Unavailable, fault.KindOf(err))
	}
	// A skew of three seconds is refused. A clock that is ahead needs more, because on a slow
	// machine the database's clock catches up before the append arrives.
	refused(with(testkit.NewClock(time.Now().Add(-3 * time.Second))))
	for _, off := range []time.Duration{-time.Hour, time.Hour} {
		clock.off.Store(int64(off))
		refused(s)
	}
	require.Zero(t, pgtest.RequireVerified(t, s, p))
	clock.off.Store(0) // the right time goes on while the append runs
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
}

func TestAppend_HeadRowIsNeverWritten(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	conn := pgtest.Connect(t, dsn)
	place := func() (tuple, author string) {
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT ctid::text, xmin::text FROM backbone.partition_heads WHERE partition_id = $1`, int32(p)).Scan(&tuple, &author))
		return tuple, author
	}
	tuple, author := place()
	for range 20 {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
	gotTuple, gotAuthor := place()
	require.Equal(t, tuple, gotTuple)
	require.Equal(t, author, gotAuthor)
}

func TestNotify_FollowsCommitWithoutContent(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	listener := pgtest.Connect(t, dsn)
	_, err := listener.Exec(t.Context(), "LISTEN event_appended")
	require.NoError(t, err)
	for range 3 {
		_, err = s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
		require.NoError(t, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.WaitLimit)
	defer cancel()
	for {
		n, err := listener.WaitForNotification(ctx)
		require.NoError(t, err)
		require.Regexp(t, `^\{"partition":[0-9]+,"sequence":"[1-3]"\}$`, n.Payload)
		// The appender's session never notifies: it would hold a lock of the cluster.
		var sender string
		require.NoError(t, pgtest.Connect(t, dsn).QueryRow(ctx, `SELECT application_name FROM pg_stat_activity WHERE pid = $1`, int32(n.PID)).Scan(&sender))
		require.Equal(t, "backbone notify", sender)
		if strings.HasSuffix(n.Payload, `"3"}`) {
			return
		}
	}
}
