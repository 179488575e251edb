package erasure_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// newFixtureWithErasures makes an installation with n completed erasures.
func newFixtureWithErasures(t *testing.T, n int) *erasureFixture {
	t.Helper()
	b := newErasureFixture(t)
	for i := range n {
		employee := fmt.Sprintf("E-%d", i)
		b.appendEvents(t, b.de, contactedType, employee, 1)
		s := b.createApprovedRequest(t, func(r *erasure.NewRequest) { r.Subject = "employee:" + employee })
		b.runNewWorker(t)
		require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	}
	require.NoError(t, b.gate.Check(t.Context()))
	return b
}

// receiptList is a register with the given receipts.
type receiptList struct {
	ports.ErasureReceipts
	receipts []ports.ErasureReceipt
}

func (l *receiptList) Receipts(_ context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	if from > uint64(len(l.receipts)) {
		return nil, nil
	}
	out := l.receipts[max(from, 1)-1:]
	return out[:min(limit, len(out))], nil
}

func TestGate(t *testing.T) {
	t.Parallel()
	b := newFixtureWithErasures(t, 3)
	all := b.listReceipts(t)
	register := &receiptList{receipts: slices.Clone(all)}
	b.gate = b.newGate(register)
	requireClosed := func(t *testing.T) {
		t.Helper()
		require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.Check(t.Context())))
		require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.LastVerdict()))
		require.Equal(t, fault.Unavailable, fault.KindOf(b.gate.LastVerdict()))
	}
	requireOpen := func(t *testing.T) {
		t.Helper()
		require.NoError(t, b.gate.Check(t.Context()))
		require.NoError(t, b.gate.LastVerdict())
	}
	t.Run("verdict expires", func(t *testing.T) {
		requireOpen(t)
		b.clock.Advance(4 * time.Minute)
		require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.LastVerdict()))
		requireOpen(t)
		require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.newGate(register).LastVerdict()), "before the first check")
	})
	t.Run("register lacks receipts", func(t *testing.T) {
		register.receipts = all[:1]
		requireClosed(t)
		require.Error(t, b.newGate(register).Check(t.Context()), "in a process that started after the restore")
		register.receipts = nil
		requireClosed(t)
	})
	t.Run("register has another receipt under the number", func(t *testing.T) {
		register.receipts = slices.Clone(all)
		register.receipts[2].Note = []byte("another erasure took the number")
		requireClosed(t)
		register.receipts[2] = ports.ErasureReceipt{Number: 3, RequestID: all[1].RequestID, TenantID: "acme"}
		requireClosed(t)
	})
	t.Run("register was restored between destruction and signature", func(t *testing.T) {
		register.receipts = slices.Clone(all)
		register.receipts[2] = ports.ErasureReceipt{Number: 3, RequestID: all[2].RequestID, TenantID: "acme"}
		requireOpen(t)
	})
	register.receipts = all
	t.Run("export store is unavailable", func(t *testing.T) {
		requireOpen(t)
		b.exports.unavailable = true
		requireClosed(t)
		b.exports.unavailable = false
	})
	t.Run("export store lacks an exported receipt", func(t *testing.T) {
		document := b.exports.documents[erasure.ReceiptName(3)]
		delete(b.exports.documents, erasure.ReceiptName(3))
		requireClosed(t)
		b.exports.documents[erasure.ReceiptName(3)] = document
		requireOpen(t)
	})
	t.Run("register has another receipt before the newest", func(t *testing.T) {
		register.receipts = slices.Clone(all)
		register.receipts[1].Note = all[0].Note
		require.Error(t, b.newGate(register).Check(t.Context()))
		register.receipts = slices.Delete(slices.Clone(all), 1, 2)
		require.Error(t, b.newGate(register).Check(t.Context()))
		register.receipts = all
	})
	t.Run("other documents do not count", func(t *testing.T) {
		b.exports.documents["receipts/README"] = []byte("x")
		requireOpen(t)
	})
	t.Run("closed gate stops erasures", func(t *testing.T) {
		register.receipts = all[:2]
		b.config.Gate = b.gate
		b.appendEvents(t, b.de, contactedType, "E-9", 1)
		s := b.createApprovedRequest(t, func(r *erasure.NewRequest) { r.Subject = "employee:E-9" })
		b.runNewWorker(t)
		require.Equal(t, "approved", b.getStatus(t, s.ID).State)
		require.Equal(t, "pii.receipts_behind", b.storedRequest(t, s.ID).LastError)
	})
}

