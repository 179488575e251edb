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
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	r.vault.EvictAll()
	r.store.afterRead = func() { r.clock.Advance(10 * time.Second) } // a slow answer
	r.open(t, sealed)
	r.store.afterRead = nil
	before, _ := r.store.counts()
	for range 49 { // used all the time
		r.clock.Advance(time.Second)
		r.open(t, sealed)
	}
	r.clock.Advance(time.Second - 1)
	r.open(t, sealed)
	reads, _ := r.store.counts()
	_, unwrapped := r.service.counts()
	require.Equal(t, []int{before, 1}, []int{reads, unwrapped})

	r.clock.Advance(1)
	r.store.break_(down)
	_, err := open(t.Context(), r.vault, all, sealed)
	require.ErrorIs(t, err, down)
	require.Zero(t, r.service.alive(), "dead keys are zeroed")
	r.store.break_(nil)
	r.open(t, sealed)
	reads, _ = r.store.counts()
	_, unwrapped = r.service.counts()
	require.Equal(t, []int{before + 2, 2}, []int{reads, unwrapped})
}

// An outage is never an erasure: what is in memory serves until its time is over,
// then there is an error and the document is as it was.
func TestOutages(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	for range 10 {
		r.seal(t, r.hired("E-1"))
	}
	r.store.break_(down)
	away := fault.New(fault.Unavailable, "kms.unavailable", "the key service is away; try again")
	r.service.set(func(s *keyService) { s.fail = away })
	r.clock.Advance(life - 1)
	require.Contains(t, r.open(t, sealed), canary)
	r.seal(t, r.hired("E-1"))
	_, _, err := r.vault.Seal(t.Context(), r.hired("E-2"))
	require.ErrorIs(t, err, down)

	r.clock.Advance(1)
	for _, want := range []error{down, away} {
		for range 3 {
			text, err := open(t.Context(), r.vault, all, sealed)
			require.ErrorIs(t, err, want)
			require.Equal(t, string(sealed), text)
			_, _, err = r.vault.Seal(t.Context(), r.hired("E-1"))
			require.ErrorIs(t, err, want)
			require.NotContains(t, err.Error(), canary)
		}
		r.store.break_(nil)
	}
	_, _, err = r.vault.Seal(t.Context(), r.hired("E-2"))
	require.ErrorIs(t, err, away, "no key can be made")
	r.service.set(func(s *keyService) { s.fail = nil })
	require.Contains(t, r.open(t, sealed), canary)
	require.Equal(t, []int{6, 1}, []int{r.tally.kms["unwrapkms.unavailable"], r.tally.kms["generatekms.unavailable"]}, "errors are not kept")
}

func TestCacheKeepsDestroyedAndNotAbsentKeys(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	reference := r.store.set(employee("E-1"), destroy)
	r.vault.Evict(reference)
	before, _ := r.store.counts()
	for range 5 {
		require.Contains(t, r.open(t, sealed), "[REDACTED]")
		r.clock.Advance(life / 6)
	}
	reads, _ := r.store.counts()
	require.Equal(t, before+1, reads)
	r.clock.Advance(life / 6)
	r.store.break_(down)
	_, err := open(t.Context(), r.vault, all, sealed)
	require.ErrorIs(t, err, down, "what the store said has died too")
	r.store.break_(nil)

	r.store.mu.Lock()
	delete(r.store.keys, employee("E-1"))
	r.store.mu.Unlock()
	before, _ = r.store.counts()
	for range 3 {
		_, err := open(t.Context(), r.vault, all, sealed)
		require.Equal(t, "pii.unsealable", fault.CodeOf(err), "a lost key is no erasure")
	}
	reads, _ = r.store.counts()
	require.Equal(t, before+3, reads)
}

