package custom_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// wrongVersion requires the refusal of what was decided on while readers were shown
// another version.
func wrongVersion(t *testing.T, err error, expected, shown int, detail string) {
	t.Helper()
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, []any{projection.CodeWrongVersion, fault.Conflict, expected, shown, "/expected_version"}, []any{f.Code, f.Kind, f.Expected, f.Actual, f.Field})
	require.Contains(t, f.Detail, detail)
}

// TestCreate_ExpectedVersionZero: only who says nothing takes whichever version there is.
func TestCreate_ExpectedVersionZero(t *testing.T) {
	t.Parallel()
	g := newCustomFixture(t)
	creation := func(fold string, expected *int) custom.Creation {
		return custom.Creation{Name: "sums", Definition: definition("acme", ".id", fold), By: "ada", Expected: expected}
	}
	create := func(c custom.Creation) error {
		_, _, err := g.service.Create(t.Context(), c)
		return err
	}
	change := func(c custom.Creation) error {
		_, err := g.service.Change(t.Context(), c, false)
		return err
	}
	require.Equal(t, "projection.not_found", fault.CodeOf(change(creation("1", new(0)))))
	wrongVersion(t, create(creation("1", new(4))), 4, 0, "there is no projection sums, whose version 4")
	require.NoError(t, create(creation("1", new(0))))

	wrongVersion(t, create(creation("1", new(0))), 0, 1, "there is a projection sums already, whose version 1 readers are shown")
	wrongVersion(t, create(creation("1", new(4))), 4, 1, "not version 4")
	require.Equal(t, projection.CodeExists, fault.CodeOf(create(creation("1", new(1)))))
	require.Equal(t, projection.CodeExists, fault.CodeOf(create(creation("1", nil))))
	dry := creation("2", new(0))
	dry.DryRun = true
	wrongVersion(t, change(dry), 0, 1, "there is a projection sums already")
	wrongVersion(t, change(creation("2", new(0))), 0, 1, "there is a projection sums already")
	all, err := g.store.ProjectionVersions.NamedProjections(t.Context(), projection.CustomName("acme", "sums"))
	require.NoError(t, err)
	require.Len(t, all, 1, "nothing was begun")

	require.NoError(t, change(creation("1", new(0))), "said again, it is what there is")
	require.NoError(t, change(creation("2", nil)))
	require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "ada"))
	require.NoError(t, create(creation("3", new(0))), "what was deleted is not there")
}

// contendedRegister is a register in which another caller creates a projection just before.
type contendedRegister struct {
	ports.ProjectionRegister
	before func()
}

func (f *contendedRegister) AddProjection(ctx context.Context, p projection.Projection) (projection.Projection, error) {
	f.before()
	return f.ProjectionRegister.AddProjection(ctx, p)
}

// TestCreate_ExpectedVersionZeroConcurrent has the other one begin after the look.
func TestCreate_ExpectedVersionZeroConcurrent(t *testing.T) {
	t.Parallel()
	for name, versions := range map[string]int{"of the same version": 1, "of a later version": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCustomFixture(t)
			register := &contendedRegister{ProjectionRegister: g.store.ProjectionVersions, before: func() {
				for n := range versions {
					if n > 0 {
						require.NoError(t, g.service.Delete(t.Context(), "acme", "sums", "bob"))
					}
					_, _, err := g.service.Create(t.Context(), custom.Creation{Name: "sums", Definition: definition("acme", ".id", "1"), By: "bob"})
					require.NoError(t, err)
				}
			}}
			late := testkit.Must(custom.New(custom.Config{Compiler: jq.NewWithLimits(untimedLimits()), Rows: g.store.ProjectionRows, Register: register, Decisions: g.decisions, Entities: g.store.Directory, Events: g.store.Events, Recompute: custom.RecomputeConfig{RecomputeLimits: recomputeLimits}}))
			_, _, err := late.Create(t.Context(), custom.Creation{Name: "sums", Definition: definition("acme", ".id", "2"), By: "ada", Expected: new(0)})
			wrongVersion(t, err, 0, versions, "there is a projection sums already")
		})
	}
}
