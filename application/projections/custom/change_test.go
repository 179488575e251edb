package custom_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	returned = "shop.invoice.returned"
	counts   = `{n: ((.state.n // 0) + 1)}`
)

func (g *customFixture) rebuilds() *projections.Rebuilds {
	return testkit.Must(projections.NewRebuilds(projections.RebuildsConfig{Store: g.store.Projections, Log: g.store.Events, Register: g.store.ProjectionVersions, Decisions: g.decisions, Versions: g.store.ProjectionVersions, Clock: g.clock, Custom: g.service, MaxBehind: 1000}))
}

func (g *customFixture) change(name string, d projection.Definition) (custom.ChangeResult, error) {
	return g.service.Change(context.Background(), custom.Creation{Name: name, Definition: d, By: "bob"}, false)
}

// order is what ada wants of the tenant's projection.
func order(name string) projections.Order {
	return projections.Order{Name: projection.CustomName("acme", name), Decider: projections.Decider{By: "ada"}}
}

// TestChange_BuildsVersion has versions that read other events and other legal entities
// than each other, and a node that restarts in between.
func TestChange_BuildsVersion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		us, de, fr := g.entity(t, "acme", "USMF"), g.entity(t, "acme", "DEMF"), g.entity(t, "acme", "FRMF")
		foreign := g.entity(t, "rival", "USMF")
		_, stop := g.node(t)
		for _, le := range []ports.LegalEntity{us, de, fr, foreign} {
			g.write(t, le, posted, `{"vendor":"V-1","amount":"1.50"}`)
			g.write(t, le, returned, `{"vendor":"V-1"}`)
		}
		first := definition("acme", ".data.vendor", sums, posted)
		first.Filter.LegalEntities = []string{"USMF", "DEMF"}
		g.create(t, "sums", first)
		within(t, soon, func() bool {
			return g.rows(t, "sums", us)["V-1"] == `{"n":1,"sum":1.50}` && g.rows(t, "sums", de)["V-1"] != ""
		}, "the first version")

		stop() // nothing is built, so that readers are seen to be shown the first version
		second := definition("acme", ".data.vendor", counts, returned, posted)
		second.Filter.LegalEntities = []string{"USMF", "FRMF"}
		changed, err := g.change("sums", second)
		require.NoError(t, err)
		require.Equal(t, []any{2, 1, false, 4}, []any{changed.Version, changed.Shown, changed.Same, changed.Trial.Events})
		again, err := g.change("sums", second)
		require.NoError(t, err)
		require.Equal(t, []any{2, true}, []any{again.Version, again.Same}, "said twice, it is the same change")
		_, err = g.change("sums", definition("acme", ".id", counts))
		require.Equal(t, projection.CodeBeingChanged, fault.CodeOf(err))
		require.Equal(t, fault.Conflict, fault.KindOf(err))
		b := g.rebuilds()
		_, err = b.Start(t.Context(), order("sums"), false)
		require.Equal(t, projection.CodeRebuilding, fault.CodeOf(err))
		shown, err := b.Show(t.Context(), order("sums").Name)
		require.NoError(t, err)
		require.Equal(t, []any{1, 2, uint64(4), false, "bob"}, []any{shown.Active, shown.Building, shown.Progress.Total, shown.CaughtUp && shown.Progress.Remaining() == 0, shown.StartedBy}, "events of what it reads only")
		g.write(t, us, posted, `{"vendor":"V-2","amount":"2"}`)
		require.Equal(t, map[string]string{"V-1": `{"n":1,"sum":1.50}`}, g.rows(t, "sums", us), "readers are shown the first version")

		g.node(t)
		within(t, soon, func() bool {
			s, err := b.Show(t.Context(), order("sums").Name)
			require.NoError(t, err)
			return s.CaughtUp && s.Progress.Remaining() == 0 && g.rows(t, "sums", us)["V-2"] != ""
		}, "it catches up though it never reads one legal entity")
		c, err := b.Compare(t.Context(), order("sums").Name, 0, []event.PartitionID{us.Partition, de.Partition, fr.Partition, foreign.Partition}, 10)
		require.NoError(t, err)
		require.Len(t, c.Partitions, 1)
		require.Equal(t, us.Partition, c.Partitions[0].Partition)
		require.Equal(t, uint64(2), c.Partitions[0].Tables[0].Changed)
		require.Equal(t, []event.PartitionID{de.Partition}, c.OnlyLeft)
		require.Equal(t, []event.PartitionID{fr.Partition}, c.OnlyRight)

		half, err := g.service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: us, Limit: 1})
		require.NoError(t, err)
		_, err = b.Switch(t.Context(), order("sums"))
		require.NoError(t, err)
		_, err = g.service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: us, Limit: 1, Cursor: half.NextCursor})
		require.Equal(t, "cursor.foreign", fault.CodeOf(err), "pages are of one version")
		require.Equal(t, map[string]string{"V-1": `{"n":2}`, "V-2": `{"n":1}`}, g.rows(t, "sums", us))
		require.Equal(t, map[string]string{"V-1": `{"n":2}`}, g.rows(t, "sums", fr))
		_, err = g.service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: de, Limit: 1})
		require.Equal(t, "projection.not_read", fault.CodeOf(err))

		g.write(t, us, posted, `{"vendor":"V-1","amount":"3"}`)
		g.write(t, de, posted, `{"vendor":"V-1","amount":"3"}`)
		within(t, soon, func() bool { return g.rows(t, "sums", us)["V-1"] == `{"n":3}` }, "it continues")
		within(t, soon, func() bool {
			at, err := g.store.Projections.Checkpoints(t.Context(), order("sums").Name, 1)
			require.NoError(t, err)
			reached := map[event.PartitionID]event.Sequence{}
			for _, c := range at {
				reached[c.Partition] = c.Sequence
			}
			return reached[us.Partition] == 4 && reached[de.Partition] == 3
		}, "so does the one that is kept")
		_, err = b.Rollback(t.Context(), order("sums"))
		require.NoError(t, err)
		require.Equal(t, `{"n":2,"sum":4.50}`, g.rows(t, "sums", us)["V-1"], "it is shown with what came since")
		require.Equal(t, `{"n":2,"sum":4.50}`, g.rows(t, "sums", de)["V-1"])

		_, err = b.Drop(t.Context(), order("sums"))
		require.NoError(t, err)
		rebuilt, err := b.Start(t.Context(), order("sums"), true)
		require.NoError(t, err)
		require.Equal(t, 3, rebuilt.Building, "the same definition in a new version")
		within(t, soon, func() bool {
			require.NoError(t, b.Maintain(t.Context()))
			s, err := b.Show(t.Context(), order("sums").Name)
			require.NoError(t, err)
			return s.Active == 3
		}, "it switches by itself")
		require.Equal(t, `{"n":2,"sum":4.50}`, g.rows(t, "sums", us)["V-1"])
	})
}

