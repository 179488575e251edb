package erasure_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/verifytest"
)

// editedKeyStore shows other rows than the key store has.
type editedKeyStore struct {
	*memory.ErasureRegister
	*memory.KeyRotation
	keys     *memory.KeyStore
	requests func([]ports.ErasureRequest) []ports.ErasureRequest
	journal  func([]ports.ErasureJournalEntry) []ports.ErasureJournalEntry
	holds    func([]ports.LegalHold) []ports.LegalHold
	receipts func([]ports.ErasureReceipt) []ports.ErasureReceipt
}

func edited[T any](rows []T, err error, edit func([]T) []T) ([]T, error) {
	if edit != nil && err == nil {
		rows = edit(slices.Clone(rows))
	}
	return rows, err
}

func (k editedKeyStore) SubjectKeys(ctx context.Context, ids []ports.SubjectKeyID) ([]ports.SubjectKey, error) {
	return k.keys.SubjectKeys(ctx, ids)
}

func (k editedKeyStore) ErasureRows(ctx context.Context, tenantID string) (out []ports.ErasureRow, err error) {
	rows, err := k.Erasures(ctx, tenantID, nil, 0)
	rows, err = edited(rows, err, k.requests)
	for i := range rows {
		out = append(out, ports.ErasureRow{ID: rows[i].ID, Revision: rows[i].Revision, Digest: testkit.Must(rows[i].Digest())})
	}
	return out, err
}

func (k editedKeyStore) ErasureJournal(ctx context.Context, tenantID string) ([]ports.ErasureJournalEntry, error) {
	rows, err := k.ErasureRegister.ErasureJournal(ctx, tenantID)
	return edited(rows, err, k.journal)
}

func (k editedKeyStore) AllHolds(ctx context.Context, tenantID string) ([]ports.LegalHold, error) {
	rows, err := k.ErasureRegister.AllHolds(ctx, tenantID)
	return edited(rows, err, k.holds)
}

func (k editedKeyStore) Receipts(ctx context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	rows, err := k.ErasureRegister.Receipts(ctx, from, limit)
	return edited(rows, err, k.receipts)
}

