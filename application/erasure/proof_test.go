package erasure_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
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

// TestVerifyCertificateDetectsEveryChangedByte changes, drops and adds bytes.
func TestVerifyCertificateDetectsEveryChangedByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 1)
	s := b.approved(t)
	b.work(t)
	_, document := b.certificate(t, s.ID)
	refused := func(changed []byte, what string, at int) {
		_, err := erasure.VerifyCertificate(changed, signednote.Opener{}, b.vkey)
		require.Contains(t, []string{"erasure.certificate_malformed", "erasure.certificate_altered", "note.not_verified"}, fault.CodeOf(err), "%s at %d", what, at)
	}
	for i := range document {
		changed := slices.Clone(document)
		changed[i] ^= 1
		refused(changed, "flip", i)
		changed[i] ^= 1 ^ 0x20
		refused(changed, "case", i)
		refused(slices.Delete(slices.Clone(document), i, i+1), "dropped", i)
		refused(slices.Insert(slices.Clone(document), i, ' '), "added", i)
	}
	refused(nil, "nothing", 0)
	refused([]byte(`{}`), "empty", 0)
	refused(append(slices.Clone(document), document...), "twice", 0)

	other, err := signednote.NewSigner("receipts.example.org", "k", newKMS(2))
	require.NoError(t, err)
	otherKey, err := other.VerifierKey(t.Context())
	require.NoError(t, err)
	_, err = erasure.VerifyCertificate(document, signednote.Opener{}, otherKey)
	require.Equal(t, "note.not_verified", fault.CodeOf(err))
	_, err = erasure.VerifyCertificate(document, signednote.Opener{}, "nonsense")
	require.Equal(t, "note.key_invalid", fault.CodeOf(err))

	// A receipt's note under a certificate is no signature of the certificate.
	at := bytes.Index(document, []byte(`"note":`))
	forged := slices.Concat(document[:at], fmt.Appendf(nil, "\"note\": %q\n}\n", b.exports.documents[erasure.ReceiptName(1)]))
	refused(forged, "receipt as note", 0)
}

func TestParseReceipt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := erasure.Receipt{Number: 12, Previous: hash([]byte("x")), TenantID: "acme", RequestID: b.ids.NewID(start), At: start.Add(time.Microsecond)}
	for p := range 100 { // beyond what is signed in one piece
		for _, class := range shredding.KeyClasses() {
			r.Keys = append(r.Keys, ports.ReplayKey{Partition: event.PartitionID(p + 1), Class: class, Subject: "employee:E-1", Fingerprints: []shredding.Fingerprint{{1}, {2, byte(p)}}})
		}
	}
	text := r.Text()
	require.Greater(t, len(text), ports.MaximumSignedMessage)
	got, err := erasure.ParseReceipt(text)
	require.NoError(t, err)
	require.Equal(t, r, got)
	note, err := b.notes.SignNote(t.Context(), text)
	require.NoError(t, err)
	opened, err := signednote.Opener{}.OpenNote(note, b.vkey)
	require.NoError(t, err)
	require.Equal(t, text, opened)

	short := erasure.Receipt{Number: 1, TenantID: "acme", RequestID: r.RequestID, At: start, Keys: []ports.ReplayKey{{Partition: 7, Class: shredding.KeyRegulatory, Subject: "employee:E-1"}}}
	require.Equal(t, "backbone/erasure-receipt/v1\n1\n"+strings.Repeat("0", 64)+"\nacme\n"+r.RequestID.String()+"\n2026-03-31T10:00:00.000000Z\n7 regulatory employee:E-1\n", string(short.Text()))
	for _, change := range []func(string) string{
		func(s string) string { return "" },
		func(s string) string { return strings.TrimSuffix(s, "\n") },
		func(s string) string { return s + "\n" },
		func(s string) string { return strings.Replace(s, "v1", "v2", 1) },
		func(s string) string { return strings.Replace(s, "\n1\n", "\n01\n", 1) },
		func(s string) string { return strings.Replace(s, "\n1\n", "\n0\n", 1) },
		func(s string) string { return strings.Replace(s, "00000", "0000", 1) },
		func(s string) string { return strings.Replace(s, "10:00", "10:0", 1) },
		func(s string) string { return strings.Replace(s, "regulatory", "other", 1) },
		func(s string) string { return strings.Replace(s, "7 regulatory", "7  regulatory", 1) },
		func(s string) string { return strings.Replace(s, "E-1\n", "E-1 00ff\n", 1) },
		func(s string) string { return strings.Replace(s, "employee:E-1", "employee", 1) },
	} {
		_, err := erasure.ParseReceipt([]byte(change(string(short.Text()))))
		require.Equal(t, "erasure.receipt_invalid", fault.CodeOf(err), change(string(short.Text())))
	}
}

