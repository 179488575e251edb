package conformance

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// KeyService is everything a key management service does, composed of the ports.
type KeyService interface {
	ports.DataKeys
	ports.KeyLifecycle
	ports.Signer
}

// KeyAdministrator does what no part of the product may do: what an operator does
// to a key from outside.
type KeyAdministrator interface {
	Disable(ctx context.Context, keyID string) error
	Enable(ctx context.Context, keyID string) error
	CancelDeletion(ctx context.Context, keyID string) error
}

// KeyServiceHarness makes clients of the service under test.
type KeyServiceHarness struct {
	// New makes a client that makes 3 tries of at most Timeout each. Its requests go
	// through wrap around the transport it would have, unless wrap is nil. In process there is
	// no transport.
	New func(t *testing.T, wrap func(http.RoundTripper) http.RoundTripper) KeyService
	// InProcess leaves out the failures of requests.
	InProcess bool
	// Administrator reaches the same keys.
	Administrator KeyAdministrator
	// Timeout is how long a client lets one try last.
	Timeout time.Duration
	// Settle is how long a change of state may take to reach all nodes of the service;
	// 0: no time.
	Settle time.Duration
}

// KeyTries is how often a client tries a call.
const KeyTries = 3

// keySuite is one run of the suite. Every key it makes ends scheduled for deletion.
type keySuite struct {
	KeyServiceHarness
	service KeyService
	prefix  string // of the aliases of this run
}

// RunKeyService checks ports.DataKeys, ports.KeyLifecycle and ports.Signer on a key
// management service through its client: what a key opens, its states, aliases and
// signatures, and how the client answers failures of the service.
func RunKeyService(t *testing.T, h KeyServiceHarness) {
	s := &keySuite{KeyServiceHarness: h, service: h.New(t, nil), prefix: "alias/conformance/" + uuid.NewString()}
	groups := []testGroup[*keySuite]{{"DataKey", dataKeyTests}, {"State", keyStateTests}, {"Alias", aliasTests}, {"ReWrap", reWrapTests}, {"Sign", signTests}}
	if !h.InProcess {
		groups = append(groups, testGroup[*keySuite]{"Failure", keyFailureTests})
	}
	runGroups(t, groups, func(*testing.T) *keySuite { return s })
}

// key makes a key that lives as long as the test.
func (s *keySuite) key(t *testing.T, purpose ports.KeyPurpose) string {
	t.Helper()
	id, _ := s.namedKey(t, purpose)
	return id
}

func (s *keySuite) namedKey(t *testing.T, purpose ports.KeyPurpose) (id, alias string) {
	t.Helper()
	alias = s.alias()
	k, err := s.service.Create(t.Context(), alias, purpose)
	require.NoError(t, err)
	require.Equal(t, ports.KeyEnabled, k.State)
	require.Equal(t, purpose, k.Purpose)
	require.True(t, k.DeletionAt.IsZero())
	s.endLater(t, k.ID)
	// A fresh key may take a while to be known everywhere.
	s.settled(t, func() error { _, err := s.service.Describe(t.Context(), k.ID); return err })
	return k.ID, alias
}

func (s *keySuite) alias() string { return s.prefix + "/" + uuid.NewString() }

func (s *keySuite) endLater(t *testing.T, id string) {
	t.Cleanup(func() {
		_, err := s.service.ScheduleDeletion(context.WithoutCancel(t.Context()), id, 7)
		if err != nil && fault.CodeOf(err) != "kms.key_not_found" {
			t.Errorf("key left behind: %v", err)
		}
	})
}

// settled wants a condition at once, or as late as the service reserves.
func (s *keySuite) settled(t *testing.T, condition func() error) {
	t.Helper()
	if s.Settle == 0 {
		require.NoError(t, condition())
		return
	}
	testkit.EventuallyNoError(t, s.Settle, condition, "the service has not settled")
}

// refuses wants a call to be refused with a code, at once or as late as the service
// reserves.
func (s *keySuite) refuses(t *testing.T, code string, call func() error) {
	t.Helper()
	s.settled(t, func() error {
		if err := call(); fault.CodeOf(err) != code {
			return fmt.Errorf("wanted %s, got %w", code, errOr(err))
		}
		return nil
	})
}

