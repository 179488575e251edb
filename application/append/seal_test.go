package append_test

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// fakeSealer seals with one key for all subjects.
type fakeSealer struct {
	key shredding.Key

	mu        sync.Mutex
	requests  []module.SealRequest
	forgotten [][]event.SealedSubject
	fail      error
}

func newFakeSealer(t testing.TB) *fakeSealer {
	key, err := shredding.NewKey(shredding.KeyRegulatory, 3, bytes.Repeat([]byte{7}, shredding.DEKSize))
	require.NoError(t, err)
	return &fakeSealer{key: key}
}

func (s *fakeSealer) Seal(_ context.Context, r module.SealRequest) ([]byte, []event.SealedSubject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	if s.fail != nil {
		return nil, nil, s.fail
	}
	var used []event.SealedSubject
	out, err := shredding.SealDocument(nil, r.Document, r.Fields, func(f shredding.Field, value []byte) (shredding.Envelope, error) {
		used = append(used, event.SealedSubject{Subject: string(f.Subject), KeyClass: uint8(r.Class), KeyVersion: s.key.Version, Pointers: []string{f.Pointer}})
		at := r.At
		at.Pointer = f.Pointer
		return shredding.Seal(s.key, at, f.Subject, value)
	})
	return out, used, err
}

func (s *fakeSealer) Forget(_ event.PartitionID, used []event.SealedSubject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = append(s.forgotten, used)
}

const canary = "ada@canary.example"

func customerGreeted(change func(*event.Draft)) event.Draft {
	d := event.Draft{
		Type: "shop.customer.greeted", Stream: event.StreamID{Type: "customer", ID: "C-1"}, EffectiveDate: event.MustDate("2026-03-31"),
		Data:     json.RawMessage(`{"email" : "` + canary + `", "visits":1.50, "contacts":[{"person":"P-2","phone":"0170"}]}`),
		Entities: []event.EntityRef{{Type: "customer", ID: "C-1", Role: "subject"}},
	}
	if change != nil {
		change(&d)
	}
	return d
}

func TestPrepare_SealsPersonalValues(t *testing.T) {
	t.Parallel()
	sealer := newFakeSealer(t)
	b := newSealingFixture(t, sealer)
	out := b.prepare(t, customerGreeted(nil))[0]
	require.NotContains(t, string(out.Payload), canary)
	require.NotContains(t, string(out.Payload), "0170")
	require.Contains(t, string(out.Payload), `, "visits":1.50, "contacts":[{"person":"P-2",`, "every other byte is unchanged")
	require.Equal(t, map[string]string{"/data/email": "contact", "/data/contacts/0/phone": "contact"}, out.PII)
	require.Equal(t, []event.SealedSubject{
		{Subject: "customer:C-1", KeyClass: 1, KeyVersion: 3, Pointers: []string{"/data/email"}},
		{Subject: "person:P-2", KeyClass: 1, KeyVersion: 3, Pointers: []string{"/data/contacts/0/phone"}},
	}, out.Sealed)
	require.True(t, out.PayloadHashDone)
	require.Equal(t, event.HashPayload(out.Salt, out.Payload), out.PayloadHash, "the hash covers the sealed bytes")

	r := sealer.requests[0]
	at := shredding.Location{Partition: b.entity.Partition, Kind: shredding.KindEvent, Record: out.ID, Type: "shop.customer.greeted", SchemaVersion: 1}
	require.Equal(t, at, r.At)
	require.Equal(t, "acme", r.TenantID)
	require.Equal(t, shredding.KeyRegulatory, r.Class, "the type's retention class")
	values, err := shredding.FindSealed(out.Payload)
	require.NoError(t, err)
	at.Pointer = values[0].Pointer
	plain, err := shredding.Open(sealer.key, at, values[0].Subject, values[0].Envelope)
	require.NoError(t, err)
	require.Equal(t, `"`+canary+`"`, string(plain.Reveal()))

	// An event without the optional fields needs no key.
	out = b.prepare(t, customerGreeted(func(d *event.Draft) { d.Data = json.RawMessage(`{"visits":2}`) }))[0]
	require.Empty(t, out.Sealed)
	require.Nil(t, out.PII)
	require.Len(t, sealer.requests, 1)
}

