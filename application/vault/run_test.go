package vault_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// signals is the evictions of a key store, in the hands of the test.
type signals struct {
	mu      sync.Mutex
	newest  int64
	fail    error
	reports []int64
	onLine  func(forgotten int64) // runs in every report
	evict   func(string)
	lost    func()
	ready   chan struct{}
}

func (s *signals) ListenEvictions(ctx context.Context, evict func(string), lost func()) error {
	s.mu.Lock()
	s.evict, s.lost = evict, lost
	s.mu.Unlock()
	close(s.ready)
	<-ctx.Done()
	return ctx.Err()
}

func (s *signals) ReportNode(_ context.Context, node string, forgotten int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node != "node-1" {
		return 0, errors.New("another node")
	}
	s.reports = append(s.reports, forgotten)
	if s.onLine != nil {
		s.onLine(forgotten)
	}
	return s.newest, s.fail
}

func (s *signals) last() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reports) == 0 {
		return -1
	}
	return s.reports[len(s.reports)-1]
}

func run(t *testing.T, r *rig) *signals {
	t.Helper()
	s := &signals{ready: make(chan struct{}), newest: 3}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.vault.Run(ctx, s, "node-1"); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		require.Zero(t, r.service.alive(), "a node that stops forgets everything")
	})
	<-s.ready
	require.Eventually(t, func() bool { return s.last() == 3 }, time.Minute, time.Millisecond)
	return s
}

func TestRunReportsSignalAtOnce(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *vault.Config) { c.Poll = time.Hour })
	s := run(t, r)
	r.seal(t, r.hired("E-1"))
	r.seal(t, r.hired("E-2"))
	s.mu.Lock()
	evict, before := s.evict, len(s.reports)
	s.mu.Unlock()
	evict(r.store.keys[employee("E-1")].Reference)
	require.Equal(t, 1, r.service.alive())
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.reports) > before }, time.Minute, time.Millisecond)

	s.mu.Lock()
	lost := s.lost
	s.newest = 4
	s.onLine = func(forgotten int64) {
		if forgotten == 4 {
			require.Zero(t, r.service.alive(), "forgotten first, then reported")
		}
	}
	s.mu.Unlock()
	lost()
	require.Zero(t, r.service.alive())
	require.Eventually(t, func() bool { return s.last() == 4 }, time.Minute, time.Millisecond)
}

func TestRunEvictsOnNewGeneration(t *testing.T) {
	t.Parallel()
	for _, newest := range []int64{9, 1} { // destroyed since, or restored from a backup
		r := setup(t, func(c *vault.Config) { c.Poll = time.Millisecond })
		s := run(t, r)
		r.seal(t, r.hired("E-1"))
		require.Equal(t, 1, r.service.alive(), "a report without news forgets nothing")
		s.mu.Lock()
		s.fail, s.newest = fault.New(fault.Unavailable, "keys.unavailable", "away"), newest
		s.mu.Unlock()
		require.Equal(t, 1, r.service.alive())
		s.mu.Lock()
		s.fail = nil
		s.onLine = func(forgotten int64) {
			if forgotten == newest {
				require.Zero(t, r.service.alive())
			}
		}
		s.mu.Unlock()
		require.Eventually(t, func() bool { return s.last() == newest }, time.Minute, time.Millisecond)
	}
}

func TestCache_RemovesExpiredKeys(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *vault.Config) { c.Poll = time.Hour })
	run(t, r)
	r.seal(t, r.hired("E-1"))
	r.clock.Advance(life)
	require.Eventually(t, func() bool { return r.service.alive() == 0 }, time.Minute, 10*time.Millisecond)
}

func TestDerivedKeys(t *testing.T) {
	t.Parallel()
	r := setup(t)
	derive := func(v *vault.Vault, tenant, purpose, label string) (out string) {
		key, err := v.Derive(t.Context(), tenant, purpose, label)
		require.NoError(t, err)
		require.NoError(t, key.Use(func(b []byte) error { out = string(b); return nil }))
		return out
	}
	key := derive(r.vault, "acme", "webhook", "a|1")
	require.Len(t, key, 32)
	require.Equal(t, key, derive(r.node(), "acme", "webhook", "a|1"), "every node derives the same")
	for _, other := range []string{
		derive(r.vault, "acme", "webhook", "a|2"), derive(r.vault, "globex", "webhook", "a|1"), derive(r.vault, "acme", "other", "a|1"),
	} {
		require.NotEqual(t, key, other)
	}
	// A digest that is a label gives nothing away: purposes have secrets of their own.
	label := strings.Repeat("x", 32)
	print, err := r.vault.Fingerprint(t.Context(), "acme", event.Hash([]byte(label)))
	require.NoError(t, err)
	require.NotEqual(t, string(print[:]), derive(r.vault, "acme", "webhook", label))
	_, err = r.vault.Derive(t.Context(), "acme", "fingerprint", label)
	require.Error(t, err)
	_, err = testkit.Must(vault.New(vault.Config{})).Derive(t.Context(), "acme", "webhook", "a|1")
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
}

func TestFingerprints(t *testing.T) {
	t.Parallel()
	r := setup(t)
	digest := event.Hash{1, 2, 3}
	nodes := []*vault.Vault{r.vault, r.node(), r.node()}
	prints := make([]event.Hash, 24)
	var wg sync.WaitGroup
	for i := range prints {
		wg.Go(func() {
			print, err := nodes[i%len(nodes)].Fingerprint(t.Context(), "acme", digest)
			require.NoError(t, err)
			prints[i] = print
		})
	}
	wg.Wait()
	for _, print := range prints {
		require.Equal(t, prints[0], print, "one secret for the tenant")
	}
	require.NotEqual(t, digest, prints[0])
	require.Equal(t, len(nodes), r.service.alive())
	other, err := r.vault.Fingerprint(t.Context(), "globex", digest)
	require.NoError(t, err)
	require.NotEqual(t, prints[0], other)
	secret := r.store.secrets["acmefingerprint"]
	require.Equal(t, ports.Bound(0, secret.Reference, 1), r.service.wrapped[string(secret.Wrapped)].bound)

	// What is loaded stays, whatever is evicted and whoever is away.
	r.vault.EvictAll()
	r.clock.Advance(24 * time.Hour)
	r.store.break_(down)
	r.service.set(func(s *keyService) { s.fail = down })
	print, err := r.vault.Fingerprint(t.Context(), "acme", digest)
	require.NoError(t, err)
	require.Equal(t, prints[0], print)

	cold := r.node()
	_, err = cold.Fingerprint(t.Context(), "acme", digest)
	require.ErrorIs(t, err, down)
	r.store.break_(nil)
	r.service.set(func(s *keyService) { s.fail = nil })
	_, err = cold.Fingerprint(t.Context(), "acme", digest)
	require.ErrorIs(t, err, down, "a failure is kept for a moment, so that nobody waits in line")
	r.clock.Advance(2 * time.Second)
	print, err = cold.Fingerprint(t.Context(), "acme", digest)
	require.NoError(t, err)
	require.Equal(t, prints[0], print, "a failure is not kept for long")
}

// TestNewRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestNewRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	c := setup(t).vault.Config
	c.Life = 0
	_, err := vault.New(c)
	require.ErrorContains(t, err, "Life")
}
