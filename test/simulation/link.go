package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// link carries the calls of one run of a node to the ports that all nodes share. Each call takes
// simulated time, which decides the order of calls of all nodes, and may fail before or after its
// effect. No two calls end at the same nanosecond, so that a run of one seed repeats exactly.
type link struct {
	world *world
	name  string // of the node's run, such as "node-1.2"

	mu       sync.Mutex
	random   map[operation]*rand.Rand // so that one operation's calls do not change another's
	arriving map[instant]*arrivals    // calls whose fate is not drawn yet
	freezing freezing                 // what is to freeze the node
	froze    time.Time                // when the node stopped
	frozen   time.Time                // until when nothing of the node moves
	cutOff   time.Time                // until when the node and the key store do not reach each other
	dead     bool                     // killed: nothing of the node reaches anything any more
}

// errKilled is what a killed process gets; no client sees it.
var errKilled = fault.New(fault.Unavailable, "simulation.killed", "the node was killed")

// about names a call by its method and what it is about.
func about(method string, subjects ...any) operation {
	return operation{method: method, subject: fmt.Sprint(subjects...)}
}

// operation is what a call does, and for which request of a client.
type operation struct {
	method, subject string
	request         uint64 // 0: none
}

// requestKey is the key under which a context has the number of its request.
type requestKey struct{}

// draw returns the random numbers of an operation. It is called with the lock held.
func (l *link) draw(o operation) *rand.Rand {
	r := l.random[o]
	if r == nil {
		h := fnv.New64a()
		_, _ = h.Write(strconv.AppendUint([]byte(l.name+"|"+o.method+"|"+o.subject+"|"), o.request, 10)) // never fails
		r = rand.New(rand.NewPCG(l.world.seed, h.Sum64()))
		l.random[o] = r
	}
	return r
}

// freezing says that a node freezes for a time within its next call of a method that begins with a
// word, between the effect of the call and its answer.
type freezing struct {
	within string // "": any method
	lasts  time.Duration
}

// fate is what happens to a call.
type fate struct {
	before, after time.Duration // of the call's effect
	freezes       time.Duration // the node, after the call's effect
	fails         failure
}

type failure int

const (
	succeeds failure = iota
	failsBefore
	failsAfter
)

// arrival is a call that has just begun.
type arrival struct {
	goroutine int
	fate      fate
}

// arrivals are the calls of one operation that arrive at one time.
type arrivals struct{ undrawn []*arrival }

// instant is a time at which calls of one operation arrive.
type instant struct {
	operation
	at int64
}

// fateOf draws the fate of a call. Calls of one operation that arrive at the same time draw in the
// order in which their goroutines were made, because the order in which they run is chance. All
// have arrived as soon as time moves on.
func (l *link) fateOf(o operation) fate {
	a, now := &arrival{}, instant{o, time.Now().UnixNano()}
	l.mu.Lock()
	all := l.arriving[now]
	if all == nil {
		all = &arrivals{}
		l.arriving[now] = all
	}
	all.undrawn = append(all.undrawn, a)
	l.mu.Unlock()
	_ = ports.Sleep(context.Background(), time.Nanosecond) // it does not end early
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(all.undrawn) > 1 {
		a.goroutine = goroutine()
		l.mu.Unlock()
		_ = ports.Sleep(context.Background(), time.Nanosecond) // it does not end early
		l.mu.Lock()
	}
	if len(all.undrawn) > 0 { // the first that goes on draws for all
		sortBy(all.undrawn, func(a *arrival) int { return a.goroutine })
		for _, one := range all.undrawn {
			one.fate = l.drawFate(o)
		}
		all.undrawn = nil
		delete(l.arriving, now)
	}
	return a.fate
}

// drawFate is called with the lock held.
func (l *link) drawFate(o operation) fate {
	r := l.draw(o)
	f := fate{before: latency(r), after: latency(r)}
	if strings.HasPrefix(o.method, l.freezing.within) {
		f.freezes, l.freezing = l.freezing.lasts, freezing{}
	}
	now := l.world.currentWeather()
	switch n := r.Float64(); {
	case strings.HasPrefix(o.method, "KeyStore.") && l.isCutOff():
		f.fails = failsBefore
	case n < now.failures/2:
		f.fails = failsBefore
	case n < now.failures:
		f.fails = failsAfter
	case n < now.failures+now.delays/2:
		f.before += delay(r)
	case n < now.failures+now.delays:
		f.after += delay(r) // what was read is old when it arrives
	}
	return f
}