// TestKeyPutBack puts a destroyed key back as a superuser of the database could. Receipts and
// requests stay as they are.
func TestKeyPutBack(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(*ports.SubjectKey){
		"as it was":                      func(*ports.SubjectKey) {},
		"under another fingerprint":      func(k *ports.SubjectKey) { k.Versions[0].Fingerprint[0]++ },
		"as a version of another number": func(k *ports.SubjectKey) { k.Active, k.Versions[0].Version = 1, 1 },
		"in state destroyed":             func(k *ports.SubjectKey) { k.State, k.Active = shredding.KeyDestroyed, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newFixtureWithErasures(t, 1) // of E-0
			b.appendEvents(t, b.de, contactedType, "E-1", 1)
			id := ports.SubjectKeyID{Partition: b.de.Partition, Subject: "employee:E-1"}
			kept, err := b.register.SubjectKeys(t.Context(), []ports.SubjectKeyID{id})
			require.NoError(t, err)
			s := b.createApprovedRequest(t, func(r *erasure.NewRequest) { r.Subject = "employee:E-1" })
			b.runNewWorker(t)
			require.Equal(t, "completed", b.getStatus(t, s.ID).State)
			require.NoError(t, b.gate.Check(t.Context()))
			print := kept[0].Versions[0].Fingerprint
			require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.RequireLive(print)))
			require.NoError(t, b.gate.RequireLive(shredding.Fingerprint{1}))
			other := b.newGate(b.register.Erasures())
			require.NoError(t, other.RequireLive(print))
			require.NoError(t, other.Learn(t.Context()))
			require.Equal(t, "pii.receipts_behind", fault.CodeOf(other.RequireLive(print)), "before it has compared receipts")

			forge(&kept[0])
			b.register.PutBack("acme", kept[0])
			require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.Check(t.Context())))
			require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.newGate(b.register.Erasures()).Check(t.Context())), "in a process that starts later")

			config := erasure.ReplayConfig{
				Exports: b.exports, Register: b.register.Erasures(), Keys: b.register, DataKeys: b.dataKeys,
				Notes: signednote.Opener{}, VerifierKeys: []string{b.verifierKey},
			}
			for range 2 {
				n, err := erasure.Replay(t.Context(), config)
				require.NoError(t, err)
				require.Equal(t, 2, n)
			}
			require.NoError(t, b.gate.Check(t.Context()))
			stored, err := b.register.SubjectKeys(t.Context(), []ports.SubjectKeyID{id})
			require.NoError(t, err)
			require.Equal(t, shredding.KeyDestroyed, stored[0].State)
			require.Empty(t, stored[0].Versions)
			_, err = b.register.MintSubjectKey(t.Context(), "acme", ports.MintedKey{SubjectKeyID: id, Reference: kept[0].Reference, WrappedKey: ports.WrappedKey{Version: 1, Epoch: 1}})
			require.Equal(t, "pii.subject_erased", fault.CodeOf(err))
		})
	}
}

// TestGate_CompareTenant compares the receipts of one tenant: it learns nothing of another one.
func TestGate_CompareTenant(t *testing.T) {
	t.Parallel()
	b := newFixtureWithErasures(t, 1)
	id := ports.SubjectKeyID{Partition: b.de.Partition, Subject: "employee:E-1"}
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	kept, err := b.register.SubjectKeys(t.Context(), []ports.SubjectKeyID{id})
	require.NoError(t, err)
	s := b.createApprovedRequest(t, func(r *erasure.NewRequest) { r.Subject = id.Subject.String() })
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	all := b.listReceipts(t)
	register := &receiptList{receipts: slices.Clone(all)}
	finds := func(wrong bool, what string) {
		t.Helper()
		for tenantID, want := range map[string]bool{"acme": wrong, "globex": false} {
			finding, err := b.newGate(register).CompareTenant(t.Context(), tenantID)
			require.NoError(t, err, what)
			require.Equal(t, want, finding != "", "%s, %s: %s", what, tenantID, finding)
		}
	}
	finds(false, "sound")
	register.receipts[1] = ports.ErasureReceipt{Number: 2, RequestID: all[1].RequestID, TenantID: "acme"}
	finds(false, "restored to before the signature")
	register.receipts = all[:1]
	finds(true, "the register lacks a receipt")
	register.receipts = slices.Clone(all)
	register.receipts[0].Note = []byte("another")
	finds(true, "another receipt")
	register.receipts = all
	name := erasure.ReceiptName(1)
	document := b.exports.documents[name]
	b.exports.documents[name] = []byte("another")
	finds(true, "another exported receipt")
	delete(b.exports.documents, name)
	_, err = b.newGate(register).CompareTenant(t.Context(), "acme")
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err), "it may be another folder")
	_, err = b.newGate(register).CompareTenant(t.Context(), "globex")
	require.NoError(t, err)
	b.exports.documents[name] = document
	b.register.PutBack("acme", kept[0])
	finds(true, "a destroyed key is back")
}

