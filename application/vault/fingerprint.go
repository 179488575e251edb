package vault

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// fingerprintPurpose names the tenants' secrets of fingerprints.
const fingerprintPurpose = "fingerprint"

// authenticatePrefix begins the names of the tenants' secrets of Authenticate.
const authenticatePrefix = "authenticate/"

func secretsUnavailable() error {
	return fault.New(fault.FailedPrecondition, "pii.keys_missing", "secrets need a key service; have an operator configure kms")
}

// tenantSecret is a tenant's secret, loaded once done is closed. It stays in memory for the
// process's life, so that appends continue while the key service is unavailable; it opens
// no personal value.
type tenantSecret struct {
	done    chan struct{}
	value   shredding.Secret
	err     error
	retryAt time.Time // after an error: from when a request loads it again
}

// secretRetryPause is how long requests get the last error of loading a secret at once.
// Otherwise each of them would wait for the unavailable key service.
const secretRetryPause = 2 * time.Second

// Fingerprint implements module.Fingerprints. Without keys it returns the digest itself,
// for tests. Until the tenant's secret is loaded it may return faults of the key store and
// the key service.
func (v *Vault) Fingerprint(ctx context.Context, tenantID string, digest event.Hash) (event.Hash, error) {
	if v.Keys == nil {
		return digest, nil
	}
	return v.hmacWithSecret(ctx, tenantID, fingerprintPurpose, digest[:])
}

// Derive derives a key from the tenant's secret of a purpose, by HMAC-SHA-256 of the label.
// It always returns the same key for the same arguments and stores nothing. Each purpose
// has its own secret, so that no derived key is a fingerprint. Faults: pii.keys_missing
// (FailedPrecondition) without a key service, and those of Fingerprint.
func (v *Vault) Derive(ctx context.Context, tenantID, purpose, label string) (shredding.Secret, error) {
	if v.Keys == nil {
		return shredding.Secret{}, secretsUnavailable()
	}
	if purpose == fingerprintPurpose || strings.HasPrefix(purpose, authenticatePrefix) {
		return shredding.Secret{}, fault.New(fault.Internal, "pii.purpose_taken", "this secret must not derive other keys; report this defect")
	}
	h, err := v.hmacWithSecret(ctx, tenantID, purpose, []byte(label))
	if err != nil {
		return shredding.Secret{}, err
	}
	return shredding.NewSecret(h[:]), nil
}

// Authenticate returns the HMAC-SHA-256 of a text under the tenant's secret of a purpose, by
// which a node recognizes what a node of this tenant wrote: the role of the database cannot
// compute it. It always returns the same for the same arguments and stores nothing. Its
// secrets are others than those of Derive, so that no derived key is an authentication.
// Compare with hmac.Equal. Faults: those of Derive.
func (v *Vault) Authenticate(ctx context.Context, tenantID, purpose string, text []byte) (event.Hash, error) {
	if v.Keys == nil {
		return event.Hash{}, secretsUnavailable()
	}
	return v.hmacWithSecret(ctx, tenantID, authenticatePrefix+purpose, text)
}

// hmacWithSecret computes the HMAC of a text under a tenant's secret of a purpose.
func (v *Vault) hmacWithSecret(ctx context.Context, tenantID, purpose string, text []byte) (out event.Hash, err error) {
	if err := ctx.Err(); err != nil {
		return out, err // a select takes either when the secret is in memory
	}
	name := purpose + "\x00" + tenantID
	v.mu.Lock()
	s := v.secrets[name]
	if s == nil || !s.retryAt.IsZero() && !v.Clock.Now().Before(s.retryAt) {
		s = &tenantSecret{done: make(chan struct{})}
		v.secrets[name] = s
		go v.loadSecret(ctx, s, tenantID, purpose)
	}
	v.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		return out, ctx.Err()
	}
	if s.err != nil {
		return out, s.err
	}
	err = s.value.Use(func(key []byte) error {
		mac := hmac.New(sha256.New, key)
		mac.Write(text)
		mac.Sum(out[:0])
		return nil
	})
	return out, err
}

func (v *Vault) loadSecret(ctx context.Context, s *tenantSecret, tenantID, purpose string) {
	ctx, cancel := detachedContext(ctx)
	defer cancel()
	s.value, s.err = v.getOrMakeSecret(ctx, tenantID, purpose)
	if fault.CodeOf(s.err) == codeEpochClosed {
		s.value, s.err = v.getOrMakeSecret(ctx, tenantID, purpose)
	}
	if s.err != nil { // the waiting requests, and those within the pause, get the error
		v.mu.Lock()
		s.retryAt = v.Clock.Now().Add(secretRetryPause)
		v.mu.Unlock()
	}
	close(s.done)
}

// getOrMakeSecret reads a tenant's secret of a purpose. It makes the first one.
func (v *Vault) getOrMakeSecret(ctx context.Context, tenantID, purpose string) (shredding.Secret, error) {
	stored, err := v.Keys.TenantSecret(ctx, tenantID, purpose)
	if err != nil {
		return shredding.Secret{}, err
	}
	if stored.Reference == "" {
		reference := newReference()
		plain, wrapped, err := v.generate(ctx, tenantID, 0, reference)
		if err != nil {
			return shredding.Secret{}, err
		}
		stored, err = v.Keys.SaveTenantSecret(ctx, ports.TenantSecret{TenantID: tenantID, Purpose: purpose, Reference: reference, WrappedKey: wrapped})
		if err == nil && stored.Reference == reference {
			return plain, nil
		}
		plain.Zero()
		if err != nil {
			v.dropKEK(tenantID, err)
			return shredding.Secret{}, err
		}
	}
	return v.unwrapKey(ctx, stored.KEK, stored.Wrapped, ports.Bound(0, stored.Reference, stored.Version))
}
