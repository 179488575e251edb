package eventlog

import (
	"context"
	"iter"
	"math"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Audit reads the rows that verification compares: the chain of a partition, its redactions,
// and the rows about persons and streams that appends derive from events.
type Audit struct {
	db      *pg.Database
	queries *eventlogdb.Queries
	events  *Reader
}

var (
	_ ports.ChainReader = (*Audit)(nil)
	_ ports.ChainAudit  = (*Audit)(nil)
)

// NewAudit makes the reader that verification uses.
func NewAudit(db *pg.Database, events *Reader) *Audit {
	return &Audit{db: db, queries: eventlogdb.New(), events: events}
}

// ChainPage implements ports.ChainReader. A limit of 0 reads to the end.
func (s *Audit) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	events, err := s.events.eventsAfter(ctx, s.db.Reads, p, after, limit, nil)
	if err != nil {
		return nil, err
	}
	return s.events.FillForAudit(ctx, s.db.Reads, events)
}

// Redactions implements ports.RedactionReader.
func (s *Audit) Redactions(ctx context.Context, p event.PartitionID) ([]ports.Redaction, error) {
	return listRedactions(ctx, s.queries, s.db.Reads, p)
}

// RedactionRequests implements ports.RedactionReader.
func (s *Audit) RedactionRequests(ctx context.Context, tenantID string, states []shredding.RedactionState, limit int) ([]ports.RedactionRequest, error) {
	return listRedactionRequests(ctx, s.queries, s.db.Reads, tenantID, states, limit)
}

// CountEvents implements ports.ChainAudit.
func (s *Audit) CountEvents(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error) {
	n, err := s.queries.CountEventsUntil(ctx, s.db.Reads, &eventlogdb.CountEventsUntilParams{PartitionID: int32(p), Until: int64(until)})
	if err != nil {
		return 0, pg.Translate(ctx, err)
	}
	return uint64(n), nil
}

// ExtraPayloads implements ports.ChainAudit.
func (s *Audit) ExtraPayloads(ctx context.Context, p event.PartitionID, limit int) ([]event.Sequence, error) {
	rows, err := s.queries.ListExtraPayloads(ctx, s.db.Reads, &eventlogdb.ListExtraPayloadsParams{PartitionID: int32(p), PageSize: pg.PageSize(limit)})
	return pg.MapRows(ctx, rows, err, func(n *int64) event.Sequence { return event.Sequence(*n) })
}

// PersonalRows implements ports.ChainAudit. It uses a connection until the iteration ends.
func (s *Audit) PersonalRows(ctx context.Context, p event.PartitionID, until event.Sequence) iter.Seq2[ports.PersonalRow, error] {
	return readRows(ctx, s.db.Reads, func(rows pgx.Rows) (out ports.PersonalRow, err error) {
		var r eventlogdb.ListEventPIISubjectsRow
		err = rows.Scan(&r.Sequence, &r.SubjectID, &r.Class, &r.Paths)
		return ports.PersonalRow{Sequence: event.Sequence(r.Sequence), Subject: r.SubjectID, KeyClass: uint8(r.Class), Pointers: r.Paths}, err
	}, eventlogdb.ListEventPIISubjects, int32(p), int64(until))
}

// PersonalKeys implements ports.ChainAudit.
func (s *Audit) PersonalKeys(ctx context.Context, p event.PartitionID, after ports.PersonalKey, limit int) ([]ports.PersonalKey, error) {
	rows, err := s.queries.ListPersonalKeys(ctx, s.db.Reads, &eventlogdb.ListPersonalKeysParams{
		PartitionID: int32(p), AfterSubjectID: after.Subject.String(), AfterClass: int16(after.KeyClass), PageSize: pg.PageSize(limit),
	})
	return pg.MapRows(ctx, rows, err, func(r *eventlogdb.ListPersonalKeysRow) ports.PersonalKey {
		return ports.PersonalKey{Subject: shredding.Subject(r.SubjectID), KeyClass: shredding.KeyClass(r.Class), First: event.Sequence(r.First)}
	})
}

// EventKeys implements ports.ChainAudit. It uses a connection until the iteration ends.
func (s *Audit) EventKeys(ctx context.Context, p event.PartitionID, from, through event.Sequence) iter.Seq2[ports.EventKey, error] {
	return readRows(ctx, s.db.Reads, func(rows pgx.Rows) (k ports.EventKey, err error) {
		var n int64
		err = rows.Scan(&n, &k.TypeNumber, &k.Key)
		k.Sequence = event.Sequence(n)
		return k, err
	}, eventlogdb.ListEventKeys, keyRange(p, from, through)...)
}

