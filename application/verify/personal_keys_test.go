package verify_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// keysOf is a key store with keys of persons.
type keysOf struct {
	*memory.ErasureRegister
	*memory.KeyRotation
	persons map[shredding.Subject]ports.SubjectKey
}

func (k keysOf) SubjectKeys(_ context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	out := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		out[i] = k.persons[id.Subject]
		out[i].SubjectKeyID = id
		if out[i].Reference == "" {
			out[i].State = shredding.KeyAbsent
		}
	}
	return out, nil
}

// receiptsOf is a key store with a receipt.
type receiptsOf struct {
	keysOf
	note string
}

func (r receiptsOf) Receipts(_ context.Context, from uint64, _ int) ([]ports.ErasureReceipt, error) {
	if from > 1 {
		return nil, nil
	}
	return []ports.ErasureReceipt{{Number: 1, TenantID: "acme", Note: []byte(r.note)}}, nil
}

// TestRun_PersonalKeys_Replayed opens a key that was restored and replayed: a receipt destroyed its
// first version, and it is fenced with one that was minted since.
func TestRun_PersonalKeys_Replayed(t *testing.T) {
	t.Parallel()
	v := newVault()
	le := v.entity(t, "A", 1)
	v.sealedEvent(t, le, nil)
	v.personal = personalRows()
	key := func(state shredding.KeyState) keysOf {
		minted, err := shredding.NewKey(shredding.KeyStandard, 2, bytes.Repeat([]byte{8}, shredding.DEKSize))
		require.NoError(t, err)
		f, err := minted.Fingerprint()
		require.NoError(t, err)
		register := memory.NewKeyStore()
		return keysOf{register.Erasures(), register.Rotation(), map[shredding.Subject]ports.SubjectKey{"employee:E-1": {
			Reference: "r", State: state, Active: 2, Versions: []ports.WrappedKey{{Version: 2, Epoch: 1, KEK: "kek", Wrapped: []byte{8}, Fingerprint: f}},
		}, "employee:E-2": {Reference: "r", State: shredding.KeyDestroyed}}}
	}
	receipt := erasure.Receipt{Number: 1, TenantID: "acme", At: start, Keys: []ports.ReplayKey{{Partition: le.Partition, Class: shredding.KeyStandard, Subject: "employee:E-1", Fingerprints: []shredding.Fingerprint{{7}}}}}
	other := receipt
	other.Keys = []ports.ReplayKey{receipt.Keys[0]}
	other.Keys[0].Subject = "employee:E-11"
	for name, c := range map[string]struct {
		state   shredding.KeyState
		receipt erasure.Receipt
		found   []place
	}{
		"named":                {shredding.KeyFenced, receipt, []place{}},
		"another person":       {shredding.KeyFenced, other, []place{{verify.KeyUnusable, 2}}},
		"named and not fenced": {shredding.KeyActive, receipt, []place{{verify.KeyUnusable, 2}}},
	} {
		keys := receiptsOf{key(c.state), string(c.receipt.Text()) + "\n— signature\n"}
		reports, err := verify.Run(t.Context(), v, "acme", []string{"A"}, nil, verify.WithKeyStore(keys), verify.OpenKeys(wrappings{}))
		require.NoError(t, err)
		require.Equal(t, c.found, places(reports[0]), "%s: %v", name, reports[0].Findings)
	}
}

// wrappings are a key service that wraps a key of 32 times one byte as that byte, bound to the
// reference.
type wrappings struct{ err error }

func (wrappings) Generate(context.Context, string, ports.EncryptionContext) (ports.DataKey, error) {
	panic("not used")
}

func (w wrappings) Unwrap(_ context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	switch {
	case w.err != nil:
		return shredding.Secret{}, w.err
	case keyID != "kek" || bound["k"] != "r" || len(wrapped) != 1:
		return shredding.Secret{}, fault.New(fault.Invalid, "kms.ciphertext_invalid", "not what was wrapped")
	}
	return shredding.NewSecret(bytes.Repeat(wrapped, shredding.DEKSize)), nil
}