// TestChange_FailureHaltsNewVersionOnly also fixes nothing: it is cancelled.
func TestChange_FailureHaltsNewVersionOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		le := g.entity(t, "acme", "USMF")
		g.node(t)
		g.create(t, "sums", definition("acme", ".data.vendor", counts, posted))
		for _, amount := range []string{"1", "x", "3"} {
			g.write(t, le, posted, `{"vendor":"V-1","amount":"`+amount+`"}`)
		}
		_, err := g.change("sums", definition("acme", ".data.vendor", sums, posted))
		require.Equal(t, "projection.trial_failed", fault.CodeOf(err))
		_, err = g.service.Change(t.Context(), custom.Creation{Name: "sums", Definition: definition("acme", ".data.vendor", sums, posted), By: "bob", SkipTrial: true}, true)
		require.NoError(t, err)
		b := g.rebuilds()
		show := func() projections.Rebuild {
			s, err := b.Show(t.Context(), order("sums").Name)
			require.NoError(t, err)
			return s
		}
		within(t, halted, func() bool { return show().Halted == 1 }, "the new version is halted")
		g.write(t, le, posted, `{"vendor":"V-1","amount":"4"}`)
		within(t, soon, func() bool { return g.rows(t, "sums", le)["V-1"] == `{"n":4}` }, "the active version continues")
		require.NoError(t, b.Maintain(t.Context()))
		require.Equal(t, 1, show().Active)
		_, err = b.Switch(t.Context(), order("sums"))
		require.Equal(t, projection.CodeVersionHalted, fault.CodeOf(err))
		require.NotContains(t, err.Error(), "acme/")
		_, err = b.Cancel(t.Context(), order("sums"))
		require.NoError(t, err)
		require.Equal(t, []int{2}, show().Dropping)
		for len(show().Dropping) > 0 {
			require.NoError(t, b.Maintain(t.Context()))
		}
		require.Equal(t, `{"n":4}`, g.rows(t, "sums", le)["V-1"])
	})
}