func TestEvict(t *testing.T) {
	t.Parallel()
	for name, evict := range map[string]func(*rig, string){
		"one": func(r *rig, reference string) { r.vault.Evict(reference) },
		"all": func(r *rig, _ string) { r.vault.EvictAll() },
	} {
		r := setup(t)
		sealed := r.seal(t, r.hired("E-1"))
		r.seal(t, r.hired("E-2"))
		reference := r.store.set(employee("E-1"), destroy)
		require.Contains(t, r.open(t, sealed), canary, "nobody has told this node yet")
		evict(r, reference)
		require.Equal(t, map[string]int{"one": 1, "all": 0}[name], r.service.alive())
		require.Contains(t, r.open(t, sealed), "[REDACTED]")
		require.Equal(t, map[string]int{"one": 1, "all": 2}[name], r.tally.evicted)
		r.vault.Evict("unknown")
	}
}

// during runs an opening that is stopped inside the key service or the key store,
// and something else meanwhile.
func during(t *testing.T, r *rig, sealed []byte, inStore bool, meanwhile func()) (text string, err error) {
	t.Helper()
	entered, hold := make(chan struct{}), make(chan struct{})
	stop := sync.OnceFunc(func() { close(entered); <-hold })
	if inStore {
		r.store.mu.Lock()
		r.store.afterRead = stop
		r.store.mu.Unlock()
	} else {
		r.service.set(func(s *keyService) { s.hold = stop })
	}
	var wg sync.WaitGroup
	wg.Go(func() { text, err = open(t.Context(), r.vault, all, sealed) })
	<-entered
	r.store.mu.Lock()
	r.store.afterRead = nil
	r.store.mu.Unlock()
	r.service.set(func(s *keyService) { s.hold = nil })
	meanwhile()
	close(hold)
	wg.Wait()
	return text, err
}

func TestLoad_BeforeEvictionIsUsedOnce(t *testing.T) {
	t.Parallel()
	for _, inStore := range []bool{true, false} {
		for _, everything := range []bool{true, false} {
			t.Run(fmt.Sprint(inStore, everything), func(t *testing.T) {
				t.Parallel()
				r := setup(t)
				sealed := r.seal(t, r.hired("E-1"))
				reference := r.store.keys[employee("E-1")].Reference
				r.vault.EvictAll()
				text, err := during(t, r, sealed, inStore, func() {
					r.store.set(employee("E-1"), destroy)
					if everything {
						r.vault.EvictAll()
					} else {
						r.vault.Evict(reference)
					}
					// Whoever comes after the eviction does not join what began before.
					late, err := open(t.Context(), r.vault, all, sealed)
					require.NoError(t, err)
					require.Contains(t, late, "[REDACTED]")
				})
				require.NoError(t, err)
				require.Contains(t, text, canary)
				require.Zero(t, r.service.alive(), "zeroed after the one use")
				require.Contains(t, r.open(t, sealed), "[REDACTED]")
			})
		}
	}
}

func TestMint_BeforeEvictionIsNotCached(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.store.beforeMint = r.vault.EvictAll
	r.seal(t, r.hired("E-1"))
	require.Zero(t, r.service.alive())
	r.seal(t, r.hired("E-1"))
	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{1, 1}, []int{generated, unwrapped})
}

func TestLoad_SlowKeyService(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	r.vault.EvictAll()
	before, _ := r.store.counts()
	text, err := during(t, r, sealed, false, func() {
		r.clock.Advance(life)
		r.store.set(employee("E-1"), destroy)
	})
	require.NoError(t, err)
	require.Contains(t, text, "[REDACTED]", "the store was asked again")
	reads, _ := r.store.counts()
	require.Equal(t, before+2, reads)
	r.vault.EvictAll()
	require.Zero(t, r.service.alive())
}

