package ports

import (
	"context"
	"iter"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// PersonalRow says that an event holds values sealed with a key of a person.
type PersonalRow struct {
	Sequence event.Sequence
	Subject  string
	KeyClass uint8
	Pointers []string // in the stored document
}

// PersonalKey is a key of a person that values of a partition are sealed with.
type PersonalKey struct {
	Subject  shredding.Subject
	KeyClass shredding.KeyClass
	First    event.Sequence // of its events; 0: only intents have values
}

// EventKey is a row of the key index.
type EventKey struct {
	Sequence   event.Sequence
	TypeNumber int32
	Key        string
}

// ClaimedKey is a business key with the event that claimed it.
type ClaimedKey struct {
	Sequence event.Sequence
	EventID  event.ID
	event.BusinessKey
}

// RequestKey is the row of an idempotency key.
type RequestKey struct {
	Key        string
	StoredHash []byte
	IntentID   event.ID
	First      event.Sequence
	EventCount int
	ExpiresAt  time.Time
	Bound      bool // its last event holds a digest of it; false: it is from before events did
}

// NumberSeries is the state of a series of numbers.
type NumberSeries struct {
	Series         string
	Next           uint64
	UnboundThrough uint64 // the last number that was taken before events said which they took
}

// DeliveryDamage is a row of a subscription's deliveries that no server writes.
type DeliveryDamage struct {
	Subscription string // id
	Sequence     event.Sequence
	Damage       string // what is wrong, after the name of the subscription
}

// LogReader is a projection, publisher or subscription that has read a partition through a sequence.
type LogReader struct {
	Name     string
	Sequence event.Sequence
}

// ChainAudit reads the rows that verification compares with the events.
type ChainAudit interface {
	RedactionReader
	// PersonalRows lists a partition's rows up to a sequence, by sequence, key class
	// and subject. It streams; the first error ends it.
	PersonalRows(ctx context.Context, p event.PartitionID, until event.Sequence) iter.Seq2[PersonalRow, error]
	// PersonalKeys lists the keys of a partition that events and intents have rows of, by person
	// and class, limit of them after one; the zero key is before all.
	PersonalKeys(ctx context.Context, p event.PartitionID, after PersonalKey, limit int) ([]PersonalKey, error)
	// EventKeys lists the rows of the key index of events from one sequence through another, in
	// no particular order: all rows from 0 through the highest, which a negative one is too. It
	// streams; the first error ends it.
	EventKeys(ctx context.Context, p event.PartitionID, from, through event.Sequence) iter.Seq2[EventKey, error]
	// BusinessKeys lists the claimed business keys as EventKeys lists the key index.
	BusinessKeys(ctx context.Context, p event.PartitionID, from, through event.Sequence) iter.Seq2[ClaimedKey, error]
	// RequestKeys lists the rows of idempotency keys, in no particular order. It streams; the
	// first error ends it.
	RequestKeys(ctx context.Context, p event.PartitionID) iter.Seq2[RequestKey, error]
	// NumberSeries lists the series of a partition.
	NumberSeries(ctx context.Context, p event.PartitionID) ([]NumberSeries, error)
	// Readers lists how far projections and publishers have read a partition.
	Readers(ctx context.Context, p event.PartitionID) ([]LogReader, error)
	// DeliveryDamage lists rows of deliveries of subscriptions in a partition that contradict each
	// other or the log, limit of them at most.
	DeliveryDamage(ctx context.Context, p event.PartitionID, limit int) ([]DeliveryDamage, error)
	// UnlistedPartitions lists the partitions with a head, events or payloads that no legal entity
	// has.
	UnlistedPartitions(ctx context.Context) ([]event.PartitionID, error)
	// CountEvents counts every stored event up to a sequence, including events whose
	// sequence no append can have assigned and no read by page returns.
	CountEvents(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error)
	// ExtraPayloads lists the sequences of payloads after the last event or before the first
	// sequence, in no particular order, at most limit of each.
	ExtraPayloads(ctx context.Context, p event.PartitionID, limit int) ([]event.Sequence, error)
	// StreamRows returns the rows of the streams that have one, in no particular order.
	StreamRows(ctx context.Context, p event.PartitionID, streams []event.StreamID) ([]StreamRow, error)
	// StreamRowsWithEnds reads a page of rows of streams, by type and id, from a stream on,
	// with the events of their streams in the same snapshot.
	StreamRowsWithEnds(ctx context.Context, p event.PartitionID, from event.StreamID, limit int) (StreamRowPage, error)
	// CountStreamRows counts the rows of streams whose First is not after a sequence.
	CountStreamRows(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error)
}

// StreamRow is the stored state of a stream beside its events.
type StreamRow struct {
	Stream      event.StreamID
	First, Last event.Sequence // of its events
	StreamStatus
}

// StreamRowPage is a page of rows of streams. It may leave out rows that have neither state
// nor metadata and agree with their events.
type StreamRowPage struct {
	Rows []StreamRowWithEnds
	Next event.StreamID // begins the next page; the zero value if nothing follows
}

// StreamRowWithEnds is a StreamRow with events of the stream. The fields of missing events
// are zero.
type StreamRowWithEnds struct {
	StreamRow
	FirstEvent, LastEvent event.Sequence
	LastEventVersion      event.Version
	LastEventType         string
	MetadataEventType     string // of the event at MetadataVersion
	ReadableEventType     string // of the event at ReadableFrom
}

// KeyStoreAudit reads the rows of the key store that verification compares with the
// administrative log of a tenant.
type KeyStoreAudit interface {
	ErasureReceipts
	// ErasureRows lists the rows of a tenant's requests, newest first.
	ErasureRows(ctx context.Context, tenantID string) ([]ErasureRow, error)
	// AllHolds lists a tenant's holds, also those that were lifted.
	AllHolds(ctx context.Context, tenantID string) ([]LegalHold, error)
	// ErasureJournal lists the steps and approvals of a tenant's requests, by request and
	// revision.
	ErasureJournal(ctx context.Context, tenantID string) ([]ErasureJournalEntry, error)
	// Contradictions lists what contradicts the tenant's requests and receipts in its partitions:
	// fences, keys, and the numbers of receipts.
	Contradictions(ctx context.Context, tenantID string, partitions []event.PartitionID) ([]Contradiction, error)
}

// ErasureRow is the row of a request for erasure.
type ErasureRow struct {
	ID       event.ID
	Revision int
	Digest   event.Hash // ErasureRequest.Digest; zero for a row that cannot be read
}

// ErasureJournalEntry is what the key store has about one revision of a request.
type ErasureJournalEntry struct {
	RequestID event.ID
	Revision  int
	State     shredding.ErasureState // that was reached; "": the step is missing
	Person    string                 // who moved it; "": the worker

	// Of the approval; "" if there is none.
	Requester, Approver string
	Scope               event.Hash
	StoredAt            time.Time // by the clock of the key store's database; the approval is valid from then on
}

// Contradiction is a row of the key store that contradicts others.
type Contradiction struct {
	Problem ContradictionKind
	About   string // names the row: id of a request, reference of a key, or number of a receipt
}

// ContradictionKind is a kind of Contradiction.
type ContradictionKind string

// The kinds.
const (
	ClassesDiffer        ContradictionKind = "classes_differ"        // the classes that a request fences are not those that were decided
	FenceMissing         ContradictionKind = "fence_missing"         // of a request that has set it
	FenceUnexplained     ContradictionKind = "fence_unexplained"     // by no request and no receipt
	KeyRowMissing        ContradictionKind = "key_row_missing"       // of a key that an erasure destroyed
	DestroyedUnexplained ContradictionKind = "destroyed_unexplained" // a key is destroyed, and no receipt names it
	KeyWithoutVersion    ContradictionKind = "key_without_version"   // a live key lacks its active version
	ForeignTenant        ContradictionKind = "foreign_tenant"        // a key in the tenant's partition is another tenant's
	VersionUnexplained   ContradictionKind = "version_unexplained"   // a version of a key is beyond the active one
	ReceiptNumber        ContradictionKind = "receipt_number"        // the receipt before it is missing
	ReceiptKeys          ContradictionKind = "receipt_keys"          // its keys are not those of its signed note
	ReceiptUnexplained   ContradictionKind = "receipt_unexplained"   // a receipt that was not exported is of no request
	ReceiptGeneration    ContradictionKind = "receipt_generation"    // its generation is before that of its request
	GenerationSetBack    ContradictionKind = "generation_set_back"   // the store's generation is before that of a receipt
)
