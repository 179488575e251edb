package vault_test

import (
	"context"
	"strings"
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
	"github.com/erpbackbone/backbone/test/testkit"
)

const couple = `{"data":{"iban" : "DE02" ,"id":"E-1","email":"` + canary + `","partner":{"id":"P-9","name":"Bob"},"grade":1.50}}`

func TestSealAndOpen(t *testing.T) {
	t.Parallel()
	r := setup(t)
	document, used, err := r.vault.Seal(t.Context(), r.document(couple))
	require.NoError(t, err)
	require.Equal(t, []event.SealedSubject{
		{Subject: "employee:E-1", KeyVersion: 1, Pointers: []string{"/data/iban", "/data/email"}},
		{Subject: "person:P-9", KeyVersion: 1, Pointers: []string{"/data/partner/name"}},
	}, used, "in document order")
	require.NotContains(t, string(document), "Bob")
	require.Contains(t, string(document), `"grade":1.50`)
	reads, mints := r.store.counts()
	require.Equal(t, []int{1, 2}, []int{reads, mints}, "one read for all subjects")

	require.Equal(t, couple, r.open(t, document))
	masked, err := open(t.Context(), r.vault, sees{shredding.Contact}, document)
	require.NoError(t, err)
	require.Equal(t, `{"data":{"iban" : "[MASKED]" ,"id":"E-1","email":"`+canary+`","partner":{"id":"P-9","name":"[MASKED]"},"grade":1.50}}`, masked)

	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{2, 0}, []int{generated, unwrapped})
	require.Equal(t, 3, r.tally.sealed)
	require.Equal(t, 4, r.tally.opened)
	require.Equal(t, 2, r.tally.kms["generate"])
	require.Equal(t, []int{3, 2}, []int{r.tally.hits, r.tally.misses})
}

func TestOpen_NothingSealedReadsNoKey(t *testing.T) {
	t.Parallel()
	r := setup(t)
	plain := r.document(`{"data":{"id":"E-1"}}`)
	document, used, err := r.vault.Seal(t.Context(), plain)
	require.NoError(t, err)
	require.Nil(t, used)
	require.Equal(t, plain.Document, document)
	require.Equal(t, string(document), r.open(t, document))
	sealed := r.seal(t, r.hired("E-1"))

	// Withheld values cost no key, and neither do those whose class nobody knows; their
	// state is asked for once.
	other := r.node()
	for name, c := range map[string]struct {
		reader module.Reader
		change func(*shredding.Location)
	}{
		"class":   {sees{shredding.Bank}, func(*shredding.Location) {}},
		"type":    {all, func(l *shredding.Location) { l.Type = "hr.employee.left" }},
		"version": {all, func(l *shredding.Location) { l.SchemaVersion = 2 }},
		"kind":    {all, func(l *shredding.Location) { l.Kind = shredding.KindIntent }},
	} {
		documents := []module.SealedDocument{{At: at(), Document: sealed}}
		c.change(&documents[0].At)
		require.NoError(t, other.Open(t.Context(), documents, c.reader), name)
		require.Equal(t, `{"data":{"id":"E-1","email":"[MASKED]"}}`, string(documents[0].Document), name)
	}
	reads, _ := r.store.counts()
	require.Equal(t, 2, reads, "one of each node")
	generated, unwrapped := r.service.counts()
	require.Equal(t, 1, generated+unwrapped)

	// Planning sees what no class is known for.
	text, err := open(t.Context(), r.node(func(c *vault.Config) { c.Manifests = nil }), module.Planning{}, sealed)
	require.NoError(t, err)
	require.Contains(t, text, canary)
}

func TestOpenShowsRedactionToReadersWithoutRight(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	other := r.seal(t, r.hired("E-2"))
	r.store.set(employee("E-1"), destroy)
	read := func(v *vault.Vault, document []byte) string {
		text, err := open(t.Context(), v, sees{}, document)
		require.NoError(t, err)
		return text
	}
	fresh := r.node()
	require.Contains(t, read(fresh, sealed), "[REDACTED]")
	require.Contains(t, read(fresh, other), "[MASKED]")

	// Who gets nothing in any case needs no key store; nothing looks erased for it.
	r.store.break_(fault.New(fault.Unavailable, "keys.unavailable", "away"))
	require.Contains(t, read(r.node(), sealed), "[MASKED]")
	closed := r.node(func(c *vault.Config) {
		c.Gate = func() error { return fault.New(fault.Unavailable, "pii.receipts_behind", "closed") }
	})
	require.Contains(t, read(closed, sealed), "[MASKED]")
	_, err := open(t.Context(), r.node(), all, sealed)
	require.Equal(t, "keys.unavailable", fault.CodeOf(err))
}

