package live_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// follower is somebody who comes and goes and keeps the last cursor.
type follower struct {
	name   string
	open   func(from string) (live.Source, error)
	wanted func(*event.Recorded) bool
	place  func(*event.Recorded) (string, uint64) // a line of events and the place in it
	dense  bool                                   // no place is left out

	seen map[string][]uint64
}

// Feeds connect at random moments while writers write and a legal entity joins, leave
// at random, also within a page, and go on with the last cursor: every event is seen
// exactly once and in order, and each connection is told once that it has caught up.
func TestComingAndGoingMissesAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			comeAndGo(t, seed)
		})
	}
}

func comeAndGo(t *testing.T, seed uint64) {
	const writers, batches = 4, 120
	types := []string{"till.cash.moved", "till.drawer.opened"}
	r := newRig(t, nil)
	other := r.entity(t, "others", "X")
	entities := []ports.LegalEntity{r.entity(t, tenant, "A"), r.entity(t, tenant, "B"), r.entity(t, tenant, "C")}
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
					entities = append(entities, r.entity(t, tenant, "D"))
					joining.Unlock()
				}
			}
		})
	}
	go func() { writing.Wait(); close(written) }()

	bySequence := func(e *event.Recorded) (string, uint64) { return e.Scope.LegalEntity, uint64(e.Sequence) }
	ours := func(e *event.Recorded) bool { return e.Scope.TenantID == tenant }
	followers := []*follower{}
	for i := range 4 {
		followers = append(followers, &follower{name: fmt.Sprint("all", i), dense: true, wanted: ours, place: bySequence, open: func(from string) (live.Source, error) {
			return r.feeds.All(query.AllQuery{TenantID: tenant, From: from})
		}})
	}
	followers = append(followers, &follower{name: "type", place: bySequence, wanted: func(e *event.Recorded) bool { return ours(e) && e.Type == types[1] },
		open: func(from string) (live.Source, error) {
			return r.feeds.All(query.AllQuery{TenantID: tenant, From: from, Types: types[1:]})
		}}, &follower{name: "entity", dense: true, place: bySequence, wanted: func(e *event.Recorded) bool { return ours(e) && e.Scope.LegalEntity == "B" },
		open: func(from string) (live.Source, error) {
			return r.feeds.All(query.AllQuery{TenantID: tenant, From: from, LegalEntities: []string{"B"}})
		}})
	for _, stream := range []string{"S0", "S1"} {
		followers = append(followers, &follower{name: stream, dense: true,
			wanted: func(e *event.Recorded) bool {
				return ours(e) && e.Scope.LegalEntity == "A" && e.Stream.ID == stream
			},
			place: func(e *event.Recorded) (string, uint64) { return stream, uint64(e.StreamVersion) },
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
		events, err := r.log.Store.Events(t.Context(), ports.EventQuery{Partition: le.Partition})
		require.NoError(t, err)
		for j := range events {
			for i, f := range followers {
				if f.wanted(&events[j]) {
					line, place := f.place(&events[j])
					expected[i][line] = append(expected[i][line], place)
				}
			}
		}
	}
	for i, f := range followers {
		require.Equal(t, expected[i], f.seen, f.name)
	}
}

// follow comes and goes until everything has been written and read.
func (f *follower) follow(t *testing.T, r *rig, chance *rand.Rand, written <-chan struct{}) {
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
		d := newReader()
		d.cursor = cursor
		d.leave = func(d *reader) bool {
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
		go func() { // who waits for the end of the writing is woken by it
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
		if !errors.Is(err, live.ErrLeft) {
			t.Errorf("%s: %v", f.name, err)
			return
		}
		if d.caughtUp > 1 {
			t.Errorf("%s: caught up %d times", f.name, d.caughtUp)
		}
		for i := range d.events {
			line, place := f.place(&d.events[i])
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

// However many wait, they ask nothing; what comes is read once for all of them; and
// what comes for somebody else wakes them for nothing but a look at the heads.
func TestIdleFeedsAskNothing(t *testing.T) {
	t.Parallel()
	const feeds = 200
	r := newRig(t, nil)
	// What is read once is kept for two seconds, which none may miss on a busy machine.
	r.feeds = query.NewFeeds(query.New(r.log, r.log, r.log, query.NewCursors([]byte("key"))), r.log, testkit.NewClock(time.Now()))
	mine, busy, foreign := r.entity(t, tenant, "A"), r.entity(t, tenant, "B"), r.entity(t, "others", "X")
	r.fill(t, mine, 3)
	readers := make([]*reader, feeds)
	for i := range readers {
		readers[i] = newReader()
		var source live.Source = r.all(t, query.AllQuery{LegalEntities: []string{"A"}})
		if i%2 == 1 {
			source = r.feeds.Stream(query.StreamFollowQuery{Entity: mine, Stream: event.StreamID{Type: "till", ID: "main"}})
		}
		r.serve(t, live.Feed{Transport: "test", Source: source, Sink: readers[i], Batch: 100})
	}
	for _, d := range readers {
		d.until(t, "caught up", func(d *reader) bool { return d.caughtUp == 1 && len(d.events) == 3 })
	}
	before := r.log.reads.Load()
	for range 20 {
		r.fill(t, foreign, 1)
		r.fill(t, busy, 1)
	}
	// All bells have rung when the heartbeats are there: everybody is awake and waits again.
	require.Equal(t, feeds, r.bells.ring(15*time.Second))
	for _, d := range readers {
		d.until(t, "a heartbeat", func(d *reader) bool { return d.beats == 1 })
	}
	require.Equal(t, before, r.log.reads.Load(), "idle feeds read")
	r.fill(t, mine, 1)
	for _, d := range readers {
		d.until(t, "the event", func(d *reader) bool { return len(d.events) == 4 })
	}
	require.LessOrEqual(t, r.log.reads.Load()-before, int64(2), "each feed read for itself")
}

// A reader that takes its time is read for at its own speed: at most a page ahead.
func TestASlowReaderPacesTheReading(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	le := r.entity(t, tenant, "A")
	r.fill(t, le, 2000)
	d := newReader()
	d.block = make(chan struct{})
	r.serve(t, live.Feed{Transport: "test", Source: r.all(t, query.AllQuery{}), Sink: d, Batch: 50})
	for page := 1; page <= 4; page++ {
		d.block <- struct{}{}
		d.until(t, "a page", func(d *reader) bool { return len(d.events) >= 50*page })
		d.mu.Lock()
		require.Len(t, d.events, 50*page)
		d.mu.Unlock()
		require.LessOrEqual(t, r.log.reads.Load(), int64(3+page+1))
	}
	r.fill(t, le, 1000)
	close(d.block)
	d.until(t, "everything", func(d *reader) bool { return len(d.events) == 3000 && d.caughtUp == 1 })
	for i := range d.events {
		require.EqualValues(t, i+1, d.events[i].Sequence)
	}
}

func TestAReaderThatStopsIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.fill(t, r.entity(t, tenant, "A"), 10)
	d := newReader()
	d.fail = live.TooSlow(context.DeadlineExceeded)
	err := <-r.serve(t, live.Feed{Transport: "test", Source: r.all(t, query.AllQuery{}), Sink: d, Batch: 5})
	require.Equal(t, live.CodeTooSlow, fault.CodeOf(err))
}

// watching notes what a feed goes through.
type watching struct {
	mu     sync.Mutex
	states []string
	ended  []string
}

func (w *watching) FeedState(_, _, to string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.states = append(w.states, to)
}

func (*watching) FeedDelivered(string, int, time.Duration) {}

func (w *watching) FeedEnded(_, code string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, code)
}

func TestHeartbeatsAndStates(t *testing.T) {
	t.Parallel()
	w := &watching{}
	r := newRig(t, func(c *live.Config) { c.Observer, c.Heartbeat, c.Review = w, 7*time.Second, time.Hour })
	le := r.entity(t, tenant, "A")
	r.fill(t, le, 1)
	d := newReader()
	source := r.all(t, query.AllQuery{Types: []string{"till.cash.moved"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- r.live.Run(ctx, live.Feed{Transport: "test", Source: source, Sink: d, Batch: 10})
	}()
	d.until(t, "caught up", func(d *reader) bool { return d.caughtUp == 1 && len(d.events) == 1 })
	for n := 1; n <= 3; n++ {
		testkit.Eventually(t, patience, func() bool { return r.bells.ring(7*time.Second) == 1 })
		d.until(t, "a heartbeat", func(d *reader) bool { return d.beats == n })
	}
	r.fill(t, le, 1)
	d.until(t, "the event", func(d *reader) bool { return len(d.events) == 2 })
	// What the filter leaves out moves the position, which a heartbeat tells.
	told := d.cursor
	require.NoError(t, r.write(le, "main", "till.drawer.opened", 1))
	testkit.Eventually(t, patience, func() bool {
		r.bells.ring(7 * time.Second)
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.cursor != told
	})
	behind, err := r.feeds.All(query.AllQuery{TenantID: tenant, From: d.cursor})
	require.NoError(t, err)
	heads, err := behind.Start(t.Context())
	require.NoError(t, err)
	events, _, more, err := behind.Read(t.Context(), heads, 10)
	require.NoError(t, err)
	require.Empty(t, events)
	require.False(t, more)
	cancel()
	require.ErrorIs(t, <-ended, live.ErrLeft)
	require.Equal(t, []string{live.CatchingUp, live.Idle, live.Live, live.Idle, live.Disconnected}, w.states)
	require.Equal(t, []string{""}, w.ended)
}

func TestRightsAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	clock := testkit.NewClock(time.Unix(1_700_000_000, 0))
	r := newRig(t, func(c *live.Config) { c.Clock = clock })
	r.entity(t, tenant, "A")
	d := newReader()
	looks := make(chan error)
	ended := r.serve(t, live.Feed{
		Transport: "test", Source: r.all(t, query.AllQuery{}), Sink: d, Batch: 10, Expires: clock.Now().Add(70 * time.Second),
		Review: func(context.Context) error { return <-looks },
	})
	d.until(t, "caught up", func(d *reader) bool { return d.caughtUp == 1 })
	require.Equal(t, 1, r.bells.ring(time.Minute))
	clock.Advance(time.Minute)
	looks <- nil
	// The token ends before another minute has passed.
	testkit.Eventually(t, patience, func() bool { return r.bells.ring(10*time.Second) == 1 })
	looks <- fault.New(fault.Unauthenticated, "auth.token_expired", "ask for a new one")
	require.Equal(t, "auth.token_expired", fault.CodeOf(<-ended))
}

func TestFeedsAreLimitedAndEndWithTheNode(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *live.Config) { c.PerPrincipal, c.PerNode = 2, 3 })
	r.entity(t, tenant, "A")
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
	leave[2]() // leaving twice is leaving once
	refused("a")
	d := newReader()
	ended := r.serve(t, live.Feed{Transport: "test", Source: r.all(t, query.AllQuery{}), Sink: d, Batch: 10})
	d.until(t, "caught up", func(d *reader) bool { return d.caughtUp == 1 })

	brief, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.live.Close(brief), context.Canceled, "a reader has not been told yet")
	require.Equal(t, live.CodeStopping, fault.CodeOf(<-ended))
	_, err := r.live.Enter("b")
	require.Equal(t, live.CodeStopping, fault.CodeOf(err))
	closed := make(chan error, 1)
	go func() { closed <- r.live.Close(context.Background()) }()
	leave[0]()
	select {
	case err := <-closed:
		require.Fail(t, "one is still there", "%v", err)
	default:
	}
	leave[1]()
	require.NoError(t, <-closed)
}
