package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("operators", 0.5, func(w *world, _ *rand.Rand) part { return &operators{world: w} })

// operators rebuild, switch, stop and resume the projection while it is read, and rotate keys.
type operators struct {
	world    *world
	operator ports.Principal
	proven   bool // that a reset and a rebuild come to their end
}

func (o *operators) prepare(ctx context.Context) (err error) {
	o.operator, err = o.world.enroll(ctx, "p-operator", event.Human, "operator")
	return err
}

func (o *operators) work() {
	r := o.world.random("operator")
	o.world.begin(func(ctx context.Context) {
		for pause(ctx, r, 3*time.Second) == nil {
			_ = o.world.request(ctx, r, func(ctx context.Context, n *run) error { return o.operate(ctx, r, n) }) // the next action follows
		}
	})
}

func (o *operators) operate(ctx context.Context, r *rand.Rand, n *run) error {
	by := projections.Decider{By: o.operator.PersonID, Tenant: tenantID}
	order := projections.Order{Name: balances, Decider: by}
	command := projections.Command{Name: balances, Decider: by, Reason: "test"}
	for _, le := range o.world.entities {
		command.Partitions = append(command.Partitions, le.Partition)
	}
	var err error
	switch what := r.IntN(12); what {
	case 0, 1:
		_, err = n.services.Rebuilds.Start(ctx, order, r.Float64() < 0.7)
	case 2:
		_, err = n.services.Rebuilds.Switch(ctx, order)
	case 3:
		_, err = n.services.Rebuilds.Rollback(ctx, order)
	case 4:
		_, err = n.services.Rebuilds.Cancel(ctx, order)
	case 5:
		_, err = n.services.Rebuilds.TakeSnapshot(ctx, order)
	case 6:
		command.Action = projection.Pause
		err = n.services.Operations.Do(ctx, command)
	case 7:
		command.Action = projection.Reset
		command.Partition = o.world.entities[r.IntN(len(o.world.entities))].Partition
		err = n.services.Operations.Do(ctx, command)
	case 8:
		_, err = n.services.Rotation.Rotate(ctx, tenantID, nil)
	default:
		command.Action = projection.Resume
		err = n.services.Operations.Do(ctx, command)
	}
	return err
}

// settle resumes the projection.
func (o *operators) settle(ctx context.Context) error {
	r := o.world.random("settling operator")
	err := eventually(ctx, func() error {
		err := o.world.request(ctx, r, func(ctx context.Context, n *run) error {
			return n.services.Operations.Do(ctx, projections.Command{Name: balances, Decider: projections.Decider{By: o.operator.PersonID, Tenant: tenantID}, Action: projection.Resume, Reason: "end"})
		})
		if isUncertain(err) {
			return err
		}
		return nil // it runs, or may not be resumed
	})
	if err != nil || o.proven {
		return err
	}
	o.proven = true
	return o.proveRepairs(ctx, r)
}

// proveRepairs resets the projection and rebuilds it while nothing happens that would wake a node, and
// waits until both have read everything.
func (o *operators) proveRepairs(ctx context.Context, r *rand.Rand) error {
	by := projections.Decider{By: o.operator.PersonID, Tenant: tenantID}
	reset := projections.Command{Name: balances, Decider: by, Reason: "test", Action: projection.Reset, Partition: o.world.entities[0].Partition}
	order := projections.Order{Name: balances, Decider: by}
	// A call that began while things failed may still fail, and take others with it.
	err := o.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		_, _ = n.services.Rebuilds.Cancel(ctx, order) // there may be no rebuild
		return n.services.Operations.Do(ctx, reset)
	})
	if err == nil {
		err = eventually(ctx, func() error { return o.world.caughtUp(ctx) })
	}
	if err == nil {
		err = o.world.retry(ctx, r, func(ctx context.Context, n *run) error {
			_, err := n.services.Rebuilds.Start(ctx, order, true)
			return err
		})
	}
	if err != nil {
		return err
	}
	return eventually(ctx, func() error {
		return o.world.request(ctx, r, func(ctx context.Context, n *run) error {
			now, err := n.services.Rebuilds.Show(ctx, balances)
			if err == nil && now.Building > 0 {
				err = fmt.Errorf("version %d of the projection does not become active", now.Building)
			}
			return err
		})
	})
}

func (o *operators) check(*books) {}