func TestChange_ConcurrentChanges(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	g.entity(t, "acme", "USMF")
	g.create(t, "sums", definition("acme", ".id", counts))
	errs := make([]error, 8)
	var racing sync.WaitGroup
	for i := range errs {
		racing.Go(func() { _, errs[i] = g.change("sums", definition("acme", ".id", fmt.Sprint(i))) })
	}
	racing.Wait()
	won := -1
	for i, err := range errs {
		if err == nil {
			require.Equal(t, -1, won)
			won = i
			continue
		}
		require.Equal(t, projection.CodeBeingChanged, fault.CodeOf(err))
	}
	versions, err := g.service.Versions(t.Context(), "acme", "sums")
	require.NoError(t, err)
	require.Len(t, versions, 2)
	require.Equal(t, fmt.Sprint(won), versions[2].Fold)
}

// TestChange_Limits: another tenant's are as good as none, and do not count.
func TestChange_Limits(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	g.write(t, le, posted, `{"vendor":"V-1"}`)
	g.entity(t, "rival", "USMF")
	for i := range projection.MaxBuilding + 1 {
		for _, tenant := range []string{"acme", "rival"} {
			g.create(t, fmt.Sprint("p", i), definition(tenant, ".id", counts))
		}
		_, err := g.change(fmt.Sprint("p", i), definition("acme", ".id", "true"))
		if i < projection.MaxBuilding {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, "projection.too_many_building", fault.CodeOf(err))
		_, err = g.change(fmt.Sprint("p", i), definition("rival", ".id", "true"))
		require.NoError(t, err)
		_, err = g.rebuilds().Start(t.Context(), order(fmt.Sprint("p", i)), false)
		require.Equal(t, "projection.too_many_building", fault.CodeOf(err))
	}
	for name, d := range map[string]projection.Definition{
		"absent": definition("acme", ".id", "true"), "gl.ledger": definition("acme", ".id", "true"), "acme/p0": definition("acme", ".id", "true"),
	} {
		_, err := g.change(name, d)
		require.Equal(t, "projection.not_found", fault.CodeOf(err), name)
	}
	_, err := g.service.Versions(t.Context(), "acme", "absent")
	require.Equal(t, "projection.not_found", fault.CodeOf(err))
	same, err := g.change("p5", definition("acme", ".id", counts))
	require.NoError(t, err)
	require.Equal(t, []any{1, true}, []any{same.Version, same.Same}, "nothing changes")
	dry, err := g.service.Change(t.Context(), custom.Creation{Name: "p0", Definition: definition("acme", ".id", "true"), DryRun: true}, false)
	require.NoError(t, err)
	require.Equal(t, []any{2, true, 1}, []any{dry.Version, dry.Same, dry.Trial.Events})
	_, err = g.change("p0", definition("acme", ".id |", counts))
	require.Equal(t, "transform.invalid", fault.CodeOf(err))
}

