package conformance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// limitPromises are the limits on custom projections of a tenant.
var limitPromises = []promise{
	{"tenant limit holds under concurrency", tenantLimit},
	{"build limit holds under concurrency", buildLimit},
	{"expected active version is required", expectedActive},
	{"old dropped versions are removed", forgetDropped},
}

// customVersion is a version of a custom projection.
func customVersion(tenant, name string, version int, role projection.Role) projection.Projection {
	return projection.Projection{
		Name: projection.CustomName(tenant, name), Version: version, Role: role, Status: projection.Running, Settings: projection.DefaultSettings(), Definition: []byte(`{}`),
	}
}

func (s *suite) addVersion(t tester, p projection.Projection) {
	t.Helper()
	_, err := s.store.AddProjection(context.Background(), p)
	require.NoError(t, err)
}

// addConcurrently adds versions at the same time and counts the codes of the results, "" for
// added ones.
func (s *suite) addConcurrently(all []projection.Projection) map[string]int {
	out := map[string]int{}
	for _, err := range race(len(all), func(i int) error {
		_, err := s.store.AddProjection(context.Background(), all[i])
		return err
	}) {
		out[fault.CodeOf(err)]++
	}
	return out
}

func tenantLimit(t *testing.T, s *suite) {
	tenant, other := s.unique("tenant"), s.unique("tenant")
	for i := range projection.MaxCustom - 1 {
		s.addVersion(t, customVersion(tenant, fmt.Sprintf("p%d", i), 1, projection.Active))
	}
	s.addVersion(t, customVersion(tenant+"/x", "p", 1, projection.Active))
	var all []projection.Projection
	for i := range 8 {
		all = append(all, customVersion(tenant, fmt.Sprintf("last%d", i), 1, projection.Active))
	}
	require.Equal(t, map[string]int{"": 1, "projection.too_many": 7}, s.addConcurrently(all))
	s.addVersion(t, customVersion(tenant, "p0", 1, projection.Active)) // known, so nothing is added
	s.addVersion(t, customVersion(other, "p0", 1, projection.Active))
}

func buildLimit(t *testing.T, s *suite) {
	tenant := s.unique("tenant")
	var all []projection.Projection
	for i := range projection.MaxBuilding + 4 {
		name := fmt.Sprintf("p%d", i)
		s.addVersion(t, customVersion(tenant, name, 1, projection.Active))
		all = append(all, customVersion(tenant, name, 2, projection.Building))
	}
	require.Equal(t, map[string]int{"": projection.MaxBuilding, "projection.too_many_building": 4}, s.addConcurrently(all))
}

func expectedActive(t *testing.T, s *suite) {
	tenant := s.unique("tenant")
	s.addVersion(t, customVersion(tenant, "p", 1, projection.Active))
	s.addVersion(t, customVersion(tenant, "p", 2, projection.Building))
	b := s.newPartition(t)
	require.NoError(t, b.swap(projection.CustomName(tenant, "p"), 1, 2, &recorder{partition: b}))
	next := customVersion(tenant, "p", 3, projection.Building)
	next.ExpectedActive = 1
	_, err := s.store.AddProjection(context.Background(), next)
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, []any{projection.CodeWrongVersion, fault.Conflict, 1, 2}, []any{f.Code, f.Kind, f.Expected, f.Actual})
	next.ExpectedActive = 2
	s.addVersion(t, next)
}

func forgetDropped(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	drop := func(version int) {
		b.version(t, name, version, projection.Building)
		require.NoError(t, s.store.DropProjection(ctx, name, version, "ada"))
		for b.roles(t, name)[version] == projection.Dropping {
			_, err := s.store.SweepProjection(ctx, name, version, nil, 10)
			require.NoError(t, err)
		}
	}
	versions := func() (out []int) {
		all, err := s.store.NamedProjections(ctx, name)
		require.NoError(t, err)
		for _, p := range all {
			out = append(out, p.Version)
		}
		return out
	}
	drop(2)
	s.clock.Advance(time.Hour)
	drop(3)
	b.version(t, name, 4, projection.Building)
	require.NoError(t, s.store.DropProjection(ctx, name, 4, "ada")) // and its rows are still there
	_, err := s.store.ForgetDropped(ctx, s.clock.Now())
	require.NoError(t, err)
	require.Equal(t, []int{1, 3, 4}, versions())
	s.clock.Advance(time.Hour)
	_, err = s.store.SweepProjection(ctx, name, 4, nil, 10)
	require.NoError(t, err)
	_, err = s.store.ForgetDropped(ctx, s.clock.Now().Add(time.Hour))
	require.NoError(t, err)
	require.Equal(t, []int{1, 4}, versions(), "the newest stays, so that its number is not given again")
}
