package module

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// KeyDigest keys a digest with the tenant's secret, so that the content cannot be found by
// trying candidates. Without Fingerprints, as in tests, it returns the digest.
func KeyDigest(ctx context.Context, f Fingerprints, tenantID string, digest event.Hash) (event.Hash, error) {
	if f == nil {
		return digest, nil
	}
	return f.Fingerprint(ctx, tenantID, digest)
}

// SetFingerprint ties a claim to the content of its request. While the tenant's secret is
// unavailable, content without personal values is tied by its plain digest.
func SetFingerprint(ctx context.Context, f Fingerprints, tenantID string, claim *ports.IdempotencyClaim, digest event.Hash, personal bool) error {
	if !personal {
		claim.Digest = digest
	}
	fingerprint, err := KeyDigest(ctx, f, tenantID, digest)
	switch {
	case err == nil:
		claim.Fingerprint = fingerprint
	case personal:
		return err
	}
	return nil
}

// ReadReceipts rebuilds the receipts of an earlier append of count events from the log.
func ReadReceipts(ctx context.Context, log ports.EventReader, p event.PartitionID, first event.Sequence, count int) ([]ports.AppendedEvent, error) {
	events, err := log.Events(ctx, ports.EventQuery{
		Partition: p, After: first - 1, Until: first + event.Sequence(count) - 1, Limit: count, WithoutData: true,
	})
	if err != nil {
		return nil, err
	}
	out := make([]ports.AppendedEvent, len(events))
	for i, e := range events {
		out[i] = ports.AppendedEvent{
			ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream, StreamVersion: e.StreamVersion, RecordedAt: e.RecordedAt, Checksum: e.Checksum,
		}
	}
	return out, nil
}
