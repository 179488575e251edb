package conformance

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// keyAuditTests are about what verification reads.
var keyAuditTests = map[string]func(*testing.T, *keyFixture){
	"Journal": func(t *testing.T, f *keyFixture) {
		id := subjectKeyID(3, "employee:E-1", 0)
		r := f.at(t, shredding.ErasureDestroyed, id)
		got := f.journalOf(t, r.ID)
		require.Equal(t, []ports.ErasureJournalEntry{
			{RequestID: r.ID, Revision: 1, State: shredding.ErasureRequested, Person: "p-officer"},
			{RequestID: r.ID, Revision: 2, State: shredding.ErasurePreviewed},
			{RequestID: r.ID, Revision: 3, State: shredding.ErasureApproved, Person: "p-controller", Requester: "p-officer", Approver: "p-controller", Scope: scopeOfRequest},
			{RequestID: r.ID, Revision: 4, State: shredding.ErasureFenced},
			{RequestID: r.ID, Revision: 5, State: shredding.ErasureDestroyed},
		}, got)
	},
	"JournalNamesWhoEndedIt": func(t *testing.T, f *keyFixture) {
		r := f.at(t, shredding.ErasurePreviewed, subjectKeyID(3, "employee:E-1", 0))
		r.EndedBy, r.EndReason = "p-3", "a mistake"
		f.move(t, r, shredding.ErasureWithdrawn)
		got := f.journalOf(t, r.ID)
		require.Equal(t, ports.ErasureJournalEntry{RequestID: r.ID, Revision: 3, State: shredding.ErasureWithdrawn, Person: "p-3"}, got[2])
	},
	"DigestStaysTheSame": func(t *testing.T, f *keyFixture) {
		r := f.at(t, shredding.ErasureCompleted, subjectKeyID(3, "employee:E-1", 0))
		stored, err := f.eraser.Erasure(t.Context(), keyTenant, r.ID)
		require.NoError(t, err)
		want, err := r.Digest()
		require.NoError(t, err)
		got, err := stored.Digest()
		require.NoError(t, err)
		require.Equal(t, want, got)
		_, err = f.eraser.NoteErasureFailure(t.Context(), r.ID, "test.failed")
		require.NoError(t, err)
		stored, err = f.eraser.Erasure(t.Context(), keyTenant, r.ID)
		require.NoError(t, err)
		got, err = stored.Digest()
		require.NoError(t, err)
		require.Equal(t, want, got, "failed attempts are no move")
		rows, err := f.eraser.ErasureRows(t.Context(), keyTenant)
		require.NoError(t, err)
		require.Contains(t, rows, ports.ErasureRow{ID: r.ID, Revision: stored.Revision, Digest: want})
	},
	"AllHolds": func(t *testing.T, f *keyFixture) {
		id := subjectKeyID(3, "employee:E-1", 0)
		now := time.Now().UTC().Truncate(time.Microsecond)
		h := ports.LegalHold{ID: newRequest(id).ID, TenantID: keyTenant, Subject: id.Subject, Partition: id.Partition, Reason: "proceedings", PlacedBy: "p-1", PlacedAt: now}
		require.NoError(t, f.eraser.PlaceHold(t.Context(), h))
		_, err := f.eraser.ReleaseHold(t.Context(), keyTenant, h.ID, "p-2", now)
		require.NoError(t, err)
		h.ReleasedBy, h.ReleasedAt = "p-2", now
		all, err := f.eraser.AllHolds(t.Context(), keyTenant)
		require.NoError(t, err)
		require.Contains(t, all, h)
	},
	"NoContradictions": func(t *testing.T, f *keyFixture) {
		var partitions []event.PartitionID
		for _, state := range shredding.ErasureStates() {
			id := subjectKeyID(3, "employee:"+string(state), 0)
			partitions = append(partitions, id.Partition)
			f.at(t, state, id)
		}
		found, err := f.eraser.Contradictions(t.Context(), keyTenant, partitions)
		require.NoError(t, err)
		require.Empty(t, found)
	},
}

// journalOf returns the entries of one request.
func (f *keyFixture) journalOf(t *testing.T, id event.ID) (out []ports.ErasureJournalEntry) {
	t.Helper()
	all, err := f.eraser.ErasureJournal(t.Context(), keyTenant)
	require.NoError(t, err)
	for _, e := range all {
		if e.RequestID == id {
			require.Equal(t, e.Approver == "", e.StoredAt.IsZero())
			e.StoredAt = time.Time{} // by the clock of the store
			out = append(out, e)
		}
	}
	return out
}

// NoteOf is a note like that of a receipt: lines of which those after the sixth are about keys,
// and a signature.
func NoteOf(r ports.ErasureRequest, d ports.Destruction) []byte {
	text := "format\n1\nprevious\ntenant\nrequest\ntime\n"
	for _, k := range d.Keys {
		text += fmt.Sprintf("%d %s %s", k.Partition, k.Class, r.Subject)
		for _, f := range k.Fingerprints {
			text += fmt.Sprintf(" %x", f)
		}
		text += "\n"
	}
	return []byte(text + "\nsignature\n")
}