// TestVerify_KeyStore edits the rows of a completed erasure, of a waiting one and of holds.
func TestVerify_KeyStore(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	require.Equal(t, shredding.ErasureCompleted, b.storedRequest(t, s.ID).State)
	other := func(n *erasure.NewRequest) { n.Subject = "employee:E-2" }
	_ = b.createRequest(t, other)
	_, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: "employee:E-3", Reason: "proceedings", LegalEntities: []string{"DEMF"}})
	require.NoError(t, err)
	lifted, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: "employee:E-4", Reason: "proceedings"})
	require.NoError(t, err)
	_, err = b.service.ReleaseHold(t.Context(), approver, lifted[0].ID)
	require.NoError(t, err)

	request := func(state shredding.ErasureState, edit func(*ports.ErasureRequest)) func([]ports.ErasureRequest) []ports.ErasureRequest {
		return func(rows []ports.ErasureRequest) []ports.ErasureRequest {
			edit(&rows[slices.IndexFunc(rows, func(r ports.ErasureRequest) bool { return r.State == state })])
			return rows
		}
	}
	step := func(state shredding.ErasureState, edit func(*ports.ErasureJournalEntry)) func([]ports.ErasureJournalEntry) []ports.ErasureJournalEntry {
		return func(rows []ports.ErasureJournalEntry) []ports.ErasureJournalEntry {
			edit(&rows[slices.IndexFunc(rows, func(r ports.ErasureJournalEntry) bool { return r.State == state })])
			return rows
		}
	}
	completed, previewed := shredding.ErasureCompleted, shredding.ErasurePreviewed
	for name, c := range map[string]struct {
		store editedKeyStore
		want  []verify.FindingKind
	}{
		"as stored": {editedKeyStore{}, nil},
		"approver":  {editedKeyStore{requests: request(completed, func(r *ports.ErasureRequest) { r.ApprovedBy = "p-other" })}, []verify.FindingKind{verify.ErasureMismatch}},
		"requester": {editedKeyStore{requests: request(previewed, func(r *ports.ErasureRequest) { r.RequestedBy = "p-other" })}, []verify.FindingKind{verify.ErasureMismatch}},
		"subject":   {editedKeyStore{requests: request(previewed, func(r *ports.ErasureRequest) { r.Subject = "employee:E-9" })}, []verify.FindingKind{verify.ErasureMismatch}},
		"approved by hand": {editedKeyStore{requests: request(previewed, func(r *ports.ErasureRequest) {
			r.State, r.Revision, r.ApprovedBy = shredding.ErasureApproved, r.Revision+1, "p-2"
		})}, []verify.FindingKind{verify.ErasureMismatch}},
		"set back": {editedKeyStore{requests: request(completed, func(r *ports.ErasureRequest) { r.State, r.Revision = shredding.ErasureFenced, 4 })}, []verify.FindingKind{verify.ErasureMismatch}},
		"removed":  {editedKeyStore{requests: func([]ports.ErasureRequest) []ports.ErasureRequest { return nil }}, []verify.FindingKind{verify.ErasureMismatch, verify.ErasureMismatch}},
		"invented": {editedKeyStore{requests: func(rows []ports.ErasureRequest) []ports.ErasureRequest {
			return append(rows, ports.ErasureRequest{ID: b.ids.NewID(start), TenantID: "acme", State: shredding.ErasureRequested, Revision: 1})
		}}, []verify.FindingKind{verify.ErasureMismatch}},
		"approval's person":   {editedKeyStore{journal: step(shredding.ErasureApproved, func(e *ports.ErasureJournalEntry) { e.Approver = "p-other" })}, []verify.FindingKind{verify.ErasureMismatch}},
		"approval's scope":    {editedKeyStore{journal: step(shredding.ErasureApproved, func(e *ports.ErasureJournalEntry) { e.Scope = event.Hash{1} })}, []verify.FindingKind{verify.ErasureMismatch}},
		"approval removed":    {editedKeyStore{journal: step(shredding.ErasureApproved, func(e *ports.ErasureJournalEntry) { e.Approver = "" })}, []verify.FindingKind{verify.ErasureMismatch, verify.ErasureMismatch}},
		"approval made later": {editedKeyStore{journal: step(shredding.ErasureApproved, func(e *ports.ErasureJournalEntry) { e.StoredAt = e.StoredAt.Add(time.Hour) })}, []verify.FindingKind{verify.ErasureMismatch}},
		"step's person":       {editedKeyStore{journal: step(shredding.ErasureRequested, func(e *ports.ErasureJournalEntry) { e.Person = "p-other" })}, []verify.FindingKind{verify.ErasureMismatch}},
		"step's state":        {editedKeyStore{journal: step(completed, func(e *ports.ErasureJournalEntry) { e.State = shredding.ErasureVerified })}, []verify.FindingKind{verify.ErasureMismatch}},
		"hold removed":        {editedKeyStore{holds: func(rows []ports.LegalHold) []ports.LegalHold { return rows[1:] }}, []verify.FindingKind{verify.HoldMismatch}},
		"hold lifted": {editedKeyStore{holds: func(rows []ports.LegalHold) []ports.LegalHold {
			rows[0].ReleasedAt, rows[0].ReleasedBy = start, "p-2"
			return rows
		}}, []verify.FindingKind{verify.HoldMismatch}},
		"hold's person": {editedKeyStore{holds: func(rows []ports.LegalHold) []ports.LegalHold { rows[0].Subject = "employee:E-9"; return rows }}, []verify.FindingKind{verify.HoldMismatch}},
		"hold's entity": {editedKeyStore{holds: func(rows []ports.LegalHold) []ports.LegalHold { rows[0].Partition = b.us.Partition; return rows }}, []verify.FindingKind{verify.HoldMismatch}},
		"hold invented": {editedKeyStore{holds: func(rows []ports.LegalHold) []ports.LegalHold {
			return append(rows, ports.LegalHold{ID: b.ids.NewID(start), TenantID: "acme", Subject: subject})
		}}, []verify.FindingKind{verify.HoldMismatch}},
		"hold in force again": {editedKeyStore{holds: func(rows []ports.LegalHold) []ports.LegalHold {
			rows[1].ReleasedBy, rows[1].ReleasedAt = "", rows[0].ReleasedAt
			return rows
		}}, []verify.FindingKind{verify.HoldMismatch}},
		"receipt": {editedKeyStore{receipts: func(rows []ports.ErasureReceipt) []ports.ErasureReceipt {
			rows[0].Note = []byte("another")
			return rows
		}}, []verify.FindingKind{verify.ErasureMismatch}},
	} {
		t.Run(name, func(t *testing.T) {
			c.store.ErasureRegister, c.store.KeyRotation, c.store.keys = b.register.Erasures(), b.register.Rotation(), b.register
			require.Equal(t, c.want, b.findings(t, c.store))
		})
	}

	b.register.PutBack("acme", ports.SubjectKey{SubjectKeyID: ports.SubjectKeyID{Partition: b.de.Partition, Subject: subject, Class: shredding.KeyStandard}, Reference: "r", State: shredding.KeyActive})
	require.Equal(t, []verify.FindingKind{verify.KeyStoreMismatch}, b.findings(t, editedKeyStore{ErasureRegister: b.register.Erasures(), KeyRotation: b.register.Rotation(), keys: b.register}), "the fence is gone")
}

// TestAttack_ErasesWithAnInventedApproval has a session with the eraser's credentials approve a
// request and destroy the keys.
func TestAttack_ErasesWithAnInventedApproval(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createRequest(t)
	register := b.register.Erasures()
	r, err := register.ApproveErasure(t.Context(), s.ID, "p-invented", b.storedRequest(t, s.ID).Scope, b.clock.Now())
	require.NoError(t, err)
	_, err = register.FenceErasure(t.Context(), r)
	require.NoError(t, err)
	_, _, err = register.DestroyErasure(t.Context(), s.ID, nil)
	require.NoError(t, err)
	b.runWorkerUntil(t, shredding.ErasureVerified)
	b.runNewWorker(t)
	require.Equal(t, shredding.ErasureVerified, b.storedRequest(t, s.ID).State, "no certificate is signed")
	require.Len(t, b.listReceipts(t), 1, "the keys are gone, so the receipt is issued")
	keys := editedKeyStore{ErasureRegister: register, KeyRotation: b.register.Rotation(), keys: b.register}
	require.Equal(t, []verify.FindingKind{verify.ErasureMismatch}, b.findings(t, keys))
}

// findings verifies the administrative log and the key store.
func (b *erasureFixture) findings(t *testing.T, keys verify.KeyStore) (kinds []verify.FindingKind) {
	t.Helper()
	reports, err := verify.Run(t.Context(), verifytest.Of(b.store), "acme", []string{ports.AdministrativeCode}, nil, verify.WithKeyStore(keys))
	require.NoError(t, err)
	require.Len(t, reports, 1)
	judged := []verify.FindingKind{verify.ErasureMismatch, verify.HoldMismatch, verify.KeyEpochMismatch, verify.KeyStoreMismatch, verify.AnnouncementUnreadable}
	for _, f := range reports[0].Findings {
		if slices.Contains(judged, f.Kind) {
			kinds = append(kinds, f.Kind)
		}
	}
	return kinds
}
