package subscriptions

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Store stores subscriptions, their messages and their dead letters.
type Store interface {
	ports.Subscriptions
	ports.Deliveries
	ports.SubscriptionDeadLetters
}

// Access decides what principals may read.
type Access interface {
	// Readable lists the legal entities whose events the principal may read now.
	Readable(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error)
	// Visible lists the legal entities whose existence the principal may know.
	Visible(ctx context.Context, p ports.Principal) ([]ports.LegalEntity, error)
	// Sight returns which event types the principal sees now.
	Sight(ctx context.Context, p ports.Principal) (module.Sight, error)
	// Owner returns a person with its current rights; fault principal.not_found.
	Owner(ctx context.Context, tenantID, personID string) (ports.Principal, error)
}

// Log reads the log, apart from the events that are delivered.
type Log interface {
	ports.LogPositions
	EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error)
	SequenceAt(ctx context.Context, p event.PartitionID, t time.Time) (event.Sequence, error)
}

// Observer is notified of what happens to subscriptions, for metrics. Its methods must not
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
	Store Store
	Log   Log
	// Decisions records what persons decide about subscriptions, before it has an effect.
	Decisions ports.SubscriptionDecisions
	Access    Access
	Heads     *HeadWatcher
	IDs       ports.IDSource
	Clock     ports.Clock
	// Modules returns a function that maps event types to their current modules, for filters on
	// modules; nil: types belong to none.
	Modules  func(ctx context.Context, tenantID string) (moduleOf func(eventType string) string, err error)
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
// its health check fails. Where three intervals are longer, they count instead.
const stallAfter = 30 * time.Second

// Cursors opens the cursors of feeds.
type Cursors interface {
	// OpenFeed returns the positions that a cursor encodes. Faults: cursor.malformed, cursor.foreign.
	OpenFeed(cursor, tenantID string) ([]ports.FeedMark, error)
}

// Service delivers events to persistent subscriptions, applies their answers, and manages
// their dead letters.
type Service struct {
	config  Config
	wakeUps wakeUps

	locks  partitionLocks
	states stateCache

	reported           map[seriesKey]bool        // by Run only
	hasNoSubscriptions atomic.Bool               // the last measurement found no subscription, and none was polled since
	lastExpiry         atomic.Pointer[time.Time] // when a sweep succeeded last; nil: it does not run
	lastOrphanRemoval  time.Time                 // by Run only

	closing chan struct{}
	closed  sync.Once
}

func noModule(string) string { return "" }

// Close makes waiting polls return without messages, for a server that shuts down.
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
		c.Modules = func(context.Context, string) (func(string) string, error) { return noModule, nil }
	}
	return &Service{config: c, closing: make(chan struct{})}, nil
}

// Caller is the principal of a request.
type Caller struct {
	Principal ports.Principal
	// Operator: the caller may manage the subscriptions of other persons in the legal entities of
	// Principal, but gets no events of them.
	Operator bool
	// Automatic: the server decides on behalf of Principal.
	Automatic bool
}

func notFound() *fault.Error {
	return fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription that you may see; GET /api/subscriptions lists them")
}

// findManaged returns a subscription that the caller may see and manage in the legal entities that
// it sees: its own, and to operators those that deliver events of one of their legal entities.
func (s *Service) findManaged(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.config.Store.Subscription(ctx, c.Principal.TenantID, id)
	if err != nil {
		return sub, err
	}
	visible, err := s.visible(ctx, c, sub)
	if err == nil && len(visible) == 0 {
		return subscription.Subscription{}, notFound()
	}
	return sub, err
}

// findWhole is findManaged for changes that concern all legal entities of the subscription. Fault
// subscription.affects_others to an operator of only some of them.
func (s *Service) findWhole(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil || sub.Owner == c.Principal.PersonID || len(c.Principal.LegalEntities) == 0 {
		return sub, err
	}
	owner, err := s.entitlements(ctx, sub.TenantID, sub.Owner)
	if err == nil && !sub.Within(c.Principal.LegalEntities, owner) {
		return sub, fault.New(fault.Forbidden, "subscription.affects_others",
			"this concerns the subscription in all its legal entities, also in those that are not yours; ask its owner or an operator of all of them. Resets and dead letters concern your legal entities only")
	}
	return sub, err
}