// erased gives an installation with n erasures and a backup of its register from
// before the last ones.
func erased(t *testing.T, n int) *rig {
	t.Helper()
	b := setup(t)
	for i := range n {
		employee := fmt.Sprintf("E-%d", i)
		b.hire(t, b.de, contacted, employee, 1)
		s := b.approved(t, func(r *erasure.NewRequest) { r.Subject = "employee:" + employee })
		b.work(t)
		require.Equal(t, "completed", b.get(t, s.ID).State)
	}
	require.NoError(t, b.gate.Check(t.Context()))
	return b
}

// book is the receipts of a register in some state.
type book struct{ receipts []ports.ErasureReceipt }

func (b *book) Receipts(_ context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	if from > uint64(len(b.receipts)) {
		return nil, nil
	}
	out := b.receipts[max(from, 1)-1:]
	return out[:min(limit, len(out))], nil
}

func TestGate(t *testing.T) {
	t.Parallel()
	b := erased(t, 3)
	kept := b.receipts(t)
	inside := &book{slices.Clone(kept)}
	b.gate = b.newGate(inside)
	closed := func(why string) {
		require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.Check(t.Context())), why)
		require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.Open()), why)
		require.Equal(t, fault.Unavailable, fault.KindOf(b.gate.Open()), why)
	}
	isOpen := func(why string) {
		require.NoError(t, b.gate.Check(t.Context()), why)
		require.NoError(t, b.gate.Open(), why)
	}
	isOpen("in step")
	b.clock.Advance(4 * time.Minute)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(b.gate.Open()), "nobody has looked for long")
	isOpen("looked again")
	fresh := b.newGate(inside)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(fresh.Open()), "before the first look")

	inside.receipts = kept[:1]
	closed("two receipts forgotten")
	fresh = b.newGate(inside)
	require.Error(t, fresh.Check(t.Context()), "a process started after the restore")
	inside.receipts = nil
	closed("all forgotten")
	inside.receipts = slices.Clone(kept)
	inside.receipts[2].Note = []byte("another erasure took the number")
	closed("forked")
	inside.receipts[2] = ports.ErasureReceipt{Number: 3, RequestID: kept[2].RequestID, TenantID: "acme"}
	isOpen("restored between destruction and signature: the keys are gone")
	inside.receipts[2].RequestID = kept[1].RequestID
	closed("another request's destruction")
	inside.receipts = kept
	isOpen("as before")

	b.exports.away = true
	closed("not reached")
	b.exports.away = false
	document := b.exports.documents[erasure.ReceiptName(3)]
	delete(b.exports.documents, erasure.ReceiptName(3))
	closed("the store lacks what was exported there")
	b.exports.documents[erasure.ReceiptName(3)] = document
	isOpen("brought back")
	b.exports.documents["receipts/README"] = []byte("x")
	isOpen("other documents do not count")

	// Nothing is destroyed behind a closed gate.
	inside.receipts = kept[:2]
	b.config.Gate = b.gate
	b.hire(t, b.de, contacted, "E-9", 1)
	s := b.approved(t, func(r *erasure.NewRequest) { r.Subject = "employee:E-9" })
	b.work(t)
	require.Equal(t, "approved", b.get(t, s.ID).State)
	require.Equal(t, "pii.receipts_behind", b.raw(t, s.ID).LastError)
}

