package vault_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const twoPersons = `{"data":{"iban" : "DE02" ,"id":"E-1","email":"` + canary + `","partner":{"id":"P-9","name":"Bob"},"grade":1.50}}`

func TestSeal_OpensAgain(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	document, used, err := r.vault.Seal(t.Context(), r.sealRequest(twoPersons))
	require.NoError(t, err)
	require.Equal(t, []event.SealedSubject{
		{Subject: "employee:E-1", KeyVersion: 1, Pointers: []string{"/data/iban", "/data/email"}},
		{Subject: "person:P-9", KeyVersion: 1, Pointers: []string{"/data/partner/name"}},
	}, used, "in document order")
	require.NotContains(t, string(document), `"Bob"`)
	require.Contains(t, string(document), `"grade":1.50`)
	reads, mints := r.store.counts()
	require.Equal(t, []int{1, 2}, []int{reads, mints}, "one read for all subjects")

	require.Equal(t, twoPersons, r.open(t, document))
	masked, err := open(t.Context(), r.vault, readableClasses{shredding.Contact}, document)
	require.NoError(t, err)
	require.Equal(t, `{"data":{"iban" : "[MASKED]" ,"id":"E-1","email":"`+canary+`","partner":{"id":"P-9","name":"[MASKED]"},"grade":1.50}}`, masked)

	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{2, 0}, []int{generated, unwrapped})
	require.Equal(t, 3, r.counters.sealed)
	require.Equal(t, 4, r.counters.opened)
	require.Equal(t, 2, r.counters.kms["generate"])
	require.Equal(t, []int{3, 2}, []int{r.counters.hits, r.counters.misses})
}

func TestOpen_ReadsNoKeyWithoutNeed(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	plain := r.sealRequest(`{"data":{"id":"E-1"}}`)
	document, used, err := r.vault.Seal(t.Context(), plain)
	require.NoError(t, err)
	require.Nil(t, used)
	require.Equal(t, plain.Document, document)
	require.Equal(t, string(document), r.open(t, document))
	sealed := r.seal(t, r.contactRequest("E-1"))

	// Withheld values need no key, and neither do values of unknown class; only the state of
	// their keys is read, once.
	other := r.newNode()
	for name, c := range map[string]struct {
		reader module.Reader
		change func(*shredding.Location)
	}{
		"class":   {readableClasses{shredding.Bank}, func(*shredding.Location) {}},
		"type":    {allClasses, func(l *shredding.Location) { l.Type = "hr.employee.left" }},
		"version": {allClasses, func(l *shredding.Location) { l.SchemaVersion = 2 }},
		"kind":    {allClasses, func(l *shredding.Location) { l.Kind = shredding.KindIntent }},
	} {
		t.Run(name, func(t *testing.T) {
			documents := []module.SealedDocument{{At: location(), Document: sealed}}
			c.change(&documents[0].At)
			require.NoError(t, other.Open(t.Context(), documents, c.reader))
			require.Equal(t, `{"data":{"id":"E-1","email":"[MASKED]"}}`, string(documents[0].Document))
		})
	}
	reads, _ := r.store.counts()
	require.Equal(t, 2, reads, "one of each node")
	generated, unwrapped := r.service.counts()
	require.Equal(t, 1, generated+unwrapped)

	// Planning reads values of unknown class.
	text, err := open(t.Context(), r.newNode(func(c *vault.Config) { c.Manifests = nil }), module.Planning{}, sealed)
	require.NoError(t, err)
	require.Contains(t, text, canary)
}

