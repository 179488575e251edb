package verify

import (
	"cmp"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// FindingKind says what does not fit.
type FindingKind string

// The findings.
const (
	GenesisMismatch  FindingKind = "genesis_mismatch"  // the partition's first link is not what log name and partition id give
	SequenceGap      FindingKind = "sequence_gap"      // an event is missing or was put in
	PayloadMismatch  FindingKind = "payload_mismatch"  // the payload is not what the skeleton or an authorised redaction vouches for
	PayloadMissing   FindingKind = "payload_missing"   // there is no payload
	ChecksumMismatch FindingKind = "checksum_mismatch" // the skeleton, or one before it, was changed
	TimeBackwards    FindingKind = "time_backwards"    // recorded_at goes back
	ForeignScope     FindingKind = "foreign_scope"     // the event names another legal entity than its partition's
	EventUnreadable  FindingKind = "event_unreadable"  // a column holds what no append writes
	HiddenEvents     FindingKind = "hidden_events"     // there are events that reading in order does not come across

	RedactionUnannounced FindingKind = "redaction_unannounced" // a record of a redaction without its event
	RedactionUnrecorded  FindingKind = "redaction_unrecorded"  // an event of a redaction without its record
	RedactionMismatch    FindingKind = "redaction_mismatch"    // record, event and payload of a redaction do not agree

	AnnouncementUnreadable FindingKind = "announcement_unreadable" // an event of a redaction or erasure does not say what it must

	SealedMalformed    FindingKind = "sealed_malformed"     // a sealed value has not the form of one
	PersonalRowMissing FindingKind = "personal_row_missing" // an event with sealed values that an erasure would not find
	PersonalRowExtra   FindingKind = "personal_row_extra"   // a row that names a person without sealed values there

	StreamMismatch FindingKind = "stream_mismatch" // what is kept of a stream does not agree with its events

	HeadMismatch       FindingKind = "head_mismatch"        // the chain does not pass through the exported head
	HeadBeyondEnd      FindingKind = "head_beyond_end"      // the log is shorter than it was
	LegalEntityMissing FindingKind = "legal_entity_missing" // the exported heads have a legal entity that is not there
	LogNameChanged     FindingKind = "log_name_changed"     // the exported heads are of a log of another name

	RegistrationMismatch FindingKind = "registration_mismatch" // a version of an event type is not what its change vouches for

	ExportMalformed FindingKind = "export_malformed" // a line of the export file is not as it was written
	ExportTruncated FindingKind = "export_truncated" // the export file has no end, or an end that does not fit
	ExportDigest    FindingKind = "export_digest"    // the export file is not the one that was written
)

// Finding is one place that does not fit.
type Finding struct {
	Kind     FindingKind    `json:"kind"`
	Sequence event.Sequence `json:"sequence"`
	EventID  string         `json:"event_id,omitempty"`
	Detail   string         `json:"detail"`
}

// Redaction is an authorised redaction: record, event and payload agree.
type Redaction struct {
	ID          string         `json:"redaction_id"`
	Sequence    event.Sequence `json:"sequence"` // of the event that was redacted
	EventID     string         `json:"event_id"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by"`
	RedactedAt  time.Time      `json:"redacted_at"`
	AnnouncedIn event.Sequence `json:"announced_in"` // sequence of the event that says so
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

// EntityReport is the verdict on one legal entity.
type EntityReport struct {
	Tenant      string            `json:"tenant_id"`
	LegalEntity string            `json:"legal_entity"`
	Partition   event.PartitionID `json:"partition_id"`
	Events      uint64            `json:"events"`
	Head        event.Sequence    `json:"head_sequence"`
	Checksum    string            `json:"head_checksum"`
	Reference   *event.Sequence   `json:"reference_sequence,omitempty"` // of the earlier head that it was compared with
	Sealed      uint64            `json:"sealed_values"`                // checked for their form
	Redactions  []Redaction       `json:"redactions"`
	Erasures    []Erasure         `json:"erasures"`
	Findings    []Finding         `json:"findings"`
	Suppressed  int               `json:"suppressed_findings"` // beyond MaxFindings
}

func newReport(le ports.LegalEntity) EntityReport {
	return EntityReport{
		Tenant: le.TenantID, LegalEntity: le.Code, Partition: le.Partition,
		Redactions: []Redaction{}, Erasures: []Erasure{}, Findings: []Finding{},
	}
}

// Sound reports whether nothing was found.
func (r EntityReport) Sound() bool { return len(r.Findings) == 0 }

// MaxFindings bounds the findings listed per legal entity; the rest is counted.
const MaxFindings = 20

// sort puts the findings in the order of the log.
func (r *EntityReport) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

func (r *EntityReport) add(f Finding) {
	if len(r.Findings) == MaxFindings {
		r.Suppressed++
		return
	}
	r.Findings = append(r.Findings, f)
}
