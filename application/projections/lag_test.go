package projections_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// tenants run two projections of tenants in one legal entity each.
type tenants map[string]struct {
	handler   ports.ProjectionHandler
	partition event.PartitionID
}

func (c tenants) Declare(p projection.Projection) (module.Projection, error) {
	return module.Projection{Name: p.Name, Version: p.Version, EventTypes: []string{"till.cash.moved"}}, nil
}

func (c tenants) Prepare(p projection.Projection) (module.Projection, ports.ProjectionHandler, ports.ProjectionResetter, error) {
	d, err := c.Declare(p)
	return d, c[p.Name].handler, nil, err
}

func (c tenants) Partitions(_ context.Context, p projection.Projection) ([]event.PartitionID, error) {
	return []event.PartitionID{c[p.Name].partition}, nil
}

// TestRunner_ObservesWorstCustomLag has three of them: one reads everything,
// one fails and is tried again, and one is halted where its tenant's program fails.
func TestRunner_ObservesWorstCustomLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := tenants{}
		g := newFixture(t, func(c *projections.Config) { c.Custom = of })
		a, b := g.entity(t, "A"), g.entity(t, "B")
		failing, broken := newCountingHandler(), newCountingHandler()
		for name, c := range map[string]*countingHandler{"acme/good": newCountingHandler(), "acme/tries": failing, "acme/stands": broken} {
			tenant := of[name]
			tenant.handler, tenant.partition = c, a
			if c == broken {
				tenant.partition = b
			}
			of[name] = tenant
			s := projection.DefaultSettings()
			if c == broken {
				s.MaxAttempts = 1
			}
			_, err := g.store.ProjectionVersions.AddProjection(t.Context(), projection.Projection{
				Name: name, Version: 1, Role: projection.Active, Status: projection.Running, Settings: s, Definition: []byte(`{}`),
			})
			require.NoError(t, err)
		}
		failing.fail(a, errors.New("no"))
		broken.fail(b, errors.New("no"))
		g.write(t, a, moved(2)...)
		g.write(t, b, moved(1)...)
		pass(30 * time.Second)
		g.write(t, a, moved(1)...)
		g.start(t)
		g.until(t, func() bool {
			l, there := g.watcher.of("own", a)
			return there && l == [2]float64{3, 30}
		}, "the worst")
		g.until(t, func() bool {
			g.watcher.mu.Lock()
			defer g.watcher.mu.Unlock()
			return g.watcher.letters == 1
		}, "the other is halted")
		pass(time.Second) // they are measured every second only
		_, there := g.watcher.of("own", b)
		require.False(t, there, "it is its tenant's matter")
		failing.fail(a, nil)
		pass(3 * time.Second) // after the pause of a second, and of two if it failed again
		l, there := g.watcher.of("own", a)
		require.True(t, there)
		require.Zero(t, l, "caught up")
	})
}

// TestRunner_SettingsChangeDuringWork is for the race detector: workers look at a
// projection that the loop is informed of again with every change.
func TestRunner_SettingsChangeDuringWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newFixture(t, nil)
		p := g.entity(t, "A")
		g.settings(t, func(*projection.Settings) {})
		g.start(t)
		for i := range 40 {
			g.write(t, p, moved(3)...)
			all, err := g.store.ProjectionVersions.NamedProjections(t.Context(), name)
			require.NoError(t, err)
			all[0].Settings.MaxAttempts = 2 + i%5
			_, err = g.store.ProjectionVersions.ChangeProjection(t.Context(), all[0])
			require.NoError(t, err)
			g.runner.Wake()
			<-time.After(time.Second)
		}
		g.until(t, func() bool { return g.count(p) == 120 }, "all were digested")
	})
}
