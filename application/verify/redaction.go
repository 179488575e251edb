package verify

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

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

	RequestedBy string `json:"requested_by"`
	ApprovedBy  string `json:"approved_by"`

	place event.Sequence // of the event itself
}

// suspect is an event whose payload only a redaction can explain.
type suspect struct {
	id       event.ID
	skeleton event.Hash // the hash in the skeleton
	stored   event.Hash // of the payload
	marks    []event.ID // of the redactions that readers of the event are told
}

// maxSuspects bounds the suspects in memory. Further payloads with a wrong hash are reported
// without looking for a redaction. A log has far fewer redactions.
const maxSuspects = 100_000

// redactions compares the records of redactions, their requests, their events and the stored
// payloads. The hash of a payload may differ from the skeleton's only if all four agree.
type redactions struct {
	records    map[event.Sequence][]ports.Redaction // by redacted event
	recorded   map[string]bool                      // ids of records
	initial    map[event.ID]bool                    // records that existed when the run began
	announced  map[string]announcement              // by id of the redaction
	repeated   []announcement                       // a second event of one redaction
	suspects   map[event.Sequence]suspect
	overflow   []event.Sequence
	lost       map[event.Sequence]bool // events whose archived payload cannot be read
	ungrounded bool                    // the records come without requests and events without marks: an export file of format 1
}

// init sets the records as they are before the events are read.
func (r *redactions) init(records []ports.Redaction) {
	r.records, r.initial, r.announced, r.suspects, r.lost = map[event.Sequence][]ports.Redaction{}, map[event.ID]bool{}, map[string]announcement{}, map[event.Sequence]suspect{}, map[event.Sequence]bool{}
	for _, x := range records {
		r.initial[x.ID] = true
	}
	r.setRecords(records)
}

// setRecords replaces the records with those that the store has now.
func (r *redactions) setRecords(records []ports.Redaction) {
	clear(r.records)
	r.recorded = map[string]bool{}
	for _, x := range records {
		r.records[x.Sequence] = append(r.records[x.Sequence], x)
		r.recorded[x.ID.String()] = true
	}
}

// note keeps an event as a suspect if its payload's hash is not the skeleton's, or if there
// are records of its redaction.
func (r *redactions) note(e *event.Recorded, stored event.Hash) {
	if stored == e.PayloadHash && len(r.records[e.Sequence]) == 0 && len(e.Redactions) == 0 {
		return
	}
	if len(r.suspects) == maxSuspects {
		r.overflow = append(r.overflow, e.Sequence)
		return
	}
	s := suspect{id: e.ID, skeleton: e.PayloadHash, stored: stored}
	for _, x := range e.Redactions {
		s.marks = append(s.marks, x.RequestID)
	}
	r.suspects[e.Sequence] = s
}

func (r *redactions) announce(a announcement) {
	if _, twice := r.announced[a.ID]; twice {
		r.repeated = append(r.repeated, a)
		return
	}
	r.announced[a.ID] = a
}

// hasUnexplained reports whether a suspect, record or event lacks its counterpart, which a
// redaction during the run could have added since.
func (r *redactions) hasUnexplained() bool {
	for n := range r.suspects {
		if len(r.records[n]) == 0 {
			return true
		}
	}
	for id := range r.recorded {
		if _, ok := r.announced[id]; !ok {
			return true
		}
	}
	for id := range r.announced {
		if !r.recorded[id] {
			return true
		}
	}
	return false
}

// abort reports the payloads that no record explains, if not all events could be read.
func (r *redactions) abort(report *EntityReport) {
	for _, n := range slices.Sorted(maps.Keys(r.suspects)) {
		if s := r.suspects[n]; len(r.records[n]) == 0 && s.stored != s.skeleton {
			report.add(Finding{Kind: PayloadMismatch, Sequence: n, EventID: s.id.String(), Detail: unrecorded})
		}
	}
}

const unrecorded = "the payload's hash is not the one in the skeleton, and there is no record of a redaction"