func TestOpen_RedactsForReadersWithoutRight(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	other := r.seal(t, r.contactRequest("E-2"))
	r.store.set(employeeKey("E-1"), destroy)
	read := func(v *vault.Vault, document []byte) string {
		text, err := open(t.Context(), v, readableClasses{}, document)
		require.NoError(t, err)
		return text
	}
	fresh := r.newNode()
	require.Contains(t, read(fresh, sealed), "[REDACTED]")
	require.Contains(t, read(fresh, other), "[MASKED]")

	// Readers who may not read the value need no key store; without one the value does not
	// look erased to them.
	r.store.setFailure(fault.New(fault.Unavailable, "keys.unavailable", "down"))
	require.Contains(t, read(r.newNode(), sealed), "[MASKED]")
	closed := r.newNode(func(c *vault.Config) {
		c.Gate = func() error { return fault.New(fault.Unavailable, "pii.receipts_behind", "closed") }
	})
	require.Contains(t, read(closed, sealed), "[MASKED]")
	_, err := open(t.Context(), r.newNode(), allClasses, sealed)
	require.Equal(t, "keys.unavailable", fault.CodeOf(err))
}

func TestVault_WithoutKeyService(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	for name, change := range map[string]func(*vault.Config){
		"no store":   func(c *vault.Config) { c.Keys = nil },
		"no service": func(c *vault.Config) { c.DataKeys = nil },
	} {
		t.Run(name, func(t *testing.T) {
			v := r.newNode(change)
			_, _, err := v.Seal(t.Context(), r.contactRequest("E-1"))
			require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
			_, err = open(t.Context(), v, allClasses, sealed)
			require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
			text, err := open(t.Context(), v, readableClasses{}, sealed)
			require.NoError(t, err)
			require.Contains(t, text, "[MASKED]")
			print, err := v.Fingerprint(t.Context(), "acme", event.Hash{9})
			require.NoError(t, err)
			require.Equal(t, event.Hash{9}, print)
		})
	}
}

func TestVault_ClosedGate(t *testing.T) {
	t.Parallel()
	var gate error
	var mu sync.Mutex
	r := newVaultFixture(t, func(c *vault.Config) {
		c.Gate = func() error { mu.Lock(); defer mu.Unlock(); return gate }
	})
	sealed := r.seal(t, r.contactRequest("E-1"))
	mu.Lock()
	gate = fault.New(fault.Unavailable, "pii.receipts_behind", "replay the receipts")
	mu.Unlock()
	_, _, err := r.vault.Seal(t.Context(), r.contactRequest("E-1"))
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err))
	text, err := open(t.Context(), r.vault, allClasses, sealed)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err))
	require.Equal(t, string(sealed), text)
}

