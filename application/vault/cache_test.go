package vault_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

func TestCache_LifetimeBeginsWithRead(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	r.vault.EvictAll()
	r.store.afterRead = func() { r.clock.Advance(10 * time.Second) } // a slow answer
	r.open(t, sealed)
	r.store.afterRead = nil
	before, _ := r.store.counts()
	for range 49 { // frequent use does not lengthen the life of a key
		r.clock.Advance(time.Second)
		r.open(t, sealed)
	}
	r.clock.Advance(time.Second - 1)
	r.open(t, sealed)
	reads, _ := r.store.counts()
	_, unwrapped := r.service.counts()
	require.Equal(t, []int{before, 1}, []int{reads, unwrapped})

	r.clock.Advance(1)
	r.store.setFailure(errStoreDown)
	_, err := open(t.Context(), r.vault, allClasses, sealed)
	require.ErrorIs(t, err, errStoreDown)
	require.Zero(t, r.service.liveKeys(), "expired keys are zeroed")
	r.store.setFailure(nil)
	r.open(t, sealed)
	reads, _ = r.store.counts()
	_, unwrapped = r.service.counts()
	require.Equal(t, []int{before + 2, 2}, []int{reads, unwrapped})
}

// TestVault_OutageIsNoErasure: keys in memory are used until they expire; then requests fail and
// the document stays sealed.
func TestVault_OutageIsNoErasure(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	for range 10 {
		r.seal(t, r.contactRequest("E-1"))
	}
	r.store.setFailure(errStoreDown)
	errServiceDown := fault.New(fault.Unavailable, "kms.unavailable", "the key service is down; try again")
	r.service.set(func(s *keyService) { s.fail = errServiceDown })
	r.clock.Advance(keyLife - 1)
	require.Contains(t, r.open(t, sealed), canary)
	r.seal(t, r.contactRequest("E-1"))
	_, _, err := r.vault.Seal(t.Context(), r.contactRequest("E-2"))
	require.ErrorIs(t, err, errStoreDown)

	r.clock.Advance(1)
	for _, want := range []error{errStoreDown, errServiceDown} {
		for range 3 {
			text, err := open(t.Context(), r.vault, allClasses, sealed)
			require.ErrorIs(t, err, want)
			require.Equal(t, string(sealed), text)
			_, _, err = r.vault.Seal(t.Context(), r.contactRequest("E-1"))
			require.ErrorIs(t, err, want)
			require.NotContains(t, err.Error(), canary)
		}
		r.store.setFailure(nil)
	}
	_, _, err = r.vault.Seal(t.Context(), r.contactRequest("E-2"))
	require.ErrorIs(t, err, errServiceDown, "no key can be made")
	r.service.set(func(s *keyService) { s.fail = nil })
	require.Contains(t, r.open(t, sealed), canary)
	require.Equal(t, []int{6, 1}, []int{r.counters.kms["unwrapkms.unavailable"], r.counters.kms["generatekms.unavailable"]}, "errors are not cached")
}

func TestCache_KeepsDestroyedAndNotAbsentKeys(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	reference := r.store.set(employeeKey("E-1"), destroy)
	r.vault.Evict(reference)
	before, _ := r.store.counts()
	for range 5 {
		require.Contains(t, r.open(t, sealed), "[REDACTED]")
		r.clock.Advance(keyLife / 6)
	}
	reads, _ := r.store.counts()
	require.Equal(t, before+1, reads)
	r.clock.Advance(keyLife / 6)
	r.store.setFailure(errStoreDown)
	_, err := open(t.Context(), r.vault, allClasses, sealed)
	require.ErrorIs(t, err, errStoreDown, "the cached state has expired too")
	r.store.setFailure(nil)

	r.store.mu.Lock()
	delete(r.store.keys, employeeKey("E-1"))
	r.store.mu.Unlock()
	before, _ = r.store.counts()
	for range 3 {
		_, err := open(t.Context(), r.vault, allClasses, sealed)
		require.Equal(t, "pii.unsealable", fault.CodeOf(err), "a lost key is no erasure")
	}
	reads, _ = r.store.counts()
	require.Equal(t, before+3, reads)
}

