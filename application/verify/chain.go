package verify

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// The event types of erasures and redactions.
const (
	subjectErased   = "pii.subject.erased"
	payloadRedacted = "pii.payload.redacted"
)

// chain checks the events of one partition, from a store or an export file.
type chain struct {
	report     *EntityReport
	entity     ports.LegalEntity
	head       ports.Head // as it was when the run began; zero for an export file
	earlier    *Head      // exported earlier; nil: none
	passed     bool       // the chain has reached the sequence of the earlier head
	previous   event.Hash
	unlinked   bool // the event before is unreadable
	last       event.Recorded
	buffer     []byte
	redactions redactions
	begun      uint64   // events up to the head that begin a stream
	keys       *keyRows // nil for an export file, which has no rows of keys

	logName     string
	comparisons []comparison
	latest      bool                      // comparisons note events after those that the run checks
	lost        []event.Sequence          // of events whose archived payload cannot be read
	restored    map[string]event.Sequence // by stream of a range: the newest event that says that its payloads came back
}

func newChain(r *run, report *EntityReport, le ports.LegalEntity, genesis event.Hash) *chain {
	c := &chain{report: report, entity: le, logName: r.logName, previous: event.GenesisChecksum(r.logName, le.Partition)}
	c.comparisons = []comparison{papers{}}
	if le.IsAdministrative() {
		c.comparisons = comparisons(r)
	}
	if genesis != c.previous {
		c.add(GenesisMismatch, 0, "the stored genesis checksum is not that of this log name and partition")
	}
	if r.reference != nil {
		if r.reference.logName != r.logName {
			c.add(LogNameChanged, 0, "the exported heads are those of a log of another name")
		}
		if c.earlier = r.reference.of(le.Partition); c.earlier != nil {
			report.Reference = &c.earlier.Sequence
			c.compareHead(0, c.previous)
		}
	}
	return c
}

func (c *chain) add(kind FindingKind, n event.Sequence, detail string) {
	c.report.add(Finding{Kind: kind, Sequence: n, Detail: detail})
}

// compareHead compares the checksum at a sequence with the earlier head, if it is of that
// sequence.
func (c *chain) compareHead(n event.Sequence, checksum event.Hash) {
	if c.earlier == nil || n != c.earlier.Sequence {
		return
	}
	c.passed = true
	if hex.EncodeToString(checksum[:]) != c.earlier.Checksum {
		c.add(HeadMismatch, n, "the checksum is not the one that was exported earlier: the checksums up to here were recomputed")
	}
}

// check checks the next event: sequence, scope, time, payload hash, sealed values, checksum
// and head. rows are its rows about persons; rowsKnown is false for an event that was
// appended after the run began, whose rows were not read.
func (c *chain) check(e *event.Recorded, rows []ports.PersonalRow, rowsKnown bool) {
	r := c.report
	found := func(kind FindingKind, format string, args ...any) {
		r.add(Finding{Kind: kind, Sequence: e.Sequence, EventID: e.ID.String(), Detail: fmt.Sprintf(format, args...)})
	}
	if e.Sequence != r.Head+1 {
		found(SequenceGap, "sequence %d follows %d", e.Sequence, r.Head)
	}
	if e.Scope.TenantID != c.entity.TenantID || e.Scope.LegalEntity != c.entity.Code {
		found(ForeignScope, "the event's scope is not that of its partition")
	}
	if e.RecordedAt.Before(c.last.RecordedAt) {
		found(TimeBackwards, "recorded earlier than the event before it")
	}
	damaged := e.Payload == nil
	switch {
	case e.Payload == nil && e.Archived: // checkSegments reports it
		if len(c.lost) < maxLost {
			c.lost = append(c.lost, e.Sequence)
		}
		if len(c.redactions.records[e.Sequence]) > 0 {
			c.redactions.lost[e.Sequence] = true
		}
	case e.Payload == nil:
		found(PayloadMissing, "the event has no payload")
	default:
		if e.Archived {
			r.Archived++
		}
		stored := event.HashPayload(e.Salt, e.Payload)
		c.redactions.note(e, stored)
		if c.keys != nil {
			damaged = stored != e.PayloadHash && len(c.redactions.records[e.Sequence]) == 0
			c.keys.note(c, e, damaged)
		}
		if stored == e.PayloadHash {
			c.readAnnouncement(e, found)
			for _, comparison := range c.comparisons {
				comparison.note(c, e)
			}
		}
		c.checkSealed(e, rows, rowsKnown, found)
	}
	var sum event.Hash
	sum, c.buffer = e.ChainChecksum(c.previous, c.buffer)
	if sum != e.Checksum && !c.unlinked {
		found(ChecksumMismatch, "the checksum is not that of this skeleton after the checksum before it")
		damaged = true
	}
	if c.keys != nil && damaged {
		c.keys.damage(e.Sequence)
	}
	if e.Sequence == c.head.Sequence && e.Checksum != c.head.Checksum {
		found(ChecksumMismatch, "the checksum is not the one that the head of the log had when the run began")
	}
	c.compareHead(e.Sequence, e.Checksum)
	// Continue from the stored checksum, so that later damage is found by itself.
	c.previous, c.unlinked = e.Checksum, false
	r.Events++
	r.Head, r.Checksum = e.Sequence, hex.EncodeToString(e.Checksum[:])
	c.last = *e
}

