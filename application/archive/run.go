package archive

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Result says what a run did.
type Result struct {
	Segments int    `json:"segments"`
	Payloads uint64 `json:"payloads"`    // that left the database
	Stayed   uint64 `json:"stayed"`      // that were looked at and stay
	Lines    uint64 `json:"lines_bytes"` // of the payloads, in their files before compression
	Stored   uint64 `json:"stored_bytes"`
}

// Progress says how far a run is: events of one legal entity that it looked at.
type Progress func(le ports.LegalEntity, done, total uint64)

// Run archives what a selection says, legal entity by legal entity. What was archived before an error or the end of ctx
// stays so, and the next run goes on after it. Faults: archive.projection_behind, those of the stores and of the appender.
func (a *Archiver) Run(ctx context.Context, s Selection, progress Progress) (Result, error) {
	var out Result
	before, err := a.before(s)
	if err != nil {
		return out, err
	}
	entities, err := a.entitiesOf(ctx, s)
	if err != nil {
		return out, err
	}
	if err := a.checkStore(ctx); err != nil {
		return out, err
	}
	for _, le := range entities {
		through, err := a.Log.SequenceAt(ctx, le.Partition, before.Add(-time.Microsecond))
		if err != nil {
			return out, err
		}
		if through == 0 {
			continue
		}
		if err := a.runEntity(ctx, le, through, &out, progress); err != nil {
			return out, err
		}
	}
	return out, nil
}

// checkStore requires that the store has files if the log has segments: else it is probably another one, or a folder whose
// share is not mounted. Fault archive.unavailable.
func (a *Archiver) checkStore(ctx context.Context) error {
	sizes, err := a.Register.ArchiveSizes(ctx)
	if err != nil {
		return err
	}
	for p := range sizes {
		names, err := a.Store.List(ctx, archive.Folder(p))
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return archive.Empty()
		}
	}
	return nil
}

