package custom_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestRecover writes what a crash between a decision and the register left out.
func TestRecover(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	g.entity(t, "acme", "USMF")
	d := definition("acme", ".data.vendor", sums, posted)
	encoded, err := d.Encode()
	require.NoError(t, err)
	record := func() ports.ProjectionRecord {
		r, err := g.decisions.Projection(t.Context(), "acme", "sums")
		require.NoError(t, err)
		return r
	}
	require.NoError(t, g.decisions.Define(t.Context(), "acme", record(), projection.Projection{Version: 1, Role: projection.Active, Status: projection.Running, Definition: encoded}, "ada"))
	// What was decided about the projection of a module does not define one of the tenant.
	require.NoError(t, g.decisions.Decide(t.Context(), "acme", ports.ProjectionRecord{Name: "ap.open-items"}, ports.ProjectionDecision{Action: ports.ProjectionRebuildStarted, Version: 2, By: "ada"}))
	// A later release wrote this one.
	require.NoError(t, g.decisions.Define(t.Context(), "acme", ports.ProjectionRecord{Name: "later"}, projection.Projection{Version: 1, Role: projection.Active, Status: projection.Running, Definition: append([]byte(`{"later":1,`), encoded[1:]...)}, "ada"))
	for range 2 {
		require.NoError(t, g.service.Recover(t.Context(), "acme"))
	}
	_, found, err := g.service.Find(t.Context(), "acme", "sums")
	require.NoError(t, err)
	require.Equal(t, d, found)

	require.NoError(t, g.decisions.Remove(t.Context(), "acme", record(), "ada"))
	for range 2 {
		require.NoError(t, g.service.Recover(t.Context(), "acme"))
	}
	_, _, err = g.service.Find(t.Context(), "acme", "sums")
	require.Equal(t, "projection.not_found", fault.CodeOf(err))
	g.create(t, "sums", d)
	require.True(t, record().Exists())
	_, err = g.service.Change(t.Context(), custom.Creation{Name: "sums", Definition: definition("acme", ".data.vendor", "1", posted), By: "ada"}, false)
	require.NoError(t, err)
	require.Contains(t, string(record().Definition), `"fold":"1"`)
	require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "ada"))
	require.True(t, record().Removed)
}

// lateDecisions does something after it has read the records of a tenant.
type lateDecisions struct {
	ports.ProjectionDecisions
	after func()
}

func (d lateDecisions) Projections(ctx context.Context, tenantID string) ([]ports.ProjectionRecord, error) {
	all, err := d.ProjectionDecisions.Projections(ctx, tenantID)
	d.after()
	return all, err
}

// lateRegister does something before it adds a version.
type lateRegister struct {
	ports.ProjectionRegister
	before func()
}

func (r lateRegister) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	r.before()
	return r.ProjectionRegister.AddProjection(ctx, p)
}

// A node that starts does not bring back what another node deletes between its reads and writes,
// nor end what another node creates again.
func TestRecover_WhileDecided(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		late   func(g *customFixture, config *custom.Config)
		exists bool
	}{
		"deleted after the records are read": {late: func(g *customFixture, config *custom.Config) {
			config.Decisions = lateDecisions{config.Decisions, func() {
				require.NoError(t, g.service.Recover(t.Context(), "acme"))
				require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "ada"))
			}}
		}},
		"deleted before the version is added": {late: func(g *customFixture, config *custom.Config) {
			config.Register = lateRegister{config.Register, func() {
				r, err := g.decisions.Projection(t.Context(), "acme", "sums")
				require.NoError(t, err)
				require.NoError(t, g.decisions.Remove(t.Context(), "acme", r, "ada"))
			}}
		}},
		"restored by another node": {exists: true, late: func(g *customFixture, config *custom.Config) {
			config.Register = lateRegister{config.Register, func() { require.NoError(t, g.service.Recover(t.Context(), "acme")) }}
		}},
		"created again after the records are read": {exists: true, late: func(g *customFixture, config *custom.Config) {
			require.NoError(t, g.service.Recover(t.Context(), "acme"))
			require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "ada"))
			config.Decisions = lateDecisions{config.Decisions, func() { g.create(t, "sums", definition("acme", ".data.vendor", sums, posted)) }}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCustomFixture(t)
			g.entity(t, "acme", "USMF")
			encoded := testkit.Must(definition("acme", ".data.vendor", sums, posted).Encode())
			require.NoError(t, g.decisions.Define(t.Context(), "acme", ports.ProjectionRecord{Name: "sums"}, projection.Projection{Version: 1, Role: projection.Active, Status: projection.Running, Definition: encoded}, "ada")) // as if the creation was cut off
			config := g.config
			c.late(g, &config)
			require.NoError(t, testkit.Must(custom.New(config)).Recover(t.Context(), "acme"))
			_, _, err := g.service.Find(t.Context(), "acme", "sums")
			require.Equal(t, map[bool]string{false: "projection.not_found"}[c.exists], fault.CodeOf(err))
		})
	}
}