// BusinessKeys implements ports.ChainAudit. It uses a connection until the iteration ends.
func (s *Audit) BusinessKeys(ctx context.Context, p event.PartitionID, from, through event.Sequence) iter.Seq2[ports.ClaimedKey, error] {
	return readRows(ctx, s.db.Reads, func(rows pgx.Rows) (k ports.ClaimedKey, err error) {
		var n int64
		var id pgtype.UUID
		err = rows.Scan(&n, &id, &k.EventType, &k.Key, &k.Document)
		k.Sequence, k.EventID = event.Sequence(n), id.Bytes
		return k, err
	}, eventlogdb.ListClaimedKeys, keyRange(p, from, through)...)
}

// RequestKeys implements ports.ChainAudit. It uses a connection until the iteration ends.
func (s *Audit) RequestKeys(ctx context.Context, p event.PartitionID) iter.Seq2[ports.RequestKey, error] {
	return readRows(ctx, s.db.Reads, func(rows pgx.Rows) (k ports.RequestKey, err error) {
		var first int64
		var id pgtype.UUID
		err = rows.Scan(&k.Key, &k.StoredHash, &id, &first, &k.EventCount, &k.ExpiresAt, &k.Bound)
		k.First, k.IntentID = event.Sequence(first), id.Bytes
		return k, err
	}, eventlogdb.ListRequestKeys, int32(p))
}

// NumberSeries implements ports.ChainAudit.
func (s *Audit) NumberSeries(ctx context.Context, p event.PartitionID) ([]ports.NumberSeries, error) {
	rows, err := s.queries.ListNumberSeriesOf(ctx, s.db.Reads, int32(p))
	return pg.MapRows(ctx, rows, err, func(r *eventlogdb.ListNumberSeriesOfRow) ports.NumberSeries {
		return ports.NumberSeries{Series: r.Series, Next: uint64(r.NextNumber), UnboundThrough: uint64(r.UnboundThrough)}
	})
}

// Readers implements ports.ChainAudit.
func (s *Audit) Readers(ctx context.Context, p event.PartitionID) ([]ports.LogReader, error) {
	rows, err := s.queries.ListReaders(ctx, s.db.Reads, int32(p))
	return pg.MapRows(ctx, rows, err, func(r *eventlogdb.ListReadersRow) ports.LogReader {
		return ports.LogReader{Name: r.Reader, Sequence: event.Sequence(r.Sequence)}
	})
}

// DeliveryDamage implements ports.ChainAudit.
func (s *Audit) DeliveryDamage(ctx context.Context, p event.PartitionID, limit int) ([]ports.DeliveryDamage, error) {
	rows, err := s.queries.ListDeliveryDamage(ctx, s.db.Reads, &eventlogdb.ListDeliveryDamageParams{PartitionID: int32(p), PageSize: pg.PageSize(limit)})
	return pg.MapRows(ctx, rows, err, func(r *eventlogdb.ListDeliveryDamageRow) ports.DeliveryDamage {
		return ports.DeliveryDamage{Subscription: r.Subscription, Sequence: event.Sequence(r.Sequence), Damage: r.Damage}
	})
}

// UnlistedPartitions implements ports.ChainAudit.
func (s *Audit) UnlistedPartitions(ctx context.Context) ([]event.PartitionID, error) {
	ids, err := s.queries.ListUnlistedPartitions(ctx, s.db.Reads)
	return pg.MapRows(ctx, ids, err, func(id *int32) event.PartitionID { return event.PartitionID(*id) })
}

// keyRange is the parameters of the queries of rows of keys.
func keyRange(p event.PartitionID, from, through event.Sequence) []any {
	return []any{int32(p), from == 0 && through == math.MaxUint64, int64(from), int64(through)}
}

// readRows reads the rows of a query one by one. It uses a connection until the iteration ends.
func readRows[T any](ctx context.Context, db eventlogdb.DBTX, scan func(pgx.Rows) (T, error), query string, args ...any) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		rows, err := db.Query(ctx, query, args...)
		if err != nil {
			yield(none, pg.Translate(ctx, err))
			return
		}
		defer rows.Close()
		for rows.Next() {
			row, err := scan(rows)
			if err != nil {
				yield(none, pg.Translate(ctx, err))
				return
			}
			if !yield(row, nil) {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(none, pg.Translate(ctx, err))
		}
	}
}