func TestEvict(t *testing.T) {
	t.Parallel()
	for name, evict := range map[string]func(*vaultFixture, string){
		"one": func(r *vaultFixture, reference string) { r.vault.Evict(reference) },
		"all": func(r *vaultFixture, _ string) { r.vault.EvictAll() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newVaultFixture(t)
			sealed := r.seal(t, r.contactRequest("E-1"))
			r.seal(t, r.contactRequest("E-2"))
			reference := r.store.set(employeeKey("E-1"), destroy)
			require.Contains(t, r.open(t, sealed), canary, "this node has not received the eviction")
			evict(r, reference)
			require.Equal(t, map[string]int{"one": 1, "all": 0}[name], r.service.liveKeys())
			require.Contains(t, r.open(t, sealed), "[REDACTED]")
			require.Equal(t, map[string]int{"one": 1, "all": 2}[name], r.counters.evicted)
			r.vault.Evict("unknown")
		})
	}
}

// openWhile opens a document, and runs f while that request waits in the key service or the key
// store.
func openWhile(t *testing.T, r *vaultFixture, sealed []byte, inStore bool, f func()) (text string, err error) {
	t.Helper()
	entered, hold := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() { close(entered); <-hold })
	if inStore {
		r.store.mu.Lock()
		r.store.afterRead = stop
		r.store.mu.Unlock()
	} else {
		r.service.set(func(s *keyService) { s.onCall = stop })
	}
	var wg sync.WaitGroup
	wg.Go(func() { text, err = open(t.Context(), r.vault, allClasses, sealed) })
	<-entered
	r.store.mu.Lock()
	r.store.afterRead = nil
	r.store.mu.Unlock()
	r.service.set(func(s *keyService) { s.onCall = nil })
	f()
	close(hold)
	wg.Wait()
	return text, err
}

func TestAcquireKeys_ReadBeforeEvictionIsUsedOnce(t *testing.T) {
	t.Parallel()
	for _, inStore := range []bool{true, false} {
		for _, everything := range []bool{true, false} {
			t.Run(fmt.Sprint(inStore, everything), func(t *testing.T) {
				t.Parallel()
				r := newVaultFixture(t)
				sealed := r.seal(t, r.contactRequest("E-1"))
				reference := r.store.keys[employeeKey("E-1")].Reference
				r.vault.EvictAll()
				text, err := openWhile(t, r, sealed, inStore, func() {
					r.store.set(employeeKey("E-1"), destroy)
					if everything {
						r.vault.EvictAll()
					} else {
						r.vault.Evict(reference)
					}
					// A request after the eviction does not join the read before it.
					late, err := open(t.Context(), r.vault, allClasses, sealed)
					require.NoError(t, err)
					require.Contains(t, late, "[REDACTED]")
				})
				require.NoError(t, err)
				require.Contains(t, text, canary)
				require.Zero(t, r.service.liveKeys(), "zeroed after the one use")
				require.Contains(t, r.open(t, sealed), "[REDACTED]")
			})
		}
	}
}

func TestMint_BeforeEvictionIsNotCached(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	r.store.beforeMint = r.vault.EvictAll
	r.seal(t, r.contactRequest("E-1"))
	require.Zero(t, r.service.liveKeys())
	r.seal(t, r.contactRequest("E-1"))
	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{1, 1}, []int{generated, unwrapped})
}

func TestAcquireKeys_KeyExpiresDuringUnwrap(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	r.vault.EvictAll()
	before, _ := r.store.counts()
	text, err := openWhile(t, r, sealed, false, func() {
		r.clock.Advance(keyLife)
		r.store.set(employeeKey("E-1"), destroy)
	})
	require.NoError(t, err)
	require.Contains(t, text, "[REDACTED]", "the key store was read again")
	reads, _ := r.store.counts()
	require.Equal(t, before+2, reads)
	r.vault.EvictAll()
	require.Zero(t, r.service.liveKeys())
}

func TestCache_Limit(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t, func(c *vault.Config) { c.Entries = 3 })
	var documents [][]byte
	for i := range 5 {
		documents = append(documents, r.seal(t, r.contactRequest(fmt.Sprintf("E-%d", i))))
		r.clock.Advance(time.Second)
	}
	require.Equal(t, 3, r.service.liveKeys())
	require.Equal(t, 2, r.counters.evicted)
	require.Contains(t, r.open(t, documents[4]), canary)
	_, unwrapped := r.service.counts()
	require.Zero(t, unwrapped)
	require.Contains(t, r.open(t, documents[0]), canary, "the key that expires first was evicted")
	_, unwrapped = r.service.counts()
	require.Equal(t, 1, unwrapped)

	// A request that needs more keys than the limit gets all; afterwards the limit holds.
	var page []module.SealedDocument
	for _, d := range documents {
		page = append(page, module.SealedDocument{At: location(), Document: d})
	}
	require.NoError(t, r.vault.Open(t.Context(), page, allClasses))
	for _, d := range page {
		require.Contains(t, string(d.Document), canary)
	}
	require.LessOrEqual(t, r.service.liveKeys(), 3)
}

