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

// Cursors seals positions so that clients cannot forge them or use them for
// another question. Format: base64url(u8 version ‖ u64 after ‖ u64 until ‖ witness
// ‖ first 17 bytes of HMAC-SHA-256(key, tenant ‖ query digest ‖ all before)), which
// is a whole number of base64 groups, so that no text has a second spelling.
type Cursors struct{ macs sync.Pool } // of hash.Hash, keyed

// NewCursors makes a sealer; every node of a deployment needs the same key.
func NewCursors(key []byte) *Cursors {
	key = append([]byte(nil), key...)
	return &Cursors{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// Position is where a page ended and which head the query is pinned to.
type Position struct {
	After event.Sequence
	Until event.Sequence
	// Witness is the beginning of the checksum of the event at Until. A checksum
	// commits to everything before it, so after a failover that lost the tail the
	// cursor is found to speak of another log, whatever stands at its sequences now.
	Witness [8]byte
}

const (
	cursorVersion = 2
	positionBytes = 1 + 8 + 8 + 8
	cursorBytes   = positionBytes + cursorMAC
	cursorMAC     = 17
	textMAC       = 16
)

func (c *Cursors) mac(tenantID string, digest []byte, body []byte, size int) []byte {
	h := c.macs.Get().(hash.Hash) // a live feed makes a cursor per event; keying costs more than hashing
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

// Seal makes a cursor.
func (c *Cursors) Seal(tenantID string, digest []byte, p Position) string {
	body := make([]byte, positionBytes, cursorBytes)
	body[0] = cursorVersion
	binary.BigEndian.PutUint64(body[1:], uint64(p.After))
	binary.BigEndian.PutUint64(body[9:], uint64(p.Until))
	copy(body[17:], p.Witness[:])
	return base64.RawURLEncoding.EncodeToString(append(body, c.mac(tenantID, digest, body, cursorMAC)...))
}

func malformedCursor() *fault.Error {
	return fault.New(fault.Invalid, "cursor.malformed", "this is not a cursor; use next_cursor of the page before, unchanged").WithField("cursor")
}

// Open checks a cursor. Faults: cursor.malformed, cursor.foreign.
func (c *Cursors) Open(cursor, tenantID string, digest []byte) (Position, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) != cursorBytes || b[0] != cursorVersion {
		return Position{}, malformedCursor()
	}
	body, mac := b[:positionBytes], b[positionBytes:]
	if !hmac.Equal(mac, c.mac(tenantID, digest, body, cursorMAC)) {
		return Position{}, foreignCursor()
	}
	p := Position{After: event.Sequence(binary.BigEndian.Uint64(body[1:])), Until: event.Sequence(binary.BigEndian.Uint64(body[9:]))}
	copy(p.Witness[:], body[17:])
	return p, nil
}

// SealText makes a cursor of a source's own text.
func (c *Cursors) SealText(tenantID string, digest []byte, text string) string {
	if text == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(c.mac(tenantID, digest, []byte(text), textMAC), text...))
}

// OpenText checks a cursor made by SealText.
func (c *Cursors) OpenText(cursor, tenantID string, digest []byte) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < 17 {
		return "", malformedCursor()
	}
	if !hmac.Equal(b[:16], c.mac(tenantID, digest, b[16:], textMAC)) {
		return "", foreignCursor()
	}
	return string(b[16:]), nil
}

// SealHidden is SealText for a text that says what its bearer may not read, such as
// positions in logs of others. Format: base64url(mac ‖ AES-256-CTR of the text with the
// mac as its beginning), so the same text always gives the same cursor.
func (c *Cursors) SealHidden(tenantID string, digest []byte, text string) string {
	mac := c.mac(tenantID, digest, []byte(text), textMAC)
	return base64.RawURLEncoding.EncodeToString(append(mac, c.hide(mac, []byte(text))...))
}

// OpenHidden checks and reads a cursor made by SealHidden.
func (c *Cursors) OpenHidden(cursor, tenantID string, digest []byte) (string, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(b) < textMAC+1 {
		return "", malformedCursor()
	}
	text := c.hide(b[:textMAC], b[textMAC:])
	if !hmac.Equal(b[:textMAC], c.mac(tenantID, digest, text, textMAC)) {
		return "", foreignCursor()
	}
	return string(text), nil
}

// hide turns a text into what nobody else can read, and back.
func (c *Cursors) hide(mac, text []byte) []byte {
	block, err := aes.NewCipher(c.mac("", []byte("cursor/hidden"), nil, 32))
	if err != nil {
		panic(err) // only for a key of another size
	}
	out := make([]byte, len(text))
	cipher.NewCTR(block, mac).XORKeyStream(out, text)
	return out
}

// OpenFeed reads where a cursor of a feed of all legal entities stands. Faults:
// cursor.malformed, cursor.foreign.
func (c *Cursors) OpenFeed(cursor, tenantID string) ([]ports.FeedMark, error) {
	text, err := c.OpenText(cursor, tenantID, []byte(allDigest))
	if err != nil {
		return nil, err
	}
	_, marks, ok := decodeMarks(text)
	if !ok {
		return nil, malformedCursor()
	}
	out := make([]ports.FeedMark, len(marks))
	for i, m := range marks {
		out[i] = ports.FeedMark{Partition: m.Partition, After: m.After, Witness: m.Witness}
	}
	return out, nil
}

func foreignCursor() *fault.Error {
	return fault.New(fault.Invalid, "cursor.foreign", "this cursor belongs to another query; start that query again without a cursor").WithField("cursor")
}

// digestOf identifies a selection apart from cursor and limit.
func digestOf(sel Selection) []byte {
	sel.Cursor, sel.Limit, sel.Readable, sel.ModuleTypes = "", 0, nil, nil
	sel.Filter.After, sel.Filter.Until, sel.Filter.Limit = 0, 0, 0
	b, err := json.Marshal(sel)
	if err != nil {
		return nil
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// sortByRecording puts events of several legal entities in one order. Within one it
// is the order of its sequences, because times of recording never go backwards.
func sortByRecording(events []event.Recorded, d ports.Direction) {
	turned := 1 // the first event that comes too late
	for turned < len(events) && byRecording(&events[turned-1], &events[turned], d) <= 0 {
		turned++
	}
	if turned >= len(events) {
		return // of one legal entity
	}
	order := make([]*event.Recorded, len(events)) // events are large; only pointers are moved about
	for i := range events {
		order[i] = &events[i]
	}
	slices.SortFunc(order, func(a, b *event.Recorded) int { return byRecording(a, b, d) })
	sorted := make([]event.Recorded, len(events))
	for i, e := range order {
		sorted[i] = *e
	}
	copy(events, sorted)
}

func byRecording(a, b *event.Recorded, d ports.Direction) int {
	if d == ports.Backward {
		a, b = b, a
	}
	if c := a.RecordedAt.Compare(b.RecordedAt); c != 0 {
		return c
	}
	if c := cmp.Compare(a.Partition, b.Partition); c != 0 {
		return c
	}
	return cmp.Compare(a.Sequence, b.Sequence)
}

func seqText(n event.Sequence) string { return "seq:" + strconv.FormatUint(uint64(n), 10) }

func parseSeq(s string) (event.Sequence, bool) {
	rest, ok := strings.CutPrefix(s, "seq:")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(rest, 10, 63)
	return event.Sequence(n), err == nil
}