func TestWithoutKeys(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	for name, change := range map[string]func(*vault.Config){
		"no store":   func(c *vault.Config) { c.Keys = nil },
		"no service": func(c *vault.Config) { c.DataKeys = nil },
	} {
		v := r.node(change)
		_, _, err := v.Seal(t.Context(), r.hired("E-1"))
		require.Equal(t, "pii.keys_missing", fault.CodeOf(err), name)
		_, err = open(t.Context(), v, all, sealed)
		require.Equal(t, "pii.keys_missing", fault.CodeOf(err), name)
		text, err := open(t.Context(), v, sees{}, sealed)
		require.NoError(t, err)
		require.Contains(t, text, "[MASKED]")
		print, err := v.Fingerprint(t.Context(), "acme", event.Hash{9})
		require.NoError(t, err)
		require.Equal(t, event.Hash{9}, print)
	}
}

func TestClosedGate(t *testing.T) {
	t.Parallel()
	var gate error
	var mu sync.Mutex
	r := setup(t, func(c *vault.Config) {
		c.Gate = func() error { mu.Lock(); defer mu.Unlock(); return gate }
	})
	sealed := r.seal(t, r.hired("E-1"))
	mu.Lock()
	gate = fault.New(fault.Unavailable, "pii.receipts_behind", "replay the receipts")
	mu.Unlock()
	_, _, err := r.vault.Seal(t.Context(), r.hired("E-1"))
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err))
	text, err := open(t.Context(), r.vault, all, sealed)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err))
	require.Equal(t, string(sealed), text)
}

// S8 in small: whatever is exchanged, the error is one, and no document is changed.
func TestOpenRefusesMovedValues(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sound, other := r.seal(t, r.hired("E-1")), r.seal(t, r.hired("E-2"))
	values, err := shredding.FindSealed(sound)
	require.NoError(t, err)
	copied := values[0]
	origin := at()
	origin.Pointer = "/data/email"
	copied.Origin = &origin
	row := string(copied.Append([]byte(`{"mail":`))) + "}"

	text, err := open(t.Context(), r.vault, all, []byte(row))
	require.NoError(t, err)
	require.Equal(t, `{"mail":"`+canary+`"}`, text, "a copy says where it was sealed")
	anywhere := []module.SealedDocument{{Document: []byte(row)}}
	require.NoError(t, r.vault.Open(t.Context(), anywhere, all))

	origin.Pointer = "/data/iban"
	wrongPointer := string(copied.Append([]byte(`{"mail":`))) + "}"
	origin.Pointer, origin.Partition = "/data/email", 8
	foreign := string(copied.Append([]byte(`{"mail":`))) + "}"
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
		"pointer": wrongPointer, "partition": foreign, "subject": wrongSubject, "absent subject": unknownSubject, "version": unknownVersion, "byte": flipped,
		"field": strings.Replace(string(sound), `"email"`, `"iban"`, 1), "no envelope": `{"data":{"email":{"$pii":"AQ","sub":"employee:E-1"}}}`,
	} {
		documents := []module.SealedDocument{{At: at(), Document: other}, {At: at(), Document: []byte(document)}}
		err := r.vault.Open(t.Context(), documents, all)
		require.Equal(t, "pii.unsealable", fault.CodeOf(err), name)
		require.Equal(t, string(other), string(documents[0].Document), "all or nothing")
		require.Equal(t, document, string(documents[1].Document))
		require.NotContains(t, err.Error(), canary)
		require.NotContains(t, err.Error(), "E-1")
	}
	for name, change := range map[string]func(*shredding.Location){
		"record": func(l *shredding.Location) { l.Record[15]++ }, "partition": func(l *shredding.Location) { l.Partition++ },
		"type": func(l *shredding.Location) { l.Type = "hr.employee.left" }, "version": func(l *shredding.Location) { l.SchemaVersion++ },
		"kind": func(l *shredding.Location) { l.Kind = shredding.KindIntent },
	} {
		documents := []module.SealedDocument{{At: at(), Document: sound}}
		change(&documents[0].At)
		require.Equal(t, "pii.unsealable", fault.CodeOf(r.vault.Open(t.Context(), documents, module.Planning{})), name)
	}
}

func TestSealRefusesErasedSubject(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*ports.SubjectKey){"fenced": fence, "destroyed": destroy} {
		r := setup(t)
		sealed := r.seal(t, r.document(couple))
		reference := r.store.set(employee("E-1"), change)
		r.vault.Evict(reference)
		for range 2 { // from the key store, then from memory
			_, _, err := r.vault.Seal(t.Context(), r.document(couple))
			f, ok := fault.As(err)
			require.True(t, ok)
			require.Equal(t, shredding.CodeSubjectErased, f.Code, name)
			require.Equal(t, fault.Gone, f.Kind)
			require.Equal(t, "/data/email", f.Field)
			require.NotContains(t, err.Error(), canary)
		}
		text := r.open(t, sealed)
		if name == "fenced" {
			require.Equal(t, couple, text, "what is there can be read until the key is destroyed")
		} else {
			require.Equal(t, `{"data":{"iban" : "[REDACTED]" ,"id":"E-1","email":"[REDACTED]","partner":{"id":"P-9","name":"Bob"},"grade":1.50}}`, text)
			require.Equal(t, 2, r.tally.redacted)
		}
	}
}

