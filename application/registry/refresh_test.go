package registry_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/registry"
)

// slowStore is a store that answers only when the test lets it.
type slowStore struct {
	*fakeStore
	asking chan struct{} // takes one for every question
	answer chan struct{} // closed: it answers
}

func newSlow(t *testing.T) *slowStore {
	return &slowStore{fakeStore: &fakeStore{stored: eventTypes(t, newStore())}, asking: make(chan struct{}, 100), answer: make(chan struct{})}
}

func (s *slowStore) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	generations, err := s.fakeStore.EventTypeGenerations(ctx)
	s.asking <- struct{}{}
	select {
	case <-s.answer:
		return generations, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func refresh(ctx context.Context, r *registry.Registry) <-chan error {
	done := make(chan error, 1)
	go func() { done <- r.Refresh(ctx, acme) }()
	return done
}

// A request that has run out of its time is not held up by another one's question to
// the database.
func TestRefresh_WaitCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSlow(t)
		r := node(t, store, orderSchema)
		first := refresh(t.Context(), r)
		<-store.asking
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		// A bubble in which all wait for an answer that never comes fails.
		require.ErrorIs(t, <-refresh(ctx, r), context.Canceled)
		close(store.answer)
		require.NoError(t, <-first)
		require.NoError(t, r.Refresh(t.Context(), acme), "a cancelled caller holds no lock")
	})
}

// A refresh that is given up lets the next one begin.
func TestRefresh_CancelledWhileRunning(t *testing.T) {
	t.Parallel()
	store := newSlow(t)
	r := node(t, store, orderSchema)
	ctx, cancel := context.WithCancel(t.Context())
	first := refresh(ctx, r)
	<-store.asking
	second := refresh(t.Context(), r)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	<-store.asking
	close(store.answer)
	require.NoError(t, <-second)
}

// What one has loaded none that waited for it loads again.
func TestRefresh_Concurrently(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := newSlow(t)
		_, err := node(t, store.stored, orderSchema).Register(t.Context(), lead(1), admin, registry.ProofRequest{})
		require.NoError(t, err)
		r := node(t, store, orderSchema)
		var all []<-chan error
		for range 8 {
			all = append(all, refresh(t.Context(), r))
		}
		synctest.Wait()
		require.EqualValues(t, 1, store.asked.Load(), "one caller queries, the rest wait for its answer")
		close(store.answer)
		for _, done := range all {
			require.NoError(t, <-done)
		}
		require.EqualValues(t, 1, store.loads.Load())
		require.EqualValues(t, 2, store.asked.Load(), "the second question serves all who were waiting when it was asked")
		typ, err := r.Lookup(t.Context(), acme, "crm.lead.won", 0)
		require.NoError(t, err)
		require.EqualValues(t, 1, typ.SchemaVersion)
	})
}