// goroutine is the number of the current goroutine: they are numbered as they are made.
func goroutine() (n int) {
	var text [32]byte
	_, _ = fmt.Sscanf(string(text[:runtime.Stack(text[:], false)]), "goroutine %d ", &n) // it has this form
	return n
}

// latency is about a millisecond, with a long tail.
func latency(r *rand.Rand) time.Duration {
	return 20*time.Microsecond + time.Duration(r.ExpFloat64()*float64(400*time.Microsecond))
}

// longestDelay is how long a slow port takes.
const longestDelay = 8 * time.Second

func delay(r *rand.Rand) time.Duration { return time.Duration(r.Int64N(int64(longestDelay))) }

// call runs f as a call of the node. lost says that the node does not learn the result, whatever
// f did.
func (l *link) call(ctx context.Context, o operation, f func() error) (lost bool, err error) {
	if l.isDead() {
		return true, errKilled
	}
	o.request, _ = ctx.Value(requestKey{}).(uint64)
	fate := l.fateOf(o)
	defer func() {
		if !l.isDead() {
			l.world.record(l.name, o, err)
		}
	}()
	if err := l.pass(ctx, fate.before); err != nil {
		return true, err
	}
	if fate.fails == failsBefore {
		return true, unavailable(o.method, false)
	}
	if err = f(); err != nil {
		return l.isDead(), err
	}
	l.freeze(fate.freezes)
	if err := l.pass(context.WithoutCancel(ctx), fate.after); err != nil {
		return true, err
	}
	if fate.fails == failsAfter {
		return true, unavailable(o.method, true)
	}
	return false, nil
}

// pass lets time go by, until ctx ends. A frozen node notices nothing before it moves again.
func (l *link) pass(ctx context.Context, d time.Duration) error {
	err := l.world.sleepAlone(ctx, d)
	l.thaw(d)
	if l.isDead() {
		return errKilled
	}
	return err
}

// sleepAlone lets a time go by that it lengthens until it ends when no other does: which of two calls
// that go on at one nanosecond is first would be chance.
func (w *world) sleepAlone(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	end := time.Now().Add(d).UnixNano()
	for ; w.ends[end]; d++ {
		end++
	}
	w.ends[end] = true
	w.mu.Unlock()
	err := ports.Sleep(ctx, d)
	w.mu.Lock()
	delete(w.ends, end)
	w.mu.Unlock()
	return err
}

// freeze stops the node for a time, as a paused virtual machine is.
func (l *link) freeze(d time.Duration) {
	if d > 0 {
		l.mu.Lock()
		l.froze = time.Now()
		l.frozen = l.froze.Add(d)
		l.mu.Unlock()
	}
}

// healthCheck is how soon a load balancer notices that a node does not move.
const healthCheck = time.Second

// isStuck reports whether the node has not moved for so long that load balancers leave it out.
func (l *link) isStuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	return now.Before(l.frozen) && now.Sub(l.froze) >= healthCheck
}

// thaw waits until the node is not frozen. What waited then moves at different times.
func (l *link) thaw(d time.Duration) {
	for {
		l.mu.Lock()
		rest := time.Until(l.frozen)
		l.mu.Unlock()
		if rest <= 0 {
			return
		}
		_ = l.world.sleepAlone(context.Background(), rest+d) // it does not end early
	}
}

// isCutOff is called with the lock held.
func (l *link) isCutOff() bool { return time.Now().Before(l.cutOff) }

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// unavailable is the fault of a store or service that does not answer.
func unavailable(method string, sent bool) error {
	if sent && method == "EventAppender.Append" {
		return fault.New(fault.Timeout, "append.outcome_unknown", "the answer of the append was lost; send the request again with its key")
	}
	return fault.New(fault.Unavailable, "store.unavailable", "%s does not answer; try again", method)
}