// A fence that was lifted is no reason to refuse for a minute.
func TestSealAfterRemovedFence(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	r.vault.EvictAll()
	r.store.set(employee("E-1"), fence)
	r.open(t, sealed) // keeps it as fenced
	r.store.set(employee("E-1"), func(k *ports.SubjectKey) { k.State = shredding.KeyActive })
	r.seal(t, r.hired("E-1"))
}

func TestMintOfErasedSubject(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.store.beforeMint = func() { r.store.set(employee("E-1"), destroy) }
	_, _, err := r.vault.Seal(t.Context(), r.hired("E-1"))
	require.Equal(t, shredding.CodeSubjectErased, fault.CodeOf(err))
	require.Zero(t, r.service.alive(), "a key that nobody stored is thrown away")
}

func TestLoad_ConcurrentSealersShareOneCall(t *testing.T) {
	t.Parallel()
	r := setup(t)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() { r.seal(t, r.hired("E-1")) })
	}
	wg.Wait()
	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{1, 0}, []int{generated, unwrapped})

	sealed := r.seal(t, r.hired("E-1"))
	readsBefore, _ := r.store.counts()
	other := r.node()
	for range 64 {
		wg.Go(func() {
			_, err := open(t.Context(), other, all, sealed)
			require.NoError(t, err)
		})
	}
	wg.Wait()
	reads, _ := r.store.counts()
	generated, unwrapped = r.service.counts()
	require.Equal(t, []int{1, 1, 1}, []int{generated, unwrapped, reads - readsBefore})
}

// A sealer that reads of a key before those who made it are told does not have it
// unwrapped: it is about to be here.
func TestMintedKeyIsNotUnwrapped(t *testing.T) {
	t.Parallel()
	r := setup(t)
	partner := r.document(`{"data":{"partner":{"id":"P-9","name":"Bob"}}}`)
	other := r.node()
	_, _, err := other.Seal(t.Context(), partner) // so that its key is there
	require.NoError(t, err)
	var first, others sync.WaitGroup
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
	seal(&first, r.hired("E-1"))
	<-stored
	// Who needs the partner's key too is kept from going on with what it reads of E-1.
	asked, hold := make(chan struct{}), make(chan struct{})
	r.store.mu.Lock()
	r.store.afterRead = sync.OnceFunc(func() { close(asked); <-hold })
	r.store.mu.Unlock()
	seal(&others, partner)
	<-asked
	r.store.mu.Lock()
	r.store.afterRead = nil
	r.store.mu.Unlock()
	late, _ := r.store.counts()
	seal(&others, r.document(couple))
	testkit.Eventually(t, time.Minute, func() bool { reads, _ := r.store.counts(); return reads > late }, "it reads of E-1")
	sealed, _, err := other.Seal(t.Context(), r.hired("E-1"))
	require.NoError(t, err)
	_, err = open(t.Context(), r.vault, sees{}, sealed) // waits for that read
	require.NoError(t, err)

	close(answer)
	first.Wait()
	_, before := r.service.counts()
	close(hold)
	others.Wait()
	_, unwrapped := r.service.counts()
	require.Equal(t, before+1, unwrapped, "the partner's")
}

func TestMint_RaceUsesWinnersKey(t *testing.T) {
	t.Parallel()
	r := setup(t)
	winner := r.node()
	r.store.beforeMint = func() {
		_, _, err := winner.Seal(t.Context(), r.hired("E-1"))
		require.NoError(t, err)
	}
	sealed := r.seal(t, r.hired("E-1"))
	generated, unwrapped := r.service.counts()
	require.Equal(t, []int{2, 1}, []int{generated, unwrapped})
	require.Equal(t, 2, r.service.alive(), "one on each node, not the loser's own")
	text, err := open(t.Context(), winner, all, sealed)
	require.NoError(t, err)
	require.Contains(t, text, canary)
}

func TestMintAfterClosedEpoch(t *testing.T) {
	t.Parallel()
	r := setup(t)
	r.seal(t, r.hired("E-1")) // keeps KEK 1
	r.store.mu.Lock()
	r.store.epoch = 2
	r.store.mu.Unlock()
	r.seal(t, r.hired("E-2"))
	generated, _ := r.service.counts()
	require.Equal(t, 3, generated)
	require.Equal(t, 2, r.service.alive())
	require.EqualValues(t, 2, r.store.keys[employee("E-2")].Versions[0].Epoch)
}