func errOr(err error) error {
	if err == nil {
		return errors.New("no error")
	}
	return err
}

func bound(version string) ports.EncryptionContext {
	return ports.EncryptionContext{"bb": "dek/1", "p": "2684354560", "k": "4be0643f-1d98-573b-97cd-ca98a65347dd", "v": version}
}

// reveal copies a secret out, for comparison.
func reveal(t *testing.T, secret shredding.Secret) (plain []byte) {
	t.Helper()
	require.NoError(t, secret.Use(func(b []byte) error { plain = slices.Clone(b); return nil }))
	return plain
}

func (s *keySuite) generate(t *testing.T, key string) (plain, wrapped []byte) {
	t.Helper()
	var made ports.DataKey
	s.settled(t, func() (err error) { made, err = s.service.Generate(t.Context(), key, bound("1")); return err })
	return reveal(t, made.Plain), made.Wrapped
}

func (s *keySuite) requireOpens(t *testing.T, key string, wrapped, plain []byte) {
	t.Helper()
	var opened shredding.Secret
	s.settled(t, func() (err error) { opened, err = s.service.Unwrap(t.Context(), key, wrapped, bound("1")); return err })
	require.Equal(t, plain, reveal(t, opened))
}

func (s *keySuite) unwrap(t *testing.T, service KeyService, key string, wrapped []byte) func() error {
	return func() error { _, err := service.Unwrap(t.Context(), key, wrapped, bound("1")); return err }
}

var dataKeyTests = map[string]func(*testing.T, *keySuite){
	"wrapped key opens to the same key": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		plain, wrapped := s.generate(t, key)
		require.Len(t, plain, shredding.DEKSize)
		require.NotContains(t, string(wrapped), string(plain))
		s.requireOpens(t, key, wrapped, plain)
	},
	"no two data keys are equal": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		plain, wrapped := s.generate(t, key)
		other, otherWrapped := s.generate(t, key)
		require.NotEqual(t, plain, other)
		require.NotEqual(t, wrapped, otherWrapped)
	},
	"another context is refused": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		_, wrapped := s.generate(t, key)
		without, more, shifted := bound("1"), bound("1"), bound("1")
		delete(without, "v")
		more["x"] = "1"
		delete(shifted, "p")
		shifted["p2"] = bound("1")["p"][1:] // the same characters, split elsewhere
		for name, context := range map[string]ports.EncryptionContext{
			"another value": bound("2"), "a pair less": without, "a pair more": more, "characters moved from value to name": shifted,
			"names and values swapped": {"dek/1": "bb", bound("1")["p"]: "p", bound("1")["k"]: "k", "1": "v"},
		} {
			_, err := s.service.Unwrap(t.Context(), key, wrapped, context)
			requireFault(t, err, fault.Invalid, "kms.ciphertext_invalid", name)
		}
	},
	"empty context is refused": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		_, wrapped := s.generate(t, key)
		for _, context := range []ports.EncryptionContext{nil, {}, {"": "x"}, {"x": ""}} {
			_, err := s.service.Generate(t.Context(), key, context)
			requireFault(t, err, fault.Invalid, "kms.request_invalid", context)
			_, err = s.service.Unwrap(t.Context(), key, wrapped, context)
			requireFault(t, err, fault.Invalid, "kms.request_invalid", context)
			_, err = s.service.ReWrap(t.Context(), key, key, wrapped, context)
			requireFault(t, err, fault.Invalid, "kms.request_invalid", context)
		}
	},
	"another key is refused": func(t *testing.T, s *keySuite) {
		_, wrapped := s.generate(t, s.key(t, ports.WrapDataKeys))
		other := s.key(t, ports.WrapDataKeys)
		s.refuses(t, "kms.key_mismatch", s.unwrap(t, s.service, other, wrapped))
	},
	"changed ciphertext is refused": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		_, wrapped := s.generate(t, key)
		for i := range wrapped {
			changed := slices.Clone(wrapped)
			changed[i] ^= 1 << (i % 8)
			s.requireNotOpened(t, key, changed, fmt.Sprintf("byte %d", i))
		}
		for name, changed := range map[string][]byte{
			"empty": {}, "nil": nil, "cut": wrapped[:len(wrapped)-1], "head only": wrapped[:8], "longer": append(slices.Clone(wrapped), 0),
			"twice": append(slices.Clone(wrapped), wrapped...), "text": []byte("no ciphertext at all"), "too long": make([]byte, 6145),
		} {
			s.requireNotOpened(t, key, changed, name)
		}
	},
	"unknown key is not found": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		_, wrapped := s.generate(t, key)
		unknown := key[:len(key)-36] + uuid.NewString()
		for operation, err := range everyCall(t.Context(), s.service, unknown, wrapped) {
			requireFault(t, err, fault.NotFound, "kms.key_not_found", operation)
		}
	},
}

