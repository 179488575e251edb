package query

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// CursorSealer signs positions so that clients cannot forge them or use them for another
// query. Format: base64url(u8 version ‖ u64 after ‖ u64 until ‖ checksum prefix ‖ first 17
// bytes of HMAC-SHA-256(key, tenant ‖ query digest ‖ all before)), which is a whole number
// of base64 groups, so that every cursor has one encoding only.
type CursorSealer struct{ macs sync.Pool } // of hash.Hash, keyed

// NewCursorSealer makes a sealer; every node of a deployment needs the same key.
func NewCursorSealer(key []byte) *CursorSealer {
	key = append([]byte(nil), key...)
	return &CursorSealer{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// Position is the last sequence of a page and the head that the query is pinned to.
type Position struct {
	After event.Sequence
	Until event.Sequence
	// ChecksumPrefix is the first bytes of the checksum of the event at Until. A checksum
	// commits to all events before it, so a cursor that was made before a failover lost the
	// end of the log is detected, even if other events have its sequences now.
	ChecksumPrefix [8]byte
}

const (
	cursorVersion  = 2
	positionBytes  = 1 + 8 + 8 + 8
	cursorBytes    = positionBytes + cursorMACBytes
	cursorMACBytes = 17
	textMACBytes   = 16
)

func (c *CursorSealer) mac(tenantID string, digest []byte, body []byte, size int) []byte {
	h := c.macs.Get().(hash.Hash) // pooled, because a live feed makes a cursor per event and keying costs more than hashing
	defer c.macs.Put(h)
	h.Reset()
	var n [4]byte
	for _, part := range [][]byte{[]byte(tenantID), digest, body} {
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write(part)
	}
	return h.Sum(nil)[:size]
}

// Seal makes a cursor of a position.
func (c *CursorSealer) Seal(tenantID string, digest []byte, p Position) string {
	body := make([]byte, positionBytes, cursorBytes)
	body[0] = cursorVersion
	binary.BigEndian.PutUint64(body[1:], uint64(p.After))
	binary.BigEndian.PutUint64(body[9:], uint64(p.Until))
	copy(body[17:], p.ChecksumPrefix[:])
	return base64.RawURLEncoding.EncodeToString(append(body, c.mac(tenantID, digest, body, cursorMACBytes)...))
}

func malformedCursorFault() *fault.Error {
	return fault.New(fault.Invalid, "cursor.malformed", "this is not a cursor; use next_cursor of the page before, unchanged").WithField("cursor")
}

// Open checks a cursor. Faults: cursor.malformed, cursor.foreign.
func (c *CursorSealer) Open(cursor, tenantID string, digest []byte) (Position, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) != cursorBytes || b[0] != cursorVersion {
		return Position{}, malformedCursorFault()
	}
	body, mac := b[:positionBytes], b[positionBytes:]
	if !hmac.Equal(mac, c.mac(tenantID, digest, body, cursorMACBytes)) {
		return Position{}, foreignCursorFault()
	}
	p := Position{After: event.Sequence(binary.BigEndian.Uint64(body[1:])), Until: event.Sequence(binary.BigEndian.Uint64(body[9:]))}
	copy(p.ChecksumPrefix[:], body[17:])
	return p, nil
}

// SealText makes a cursor of a text that its reader may know.
func (c *CursorSealer) SealText(tenantID string, digest []byte, text string) string {
	if text == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(c.mac(tenantID, digest, []byte(text), textMACBytes), text...))
}

// OpenText checks and reads a cursor made by SealText. Faults as Open.
func (c *CursorSealer) OpenText(cursor, tenantID string, digest []byte) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < textMACBytes+1 {
		return "", malformedCursorFault()
	}
	if !hmac.Equal(b[:textMACBytes], c.mac(tenantID, digest, b[textMACBytes:], textMACBytes)) {
		return "", foreignCursorFault()
	}
	return string(b[textMACBytes:]), nil
}

// SealEncrypted is SealText for a text that the client must not read, such as positions in
// logs of other tenants. Format: base64url(mac ‖ AES-256-CTR of the text with the mac as
// its IV), so the same text always gives the same cursor.
func (c *CursorSealer) SealEncrypted(tenantID string, digest []byte, text string) string {
	mac := c.mac(tenantID, digest, []byte(text), textMACBytes)
	return base64.RawURLEncoding.EncodeToString(append(mac, c.encrypt(mac, []byte(text))...))
}