func TestCacheLimit(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *vault.Config) { c.Entries = 3 })
	var documents [][]byte
	for i := range 5 {
		documents = append(documents, r.seal(t, r.hired(fmt.Sprintf("E-%d", i))))
		r.clock.Advance(time.Second)
	}
	require.Equal(t, 3, r.service.alive())
	require.Equal(t, 2, r.tally.evicted)
	require.Contains(t, r.open(t, documents[4]), canary)
	_, unwrapped := r.service.counts()
	require.Zero(t, unwrapped)
	require.Contains(t, r.open(t, documents[0]), canary, "the earliest had to go")
	_, unwrapped = r.service.counts()
	require.Equal(t, 1, unwrapped)

	// More at once than there is room for: all are served, and then the bound holds.
	var page []module.SealedDocument
	for _, d := range documents {
		page = append(page, module.SealedDocument{At: at(), Document: d})
	}
	require.NoError(t, r.vault.Open(t.Context(), page, all))
	for _, d := range page {
		require.Contains(t, string(d.Document), canary)
	}
	require.LessOrEqual(t, r.service.alive(), 3)
}

func TestForget(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.seal(t, r.hired("E-1"))
	before, _ := r.store.counts()
	r.vault.Forget(8, []event.SealedSubject{{Subject: "employee:E-1"}})
	r.vault.Forget(7, []event.SealedSubject{{Subject: "employee:E-1", KeyClass: 1}, {Subject: "employee:E-2"}})
	r.seal(t, r.hired("E-1"))
	reads, _ := r.store.counts()
	require.Equal(t, before, reads)
	r.vault.Forget(7, []event.SealedSubject{{Subject: "employee:E-1"}})
	r.seal(t, r.hired("E-1"))
	reads, _ = r.store.counts()
	require.Equal(t, before+1, reads)
}

// Keys of one subject in other partitions and classes are other keys.
func TestKeysPerPartitionSubjectAndClass(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.seal(t, r.hired("E-1"))
	other := r.hired("E-1")
	other.At.Partition = 8
	r.seal(t, other)
	other = r.hired("E-1")
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

// Sealers and openers go on while everything is evicted all the time.
func TestEvictKeysInUse(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
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
	worked := 0
	var mu sync.Mutex
	for range 8 {
		users.Go(func() {
			for range 100 {
				text, err := open(t.Context(), r.vault, all, sealed)
				if err == nil {
					require.Contains(t, text, canary)
				}
				_, _, sealErr := r.vault.Seal(t.Context(), r.hired("E-1"))
				for _, err := range []error{err, sealErr} {
					if err != nil {
						require.Equal(t, "pii.key_evicted", fault.CodeOf(err))
						continue
					}
					mu.Lock()
					worked++
					mu.Unlock()
				}
			}
		})
	}
	users.Wait()
	close(done)
	evictor.Wait()
	require.Positive(t, worked)
	r.vault.EvictAll()
	require.Zero(t, r.service.alive(), "no key is left behind")
}

// A key is zeroed at once although a request holds it, which then looks again.
func TestEvictDoesNotWaitForRequest(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.document(couple))
	r.vault.Forget(7, []event.SealedSubject{{Subject: "person:P-9"}})
	require.Equal(t, 1, r.service.alive())
	text, err := during(t, r, sealed, false, func() { // stopped with one key in hand
		r.vault.Evict(r.store.set(employee("E-1"), destroy))
		require.Zero(t, r.service.alive())
	})
	require.NoError(t, err)
	require.Equal(t, `{"data":{"iban" : "[REDACTED]" ,"id":"E-1","email":"[REDACTED]","partner":{"id":"P-9","name":"Bob"},"grade":1.50}}`, text)
}

// A row of one partition is no way to the values of another.
func TestOpenRefusesCopyFromOtherPartition(t *testing.T) {
	t.Parallel()
	r := setup(t)
	request := r.hired("E-1")
	request.At.Partition = 8
	values, err := shredding.FindSealed(r.seal(t, request))
	require.NoError(t, err)
	origin := request.At
	origin.Pointer = "/data/email"
	values[0].Origin = &origin
	row := append(values[0].Append([]byte(`{"mail":`)), '}')
	_, err = open(t.Context(), r.vault, all, row)
	require.Equal(t, "pii.unsealable", fault.CodeOf(err))
	documents := []module.SealedDocument{{At: shredding.Location{Partition: 8}, Document: row}}
	require.NoError(t, r.vault.Open(t.Context(), documents, all))
	require.Contains(t, string(documents[0].Document), canary)
}