func (s *keySuite) requireNotOpened(t *testing.T, key string, wrapped []byte, what string) {
	t.Helper()
	_, err := s.service.Unwrap(t.Context(), key, wrapped, bound("1"))
	// A change inside the part that names the key may look like another key.
	require.Contains(t, []string{"kms.ciphertext_invalid", "kms.key_mismatch"}, fault.CodeOf(err), what)
	require.Equal(t, fault.Invalid, fault.KindOf(err), what)
}

// everyCall makes each call that takes an existing key, all at once, and gives the
// outcomes by operation.
func everyCall(ctx context.Context, service KeyService, key string, wrapped []byte) map[string]error {
	calls := map[string]func() error{
		"generate":          func() error { _, err := service.Generate(ctx, key, bound("1")); return err },
		"unwrap":            func() error { _, err := service.Unwrap(ctx, key, wrapped, bound("1")); return err },
		"describe":          func() error { _, err := service.Describe(ctx, key); return err },
		"re-wrap":           func() error { _, err := service.ReWrap(ctx, key, key, wrapped, bound("1")); return err },
		"schedule deletion": func() error { _, err := service.ScheduleDeletion(ctx, key, 7); return err },
		"sign":              func() error { _, err := service.Sign(ctx, key, []byte("message")); return err },
		"public key":        func() error { _, err := service.PublicKey(ctx, key); return err },
	}
	out := map[string]error{}
	var mu sync.Mutex
	var group sync.WaitGroup
	for operation, run := range calls {
		group.Go(func() {
			err := run()
			mu.Lock()
			defer mu.Unlock()
			out[operation] = err
		})
	}
	group.Wait()
	return out
}

func requireFault(t *testing.T, err error, kind fault.Kind, code string, what ...any) {
	t.Helper()
	require.Equal(t, code, fault.CodeOf(err), what...)
	require.Equal(t, kind, fault.KindOf(err), what...)
}

var aliasTests = map[string]func(*testing.T, *keySuite){
	"alias is found": func(t *testing.T, s *keySuite) {
		for _, purpose := range []ports.KeyPurpose{ports.WrapDataKeys, ports.SignMessages} {
			id, alias := s.namedKey(t, purpose)
			s.settled(t, func() error {
				again, err := s.New(t, nil).Create(t.Context(), alias, purpose)
				if err == nil && again.ID != id {
					s.endLater(t, again.ID)
					err = errors.New("made a second key")
				}
				return err
			})
			described, err := s.service.Describe(t.Context(), alias)
			require.NoError(t, err)
			require.Equal(t, id, described.ID)
			require.Equal(t, purpose, described.Purpose)
			require.WithinDuration(t, time.Now(), described.CreatedAt, time.Hour)
		}
	},
	"unknown alias is not found": func(t *testing.T, s *keySuite) {
		_, err := s.service.Describe(t.Context(), s.alias())
		requireFault(t, err, fault.NotFound, "kms.key_not_found")
	},
	"one of many sets an alias": func(t *testing.T, s *keySuite) {
		alias := s.alias()
		ids := make([]string, 4)
		var group sync.WaitGroup
		for i := range ids {
			group.Go(func() {
				k, err := s.service.Create(t.Context(), alias, ports.WrapDataKeys)
				if err == nil {
					ids[i] = k.ID
				}
			})
		}
		group.Wait()
		s.endLater(t, ids[0])
		require.NotEmpty(t, ids[0])
		require.Len(t, slices.Compact(ids), 1)
	},
	"malformed alias is refused": func(t *testing.T, s *keySuite) {
		for _, alias := range []string{"", "alias/", "epoch-1", "alias/a b", "alias/" + strings.Repeat("a", 251), "ALIAS/x", "alias/ü"} {
			_, err := s.service.Create(t.Context(), alias, ports.WrapDataKeys)
			requireFault(t, err, fault.Invalid, "kms.request_invalid", alias)
		}
		_, err := s.service.Create(t.Context(), s.alias(), "decorate")
		requireFault(t, err, fault.Invalid, "kms.request_invalid")
	},
	"key scheduled for deletion is found with its state": func(t *testing.T, s *keySuite) {
		id, alias := s.namedKey(t, ports.WrapDataKeys)
		_, err := s.service.ScheduleDeletion(t.Context(), id, 7)
		require.NoError(t, err)
		s.settled(t, func() error {
			k, err := s.service.Create(t.Context(), alias, ports.WrapDataKeys)
			if err == nil && (k.ID != id || k.State != ports.KeyPendingDeletion) {
				err = fmt.Errorf("state is %s", k.State)
			}
			return err
		})
	},
}

