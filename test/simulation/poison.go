package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("poison", 0.3, func(w *world, r *rand.Rand) part {
	p := &poison{world: w, every: event.Sequence(5 + r.IntN(40)), slow: r.Float64() * 0.1}
	w.poison = p
	return p
})

// poison is a defect in the handler of the projection: it fails at some events until it is repaired,
// and is slow at others.
type poison struct {
	world *world
	every event.Sequence
	slow  float64
	fixed bool // under the lock of the world
}

func (p *poison) prepare(context.Context) error { return nil }

func (p *poison) work() {}

// strike is what the handler does with a batch after it has written half of it.
func (p *poison) strike(ctx context.Context, r *rand.Rand, b ports.ProjectionBatch) error {
	p.world.mu.Lock()
	fixed := p.fixed
	p.world.mu.Unlock()
	if fixed {
		return nil
	}
	if r.Float64() < p.slow {
		if err := ports.Sleep(ctx, time.Duration(r.ExpFloat64()*float64(10*time.Second))); err != nil {
			return err
		}
	}
	for i := range b.Events {
		if b.Events[i].Sequence%p.every == 0 {
			return fault.New(fault.Internal, "till.handler_broken", "the handler cannot apply this event")
		}
	}
	return nil
}

// settle repairs the handler, and lets halted partitions try again.
func (p *poison) settle(ctx context.Context) error {
	p.world.mu.Lock()
	p.fixed = true
	p.world.mu.Unlock()
	var operator ports.Principal
	err := eventually(ctx, func() (err error) { // a call that began while things failed may still fail
		operator, err = p.world.enroll(ctx, "p-fixer", event.Human, "operator")
		return err
	})
	if err != nil {
		return err
	}
	r := p.world.random("fixer")
	return eventually(ctx, func() error {
		return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
			command := projections.Command{Name: balances, Decider: projections.Decider{By: operator.PersonID, Tenant: tenantID}, Reason: "repaired"}
			for _, le := range p.world.entities {
				command.Partitions = append(command.Partitions, le.Partition)
			}
			for _, le := range p.world.entities {
				command.Action, command.Partition = projection.Fix, le.Partition
				_ = n.services.Operations.Do(ctx, command) // it may not be halted
			}
			command.Action, command.Partition = projection.Resume, 0
			_ = n.services.Operations.Do(ctx, command) // it may run
			return p.world.caughtUp(ctx)
		})
	})
}

// check requires that no event waits among the dead letters of the version that is read.
func (p *poison) check(*books) {
	letters, err := p.world.database.ProjectionVersions.ListDeadLetters(context.Background(), ports.DeadLetterQuery{Kind: ports.LetterOfProjection, Name: balances, Statuses: []string{ports.LetterWaiting}})
	active, failed := p.world.database.ProjectionVersions.ActiveProjection(context.Background(), balances)
	p.world.require(err == nil && failed == nil, "dead letters", "%v %v", err, failed)
	for i := range letters {
		p.world.require(letters[i].Version != active, "repaired events are applied", "%s", fmt.Sprint(letters[i]))
	}
}
