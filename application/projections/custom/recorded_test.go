package custom_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections/custom"
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
	require.NoError(t, g.decisions.Define(t.Context(), "acme", record(), 1, encoded, "ada"))
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
			require.NoError(t, g.decisions.Define(t.Context(), "acme", ports.ProjectionRecord{Name: "sums"}, 1, encoded, "ada")) // as if the creation was cut off
			config := g.config
			c.late(g, &config)
			require.NoError(t, testkit.Must(custom.New(config)).Recover(t.Context(), "acme"))
			_, _, err := g.service.Find(t.Context(), "acme", "sums")
			require.Equal(t, map[bool]string{false: "projection.not_found"}[c.exists], fault.CodeOf(err))
		})
	}
}
