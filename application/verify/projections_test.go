package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// TestRun_Projections compares the definitions of custom projections with the administrative log.
func TestRun_Projections(t *testing.T) {
	t.Parallel()
	log, v := administered(t)
	rows, name := log.Database.ProjectionVersions, projection.CustomName("acme", "sums")
	encode := func(fold string) []byte {
		d, err := projection.Definition{TenantID: "acme", Key: ".id", Fold: fold}.Encode()
		require.NoError(t, err)
		return d
	}
	add := func(version int, definition []byte) {
		_, err := rows.AddProjection(t.Context(), projection.Projection{Name: name, Version: version, Code: version, Role: projection.Active, Status: projection.Running, Settings: projection.DefaultSettings(), Definition: definition})
		require.NoError(t, err)
	}
	decisions := log.Projections()
	record := func() ports.ProjectionRecord {
		r, err := decisions.Projection(t.Context(), "acme", "sums")
		require.NoError(t, err)
		return r
	}
	mismatch := []verify.FindingKind{verify.ProjectionMismatch}
	require.NoError(t, decisions.Define(t.Context(), "acme", record(), 1, encode("1"), "p-1"))
	require.Equal(t, mismatch, kinds(t, v), "missing")
	add(1, encode("1"))
	require.Empty(t, kinds(t, v))
	require.NoError(t, decisions.Define(t.Context(), "acme", record(), 2, encode("2"), "p-1"))
	require.Empty(t, kinds(t, v), "a version with the second definition is still to come")
	require.NoError(t, decisions.Remove(t.Context(), "acme", record(), "p-1"))
	require.Equal(t, mismatch, kinds(t, v), "removed")
	require.NoError(t, log.Database.ProjectionRows.EndProjection(t.Context(), name, "p-1"))
	require.Empty(t, kinds(t, v))
	require.NoError(t, decisions.Define(t.Context(), "acme", record(), 3, encode("3"), "p-1"))
	add(3, encode("2"))
	require.Equal(t, mismatch, kinds(t, v), "another definition, of before")
}
