package subscriptions

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Store keeps subscriptions.
type Store interface {
	ports.Subscriptions
	ports.Deliveries
	ports.SubscriptionDeadLetters
}

// Access knows who may read what.
type Access interface {
	// Readable lists the legal entities whose events the principal may read now.
	Readable(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error)
	// Visible lists the legal entities that the principal may know of.
	Visible(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error)
	// Owner finds a person as it is now; fault principal.not_found.
	Owner(ctx context.Context, tenantID, personID string) (ports.Principal, error)
}

// Log is what the service reads of the log besides the deliveries themselves.
type Log interface {
	HeadSource
	EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error)
	SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error)
	RecordedAt(ctx context.Context, places []ports.EventPosition) (map[ports.EventPosition]time.Time, error)
}

// Observer is told what happens to subscriptions, for metrics. Its methods must not
// block.
type Observer interface {
	SubscriptionLag(tenantID, id string, events uint64, seconds float64)
	SubscriptionCounts(tenantID, id string, c subscription.Counts)
	SubscriptionParked(tenantID, id string, messages int) // that are parked now
	SubscriptionBreaker(tenantID, id string)              // has opened
	SubscriptionGone(tenantID, id string)
}

type noObserver struct{}

func (noObserver) SubscriptionLag(string, string, uint64, float64)        {}
func (noObserver) SubscriptionCounts(string, string, subscription.Counts) {}
func (noObserver) SubscriptionParked(string, string, int)                 {}
func (noObserver) SubscriptionBreaker(string, string)                     {}
func (noObserver) SubscriptionGone(string, string)                        {}

// Config is what a Service needs.
type Config struct {
	Store  Store
	Log    Log
	Access Access
	Heads  *HeadWatcher
	IDs    ports.IDSource
	Clock  ports.Clock
	// Modules gives what tells which module an event type belongs to now, for filters on
	// modules; nil: types belong to none.
	Modules  func(ctx context.Context) (moduleOf func(eventType string) string, err error)
	Observer Observer     // nil: none
	Logger   *slog.Logger // nil: silent
	Cursors  Cursors      // nil: no subscription begins at a cursor
	Limits
}

// Limits are settings of a Service. All must be positive.
type Limits struct {
	ExpireInterval  time.Duration // how often to look for expired leases
	MeasureInterval time.Duration // how often to measure how far subscriptions are behind
	RecheckInterval time.Duration // how often a waiting poll checks for changes made on other nodes
	OrphanInterval  time.Duration // how often to look for parked messages whose subscription is gone
	MaxBytes        int           // of payloads that one poll answers, unless its first event alone has more
	MaxPerTenant    int           // subscriptions of one tenant
}

// stallAfter is how long a service may be without a successful search for expired leases before
// its health check fails. Three intervals are the least, so that a long interval is no failure.
const stallAfter = 30 * time.Second

// Cursors knows the cursors of feeds.
type Cursors interface {
	// OpenFeed reads where a cursor stands. Faults: cursor.malformed, cursor.foreign.
	OpenFeed(cursor, tenantID string) ([]ports.FeedMark, error)
}

// Service delivers events to persistent subscriptions, applies their answers, and keeps
// their dead letters.
type Service struct {
	config  Config
	wakeUps wakeUps

	stallAfter time.Duration

	locks  partitionLocks
	states stateCache

	reported           map[seriesKey]bool        // by Run only
	hasNoSubscriptions atomic.Bool               // the last measurement found no subscription, and none was polled since
	lastExpiry         atomic.Pointer[time.Time] // when a sweep succeeded last; nil: it does not run
	lastOrphanRemoval  time.Time                 // when remains were removed last; by Run only

	closing chan struct{}
	closed  sync.Once
}

func noModule(string) string { return "" }

// Close lets polls that wait come back empty, for a server that shuts down.
func (s *Service) Close() { s.closed.Do(func() { close(s.closing) }) }

