package erasure

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	receiptFormat = "backbone/erasure-receipt/v1"
	timeFormat    = "2006-01-02T15:04:05.000000Z"
)

// Receipt proves that an erasure destroyed keys, and names them by fingerprint. It is the
// text of a signed note in the register and in the export store, outside the database. Each
// receipt holds the hash of the one before. Replay repeats the destruction from it in a
// database that was restored from a backup.
//
//	backbone/erasure-receipt/v1
//	<number>
//	<SHA-256 of the previous receipt's note, in hex; zeros for the first>
//	<tenant>
//	<request id>
//	<time of the destruction, UTC, in microseconds>
//	<partition> <class> <subject> <fingerprint in hex>...     per key, by partition and class
type Receipt struct {
	Number    uint64
	Previous  event.Hash
	TenantID  string
	RequestID event.ID
	At        time.Time
	Keys      []ports.ReplayKey
}

// ReceiptName returns the name of a receipt in the export store.
func ReceiptName(number uint64) string { return fmt.Sprintf("%s%020d.note", receiptFolder, number) }

// receiptNumber returns the number of the receipt with a name, 0 if it is no receipt's name.
func receiptNumber(name string) uint64 {
	digits, ok := strings.CutSuffix(strings.TrimPrefix(name, receiptFolder), ".note")
	n, err := strconv.ParseUint(digits, 10, 64)
	if !ok || err != nil || ReceiptName(n) != name {
		return 0
	}
	return n
}

// receiptOf makes the receipt of a destruction from stored data only, so that every attempt
// makes the same text.
func receiptOf(r ports.ErasureRequest, d ports.Destruction) Receipt {
	out := Receipt{Number: d.Receipt, Previous: d.PreviousHash, TenantID: r.TenantID, RequestID: r.ID, At: event.Micros(d.DestroyedAt)}
	for _, k := range d.Keys {
		out.Keys = append(out.Keys, ports.ReplayKey{Partition: k.Partition, Class: k.Class, Subject: r.Subject, Fingerprints: k.Fingerprints})
	}
	slices.SortStableFunc(out.Keys, func(a, b ports.ReplayKey) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Class, b.Class))
	})
	return out
}

// Text returns the text to sign.
func (r Receipt) Text() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s\n%d\n%x\n%s\n%s\n%s\n", receiptFormat, r.Number, r.Previous[:], r.TenantID, r.RequestID, r.At.UTC().Format(timeFormat))
	for _, k := range r.Keys {
		fmt.Fprintf(&b, "%d %s %s", k.Partition, k.Class, k.Subject)
		for _, f := range k.Fingerprints {
			fmt.Fprintf(&b, " %x", f[:])
		}
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// ParseReceipt parses the text of a receipt. erasure.receipt_invalid (Invalid) for a text
// that Text does not return.
func ParseReceipt(text []byte) (Receipt, error) {
	var r Receipt
	invalid := fault.New(fault.Invalid, "erasure.receipt_invalid", "this is not the text of a receipt; compare the document with another copy")
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 || lines[0] != receiptFormat {
		return r, invalid
	}
	var err error
	if r.Number, err = strconv.ParseUint(lines[1], 10, 64); err != nil || r.Number == 0 {
		return r, invalid
	}
	if n, err := hex.Decode(r.Previous[:], []byte(lines[2])[:min(len(lines[2]), 64)]); err != nil || n != len(r.Previous) {
		return r, invalid
	}
	r.TenantID = lines[3]
	if r.RequestID, err = event.ParseID(lines[4]); err != nil {
		return r, invalid
	}
	if r.At, err = time.Parse(timeFormat, lines[5]); err != nil {
		return r, invalid
	}
	for _, line := range lines[6 : len(lines)-1] {
		k, ok := parseKeyLine(strings.Split(line, " "))
		if !ok {
			return r, invalid
		}
		r.Keys = append(r.Keys, k)
	}
	if !bytes.Equal(r.Text(), text) {
		return r, invalid
	}
	return r, nil
}

func parseKeyLine(words []string) (k ports.ReplayKey, ok bool) {
	if len(words) < 3 {
		return k, false
	}
	p, err := strconv.ParseUint(words[0], 10, 32)
	if err != nil {
		return k, false
	}
	k.Partition = event.PartitionID(p)
	if k.Class, err = shredding.ParseKeyClass(words[1]); err != nil {
		return k, false
	}
	if k.Subject, err = shredding.ParseSubject(words[2]); err != nil {
		return k, false
	}
	for _, word := range words[3:] {
		f, ok := shredding.ParseFingerprint(word)
		if !ok {
			return k, false
		}
		k.Fingerprints = append(k.Fingerprints, f)
	}
	return k, true
}

// noteHash is the hash of a receipt that the next receipt, the event and the certificate
// hold.
func noteHash(note []byte) event.Hash { return sha256.Sum256(note) }

// issueReceipt signs the receipt of a destruction, stores it in the register and exports it.
// It waits for the receipt before, whose hash it holds. It never signs a stored receipt again,
// even if the signing key was replaced.
func (c Config) issueReceipt(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	d, r, err := c.Register.DestroyErasure(ctx, r.ID, nil) // repeated, it returns the first destruction
	if err != nil {
		return r, err
	}
	if r.State != shredding.ErasureDestroyed {
		return r, nil // another worker has moved it on
	}
	note, err := c.storedReceipt(ctx, d.Receipt)
	if err != nil {
		return r, err
	}
	if note == nil {
		if !d.PreviousKnown {
			return r, waitFor("erasure.receipt_order") // the receipt before is not signed yet
		}
		text := receiptOf(r, d).Text()
		if note, err = c.Notes.SignNote(ctx, text); err != nil {
			return r, err
		}
		if err := c.Register.SaveReceipt(ctx, d.Receipt, note, false); err != nil {
			if note = c.noteStoredFirst(ctx, d.Receipt, err); note == nil {
				return r, err
			}
		}
	}
	if err := c.Exports.PutIfAbsent(ctx, ReceiptName(d.Receipt), note); err != nil {
		return r, err
	}
	if err := c.Register.SaveReceipt(ctx, d.Receipt, note, true); err != nil {
		return r, err
	}
	r.State = shredding.ErasureReceipted
	return c.move(ctx, r)
}

// noteStoredFirst returns the note that another worker stored first; nil if err has another
// cause. The two notes differ if the signing key was replaced in between.
func (c Config) noteStoredFirst(ctx context.Context, number uint64, err error) []byte {
	if fault.CodeOf(err) != "erasure.receipt_changed" {
		return nil
	}
	note, _ := c.storedReceipt(ctx, number)
	return note
}

// storedReceipt returns the note of a receipt, nil if it is not signed yet.
func (c Config) storedReceipt(ctx context.Context, number uint64) ([]byte, error) {
	found, err := c.Register.Receipts(ctx, number, 1)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 || found[0].Number != number {
		return nil, fault.New(fault.Internal, "erasure.receipt_missing", "receipt %d is not in the register; run `backbone erasure replay`", number)
	}
	if len(found[0].Note) == 0 {
		return nil, nil
	}
	return found[0].Note, nil
}
