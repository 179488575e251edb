package verify

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// announcement is the data of the event of a redaction.
type announcement struct {
	ID      string         `json:"redaction_id"`
	EventID string         `json:"event_id"`
	Target  event.Sequence `json:"sequence"`
	Old     string         `json:"old_payload_hash"`
	New     string         `json:"new_payload_hash"`
	place   event.Sequence // of the event itself
}

// sighting is what was seen of an event whose payload needs an explanation.
type sighting struct {
	id       event.ID
	skeleton event.Hash // the hash in the skeleton
	stored   event.Hash // of the payload
}

// maxSightings bounds what is kept for the end; beyond it a payload that does not
// fit counts as tampered with at once. There are far fewer redactions in any log.
const maxSightings = 100_000

// redactions holds against each other what the records say, what the events say and
// what is stored. A payload may differ from its skeleton only if all three agree.
type redactions struct {
	records   map[event.Sequence][]ports.Redaction // by redacted event
	first     map[event.ID]bool                    // those that were there when the run began
	announced map[string]announcement              // by id of the redaction
	repeated  []announcement                       // a second event of one redaction
	seen      map[event.Sequence]sighting
	overflow  []event.Sequence
}

// know takes the records as they are before the events are read.
func (r *redactions) know(records []ports.Redaction) {
	r.records, r.first, r.announced, r.seen = map[event.Sequence][]ports.Redaction{}, map[event.ID]bool{}, map[string]announcement{}, map[event.Sequence]sighting{}
	for _, x := range records {
		r.first[x.ID] = true
	}
	r.learn(records)
}

// learn takes the records again, as they are now.
func (r *redactions) learn(records []ports.Redaction) {
	clear(r.records)
	for _, x := range records {
		r.records[x.Sequence] = append(r.records[x.Sequence], x)
	}
}

// saw keeps an event if its payload is not the skeleton's or ought not to be.
func (r *redactions) saw(e *event.Recorded, stored event.Hash) {
	if stored == e.PayloadHash && len(r.records[e.Sequence]) == 0 {
		return
	}
	if len(r.seen) == maxSightings {
		r.overflow = append(r.overflow, e.Sequence)
		return
	}
	r.seen[e.Sequence] = sighting{e.ID, e.PayloadHash, stored}
}

func (r *redactions) announce(a announcement) {
	if _, twice := r.announced[a.ID]; twice {
		r.repeated = append(r.repeated, a)
		return
	}
	r.announced[a.ID] = a
}

// unexplained reports whether a redaction in these minutes could explain more than
// is known by now.
func (r *redactions) unexplained() bool {
	for n := range r.seen {
		if len(r.records[n]) == 0 {
			return true
		}
	}
	for _, records := range r.records {
		for _, x := range records {
			if _, ok := r.announced[x.ID.String()]; !ok {
				return true
			}
		}
	}
	for id := range r.announced {
		if !r.recorded(id) {
			return true
		}
	}
	return false
}

func (r *redactions) recorded(id string) bool {
	for _, records := range r.records {
		for _, x := range records {
			if x.ID.String() == id {
				return true
			}
		}
	}
	return false
}

// abort reports the payloads that no record explains, when the events that tell of
// redactions could not all be read.
func (r *redactions) abort(report *EntityReport) {
	for _, n := range slices.Sorted(maps.Keys(r.seen)) {
		if s := r.seen[n]; len(r.records[n]) == 0 && s.stored != s.skeleton {
			report.add(Finding{Kind: PayloadMismatch, Sequence: n, EventID: s.id.String(), Detail: unrecorded})
		}
	}
}

const unrecorded = "the payload's hash is not the one in the skeleton, and no redaction is on record"

// judge reports the redactions that agree and every payload and record that does not.
func (r *redactions) judge(report *EntityReport) {
	add := func(kind FindingKind, n event.Sequence, id, detail string) {
		report.add(Finding{Kind: kind, Sequence: n, EventID: id, Detail: detail})
	}
	sequences := slices.Collect(maps.Keys(r.seen))
	for n := range r.records {
		if _, ok := r.seen[n]; !ok {
			sequences = append(sequences, n)
		}
	}
	slices.Sort(sequences)
	for _, n := range sequences {
		if records := r.records[n]; len(records) > 0 {
			r.judgeEvent(report, n, records, add)
		} else if s := r.seen[n]; s.stored != s.skeleton {
			add(PayloadMismatch, n, s.id.String(), unrecorded)
		}
	}
	for _, n := range r.overflow {
		add(PayloadMismatch, n, "", "the payload's hash is not the one in the skeleton")
	}
	ids := slices.Sorted(maps.Keys(r.announced))
	for _, id := range ids {
		if !r.recorded(id) {
			add(RedactionUnrecorded, r.announced[id].place, "", "the event tells of a redaction that is not on record")
		}
	}
	for _, a := range r.repeated {
		add(RedactionMismatch, a.place, "", "a second event tells of the same redaction")
	}
	slices.SortFunc(report.Redactions, func(a, b Redaction) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), a.RedactedAt.Compare(b.RedactedAt))
	})
}

// judgeEvent follows the redactions of one event from the hash in the skeleton to the
// one of the stored payload.
func (r *redactions) judgeEvent(report *EntityReport, n event.Sequence, records []ports.Redaction, add func(FindingKind, event.Sequence, string, string)) {
	s, seen := r.seen[n]
	if !seen {
		// It was read before it was redacted, or it is not there, which is a finding of its own.
		for _, x := range records {
			if r.first[x.ID] {
				add(RedactionMismatch, n, x.EventID.String(), "a redaction is on record of an event without payload")
			}
		}
		return
	}
	reached, sound := s.skeleton, []Redaction{}
	for left := slices.Clone(records); len(left) > 0; {
		i := slices.IndexFunc(left, func(x ports.Redaction) bool { return x.OldPayloadHash == reached })
		if i < 0 {
			add(RedactionMismatch, n, s.id.String(), fmt.Sprintf("redaction %s does not begin with the payload that the log vouches for", left[0].ID))
			return
		}
		x := left[i]
		left = slices.Delete(left, i, i+1)
		said, ok := r.announced[x.ID.String()]
		switch {
		case !ok:
			add(RedactionUnannounced, n, s.id.String(), fmt.Sprintf("no event tells of redaction %s; if it was interrupted, `backbone redact run` completes it", x.ID))
			return
		case x.EventID != s.id || said.EventID != s.id.String() || said.Target != n ||
			said.Old != hex.EncodeToString(x.OldPayloadHash[:]) || said.New != hex.EncodeToString(x.NewPayloadHash[:]):
			add(RedactionMismatch, n, s.id.String(), fmt.Sprintf("record and event of redaction %s do not agree", x.ID))
			return
		}
		reached = x.NewPayloadHash
		sound = append(sound, Redaction{
			ID: x.ID.String(), Sequence: n, EventID: s.id.String(), Pointers: x.Pointers, Reason: x.Reason,
			RequestedBy: x.RequestedBy, ApprovedBy: x.ApprovedBy, RedactedAt: x.RedactedAt, AnnouncedIn: said.place,
		})
	}
	if s.stored != reached {
		add(PayloadMismatch, n, s.id.String(), "the payload is not the one that its redaction left")
		return
	}
	report.Redactions = append(report.Redactions, sound...)
}
