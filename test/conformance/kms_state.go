package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// clockDifference is how far the service's clock may be from ours.
const clockDifference = 10 * time.Minute

// refusesUse requires that every use of a key is refused, also to a client that has used it
// before.
func (s *keySuite) refusesUse(t *testing.T, code, key, other string, wrapped []byte) {
	t.Helper()
	for _, service := range []KeyService{s.service, s.New(t, nil)} {
		s.refuses(t, code, func() error { _, err := service.Generate(t.Context(), key, bound("1")); return err })
		s.refuses(t, code, s.unwrap(t, service, key, wrapped))
		s.refuses(t, code, func() error { _, err := service.ReWrap(t.Context(), key, other, wrapped, bound("1")); return err })
	}
}

func (s *keySuite) requireState(t *testing.T, key string, state ports.KeyState) (k ports.ManagedKey) {
	t.Helper()
	s.settled(t, func() (err error) {
		if k, err = s.service.Describe(t.Context(), key); err == nil && k.State != state {
			err = fmt.Errorf("state is %s, not %s", k.State, state)
		}
		return err
	})
	return k
}

var keyStateTests = map[string]func(*testing.T, *keySuite){
	"disabled key is not used": func(t *testing.T, s *keySuite) {
		key, other := s.key(t, ports.WrapDataKeys), s.key(t, ports.WrapDataKeys)
		plain, wrapped := s.generate(t, key)
		_, foreign := s.generate(t, other)
		require.NoError(t, s.Administrator.Disable(t.Context(), key))
		s.requireState(t, key, ports.KeyDisabled)
		s.refusesUse(t, "kms.key_disabled", key, other, wrapped)
		s.refuses(t, "kms.key_disabled", func() error { _, err := s.service.ReWrap(t.Context(), other, key, foreign, bound("1")); return err })
		require.NoError(t, s.Administrator.Enable(t.Context(), key))
		s.requireState(t, key, ports.KeyEnabled)
		s.requireOpens(t, key, wrapped, plain)
	},
	"key scheduled for deletion is not used": func(t *testing.T, s *keySuite) {
		key, other := s.key(t, ports.WrapDataKeys), s.key(t, ports.WrapDataKeys)
		_, wrapped := s.generate(t, key)
		_, foreign := s.generate(t, other)
		at, err := s.service.ScheduleDeletion(t.Context(), key, 7)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(7*24*time.Hour), at, clockDifference)
		require.WithinDuration(t, at, s.requireState(t, key, ports.KeyPendingDeletion).DeletionAt, time.Second)
		s.refusesUse(t, "kms.key_pending_deletion", key, other, wrapped)
		s.refuses(t, "kms.key_pending_deletion", func() error { _, err := s.service.ReWrap(t.Context(), other, key, foreign, bound("1")); return err })
	},
	"signing key scheduled for deletion does not sign": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.SignMessages)
		_, err := s.service.ScheduleDeletion(t.Context(), key, 30)
		require.NoError(t, err)
		s.refuses(t, "kms.key_pending_deletion", func() error { _, err := s.service.Sign(t.Context(), key, []byte("x")); return err })
	},
	"second schedule keeps the first time": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		at, err := s.service.ScheduleDeletion(t.Context(), key, 7)
		require.NoError(t, err)
		s.settled(t, func() error {
			again, err := s.service.ScheduleDeletion(t.Context(), key, 30)
			if err == nil && at.Sub(again).Abs() > time.Second {
				err = fmt.Errorf("first %s, then %s", at, again)
			}
			return err
		})
	},
	"cancelled deletion leaves the key disabled": func(t *testing.T, s *keySuite) {
		key, other := s.key(t, ports.WrapDataKeys), s.key(t, ports.WrapDataKeys)
		plain, wrapped := s.generate(t, key)
		_, err := s.service.ScheduleDeletion(t.Context(), key, 7)
		require.NoError(t, err)
		s.requireState(t, key, ports.KeyPendingDeletion)
		require.NoError(t, s.Administrator.CancelDeletion(t.Context(), key))
		require.True(t, s.requireState(t, key, ports.KeyDisabled).DeletionAt.IsZero())
		s.refusesUse(t, "kms.key_disabled", key, other, wrapped)
		require.NoError(t, s.Administrator.Enable(t.Context(), key))
		s.requireOpens(t, key, wrapped, plain)
	},
	"waiting period out of bounds is refused": func(t *testing.T, s *keySuite) {
		key := s.key(t, ports.WrapDataKeys)
		for _, days := range []int{-1, 0, 6, 31, 1 << 40} {
			_, err := s.service.ScheduleDeletion(t.Context(), key, days)
			requireFault(t, err, fault.Invalid, "kms.request_invalid", days)
		}
		s.requireState(t, key, ports.KeyEnabled)
	},
}
