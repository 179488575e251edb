package eventlog

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Every wants the payloads of all events.
func Every(*event.Recorded) bool { return true }

// ofTypes wants the payloads of events of the types, of all if there are none.
func ofTypes(types []string) func(*event.Recorded) bool {
	if len(types) == 0 {
		return Every
	}
	return func(e *event.Recorded) bool { return slices.Contains(types, e.Type) }
}

// FillArchived gives events that were read without a payload the one that they have in the archive. An event that has none
// there either stays without. Payloads that were read are counted against bytes as in ports.EventQuery; cut reports that
// events were left out. All events are of one partition.
func (s *Reader) FillArchived(ctx context.Context, db eventlogdb.DBTX, events []event.Recorded, bytes int, wanted func(*event.Recorded) bool) (filled []event.Recorded, cut bool, err error) {
	archived, err := s.archivedAmong(ctx, db, events, wanted)
	if err != nil || archived == nil {
		return events, false, err
	}
	left := bytes
	for i := range events {
		e := &events[i]
		if e.Payload == nil && wanted(e) {
			if err := archived.fill(ctx, e); err != nil {
				return nil, false, err
			}
		}
		if left -= len(e.Payload); bytes > 0 && left < 0 && i > 0 {
			return events[:i], true, nil
		}
	}
	return events, false, nil
}

// FillForAudit is FillArchived of everything for verification: an event whose file is missing or damaged is Archived and
// has no payload.
func (s *Reader) FillForAudit(ctx context.Context, db eventlogdb.DBTX, events []event.Recorded) ([]event.Recorded, error) {
	archived, err := s.archivedAmong(ctx, db, events, Every)
	if err != nil || archived == nil {
		return events, err
	}
	archived.isAudit = true
	lost := map[string]bool{} // files
	for i := range events {
		e := &events[i]
		if e.Payload != nil {
			continue
		}
		segment, _ := archived.segmentOf(e.Sequence)
		if !lost[segment.Object] {
			err = archived.fill(ctx, e)
			code := fault.CodeOf(err)
			if lost[segment.Object] = code == archive.CodeObjectDamaged || code == archive.CodeObjectMissing; code == archive.CodePayloadLost {
				err = nil // it has no payload
			}
		}
		switch {
		case lost[segment.Object]:
			e.Archived = true
		case err != nil:
			return nil, err
		}
	}
	return events, nil
}

// archivedAmong finds where the payloads are that are missing among events and wanted; nil if none is.
func (s *Reader) archivedAmong(ctx context.Context, db eventlogdb.DBTX, events []event.Recorded, wanted func(*event.Recorded) bool) (*archived, error) {
	var missing []int64
	for i := range events {
		if e := &events[i]; e.Payload == nil && wanted(e) {
			missing = append(missing, int64(e.Sequence))
		}
	}
	if len(missing) == 0 {
		return nil, nil
	}
	a, err := s.archivedOf(ctx, db, events[0].Partition, missing)
	if err != nil {
		return nil, err
	}
	return a, a.readBack(ctx, missing)
}

// archived finds payloads of a partition that are not in the database.
type archived struct {
	reader    *Reader
	db        eventlogdb.DBTX
	partition event.PartitionID
	segments  []ports.ArchivedSegment // by their ranges
	restored  map[event.Sequence]eventlogdb.ListPayloadsBySequenceRow
	isAudit   bool // the files as they are now

	current ports.ArchivedSegment // whose records were read last
	records []archive.Record
}

func (s *Reader) archivedOf(ctx context.Context, db eventlogdb.DBTX, p event.PartitionID, sequences []int64) (*archived, error) {
	rows, err := s.queries.ListSegmentsOfEvents(ctx, db, &eventlogdb.ListSegmentsOfEventsParams{PartitionID: int32(p), Sequences: sequences})
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	a := &archived{reader: s, db: db, partition: p, segments: make([]ports.ArchivedSegment, len(rows))}
	for i, r := range rows {
		a.segments[i] = ports.ArchivedSegment{
			Partition: p, First: event.Sequence(r.FirstSequence), Last: event.Sequence(r.LastSequence), Event: event.Sequence(r.EventSequence),
			Records: int(r.Records), Object: r.Object, ArchivedAt: r.ArchivedAt.UTC(),
		}
		copy(a.segments[i].Digest[:], r.ObjectDigest)
	}
	return a, nil
}

