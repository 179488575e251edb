package vault_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// fakeEvictions lets a test report evictions and generations.
type fakeEvictions struct {
	mu       sync.Mutex
	newest   int64
	fail     error
	reports  []int64
	onReport func(forgotten int64) // runs in every report
	evict    func(string)
	lost     func()
}

func (s *fakeEvictions) ListenEvictions(ctx context.Context, evict func(string), lost func()) error {
	s.mu.Lock()
	s.evict, s.lost = evict, lost
	s.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (s *fakeEvictions) ReportNode(_ context.Context, node string, forgotten int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if node != "node-1" {
		return 0, errors.New("another node")
	}
	s.reports = append(s.reports, forgotten)
	if s.onReport != nil {
		s.onReport(forgotten)
	}
	return s.newest, s.fail
}

func (s *fakeEvictions) lastReport() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.reports) == 0 {
		return -1
	}
	return s.reports[len(s.reports)-1]
}

func startRun(t *testing.T, r *vaultFixture) *fakeEvictions {
	t.Helper()
	s := &fakeEvictions{newest: 3}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { r.vault.Run(ctx, s, "node-1"); close(done) }()
	t.Cleanup(func() {
		cancel()
		<-done
		require.Zero(t, r.service.liveKeys(), "a node that stops evicts all keys")
	})
	synctest.Wait()
	return s
}

// pass lets simulated time pass, and waits until the nodes have done what was due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRun_ReportsSignalAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newVaultFixture(t)
		s := startRun(t, r)
		require.EqualValues(t, 3, s.lastReport())
		r.seal(t, r.contactRequest("E-1"))
		r.seal(t, r.contactRequest("E-2"))
		s.mu.Lock()
		evict, before := s.evict, len(s.reports)
		s.mu.Unlock()
		evict(r.store.keys[employeeKey("E-1")].Reference)
		require.Equal(t, 1, r.service.liveKeys())
		synctest.Wait()

		s.mu.Lock()
		require.Len(t, s.reports, before+1, "without a poll")
		lost := s.lost
		s.newest = 4
		s.onReport = func(forgotten int64) {
			if forgotten == 4 {
				require.Zero(t, r.service.liveKeys(), "keys are evicted before the report")
			}
		}
		s.mu.Unlock()
		lost()
		require.Zero(t, r.service.liveKeys())
		synctest.Wait()
		require.EqualValues(t, 4, s.lastReport())
	})
}

// TestRun_LearnsBeforeReport: a node reports that it has evicted destroyed keys only when it knows
// which they are, so that it refuses one that comes back.
func TestRun_LearnsBeforeReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var learned atomic.Int64
		r := newVaultFixture(t, func(c *vault.Config) {
			c.Learn = func(context.Context) error {
				if learned.Add(1) < 3 {
					return errStoreDown
				}
				return nil
			}
		})
		s := startRun(t, r)
		pass(2*poll - 1)
		require.Zero(t, s.lastReport())
		pass(1)
		require.EqualValues(t, 3, s.lastReport(), "with the third attempt")
		s.mu.Lock()
		s.newest = 5
		s.onReport = func(forgotten int64) {
			if forgotten == 5 {
				require.GreaterOrEqual(t, learned.Load(), int64(3))
			}
		}
		s.mu.Unlock()
		pass(poll)
		require.EqualValues(t, 5, s.lastReport())
	})
}

func TestRun_EvictsOnNewGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, newest := range []int64{9, 1} { // destroyed since, or restored from a backup
			r := newVaultFixture(t)
			s := startRun(t, r)
			r.seal(t, r.contactRequest("E-1"))
			pass(poll)
			require.Equal(t, 1, r.service.liveKeys(), "a report without a new generation evicts nothing")
			s.mu.Lock()
			s.fail, s.newest = fault.New(fault.Unavailable, "keys.unavailable", "down"), newest
			s.mu.Unlock()
			pass(poll)
			require.Equal(t, 1, r.service.liveKeys())
			s.mu.Lock()
			s.fail = nil
			s.onReport = func(forgotten int64) {
				if forgotten == newest {
					require.Zero(t, r.service.liveKeys())
				}
			}
			s.mu.Unlock()
			pass(poll)
			require.Equal(t, newest, s.lastReport())
		}
	})
}

func TestRun_RemovesExpiredKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newVaultFixture(t, func(c *vault.Config) { c.Clock = system.Clock{} })
		startRun(t, r)
		r.seal(t, r.contactRequest("E-1"))
		pass(keyLife - 1)
		require.Equal(t, 1, r.service.liveKeys())
		pass(1)
		require.Zero(t, r.service.liveKeys())
	})
}