// OpenEncrypted checks and reads a cursor made by SealEncrypted. Faults as Open.
func (c *CursorSealer) OpenEncrypted(cursor, tenantID string, digest []byte) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < textMACBytes+1 {
		return "", malformedCursorFault()
	}
	text := c.encrypt(b[:textMACBytes], b[textMACBytes:])
	if !hmac.Equal(b[:textMACBytes], c.mac(tenantID, digest, text, textMACBytes)) {
		return "", foreignCursorFault()
	}
	return string(text), nil
}

// encrypt encrypts a text, or decrypts it.
func (c *CursorSealer) encrypt(mac, text []byte) []byte {
	block, err := aes.NewCipher(c.mac("", []byte("cursor/hidden"), nil, 32))
	if err != nil {
		panic(err) // unreachable: the key has 32 bytes
	}
	out := make([]byte, len(text))
	cipher.NewCTR(block, mac).XORKeyStream(out, text)
	return out
}

// OpenFeed reads the positions in a cursor of a feed of all legal entities. Faults:
// cursor.malformed, cursor.foreign.
func (c *CursorSealer) OpenFeed(cursor, tenantID string) ([]ports.FeedMark, error) {
	_, marks, err := c.openMarks(cursor, tenantID, []byte(allDigest))
	if err != nil {
		return nil, err
	}
	out := make([]ports.FeedMark, len(marks))
	for i, m := range marks {
		out[i] = ports.FeedMark{Partition: m.Partition, After: m.After, ChecksumPrefix: m.ChecksumPrefix}
	}
	return out, nil
}

// openMarks reads the marks in a cursor. Faults: cursor.malformed, cursor.foreign.
func (c *CursorSealer) openMarks(cursor, tenantID string, digest []byte) (lastServed event.PartitionID, marks []mark, err error) {
	text, err := c.OpenText(cursor, tenantID, digest)
	if err != nil {
		return 0, nil, err
	}
	lastServed, marks, ok := decodeMarks(text)
	if !ok {
		return 0, nil, malformedCursorFault()
	}
	return lastServed, marks, nil
}

func foreignCursorFault() *fault.Error {
	return fault.New(fault.Invalid, "cursor.foreign", "this cursor belongs to another query; start that query again without a cursor").WithField("cursor")
}

// selectionDigest identifies a selection, without cursor, limit and access.
func selectionDigest(sel Selection) []byte {
	sel.Cursor, sel.Limit, sel.Readable, sel.Administrative, sel.ModuleTypes = "", 0, nil, false, nil
	sel.Filter.After, sel.Filter.Until, sel.Filter.Limit = 0, 0, 0
	b, err := json.Marshal(sel)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// sortByRecording sorts events of several legal entities by time of recording. Events of
// one legal entity stay in order of sequence, because its times never go backwards.
func sortByRecording(events []event.Recorded, d ports.Direction) {
	firstUnsorted := 1
	for firstUnsorted < len(events) && compareRecording(&events[firstUnsorted-1], &events[firstUnsorted], d) <= 0 {
		firstUnsorted++
	}
	if firstUnsorted >= len(events) {
		return // sorted already, as the events of one legal entity are
	}
	order := make([]*event.Recorded, len(events)) // sort pointers, because events are large
	for i := range events {
		order[i] = &events[i]
	}
	slices.SortFunc(order, func(a, b *event.Recorded) int { return compareRecording(a, b, d) })
	sorted := make([]event.Recorded, len(events))
	for i, e := range order {
		sorted[i] = *e
	}
	copy(events, sorted)
}

func compareRecording(a, b *event.Recorded, d ports.Direction) int {
	if d == ports.Backward {
		a, b = b, a
	}
	return cmp.Or(a.RecordedAt.Compare(b.RecordedAt), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
}

func formatSequence(n event.Sequence) string { return "seq:" + strconv.FormatUint(uint64(n), 10) }

func parseSequence(s string) (event.Sequence, bool) {
	rest, ok := strings.CutPrefix(s, "seq:")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 63)
	return event.Sequence(n), err == nil
}
