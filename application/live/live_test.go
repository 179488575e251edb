package live_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// reconnectingReader connects again and again with its last cursor.
type reconnectingReader struct {
	name       string
	open       func(from string) (live.Source, error)
	wanted     func(*event.Recorded) bool
	positionOf func(*event.Recorded) (string, uint64) // the ordered series that an event belongs to, and its position in it
	dense      bool                                   // positions have no gaps

	seen map[string][]uint64
}

// Readers connect at random while writers append and a legal entity is added, disconnect at
// random, also within a page, and reconnect with their last cursor. Every event is delivered
// exactly once and in order, and each connection gets one caught-up message.
func TestFeed_Reconnects(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			runReconnectingReaders(t, seed)
		})
	}
}

func runReconnectingReaders(t *testing.T, seed uint64) {
	const writers, batches = 4, 120
	types := []string{"till.cash.moved", "till.drawer.opened"}
	r := newFeedFixture(t, nil)
	other := r.createEntity(t, "others", "X")
	entities := []ports.LegalEntity{r.createEntity(t, tenant, "A"), r.createEntity(t, tenant, "B"), r.createEntity(t, tenant, "C")}
	first := entities[0]
	var joining sync.Mutex
	pick := func(n int) ports.LegalEntity {
		joining.Lock()
		defer joining.Unlock()
		return entities[n%len(entities)]
	}
	written := make(chan struct{})
	var writing sync.WaitGroup
	for w := range uint64(writers) {
		writing.Go(func() {
			chance := rand.New(rand.NewPCG(seed, w))
			for i := range batches {
				le := pick(chance.IntN(8))
				if chance.IntN(10) == 0 {
					le = other
				}
				if err := r.write(le, fmt.Sprintf("S%d", chance.IntN(3)), types[chance.IntN(2)], 1+chance.IntN(4)); err != nil {
					t.Errorf("write: %v", err)
					return
				}
				if w == 0 && i == batches/2 {
					joining.Lock()
					entities = append(entities, r.createEntity(t, tenant, "D"))
					joining.Unlock()
				}
			}
		})
	}
	go func() { writing.Wait(); close(written) }()

	bySequence := func(e *event.Recorded) (string, uint64) { return e.Scope.LegalEntity, uint64(e.Sequence) }
	ours := func(e *event.Recorded) bool { return e.Scope.TenantID == tenant }
	followers := []*reconnectingReader{}
	for i := range 4 {
		followers = append(followers, &reconnectingReader{name: fmt.Sprint("all", i), dense: true, wanted: ours, positionOf: bySequence, open: func(from string) (live.Source, error) {
			return r.feeds.All(query.AllQuery{TenantID: tenant, From: from})
		}})
	}
	followers = append(followers, &reconnectingReader{name: "type", positionOf: bySequence, wanted: func(e *event.Recorded) bool { return ours(e) && e.Type == types[1] },
		open: func(from string) (live.Source, error) {
			return r.feeds.All(query.AllQuery{TenantID: tenant, From: from, Filter: subscription.Filter{EventTypes: types[1:]}})
		}}, &reconnectingReader{name: "entity", dense: true, positionOf: bySequence, wanted: func(e *event.Recorded) bool { return ours(e) && e.Scope.LegalEntity == "B" },
		open: func(from string) (live.Source, error) {
			return r.feeds.All(query.AllQuery{TenantID: tenant, From: from, Filter: subscription.Filter{LegalEntities: []string{"B"}}})
		}})
	for _, stream := range []string{"S0", "S1"} {
		followers = append(followers, &reconnectingReader{name: stream, dense: true,
			wanted: func(e *event.Recorded) bool {
				return ours(e) && e.Scope.LegalEntity == "A" && e.Stream.ID == stream
			},
			positionOf: func(e *event.Recorded) (string, uint64) { return stream, uint64(e.StreamVersion) },
			open: func(from string) (live.Source, error) {
				q := query.StreamFollowQuery{Entity: first, Stream: event.StreamID{Type: "till", ID: stream}}
				var reached uint64
				if from != "" {
					if _, err := fmt.Sscan(from, &reached); err != nil {
						return nil, err
					}
					q.From = event.Version(reached + 1)
				}
				return r.feeds.Stream(q), nil
			}})
	}
	var following sync.WaitGroup
	for i, f := range followers {
		following.Go(func() { f.follow(t, r, rand.New(rand.NewPCG(seed, uint64(100+i))), written) })
	}
	following.Wait()

	expected := make([]map[string][]uint64, len(followers))
	for i := range expected {
		expected[i] = map[string][]uint64{}
	}
	for _, le := range append(entities, other) {
		events, err := r.log.EventReader.Events(t.Context(), ports.EventQuery{Partition: le.Partition})
		require.NoError(t, err)
		for j := range events {
			for i, f := range followers {
				if f.wanted(&events[j]) {
					line, place := f.positionOf(&events[j])
					expected[i][line] = append(expected[i][line], place)
				}
			}
		}
	}
	for i, f := range followers {
		require.Equal(t, expected[i], f.seen, f.name)
	}
}

