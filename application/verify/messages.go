package verify

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// messagesFormer is the event with the digest of what an earlier release stored.
const messagesFormer = "backbone.subscription_message.former"

// formerDecisions compares the decisions about messages of an earlier release with their digest.
type formerDecisions struct {
	Decisions int    `json:"decisions"`
	SHA256    string `json:"sha256"`

	sequence event.Sequence
}

func (f *formerDecisions) note(c *chain, e *event.Recorded) {
	if e.Type != messagesFormer {
		return
	}
	if f.sequence = e.Sequence; !decodeData(e, f) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of former decisions cannot be read")
	}
}

func (f *formerDecisions) compare(ctx context.Context, c *chain, store Store) error {
	count, sum, err := ports.DigestFormerDecisions(ctx, store, c.entity.TenantID)
	if err != nil {
		return err
	}
	if count != f.Decisions || count > 0 && hex.EncodeToString(sum[:]) != f.SHA256 {
		c.add(SubscriptionMismatch, f.sequence, fmt.Sprintf("%d decisions about messages of an earlier release are not the %d that were recorded", count, f.Decisions))
	}
	return nil
}
