package ports

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// Subscriptions stores the definitions of persistent subscriptions. Callers name one by its
// tenant and id; the UID is the store's own name of it, which a subscription that is created again
// under the same id does not share.
type Subscriptions interface {
	// CreateSubscription stores a definition with its first cursors, all or nothing. An
	// id that the tenant has already changes nothing: the stored definition is returned with
	// created false, whatever the new one says and also at the limit. A tenant never gets more
	// than maxPerTenant (0: no limit), also under concurrent calls: fault subscription.too_many.
	CreateSubscription(ctx context.Context, s subscription.Subscription, cursors []DeliveryCursor, maxPerTenant int) (stored subscription.Subscription, created bool, err error)
	// Subscription returns fault subscription.not_found if the tenant has none of that id.
	Subscription(ctx context.Context, tenantID, id string) (subscription.Subscription, error)
	// Subscriptions lists those of a tenant by id; tenant "" lists all.
	Subscriptions(ctx context.Context, tenantID string) ([]subscription.Subscription, error)
	// ChangeSubscription replaces filter, settings, status and failures of the
	// subscription with this UID if its revision is the one before s.Revision; else fault
	// subscription.changed (Conflict).
	ChangeSubscription(ctx context.Context, s subscription.Subscription) error
	// DeleteSubscription removes a subscription with its cursors and messages. Decisions about
	// its parked messages stay. Deleting again changes nothing.
	DeleteSubscription(ctx context.Context, uid event.ID) error
}

// SubscriptionAction says what a person decided about a subscription.
type SubscriptionAction string

// The actions.
const (
	SubscriptionCreated SubscriptionAction = "created"
	SubscriptionChanged SubscriptionAction = "changed"
	SubscriptionPaused  SubscriptionAction = "paused"
	SubscriptionResumed SubscriptionAction = "resumed"
	SubscriptionReset   SubscriptionAction = "reset"
	SubscriptionDeleted SubscriptionAction = "deleted"
)

// SubscriptionRecord is what the administrative log has of a subscription id.
type SubscriptionRecord struct {
	subscription.Subscription               // as it was recorded last
	Version                   event.Version // of its stream; 0: nothing was recorded
	Deleted                   bool
}

// SubscriptionDecision is a decision of a person about a subscription.
type SubscriptionDecision struct {
	Action       SubscriptionAction
	Subscription subscription.Subscription            // as it is from now on
	Positions    map[event.PartitionID]event.Sequence // of a reset: the last sequence that is not delivered again
	Before       event.Version                        // SubscriptionRecord.Version when the decision was made
	By           Principal                            // the zero value: this server
}

// SubscriptionDecisions records the decisions about subscriptions in the administrative log.
type SubscriptionDecisions interface {
	// Subscription returns the newest record of an id.
	Subscription(ctx context.Context, tenantID, id string) (SubscriptionRecord, error)
	// Subscriptions returns the newest record of every id, also of deleted ones.
	Subscriptions(ctx context.Context, tenantID string) ([]SubscriptionRecord, error)
	// Decide records a decision before its row is written. Fault subscription.changed if
	// another decision came after d.Before.
	Decide(ctx context.Context, d SubscriptionDecision) error
	// DecideMessages records a decision about messages before it has an effect.
	DecideMessages(ctx context.Context, d MessageDecision) error
	// MessageDecisions lists the newest decisions in the partitions given first. They outlive
	// their subscription.
	MessageDecisions(ctx context.Context, tenantID, id string, partitions []event.PartitionID, limit int) ([]ParkedDecision, error)
}

// MessageDecision is the decision of a person about parked messages of one partition, or of a
// subscriber about messages that it skips.
type MessageDecision struct {
	Subscription *subscription.Subscription
	Partition    event.PartitionID
	Action       string // "discard", "replay", "skip"
	Reason       string // no personal data
	By           Principal
	Messages     []subscription.Message // at least one
}

// DeliveryCursor is the position of a subscription in one partition. A message is open from when
// its event was read until it is done: see subscription.State. A parked message, which is a dead
// letter, is counted as open nowhere in this file.
type DeliveryCursor struct {
	Partition event.PartitionID
	// ReadThrough is the last sequence that was read: each event up to it is done, excluded by
	// the filter, or a message.
	ReadThrough event.Sequence
	// Checkpoint is the last sequence up to which no message is open, as it was last written.
	Checkpoint event.Sequence
	Pending    int // messages that were acknowledged or skipped since the checkpoint was written
	Parked     int // parked messages; the store counts them, Save does not set it
	Counts     subscription.Counts
	UpdatedAt  time.Time
}

// DeliveryBacklog is a cursor with its open messages.
type DeliveryBacklog struct {
	DeliveryCursor
	FirstOpen event.Sequence // lowest open sequence; 0: none
	InFlight  int            // messages that a consumer has and has not answered
	Waiting   int            // all other open messages: not delivered yet, or to be tried again
	NextDue   time.Time      // when the first message becomes due or its time with a consumer ends; zero: never
}

