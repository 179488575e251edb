package ports

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

// Announcer appends the events that erasures and redactions leave in a log.
type Announcer interface {
	// Announce appends the draft as a system actor. If the log has the idempotency key, it
	// does nothing.
	Announce(ctx context.Context, a Announcement) error
}

// Announcement is the event of an erasure or redaction in the log of one partition.
type Announcement struct {
	LegalEntity    LegalEntity
	Draft          event.Draft
	IdempotencyKey string
	Fingerprint    event.Hash
}

// ChainVerifier verifies logs.
type ChainVerifier interface {
	VerifyChain(ctx context.Context, le LegalEntity) (ChainVerdict, error)
}

// ChainVerdict is the result of verifying a partition.
type ChainVerdict struct {
	LegalEntity string         `json:"legal_entity"`
	Events      uint64         `json:"events"`
	Head        event.Sequence `json:"head_sequence"`
	Checksum    string         `json:"head_checksum"` // hex; "" without events
	Findings    int            `json:"findings"`      // 0: sound
}