// TestOpen_RefusesMovedValues: whichever part of a value or its place is exchanged, the error is
// the same and no document is changed.
func TestOpen_RefusesMovedValues(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sound, other := r.seal(t, r.contactRequest("E-1")), r.seal(t, r.contactRequest("E-2"))
	values, err := shredding.FindSealed(sound)
	require.NoError(t, err)
	copied := values[0]
	origin := location()
	origin.Pointer = "/data/email"
	copied.Origin = &origin
	row := string(copied.Append([]byte(`{"mail":`))) + "}"

	text, err := open(t.Context(), r.vault, allClasses, []byte(row))
	require.NoError(t, err)
	require.Equal(t, `{"mail":"`+canary+`"}`, text, "a copy names the place where it was sealed")
	anywhere := []module.SealedDocument{{Document: []byte(row)}}
	require.NoError(t, r.vault.Open(t.Context(), anywhere, allClasses))

	origin.Pointer = "/data/iban"
	wrongPointer := string(copied.Append([]byte(`{"mail":`))) + "}"
	origin.Pointer, origin.Partition = "/data/email", 8
	otherPartition := string(copied.Append([]byte(`{"mail":`))) + "}"
	values[0].Subject = "employee:E-2"
	wrongSubject := `{"data":{"id":"E-2","email":` + string(values[0].Append(nil)) + `}}`
	values[0].Subject = "employee:E-3"
	unknownSubject := `{"data":{"id":"E-3","email":` + string(values[0].Append(nil)) + `}}`
	values[0].Subject = "employee:E-1"
	values[0].Envelope[5] = 2
	unknownVersion := `{"data":{"email":` + string(values[0].Append(nil)) + `}}`
	values[0].Envelope[5] = 1
	values[0].Envelope[80] ^= 1
	flipped := `{"data":{"email":` + string(values[0].Append(nil)) + `}}`
	for name, document := range map[string]string{
		"pointer": wrongPointer, "partition": otherPartition, "subject": wrongSubject, "absent subject": unknownSubject, "version": unknownVersion, "byte": flipped,
		"field": strings.Replace(string(sound), `"email"`, `"iban"`, 1), "no envelope": `{"data":{"email":{"$pii":"AQ","sub":"employee:E-1"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			documents := []module.SealedDocument{{At: location(), Document: other}, {At: location(), Document: []byte(document)}}
			err := r.vault.Open(t.Context(), documents, allClasses)
			require.Equal(t, "pii.unsealable", fault.CodeOf(err))
			require.Equal(t, string(other), string(documents[0].Document), "all or nothing")
			require.Equal(t, document, string(documents[1].Document))
			require.NotContains(t, err.Error(), canary)
			require.NotContains(t, err.Error(), "E-1")
		})
	}
	for name, change := range map[string]func(*shredding.Location){
		"record": func(l *shredding.Location) { l.Record[15]++ }, "partition": func(l *shredding.Location) { l.Partition++ },
		"type": func(l *shredding.Location) { l.Type = "hr.employee.left" }, "version": func(l *shredding.Location) { l.SchemaVersion++ },
		"kind": func(l *shredding.Location) { l.Kind = shredding.KindIntent },
	} {
		t.Run(name, func(t *testing.T) {
			documents := []module.SealedDocument{{At: location(), Document: sound}}
			change(&documents[0].At)
			require.Equal(t, "pii.unsealable", fault.CodeOf(r.vault.Open(t.Context(), documents, module.Planning{})))
		})
	}
}

func TestSeal_RefusesErasedSubject(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ports.SubjectKey){"fenced": fence, "destroyed": destroy} {
		t.Run(name, func(t *testing.T) {
			r := newVaultFixture(t)
			sealed := r.seal(t, r.sealRequest(twoPersons))
			reference := r.store.set(employeeKey("E-1"), change)
			r.vault.Evict(reference)
			for range 2 { // from the key store, then from memory
				_, _, err := r.vault.Seal(t.Context(), r.sealRequest(twoPersons))
				f, ok := fault.As(err)
				require.True(t, ok)
				require.Equal(t, shredding.CodeSubjectErased, f.Code)
				require.Equal(t, fault.Gone, f.Kind)
				require.Equal(t, "/data/email", f.Field)
				require.NotContains(t, err.Error(), canary)
			}
			text := r.open(t, sealed)
			if name == "fenced" {
				require.Equal(t, twoPersons, text, "values can be read until the key is destroyed")
			} else {
				require.Equal(t, `{"data":{"iban" : "[REDACTED]" ,"id":"E-1","email":"[REDACTED]","partner":{"id":"P-9","name":"Bob"},"grade":1.50}}`, text)
				require.Equal(t, 2, r.counters.redacted)
			}
		})
	}
}

// TestSeal_AfterRemovedFence: a cached fence does not refuse values after it was removed.
func TestSeal_AfterRemovedFence(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	r.vault.EvictAll()
	r.store.set(employeeKey("E-1"), fence)
	r.open(t, sealed) // caches the key as fenced
	r.store.set(employeeKey("E-1"), func(k *ports.SubjectKey) { k.State = shredding.KeyActive })
	r.seal(t, r.contactRequest("E-1"))
}

func TestMint_ErasedSubject(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	r.store.beforeMint = func() { r.store.set(employeeKey("E-1"), destroy) }
	_, _, err := r.vault.Seal(t.Context(), r.contactRequest("E-1"))
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))
	require.Zero(t, r.service.liveKeys(), "a key that was not stored is zeroed")
}

func TestAcquireKeys_ConcurrentRequestsShareOneCall(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { r.seal(t, r.contactRequest("E-1")) })
	}
	wg.Wait()
	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{1, 0}, []int{generated, unwrapped})

	sealed := r.seal(t, r.contactRequest("E-1"))
	readsBefore, _ := r.store.counts()
	other := r.newNode()
	for range 64 {
		wg.Go(func() {
			_, err := open(t.Context(), other, allClasses, sealed)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	reads, _ := r.store.counts()
	generated, unwrapped = r.service.counts()
	require.Equal(t, []int{1, 1, 1}, []int{generated, unwrapped, reads - readsBefore})
}

// TestMint_WaitersDoNotUnwrap: a request that reads a key while the same vault still waits for
// the result of its mint gets the key of the mint, and does not have it unwrapped.
func TestMint_WaitersDoNotUnwrap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newVaultFixture(t)
		partner := r.sealRequest(`{"data":{"partner":{"id":"P-9","name":"Bob"}}}`)
		other := r.newNode()
		_, _, err := other.Seal(t.Context(), partner) // so that the partner's key exists
		require.NoError(t, err)
		var first, later sync.WaitGroup
		seal := func(of *sync.WaitGroup, request module.SealRequest) {
			of.Go(func() {
				_, _, err := r.vault.Seal(t.Context(), request)
				require.NoError(t, err)
			})
		}

		stored, answer := make(chan struct{}), make(chan struct{})
		r.store.mu.Lock()
		r.store.afterMint = func() { close(stored); <-answer }
		r.store.mu.Unlock()
		seal(&first, r.contactRequest("E-1"))
		<-stored
		// A read of the partner's key is held back, and with it the request that needs both keys.
		partnerRead, hold := make(chan struct{}), make(chan struct{})
		r.store.mu.Lock()
		r.store.afterRead = sync.OnceFunc(func() { close(partnerRead); <-hold })
		r.store.mu.Unlock()
		seal(&later, partner)
		<-partnerRead
		r.store.mu.Lock()
		r.store.afterRead = nil
		r.store.mu.Unlock()
		before, _ := r.store.counts()
		seal(&later, r.sealRequest(twoPersons))
		synctest.Wait()
		reads, _ := r.store.counts()
		require.Greater(t, reads, before, "the key of E-1 is read")
		sealed, _, err := other.Seal(t.Context(), r.contactRequest("E-1"))
		require.NoError(t, err)
		_, err = open(t.Context(), r.vault, readableClasses{}, sealed) // waits for that read
		require.NoError(t, err)

		close(answer)
		first.Wait()
		_, unwrappedBefore := r.service.counts()
		close(hold)
		later.Wait()
		_, unwrapped := r.service.counts()
		require.Equal(t, unwrappedBefore+1, unwrapped, "the partner's key only")
	})
}

func TestMint_RaceUsesWinnersKey(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	winner := r.newNode()
	r.store.beforeMint = func() {
		_, _, err := winner.Seal(t.Context(), r.contactRequest("E-1"))
		require.NoError(t, err)
	}
	sealed := r.seal(t, r.contactRequest("E-1"))
	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{2, 1}, []int{generated, unwrapped})
	require.Equal(t, 2, r.service.liveKeys(), "one on each node; the key of the loser is zeroed")
	text, err := open(t.Context(), winner, allClasses, sealed)
	require.NoError(t, err)
	require.Contains(t, text, canary)
}

func TestMint_RepeatsAfterClosedEpoch(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	r.seal(t, r.contactRequest("E-1")) // caches KEK 1
	r.store.mu.Lock()
	r.store.epoch = 2
	r.store.mu.Unlock()
	r.seal(t, r.contactRequest("E-2"))
	generated, _ := r.service.counts()
	require.Equal(t, 3, generated)
	require.Equal(t, 2, r.service.liveKeys())
	require.EqualValues(t, 2, r.store.keys[employeeKey("E-2")].Versions[0].Epoch)
}

// TestOpen_RewrappedKey: a node that has cached the old wrapping of a key reads the new one.
func TestOpen_RewrappedKey(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	node := r.newNode()
	r.service.set(func(s *keyService) { s.fail = fault.New(fault.Unavailable, "kms.unavailable", "down") })
	_, err := open(t.Context(), node, allClasses, sealed) // caches the old wrapping
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	r.service.set(func(s *keyService) {
		s.fail = nil
		for name, w := range s.wrapped {
			delete(s.wrapped, name)
			s.wrapped["again"] = wrapping{"kek-2", w.bound, w.plain}
		}
	})
	r.store.set(employeeKey("E-1"), func(k *ports.SubjectKey) { k.Versions[0].KEK, k.Versions[0].Wrapped = "kek-2", []byte("again") })
	text, err := open(t.Context(), node, allClasses, sealed)
	require.NoError(t, err)
	require.Contains(t, text, canary)
}

// TestDestroyedKeyIsNotUsed stores the key of an erased person again, as a superuser of the
// database could: no vault that knows the erasure opens or seals with it, whatever fingerprint
// is stored beside it.
func TestDestroyedKeyIsNotUsed(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	document := r.seal(t, r.contactRequest("E-1"))
	destroyed := r.store.keys[employeeKey("E-1")].Versions[0].Fingerprint
	knowing := func(c *vault.Config) {
		c.RequireLive = func(f shredding.Fingerprint) error {
			if f == destroyed {
				return fault.New(fault.Unavailable, "pii.receipts_behind", "destroyed")
			}
			return nil
		}
	}
	refused := func(code string, v *vault.Vault) {
		t.Helper()
		text, err := open(t.Context(), v, allClasses, document)
		require.Equal(t, code, fault.CodeOf(err))
		require.NotContains(t, text, canary)
		_, _, err = v.Seal(t.Context(), r.contactRequest("E-1"))
		require.Equal(t, code, fault.CodeOf(err))
	}
	refused("pii.receipts_behind", r.newNode(knowing))
	r.store.set(employeeKey("E-1"), func(k *ports.SubjectKey) { k.Versions[0].Fingerprint[0]++ })
	refused("pii.receipts_behind", r.newNode(knowing))
	refused("pii.key_invalid", r.newNode())
	r.vault.EvictAll()
	require.Zero(t, r.service.liveKeys())
}

func TestSeal_NewVersionAfterForget(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	old, _, err := r.vault.Seal(t.Context(), r.contactRequest("E-1"))
	require.NoError(t, err)
	key, err := r.service.Generate(t.Context(), "kek-acme-1", ports.Bound(7, r.store.keys[employeeKey("E-1")].Reference, 2))
	require.NoError(t, err)
	print, err := shredding.Key{DEK: key.Plain}.Fingerprint()
	require.NoError(t, err)
	r.store.set(employeeKey("E-1"), func(k *ports.SubjectKey) {
		k.Active = 2
		k.Versions = append(k.Versions, ports.WrappedKey{Version: 2, Epoch: 1, KEK: "kek-acme-1", Wrapped: key.Wrapped, Fingerprint: print})
	})
	_, used, err := r.vault.Seal(t.Context(), r.contactRequest("E-1"))
	require.NoError(t, err)
	require.EqualValues(t, 1, used[0].KeyVersion)
	r.vault.Forget(7, used)
	document, used, err := r.vault.Seal(t.Context(), r.contactRequest("E-1"))
	require.NoError(t, err)
	require.EqualValues(t, 2, used[0].KeyVersion)
	for _, d := range [][]byte{old, document} {
		require.Contains(t, r.open(t, d), canary)
	}

	// The vault has cached both versions now and reads the key store no more.
	reads, _ := r.store.counts()
	require.Contains(t, r.open(t, document), canary)
	again, _ := r.store.counts()
	require.Equal(t, reads, again)
}

func TestAcquireKeys_CancelledLeaderDoesNotFailFollowers(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.contactRequest("E-1"))
	node := r.newNode()
	entered, hold := make(chan struct{}), make(chan struct{})
	r.service.set(func(s *keyService) {
		s.onCall = func() { close(entered); <-hold }
	})
	ctx, cancel := context.WithCancel(t.Context())
	var leader, follower sync.WaitGroup
	leader.Go(func() {
		_, err := open(ctx, node, allClasses, sealed)
		require.ErrorIs(t, err, context.Canceled)
	})
	<-entered
	follower.Go(func() {
		text, err := open(t.Context(), node, allClasses, sealed)
		require.NoError(t, err)
		require.Contains(t, text, canary)
	})
	cancel()
	leader.Wait() // before the key service answers
	close(hold)
	follower.Wait()
	_, unwrapped := r.service.counts()
	require.Equal(t, 1, unwrapped)
}

// TestUnwrap_RefusalIsNoErasure: a KEK that is disabled, scheduled for deletion or not the one
// that wrapped the key is an error, and the value does not read "[REDACTED]".
func TestUnwrap_RefusalIsNoErasure(t *testing.T) {
	t.Parallel()
	for code, kind := range map[string]fault.Kind{
		"kms.key_pending_deletion": fault.FailedPrecondition, "kms.key_disabled": fault.FailedPrecondition,
		"kms.key_mismatch": fault.Invalid, "kms.ciphertext_invalid": fault.Invalid, "kms.key_not_found": fault.NotFound,
	} {
		t.Run(code, func(t *testing.T) {
			r := newVaultFixture(t)
			sealed := r.seal(t, r.contactRequest("E-1"))
			r.service.set(func(s *keyService) { s.fail = fault.New(kind, code, "ask an operator") })
			cold := r.newNode()
			text, err := open(t.Context(), cold, allClasses, sealed)
			require.Equal(t, code, fault.CodeOf(err))
			require.NotContains(t, text, "[REDACTED]")
			require.Contains(t, text, "$pii", "the document is unchanged after an error")
			for _, id := range []string{"E-1", "E-2"} { // one with a key, one without
				document, used, err := cold.Seal(t.Context(), r.contactRequest(id))
				require.Equal(t, code, fault.CodeOf(err), id)
				require.Empty(t, used)
				require.Empty(t, document)
			}
			r.service.set(func(s *keyService) { s.fail = nil })
			text, err = open(t.Context(), cold, allClasses, sealed)
			require.NoError(t, err)
			require.Contains(t, text, canary)
		})
	}
}

// witness is a reader of all classes that keeps what it was given, or refuses.
type witness struct {
	readableClasses
	refusal error
	calls   [][]module.Opened
}

func (w *witness) Disclose(_ context.Context, opened []module.Opened) error {
	w.calls = append(w.calls, opened)
	return w.refusal
}

func TestOpen_RecordsWhatTheReaderIsGiven(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.sealRequest(twoPersons))
	seen := &witness{readableClasses: allClasses}
	documents := []module.SealedDocument{{At: location(), Document: sealed}, {At: location(), Document: sealed}}
	require.NoError(t, r.vault.Open(t.Context(), documents, seen))
	require.Len(t, seen.calls, 1, "once for all documents")
	require.ElementsMatch(t, []module.Opened{
		{Partition: 7, Subject: "employee:E-1", Class: shredding.Bank, Values: 2},
		{Partition: 7, Subject: "employee:E-1", Class: shredding.Contact, Values: 2},
		{Partition: 7, Subject: "person:P-9", Class: shredding.Identity, Values: 2},
	}, seen.calls[0])

	// What is withheld or erased is not given.
	r.vault.Evict(r.store.set(employeeKey("E-1"), destroy))
	some := &witness{readableClasses: readableClasses{shredding.Contact, shredding.Bank}}
	documents = []module.SealedDocument{{At: location(), Document: sealed}}
	require.NoError(t, r.vault.Open(t.Context(), documents, some))
	require.Empty(t, some.calls)
}

func TestOpen_NothingLeavesWithoutRecord(t *testing.T) {
	t.Parallel()
	r := newVaultFixture(t)
	sealed := r.seal(t, r.sealRequest(twoPersons))
	errFull := fault.New(fault.Unavailable, "store.unavailable", "the database is away; try again")
	text, err := open(t.Context(), r.vault, &witness{readableClasses: allClasses, refusal: errFull}, sealed)
	require.ErrorIs(t, err, errFull)
	require.Equal(t, string(sealed), text)
}
