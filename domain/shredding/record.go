package shredding

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// The stream types of what the administrative log of a tenant records about personal data. The
// id of a stream is that of the request or hold, or the number of the epoch.
const (
	ErasureStream   = "backbone.erasure"
	RedactionStream = "backbone.redaction"
	HoldStream      = "backbone.hold"
	EpochStream     = "backbone.key_epoch"
)

// The event types of legal holds.
const (
	HoldPlaced = HoldStream + ".placed"
	HoldLifted = HoldStream + ".lifted"
)

// ErasureRecord is the data of an event about an erasure request: the request as it is from
// this event on. Row binds all of its stored row.
type ErasureRecord struct {
	RequestID     event.ID     `json:"request_id"`
	Revision      int          `json:"revision"`
	State         ErasureState `json:"state"`
	Subject       string       `json:"subject"`
	LegalEntities []string     `json:"legal_entities"` // codes
	Basis         Basis        `json:"basis"`
	RequestedBy   string       `json:"requested_by"` // person ids
	ApprovedBy    string       `json:"approved_by,omitempty"`
	EndedBy       string       `json:"ended_by,omitempty"`
	Scope         string       `json:"scope,omitempty"` // that an approval is bound to, in hex
	Receipt       uint64       `json:"receipt_number,omitempty"`
	ReceiptSHA256 string       `json:"receipt_sha256,omitempty"`
	Row           string       `json:"row_sha256"`
}

// RedactionRecord is the data of an event about a redaction request, like ErasureRecord.
type RedactionRecord struct {
	RequestID   event.ID       `json:"request_id"`
	Revision    int            `json:"revision"`
	State       RedactionState `json:"state"`
	LegalEntity string         `json:"legal_entity"`
	EventID     event.ID       `json:"event_id"`
	Sequence    event.Sequence `json:"sequence"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by,omitempty"`
	EndedBy     string         `json:"ended_by,omitempty"`
	Scope       string         `json:"scope,omitempty"`
	Row         string         `json:"row_sha256"`
}

// EventType is the type of the event that records a move to the state. The steps of the worker
// between the destruction and the certificate share one type.
func (s ErasureState) EventType() string {
	switch s {
	case ErasureDestroyed:
		return ErasureStream + ".carried_out"
	case ErasureReceipted, ErasureAnnounced, ErasureEvicted, ErasureRebuilt, ErasureVerified:
		return ErasureStream + ".progressed"
	case ErasureCompleted:
		return ErasureStream + ".certified"
	default:
		return ErasureStream + "." + string(s)
	}
}

// EventType is like that of ErasureState. The first preview is the request.
func (s RedactionState) EventType() string {
	switch s {
	case RedactionPreviewed:
		return RedactionStream + ".requested"
	case RedactionRedacted:
		return RedactionStream + ".carried_out"
	case RedactionAnnounced, RedactionRebuilt:
		return RedactionStream + ".progressed"
	case RedactionCompleted:
		return RedactionStream + ".certified"
	default:
		return RedactionStream + "." + string(s)
	}
}

// HoldRecord is the data of HoldPlaced.
type HoldRecord struct {
	HoldID      event.ID    `json:"hold_id"`
	Revision    int         `json:"revision"` // 1
	Subject     string      `json:"subject"`
	LegalEntity string      `json:"legal_entity,omitempty"` // code; "": all of the tenant
	Reason      string      `json:"reason"`
	PlacedBy    string      `json:"placed_by"`
	PlacedAt    time.Time   `json:"placed_at"`
	Until       *event.Date `json:"until,omitempty"`
}

// HoldLiftedRecord is the data of HoldLifted.
type HoldLiftedRecord struct {
	HoldID   event.ID  `json:"hold_id"`
	Revision int       `json:"revision"` // 2
	LiftedBy string    `json:"lifted_by"`
	LiftedAt time.Time `json:"lifted_at"`
}

// EpochRecord is the data of an event about an epoch of a tenant's keys.
type EpochRecord struct {
	Epoch    uint32  `json:"epoch"`
	Revision int     `json:"revision"` // raised by each change of the state
	State    string  `json:"state"`
	KeyID    string  `json:"key_id"`
	Covers   *uint64 `json:"covers_receipts_to,omitempty"` // number of the newest receipt when the epoch began
}