// finish reports the redactions that agree and every payload and record that does not.
func (r *redactions) finish(report *EntityReport) {
	add := func(kind FindingKind, n event.Sequence, id, detail string) {
		report.add(Finding{Kind: kind, Sequence: n, EventID: id, Detail: detail})
	}
	sequences := slices.Collect(maps.Keys(r.suspects))
	for n := range r.records {
		if _, ok := r.suspects[n]; !ok {
			sequences = append(sequences, n)
		}
	}
	slices.Sort(sequences)
	for _, n := range sequences {
		if records := r.records[n]; len(records) > 0 {
			r.checkEvent(report, n, records, add)
		} else if s := r.suspects[n]; s.stored != s.skeleton {
			add(PayloadMismatch, n, s.id.String(), unrecorded)
		} else if len(s.marks) > 0 {
			add(RedactionUnrecorded, n, s.id.String(), "readers of the event are told of a redaction that has no record")
		}
	}
	for _, n := range r.overflow {
		add(PayloadMismatch, n, "", "the payload's hash is not the one in the skeleton")
	}
	ids := slices.Sorted(maps.Keys(r.announced))
	for _, id := range ids {
		if !r.recorded[id] {
			add(RedactionUnrecorded, r.announced[id].place, "", "the event announces a redaction that has no record")
		}
	}
	for _, a := range r.repeated {
		add(RedactionMismatch, a.place, "", "a second event announces the same redaction")
	}
	slices.SortFunc(report.Redactions, func(a, b Redaction) int {
		return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), a.RedactedAt.Compare(b.RedactedAt))
	})
}

// checkEvent follows the redactions of one event from the hash in the skeleton to that of
// the stored payload.
func (r *redactions) checkEvent(report *EntityReport, n event.Sequence, records []ports.Redaction, add func(FindingKind, event.Sequence, string, string)) {
	s, found := r.suspects[n]
	if !found {
		// The event was read before its redaction, or its payload is missing or lost, which another check reports.
		for _, x := range records {
			if r.initial[x.ID] && !r.lost[n] {
				add(RedactionMismatch, n, x.EventID.String(), "there is a record of a redaction, but the event has no payload")
			}
		}
		return
	}
	reached, sound := s.skeleton, []Redaction{}
	for left := slices.Clone(records); len(left) > 0; {
		i := slices.IndexFunc(left, func(x ports.Redaction) bool { return x.OldPayloadHash == reached })
		if i < 0 {
			add(RedactionMismatch, n, s.id.String(), fmt.Sprintf("the old hash in the record of redaction %s is neither the skeleton's nor that of an earlier redaction", left[0].ID))
			return
		}
		x := left[i]
		left = slices.Delete(left, i, i+1)
		a, ok := r.announced[x.ID.String()]
		switch {
		case !ok:
			add(RedactionUnannounced, n, s.id.String(), fmt.Sprintf("no event announces redaction %s; if it was interrupted, the server completes it", x.ID))
			return
		case x.EventID != s.id || a.EventID != s.id.String() || a.Target != n ||
			a.Old != hex.EncodeToString(x.OldPayloadHash[:]) || a.New != hex.EncodeToString(x.NewPayloadHash[:]) ||
			a.RequestedBy != x.RequestedBy || a.ApprovedBy != x.ApprovedBy:
			add(RedactionMismatch, n, s.id.String(), fmt.Sprintf("record and event of redaction %s do not agree", x.ID))
			return
		case !r.ungrounded && !isGrounded(x):
			add(RedactionUnapproved, n, s.id.String(), fmt.Sprintf("there is no request of two persons for redaction %s as it was carried out", x.ID))
			return
		case !r.ungrounded && !slices.Contains(s.marks, x.ID):
			add(RedactionMismatch, n, s.id.String(), fmt.Sprintf("readers of the event are not told of redaction %s", x.ID))
			return
		}
		reached = x.NewPayloadHash
		sound = append(sound, Redaction{
			ID: x.ID.String(), Sequence: n, EventID: s.id.String(), Pointers: x.Pointers, Reason: x.Reason,
			RequestedBy: x.RequestedBy, ApprovedBy: x.ApprovedBy, RedactedAt: x.RedactedAt, AnnouncedIn: a.place,
		})
	}
	if s.stored != reached {
		add(PayloadMismatch, n, s.id.String(), "the payload's hash is not the new hash of its last redaction")
		return
	}
	if !r.ungrounded && len(s.marks) != len(records) {
		add(RedactionMismatch, n, s.id.String(), "readers of the event are told of other redactions than are recorded")
		return
	}
	report.Redactions = append(report.Redactions, sound...)
}

// isGrounded reports whether a redaction is what two persons requested and approved.
func isGrounded(x ports.Redaction) bool {
	q := x.Request
	return q != nil && q.State.CarriedOut() && q.Sequence == x.Sequence && q.EventID == x.EventID && slices.Equal(q.Pointers, x.Pointers) &&
		q.RequestedBy == x.RequestedBy && q.ApprovedBy == x.ApprovedBy && q.ApprovedBy != "" && !strings.EqualFold(q.RequestedBy, q.ApprovedBy)
}