func TestDerive(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	derive := func(v *vault.Vault, tenant, purpose, label string) (out string) {
		key, err := v.Derive(t.Context(), tenant, purpose, label)
		require.NoError(t, err)
		require.NoError(t, key.Use(func(b []byte) error { out = string(b); return nil }))
		return out
	}
	key := derive(r.vault, "acme", "webhook", "a|1")
	require.Len(t, key, 32)
	require.Equal(t, key, derive(r.newNode(), "acme", "webhook", "a|1"), "every node derives the same")
	for _, other := range []string{
		derive(r.vault, "acme", "webhook", "a|2"), derive(r.vault, "globex", "webhook", "a|1"), derive(r.vault, "acme", "other", "a|1"),
	} {
		require.NotEqual(t, key, other)
	}
	// The fingerprint of a digest is not the key derived from the same bytes: each purpose has
	// its own secret.
	label := strings.Repeat("x", 32)
	print, err := r.vault.Fingerprint(t.Context(), "acme", event.Hash([]byte(label)))
	require.NoError(t, err)
	require.NotEqual(t, string(print[:]), derive(r.vault, "acme", "webhook", label))
	_, err = r.vault.Derive(t.Context(), "acme", "fingerprint", label)
	require.Error(t, err)
	_, err = testkit.Must(vault.New(vault.Config{})).Derive(t.Context(), "acme", "webhook", "a|1")
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	authenticate := func(v *vault.Vault, tenant, purpose, text string) event.Hash {
		h, err := v.Authenticate(t.Context(), tenant, purpose, []byte(text))
		require.NoError(t, err)
		return h
	}
	h := authenticate(r.vault, "acme", "snapshot", "text")
	require.NotZero(t, h)
	require.Equal(t, h, authenticate(r.newNode(), "acme", "snapshot", "text"), "every node computes the same")
	for _, other := range []event.Hash{
		authenticate(r.vault, "acme", "snapshot", "text."), authenticate(r.vault, "globex", "snapshot", "text"), authenticate(r.vault, "acme", "cursor", "text"),
	} {
		require.NotEqual(t, h, other)
	}
	derived, err := r.vault.Derive(t.Context(), "acme", "snapshot", "text")
	require.NoError(t, err)
	require.NoError(t, derived.Use(func(key []byte) error { require.NotEqual(t, h[:], key, "a derived key is given away"); return nil }))
	_, err = r.vault.Derive(t.Context(), "acme", "authenticate/snapshot", "text")
	require.Equal(t, "pii.purpose_taken", fault.CodeOf(err))
	_, err = testkit.Must(vault.New(vault.Config{})).Authenticate(t.Context(), "acme", "snapshot", []byte("text"))
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	digest := event.Hash{1, 2, 3}
	nodes := []*vault.Vault{r.vault, r.newNode(), r.newNode()}
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
	require.Equal(t, len(nodes), r.service.liveKeys())
	other, err := r.vault.Fingerprint(t.Context(), "globex", digest)
	require.NoError(t, err)
	require.NotEqual(t, prints[0], other)
	secret := r.store.secrets["acmefingerprint"]
	require.Equal(t, ports.Bound(0, secret.Reference, 1), r.service.wrapped[string(secret.Wrapped)].bound)

	// A loaded secret stays in memory after an eviction and during an outage.
	r.vault.EvictAll()
	r.clock.Advance(24 * time.Hour)
	r.store.setFailure(errStoreDown)
	r.service.set(func(s *keyService) { s.fail = errStoreDown })
	print, err := r.vault.Fingerprint(t.Context(), "acme", digest)
	require.NoError(t, err)
	require.Equal(t, prints[0], print)

	cold := r.newNode()
	_, err = cold.Fingerprint(t.Context(), "acme", digest)
	require.ErrorIs(t, err, errStoreDown)
	r.store.setFailure(nil)
	r.service.set(func(s *keyService) { s.fail = nil })
	_, err = cold.Fingerprint(t.Context(), "acme", digest)
	require.ErrorIs(t, err, errStoreDown, "requests within the pause get the last error at once")
	r.clock.Advance(2 * time.Second)
	print, err = cold.Fingerprint(t.Context(), "acme", digest)
	require.NoError(t, err)
	require.Equal(t, prints[0], print, "the secret is loaded again after the pause")
}

// TestNewRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestNewRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	c := newVaultFixture(t).vault.Config
	c.Life = 0
	_, err := vault.New(c)
	require.ErrorContains(t, err, "Life")
}