// TestDecisions_AreRecorded compares after each decision what was recorded with the register.
func TestDecisions_AreRecorded(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	g.entity(t, "acme", "USMF")
	g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	name := projection.CustomName("acme", "sums")
	record := func() ports.ProjectionRecord {
		t.Helper()
		r, err := g.decisions.Projection(t.Context(), "acme", "sums")
		require.NoError(t, err)
		return r
	}
	agree := func() {
		t.Helper()
		var live projection.DecidedVersions
		for _, p := range testkit.Must(g.store.ProjectionVersions.NamedProjections(t.Context(), name)) {
			if p.Role.IsLive() {
				live = append(live, p.Decided())
			}
		}
		require.Equal(t, live, record().Versions)
	}
	agree()
	rebuilds, operations := g.rebuilds(), g.operations()
	do := func(a projection.Action) {
		t.Helper()
		require.NoError(t, operations.Do(t.Context(), projections.Command{Name: name, Action: a, Decider: projections.Decider{By: "ada"}}))
		agree()
	}
	order := order("sums")
	order.Force = true
	for _, step := range []func() (projections.Rebuild, error){
		func() (projections.Rebuild, error) { return rebuilds.Start(t.Context(), order, false) },
		func() (projections.Rebuild, error) { return rebuilds.Switch(t.Context(), order) },
		func() (projections.Rebuild, error) { return rebuilds.Rollback(t.Context(), order) },
		func() (projections.Rebuild, error) { return rebuilds.Drop(t.Context(), order) },
		func() (projections.Rebuild, error) { return rebuilds.Start(t.Context(), order, true) },
		func() (projections.Rebuild, error) { return rebuilds.Cancel(t.Context(), order) },
	} {
		_, err := step()
		require.NoError(t, err)
		agree()
	}
	do(projection.Pause)
	do(projection.Resume)
	do(projection.Stop)
	do(projection.Start)
	settings := projection.DefaultSettings()
	settings.MaxAttempts = 9
	require.NoError(t, operations.Configure(t.Context(), name, settings, projections.Decider{By: "ada"}))
	agree()

	// What a crash leaves between a record and the register is carried out by the next start.
	_, err := rebuilds.Start(t.Context(), order, false)
	require.NoError(t, err)
	before := record()
	paused := before.Versions[1]
	paused.Status = projection.Paused
	require.NoError(t, g.decisions.Decide(t.Context(), "acme", before, ports.ProjectionDecision{
		Action: ports.ProjectionActivated, Version: paused.Version, Force: true, Versions: before.Versions.Activate(paused), By: "ada",
	}))
	for range 2 {
		require.NoError(t, rebuilds.Recover(t.Context(), "acme"))
	}
	require.NoError(t, rebuilds.Recover(t.Context(), "acme"))
	agree()
	before = record()
	require.NoError(t, g.decisions.Decide(t.Context(), "acme", before, ports.ProjectionDecision{
		Action: ports.ProjectionVersionDropped, Version: 1, Versions: before.Versions.Without(1), By: "ada",
	}))
	require.NoError(t, rebuilds.Recover(t.Context(), "acme"))
	agree()
	err = g.decisions.Decide(t.Context(), "acme", before, ports.ProjectionDecision{Action: ports.ProjectionConfigured, Version: 1, By: "ada"})
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "another decision came in between")
}