// TestDelete_EndsChange removes the rows of both versions.
func TestDelete_EndsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		le := g.entity(t, "acme", "USMF")
		_, stop := g.node(t)
		g.write(t, le, posted, `{"vendor":"V-1","amount":"1"}`)
		p := g.create(t, "sums", definition("acme", ".data.vendor", sums))
		_, err := g.change("sums", definition("acme", ".data.vendor", counts))
		require.NoError(t, err)
		stored := func(version int) int {
			rows, _, err := g.store.ProjectionRows.ListProjectionRows(t.Context(), ports.ProjectionRowQuery{Projection: p.Name, Version: version, Partition: le.Partition, Limit: 10})
			require.NoError(t, err)
			return len(rows)
		}
		within(t, soon, func() bool { return stored(1) == 1 && stored(2) == 1 }, "both have a row")
		require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "ada"))
		_, err = g.change("sums", definition("acme", ".id", counts))
		require.Equal(t, "projection.not_found", fault.CodeOf(err))
		stop()
		for range 3 {
			require.NoError(t, g.rebuilds().Maintain(t.Context()))
		}
		require.Zero(t, stored(1)+stored(2))
		require.Equal(t, 3, g.create(t, "sums", definition("acme", ".id", counts)).Version)
	})
}

// TestRunner_SkipsDefinitionOfLaterRelease: a node that cannot read a definition builds
// nothing with it, and the versions that it can read continue.
func TestRunner_SkipsDefinitionOfLaterRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		le := g.entity(t, "acme", "USMF")
		g.node(t)
		p := g.create(t, "sums", definition("acme", ".data.vendor", counts))
		later := projection.Projection{
			Name: p.Name, Version: 2, Role: projection.Building, Status: projection.Running, Settings: projection.DefaultSettings(), SelfSwitching: true, ChangedBy: "ada",
			Definition: []byte(`{"tenant_id":"acme","filter":{"sites":["S-1"]},"key":".id","fold":".event"}`),
		}
		_, err := g.store.ProjectionVersions.AddProjection(t.Context(), later)
		require.NoError(t, err)
		g.write(t, le, posted, `{"vendor":"V-1"}`)
		within(t, soon, func() bool { return g.rows(t, "sums", le)["V-1"] == `{"n":1}` }, "what it can read continues")
		at, err := g.store.Projections.Checkpoints(t.Context(), p.Name, 2)
		require.NoError(t, err)
		require.Empty(t, at, "it was not begun")
		b := g.rebuilds()
		require.NoError(t, b.Maintain(t.Context()))
		_, err = b.Compare(t.Context(), p.Name, 0, []event.PartitionID{le.Partition}, 1)
		require.Equal(t, projection.CodeUnreadable, fault.CodeOf(err))
		o := order("sums")
		o.Force = true
		_, err = b.Switch(t.Context(), o)
		require.Equal(t, projection.CodeUnreadable, fault.CodeOf(err))
		views, err := g.operations().List(t.Context(), []event.PartitionID{le.Partition})
		require.NoError(t, err)
		require.Len(t, views, 2, "operators see it")
		require.Equal(t, projection.CodeUnreadable, fault.CodeOf(onlyErr(g.service.Versions(t.Context(), "acme", "sums"))))
		_, err = g.change("sums", definition("acme", ".id", "1"))
		require.Equal(t, projection.CodeBeingChanged, fault.CodeOf(err))
		_, err = b.Cancel(t.Context(), order("sums"))
		require.NoError(t, err)
	})
}

// TestRebuild_RefusesPartitionOfOtherDefinition starts to rebuild one legal entity just
// before the definition changes.
func TestRebuild_RefusesPartitionOfOtherDefinition(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	g.write(t, le, posted, `{"vendor":"V-1"}`)
	g.advance(t, g.create(t, "sums", definition("acme", ".data.vendor", counts)), le, 0)
	_, err := g.change("sums", definition("acme", ".data.vendor", `"new"`))
	require.NoError(t, err)
	b, part := g.rebuilds(), order("sums")
	part.Partition = le.Partition
	_, err = b.Start(t.Context(), part, false)
	require.NoError(t, err)
	all, err := g.store.ProjectionVersions.NamedProjections(t.Context(), part.Name)
	require.NoError(t, err)
	require.Len(t, all, 3)
	g.advance(t, all[1], le, 0)
	g.advance(t, all[2], le, 0)
	_, err = b.Switch(t.Context(), order("sums"))
	require.NoError(t, err)
	_, err = b.Switch(t.Context(), part)
	require.Equal(t, projection.CodeOtherCode, fault.CodeOf(err))
	require.Equal(t, map[string]string{"V-1": `"new"`}, g.rows(t, "sums", le))
	_, err = b.Cancel(t.Context(), part)
	require.NoError(t, err)
}

