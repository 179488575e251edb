package memory

import (
	"context"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// AllHolds implements ports.KeyStoreAudit.
func (k *ErasureRegister) AllHolds(_ context.Context, tenantID string) ([]ports.LegalHold, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return slices.DeleteFunc(slices.Clone(k.holds), func(h ports.LegalHold) bool { return h.TenantID != tenantID }), nil
}

// ErasureRows implements ports.KeyStoreAudit.
func (k *ErasureRegister) ErasureRows(ctx context.Context, tenantID string) ([]ports.ErasureRow, error) {
	requests, err := k.Erasures(ctx, tenantID, nil, 0)
	out := make([]ports.ErasureRow, len(requests))
	for i := range requests {
		out[i] = ports.ErasureRow{ID: requests[i].ID, Revision: requests[i].Revision}
		out[i].Digest, _ = requests[i].Digest() // its members can always be encoded
	}
	return out, err
}

// ErasureJournal implements ports.KeyStoreAudit.
func (k *ErasureRegister) ErasureJournal(_ context.Context, tenantID string) ([]ports.ErasureJournalEntry, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	var out []ports.ErasureJournalEntry
	for _, e := range k.requests {
		if e.TenantID != tenantID {
			continue
		}
		for i, s := range e.steps {
			entry := ports.ErasureJournalEntry{RequestID: e.ID, Revision: i + 1, State: s.State, Person: s.person}
			if s.State == shredding.ErasureApproved {
				entry.Requester, entry.Approver, entry.Scope, entry.StoredAt = e.RequestedBy, s.person, s.scope, s.At
			}
			out = append(out, entry)
		}
	}
	slices.SortStableFunc(out, func(a, b ports.ErasureJournalEntry) int { return a.RequestID.Compare(b.RequestID) })
	return out, nil
}

// Contradictions implements ports.KeyStoreAudit. Of what a superuser of a database can do, a
// store in memory can only put back keys and remove fences.
func (k *ErasureRegister) Contradictions(_ context.Context, tenantID string, partitions []event.PartitionID) (out []ports.Contradiction, _ error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, e := range k.requests {
		if e.TenantID != tenantID || !e.State.Fences() {
			continue
		}
		for _, id := range e.keys() {
			if f := k.fences[id]; f == nil || f.lifted {
				out = append(out, ports.Contradiction{Problem: ports.FenceMissing, About: e.ID.String()})
			}
		}
	}
	for id, key := range k.subjects {
		if slices.Contains(partitions, id.Partition) && key.State == shredding.KeyDestroyed && (k.fences[id] == nil || k.fences[id].lifted) {
			out = append(out, ports.Contradiction{Problem: ports.DestroyedUnexplained, About: key.Reference})
		}
	}
	for _, r := range k.receipts {
		if r.TenantID == tenantID && r.destruction.Generation > k.generation {
			out = append(out, ports.Contradiction{Problem: ports.GenerationSetBack, About: strconv.FormatUint(r.Number, 10)})
		}
	}
	return out, nil
}