// visible returns those of subs that the caller may know of.
func (s *Service) visible(ctx context.Context, c Caller, subs ...subscription.Subscription) ([]subscription.Subscription, error) {
	reader := subscription.Reader{PersonID: c.Principal.PersonID, Operator: c.Operator, LegalEntities: c.Principal.LegalEntities}
	return subscription.Visible(reader, subs, func(tenantID, personID string) ([]string, error) { return s.entitlements(ctx, tenantID, personID) })
}

// entitlements lists the legal entities that an owner is entitled to; none: all.
func (s *Service) entitlements(ctx context.Context, tenantID, personID string) ([]string, error) {
	owner, err := s.config.Access.Owner(ctx, tenantID, personID)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	return owner.LegalEntities, err
}

// findOwned returns a subscription whose events the caller may receive, as its owner. Other callers
// do not learn whether it exists.
func (s *Service) findOwned(ctx context.Context, p ports.Principal, id string) (subscription.Subscription, error) {
	sub, err := s.config.Store.Subscription(ctx, p.TenantID, id)
	if err == nil && sub.Owner != p.PersonID {
		return subscription.Subscription{}, notFound()
	}
	if err == nil {
		s.hasNoSubscriptions.Store(false)
	}
	return sub, err
}

// Create creates a subscription. For the same definition again it returns the existing one,
// with created false. Faults: subscription.exists (Conflict: another definition or owner),
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
		record, err := s.config.Decisions.Subscription(ctx, p.TenantID, sub.ID)
		if err != nil {
			return sub, false, err
		}
		if !record.Deleted || record.UID != stored.UID {
			return requireSameDefinition(stored, sub)
		}
		if err := s.config.Store.DeleteSubscription(ctx, stored.UID); err != nil { // its deletion was cut off
			return sub, false, err
		}
	} else if fault.KindOf(err) != fault.NotFound {
		return sub, false, err
	}
	entities, err := s.config.Access.Readable(ctx, p)
	if err != nil {
		return sub, false, err
	}
	for _, code := range sub.Filter.LegalEntities {
		if !slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Code == code }) {
			return sub, false, fault.New(fault.NotFound, "legal_entity.not_found", "one of these legal entities does not exist or you may not read its events; GET /api/admin/legal-entities lists yours").WithField("/legal_entities")
		}
	}
	// An unknown code would be ignored, so its legal entity would begin at its first event.
	for code := range sub.Settings.Start.Positions {
		if !slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Code == code && covers(&sub.Filter, le) }) {
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
	return s.create(ctx, p, sub, cursors)
}

// create records a creation and then stores it.
func (s *Service) create(ctx context.Context, p ports.Principal, sub subscription.Subscription, cursors []ports.DeliveryCursor) (made subscription.Subscription, created bool, err error) {
	record, err := s.config.Decisions.Subscription(ctx, sub.TenantID, sub.ID)
	if err != nil {
		return sub, false, err
	}
	if record.Version > 0 && !record.Deleted { // another request is creating it, or was cut off
		if _, _, err := requireSameDefinition(record.Subscription, sub); err != nil {
			return sub, false, err
		}
		made, _, err := s.insert(ctx, record.Subscription, cursors, 0)
		return made, false, err
	}
	all, err := s.config.Store.Subscriptions(ctx, sub.TenantID)
	if err != nil {
		return sub, false, err
	}
	if len(all) >= s.config.MaxPerTenant {
		return sub, false, subscription.LimitReached(s.config.MaxPerTenant)
	}
	d := ports.SubscriptionDecision{Action: ports.SubscriptionCreated, Subscription: sub, Before: record.Version, By: p}
	if err := s.config.Decisions.Decide(ctx, d); err != nil {
		if fault.CodeOf(err) != "subscription.changed" {
			return sub, false, err
		}
		return s.create(ctx, p, sub, cursors) // another request has created or deleted it in between
	}
	made, created, err = s.insert(ctx, sub, cursors, s.config.MaxPerTenant)
	if err != nil {
		if fault.CodeOf(err) != "subscription.too_many" {
			return sub, false, err
		}
		d.Action, d.Before = ports.SubscriptionDeleted, record.Version+1 // others were faster
		return sub, false, errors.Join(err, s.config.Decisions.Decide(ctx, d))
	}
	if !created && made.UID != sub.UID {
		return requireSameDefinition(made, sub)
	}
	return made, true, nil
}

