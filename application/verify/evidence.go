package verify

import (
	"context"
	"encoding/hex"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// evidenceFormat names the format of the evidence of an event. docs/hashes.md describes it.
const evidenceFormat = "backbone/event-evidence/v1"

// evidence is an event with all that its checksum covers, for readers without the log. The payload is absent if it is
// not the one that was hashed, as after a redaction.
type evidence struct {
	Format    string            `json:"format"`
	Partition event.PartitionID `json:"partition_id"`
	Previous  string            `json:"previous_checksum"`
	Event     eventLine         `json:"event"` // as in an export file
}

// EvidenceOf writes an event with all that its checksum covers, sealed values as they are sealed.
// OpenEvidence computes the checksum again. Fault verify.evidence_unreadable (FailedPrecondition) if the event or the one
// before cannot be read.
func EvidenceOf(ctx context.Context, store ports.ChainReader, head ports.Head, e ports.EventPosition) ([]byte, error) {
	first := max(e.Sequence, 2) - 2
	events, err := store.ChainPage(ctx, e.Partition, first, int(e.Sequence-first))
	if err != nil {
		return nil, err
	}
	if len(events) < int(e.Sequence-first) || events[len(events)-1].Sequence != e.Sequence {
		return nil, fault.New(fault.FailedPrecondition, "verify.evidence_unreadable", "event %d or the one before is missing; run `backbone verify`", e.Sequence)
	}
	previous := head.Genesis
	if len(events) > 1 {
		previous = events[0].Checksum
	}
	found := events[len(events)-1]
	if event.HashPayload(found.Salt, found.Payload) != found.PayloadHash {
		found.Payload = nil
	}
	text, err := encodeLine(evidence{evidenceFormat, e.Partition, hex.EncodeToString(previous[:]), lineOf(&found, nil)})
	if err != nil {
		return nil, err
	}
	return text[:len(text)-1], nil
}

// OpenEvidence returns the event of EvidenceOf, whose checksum and payload it has checked against the rest. The
// payload is nil if it was redacted, or left out: the checksum covers its hash only. Fault verify.evidence_invalid (Invalid) for other evidence.
func OpenEvidence(text []byte) (event.Recorded, error) {
	invalid := fault.New(fault.Invalid, "verify.evidence_invalid", "the event in the proof is not the one that was recorded: its checksum or payload was changed")
	var v evidence
	var previous event.Hash
	if !decodeLine(text, &v) || v.Format != evidenceFormat || !unhex(previous[:], v.Previous) {
		return event.Recorded{}, invalid
	}
	e, _, ok := v.Event.recorded(v.Partition)
	if !ok || e.Payload != nil && event.HashPayload(e.Salt, e.Payload) != e.PayloadHash {
		return event.Recorded{}, invalid
	}
	if sum, _ := e.ChainChecksum(previous, nil); sum != e.Checksum {
		return event.Recorded{}, invalid
	}
	return e, nil
}