func TestPrepare_PersonalValuesWithoutSealer(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	_, err := b.preparer.Prepare(t.Context(), b.batch(orderPlaced(nil), customerGreeted(nil)))
	f, _ := fault.As(err)
	require.Equal(t, "pii.keys_missing", f.Code)
	require.Equal(t, fault.FailedPrecondition, f.Kind)
	require.Equal(t, "/events/1/data/email", f.Field)
	b.prepare(t, customerGreeted(func(d *event.Draft) { d.Data = json.RawMessage(`{"visits":2}`) }))
}

func TestPrepare_SealingRefusals(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", limits.EventBytes-120)
	for name, c := range map[string]struct {
		draft       event.Draft
		fail        error
		code, field string
	}{
		"sealed by the caller":  {orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(`{"of":{"$pii":"AQ","sub":"a:b"}}`) }), nil, "pii.reserved_name", "/events/0"},
		"sealed in a dimension": {orderPlaced(func(d *event.Draft) { d.Dimensions = map[string]string{"$pii": "x"} }), nil, "pii.reserved_name", "/events/0"},
		"no subject":            {customerGreeted(func(d *event.Draft) { d.Entities[0].ID = "C 1" }), nil, "pii.subject_invalid", "/events/0/data/email"},
		"personal subject": {customerGreeted(func(d *event.Draft) {
			d.Data = json.RawMessage(`{"contacts":[{"person":"4111111111111111","phone":"0170"}]}`)
		}), nil, "pii.in_identifier", "/events/0/data/contacts/0/phone"},
		"erased":           {customerGreeted(nil), shredding.Erased("/data/email"), "pii.subject_erased", "/events/0/data/email"},
		"too large sealed": {customerGreeted(func(d *event.Draft) { d.Data = json.RawMessage(`{"email":"` + long + `"}`) }), nil, "append.event_too_large", "/events/0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sealer := newFakeSealer(t)
			sealer.fail = c.fail
			b := newSealingFixture(t, sealer)
			_, err := b.preparer.Prepare(t.Context(), b.batch(c.draft))
			require.Equal(t, c.code, code(t, err))
			f, _ := fault.As(err)
			require.Equal(t, c.field, f.Field)
			require.NotContains(t, err.Error(), canary)
		})
	}
}

func TestPrepare_SeriesTokenInPersonalValue(t *testing.T) {
	t.Parallel()
	const token = "series:01J"
	sealer := newFakeSealer(t)
	b := newSealingFixture(t, sealer)
	number := []event.SeriesNumber{{Series: "customers", Prefix: "C-", Width: 3, Token: token}}
	for name, change := range map[string]func(*event.Draft){
		"in the value":   func(d *event.Draft) { d.Data = json.RawMessage(`{"email":"` + token + `@x"}`) },
		"in the subject": func(d *event.Draft) { d.Entities[0].ID = token },
	} {
		_, err := b.preparer.Prepare(t.Context(), b.batch(customerGreeted(func(d *event.Draft) { d.Series = number; change(d) })))
		require.ErrorContains(t, err, "token of series customers", name)
		require.Equal(t, fault.Internal, fault.KindOf(err), name)
	}
	out := b.prepare(t, customerGreeted(func(d *event.Draft) { d.Series, d.Stream.ID = number, token }))[0]
	require.False(t, out.PayloadHashDone)
	out.ReplaceToken(token, "C-001")
	values, err := shredding.FindSealed(out.Payload)
	require.NoError(t, err)
	require.Len(t, values, 2)
}

// movedKeyAppender answers pii.key_moved to the first requests and records the events
// that it receives.
type movedKeyAppender struct {
	ports.EventAppender
	moved int
	seen  []ports.AppendRequest
}

func (a *movedKeyAppender) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	a.seen = append(a.seen, r)
	if a.moved > 0 {
		a.moved--
		return ports.AppendResult{}, fault.New(fault.Conflict, shredding.CodeKeyMoved, "seal again")
	}
	events := make([]event.Prepared, len(r.Events)) // this store has no key store to ask for leases
	for i, e := range r.Events {
		e.Sealed = nil
		events[i] = e
	}
	r.Events = events
	return a.EventAppender.Append(ctx, r)
}