// New makes a Service. It refuses limits that are not positive.
func New(c Config) (*Service, error) {
	if err := fault.RequirePositive("subscriptions.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Modules == nil {
		c.Modules = func(context.Context) (func(string) string, error) { return noModule, nil }
	}
	return &Service{config: c, stallAfter: stallAfter, closing: make(chan struct{})}, nil
}

// Caller is who asks.
type Caller struct {
	Principal ports.Principal
	// Operator may manage the subscriptions of other persons; it gets none of their events.
	Operator bool
}

func notFound() *fault.Error {
	return fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription that you may see; GET /api/subscriptions lists them")
}

// findManaged gives a subscription that the caller may look after.
func (s *Service) findManaged(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.config.Store.Subscription(ctx, c.Principal.TenantID, id)
	if err != nil {
		return sub, err
	}
	if sub.Owner != c.Principal.PersonID && !c.Operator {
		return subscription.Subscription{}, notFound()
	}
	return sub, nil
}

// findOwned gives a subscription whose events the caller may take: the owner's own.
func (s *Service) findOwned(ctx context.Context, p ports.Principal, id string) (subscription.Subscription, error) {
	sub, err := s.config.Store.Subscription(ctx, p.TenantID, id)
	if err == nil && sub.Owner != p.PersonID {
		return sub, fault.New(fault.Forbidden, "subscription.not_owner", "only its owner takes the events of a subscription; make one of your own")
	}
	if err == nil {
		s.hasNoSubscriptions.Store(false)
	}
	return sub, err
}

// Create makes a subscription. The same definition again answers what is there, with
// created false. Faults: subscription.exists (Conflict: another definition or owner),
// legal_entity.not_found, subscription.position_invalid, subscription.too_many,
// cursor.malformed, cursor.foreign, cursor.diverged, and those of Subscription.Check.
func (s *Service) Create(ctx context.Context, p ports.Principal, sub subscription.Subscription) (made subscription.Subscription, created bool, err error) {
	now := event.Micros(s.config.Clock.Now())
	sub.TenantID, sub.Owner, sub.Status, sub.Revision = p.TenantID, p.PersonID, subscription.Active, 1
	sub.UID, sub.CreatedAt, sub.UpdatedAt = s.config.IDs.NewID(now), now, now
	if err := sub.Check(); err != nil {
		return sub, false, err
	}
	marks, err := s.resolveCursor(p.TenantID, &sub.Settings.Start, "/settings/start_cursor")
	if err != nil {
		return sub, false, err
	}
	if stored, err := s.config.Store.Subscription(ctx, p.TenantID, sub.ID); err == nil {
		return requireSameDefinition(stored, sub)
	} else if fault.KindOf(err) != fault.NotFound {
		return sub, false, err
	}
	entities, err := s.config.Access.Readable(ctx, p)
	if err != nil {
		return sub, false, err
	}
	for _, code := range sub.Filter.LegalEntities {
		if !slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Code == code }) {
			return sub, false, fault.New(fault.NotFound, "legal_entity.not_found", "one of these legal entities is none whose events you may read; GET /api/admin/legal-entities lists them").WithField("/legal_entities")
		}
	}
	// A misspelt one would begin at its beginning, with all that ever happened there.
	for code := range sub.Settings.Start.Positions {
		if !sub.Filter.Covers(code) || !slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Code == code }) {
			return sub, false, positionInvalid("/settings/start_positions")
		}
	}
	if err := s.checkSameLog(ctx, entities, marks, "/settings/start_cursor"); err != nil {
		return sub, false, err
	}
	cursors, err := s.newCursors(ctx, &sub, entities, nil)
	if err != nil {
		return sub, false, err
	}
	made, created, err = s.config.Store.CreateSubscription(ctx, sub, cursors, s.config.MaxPerTenant)
	if err != nil || created {
		return made, created, err
	}
	return requireSameDefinition(made, sub)
}

func requireSameDefinition(stored, wanted subscription.Subscription) (subscription.Subscription, bool, error) {
	if stored.Owner != wanted.Owner || !stored.SameDefinition(&wanted) {
		return wanted, false, fault.New(fault.Conflict, "subscription.exists", "a subscription of this id is there with another definition; change its settings, or choose another id").WithField("/id")
	}
	return stored, false, nil
}

