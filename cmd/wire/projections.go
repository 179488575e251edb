package wire

import (
	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/projector"
	"github.com/erpbackbone/backbone/ports"
)

// project makes the runner of the projections, after the watch.
func (a *App) project(handlers map[string]ports.ProjectionHandler, clock ports.Clock, o Options) (err error) {
	c := a.Config.Projector
	a.operations = projector.NewOperations(projector.OperationsConfig{
		Store: a.Store, Register: a.Store, Letters: a.Store, Leases: a.Store.Leases(), Clock: clock,
		Declared: a.Catalog.Projections, Handlers: handlers, Wake: func() { a.Runner.Wake() },
	})
	upcast := a.upcast(handlers)
	a.rebuilds = projector.NewRebuilds(projector.RebuildsConfig{
		Store: a.Store, Register: a.Store, Versions: a.Store, Clock: clock, Logger: a.Logger, Declared: a.Catalog.Projections, Handlers: upcast,
		Tables: tablesOf(handlers), Wake: func() { a.Runner.Wake() }, MaxBehind: uint64(c.SwitchWithin), ByHand: c.Switch == "manual",
	})
	a.Runner, err = projector.New(projector.Config{
		Store: a.Store, Register: a.Store, Versions: a.Store, Leases: a.Store.Leases(), Heads: a.Watch, Node: nodeID(a.Config),
		Logger: a.Logger, Clock: clock, Observer: o.Observers.Projection,
		Batch: c.Batch, Workers: c.Workers, Refresh: c.Poll, TTL: c.TTL, Renew: c.Renew, Stall: c.Stall,
	}, a.Catalog.Projections, upcast)
	return err
}

// tablesOf are the tables that projections write.
func tablesOf(handlers map[string]ports.ProjectionHandler) map[string][]ports.ProjectionTable {
	out := map[string][]ports.ProjectionTable{}
	for name, h := range handlers {
		if declares, ok := h.(ports.ProjectionTables); ok {
			out[name] = declares.Tables()
		}
	}
	return out
}

// projectionsReady says what is wrong with the projections; requests are served all the
// same.
func (a *App) projectionsReady(out map[string]error) {
	out["projections"] = nil
	if err := a.Runner.Health(); err != nil {
		out["projections"] = httpapi.Degraded{Err: err}
	}
}