// StreamRows implements ports.ChainAudit.
func (s *Audit) StreamRows(ctx context.Context, p event.PartitionID, streams []event.StreamID) ([]ports.StreamRow, error) {
	q := &eventlogdb.ListStreamRowsParams{PartitionID: int32(p), StreamTypes: make([]string, len(streams)), StreamIds: make([]string, len(streams))}
	for i, id := range streams {
		q.StreamTypes[i], q.StreamIds[i] = id.Type, id.ID
	}
	rows, err := s.queries.ListStreamRows(ctx, s.db.Reads, q)
	return pg.MapRows(ctx, rows, err, streamRowOf)
}

func streamRowOf(r *eventlogdb.ListStreamRowsRow) ports.StreamRow {
	return ports.StreamRow{
		Stream: event.StreamID{Type: r.StreamType, ID: r.StreamID}, First: event.Sequence(r.FirstSequence), Last: event.Sequence(r.LastSequence),
		StreamStatus: ports.StreamStatus{
			State: event.ParseStreamState(r.Lifecycle.String), Version: event.Version(r.Version), ReadableFrom: event.Version(r.ReadableFrom.Int64),
			Settings: r.Metadata, MetadataVersion: event.Version(r.MetadataVersion.Int64),
		},
	}
}

// endingTypes are the types of events after which a stream's row must have a lifecycle state.
var endingTypes = []string{stream.Deleted, stream.Tombstoned}

// StreamRowsWithEnds implements ports.ChainAudit. The database compares rows with their events
// and sends only rows that may differ, because nearly all agree.
func (s *Audit) StreamRowsWithEnds(ctx context.Context, p event.PartitionID, from event.StreamID, limit int) (ports.StreamRowPage, error) {
	rows, err := s.queries.ListStreamRowsWithEnds(ctx, s.db.Reads, &eventlogdb.ListStreamRowsWithEndsParams{
		PartitionID: int32(p), FromType: from.Type, FromID: from.ID, PageSize: pg.PageSize(limit), Endings: endingTypes,
	})
	if err != nil {
		return ports.StreamRowPage{}, pg.Translate(ctx, err)
	}
	var page ports.StreamRowPage
	for i := range rows {
		r := &rows[i]
		row := ports.StreamRowWithEnds{
			StreamRow: streamRowOf(&eventlogdb.ListStreamRowsRow{
				StreamType: r.StreamType, StreamID: r.StreamID, Version: r.Version, FirstSequence: r.FirstSequence, LastSequence: r.LastSequence,
				Lifecycle: r.Lifecycle, ReadableFrom: r.ReadableFrom, Metadata: r.Metadata, MetadataVersion: r.MetadataVersion,
			}),
			FirstEvent: event.Sequence(r.FirstEvent), LastEvent: event.Sequence(r.LastEvent), LastEventVersion: event.Version(r.LastEventVersion),
			LastEventType: r.LastEventType, MetadataEventType: r.MetadataEventType, ReadableEventType: r.ReadableEventType,
		}
		if r.NextPage {
			page.Next = row.Stream
		} else {
			page.Rows = append(page.Rows, row)
		}
	}
	return page, nil
}

// CountStreamRows implements ports.ChainAudit.
func (s *Audit) CountStreamRows(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error) {
	n, err := s.queries.CountStreamRows(ctx, s.db.Reads, &eventlogdb.CountStreamRowsParams{PartitionID: int32(p), Until: int64(until)})
	if err != nil {
		return 0, pg.Translate(ctx, err)
	}
	return uint64(n), nil
}

func listRedactions(ctx context.Context, queries *eventlogdb.Queries, pool *pgxpool.Pool, p event.PartitionID) ([]ports.Redaction, error) {
	rows, err := queries.ListRedactions(ctx, pool, int32(p))
	return pg.MapRows(ctx, rows, err, func(r *eventlogdb.ListRedactionsRow) ports.Redaction {
		out := ports.Redaction{
			ID: r.ID.Bytes, Partition: p, Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes, Pointers: r.Pointers, Reason: r.Reason,
			RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, RedactedAt: r.RedactedAt.UTC(),
			OldPayloadHash: hashOf(r.OldPayloadHash), NewPayloadHash: hashOf(r.NewPayloadHash),
		}
		if r.State.Valid {
			out.Request = &ports.RedactionGrounds{
				State: shredding.RedactionState(r.State.String), Sequence: event.Sequence(r.RequestSequence.Int64), EventID: r.RequestEventID.Bytes,
				Pointers: r.RequestPointers, RequestedBy: r.Requester.String, ApprovedBy: r.Approver.String,
			}
		}
		return out
	})
}

// hashOf converts a column of 32 bytes; any other length gives the zero hash, which no payload
// has.
func hashOf(b []byte) (h event.Hash) {
	if len(b) == len(h) {
		copy(h[:], b)
	}
	return h
}