func TestAppend_ResealsAfterMovedKey(t *testing.T) {
	t.Parallel()
	for moved, want := range map[int]string{1: "", 3: "", 4: shredding.CodeKeyMoved} {
		sealer := newFakeSealer(t)
		b := newSealingFixture(t, sealer)
		store := &movedKeyAppender{EventAppender: b.store.Appender, moved: moved}
		s := eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: store, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour})
		receipts, _, err := s.Append(t.Context(), b.request("k", customerGreeted(nil), orderPlaced(nil)))
		require.Equal(t, want, fault.CodeOf(err))
		require.Len(t, sealer.forgotten, moved)
		for _, used := range sealer.forgotten {
			require.Equal(t, "customer:C-1", used[0].Subject)
		}
		if want == "" {
			require.Len(t, receipts, 2)
			require.Len(t, store.seen, moved+1)
			require.NotEqual(t, store.seen[0].Events[0].Payload, store.seen[1].Events[0].Payload)
		}
		for _, r := range store.seen {
			require.NotContains(t, string(r.Events[0].Payload), canary)
		}
	}
}

// keyedFingerprints keys fingerprints with a secret per tenant.
type keyedFingerprints struct{ fail error }

func (k keyedFingerprints) Fingerprint(_ context.Context, tenant string, h event.Hash) (event.Hash, error) {
	h[0] ^= tenant[0]
	return h, k.fail
}

func TestAppend_KeyedFingerprints(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	store := &movedKeyAppender{EventAppender: b.store.Appender}
	s := eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: store, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour, Fingerprints: keyedFingerprints{}})
	r := b.request("k", orderPlaced(nil))
	r.Digest = event.Hash{1}
	_, _, err := s.Append(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, event.Hash{1 ^ 'a'}, store.seen[0].Idempotency.Fingerprint)
	_, replayed, err := s.Append(t.Context(), r)
	require.NoError(t, err)
	require.True(t, replayed)
	r.Digest = event.Hash{2}
	_, _, err = s.Append(t.Context(), r)
	require.Equal(t, "idempotency.mismatch", code(t, err))

}

func TestAppend_FingerprintsWithoutSecret(t *testing.T) {
	t.Parallel()
	b := newSealingFixture(t, newFakeSealer(t))
	unavailable := fault.New(fault.Unavailable, "kms.unavailable", "try again")
	service := func(k keyedFingerprints) *eventappend.Service {
		return eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: b.store.Appender, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour, Fingerprints: k})
	}
	there, gone := service(keyedFingerprints{}), service(keyedFingerprints{unavailable})
	do := func(s *eventappend.Service, key string, content byte) (bool, error) {
		r := b.request(key, orderPlaced(nil))
		r.Digest = event.Hash{content}
		_, replayed, err := s.Append(t.Context(), r)
		return replayed, err
	}
	personal := b.request("p", customerGreeted(nil))
	personal.Digest = event.Hash{1}
	_, _, err := gone.Append(t.Context(), personal)
	require.ErrorIs(t, err, unavailable, "nothing personal is stored with a digest that can be guessed")

	// A batch without personal data is appended, and replayed with and without the secret.
	replayed, err := do(gone, "k", 1)
	require.NoError(t, err)
	require.False(t, replayed)
	for _, s := range []*eventappend.Service{gone, there} {
		replayed, err = do(s, "k", 1)
		require.NoError(t, err)
		require.True(t, replayed)
	}
	_, err = do(there, "k", 2)
	require.Equal(t, "idempotency.mismatch", code(t, err))
	_, err = do(gone, "k", 2)
	require.Equal(t, "idempotency.undecided", code(t, err), "it may have been stored with the secret")

	// A fingerprint that was stored with the secret cannot be compared without it.
	_, err = do(there, "l", 1)
	require.NoError(t, err)
	_, err = do(gone, "l", 1)
	require.Equal(t, "idempotency.undecided", code(t, err))
}