// unreadable notes an event that the store cannot read.
func (c *chain) unreadable(n event.Sequence) {
	c.add(EventUnreadable, n, "a column holds a value that cannot be read")
	c.report.Events++
	c.report.Head, c.unlinked = n, true
}

// readAnnouncement collects the data of an event of an erasure or redaction.
func (c *chain) readAnnouncement(e *event.Recorded, found func(FindingKind, string, ...any)) {
	switch e.Type {
	case subjectErased:
		var erased Erasure
		if !decodeData(e, &erased) {
			found(AnnouncementUnreadable, "the event of an erasure cannot be read")
			return
		}
		erased.Sequence = e.Sequence
		c.report.Erasures = append(c.report.Erasures, erased)
	case payloadsRestored:
		if c.restored == nil {
			c.restored = map[string]event.Sequence{}
		}
		c.restored[e.Stream.ID] = e.Sequence
	case payloadRedacted:
		var a announcement
		if !decodeData(e, &a) {
			found(AnnouncementUnreadable, "the event of a redaction cannot be read")
			return
		}
		a.place = e.Sequence
		c.redactions.announce(a)
	}
}

// decodeData reads the data of a payload.
func decodeData(e *event.Recorded, to any) bool {
	body, err := e.Body()
	return err == nil && json.Unmarshal(body.Data, to) == nil
}

// checkSealed checks the form of sealed values and that the rows about persons name each
// person of the event, since an erasure finds the event by them.
func (c *chain) checkSealed(e *event.Recorded, rows []ports.PersonalRow, rowsKnown bool, found func(FindingKind, string, ...any)) {
	if !shredding.HasSealed(e.Payload) && len(e.PII) == 0 && len(rows) == 0 {
		return
	}
	want, err := sealedBy(e.Payload)
	if err != nil {
		found(SealedMalformed, "a sealed value has not the form of one")
		return
	}
	sealed, declared := 0, true
	for _, pointers := range want {
		sealed += len(pointers)
		for _, p := range pointers {
			_, ok := e.PII[p]
			declared = declared && ok
		}
	}
	c.report.Sealed += uint64(sealed)
	declared = declared && sealed == len(e.PII)
	if !declared {
		found(SealedMalformed, "the skeleton names other personal fields than the payload has sealed")
	}
	if !rowsKnown {
		return
	}
	for _, row := range rows {
		k := personKey{row.Subject, row.KeyClass}
		pointers, ok := want[k]
		if !ok || !sameSet(pointers, row.Pointers) {
			found(PersonalRowExtra, "a row names a person or fields that the payload has not sealed")
		}
		delete(want, k)
	}
	for range want {
		found(PersonalRowMissing, "no row names a person whose values the payload has sealed: an erasure would not find this event")
	}
}

// personKey is a key of a person.
type personKey struct {
	subject string
	class   uint8
}

// sealedBy lists the places of a document's sealed values by the key they are sealed with.
func sealedBy(document []byte) (map[personKey][]string, error) {
	sealed, err := shredding.FindSealed(document)
	if err != nil {
		return nil, err
	}
	out := map[personKey][]string{}
	for _, s := range sealed {
		header, err := s.Envelope.Header()
		if err != nil {
			return nil, err
		}
		k := personKey{s.Subject.String(), uint8(header.Class)}
		out[k] = append(out[k], s.Pointer)
	}
	return out, nil
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// abort reports the findings that hold although the chain could not be read to its end.
func (c *chain) abort() {
	c.redactions.abort(c.report)
	c.report.sort()
}

// finish reports the findings that need the whole chain.
func (c *chain) finish() {
	defer c.report.sort()
	c.redactions.finish(c.report)
	if c.earlier != nil && !c.passed {
		if c.earlier.Sequence > c.report.Head {
			c.add(HeadBeyondEnd, c.report.Head+1, fmt.Sprintf("the log ends at %d, but a head of %d was exported earlier: the end was cut off, or the database was restored to an earlier state", c.report.Head, c.earlier.Sequence))
		} else {
			c.add(HeadMismatch, c.earlier.Sequence, "the event of the exported head does not exist")
		}
	}
}