func TestReplay(t *testing.T) {
	t.Parallel()
	b := erased(t, 2)
	b.hire(t, b.de, contacted, "E-2", 1)
	var backup [][]byte // of the keys, from before the last erasure
	require.NoError(t, b.register.Rotation().ExportKeys(t.Context(), func(line []byte) error {
		backup = append(backup, bytes.Clone(line))
		return nil
	}))
	s := b.approved(t, func(r *erasure.NewRequest) { r.Subject = "employee:E-2" })
	b.work(t)
	require.Equal(t, "completed", b.get(t, s.ID).State)

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
	require.Equal(t, shredding.KeyActive, state(), "the backup brought it back")
	gate := b.newGate(restored.Erasures())
	require.Error(t, gate.Check(t.Context()))

	var progress []string
	config := erasure.ReplayConfig{
		Exports: b.exports, Register: restored.Erasures(), Notes: signednote.Opener{}, VerifierKeys: []string{b.vkey},
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

	// Receipts that only the register has are brought back.
	lost := b.exports.documents[erasure.ReceiptName(2)]
	delete(b.exports.documents, erasure.ReceiptName(2))
	_, err = replay()
	require.NoError(t, err)
	require.Equal(t, lost, b.exports.documents[erasure.ReceiptName(2)])

	// Nothing is destroyed for a receipt that is not ours or out of its order.
	for name, change := range map[string]func(documents map[string][]byte){
		"missing": func(d map[string][]byte) { delete(d, erasure.ReceiptName(2)) },
		"changed": func(d map[string][]byte) {
			d[erasure.ReceiptName(2)] = bytes.Replace(lost, []byte("E-1"), []byte("E-7"), 1)
		},
		"exchanged": func(d map[string][]byte) { d[erasure.ReceiptName(2)] = d[erasure.ReceiptName(3)] },
		"unsigned":  func(d map[string][]byte) { d[erasure.ReceiptName(2)] = lost[:bytes.Index(lost, []byte("\n\n"))+1] },
	} {
		documents := maps.Clone(b.exports.documents)
		change(documents)
		empty := memory.NewKeyStore()
		config.Exports, config.Register = &exports{documents: documents}, empty.Erasures()
		done, err = replay()
		require.Equal(t, "erasure.receipt_invalid", fault.CodeOf(err), name)
		require.Equal(t, 1, done, name)
		known, err := empty.Erasures().Receipts(t.Context(), 1, 10)
		require.NoError(t, err)
		require.Len(t, known, 1, name)
	}
	config.VerifierKeys, config.Exports, config.Register = nil, b.exports, memory.NewKeyStore().Erasures()
	_, err = replay()
	require.Equal(t, "erasure.receipt_invalid", fault.CodeOf(err))
}

// TestDocumentsOfVersionOne stay readable for ever.
func TestDocumentsOfVersionOne(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		content, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		return content
	}
	vkey := strings.TrimSpace(string(read("verifier.key")))
	note := read("receipt-v1.note")
	text, err := signednote.Opener{}.OpenNote(note, vkey)
	require.NoError(t, err)
	r, err := erasure.ParseReceipt(text)
	require.NoError(t, err)
	c, err := erasure.VerifyCertificate(read("certificate-v1.json"), signednote.Opener{}, vkey)
	require.NoError(t, err)
	require.Equal(t, r.RequestID, c.RequestID)
	require.Equal(t, fmt.Sprintf("%x", hash(note)), c.Receipt.SHA256)
	require.Equal(t, "partial", c.Outcome)
}
