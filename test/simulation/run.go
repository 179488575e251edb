package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// outcome is what one seed gave.
type outcome struct {
	Seed       uint64
	Digest     uint64 // of all calls with their times: equal for equal runs
	Calls      int
	Events     int
	Parts      []string
	Violations []string
}

// options say what a run writes down.
type options struct {
	Trace io.Writer // every call of a port; nil: none
	Logs  io.Writer // of the nodes; nil: none
}

// faultyTime is how long things go wrong in a run, and settleTime how long the nodes have to finish
// everything after that. Both are simulated. Servers record within an hour what was cut off, and
// erasures wait for that.
const (
	faultyTime = 15 * time.Second
	settleTime = recordedLater
)

// simulate runs a seed in a bubble of its own.
func simulate(t *testing.T, seed uint64, o options) outcome {
	t.Helper()
	out := outcome{Seed: seed}
	p, err := theProgram() // outside of the bubble, since all runs share it
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(*testing.T) {
		w := newWorld(p, seed)
		w.trace, w.logs = o.Trace, o.Logs
		w.run()
		for _, v := range w.violations {
			out.Violations = append(out.Violations, v.String())
		}
		out.Digest, out.Calls, out.Events = w.digest, w.calls, w.events
		for _, p := range w.parts {
			out.Parts = append(out.Parts, fmt.Sprintf("%T", p))
		}
	})
	return out
}

// run prepares the nodes and parts, lets faults happen, ends them, and checks.
func (w *world) run() {
	ctx := context.Background()
	r := w.random("world")
	for i := range 2 + r.IntN(2) {
		w.nodes = append(w.nodes, &node{world: w, name: fmt.Sprintf("node-%d", i+1), clock: &nodeClock{}})
	}
	for _, k := range kinds {
		if take := r.Float64() < k.share; take {
			w.parts = append(w.parts, k.make(w, w.random(k.name)))
		}
	}
	defer w.end()
	if err := w.prepare(ctx); err != nil {
		w.require(false, "preparation", "%v", err)
		return
	}
	var stopWork context.CancelFunc
	w.underway, stopWork = context.WithCancel(ctx)
	defer stopWork()
	for _, p := range w.parts {
		p.work()
	}
	w.begin(w.misfortune)
	_ = ports.Sleep(ctx, faultyTime) // it does not end early
	stopWork()
	w.working.Wait()
	w.calm()
	settling, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for _, n := range w.nodes {
		if err := w.restart(settling, n); err != nil {
			w.require(false, "recovery", "node %s does not start: %v", n.name, err)
			return
		}
	}
	if err := w.settle(settling); err != nil {
		w.require(false, "recovery", "%v", err)
	}
	w.awaitRecords(ctx)
	w.end()
	w.check()
}

// settle lets all parts finish, again as long as that makes events.
func (w *world) settle(ctx context.Context) error {
	if w.poison != nil { // the others wait for the projection
		if err := w.poison.settle(ctx); err != nil {
			return err
		}
	}
	for before := -1; ; {
		if err := w.carryOutDecided(ctx); err != nil {
			return err
		}
		if err := w.settleParts(ctx); err != nil {
			return err
		}
		if err := eventually(ctx, func() error { return w.caughtUp(ctx) }); err != nil {
			return err
		}
		heads, err := w.database.Events.PartitionHeads(ctx)
		if err != nil {
			return err
		}
		events := 0
		for _, le := range w.entities { // the administrative log goes on
			events += int(heads[le.Partition].Sequence)
		}
		if events == before {
			return nil
		}
		before = events
	}
}

// settleParts lets the parts finish one after the other, since some prove what holds while nothing
// else happens.
func (w *world) settleParts(ctx context.Context) error {
	for _, last := range []bool{false, true} {
		for _, p := range w.parts {
			if _, is := p.(settlesLast); is != last {
				continue
			}
			if err := p.settle(ctx); err != nil {
				return fmt.Errorf("%T does not finish: %w", p, err)
			}
		}
	}
	return nil
}

// outlasts is how long a call of a node may take that does not end with its request: at most 30
// seconds, and the delay of a slow port.
const outlasts = time.Minute

// end stops all nodes, and waits for the calls that outlast them.
func (w *world) end() {
	for _, n := range w.nodes {
		n.shutDown()
	}
	_ = ports.Sleep(context.Background(), outlasts) // it does not end early
}

