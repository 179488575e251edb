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

// Bounds of a node's cache (security.md section 5).
const (
	DefaultEntries = 50_000
	DefaultLife    = 60 * time.Second
	DefaultPoll    = 5 * time.Second
)

// Bounds of what a key service that is slow or silent can take: it holds every call
// for seconds.
const (
	DefaultCalls = 64
	DefaultTurn  = 5 * time.Second
)

const (
	// flightLimit ends a call to the key store or the key service that nobody waits
	// for any more. Both have shorter limits of their own.
	flightLimit = 30 * time.Second
	// unwrapsAtOnce bounds the calls to the key service that one request makes at the
	// same time.
	unwrapsAtOnce = 8
	// rounds is how often a request asks the key store again because what it knew had
	// moved meanwhile.
	rounds = 3
)

// Observer sees what a Vault does. The methods are called often, some under the
// Vault's lock: they must be quick and must not call the Vault.
type Observer interface {
	CacheHits(keys int)
	CacheMisses(keys int)
	// Evicted counts keys taken out of memory, for whatever reason.
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
	// Keys and DataKeys together; one alone is as good as none. Without them every
	// document with personal values is refused with pii.keys_missing and fingerprints
	// are not keyed, which is for tests only.
	Keys      ports.SubjectKeys
	DataKeys  ports.DataKeys
	Manifests module.Manifests
	// Clock measures the life of keys. nil is the machine's monotonic clock, which is
	// what a server wants: a wall clock that is set back would lengthen lives.
	Clock    ports.Clock
	Observer Observer
	// Gate refuses seals and opens while it gives an error, such as
	// pii.receipts_behind; nil is always open.
	Gate    func() error
	Entries int           // keys in memory; 0: DefaultEntries
	Life    time.Duration // of a key in memory; 0: DefaultLife
	Poll    time.Duration // of Run; 0: DefaultPoll
	Calls   int           // of the key service at the same time; 0: DefaultCalls
	Turn    time.Duration // how long a call may wait for its turn; 0: DefaultTurn
}

// Vault implements module.Sealer, module.Opener and module.Fingerprints. It is safe
// for concurrent use.
//
// Cache rules: what was read from the key store dies Life after that read began,
// however often it is used. A key that was destroyed is remembered as such for as
// long, one that never was is not remembered. What began before an eviction is
// handed to those who waited for it and then forgotten. Each key is read, made and
// unwrapped by one call at a time. While the key store is unreachable the keys in
// memory serve until their time is over; then everything fails, and nothing looks
// erased.
type Vault struct {
	Config

	mu      sync.Mutex
	cache   cache
	reads   map[ports.SubjectKeyID]*reading // of the key store, to be joined
	mints   map[ports.SubjectKeyID]*making  // keys on their way, to be joined
	flying  map[*watch]struct{}             // what of both has not ended, also what is not to be joined any more
	keks    map[string]keptKEK              // by purpose and tenant
	secrets map[string]*tenantSecret        // by purpose and tenant
	nudge   chan struct{}                   // wakes Run

	turns chan struct{} // one for each call of the key service
}

var (
	_ module.Sealer       = (*Vault)(nil)
	_ module.Opener       = (*Vault)(nil)
	_ module.Fingerprints = (*Vault)(nil)
)

// New makes a Vault.
func New(c Config) *Vault {
	if c.Keys == nil || c.DataKeys == nil {
		c.Keys, c.DataKeys = nil, nil
	}
	if c.Clock == nil {
		c.Clock = monotonic{}
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	if c.Gate == nil {
		c.Gate = func() error { return nil }
	}
	if c.Entries <= 0 {
		c.Entries = DefaultEntries
	}
	if c.Life <= 0 {
		c.Life = DefaultLife
	}
	if c.Poll <= 0 {
		c.Poll = DefaultPoll
	}
	if c.Calls <= 0 {
		c.Calls = DefaultCalls
	}
	if c.Turn <= 0 {
		c.Turn = DefaultTurn
	}
	v := &Vault{
		Config: c,
		reads:  map[ports.SubjectKeyID]*reading{}, mints: map[ports.SubjectKeyID]*making{}, flying: map[*watch]struct{}{},
		keks: map[string]keptKEK{}, secrets: map[string]*tenantSecret{}, nudge: make(chan struct{}, 1),
		turns: make(chan struct{}, c.Calls),
	}
	v.cache.init(c.Entries)
	return v
}

// ready refuses while there are no keys or the gate is closed.
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

// takeTurn waits until the key service may be called; done ends the turn. A service
// that answers nothing in the time of a turn is as good as away: kms.unavailable.
func (v *Vault) takeTurn(ctx context.Context) (done func(), err error) {
	end := func() { <-v.turns }
	select {
	case v.turns <- struct{}{}:
		return end, nil
	default:
	}
	late := time.NewTimer(v.Turn)
	defer late.Stop()
	select {
	case v.turns <- struct{}{}:
		return end, nil
	case <-late.C:
		return nil, fault.New(fault.Unavailable, "kms.unavailable", "the key service is slow and many wait for it; try again").WithRetryAfter(time.Second)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (v *Vault) generateKey(ctx context.Context, kek string, bound ports.EncryptionContext) (made ports.DataKey, err error) {
	done, err := v.takeTurn(ctx)
	if err != nil {
		return made, err
	}
	defer done()
	made, err = v.DataKeys.Generate(ctx, kek, bound)
	v.Observer.KMSCall("generate", fault.CodeOf(err))
	return made, err
}

func (v *Vault) unwrapKey(ctx context.Context, kek string, wrapped []byte, bound ports.EncryptionContext) (plain shredding.Secret, err error) {
	done, err := v.takeTurn(ctx)
	if err != nil {
		return plain, err
	}
	defer done()
	plain, err = v.DataKeys.Unwrap(ctx, kek, wrapped, bound)
	v.Observer.KMSCall("unwrap", fault.CodeOf(err))
	return plain, err
}

// detached outlives the request that began it, since others may wait for its result.
func detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), flightLimit)
}

type monotonic struct{}

func (monotonic) Now() time.Time { return time.Now() }

type unobserved struct{}

func (unobserved) CacheHits(int)          {}
func (unobserved) CacheMisses(int)        {}
func (unobserved) Evicted(int)            {}
func (unobserved) KMSCall(string, string) {}
func (unobserved) Sealed(int)             {}
func (unobserved) Opened(int)             {}
func (unobserved) Redacted(int)           {}
