package memory

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// KeyService is a key management service in the process's memory, for tests.
type KeyService struct {
	clock    ports.Clock
	dataKeys *DataKeys

	mu      sync.Mutex
	keys    map[string]*managedKey
	aliases map[string]string // ids by alias
}

type managedKey struct {
	ports.ManagedKey
	private ed25519.PrivateKey // of a key that signs
}

var (
	_ ports.DataKeys     = (*KeyService)(nil)
	_ ports.KeyLifecycle = (*KeyService)(nil)
	_ ports.Signer       = (*KeyService)(nil)
)

// NewKeyService makes a service without keys. clock ends the waiting periods of its keys.
func NewKeyService(clock ports.Clock) *KeyService {
	return &KeyService{clock: clock, dataKeys: NewDataKeys(), keys: map[string]*managedKey{}, aliases: map[string]string{}}
}

var aliasName = regexp.MustCompile(`^alias/[A-Za-z0-9/_-]{1,250}$`)

func invalidKeyRequest() *fault.Error {
	return fault.New(fault.Invalid, "kms.request_invalid", "the key service refuses the request; correct it")
}

// Create implements ports.KeyLifecycle.
func (s *KeyService) Create(_ context.Context, alias string, purpose ports.KeyPurpose) (ports.ManagedKey, error) {
	if !aliasName.MatchString(alias) || purpose != ports.WrapDataKeys && purpose != ports.SignMessages {
		return ports.ManagedKey{}, invalidKeyRequest()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, err := s.find(alias); err == nil {
		return k.ManagedKey, nil
	}
	k := &managedKey{ManagedKey: ports.ManagedKey{ID: fmt.Sprintf("00000000-0000-4000-8000-%012d", len(s.keys)+1), Purpose: purpose, State: ports.KeyEnabled, CreatedAt: s.clock.Now().UTC()}}
	if purpose == ports.SignMessages {
		_, k.private, _ = ed25519.GenerateKey(rand.Reader) // never fails
	}
	s.keys[k.ID], s.aliases[alias] = k, k.ID
	return k.ManagedKey, nil
}

// find returns a key by id or alias, with the lock held. A key whose waiting period has ended is
// destroyed.
func (s *KeyService) find(name string) (*managedKey, error) {
	if id, found := s.aliases[name]; found {
		name = id
	}
	k, found := s.keys[name]
	if found && k.State == ports.KeyPendingDeletion && !s.clock.Now().Before(k.DeletionAt) {
		s.dataKeys.Forget(k.ID)
		found = false
	}
	if !found {
		return nil, fault.New(fault.NotFound, "kms.key_not_found", "the key service has no such key; look at its id")
	}
	return k, nil
}

// use returns a key that can be used for a purpose.
func (s *KeyService) use(id string, purpose ports.KeyPurpose) (*managedKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(id)
	switch {
	case err != nil:
		return nil, err
	case k.Purpose != purpose:
		return nil, fault.New(fault.Invalid, "kms.key_usage", "the key is for another use; name another one")
	case k.State == ports.KeyPendingDeletion:
		return nil, fault.New(fault.FailedPrecondition, "kms.key_pending_deletion", "the key is about to be deleted; cancel that or use another one")
	case k.State != ports.KeyEnabled:
		return nil, fault.New(fault.FailedPrecondition, "kms.key_disabled", "the key is disabled; enable it")
	}
	return k, nil
}

func checkContext(bound ports.EncryptionContext) error {
	if len(bound) == 0 {
		return invalidKeyRequest()
	}
	for name, value := range bound {
		if name == "" || value == "" {
			return invalidKeyRequest()
		}
	}
	return nil
}

// Generate implements ports.DataKeys.
func (s *KeyService) Generate(ctx context.Context, keyID string, bound ports.EncryptionContext) (ports.DataKey, error) {
	if err := checkContext(bound); err != nil {
		return ports.DataKey{}, err
	}
	if _, err := s.use(keyID, ports.WrapDataKeys); err != nil {
		return ports.DataKey{}, err
	}
	return s.dataKeys.Generate(ctx, keyID, bound)
}

// Unwrap implements ports.DataKeys.
func (s *KeyService) Unwrap(ctx context.Context, keyID string, wrapped []byte, bound ports.EncryptionContext) (shredding.Secret, error) {
	if err := checkContext(bound); err != nil {
		return shredding.Secret{}, err
	}
	if _, err := s.use(keyID, ports.WrapDataKeys); err != nil {
		return shredding.Secret{}, err
	}
	return s.dataKeys.Unwrap(ctx, keyID, wrapped, bound)
}

// ReWrap implements ports.KeyLifecycle.
func (s *KeyService) ReWrap(ctx context.Context, from, to string, wrapped []byte, bound ports.EncryptionContext) ([]byte, error) {
	if _, err := s.use(to, ports.WrapDataKeys); err != nil {
		return nil, err
	}
	secret, err := s.Unwrap(ctx, from, wrapped, bound)
	if err != nil {
		return nil, err
	}
	return s.dataKeys.wrap(to, secret, bound)
}

// Describe implements ports.KeyLifecycle.
func (s *KeyService) Describe(_ context.Context, key string) (ports.ManagedKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(key)
	if err != nil {
		return ports.ManagedKey{}, err
	}
	return k.ManagedKey, nil
}

// ScheduleDeletion implements ports.KeyLifecycle.
func (s *KeyService) ScheduleDeletion(_ context.Context, keyID string, days int) (time.Time, error) {
	if days < 7 || days > 30 {
		return time.Time{}, invalidKeyRequest()
	}
	return s.change(keyID, func(k *managedKey) {
		if k.State != ports.KeyPendingDeletion {
			k.State, k.DeletionAt = ports.KeyPendingDeletion, s.clock.Now().UTC().AddDate(0, 0, days)
		}
	})
}

// Disable makes a key unusable, as an operator of the service does.
func (s *KeyService) Disable(_ context.Context, keyID string) error {
	_, err := s.change(keyID, func(k *managedKey) { k.State = ports.KeyDisabled })
	return err
}

// Enable makes a disabled key usable.
func (s *KeyService) Enable(_ context.Context, keyID string) error {
	_, err := s.change(keyID, func(k *managedKey) { k.State = ports.KeyEnabled })
	return err
}

// CancelDeletion keeps a key, which is disabled then.
func (s *KeyService) CancelDeletion(_ context.Context, keyID string) error {
	_, err := s.change(keyID, func(k *managedKey) { k.State, k.DeletionAt = ports.KeyDisabled, time.Time{} })
	return err
}

func (s *KeyService) change(keyID string, f func(*managedKey)) (deletion time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.find(keyID)
	if err != nil {
		return time.Time{}, err
	}
	f(k)
	return k.DeletionAt, nil
}

// Sign implements ports.Signer.
func (s *KeyService) Sign(_ context.Context, keyID string, message []byte) ([]byte, error) {
	if len(message) == 0 || len(message) > ports.MaximumSignedMessage {
		return nil, invalidKeyRequest()
	}
	k, err := s.use(keyID, ports.SignMessages)
	if err != nil {
		return nil, err
	}
	return ed25519.Sign(k.private, message), nil
}

// PublicKey implements ports.Signer.
func (s *KeyService) PublicKey(_ context.Context, keyID string) (ed25519.PublicKey, error) {
	k, err := s.use(keyID, ports.SignMessages)
	if err != nil {
		return nil, err
	}
	return k.private.Public().(ed25519.PublicKey), nil
}