// renamed shows the vendor of an event as its supplier, as an upcaster does.
type renamed struct {
	ports.ProjectionHandler
	begun *atomic.Bool
}

func (r renamed) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	if r.begun.Load() {
		b.Events = slices.Clone(b.Events)
		for i := range b.Events {
			b.Events[i].Payload = bytes.Replace(b.Events[i].Payload, []byte(`"vendor":`), []byte(`"supplier":`), 1)
		}
	}
	return r.ProjectionHandler.Apply(ctx, tx, b)
}

// TestChange_EventTypeChangesBetweenVersions leaves what the older one made to its readers,
// and does not prevent a switch to the newer one.
func TestChange_EventTypeChangesBetweenVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newRunningFixture(t)
		le := g.entity(t, "acme", "USMF")
		var begun atomic.Bool
		g.service = testkit.Must(custom.New(custom.Config{
			Compiler: jq.NewWithLimits(jq.DefaultLimits()), Rows: g.store.ProjectionRows, Register: g.store.ProjectionVersions, Decisions: g.decisions, Entities: g.store.Directory, Events: g.store.Events, Recompute: custom.RecomputeConfig{RecomputeLimits: recomputeLimits},
			Upcast: func(h ports.ProjectionHandler) ports.ProjectionHandler { return renamed{h, &begun} },
		}))
		g.node(t)
		g.create(t, "sums", definition("acme", `.data.vendor // error("none")`, counts))
		require.NoError(t, g.operations().Configure(t.Context(), order("sums").Name, projection.Settings{MaxAttempts: 1}, projections.Decider{By: "ada"}))
		g.write(t, le, posted, `{"vendor":"V-1"}`)
		within(t, soon, func() bool { return g.rows(t, "sums", le)["V-1"] == `{"n":1}` }, "before")
		begun.Store(true)
		_, err := g.service.Change(t.Context(), custom.Creation{Name: "sums", Definition: definition("acme", ".data.supplier", `"new"`), By: "bob", SkipTrial: true}, false)
		require.NoError(t, err)
		g.write(t, le, posted, `{"vendor":"V-1"}`)
		b := g.rebuilds()
		var halted []ports.Checkpoint
		within(t, soon, func() bool {
			halted, err = g.store.Projections.Checkpoints(t.Context(), order("sums").Name, 1)
			require.NoError(t, err)
			s, err := b.Show(t.Context(), order("sums").Name)
			require.NoError(t, err)
			return halted[0].Status == projection.Halted && s.Progress.Remaining() == 0
		}, "the older one cannot continue, the newer one does")
		require.Equal(t, `{"n":1}`, g.rows(t, "sums", le)["V-1"], "its rows are as they were")
		_, err = b.Switch(t.Context(), order("sums"))
		require.NoError(t, err)
		require.Equal(t, `"new"`, g.rows(t, "sums", le)["V-1"])
		_, err = b.Rollback(t.Context(), order("sums"))
		require.Equal(t, projection.CodeVersionHalted, fault.CodeOf(err))
		back := order("sums")
		back.Force = true
		_, err = b.Rollback(t.Context(), back)
		require.NoError(t, err)
		require.Equal(t, `{"n":1}`, g.rows(t, "sums", le)["V-1"])
	})
}

func onlyErr(_ any, err error) error { return err }