// A decision of a person about a projection of a module is in the log of the person's tenant.
func TestDecisions_AboutModules(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	declared := module.Projection{Name: "shop.totals", Version: 1}
	operations := projections.NewOperations(projections.OperationsConfig{
		Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Decisions: g.decisions, Letters: g.store.ProjectionVersions, Leases: g.store.Leases, Clock: g.clock,
		Custom: g.service, Declared: []module.Projection{declared},
	})
	stop := projections.Command{Name: declared.Name, Action: projection.Stop, Reason: "its rows are rebuilt", Decider: projections.Decider{By: "ada", Tenant: "acme"}}
	require.NoError(t, operations.Do(t.Context(), stop))
	r, err := g.decisions.Projection(t.Context(), "acme", declared.Name)
	require.NoError(t, err)
	require.Equal(t, ports.ProjectionDecision{Action: ports.ProjectionOperated, Version: 1, Operation: projection.Stop, Reason: stop.Reason}, r.Latest)
	require.Empty(t, r.Versions)
}

// lateCheckpoints does something after it has read checkpoints.
type lateCheckpoints struct {
	ports.Projections
	after func()
}

func (c lateCheckpoints) Checkpoints(ctx context.Context, name string, version int) ([]ports.Checkpoint, error) {
	all, err := c.Projections.Checkpoints(ctx, name, version)
	c.after()
	return all, err
}

// The event of a skip names the event that was skipped, also when other persons and nodes are at work,
// and there is none where nothing can be skipped.
func TestSkip_IsRecorded(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	for range 3 {
		g.write(t, le, posted, `{"vendor":"V-1","amount":"1"}`)
	}
	p := g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	work := ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: le.Partition}
	halt := func(at event.Sequence) {
		c, err := g.store.Projections.Isolate(t.Context(), ports.ProjectionFailure{ProjectionWork: work, At: at, Code: "jq.failed"}, projection.StopPartition)
		require.NoError(t, err)
		require.Equal(t, projection.Halted, c.Status)
	}
	operate := func(store ports.Projections, action projection.Action) error {
		operations := projections.NewOperations(projections.OperationsConfig{
			Store: store, Log: g.store.Events, Register: g.store.ProjectionVersions, Decisions: g.decisions, Letters: g.store.ProjectionVersions, Leases: g.store.Leases, Clock: g.clock, Custom: g.service,
		})
		return operations.Do(t.Context(), projections.Command{Name: p.Name, Action: action, Partition: le.Partition, Decider: projections.Decider{By: "ada"}, Reason: "a test event"})
	}
	record := func() ports.ProjectionRecord {
		return testkit.Must(g.decisions.Projection(t.Context(), "acme", "sums"))
	}
	created := record().Version
	for _, action := range []projection.Action{projection.Skip, projection.Fix} {
		require.Equal(t, projection.CodeNotHalted, fault.CodeOf(operate(g.store.Projections, action)))
	}
	require.Equal(t, created, record().Version, "nothing was decided")

	halt(0)
	require.NoError(t, operate(g.store.Projections, projection.Skip))
	require.EqualValues(t, 1, record().Latest.Sequence)
	halt(1)
	late := lateCheckpoints{g.store.Projections, func() {
		_, err := g.store.Projections.Skip(t.Context(), ports.ProjectionOperation{ProjectionWork: work, By: "bob", Sequence: 2})
		require.NoError(t, err)
		halt(2)
	}}
	require.Equal(t, projection.CodeChanged, fault.CodeOf(operate(late, projection.Skip)))
	all, err := g.store.Projections.Checkpoints(t.Context(), p.Name, p.Version)
	require.NoError(t, err)
	require.Equal(t, []any{event.Sequence(2), projection.Halted}, []any{all[0].Sequence, all[0].Status}, "no person has looked at event 3")
}

// A fix of all legal entities is recorded with those that the person may see.
func TestFix_IsRecorded(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	g.entity(t, "acme", "DEMF")
	p := g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	require.NoError(t, g.operations().Do(t.Context(), projections.Command{Name: p.Name, Action: projection.Fix, Partitions: []event.PartitionID{le.Partition}, Decider: projections.Decider{By: "ada"}}))
	latest := testkit.Must(g.decisions.Projection(t.Context(), "acme", "sums")).Latest
	require.Zero(t, latest.Partition)
	require.Equal(t, []event.PartitionID{le.Partition}, latest.Partitions)
}

