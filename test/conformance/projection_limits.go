package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// limitPromises are about what a tenant may have of projections of its own.
var limitPromises = []promise{
	{"ATenantsLastPlaceIsGivenOnce", lastPlace},
	{"ATenantBuildsNoMoreThanItMay", lastBuild},
	{"AVersionFollowsTheOneItWasMadeFor", madeFor},
	{"WhatWasDroppedLongAgoIsForgotten", forgetDropped},
}

// owned is a version of a tenant's own projection.
func owned(tenant, name string, version int, role projection.Role) projection.Projection {
	return projection.Projection{
		Name: projection.CustomName(tenant, name), Version: version, Role: role, Status: projection.Running, Settings: projection.DefaultSettings(), Definition: []byte(`{}`),
	}
}

func (s *suite) own(t tester, p projection.Projection) {
	t.Helper()
	_, err := s.store.AddProjection(context.Background(), p)
	require.NoError(t, err)
}

// addAtOnce adds versions at the same time and gives how often which code came of it, ""
// for those that were added.
func (s *suite) addAtOnce(all []projection.Projection) map[string]int {
	out := map[string]int{}
	var mu sync.Mutex
	var adding sync.WaitGroup
	begin := make(chan struct{})
	for _, p := range all {
		adding.Go(func() {
			<-begin
			_, err := s.store.AddProjection(context.Background(), p)
			mu.Lock()
			defer mu.Unlock()
			out[fault.CodeOf(err)]++
		})
	}
	close(begin)
	adding.Wait()
	return out
}

func lastPlace(t *testing.T, s *suite) {
	tenant, other := s.unique("tenant"), s.unique("tenant")
	for i := range projection.MaxCustom - 1 {
		s.own(t, owned(tenant, fmt.Sprintf("p%d", i), 1, projection.Active))
	}
	s.own(t, owned(tenant+"/x", "p", 1, projection.Active))
	var all []projection.Projection
	for i := range 8 {
		all = append(all, owned(tenant, fmt.Sprintf("last%d", i), 1, projection.Active))
	}
	require.Equal(t, map[string]int{"": 1, "projection.too_many": 7}, s.addAtOnce(all))
	s.own(t, owned(tenant, "p0", 1, projection.Active)) // known, so nothing is added
	s.own(t, owned(other, "p0", 1, projection.Active))
}

func lastBuild(t *testing.T, s *suite) {
	tenant := s.unique("tenant")
	var all []projection.Projection
	for i := range projection.MaxBuilding + 4 {
		name := fmt.Sprintf("p%d", i)
		s.own(t, owned(tenant, name, 1, projection.Active))
		all = append(all, owned(tenant, name, 2, projection.Building))
	}
	require.Equal(t, map[string]int{"": projection.MaxBuilding, "projection.too_many_building": 4}, s.addAtOnce(all))
}

func madeFor(t *testing.T, s *suite) {
	tenant := s.unique("tenant")
	s.own(t, owned(tenant, "p", 1, projection.Active))
	s.own(t, owned(tenant, "p", 2, projection.Building))
	b := s.newBook(t)
	require.NoError(t, b.swap(projection.CustomName(tenant, "p"), 1, 2, &recorder{book: b}))
	next := owned(tenant, "p", 3, projection.Building)
	next.ExpectedActive = 1
	_, err := s.store.AddProjection(context.Background(), next)
	f, ok := fault.As(err)
	require.True(t, ok, err)
	require.Equal(t, []any{projection.CodeWrongVersion, fault.Conflict, 1, 2}, []any{f.Code, f.Kind, f.Expected, f.Actual})
	next.ExpectedActive = 2
	s.own(t, next)
}

func forgetDropped(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newBook(t)
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
