package verify

import (
	"cmp"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// FindingKind names a kind of damage.
type FindingKind string

// The findings.
const (
	GenesisMismatch  FindingKind = "genesis_mismatch"  // the partition's genesis checksum is not that of its log name and partition id
	SequenceGap      FindingKind = "sequence_gap"      // an event is missing or was inserted
	PayloadMismatch  FindingKind = "payload_mismatch"  // the payload's hash is not that of the skeleton or of an authorised redaction
	PayloadMissing   FindingKind = "payload_missing"   // there is no payload
	PayloadExtra     FindingKind = "payload_extra"     // a payload is stored that no event has
	ChecksumMismatch FindingKind = "checksum_mismatch" // the skeleton, or one before it, was changed
	TimeBackwards    FindingKind = "time_backwards"    // recorded_at is before that of the event before
	ForeignScope     FindingKind = "foreign_scope"     // the event names another legal entity than its partition's
	EventUnreadable  FindingKind = "event_unreadable"  // a column holds a value that no append writes
	HiddenEvents     FindingKind = "hidden_events"     // reading in order does not return all stored events

	RedactionUnannounced FindingKind = "redaction_unannounced" // a record of a redaction without its event
	RedactionUnrecorded  FindingKind = "redaction_unrecorded"  // an event of a redaction without its record
	RedactionMismatch    FindingKind = "redaction_mismatch"    // record, event, payload and mark of a redaction do not agree
	RedactionUnapproved  FindingKind = "redaction_unapproved"  // a redaction without the request of one person and the approval of another

	AnnouncementUnreadable FindingKind = "announcement_unreadable" // an event that rows or payloads are compared with cannot be read

	SealedMalformed    FindingKind = "sealed_malformed"     // a sealed value is malformed
	PersonalRowMissing FindingKind = "personal_row_missing" // an event with sealed values that an erasure would not find
	PersonalRowExtra   FindingKind = "personal_row_extra"   // a row that names a person without sealed values there

	KeyMismatch         FindingKind = "key_mismatch"          // the key index does not hold exactly the entities and tags of an event
	BusinessKeyMismatch FindingKind = "business_key_mismatch" // the claimed business keys are not exactly those of the events

	NumberMismatch  FindingKind = "number_mismatch"  // a series of numbers does not continue the numbers of the events
	RequestMismatch FindingKind = "request_mismatch" // the row by which a repeated request is answered is missing, or not as it was written

	CheckpointMismatch FindingKind = "checkpoint_mismatch" // a projection or publisher has read beyond the end, so it would skip events

	ArchiveMismatch FindingKind = "archive_mismatch" // a segment of the archive is not the one of its manifest
	ArchiveDamaged  FindingKind = "archive_damaged"  // a file of the archive is missing or was changed

	PaperMismatch FindingKind = "paper_mismatch" // the sealed bytes of a paper are missing or were changed

	StreamMismatch FindingKind = "stream_mismatch" // the row of a stream does not agree with its events
	IntentMismatch FindingKind = "intent_mismatch" // the row of an intent is missing, or not as it was written

	ErasureMismatch  FindingKind = "erasure_mismatch"   // a request for erasure, its approval, step or receipt is not as the administrative log has it
	HoldMismatch     FindingKind = "hold_mismatch"      // a legal hold is not as it was placed or lifted
	KeyEpochMismatch FindingKind = "key_epoch_mismatch" // an epoch of a tenant's keys is not in the state that was recorded
	KeyStoreMismatch FindingKind = "key_store_mismatch" // a fence or key contradicts the requests and receipts
	KeyUnusable      FindingKind = "key_unusable"       // a key of a person does not open, or is not the one that sealed its values
	AccessMismatch   FindingKind = "access_mismatch"    // the record of reads is not as the administrative log recorded it

	HeadMismatch        FindingKind = "head_mismatch"         // the chain does not pass through the exported head
	HeadBeyondEnd       FindingKind = "head_beyond_end"       // the log is shorter than it was
	LegalEntityMissing  FindingKind = "legal_entity_missing"  // a legal entity of the exported heads is missing
	LegalEntityMismatch FindingKind = "legal_entity_mismatch" // a legal entity is not as the administrative log created it
	LogNameChanged      FindingKind = "log_name_changed"      // the exported heads are of a log of another name

	WebhookMismatch      FindingKind = "webhook_mismatch"      // an endpoint of a webhook is not as the administrative log recorded it
	ProjectionMismatch   FindingKind = "projection_mismatch"   // a custom projection is not as the administrative log recorded it
	SubscriptionMismatch FindingKind = "subscription_mismatch" // a subscription is not as the administrative log recorded it

	RegistrationMismatch FindingKind = "registration_mismatch" // a version of an event type is not as its change registered it

	GlobalLogMismatch FindingKind = "global_log_mismatch" // the global log is not that of the logs
	GlobalLogForked   FindingKind = "global_log_forked"   // the global log does not begin with that of a checkpoint
	GlobalLogCut      FindingKind = "global_log_cut"      // the global log is shorter than it was

	ExportMalformed FindingKind = "export_malformed" // a line of the export file is not as it was written
	ExportTruncated FindingKind = "export_truncated" // the export file has no trailer, or one that does not match
	ExportDigest    FindingKind = "export_digest"    // the export file is not the one that was written
)

// Finding is one damaged place.
type Finding struct {
	Kind     FindingKind    `json:"kind"`
	Sequence event.Sequence `json:"sequence"`
	EventID  string         `json:"event_id,omitempty"`
	Detail   string         `json:"detail"`
}

// Redaction is an authorised redaction, whose record, event and payload agree.
type Redaction struct {
	ID          string         `json:"redaction_id"`
	Sequence    event.Sequence `json:"sequence"` // of the event that was redacted
	EventID     string         `json:"event_id"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by"`
	RedactedAt  time.Time      `json:"redacted_at"`
	AnnouncedIn event.Sequence `json:"announced_in"` // sequence of its event
}

// Erasure is an erasure that was announced in the log.
type Erasure struct {
	Sequence      event.Sequence `json:"sequence"`
	RequestID     string         `json:"request_id"`
	Subject       string         `json:"subject"`
	Classes       []string       `json:"classes"`
	ReceiptNumber uint64         `json:"receipt_number"`
	ReceiptSHA256 string         `json:"receipt_sha256"`
}

// EntityReport is the result of verifying one legal entity.
type EntityReport struct {
	Tenant      string            `json:"tenant_id"`
	LegalEntity string            `json:"legal_entity"`
	Partition   event.PartitionID `json:"partition_id"`
	Events      uint64            `json:"events"`
	Head        event.Sequence    `json:"head_sequence"`
	Checksum    string            `json:"head_checksum"`
	Reference   *event.Sequence   `json:"reference_sequence,omitempty"` // of the earlier head that it was compared with
	Sealed      uint64            `json:"sealed_values"`                // checked for their form
	Archived    uint64            `json:"archived_payloads"`            // read from the archive
	// UnboundIntents counts rows of intents from before events bound them. Nodes write no such
	// row, so a number that grew has counted an invented one.
	UnboundIntents uint64 `json:"unbound_intents"`
	// UnboundNumbers counts numbers of series from before events said which they took. It never
	// grows.
	UnboundNumbers uint64 `json:"unbound_numbers"`
	// UnboundRequests counts rows of idempotency keys from before events bound them. They expire.
	UnboundRequests uint64      `json:"unbound_requests"`
	Policy          *Policy     `json:"policy,omitempty"` // of an administrative log; nil: none was recorded, or asked for
	Redactions      []Redaction `json:"redactions"`
	Erasures        []Erasure   `json:"erasures"`
	FindingList
}

// FindingList lists the findings of a report, at most MaxFindings.
type FindingList struct {
	Findings   []Finding `json:"findings"`
	Suppressed int       `json:"suppressed_findings"` // the number of further findings
}

func newReport(le ports.LegalEntity) EntityReport {
	return EntityReport{
		Tenant: le.TenantID, LegalEntity: le.Code, Partition: le.Partition,
		Redactions: []Redaction{}, Erasures: []Erasure{}, FindingList: FindingList{Findings: []Finding{}},
	}
}

// Sound reports whether there are no findings.
func (l FindingList) Sound() bool { return len(l.Findings) == 0 }

// MaxFindings bounds the findings that a report lists; it only counts further ones.
const MaxFindings = 20

// sort sorts the findings by sequence.
func (r *EntityReport) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

func (l *FindingList) add(f Finding) {
	if len(l.Findings) == MaxFindings {
		l.Suppressed++
		return
	}
	l.Findings = append(l.Findings, f)
}
