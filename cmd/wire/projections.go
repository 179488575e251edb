package wire

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// composeProjections composes the projections, their rebuilds and their operations. They wait
// for the head watcher, which must exist.
func (a *App) composeProjections(handlers map[string]ports.ProjectionHandler, clock ports.Clock) (err error) {
	c := a.config.Projector
	decisions := administration.NewProjections(a.administration, a.actorOf)
	a.custom, err = custom.New(custom.Config{
		Compiler: jq.NewWithLimits(foldLimits()), Rows: a.Store.ProjectionRows, Register: a.Store.ProjectionVersions, Decisions: decisions, Entities: a.Store.Directory, Events: upcasting.UpcastReader(a.Store.Events, a.Upcaster),
		Upcast: func(h ports.ProjectionHandler) ports.ProjectionHandler {
			return upcasting.UpcastProjection(h, a.Upcaster)
		},
		Await: func(ctx context.Context, name string, version int, p event.PartitionID, need event.Sequence) (event.Sequence, error) {
			return a.Reports.WaitUntilReached(ctx, name, version, p, need)
		},
		Wake: func() { a.Runner.Wake() }, Unregistered: a.Registry.FindUnregistered,
		Recompute: custom.RecomputeConfig{Store: a.Store.ProjectionRows, Log: bookLog{a.Store.Events}, Records: a.Store.PersonalRecords, Letters: a.Store.ProjectionVersions, RecomputeLimits: custom.RecomputeLimits{MaxEvents: c.RecomputeEvents, MaxRead: c.RecomputeReads}},
	})
	if err != nil {
		return err
	}
	a.operations = projections.NewOperations(projections.OperationsConfig{
		Store: a.Store.Projections, Log: bookLog{a.Store.Events}, Register: a.Store.ProjectionVersions, Decisions: decisions, Letters: a.Store.ProjectionVersions, Leases: a.Store.Leases, Clock: clock,
		Declared: a.Catalog.Projections, Custom: a.custom, Handlers: handlers, Wake: func() { a.Runner.Wake() },
	})
	upcast := a.withUpcasting(handlers)
	var stored ports.ProjectionSnapshots // without a key service there are none
	var proofs *snapshots.Projections
	if a.personal != nil {
		stored, proofs = a.Store.ProjectionSnapshots, snapshots.NewProjections(a.Store.Directory, snapshots.NewAuthenticator(a.vault, a.logger, a.metrics))
	}
	a.rebuilds, err = projections.NewRebuilds(projections.RebuildsConfig{
		Store: a.Store.Projections, Log: bookLog{a.Store.Events}, Register: a.Store.ProjectionVersions, Decisions: decisions, Versions: a.Store.ProjectionVersions, Snapshots: stored, Proofs: proofs, Clock: clock, Logger: a.logger, Declared: a.Catalog.Projections, Custom: a.custom, Handlers: upcast,
		Tables: tablesOf(handlers), Wake: func() { a.Runner.Wake() }, MaxBehind: c.SwitchWithin, SnapshotEvery: c.SnapshotEvery, ManualSwitch: c.Switch == "manual",
	})
	if err != nil {
		return err
	}
	a.targets, err = projections.NewTargets(projections.TargetsConfig{
		Store: a.Store.ProjectionTargets, Checkpoints: a.Store.Projections, Register: a.Store.ProjectionVersions, Versions: a.Store.ProjectionVersions, Records: a.Store.PersonalRecords, Logger: a.logger,
		Declared: a.Catalog.Projections, Handlers: upcast, Targets: targetsOf(handlers), CustomRows: a.custom, MaxEvents: c.RecomputeEvents,
	})
	if err != nil {
		return err
	}
	a.Runner, err = projections.New(projections.Config{
		Store: a.Store.Projections, Log: bookLog{a.Store.Events}, Register: a.Store.ProjectionVersions, Versions: a.Store.ProjectionVersions, Custom: a.custom, Leases: a.Store.Leases, Heads: bookHeads{a.heads}, Node: a.config.Node.ID,
		Logger: a.logger, Clock: clock, Observer: a.metrics,
		Limits: projections.Limits{Batch: c.Batch, Bytes: c.Bytes, Workers: c.Workers, Refresh: c.Poll, TTL: c.TTL, Renew: c.Renew, Stall: c.Stall},
	}, a.Catalog.Projections, upcast)
	return err
}

// CopySnapshots copies what waits for a snapshot of a projection, as a running node does.
func (a *App) CopySnapshots(ctx context.Context) error { return a.rebuilds.CopySnapshots(ctx) }

// foldLimits bounds the programs of tenants' projections more tightly than those of upcasters:
// a transaction runs two of them for each event of a batch.
func foldLimits() jq.Limits {
	l := jq.DefaultLimits()
	l.ProgramBytes, l.Steps, l.Work, l.OutputBytes = 20<<10, 100_000, 8<<20, projection.MaxState+1024
	return l
}

// tablesOf collects the tables that projections write, by projection.
func tablesOf(handlers map[string]ports.ProjectionHandler) map[string][]ports.ProjectionTable {
	out := map[string][]ports.ProjectionTable{}
	for name, h := range handlers {
		if declares, ok := h.(ports.ProjectionTables); ok {
			out[name] = declares.Tables()
		}
	}
	return out
}

// targetsOf collects the parts of read models that can be recomputed alone, by projection.
func targetsOf(handlers map[string]ports.ProjectionHandler) map[string][]ports.ProjectionTarget {
	out := map[string][]ports.ProjectionTarget{}
	for name, h := range handlers {
		if declares, ok := h.(ports.ProjectionTargets); ok {
			out[name] = declares.Targets()
		}
	}
	return out
}