// covers reports whether events of the log may match: the administrative log only of a filter that
// names it.
func covers(f *subscription.Filter, le ports.LegalEntity) bool {
	return f.Covers(le.Code) && (!le.IsAdministrative() || len(f.LegalEntities) > 0)
}

func requireSameDefinition(stored, wanted subscription.Subscription) (subscription.Subscription, bool, error) {
	if stored.Owner != wanted.Owner || !stored.SameDefinition(&wanted) {
		return wanted, false, fault.New(fault.Conflict, "subscription.exists", "this id is taken in the tenant; if GET /api/subscriptions/{id} shows it to you, change its settings, and else choose another id").WithField("/id")
	}
	return stored, false, nil
}

// List returns the subscriptions that the caller may manage, by id.
func (s *Service) List(ctx context.Context, c Caller) ([]subscription.Subscription, error) {
	all, err := s.config.Store.Subscriptions(ctx, c.Principal.TenantID)
	if err != nil {
		return nil, err
	}
	return s.visible(ctx, c, all...)
}

// Change replaces the settings, except the start. partition_by cannot change while messages
// are open or parked, because their keys follow the old one. Faults:
// subscription.affects_others, subscription.settings_in_use, subscription.changed,
// subscription.unrecorded, those of Subscription.Check.
func (s *Service) Change(ctx context.Context, c Caller, id string, settings subscription.Settings) (subscription.Subscription, error) {
	sub, record, err := s.recorded(ctx, c, id, s.findWhole)
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
	return s.decide(ctx, c, ports.SubscriptionChanged, sub, record, nil)
}

// requireEmpty refuses while messages are open or parked, because their keys were computed
// with the old partition_by. It locks each legal entity, so it waits for a poll there
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

// Pause stops deliveries; messages in flight may still be answered. Pausing again changes
// nothing.
func (s *Service) Pause(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, record, err := s.recorded(ctx, c, id, s.findWhole)
	if err != nil || sub.Status == subscription.Paused {
		return sub, err
	}
	sub.Status = subscription.Paused
	return s.decide(ctx, c, ports.SubscriptionPaused, sub, record, nil)
}

// Resume resumes deliveries after a pause or after the breaker opened, and resets the count of
// failures.
func (s *Service) Resume(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, record, err := s.recorded(ctx, c, id, s.findWhole)
	if err != nil || sub.Status == subscription.Active {
		return sub, err
	}
	sub.Status, sub.Failures = subscription.Active, 0
	return s.decide(ctx, c, ports.SubscriptionResumed, sub, record, nil)
}

// Delete removes a subscription with its open and parked messages. The record of decisions
// about dead letters stays.
func (s *Service) Delete(ctx context.Context, c Caller, id string) error {
	record, err := s.config.Decisions.Subscription(ctx, c.Principal.TenantID, id)
	if err != nil {
		return err
	}
	sub, err := s.findWhole(ctx, c, id)
	if err != nil {
		return err
	}
	if record.Version > 0 && !record.Deleted {
		sub.Revision++
		d := ports.SubscriptionDecision{Action: ports.SubscriptionDeleted, Subscription: sub, Before: record.Version, By: c.Principal}
		if err := s.config.Decisions.Decide(ctx, d); err != nil {
			return err
		}
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
