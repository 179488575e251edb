package vault

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	// callTimeout bounds a call to the key store or the key service with all its tries. The call
	// goes on when the request that began it ends.
	callTimeout = 30 * time.Second
	// maxParallelUnwraps bounds the calls to the key service that one request makes at the
	// same time.
	maxParallelUnwraps = 8
	// maxRounds is how often a request looks its keys up; it repeats the lookup when the
	// cached state of a key was outdated.
	maxRounds = 3
)

// Observer counts the work of a Vault. The Vault calls some methods under its lock: they
// must return at once and must not call the Vault.
type Observer interface {
	CacheHits(keys int)
	CacheMisses(keys int)
	// Evicted counts keys removed from memory, for any reason.
	Evicted(keys int)
	// KMSCall counts calls of the key service by operation, "generate" or "unwrap";
	// the code is that of the fault, "" on success.
	KMSCall(operation, code string)
	Sealed(values int)
	Opened(values int)
	Redacted(values int)
}

// Config is what a Vault needs.
type Config struct {
	// Keys and DataKeys are set together or not at all. Without them the Vault refuses every
	// document with personal values (pii.keys_missing) and returns fingerprints unkeyed,
	// which is for tests only; such a Vault needs no Limits.
	Keys      ports.SubjectKeys
	DataKeys  ports.DataKeys
	Manifests module.Manifests
	// Clock measures the life of keys. nil is the machine's monotonic clock: a wall clock
	// that is set back would lengthen lives.
	Clock    ports.Clock
	Observer Observer
	// Gate returns the error with which the Vault refuses to seal and open, such as
	// pii.receipts_behind after a restore; nil never refuses.
	Gate func() error
	// RequireLive returns the error with which the Vault refuses to use an unwrapped key of a
	// person: pii.receipts_behind for the fingerprint of one that an erasure destroyed. nil
	// never refuses. The Vault calls it once for each key that it unwraps.
	RequireLive func(shredding.Fingerprint) error
	// Learn tells RequireLive of newly destroyed keys. The Vault calls it when the key store
	// reports them, before it evicts its keys and reports that; nil learns nothing.
	Learn func(context.Context) error
	Limits
}

// Limits bound the cache of a Vault and its calls; all are required.
type Limits struct {
	Entries int           // keys in memory
	Life    time.Duration // of a key in memory; at most a minute (maxEviction of package erasure), which configs requires
	Poll    time.Duration // between reports of Run to the key store

	// Calls of the key service at the same time, and how long a further one waits to begin.
	// Without these limits a key service that delays every call for seconds would block all
	// requests.
	MaxCalls    int
	MaxCallWait time.Duration
}

// Vault implements module.Sealer, module.Opener and module.Fingerprints. It is safe
// for concurrent use.
//
// Cache rules: the result of a read of the key store expires Life after the read began,
// however often it is used. The vault caches the state of a destroyed key for as long, and
// does not cache an absent key. The result of a read that began before an eviction goes to
// the requests that waited for it and is not cached. At most one call at a time reads,
// mints or unwraps a key. While the key store or the key service is unavailable, the vault uses
// the keys in memory until these expire; then requests fail, so that no value looks erased.
// An erasure relies on Life: it waits no longer than a minute for a node that does not report
// its evictions.
type Vault struct {
	Config

	mu        sync.Mutex
	cache     cache
	reads     map[ports.SubjectKeyID]*reading    // reads of the key store that other requests may join
	mints     map[ports.SubjectKeyID]*pendingKey // mints that other requests may join
	inFlight  map[*evictionWatch]struct{}        // of all reads and mints that have not ended
	keks      map[string]cachedKEK               // by purpose and tenant
	secrets   map[string]*tenantSecret           // by purpose and tenant
	reportDue chan struct{}                      // makes Run report at once

	slots chan struct{} // holds one value per call of the key service
}

var (
	_ module.Sealer       = (*Vault)(nil)
	_ module.Opener       = (*Vault)(nil)
	_ module.Fingerprints = (*Vault)(nil)
)

// New makes a Vault.
func New(c Config) (*Vault, error) {
	if c.Keys == nil || c.DataKeys == nil {
		c.Keys, c.DataKeys = nil, nil
	} else if err := fault.RequirePositive("vault.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Clock == nil {
		c.Clock = monotonic{}
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Gate == nil {
		c.Gate = func() error { return nil }
	}
	if c.RequireLive == nil {
		c.RequireLive = func(shredding.Fingerprint) error { return nil }
	}
	if c.Learn == nil {
		c.Learn = func(context.Context) error { return nil }
	}
	v := &Vault{
		Config: c,
		reads:  map[ports.SubjectKeyID]*reading{}, mints: map[ports.SubjectKeyID]*pendingKey{}, inFlight: map[*evictionWatch]struct{}{},
		keks: map[string]cachedKEK{}, secrets: map[string]*tenantSecret{}, reportDue: make(chan struct{}, 1),
		slots: make(chan struct{}, c.MaxCalls),
	}
	v.cache.init(c.Entries)
	return v, nil
}

// ready returns an error while there are no keys or the gate is closed. Every use of a key
// begins with it, so a closed gate also stops the use of keys in memory.
func (v *Vault) ready() error {
	if v.Keys == nil {
		return KeysMissing()
	}
	return v.Gate()
}

// KeysMissing is the fault of an installation that has no key service.
func KeysMissing() error {
	return fault.New(fault.FailedPrecondition, "pii.keys_missing",
		"this installation has no key service, so personal data can neither be stored nor read; configure one")
}

// acquireSlot waits until the caller may call the key service; the caller calls release
// afterwards. After MaxCallWait it fails with kms.unavailable, so that requests do not queue
// behind a slow key service. Keys in memory need no slot.
func (v *Vault) acquireSlot(ctx context.Context) (release func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	timeout := time.NewTimer(v.MaxCallWait)
	defer timeout.Stop()
	select {
	case v.slots <- struct{}{}:
		return func() { <-v.slots }, nil
	case <-timeout.C:
		return nil, fault.New(fault.Unavailable, "kms.unavailable", "the key service is slow and too many requests wait for it; try again").WithRetryAfter(time.Second)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (v *Vault) generateKey(ctx context.Context, kek string, bound ports.EncryptionContext) (made ports.DataKey, err error) {
	release, err := v.acquireSlot(ctx)
	if err != nil {
		return made, err
	}
	defer release()
	made, err = v.DataKeys.Generate(ctx, kek, bound)
	v.Observer.KMSCall("generate", fault.CodeOf(err))
	return made, err
}

func (v *Vault) unwrapKey(ctx context.Context, kek string, wrapped []byte, bound ports.EncryptionContext) (plain shredding.Secret, err error) {
	release, err := v.acquireSlot(ctx)
	if err != nil {
		return plain, err
	}
	defer release()
	plain, err = v.DataKeys.Unwrap(ctx, kek, wrapped, bound)
	v.Observer.KMSCall("unwrap", fault.CodeOf(err))
	return plain, err
}

// detachedContext returns a context that outlives the request, since other requests may
// wait for the result. A cancelled request itself returns at once.
func detachedContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
}

type monotonic struct{}

func (monotonic) Now() time.Time { return time.Now() }

type noObserver struct{}

func (noObserver) CacheHits(int)          {}
func (noObserver) CacheMisses(int)        {}
func (noObserver) Evicted(int)            {}
func (noObserver) KMSCall(string, string) {}
func (noObserver) Sealed(int)             {}
func (noObserver) Opened(int)             {}
func (noObserver) Redacted(int)           {}