// A key wrapped again under the next KEK does not break who remembers the old one.
func TestOpenRewrappedKey(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	node := r.node()
	r.service.set(func(s *keyService) { s.fail = fault.New(fault.Unavailable, "kms.unavailable", "away") })
	_, err := open(t.Context(), node, all, sealed) // it remembers the old wrapping
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	r.service.set(func(s *keyService) {
		s.fail = nil
		for name, w := range s.wrapped {
			delete(s.wrapped, name)
			s.wrapped["again"] = wrapping{"kek-2", w.bound, w.plain}
		}
	})
	r.store.set(employee("E-1"), func(k *ports.SubjectKey) { k.Versions[0].KEK, k.Versions[0].Wrapped = "kek-2", []byte("again") })
	text, err := open(t.Context(), node, all, sealed)
	require.NoError(t, err)
	require.Contains(t, text, canary)
}

func TestSealWithNewVersionAfterForget(t *testing.T) {
	t.Parallel()
	r := setup(t)
	old, _, err := r.vault.Seal(t.Context(), r.hired("E-1"))
	require.NoError(t, err)
	key, err := r.service.Generate(t.Context(), "kek-acme-1", ports.Bound(7, r.store.keys[employee("E-1")].Reference, 2))
	require.NoError(t, err)
	r.store.set(employee("E-1"), func(k *ports.SubjectKey) {
		k.Active = 2
		k.Versions = append(k.Versions, ports.WrappedKey{Version: 2, Epoch: 1, KEK: "kek-acme-1", Wrapped: key.Wrapped})
	})
	_, used, err := r.vault.Seal(t.Context(), r.hired("E-1"))
	require.NoError(t, err)
	require.EqualValues(t, 1, used[0].KeyVersion)
	r.vault.Forget(7, used)
	document, used, err := r.vault.Seal(t.Context(), r.hired("E-1"))
	require.NoError(t, err)
	require.EqualValues(t, 2, used[0].KeyVersion)
	for _, d := range [][]byte{old, document} {
		require.Contains(t, r.open(t, d), canary)
	}

	// A node that remembers version 1 only looks again when it meets version 2.
	reads, _ := r.store.counts()
	require.Contains(t, r.open(t, document), canary)
	again, _ := r.store.counts()
	require.Equal(t, reads, again)
}

func TestLoad_CancelledLeaderDoesNotFailFollowers(t *testing.T) {
	t.Parallel()
	r := setup(t)
	sealed := r.seal(t, r.hired("E-1"))
	node := r.node()
	entered, hold := make(chan struct{}), make(chan struct{})
	r.service.set(func(s *keyService) {
		s.hold = func() { close(entered); <-hold }
	})
	ctx, cancel := context.WithCancel(t.Context())
	var leader, others sync.WaitGroup
	leader.Go(func() {
		_, err := open(ctx, node, all, sealed)
		require.ErrorIs(t, err, context.Canceled)
	})
	<-entered
	others.Go(func() {
		text, err := open(t.Context(), node, all, sealed)
		require.NoError(t, err)
		require.Contains(t, text, canary)
	})
	cancel()
	leader.Wait() // not for an answer: with one it would have no reason to give up
	close(hold)
	others.Wait()
	_, unwrapped := r.service.counts()
	require.Equal(t, 1, unwrapped)
}

// TestUnwrapRefused: a KEK that is scheduled for deletion or disabled, or
// another than the row names, is an error of its own and never looks like an erasure.
func TestUnwrapRefused(t *testing.T) {
	t.Parallel()
	for code, kind := range map[string]fault.Kind{
		"kms.key_pending_deletion": fault.FailedPrecondition, "kms.key_disabled": fault.FailedPrecondition,
		"kms.key_mismatch": fault.Invalid, "kms.ciphertext_invalid": fault.Invalid, "kms.key_not_found": fault.NotFound,
	} {
		r := setup(t)
		sealed := r.seal(t, r.hired("E-1"))
		r.service.set(func(s *keyService) { s.fail = fault.New(kind, code, "ask an operator") })
		cold := r.node()
		text, err := open(t.Context(), cold, all, sealed)
		require.Equal(t, code, fault.CodeOf(err))
		require.NotContains(t, text, "[REDACTED]")
		require.Contains(t, text, "$pii", "on an error nothing is changed")
		for _, id := range []string{"E-1", "E-2"} { // one whose key is there, one whose is to be made
			document, used, err := cold.Seal(t.Context(), r.hired(id))
			require.Equal(t, code, fault.CodeOf(err), id)
			require.Empty(t, used)
			require.Empty(t, document)
		}
		r.service.set(func(s *keyService) { s.fail = nil })
		text, err = open(t.Context(), cold, all, sealed)
		require.NoError(t, err, code)
		require.Contains(t, text, canary)
	}
}