func (a *Archiver) runEntity(ctx context.Context, le ports.LegalEntity, through event.Sequence, out *Result, progress Progress) error {
	behind, err := a.Register.ProjectionsBehind(ctx, le.Partition, through)
	if err != nil {
		return err
	}
	if len(behind) > 0 {
		return fault.New(fault.FailedPrecondition, archive.CodeProjectionBehind, "the projections %s have not read legal entity %s up to there; look at `backbone projections`, and archive when they have", strings.Join(behind, ", "), le.Code)
	}
	l, err := a.take(ctx, le)
	if err != nil {
		return err
	}
	defer l.release(ctx)
	if err := a.sweep(ctx, l, le); err != nil {
		return err
	}
	subjects, err := a.heldSubjects(ctx, le)
	if err != nil {
		return err
	}
	held, redacted, err := a.staying(ctx, le, subjects, through)
	if err != nil {
		return err
	}
	gaps, err := a.gaps(ctx, le.Partition, through)
	if err != nil {
		return err
	}
	r := &entityRun{archiver: a, le: le, lease: l, heldSubjects: subjects, out: out}
	for _, g := range gaps {
		r.begin(g.first)
		for after := g.first - 1; after < g.last; {
			page, err := a.Log.ChainPage(ctx, le.Partition, after, int(min(readPage, g.last-after)))
			if err != nil {
				return err
			}
			if len(page) == 0 {
				return fault.New(fault.Internal, "archive.event_missing", "legal entity %s lacks the event after %d; run backbone verify", le.Code, after)
			}
			for i := range page {
				e := &page[i]
				after = e.Sequence
				stays := e.Payload == nil || e.Archived || eventtype.Reserved(e.Type) || a.StaysOnline(e.Tags) || held[e.Sequence] || redacted[e.Sequence]
				if err := r.add(ctx, e, stays); err != nil {
					return err
				}
			}
			progress(le, uint64(after), uint64(through))
		}
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readPage is how many events are read at a time.
const readPage = 500

// entityRun collects the records of the next segment.
type entityRun struct {
	archiver     *Archiver
	le           ports.LegalEntity
	lease        *lease
	heldSubjects map[string]bool // when the run began
	out          *Result

	first, last event.Sequence // the range so far
	events      []event.Recorded
	bytes       int
}

// begin begins a range.
func (r *entityRun) begin(first event.Sequence) {
	r.first, r.last, r.events, r.bytes = first, first-1, nil, 0
}

// add takes the next event of the range, and archives the range when it is full.
func (r *entityRun) add(ctx context.Context, e *event.Recorded, stays bool) error {
	record := recordOf(e)
	if !stays && (len(r.events) == archive.MaxRecords || len(r.events) > 0 && r.bytes+record.LineBytes() > archive.MaxBytes) {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	r.last = e.Sequence
	if stays {
		r.out.Stayed++
		return nil
	}
	r.events, r.bytes = append(r.events, *e), r.bytes+record.LineBytes()
	return nil
}

func recordOf(e *event.Recorded) archive.Record {
	return archive.Record{Sequence: e.Sequence, EventID: e.ID, Salt: e.Salt, Payload: e.Payload, Redactions: e.Redactions}
}

// flush archives the range and begins the next one.
func (r *entityRun) flush(ctx context.Context) error {
	redactions, err := r.archiver.Log.Redactions(ctx, r.le.Partition)
	if err != nil {
		return err
	}
	events, states, err := r.independent(ctx)
	if err != nil {
		return err
	}
	r.out.Stayed += uint64(len(r.events) - len(events))
	if len(events) > 0 {
		if err := r.requireNoNewHold(ctx); err != nil {
			return err
		}
		if err := r.archive(ctx, events, states, len(redactions)); err != nil {
			return err
		}
	}
	r.begin(r.last + 1)
	return nil
}

// requireNoNewHold ends the run if a hold was placed since it began: the payloads of its subject are to stay. Fault
// archive.hold_placed.
func (r *entityRun) requireNoNewHold(ctx context.Context) error {
	subjects, err := r.archiver.heldSubjects(ctx, r.le)
	if err != nil {
		return err
	}
	for subject := range subjects {
		if !r.heldSubjects[subject] {
			return archive.HoldPlaced()
		}
	}
	return nil
}

// independent folds the states of what the events concern, and returns the events that these replace.
func (r *entityRun) independent(ctx context.Context) (events []event.Recorded, states []archive.State, err error) {
	a := r.archiver
	replaced := map[string]bool{} // by key of the state
	add := func(key string, fold func() (archive.State, bool, error)) (bool, error) {
		if found, known := replaced[key]; known {
			return found, nil
		}
		s, found, err := fold()
		if err != nil {
			return false, err
		}
		if replaced[key] = found; found && s.Key != "" {
			states = append(states, s)
		}
		return found, nil
	}
	for i := range r.events {
		e := &r.events[i]
		if i%renewEvery == 0 {
			if err := r.lease.renew(ctx); err != nil {
				return nil, nil, err
			}
		}
		covered, err := add(archive.StreamKey(e.Stream), func() (archive.State, bool, error) {
			s, needed, found, err := a.States.StreamState(ctx, r.le, e.Stream, r.last)
			return s, found || !needed, err
		})
		if err != nil {
			return nil, nil, err
		}
		body, err := e.Body()
		if err != nil {
			continue // verification reports it
		}
		for _, ref := range body.EntityRefs {
			found, err := add(ref.Key(), func() (archive.State, bool, error) { return a.States.EntityState(ctx, r.le, ref.Type, ref.ID, r.last) })
			if err != nil {
				return nil, nil, err
			}
			covered = covered && found
		}
		if covered {
			events = append(events, *e)
		}
	}
	return events, states, nil
}

// archive stores the segment, reads it back, records its manifest in the log, and lets the database exchange the payloads
// for the states.
func (r *entityRun) archive(ctx context.Context, events []event.Recorded, states []archive.State, redactions int) error {
	a := r.archiver
	leaving := ports.LeavingPayloads{Partition: r.le.Partition, Term: r.lease.term, Redactions: redactions}
	records := make([]archive.Record, len(events))
	for i := range events {
		records[i] = recordOf(&events[i])
		leaving.Sequences = append(leaving.Sequences, events[i].Sequence)
	}
	for i := range states {
		leaving.StateKeys = append(leaving.StateKeys, states[i].Key)
	}
	var err error
	if leaving.States, err = a.States.Pages(ctx, r.le, r.first, states); err != nil {
		return err
	}
	object, manifest, err := archive.Encode(r.le.Partition, r.first, r.last, records)
	if err != nil {
		return err
	}
	if err := r.lease.renew(ctx); err != nil {
		return err
	}
	_, err = a.Store.Get(ctx, manifest.Object)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	isNew := err != nil
	if err := a.Store.PutIfAbsent(ctx, manifest.Object, object); err != nil {
		return err
	}
	if err := a.checkStored(ctx, r.le.Partition, manifest); err != nil {
		return err
	}
	if leaving.Manifest, err = a.recordManifest(ctx, r.le, manifest); err != nil {
		return err
	}
	if err := r.lease.renew(ctx); err != nil {
		return err
	}
	if err := a.Payloads.ArchivePayloads(ctx, leaving); err != nil {
		if code := fault.CodeOf(err); isNew && (code == archive.CodeRedacting || code == archive.CodeContentChanged) {
			// A redaction came in between: the file must not keep what it replaces. No segment, of now or before, has the file.
			err = errors.Join(err, a.Store.Delete(ctx, manifest.Object))
		}
		return err
	}
	a.Logger.InfoContext(ctx, "payloads were archived", "legal_entity", r.le.Code, "first_sequence", uint64(manifest.First), "last_sequence", uint64(manifest.Last),
		"payloads", manifest.Records, "object", manifest.Object, "bytes", manifest.Bytes)
	r.out.Segments++
	r.out.Payloads += uint64(len(events))
	r.out.Lines += uint64(manifest.Lines)
	r.out.Stored += uint64(manifest.Bytes)
	return nil
}

// checkStored reads a file back and compares it with its manifest. Fault archive.object_damaged.
func (a *Archiver) checkStored(ctx context.Context, p event.PartitionID, m archive.Manifest) error {
	segment := ports.ArchivedSegment{Partition: p, Object: m.Object}
	if _, err := hex.Decode(segment.Digest[:], []byte(m.Digest)); err != nil {
		return err
	}
	records, err := a.Files.read(ctx, segment)
	if err != nil {
		return err
	}
	if content := archive.ContentHash(p, records); hex.EncodeToString(content[:]) != m.Content {
		return archive.ObjectDamaged()
	}
	return nil
}

// streamOf is the stream of a range.
func streamOf(first, last event.Sequence) event.StreamID {
	return event.StreamID{Type: streamType, ID: fmt.Sprintf("%d-%d", uint64(first), uint64(last))}
}

// newestOf reads the newest event about a range; nil: there is none.
func (a *Archiver) newestOf(ctx context.Context, p event.PartitionID, stream event.StreamID) (*event.Recorded, error) {
	found, _, err := a.Log.ReadStream(ctx, ports.StreamQuery{Partition: p, Stream: stream, Direction: ports.Backward, Limit: 1})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// recordManifest appends the event with a manifest, unless a run that was killed has, and returns its sequence.
func (a *Archiver) recordManifest(ctx context.Context, le ports.LegalEntity, m archive.Manifest) (event.Sequence, error) {
	stream := streamOf(m.First, m.Last)
	newest, err := a.newestOf(ctx, le.Partition, stream)
	if err != nil {
		return 0, err
	}
	if newest != nil && newest.Type == PayloadsArchived {
		var known archive.Manifest
		if body, err := newest.Body(); err == nil && json.Unmarshal(body.Data, &known) == nil && known == m {
			return newest.Sequence, nil
		}
	}
	return a.append(ctx, le, PayloadsArchived, stream, newest, m)
}

// append appends an event about a range after the newest one.
func (a *Archiver) append(ctx context.Context, le ports.LegalEntity, name string, stream event.StreamID, newest *event.Recorded, data any) (event.Sequence, error) {
	version := event.Version(0)
	if newest != nil {
		version = newest.StreamVersion
	}
	now := a.Clock.Now()
	return a.Append(ctx, le, event.Draft{
		Type: name, SchemaVersion: 1, OccurredAt: event.Micros(now), EffectiveDate: le.Today(now), Stream: stream, CorrelationID: "archive-" + stream.ID,
		Data: data, Source: event.Source{System: "backbone", Channel: "archive"},
	}, version)
}

// Restore brings the payloads of the segments of a range back into the database, last included. Their files stay in the
// archive. Faults: archive.segment_not_found, those of ports.ArchivedPayloads, of the stores and of the appender.
func (a *Archiver) Restore(ctx context.Context, le ports.LegalEntity, first, last event.Sequence, reason string, progress Progress) (Result, error) {
	var out Result
	var segments []ports.ArchivedSegment
	for s, err := range a.segments(ctx, le.Partition) {
		if err != nil {
			return out, err
		}
		if s.First > last {
			break
		}
		if s.Last >= first {
			segments = append(segments, s)
		}
	}
	if len(segments) == 0 {
		return out, archive.SegmentNotFound()
	}
	for i, s := range segments {
		progress(le, uint64(i), uint64(len(segments)))
		if err := a.restore(ctx, le, s, reason); err != nil {
			return out, err
		}
		out.Segments++
		out.Payloads += uint64(s.Records)
	}
	return out, nil
}

func (a *Archiver) restore(ctx context.Context, le ports.LegalEntity, s ports.ArchivedSegment, reason string) error {
	records, err := a.Files.Records(ctx, s)
	if err != nil {
		return err
	}
	stream := streamOf(s.First, s.Last)
	newest, err := a.newestOf(ctx, le.Partition, stream)
	if err != nil {
		return err
	}
	if newest == nil || newest.Type != PayloadsRestored { // else a restoration that was killed has appended it
		if _, err := a.append(ctx, le, PayloadsRestored, stream, newest, restored{s.First, s.Last, reason}); err != nil {
			return err
		}
	}
	missing, err := a.Payloads.RestorePayloads(ctx, s, records)
	if err == nil && missing > 0 {
		a.Logger.WarnContext(ctx, "payloads of a segment are in no file of the archive and stay missing; run backbone verify", "legal_entity", le.Code, "first_sequence", uint64(s.First), "missing", missing)
	}
	return err
}
