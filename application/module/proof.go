package module

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Candidate is a version of an event type to be registered, with the steps that would
// convert events of earlier versions to it.
type Candidate struct {
	TenantID string // whose events are read
	Type     string
	Version  uint32
	// Digest covers everything that decides how earlier events are converted.
	Digest   [sha256.Size]byte
	Steps    func(from uint32) []Step
	Examples map[uint32][]json.RawMessage // of the earlier versions
}

// ProofRequest asks whether the stored events can be converted to a candidate.
type ProofRequest struct {
	Token       string                       // of the previous report; "" starts a proof
	Visible     map[event.PartitionID]string // legal entities whose events may be named, by code
	MaxDuration time.Duration                // bound of one call
}

// MaxFailures is the most failures that a report lists.
const MaxFailures = 20

// ProofReport is the progress of a proof.
type ProofReport struct {
	Examples       int `json:"examples"`       // of earlier versions
	Events         int `json:"events_scanned"` // of earlier versions, in all calls
	Partitions     int `json:"partitions"`     // legal entities of the tenant
	PartitionsDone int `json:"partitions_done"`
	// Failures are those that the caller may see, at most MaxFailures; HiddenFailures counts
	// those of this call that the caller may not see.
	Failures       []ProofFailure `json:"failures"`
	HiddenFailures int            `json:"failures_elsewhere,omitempty"`
	Failed         bool           `json:"failed"`   // in this call or an earlier one
	Complete       bool           `json:"complete"` // every example and event was read
	Cursor         string         `json:"next_cursor,omitempty"`
	// Proof is present once every event was read and none failed. It covers the events
	// stored until then.
	Proof string `json:"proof,omitempty"`
}

// ProofFailure identifies an event or example that cannot be converted to a candidate. It
// contains none of its values.
type ProofFailure struct {
	EventID       string `json:"event_id,omitempty"`
	LegalEntity   string `json:"legal_entity,omitempty"`
	Sequence      string `json:"sequence,omitempty"`
	Example       *int   `json:"example,omitempty"` // index among the examples of the version
	SchemaVersion uint32 `json:"schema_version"`
	Code          string `json:"code"`
	Pointer       string `json:"pointer"` // in the data that the upcasters make
}

// Prover proves candidates.
type Prover interface {
	// Prove reads examples and stored events. Faults cursor.malformed and
	// cursor.foreign for a token that belongs to another candidate.
	Prove(ctx context.Context, c Candidate, r ProofRequest) (ProofReport, error)
}
