package vault

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// fingerprintPurpose names the tenants' secrets of fingerprints.
const fingerprintPurpose = "fingerprint"

// tenantSecret is a tenant's secret on its way or there. It stays for the process's
// life, so that appends go on while the key service is away; it opens no personal
// value.
type tenantSecret struct {
	done  chan struct{}
	value shredding.Secret
	err   error
	again time.Time // when the next one may try again, after an error
}

// secretPause is how long a failure to load a secret is kept: requests that can go
// on without it must not wait for the key service one after another.
const secretPause = 2 * time.Second

// Fingerprint implements module.Fingerprints. Without keys it gives the digest as it
// is, for tests. Faults of the key store and the key service, until the tenant's
// secret has been loaded once.
func (v *Vault) Fingerprint(ctx context.Context, tenantID string, digest event.Hash) (event.Hash, error) {
	if v.Keys == nil {
		return digest, nil
	}
	return v.underSecret(ctx, tenantID, fingerprintPurpose, digest[:])
}

// Derive makes a key out of a secret of the tenant that is kept for a purpose, by
// HMAC-SHA-256 of the label: the same key for the same three, for ever, and nothing of
// it is stored. Purposes have secrets of their own, so that what is derived for one is
// no fingerprint. Faults: pii.keys_missing (FailedPrecondition) without a key
// service, and those of Fingerprint.
func (v *Vault) Derive(ctx context.Context, tenantID, purpose, label string) (shredding.Secret, error) {
	if v.Keys == nil {
		return shredding.Secret{}, fault.New(fault.FailedPrecondition, "pii.keys_missing", "secrets need a key service; have an operator configure kms")
	}
	if purpose == fingerprintPurpose {
		return shredding.Secret{}, fault.New(fault.Internal, "pii.purpose_taken", "the secrets of fingerprints derive nothing else; report this")
	}
	h, err := v.underSecret(ctx, tenantID, purpose, []byte(label))
	if err != nil {
		return shredding.Secret{}, err
	}
	return shredding.NewSecret(h[:]), nil
}

// underSecret is the HMAC of a text under a tenant's secret of a purpose.
func (v *Vault) underSecret(ctx context.Context, tenantID, purpose string, text []byte) (out event.Hash, err error) {
	kept := purpose + "\x00" + tenantID
	v.mu.Lock()
	s := v.secrets[kept]
	if s == nil || !s.again.IsZero() && !v.Clock.Now().Before(s.again) {
		s = &tenantSecret{done: make(chan struct{})}
		v.secrets[kept] = s
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
	ctx, cancel := detached(ctx)
	defer cancel()
	s.value, s.err = v.secret(ctx, tenantID, purpose)
	if fault.CodeOf(s.err) == codeEpochClosed {
		s.value, s.err = v.secret(ctx, tenantID, purpose)
	}
	if s.err != nil { // those who wait are told, and those who come within the pause
		v.mu.Lock()
		s.again = v.Clock.Now().Add(secretPause)
		v.mu.Unlock()
	}
	close(s.done)
}

// secret reads a tenant's secret of a purpose, or makes the first one.
func (v *Vault) secret(ctx context.Context, tenantID, purpose string) (shredding.Secret, error) {
	stands, err := v.Keys.TenantSecret(ctx, tenantID, purpose)
	if err != nil {
		return shredding.Secret{}, err
	}
	if stands.Reference == "" {
		reference := newReference()
		kek, plain, wrapped, err := v.generate(ctx, tenantID, ports.Bound(0, reference, firstVersion))
		if err != nil {
			return shredding.Secret{}, err
		}
		fingerprint, err := shredding.Key{Class: shredding.KeyStandard, Version: firstVersion, DEK: plain}.Fingerprint()
		if err != nil {
			return shredding.Secret{}, err
		}
		stands, err = v.Keys.SaveTenantSecret(ctx, ports.TenantSecret{
			TenantID: tenantID, Purpose: purpose, Reference: reference,
			WrappedKey: ports.WrappedKey{Version: firstVersion, Epoch: kek.Epoch, KEK: kek.KeyID, Wrapped: wrapped, Fingerprint: fingerprint},
		})
		if err == nil && stands.Reference == reference {
			return plain, nil
		}
		plain.Zero()
		if err != nil {
			v.dropKEK(tenantID, err)
			return shredding.Secret{}, err
		}
	}
	return v.unwrapKey(ctx, stands.KEK, stands.Wrapped, ports.Bound(0, stands.Reference, stands.Version))
}