// TestRows_ReadNextVersionAfterRemoval has two switches happen while a reader waits
// for the version that was shown when they asked.
func TestRows_ReadNextVersionAfterRemoval(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	g.write(t, le, posted, `{"vendor":"V-1"}`)
	p := g.create(t, "sums", definition("acme", ".data.vendor", counts))
	g.advance(t, p, le, 0)
	replace := func(fold string) {
		changed, err := g.change("sums", definition("acme", ".data.vendor", fold))
		require.NoError(t, err)
		all, err := g.store.ProjectionVersions.ListProjections(t.Context())
		require.NoError(t, err)
		for _, p := range all {
			if p.Version == changed.Version {
				g.advance(t, p, le, 0)
			}
		}
		_, err = g.rebuilds().Switch(t.Context(), order("sums"))
		require.NoError(t, err)
	}
	waited := 0
	service := testkit.Must(custom.New(custom.Config{
		Compiler: jq.NewWithLimits(untimedLimits()), Rows: g.store.ProjectionRows, Register: g.store.ProjectionVersions, Decisions: g.decisions, Entities: g.store.Directory, Events: g.store.Events, Recompute: custom.RecomputeConfig{RecomputeLimits: recomputeLimits},
		Await: func(context.Context, string, int, event.PartitionID, event.Sequence) (event.Sequence, error) {
			if waited++; waited == 1 {
				replace("2")
				replace("3")
				require.NoError(t, g.rebuilds().Maintain(t.Context()))
			}
			return 0, nil
		},
	}))
	page, err := service.Rows(t.Context(), custom.RowsQuery{Name: "sums", Entity: le, Limit: 1, MinSequence: "1"})
	require.NoError(t, err)
	require.Equal(t, []any{3, "3", 2}, []any{page.Version, string(page.Rows[0].State), waited})
}

func TestTrial_Warnings(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	le := g.entity(t, "acme", "USMF")
	for range 3 {
		g.write(t, le, posted, `{"vendor":"V-1"}`, "a")
	}
	fails := errors.New("away")
	var unregistered error
	service := testkit.Must(custom.New(custom.Config{
		Compiler: jq.NewWithLimits(untimedLimits()), Rows: g.store.ProjectionRows, Register: g.store.ProjectionVersions, Decisions: g.decisions, Entities: g.store.Directory, Events: g.store.Events, Recompute: custom.RecomputeConfig{RecomputeLimits: recomputeLimits},
		Unregistered: func(_ context.Context, _ string, types []string) (out []string, err error) {
			for _, name := range types {
				if name != posted {
					out = append(out, name)
				}
			}
			return out, unregistered
		},
	}))
	try := func(d projection.Definition) custom.Trial {
		_, trial, err := service.Create(t.Context(), custom.Creation{Name: "x", Definition: d, DryRun: true})
		require.NoError(t, err)
		return trial
	}
	require.Empty(t, try(definition("acme", ".data.vendor", counts, posted)).Warnings)
	trial := try(definition("acme", ".data.vendr", counts, posted))
	require.Equal(t, []int{3, 0}, []int{trial.Considered, trial.Events})
	require.Len(t, trial.Warnings, 1)
	require.Equal(t, custom.CodeCountsNothing, trial.Warnings[0].Code)
	require.Contains(t, trial.Warnings[0].Detail, "counted 0 of the last 3 events")
	d := definition("acme", ".id", counts, posted)
	d.Filter.Tags = []string{"a", "b"}
	require.Contains(t, try(d).Warnings[0].Detail, "counted 0 of the last 3 events", "the second tag")
	trial = try(definition("acme", ".id", counts, posted, "shop.invoice.postd"))
	require.Len(t, trial.Warnings, 1)
	require.Equal(t, []string{custom.CodeUnregistered, "/filter/types/1"}, []string{trial.Warnings[0].Code, trial.Warnings[0].Field})
	trial = try(definition("acme", ".id", counts, "shop.invoice.postd"))
	require.Len(t, trial.Warnings, 2)
	require.Contains(t, trial.Warnings[0].Detail, "0 of 0")
	unregistered = fails
	_, _, err := service.Create(t.Context(), custom.Creation{Name: "x", Definition: definition("acme", ".id", counts, posted), DryRun: true})
	require.ErrorIs(t, err, fails)
}
