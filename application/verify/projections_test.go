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
	version := func(n int, role projection.Role, fold string) projection.Projection {
		return projection.Projection{Name: name, Version: n, Code: n, Role: role, Status: projection.Running, Settings: projection.DefaultSettings(), Definition: encode(fold)}
	}
	add := func(p projection.Projection) {
		_, err := rows.AddProjection(t.Context(), p)
		require.NoError(t, err)
	}
	decisions := log.Projections()
	record := func() ports.ProjectionRecord {
		r, err := decisions.Projection(t.Context(), "acme", "sums")
		require.NoError(t, err)
		return r
	}
	mismatch := []verify.FindingKind{verify.ProjectionMismatch}
	define := func(p projection.Projection) {
		require.NoError(t, decisions.Define(t.Context(), "acme", record(), p, "p-1"))
	}
	decide := func(d ports.ProjectionDecision) {
		d.By = "p-1"
		require.NoError(t, decisions.Decide(t.Context(), "acme", record(), d))
	}
	define(version(1, projection.Active, "1"))
	require.Equal(t, mismatch, kinds(t, v), "missing")
	add(version(1, projection.Active, "1"))
	require.Empty(t, kinds(t, v))
	define(version(2, projection.Building, "2"))
	require.Empty(t, kinds(t, v), "a version with the second definition is still to come")
	add(version(2, projection.Building, "2"))
	require.Empty(t, kinds(t, v))

	change := func(number int, edit func(*projection.Projection)) {
		all, err := rows.NamedProjections(t.Context(), name)
		require.NoError(t, err)
		edit(&all[number-1])
		_, err = rows.ChangeProjection(t.Context(), all[number-1])
		require.NoError(t, err)
	}
	change(1, func(p *projection.Projection) { p.Status = projection.Faulted })
	require.Empty(t, kinds(t, v), "a node halted it")
	change(1, func(p *projection.Projection) { p.Status = projection.Paused })
	require.Equal(t, mismatch, kinds(t, v), "no person paused it")
	paused := record().Versions[0]
	paused.Status = projection.Paused
	decide(ports.ProjectionDecision{Action: ports.ProjectionOperated, Version: 1, Operation: projection.Pause, Versions: record().Versions.With(paused)})
	require.Empty(t, kinds(t, v))
	change(2, func(p *projection.Projection) { p.Settings.MaxAttempts++ })
	require.Equal(t, mismatch, kinds(t, v), "other settings")
	change(2, func(p *projection.Projection) { p.Settings.MaxAttempts-- })

	require.NoError(t, rows.SwitchProjection(t.Context(), ports.ProjectionSwitch{Projection: name, From: 1, To: 2, Force: true}))
	require.Equal(t, append(mismatch, mismatch...), kinds(t, v), "no event activated version 2")
	decide(ports.ProjectionDecision{Action: ports.ProjectionActivated, Version: 2, Versions: record().Versions.Activate(record().Versions[1])})
	require.Empty(t, kinds(t, v))
	require.NoError(t, decisions.Decide(t.Context(), "acme", ports.ProjectionRecord{Name: "ap.vendors"}, ports.ProjectionDecision{Action: ports.ProjectionConfigured, Version: 1, By: "p-1"}))
	require.Empty(t, kinds(t, v), "a projection of a module has no versions in the log")

	require.NoError(t, decisions.Remove(t.Context(), "acme", record(), "p-1"))
	require.Equal(t, append(mismatch, mismatch...), kinds(t, v), "removed")
	require.NoError(t, log.Database.ProjectionRows.EndProjection(t.Context(), name, "p-1"))
	require.Empty(t, kinds(t, v))
	define(version(3, projection.Active, "3"))
	add(version(3, projection.Active, "2"))
	require.Equal(t, mismatch, kinds(t, v), "another definition, of before")
}