func TestRun_PersonalKeys(t *testing.T) {
	t.Parallel()
	print := func(b byte) shredding.Fingerprint {
		key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{b}, shredding.DEKSize))
		require.NoError(t, err)
		f, err := key.Fingerprint()
		require.NoError(t, err)
		return f
	}
	missing, unusable := []place{{verify.KeyStoreMismatch, 2}}, []place{{verify.KeyUnusable, 2}}
	for name, c := range map[string]struct {
		edit   func(*ports.SubjectKey)
		closed []place // without opening keys
		opened []place
	}{
		"as stored":           {func(*ports.SubjectKey) {}, nil, nil},
		"destroyed":           {func(k *ports.SubjectKey) { k.State, k.Active, k.Versions = shredding.KeyDestroyed, 0, nil }, nil, nil},
		"removed":             {func(k *ports.SubjectKey) { k.Reference, k.Versions = "", nil }, missing, missing},
		"another reference":   {func(k *ports.SubjectKey) { k.Reference = "other" }, nil, unusable},
		"another epoch":       {func(k *ports.SubjectKey) { k.Versions[0].KEK = "other" }, nil, unusable},
		"no epoch":            {func(k *ports.SubjectKey) { k.Versions[0].KEK = "" }, missing, missing},
		"damaged":             {func(k *ports.SubjectKey) { k.Versions[0].Wrapped = []byte("damaged") }, nil, unusable},
		"another fingerprint": {func(k *ports.SubjectKey) { k.Versions[0].Fingerprint[0]++ }, nil, unusable},
		"another key":         {func(k *ports.SubjectKey) { k.Versions[0].Wrapped, k.Versions[0].Fingerprint = []byte{8}, print(8) }, nil, unusable},
		"renumbered":          {func(k *ports.SubjectKey) { k.Versions[0].Version, k.Active = 2, 2 }, nil, unusable},
		"fenced, another key": {func(k *ports.SubjectKey) {
			k.State, k.Versions[0].Wrapped, k.Versions[0].Fingerprint = shredding.KeyFenced, []byte{8}, print(8)
		}, nil, unusable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			le := v.entity(t, "A", 1)
			v.sealedEvent(t, le, nil)
			v.personal = personalRows()
			key := func() ports.SubjectKey {
				return ports.SubjectKey{Reference: "r", State: shredding.KeyActive, Active: 1, Versions: []ports.WrappedKey{{Version: 1, Epoch: 1, KEK: "kek", Wrapped: []byte{7}, Fingerprint: print(7)}}}
			}
			edited := key()
			c.edit(&edited)
			register := memory.NewKeyStore()
			keys := keysOf{register.Erasures(), register.Rotation(), map[shredding.Subject]ports.SubjectKey{"employee:E-1": edited, "employee:E-2": key()}}
			for opened, options := range map[bool][]verify.Option{false: {verify.WithKeyStore(keys)}, true: {verify.WithKeyStore(keys), verify.OpenKeys(wrappings{})}} {
				reports, err := verify.Run(t.Context(), v, "acme", []string{"A"}, nil, options...)
				require.NoError(t, err)
				want := c.closed
				if opened {
					want = c.opened
				}
				require.Equal(t, append([]place{}, want...), places(reports[0]), "opened: %t, %v", opened, reports[0].Findings)
			}
		})
	}
}

// TestRun_PersonalKeys_ServiceDown ends without a verdict.
func TestRun_PersonalKeys_ServiceDown(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.sealedEvent(t, v.entity(t, "A", 1), nil)
	v.personal = personalRows()
	register := memory.NewKeyStore()
	keys := keysOf{register.Erasures(), register.Rotation(), map[shredding.Subject]ports.SubjectKey{
		"employee:E-1": {Reference: "r", State: shredding.KeyActive, Active: 1, Versions: []ports.WrappedKey{{Version: 1, KEK: "kek"}}}, "employee:E-2": {Reference: "r", State: shredding.KeyActive},
	}}
	down := fault.New(fault.Unavailable, "kms.unavailable", "the key service does not answer")
	reports, err := verify.Run(t.Context(), v, "acme", []string{"A"}, nil, verify.WithKeyStore(keys), verify.OpenKeys(wrappings{down}))
	require.ErrorIs(t, err, down)
	require.EqualValues(t, 2, reports[0].Head)
}