// follow reconnects until all events are written and read.
func (f *reconnectingReader) follow(t *testing.T, r *feedFixture, chance *rand.Rand, written <-chan struct{}) {
	f.seen = map[string][]uint64{}
	cursor := ""
	for {
		last := false
		select {
		case <-written:
			last = true
		default:
		}
		takes := 1 + chance.IntN(150)
		d := &fakeSink{}
		d.cursor = cursor
		d.leave = func(d *fakeSink) bool {
			if last {
				return d.caughtUp > 0
			}
			return len(d.events) >= takes
		}
		source, err := f.open(cursor)
		if err != nil {
			t.Errorf("%s: %v", f.name, err)
			return
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // wakes readers that wait for the end of the writing
			select {
			case <-written:
				if !last {
					cancel()
				}
			case <-ctx.Done():
			}
		}()
		err = r.live.Run(ctx, live.Feed{Transport: "test", Source: source, Sink: d, Batch: 1 + chance.IntN(60)})
		cancel()
		if !errors.Is(err, live.ErrDisconnected) {
			t.Errorf("%s: %v", f.name, err)
			return
		}
		if d.caughtUp > 1 {
			t.Errorf("%s: caught up %d times", f.name, d.caughtUp)
		}
		for i := range d.events {
			line, place := f.positionOf(&d.events[i])
			if seen := f.seen[line]; f.dense && place != uint64(len(seen)+1) {
				t.Errorf("%s: %d comes after %d events of %s", f.name, place, len(seen), line)
				return
			}
			f.seen[line] = append(f.seen[line], place)
		}
		cursor = d.cursor
		if last {
			return
		}
	}
}

// Waiting feeds send no query; a new event is read once for all of them; and an event of
// another tenant only makes them compare heads.
func TestFeed_IdleReadsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const feeds = 200
		r := newFeedFixture(t, nil)
		mine, busy, foreign := r.createEntity(t, tenant, "A"), r.createEntity(t, tenant, "B"), r.createEntity(t, "others", "X")
		r.fill(t, mine, 3)
		readers := make([]*fakeSink, feeds)
		for i := range readers {
			readers[i] = &fakeSink{}
			var source live.Source = r.allFeed(t, query.AllQuery{Filter: subscription.Filter{LegalEntities: []string{"A"}}})
			if i%2 == 1 {
				source = r.feeds.Stream(query.StreamFollowQuery{Entity: mine, Stream: event.StreamID{Type: "till", ID: "main"}})
			}
			r.serve(t, live.Feed{Transport: "test", Source: source, Sink: readers[i], Batch: 100})
		}
		synctest.Wait()
		for _, d := range readers {
			d.requireCalls(t, 3, 1, 0)
		}
		before := r.log.reads.Load()
		for range 20 {
			r.fill(t, foreign, 1)
			r.fill(t, busy, 1)
		}
		// Every feed has sent its heartbeat, so every feed was awake and waits again.
		pass(15 * time.Second)
		for _, d := range readers {
			d.requireCalls(t, 3, 1, 1)
		}
		require.Equal(t, before, r.log.reads.Load(), "idle feeds read")
		r.fill(t, mine, 1)
		pass(time.Second)
		for _, d := range readers {
			d.requireCalls(t, 4, 1, 1)
		}
		require.LessOrEqual(t, r.log.reads.Load()-before, int64(2), "each feed read for itself")
	})
}

// A slow reader slows its feed down: at most one page is read ahead.
func TestFeed_SlowReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFeedFixture(t, nil)
		le := r.createEntity(t, tenant, "A")
		r.fill(t, le, 2000)
		d := &fakeSink{}
		d.block = make(chan struct{})
		r.serve(t, live.Feed{Transport: "test", Source: r.allFeed(t, query.AllQuery{}), Sink: d, Batch: 50})
		for page := 1; page <= 4; page++ {
			d.block <- struct{}{}
			synctest.Wait()
			d.requireCalls(t, 50*page, 0, 0)
			require.LessOrEqual(t, r.log.reads.Load(), int64(3+page+1))
		}
		r.fill(t, le, 1000)
		close(d.block)
		pass(time.Second)
		d.requireCalls(t, 3000, 1, 0)
		for i := range d.events {
			require.EqualValues(t, i+1, d.events[i].Sequence)
		}
	})
}

func TestFeed_StalledReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFeedFixture(t, nil)
		r.fill(t, r.createEntity(t, tenant, "A"), 10)
		d := &fakeSink{}
		d.fail = live.TooSlow(context.DeadlineExceeded)
		err := <-r.serve(t, live.Feed{Transport: "test", Source: r.allFeed(t, query.AllQuery{}), Sink: d, Batch: 5})
		require.Equal(t, live.CodeTooSlow, fault.CodeOf(err))
	})
}