// silentKeyService opens no key, such as while the key service is unavailable.
type silentKeyService struct {
	ports.DataKeys
	err error
}

func (s silentKeyService) Unwrap(context.Context, string, []byte, ports.EncryptionContext) (shredding.Secret, error) {
	return shredding.Secret{}, s.err
}

// TestGate_KeyServiceUnavailable puts a key back under a forged fingerprint, which only the key
// itself tells: a verification that cannot open it now, and may later, is no verification.
func TestGate_KeyServiceUnavailable(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	kept, err := b.register.SubjectKeys(t.Context(), []ports.SubjectKeyID{{Partition: b.de.Partition, Subject: subject}})
	require.NoError(t, err)
	_ = b.createApprovedRequest(t)
	b.runNewWorker(t)
	kept[0].State = shredding.KeyFenced
	kept[0].Versions[0].Fingerprint[0]++
	b.register.PutBack("acme", kept[0])
	compare := func() (findings []string, codes []string) {
		all, err := b.newGate(b.register.Erasures()).Compare(t.Context())
		tenants, tenantErr := b.newGate(b.register.Erasures()).CompareTenant(t.Context(), "acme")
		return []string{all, tenants}, []string{fault.CodeOf(err), fault.CodeOf(tenantErr)}
	}
	findings, codes := compare()
	require.NotContains(t, findings, "")
	require.Equal(t, []string{"", ""}, codes)

	keyService := b.dataKeys
	for err, want := range map[*fault.Error]string{
		fault.New(fault.Unavailable, "kms.unavailable", "down"):                      "pii.receipts_behind",
		fault.New(fault.FailedPrecondition, "kms.key_disabled", "enable it"):         "pii.receipts_behind",
		fault.New(fault.FailedPrecondition, "kms.key_pending_deletion", "cancel it"): "pii.receipts_behind",
		fault.New(fault.NotFound, "kms.key_not_found", "destroyed for good"):         "",
		fault.New(fault.Invalid, "kms.ciphertext_invalid", "wrapped by another key"): "",
	} {
		b.dataKeys = silentKeyService{keyService, err}
		findings, codes = compare()
		require.Equal(t, []string{"", ""}, findings, err.Code)
		require.Equal(t, []string{want, want}, codes, err.Code)
		require.NoError(t, b.newGate(b.register.Erasures()).Check(t.Context()), "what nodes have opened stays open")
	}
}