func TestForget(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	r.seal(t, r.contactRequest("E-1"))
	before, _ := r.store.counts()
	r.vault.Forget(8, []event.SealedSubject{{Subject: "employee:E-1"}})
	r.vault.Forget(7, []event.SealedSubject{{Subject: "employee:E-1", KeyClass: 1}, {Subject: "employee:E-2"}})
	r.seal(t, r.contactRequest("E-1"))
	reads, _ := r.store.counts()
	require.Equal(t, before, reads)
	r.vault.Forget(7, []event.SealedSubject{{Subject: "employee:E-1"}})
	r.seal(t, r.contactRequest("E-1"))
	reads, _ = r.store.counts()
	require.Equal(t, before+1, reads)
}

func TestMint_KeyPerPartitionSubjectAndClass(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	r.seal(t, r.contactRequest("E-1"))
	other := r.contactRequest("E-1")
	other.At.Partition = 8
	r.seal(t, other)
	other = r.contactRequest("E-1")
	other.Class = shredding.KeyRegulatory
	_, used, err := r.vault.Seal(t.Context(), other)
	require.NoError(t, err)
	require.EqualValues(t, 1, used[0].KeyClass)
	generated, _ := r.service.counts()
	require.Equal(t, 3, generated)
	for id, k := range r.store.keys {
		w := r.service.wrapped[string(k.Versions[0].Wrapped)]
		require.Equal(t, ports.Bound(id.Partition, k.Reference, 1), w.bound)
		require.NotZero(t, k.Versions[0].Fingerprint)
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, k.Reference)
	}
}

// TestEvict_KeysInUse seals and opens while all keys are evicted in a loop.
func TestEvict_KeysInUse(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	done := make(chan struct{})
	var evictor, users sync.WaitGroup
	evictor.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				r.vault.EvictAll()
				r.vault.Forget(7, []event.SealedSubject{{Subject: "employee:E-1"}})
			}
		}
	})
	succeeded := 0
	var mu sync.Mutex
	for range 8 {
		users.Go(func() {
			for range 100 {
				text, err := open(t.Context(), r.vault, allClasses, sealed)
				if err == nil {
					require.Contains(t, text, canary)
				}
				_, _, sealErr := r.vault.Seal(t.Context(), r.contactRequest("E-1"))
				for _, err := range []error{err, sealErr} {
					if err != nil {
						require.Equal(t, "pii.key_evicted", fault.CodeOf(err))
						continue
					}
					mu.Lock()
					succeeded++
					mu.Unlock()
				}
			}
		})
	}
	users.Wait()
	close(done)
	evictor.Wait()
	require.Positive(t, succeeded)
	r.vault.EvictAll()
	require.Zero(t, r.service.liveKeys(), "every key is zeroed")
}

// TestEvict_DoesNotWaitForRequest: a key is zeroed at once although a request uses it; the
// request reads the key store again.
func TestEvict_DoesNotWaitForRequest(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.sealRequest(twoPersons))
	r.vault.Forget(7, []event.SealedSubject{{Subject: "person:P-9"}})
	require.Equal(t, 1, r.service.liveKeys())
	text, err := openWhile(t, r, sealed, false, func() { // the request has acquired one of its keys
		r.vault.Evict(r.store.set(employeeKey("E-1"), destroy))
		require.Zero(t, r.service.liveKeys())
	})
	require.NoError(t, err)
	require.Equal(t, `{"data":{"iban" : "[REDACTED]" ,"id":"E-1","email":"[REDACTED]","partner":{"id":"P-9","name":"Bob"},"grade":1.50}}`, text)
}

// TestOpen_RefusesCopyFromOtherPartition: a row of one partition cannot disclose values of
// another.
func TestOpen_RefusesCopyFromOtherPartition(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	request := r.contactRequest("E-1")
	request.At.Partition = 8
	values, err := shredding.FindSealed(r.seal(t, request))
	require.NoError(t, err)
	origin := request.At
	origin.Pointer = "/data/email"
	values[0].Origin = &origin
	row := append(values[0].Append([]byte(`{"mail":`)), '}')
	_, err = open(t.Context(), r.vault, allClasses, row)
	require.Equal(t, "pii.unsealable", fault.CodeOf(err))
	documents := []module.SealedDocument{{At: shredding.Location{Partition: 8}, Document: row}}
	require.NoError(t, r.vault.Open(t.Context(), documents, allClasses))
	require.Contains(t, string(documents[0].Document), canary)
}