// recordingObserver records the states of feeds.
type recordingObserver struct {
	mu     sync.Mutex
	states []string
	ended  []string
}

func (w *recordingObserver) FeedState(_, _, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, to)
}

func (*recordingObserver) FeedDelivered(string, int, time.Duration) {}

func (w *recordingObserver) FeedEnded(_, code string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, code)
}

func TestFeed_HeartbeatsAndStates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &recordingObserver{}
		r := newFeedFixture(t, func(c *live.Config) { c.Observer, c.Heartbeat, c.AccessCheckInterval = w, 7*time.Second, time.Hour })
		le := r.createEntity(t, tenant, "A")
		r.fill(t, le, 1)
		d := &fakeSink{}
		source := r.allFeed(t, query.AllQuery{Filter: subscription.Filter{EventTypes: []string{"till.cash.moved"}}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- r.live.Run(ctx, live.Feed{Transport: "test", Source: source, Sink: d, Batch: 10})
		}()
		synctest.Wait()
		d.requireCalls(t, 1, 1, 0)
		for n := 1; n <= 3; n++ {
			pass(7*time.Second - 1)
			d.requireCalls(t, 1, 1, n-1)
			pass(1)
			d.requireCalls(t, 1, 1, n)
		}
		r.fill(t, le, 1)
		pass(time.Second)
		d.requireCalls(t, 2, 1, 3)
		// Events that the filter leaves out move the position, which the heartbeat reports.
		reported := d.cursor
		require.NoError(t, r.write(le, "main", "till.drawer.opened", 1))
		pass(7 * time.Second)
		d.requireCalls(t, 2, 1, 4)
		require.NotEqual(t, reported, d.cursor)
		behind, err := r.feeds.All(query.AllQuery{TenantID: tenant, From: d.cursor})
		require.NoError(t, err)
		heads, err := behind.Start(t.Context())
		require.NoError(t, err)
		events, _, more, err := behind.Read(t.Context(), heads, 10)
		require.NoError(t, err)
		require.Empty(t, events)
		require.False(t, more)
		cancel()
		require.ErrorIs(t, <-ended, live.ErrDisconnected)
		require.Equal(t, []string{live.CatchingUp, live.Idle, live.Live, live.Idle, live.Disconnected}, w.states)
		require.Equal(t, []string{""}, w.ended)
	})
}

func TestFeed_AccessCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFeedFixture(t, nil)
		r.createEntity(t, tenant, "A")
		d := &fakeSink{}
		var checks atomic.Int64
		ended := r.serve(t, live.Feed{
			Transport: "test", Source: r.allFeed(t, query.AllQuery{}), Sink: d, Batch: 10, Expires: time.Now().Add(70 * time.Second),
			CheckAccess: func(context.Context) error {
				if checks.Add(1) == 2 {
					return fault.New(fault.Unauthenticated, "auth.token_expired", "ask for a new one")
				}
				return nil
			},
		})
		pass(time.Minute - 1)
		require.Zero(t, checks.Load())
		pass(1)
		require.EqualValues(t, 1, checks.Load())
		// The token expires before another minute has passed.
		pass(10*time.Second - 1)
		require.EqualValues(t, 1, checks.Load())
		pass(1)
		require.EqualValues(t, 2, checks.Load())
		require.Equal(t, "auth.token_expired", fault.CodeOf(<-ended))
	})
}

func TestEnter_LimitsAndClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFeedFixture(t, func(c *live.Config) { c.PerPrincipal, c.PerNode = 2, 3 })
		r.createEntity(t, tenant, "A")
		var leave []func()
		for _, who := range []string{"a", "a", "b"} {
			one, err := r.live.Enter(who)
			require.NoError(t, err)
			leave = append(leave, one)
		}
		refused := func(who string) {
			_, err := r.live.Enter(who)
			require.Equal(t, "feed.too_many", fault.CodeOf(err))
			require.Equal(t, fault.TooMany, fault.KindOf(err))
		}
		refused("a")
		refused("c")
		leave[2]()
		leave[2]() // calling leave twice counts once
		refused("a")
		d := &fakeSink{}
		ended := r.serve(t, live.Feed{Transport: "test", Source: r.allFeed(t, query.AllQuery{}), Sink: d, Batch: 10})
		synctest.Wait()
		d.requireCalls(t, 0, 1, 0)

		brief, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, r.live.Close(brief), context.Canceled, "a reader is not notified yet")
		require.Equal(t, live.CodeStopping, fault.CodeOf(<-ended))
		_, err := r.live.Enter("b")
		require.Equal(t, live.CodeStopping, fault.CodeOf(err))
		closed := make(chan error, 1)
		go func() { closed <- r.live.Close(context.Background()) }()
		leave[0]()
		synctest.Wait()
		select {
		case err := <-closed:
			require.Fail(t, "a feed is still open", "%v", err)
		default:
		}
		leave[1]()
		require.NoError(t, <-closed)
	})
}