// TestReplayWithChangedRegister changes the register's receipts: replay destroys the keys all
// the same, and stores nothing that is not signed.
func TestReplayWithChangedRegister(t *testing.T) {
	t.Parallel()
	b := newFixtureWithErasures(t, 2)
	other := memory.NewKeyStore()
	forged := ports.ErasureReceipt{Number: 1, RequestID: event.ID{7}, TenantID: "acme", Note: []byte("no receipt"), Exported: true}
	require.NoError(t, other.Erasures().ReplayErasure(t.Context(), forged, nil))
	forged.Number, forged.RequestID = 3, event.ID{8}
	require.NoError(t, other.Erasures().ReplayErasure(t.Context(), forged, nil))
	require.Error(t, b.newGateOf(other.Erasures(), other).Check(t.Context()))
	n, err := erasure.Replay(t.Context(), erasure.ReplayConfig{
		Exports: b.exports, Register: other.Erasures(), Keys: other, DataKeys: b.dataKeys, Notes: signednote.Opener{}, VerifierKeys: []string{b.verifierKey},
	})
	require.Equal(t, "erasure.receipt_changed", fault.CodeOf(err))
	require.Equal(t, 2, n)
	require.NotContains(t, b.exports.documents, erasure.ReceiptName(3))
	for _, employee := range []shredding.Subject{"employee:E-0", "employee:E-1"} {
		stored, err := other.SubjectKeys(t.Context(), []ports.SubjectKeyID{{Partition: b.de.Partition, Subject: employee}})
		require.NoError(t, err)
		require.Equal(t, shredding.KeyDestroyed, stored[0].State)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	b := newFixtureWithErasures(t, 2)
	b.appendEvents(t, b.de, contactedType, "E-2", 1)
	var backup [][]byte // of the keys, from before the last erasure
	require.NoError(t, b.register.Rotation().ExportKeys(t.Context(), func(line []byte) error {
		backup = append(backup, bytes.Clone(line))
		return nil
	}))
	s := b.createApprovedRequest(t, func(r *erasure.NewRequest) { r.Subject = "employee:E-2" })
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)

	restored := memory.NewKeyStore()
	_, err := restored.Rotation().RestoreKeys(t.Context(), func(yield func([]byte) bool) error {
		for _, line := range backup {
			if !yield(line) {
				break
			}
		}
		return nil
	}, nil)
	require.NoError(t, err)
	state := func() shredding.KeyState {
		keys, err := restored.SubjectKeys(t.Context(), []ports.SubjectKeyID{{Partition: b.de.Partition, Subject: "employee:E-2"}})
		require.NoError(t, err)
		return keys[0].State
	}
	require.Equal(t, shredding.KeyActive, state(), "the backup has the key")
	gate := b.newGateOf(restored.Erasures(), restored)
	require.Error(t, gate.Check(t.Context()))

	var progress []string
	config := erasure.ReplayConfig{
		Exports: b.exports, Register: restored.Erasures(), Keys: restored, DataKeys: b.dataKeys, Notes: signednote.Opener{}, VerifierKeys: []string{b.verifierKey},
		Progress: func(done, total int, r erasure.Receipt) {
			progress = append(progress, fmt.Sprint(done, "/", total, " ", r.Number))
		},
	}
	replay := func() (int, error) { return erasure.Replay(t.Context(), config) }
	done, err := replay()
	require.NoError(t, err)
	require.Equal(t, 3, done)
	require.Equal(t, []string{"1/3 1", "2/3 2", "3/3 3"}, progress)
	require.Equal(t, shredding.KeyDestroyed, state())
	require.NoError(t, gate.Check(t.Context()))
	_, err = replay()
	require.NoError(t, err, "it may be repeated")

	// Receipts that only the register has are exported again.
	lost := b.exports.documents[erasure.ReceiptName(2)]
	delete(b.exports.documents, erasure.ReceiptName(2))
	_, err = replay()
	require.NoError(t, err)
	require.Equal(t, lost, b.exports.documents[erasure.ReceiptName(2)])

	// Replay stops at a receipt that is not signed or out of order.
	for name, change := range map[string]func(documents map[string][]byte){
		"missing": func(d map[string][]byte) { delete(d, erasure.ReceiptName(2)) },
		"changed": func(d map[string][]byte) {
			d[erasure.ReceiptName(2)] = bytes.Replace(lost, []byte("E-1"), []byte("E-7"), 1)
		},
		"exchanged": func(d map[string][]byte) { d[erasure.ReceiptName(2)] = d[erasure.ReceiptName(3)] },
		"unsigned":  func(d map[string][]byte) { d[erasure.ReceiptName(2)] = lost[:bytes.Index(lost, []byte("\n\n"))+1] },
	} {
		t.Run(name, func(t *testing.T) {
			documents := maps.Clone(b.exports.documents)
			change(documents)
			empty := memory.NewKeyStore()
			config.Exports, config.Register = &exportStore{documents: documents}, empty.Erasures()
			done, err := replay()
			require.Equal(t, "erasure.receipt_invalid", fault.CodeOf(err))
			require.Equal(t, 1, done)
			replayed, err := empty.Erasures().Receipts(t.Context(), 1, 10)
			require.NoError(t, err)
			require.Len(t, replayed, 1)
		})
	}
	config.VerifierKeys, config.Exports, config.Register = nil, b.exports, memory.NewKeyStore().Erasures()
	_, err = replay()
	require.Equal(t, "erasure.receipt_invalid", fault.CodeOf(err))
}