// segmentOf returns the segment whose range has a sequence.
func (a *archived) segmentOf(n event.Sequence) (ports.ArchivedSegment, bool) {
	i := slices.IndexFunc(a.segments, func(s ports.ArchivedSegment) bool { return s.First <= n && n <= s.Last })
	if i < 0 {
		return ports.ArchivedSegment{}, false
	}
	return a.segments[i], true
}

// readBack reads the payloads of sequences that no segment has again: a segment may have been restored after they were
// missed.
func (a *archived) readBack(ctx context.Context, sequences []int64) error {
	outside := slices.DeleteFunc(slices.Clone(sequences), func(n int64) bool {
		_, found := a.segmentOf(event.Sequence(n))
		return found
	})
	if len(outside) == 0 {
		return nil
	}
	rows, err := a.reader.queries.ListPayloadsBySequence(ctx, a.db, &eventlogdb.ListPayloadsBySequenceParams{PartitionID: int32(a.partition), Sequences: outside})
	if err != nil {
		return pg.Translate(ctx, err)
	}
	a.restored = make(map[event.Sequence]eventlogdb.ListPayloadsBySequenceRow, len(rows))
	for _, r := range rows {
		a.restored[event.Sequence(r.Sequence)] = r
	}
	return nil
}

// find returns the record of an event; nil if the archive has none. Faults: those of ports.ArchivedPayloads, and
// archive.not_configured.
func (a *archived) find(ctx context.Context, n event.Sequence) (*archive.Record, error) {
	segment, found := a.segmentOf(n)
	if !found {
		return nil, nil
	}
	if segment.Object != a.current.Object {
		files := a.reader.db.Config.Archive
		if files == nil {
			return nil, archive.NotConfigured()
		}
		read := files.Records
		if a.isAudit {
			read = files.FreshRecords
		}
		records, err := read(ctx, segment)
		if err != nil {
			return nil, err
		}
		a.current, a.records = segment, records
	}
	i, found := slices.BinarySearchFunc(a.records, n, func(r archive.Record, n event.Sequence) int { return int(int64(r.Sequence) - int64(n)) })
	if !found {
		return nil, nil
	}
	return &a.records[i], nil
}

// fillRestored gives an event of a segment whose file does not have its payload the one in the database: the segment may
// have been restored since it was missed. Fault archive.payload_lost.
func (a *archived) fillRestored(ctx context.Context, e *event.Recorded) error {
	if _, found := a.segmentOf(e.Sequence); !found {
		return nil
	}
	rows, err := a.reader.queries.ListPayloadsBySequence(ctx, a.db, &eventlogdb.ListPayloadsBySequenceParams{PartitionID: int32(a.partition), Sequences: []int64{int64(e.Sequence)}})
	if err != nil {
		return pg.Translate(ctx, err)
	}
	if len(rows) == 0 {
		return archive.PayloadLost()
	}
	return fillFrom(e, rows[0])
}

func fillFrom(e *event.Recorded, row eventlogdb.ListPayloadsBySequenceRow) (err error) {
	copy(e.Salt[:], row.Salt)
	e.Payload = row.Payload
	if e.Redactions, err = DecodeRedactions(row.Redactions); err != nil {
		return UndecodableFault(e.ID)
	}
	return nil
}

// fill gives an event its payload, if there is one.
func (a *archived) fill(ctx context.Context, e *event.Recorded) error {
	if row, found := a.restored[e.Sequence]; found {
		return fillFrom(e, row)
	}
	r, err := a.find(ctx, e.Sequence)
	if err != nil {
		return err
	}
	if r == nil || len(r.Redactions) == 0 && r.Hash() != e.PayloadHash {
		return a.fillRestored(ctx, e)
	}
	// The caller may change the payload, and the records are shared.
	e.Salt, e.Payload, e.Redactions, e.Archived = r.Salt, slices.Clone(r.Payload), slices.Clone(r.Redactions), true
	return nil
}