// DeliveryState changes when a subscription's definition or one of its cursors changes. A reader
// that waits for deliveries compares it instead of reading the cursors again.
type DeliveryState struct {
	Revision   int64
	CursorHash int64 // see HashCursors
}

// HashCursors computes DeliveryState.CursorHash: the sum of when each cursor was changed, in
// microseconds since 1970, modulo 2^62. A query can compute it without reading the cursors in an
// order. These times only grow, so no later state of the cursors has the hash of an earlier one.
func HashCursors(cursors []DeliveryBacklog) (hash int64) {
	for i := range cursors {
		hash += cursors[i].UpdatedAt.UnixMicro()
	}
	return hash & (1<<62 - 1)
}

// Deliveries stores cursors and messages of subscriptions. Times are the store's, so that all
// nodes agree on when a lease ends: here, the time that a consumer has to answer a message.
type Deliveries interface {
	// AddCursors adds the cursors that are missing.
	AddCursors(ctx context.Context, uid event.ID, cursors []DeliveryCursor) error
	// Backlogs lists the cursors of a subscription by partition.
	Backlogs(ctx context.Context, uid event.ID) ([]DeliveryBacklog, error)
	// DeliveryStates returns the states of subscriptions with one query; a deleted one has none.
	DeliveryStates(ctx context.Context, uids []event.ID) (map[event.ID]DeliveryState, error)
	// RemoveOrphanedMessages removes parked messages of deleted subscriptions and returns their
	// number. Nodes of an older release leave them when they delete a subscription.
	RemoveOrphanedMessages(ctx context.Context) (removed int, err error)
	// AllBacklogs is Backlogs for all subscriptions.
	AllBacklogs(ctx context.Context) (map[event.ID][]DeliveryBacklog, error)
	// Deliver runs f while the subscription's cursor and messages in the partition are locked.
	// Other partitions and subscriptions go on; only calls of Fail and Succeed in two partitions
	// of a subscription wait for each other. Whatever f did through tx becomes visible together.
	// If f fails, nothing of it does, counted failures included, and Deliver returns ran false
	// and f's error. After a deadlock f runs again, so it keeps no results of an earlier run.
	//
	// If another caller holds the lock, Deliver waits for it, or with wait false returns ran
	// false at once and no error. Fault subscription.not_found if the subscription or its
	// cursor is gone.
	Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(ctx context.Context, tx DeliveryTx) error) (ran bool, err error)
	// Due lists the subscriptions that have a message whose lease has ended or that is due, with
	// its partition, with one query.
	Due(ctx context.Context, limit int) ([]DueDelivery, error)
	// RegisterConsumer registers a consumer for a time, in which it must poll again, and lists
	// the consumers that are registered now, by name.
	RegisterConsumer(ctx context.Context, uid event.ID, consumer string, within time.Duration) ([]string, error)
	// PartitionsWithOpen lists, ascending, the partitions in which one of the events is open,
	// among the given partitions or, for none, among all.
	PartitionsWithOpen(ctx context.Context, uid event.ID, in []event.PartitionID, events []event.ID) ([]event.PartitionID, error)
	// EventsAt reads events by sequence, ascending; those that do not exist are left out.
	EventsAt(ctx context.Context, p event.PartitionID, sequences []event.Sequence) ([]event.Recorded, error)
}

// DueDelivery names a subscription and partition with due messages.
type DueDelivery struct {
	UID       event.ID
	Partition event.PartitionID
	Expired   bool // a lease has ended
}

