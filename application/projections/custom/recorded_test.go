package custom_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
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