func (w *world) prepare(ctx context.Context) error {
	for _, n := range w.nodes {
		if err := n.start(ctx); err != nil {
			return err
		}
	}
	app := w.nodes[0].current().app
	for _, code := range []string{"DE", "US"} {
		le, err := app.Tenancy.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: tenantID, Code: code, TimeZone: "Europe/Berlin"}, event.Actor{Type: event.System, ID: "setup", Name: "setup"})
		if err != nil {
			return err
		}
		w.entities = append(w.entities, le)
	}
	if _, err := w.enroll(ctx, "p-owner", event.Human, "admin"); err != nil { // answers for the services
		return err
	}
	writer, err := w.enroll(ctx, "p-writer", event.Human, "cashier")
	if err != nil {
		return err
	}
	w.writer = pipeline.Caller{Principal: writer, Actor: writer.Actor()}
	for _, p := range w.parts {
		if err := p.prepare(ctx); err != nil {
			return fmt.Errorf("%T: %w", p, err)
		}
	}
	return nil
}

// enroll makes a person with roles known.
func (w *world) enroll(ctx context.Context, person string, kind event.ActorType, roles ...string) (ports.Principal, error) {
	p := ports.Principal{TenantID: tenantID, PersonID: person, PrincipalID: person + "-1", ActorType: kind, RoleLabel: roles[0], Roles: roles}
	if kind != event.Human {
		p.Binding = ports.Binding{ResponsiblePerson: "p-owner", Modules: []string{"till"}}
	}
	app := w.nodes[0].current().app
	if _, err := app.Tenancy.Enroll(ctx, p); err != nil && fault.CodeOf(err) != "principal.duplicate" {
		return p, err
	}
	return app.Principals.PrincipalByPerson(ctx, tenantID, person)
}

// deposit writes a movement, for parts that prove something while nothing fails.
func (w *world) deposit(ctx context.Context, r *rand.Rand, le ports.LegalEntity, key string) error {
	return w.retry(ctx, r, func(ctx context.Context, n *run) error {
		_, err := n.app.Pipeline.Submit(ctx, w.writer, pipeline.Request{Type: moveIntent, LegalEntity: le, Payload: json.RawMessage(`{"till":"T0","amount":1}`), IdempotencyKey: key})
		return err
	})
}

// freezesWithin are the calls in which nodes freeze: any, and often in a transaction.
var freezesWithin = []string{"", "", "Handler.Apply", "DeliveryTx"}

// misfortune kills, freezes and confuses nodes, and changes how often ports fail.
func (w *world) misfortune(ctx context.Context) {
	r := w.random("misfortune")
	severity := r.Float64()
	for pause(ctx, r, 2500*time.Millisecond) == nil {
		n := w.nodes[r.IntN(len(w.nodes))]
		switch what := r.Float64(); {
		case what < 0.2:
			n.kill()
			if pause(ctx, r, 3*time.Second) != nil {
				return
			}
			w.startAgain(ctx, r, n)
		case what < 0.3:
			n.shutDown()
			w.startAgain(ctx, r, n)
		case what < 0.5:
			n.freeze(freezing{freezesWithin[r.IntN(len(freezesWithin))], time.Duration(r.ExpFloat64() * float64(10*time.Second))})
		case what < 0.6:
			n.clock.set(time.Duration((r.Float64() - 0.5) * float64(4*time.Second)))
		case what < 0.68:
			n.cutOff(time.Duration(r.ExpFloat64() * float64(15*time.Second)))
		default:
			w.mu.Lock()
			w.state = weather{failures: severity * 0.2 * r.Float64() * r.Float64(), delays: severity * 0.02 * r.Float64()}
			w.mu.Unlock()
		}
	}
}

// startAgain starts a node, again and again until it runs.
func (w *world) startAgain(ctx context.Context, r *rand.Rand, n *node) {
	for ctx.Err() == nil && n.start(ctx) != nil {
		_ = pause(ctx, r, time.Second) // the loop ends with ctx
	}
}

// calm ends all faults, and waits for the calls that still have them and for the nodes that are frozen.
func (w *world) calm() {
	w.mu.Lock()
	w.state = weather{}
	w.mu.Unlock()
	rest := time.Duration(0)
	for _, n := range w.nodes {
		n.clock.set(0)
		n.cutOff(0)
		n.freeze(freezing{})
		rest = max(rest, n.frozenFor())
	}
	_ = ports.Sleep(context.Background(), rest+longestDelay) // it does not end early
}

// restart starts a node that is down.
func (w *world) restart(ctx context.Context, n *node) error {
	if n.current() != nil {
		return nil
	}
	return n.start(ctx)
}

// eventually waits until a condition holds, and fails with the settling time. It looks often at first,
// since nodes work while it waits.
func eventually(ctx context.Context, condition func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := condition()
		if err == nil {
			return nil
		}
		if ports.Sleep(ctx, wait) != nil {
			return errors.Join(errors.New("it does not come true in the time of settling"), err)
		}
	}
}