// List gives the subscriptions that the caller may look after, by id.
func (s *Service) List(ctx context.Context, c Caller) ([]subscription.Subscription, error) {
	all, err := s.config.Store.Subscriptions(ctx, c.Principal.TenantID)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(sub subscription.Subscription) bool { return sub.Owner != c.Principal.PersonID && !c.Operator }), nil
}

// Change replaces the settings, apart from where the subscription began. The order
// cannot be kept by something else while messages stand in the old one. Faults:
// subscription.settings_in_use, subscription.changed, those of Subscription.Check.
func (s *Service) Change(ctx context.Context, c Caller, id string, settings subscription.Settings) (subscription.Subscription, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return sub, err
	}
	before := sub.Settings
	settings.Start = before.Start
	sub.Settings = settings
	if err := sub.Check(); err != nil {
		return sub, err
	}
	if sub.Settings.PartitionBy != before.PartitionBy {
		if err := s.requireEmpty(ctx, &sub); err != nil {
			return sub, err
		}
	}
	return s.save(ctx, sub)
}

// requireEmpty refuses while messages are open or parked, because their keys were
// computed by the old order. It locks each legal entity, so it waits for a poll there
// that began before the subscription was paused.
func (s *Service) requireEmpty(ctx context.Context, sub *subscription.Subscription) error {
	inUse := fault.New(fault.FailedPrecondition, "subscription.settings_in_use",
		"partition_by changes only while the subscription is paused and has no open or parked messages; pause it, answer or reset what is open, and settle its dead letters").WithField("/settings/partition_by")
	if sub.Status == subscription.Active {
		return inUse
	}
	backlogs, err := s.config.Store.Backlogs(ctx, sub.UID)
	if err != nil {
		return err
	}
	for _, b := range backlogs {
		err := s.withLock(ctx, sub.UID, b.Partition, func(ctx context.Context, tx ports.DeliveryTx) error {
			open, err := tx.Open(ctx)
			if err == nil && len(open)+tx.Cursor().Parked > 0 {
				err = inUse
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) save(ctx context.Context, sub subscription.Subscription) (subscription.Subscription, error) {
	sub.Revision++
	if err := s.config.Store.ChangeSubscription(ctx, sub); err != nil {
		return sub, err
	}
	s.wakeUps.wake(sub.UID)
	return s.config.Store.Subscription(ctx, sub.TenantID, sub.ID)
}

// Pause stops deliveries; messages in flight may still be answered. Pausing again changes
// nothing.
func (s *Service) Pause(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil || sub.Status == subscription.Paused {
		return sub, err
	}
	sub.Status = subscription.Paused
	return s.save(ctx, sub)
}

// Resume goes on after a pause or after the breaker opened, with no failures counted.
func (s *Service) Resume(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil || sub.Status == subscription.Active {
		return sub, err
	}
	sub.Status, sub.Failures = subscription.Active, 0
	return s.save(ctx, sub)
}

// Delete removes a subscription with everything that is open and parked. The record
// of decisions about dead letters stays.
func (s *Service) Delete(ctx context.Context, c Caller, id string) error {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return err
	}
	if err := s.config.Store.DeleteSubscription(ctx, sub.UID); err != nil {
		return err
	}
	s.config.Observer.SubscriptionGone(sub.TenantID, sub.ID)
	s.wakeUps.wake(sub.UID)
	return nil
}

// withLock runs f with the subscription's cursor in a partition locked. It holds no
// connection while other callers of this node wait for the same lock.
func (s *Service) withLock(ctx context.Context, uid event.ID, p event.PartitionID, f func(ctx context.Context, tx ports.DeliveryTx) error) error {
	unlock, err := s.locks.lock(ctx, lockKey{uid, p})
	if err != nil {
		return err
	}
	defer unlock()
	_, err = s.config.Store.Deliver(ctx, uid, p, true, f)
	return err
}