// failingSwitch fails after the event of a switch was recorded.
type failingSwitch struct {
	ports.ProjectionVersions
	after error
}

func (f failingSwitch) SwitchProjection(ctx context.Context, s ports.ProjectionSwitch) error {
	if err := s.Record(ctx); err != nil {
		return err
	}
	return f.after
}

// A switch that fails after its event was recorded leaves the versions that readers see recorded, and
// one that no node could take back is recorded once when it is tried again.
func TestSwitch_FailsAfterItsEvent(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	g.entity(t, "acme", "USMF")
	g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	record := func() ports.ProjectionRecord {
		return testkit.Must(g.decisions.Projection(t.Context(), "acme", "sums"))
	}
	order := order("sums")
	order.Force = true
	rebuilds := g.rebuilds()
	_, err := rebuilds.Start(t.Context(), order, false)
	require.NoError(t, err)
	_, err = rebuilds.Switch(t.Context(), order)
	require.NoError(t, err)
	_, err = rebuilds.Start(t.Context(), order, false)
	require.NoError(t, err)

	before, lost := record(), errors.New("connection lost")
	failing := testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{
		Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Decisions: g.decisions, Versions: failingSwitch{g.store.ProjectionVersions, lost},
		Snapshots: g.store.ProjectionSnapshots, Clock: g.clock, Custom: g.service, MaxBehind: 5,
	}))
	_, err = failing.Switch(t.Context(), order)
	require.ErrorIs(t, err, lost)
	require.Equal(t, before.Versions, record().Versions)
	require.Equal(t, before.Version+2, record().Version, "the switch and that readers still see the version before")

	activated := before.Versions.Activate(before.Versions[2])
	require.NoError(t, g.decisions.Decide(t.Context(), "acme", record(), ports.ProjectionDecision{Action: ports.ProjectionActivated, Version: 3, Versions: activated, By: "ada"}))
	_, err = rebuilds.Switch(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, activated, record().Versions)
	require.Len(t, record().Versions, 2, "the version before is retained")
}

// lateSwitch does something before it switches.
type lateSwitch struct {
	ports.ProjectionVersions
	before func()
}

func (l lateSwitch) SwitchProjection(ctx context.Context, s ports.ProjectionSwitch) error {
	l.before()
	return l.ProjectionVersions.SwitchProjection(ctx, s)
}

// A node that starts does not undo what another node decides between its reads and writes.
func TestRebuilds_RecoverWhileDecided(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	g.entity(t, "acme", "USMF")
	p := g.create(t, "sums", definition("acme", ".data.vendor", sums, posted))
	restart := func(decisions ports.ProjectionDecisions, versions ports.ProjectionVersions) {
		t.Helper()
		rebuilds := testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{
			Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Decisions: decisions, Versions: versions, Clock: g.clock, Custom: g.service, MaxBehind: 1000,
		}))
		require.NoError(t, rebuilds.Recover(t.Context(), "acme"))
	}
	version := func(number int) projection.Projection {
		return testkit.Must(g.store.ProjectionVersions.NamedProjections(t.Context(), p.Name))[number-1]
	}
	restart(lateDecisions{g.decisions, func() {
		require.NoError(t, g.operations().Do(t.Context(), projections.Command{Name: p.Name, Action: projection.Pause, Decider: projections.Decider{By: "ada"}}))
	}}, g.store.ProjectionVersions)
	require.Equal(t, projection.Paused, version(1).Status)

	order := order("sums")
	order.Force = true
	_, err := g.rebuilds().Start(t.Context(), order, false)
	require.NoError(t, err)
	before := testkit.Must(g.decisions.Projection(t.Context(), "acme", "sums"))
	require.NoError(t, g.decisions.Decide(t.Context(), "acme", before, ports.ProjectionDecision{ // as if the switch was cut off
		Action: ports.ProjectionActivated, Version: 2, Force: true, Versions: before.Versions.Activate(before.Versions[1]), By: "ada",
	}))
	restart(g.decisions, lateSwitch{g.store.ProjectionVersions, func() {
		_, err := g.rebuilds().Switch(t.Context(), order)
		require.NoError(t, err)
		_, err = g.rebuilds().Rollback(t.Context(), order)
		require.NoError(t, err)
	}})
	require.Equal(t, projection.Active, version(1).Role, "the rollback stays")
}