// DeliveryTx is a subscription in one partition, locked.
type DeliveryTx interface {
	Now() time.Time
	Status() subscription.Status
	Revision() int64 // of the definition
	Cursor() DeliveryCursor
	// Open lists the open messages, by sequence, which may be very many. The next methods list
	// parts of them.
	Open(ctx context.Context) ([]subscription.Message, error)
	// OpenByEvent lists those of the given events.
	OpenByEvent(ctx context.Context, events []event.ID) ([]subscription.Message, error)
	// Delivered lists those that were delivered and have no answer yet or will be retried.
	Delivered(ctx context.Context) ([]subscription.Message, error)
	// Waiting lists those that were not delivered yet (subscription.Waiting) and follow a
	// sequence, limit of them at most (1 or more). It leaves out the messages of a key in except
	// that follow the sequence at which the key is blocked.
	Waiting(ctx context.Context, after event.Sequence, except []subscription.BlockedKey, limit int) ([]subscription.Message, error)
	// CountWaiting counts those that were not delivered yet.
	CountWaiting(ctx context.Context) (int, error)
	// LowestOpen returns the lowest sequences of open messages, limit of them at most (1 or
	// more).
	LowestOpen(ctx context.Context, limit int) ([]event.Sequence, error)
	// ParkedKeys returns the first parked sequence of each key that has one.
	ParkedKeys(ctx context.Context, keys []subscription.Key) (map[subscription.Key]event.Sequence, error)
	// Parked lists parked messages, by sequence.
	Parked(ctx context.Context, q ParkedQuery) ([]subscription.Message, error)
	// EventsAfter reads the log, with the payloads of the given types only; none: of all. It
	// stops before the event with which the payloads would exceed bytes, but always returns
	// the first.
	EventsAfter(ctx context.Context, after event.Sequence, limit, bytes int, types []string) ([]event.Recorded, error)
	// Sizes returns the bytes of the stored payloads of events.
	Sizes(ctx context.Context, sequences []event.Sequence) (map[event.Sequence]int, error)
	// Save stores messages, removes those that are done, and moves the cursor. Only
	// parked messages that Parked has listed may change or be removed.
	Save(ctx context.Context, c DeliveryCursor, changed []subscription.Message, done []event.Sequence) error
	// Clear removes all open messages, and the parked ones after a sequence.
	Clear(ctx context.Context, parkedAfter event.Sequence) error
	// Fail adds failures to those in a row, of all partitions. When they reach the threshold (0:
	// none), the breaker opens: an active subscription gets the status subscription.Parked, and
	// the revision grows. opened reports that this happened.
	Fail(ctx context.Context, failures int, code string, threshold int) (opened bool, err error)
	// Succeed sets the failures in a row to none.
	Succeed(ctx context.Context) error
}

// ParkedQuery selects parked messages of one subscription.
type ParkedQuery struct {
	After    event.Sequence
	EventIDs []event.ID // none: all
	Code     string     // "": any
	Limit    int
}

// ParkedMessage is a dead letter of a subscription. Those of projections are DeadLetters.
type ParkedMessage struct {
	Partition event.PartitionID
	subscription.Message
}

// ParkedGroup counts dead letters with the same code.
type ParkedGroup struct {
	Code     string
	Messages int
	First    time.Time // when the first and the last one was parked
	Last     time.Time
}

// ParkedDecision is what was decided about one message, see MessageDecision.
type ParkedDecision struct {
	ID           event.ID // of the event that records it, with other messages
	TenantID     string
	Subscription string // its id; the record outlives the subscription
	Partition    event.PartitionID
	Sequence     event.Sequence
	EventID      event.ID
	Action       string // "discard", "replay", "skip"
	Actor        string // person id
	Reason       string
	Code         string // of the failure it was parked for
	At           time.Time
}

// FormerDecisions are decisions about messages that a release before the administrative log stored.
type FormerDecisions interface {
	// FormerDecisions lists a page of a tenant's, by partition, subscription and id, after one; the
	// zero value: from the first.
	FormerDecisions(ctx context.Context, tenantID string, after ParkedDecision, limit int) ([]ParkedDecision, error)
}

// formerPage is how many former decisions are read at once.
const formerPage = 1000

// DigestFormerDecisions counts a tenant's former decisions and hashes all that they say, with
// SHA-256: each text, id, number, and time in microseconds, with its length before it.
func DigestFormerDecisions(ctx context.Context, store FormerDecisions, tenantID string) (count int, sum event.Hash, err error) {
	hash := sha256.New()
	for after := (ParkedDecision{}); ; {
		page, err := store.FormerDecisions(ctx, tenantID, after, formerPage)
		if err != nil {
			return 0, sum, err
		}
		for i := range page {
			d := &page[i]
			for _, field := range []string{
				string(d.ID[:]), d.TenantID, d.Subscription, strconv.FormatUint(uint64(d.Partition), 10), strconv.FormatUint(uint64(d.Sequence), 10), string(d.EventID[:]), d.Action, d.Actor, d.Reason, d.Code,
				strconv.FormatInt(d.At.UnixMicro(), 10),
			} {
				_ = binary.Write(hash, binary.BigEndian, uint32(len(field)))
				hash.Write([]byte(field))
			}
		}
		if count += len(page); len(page) < formerPage {
			return count, event.Hash(hash.Sum(nil)), nil
		}
		after = page[len(page)-1]
	}
}

// SubscriptionDeadLetters lists parked messages.
type SubscriptionDeadLetters interface {
	// ParkedMessages lists a page, by partition and sequence, in the partitions given. It begins
	// after the message at q.After in the partition from; both are 0 for the first page.
	ParkedMessages(ctx context.Context, uid event.ID, partitions []event.PartitionID, from event.PartitionID, q ParkedQuery) ([]ParkedMessage, error)
	// ParkedGroups counts them by code.
	ParkedGroups(ctx context.Context, uid event.ID, partitions []event.PartitionID) ([]ParkedGroup, error)
	// FormerDecisionsOf lists the newest former decisions in the partitions given first.
	FormerDecisionsOf(ctx context.Context, tenantID, id string, partitions []event.PartitionID, limit int) ([]ParkedDecision, error)
}
