package memory_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestKeyStoreConformance(t *testing.T) {
	t.Parallel()
	conformance.RunKeyStore(t, conformance.KeyStoreHarness{
		New: func(*testing.T) (conformance.NodeKeyStore, conformance.EraserKeyStore) {
			k := memory.NewKeyStore()
			return k, conformance.EraserKeyStore{ErasureRegister: k.Erasures(), KeyRotation: k.Rotation(), KeyRecovery: k.Rotation()}
		},
	})
}

func TestDataKeys(t *testing.T) {
	t.Parallel()
	d := memory.NewDataKeys()
	bound := ports.Bound(7, "r", 1)
	made, err := d.Generate(t.Context(), "kek", bound)
	require.NoError(t, err)
	plain, err := d.Unwrap(t.Context(), "kek", made.Wrapped, bound)
	require.NoError(t, err)
	reveal := func(s interface {
		Use(func([]byte) error) error
	}) (out []byte) {
		require.NoError(t, s.Use(func(b []byte) error { out = append(out, b...); return nil }))
		return out
	}
	require.Equal(t, reveal(made.Plain), reveal(plain))
	_, err = d.Unwrap(t.Context(), "kek", made.Wrapped, ports.Bound(7, "r", 2))
	require.Equal(t, "kms.ciphertext_invalid", fault.CodeOf(err))
	_, err = d.Unwrap(t.Context(), "other", made.Wrapped, bound)
	require.Equal(t, "kms.key_mismatch", fault.CodeOf(err))
	failure := errors.New("away")
	d.Fail(failure)
	_, err = d.Unwrap(t.Context(), "kek", made.Wrapped, bound)
	require.ErrorIs(t, err, failure)
	d.Fail(nil)
	d.Forget("kek")
	_, err = d.Unwrap(t.Context(), "kek", made.Wrapped, bound)
	require.Equal(t, "kms.ciphertext_invalid", fault.CodeOf(err))
}
