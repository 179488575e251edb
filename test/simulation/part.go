package simulation

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/oracle"
)

// A part is one kind of user, operator or receiver with what it knows for certain. Each has a file
// of its own, which adds it with takesPart.
type part interface {
	// prepare sets up what the part needs, while nothing fails.
	prepare(ctx context.Context) error
	// work begins its goroutines, by world.begin.
	work()
	// settle finishes what is under way, once all nodes run and nothing fails any more.
	settle(ctx context.Context) error
	// check compares what the part knows with the books, after everything has ended.
	check(b *books)
}

// settlesLast is a part that waits for what others finish: an erasure completes after redactions whose
// approval was cut off.
type settlesLast interface{ settlesLast() }

// kind makes a part of a world, for a share of the seeds.
type kind struct {
	name  string
	share float64
	make  func(w *world, r *rand.Rand) part
}

var kinds []kind

// takesPart adds a part to the simulation, for a share of the seeds: each seed has another mix.
func takesPart(name string, share float64, make func(w *world, r *rand.Rand) part) bool {
	kinds = append(kinds, kind{name, share, make})
	return true
}

// random returns the random numbers of one user, which no other user changes.
func (w *world) random(name string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// begin runs f until it returns. Its context ends when the faults end.
func (w *world) begin(f func(ctx context.Context)) { w.working.Go(func() { f(w.underway) }) }

// pause lets a time pass that is about d.
func pause(ctx context.Context, r *rand.Rand, d time.Duration) error {
	return ports.Sleep(ctx, time.Duration((0.2+r.ExpFloat64())*float64(d)))
}

// anyNode is the process that a load balancer chooses, nil if it finds none. A node that does not move
// gets no requests any more.
func (w *world) anyNode(r *rand.Rand) *run {
	first := r.IntN(len(w.nodes))
	for i := range w.nodes {
		if n := w.nodes[(first+i)%len(w.nodes)].current(); n == nil || !n.link.isStuck() {
			return n
		}
	}
	return w.nodes[first].current()
}

// requestTimeout is how long a client waits for an answer.
const requestTimeout = 30 * time.Second

// asRequest gives a context the number of a request, so that its calls and those of other requests
// take no random numbers from each other.
func asRequest(ctx context.Context, r *rand.Rand) context.Context {
	return context.WithValue(ctx, requestKey{}, r.Uint64())
}

// request runs f on a node as a request: a client that gets no answer in time gives up.
func (w *world) request(ctx context.Context, r *rand.Rand, f func(ctx context.Context, n *run) error) error {
	n := w.anyNode(r)
	if n == nil {
		return fault.New(fault.Unavailable, "simulation.no_node", "no node answers")
	}
	ctx, cancel := context.WithTimeout(asRequest(ctx, r), requestTimeout)
	defer cancel()
	if err := n.link.pass(ctx, latency(r)); err != nil {
		return err
	}
	err := f(ctx, n)
	if lost := n.link.pass(context.WithoutCancel(ctx), latency(r)); lost != nil {
		return lost // the node died before it could answer
	}
	return err
}

// retry repeats a request until it has a definite answer: success, or a refusal that another try
// does not change.
func (w *world) retry(ctx context.Context, r *rand.Rand, f func(ctx context.Context, n *run) error) error {
	for {
		err := w.request(ctx, r, f)
		if !isUncertain(err) || ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, r, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// carryOutDecided does what the start of a node does: it carries out what calls have decided that were
// cut off. Before that no verification ends, and with it no erasure and no redaction.
func (w *world) carryOutDecided(ctx context.Context) error {
	return eventually(ctx, func() error { return w.nodes[0].current().app.RecoverDecided(ctx) })
}

// isUncertain reports whether a client has to ask again.
func isUncertain(err error) bool {
	if err == nil {
		return false
	}
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout:
		return true
	}
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// violationsShown bounds the violations of one rule that a run reports.
const violationsShown = 3

// violation says what a seed has found.
type violation struct{ rule, detail string }

// String implements fmt.Stringer.
func (v violation) String() string { return v.rule + ": " + v.detail }

// books are the logs as they are at the end, with what is wrong with them.
type books struct {
	world      *world
	partitions oracle.Books
}

// require adds a violation of a rule unless it holds.
func (w *world) require(holds bool, rule, format string, values ...any) bool {
	if !holds {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.broken[rule]++; w.broken[rule] <= violationsShown {
			w.violations = append(w.violations, violation{rule, fmt.Sprintf(format, values...)})
		}
	}
	return holds
}