var reWrapTests = map[string]func(*testing.T, *keySuite){
	"data key stays the same": func(t *testing.T, s *keySuite) {
		from, to := s.key(t, ports.WrapDataKeys), s.key(t, ports.WrapDataKeys)
		plain, wrapped := s.generate(t, from)
		var moved []byte
		s.settled(t, func() (err error) {
			moved, err = s.service.ReWrap(t.Context(), from, to, wrapped, bound("1"))
			return err
		})
		s.requireOpens(t, to, moved, plain)
		s.refuses(t, "kms.key_mismatch", s.unwrap(t, s.service, from, moved))
		s.requireOpens(t, from, wrapped, plain)
	},
	"another context or key is refused": func(t *testing.T, s *keySuite) {
		from, to := s.key(t, ports.WrapDataKeys), s.key(t, ports.WrapDataKeys)
		_, wrapped := s.generate(t, from)
		s.refuses(t, "kms.ciphertext_invalid", func() error {
			_, err := s.service.ReWrap(t.Context(), from, to, wrapped, bound("2"))
			return err
		})
		s.refuses(t, "kms.key_mismatch", func() error {
			_, err := s.service.ReWrap(t.Context(), to, from, wrapped, bound("1"))
			return err
		})
		wrapped[len(wrapped)-1] ^= 1
		s.refuses(t, "kms.ciphertext_invalid", func() error {
			_, err := s.service.ReWrap(t.Context(), from, to, wrapped, bound("1"))
			return err
		})
	},
}

var signTests = map[string]func(*testing.T, *keySuite){
	"signature verifies with the public key": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.SignMessages)
		var public ed25519.PublicKey
		s.settled(t, func() (err error) { public, err = s.service.PublicKey(t.Context(), key); return err })
		for _, message := range [][]byte{{0}, []byte("backbone/erasure-receipt/v1\n"), make([]byte, ports.MaximumSignedMessage)} {
			signature, err := s.service.Sign(t.Context(), key, message)
			require.NoError(t, err)
			require.True(t, ed25519.Verify(public, message, signature))
			again, err := s.service.Sign(t.Context(), key, message)
			require.NoError(t, err)
			require.Equal(t, signature, again)
			message[0] ^= 1
			require.False(t, ed25519.Verify(public, message, signature))
		}
	},
	"message out of bounds is refused": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.SignMessages)
		for _, message := range [][]byte{nil, {}, make([]byte, ports.MaximumSignedMessage+1)} {
			_, err := s.service.Sign(t.Context(), key, message)
			requireFault(t, err, fault.Invalid, "kms.request_invalid")
		}
	},
	"key has one use": func(t *testing.T, s *keySuite) {
		wrap, sign := s.key(t, ports.WrapDataKeys), s.key(t, ports.SignMessages)
		s.refuses(t, "kms.key_usage", func() error { _, err := s.service.Sign(t.Context(), wrap, []byte("x")); return err })
		s.refuses(t, "kms.key_usage", func() error { _, err := s.service.Generate(t.Context(), sign, bound("1")); return err })
	},
}
