package erasure_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestVerifyCertificate_DetectsEveryChangedByte changes, drops and adds bytes.
func TestVerifyCertificate_DetectsEveryChangedByte(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	_, document := b.readCertificate(t, s.ID)
	requireRefused := func(changed []byte, what string, at int) {
		_, err := erasure.VerifyCertificate(changed, signednote.Opener{}, b.verifierKey)
		require.Contains(t, []string{"erasure.certificate_malformed", "erasure.certificate_altered", "note.not_verified"}, fault.CodeOf(err), "%s at %d", what, at)
	}
	for i := range document {
		changed := slices.Clone(document)
		changed[i] ^= 1
		requireRefused(changed, "flip", i)
		changed[i] ^= 1 ^ 0x20
		requireRefused(changed, "case", i)
		requireRefused(slices.Delete(slices.Clone(document), i, i+1), "dropped", i)
		requireRefused(slices.Insert(slices.Clone(document), i, ' '), "added", i)
	}
	requireRefused(nil, "nothing", 0)
	requireRefused([]byte(`{}`), "empty", 0)
	requireRefused(append(slices.Clone(document), document...), "twice", 0)

	other, err := signednote.NewSigner("receipts.example.org", "k", testkit.NewSigningKey(2))
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
	requireRefused(forged, "receipt as note", 0)
}

func TestParseReceipt(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	r := erasure.Receipt{Number: 12, Previous: sha256Of([]byte("x")), TenantID: "acme", RequestID: b.ids.NewID(start), At: start.Add(time.Microsecond)}
	for p := range 100 { // longer than MaximumSignedMessage
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
	opened, err := signednote.Opener{}.OpenNote(note, b.verifierKey)
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

// TestVerifyCertificate_DocumentsOfVersionOne reads stored documents: they stay readable for
// ever.
func TestVerifyCertificate_DocumentsOfVersionOne(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		content, err := os.ReadFile("testdata/" + name)
		require.NoError(t, err)
		return content
	}
	verifierKey := strings.TrimSpace(string(read("verifier.key")))
	note := read("receipt-v1.note")
	text, err := signednote.Opener{}.OpenNote(note, verifierKey)
	require.NoError(t, err)
	r, err := erasure.ParseReceipt(text)
	require.NoError(t, err)
	c, err := erasure.VerifyCertificate(read("certificate-v1.json"), signednote.Opener{}, verifierKey)
	require.NoError(t, err)
	require.Equal(t, r.RequestID, c.RequestID)
	require.Equal(t, fmt.Sprintf("%x", sha256Of(note)), c.Receipt.SHA256)
	require.Equal(t, "partial", c.Outcome)
}

// TestCertificate_OfAnotherNode signs on a node that indexes persons what a node verified that does not.
func TestCertificate_OfAnotherNode(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createApprovedRequest(t)
	b.runWorkerUntil(t, shredding.ErasureVerified)
	b.config.Index = struct{ erasure.Index }{}
	b.runNewWorker(t)
	c, _ := b.readCertificate(t, s.ID)
	require.Nil(t, c.Verification.Index)
	require.NotContains(t, strings.Join(c.OutOfReach, "\n"), "search index")
}

// TestCertificate_ListsWhatTheDocumentsSayIsOutOfReach compares a certificate with the page that explains it.
func TestCertificate_ListsWhatTheDocumentsSayIsOutOfReach(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/erasure-promises.md")
	require.NoError(t, err)
	_, list, found := strings.Cut(string(page), "as the certificate says:\n\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n\n")
	list = regexp.MustCompile(`\[([^\]]+)\]\([^)]*\)|`+"`([^`]*)`").ReplaceAllString(list, "$1$2") // links and code
	var want []string
	for line := range strings.SplitSeq(list, "\n") {
		want = append(want, strings.TrimRight(strings.TrimPrefix(line, "- "), ";."))
	}
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	certificate, _ := b.readCertificate(t, s.ID)
	require.Equal(t, want[:len(want)-1], certificate.OutOfReach, "the last place is of installations that index persons")
}

// FuzzParseReceipt holds the parser to its promise: no panic, one fault, and one text for a receipt.
func FuzzParseReceipt(f *testing.F) {
	signed, err := os.ReadFile("testdata/receipt-v1.note")
	require.NoError(f, err)
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	f.Add(append(text, '\n'))
	f.Add(bytes.Replace(text, []byte("\n1\n"), []byte("\n01\n"), 1))
	f.Add([]byte("backbone/erasure-receipt/v1\n1\n\n\n\n\n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := erasure.ParseReceipt(text)
		if err != nil {
			require.Equal(t, "erasure.receipt_invalid", fault.CodeOf(err))
			return
		}
		require.Equal(t, string(text), string(r.Text()))
	})
}
