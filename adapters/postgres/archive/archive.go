// Package archive moves payloads out of the log's database and back. Register reads which segments are in the archive;
// Archiver connects as another role than nodes do, and calls the functions that alone may remove a payload.
package archive

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/archivedb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Register implements ports.ArchiveRegister.
type Register struct {
	db      *pg.Database
	queries *archivedb.Queries
}

var (
	_ ports.ArchiveRegister = (*Register)(nil)
	_ ports.ArchivedStates  = (*Register)(nil)
	_ ports.Archiver        = (*Archiver)(nil)
)

// NewRegister makes a Register over db.
func NewRegister(db *pg.Database) *Register { return &Register{db, archivedb.New()} }

// Segments implements ports.ArchiveRegister.
func (r *Register) Segments(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]ports.ArchivedSegment, error) {
	rows, err := r.queries.ListSegments(ctx, r.db.Reads, &archivedb.ListSegmentsParams{PartitionID: int32(p), After: int64(after), PageSize: pg.PageSize(limit)})
	return pg.MapRows(ctx, rows, err, func(s *archivedb.BackboneArchiveSegment) ports.ArchivedSegment {
		out := ports.ArchivedSegment{
			Partition: p, First: event.Sequence(s.FirstSequence), Last: event.Sequence(s.LastSequence), Event: event.Sequence(s.EventSequence),
			Records: int(s.Records), Object: s.Object, ArchivedAt: s.ArchivedAt.UTC(),
		}
		copy(out.Digest[:], s.ObjectDigest)
		return out
	})
}

// ArchiveSizes implements ports.ArchiveRegister.
func (r *Register) ArchiveSizes(ctx context.Context) (map[event.PartitionID]ports.ArchiveSize, error) {
	rows, err := r.queries.MeasureArchive(ctx, r.db.Reads)
	if err != nil {
		return nil, pg.Translate(ctx, err)
	}
	out := make(map[event.PartitionID]ports.ArchiveSize, len(rows))
	for _, s := range rows {
		out[event.PartitionID(s.PartitionID)] = ports.ArchiveSize{
			Segments: int(s.Segments), Records: uint64(s.Records), Last: event.Sequence(s.LastSequence), ArchivedAt: s.ArchivedAt.UTC(),
		}
	}
	return out, nil
}

// EntityRedactions implements ports.ArchivedStates.
func (r *Register) EntityRedactions(ctx context.Context, p event.PartitionID, key string, until event.Sequence) (uint64, error) {
	n, err := r.queries.CountEntityRedactions(ctx, r.db.Reads, &archivedb.CountEntityRedactionsParams{PartitionID: int32(p), Key: key, Until: int64(until)})
	return uint64(n), pg.Translate(ctx, err)
}

// EntityStatePage implements ports.ArchivedStates.
func (r *Register) EntityStatePage(ctx context.Context, p event.PartitionID, key string) (ports.ArchivedStatePage, bool, error) {
	row, err := r.queries.GetEntityStatePage(ctx, r.db.Reads, &archivedb.GetEntityStatePageParams{PartitionID: int32(p), Key: key})
	return statePage(ctx, p, row, err)
}

// StreamStatePage implements ports.ArchivedStates.
func (r *Register) StreamStatePage(ctx context.Context, p event.PartitionID, s event.StreamID) (ports.ArchivedStatePage, bool, error) {
	row, err := r.queries.GetStreamStatePage(ctx, r.db.Reads, &archivedb.GetStreamStatePageParams{
		PartitionID: int32(p), StreamType: s.Type, StreamID: s.ID, Key: archive.StreamKey(s),
	})
	return statePage(ctx, p, archivedb.GetEntityStatePageRow(row), err)
}

// StatePages implements ports.ArchivedStates.
func (r *Register) StatePages(ctx context.Context, p event.PartitionID, keys []string) ([]ports.ArchivedStatePage, error) {
	rows, err := r.queries.ListStatePages(ctx, r.db.Reads, &archivedb.ListStatePagesParams{PartitionID: int32(p), Keys: keys})
	return pg.MapRows(ctx, rows, err, func(row *archivedb.ListStatePagesRow) ports.ArchivedStatePage {
		page := archive.StatePage{FirstKey: row.FirstKey, Packed: row.Packed}
		return ports.ArchivedStatePage{Partition: p, Segment: event.Sequence(row.FirstSequence), StatePage: page, MAC: row.Mac}
	})
}

func statePage(ctx context.Context, p event.PartitionID, row archivedb.GetEntityStatePageRow, err error) (ports.ArchivedStatePage, bool, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.ArchivedStatePage{}, false, nil
	}
	page := archive.StatePage{FirstKey: row.FirstKey, Packed: row.Packed}
	return ports.ArchivedStatePage{Partition: p, Segment: event.Sequence(row.FirstSequence), StatePage: page, MAC: row.Mac}, err == nil, pg.Translate(ctx, err)
}

// ProjectionsBehind implements ports.ArchiveRegister.
func (r *Register) ProjectionsBehind(ctx context.Context, p event.PartitionID, through event.Sequence) ([]string, error) {
	rows, err := r.queries.ListProjectionsBehind(ctx, r.db.Reads, &archivedb.ListProjectionsBehindParams{PartitionID: int32(p), Through: int64(through)})
	return pg.MapRows(ctx, rows, err, func(p *archivedb.ListProjectionsBehindRow) string { return p.Name })
}

// Archiver implements ports.Archiver as the role backbone_eraser.
type Archiver struct {
	pool    *pgxpool.Pool
	queries *archivedb.Queries
}

// OpenArchiver connects as the eraser. Faults: store.dsn_invalid, store.unavailable.
func OpenArchiver(ctx context.Context, eraserDSN string) (*Archiver, error) {
	pool, err := pg.OpenEraser(ctx, eraserDSN, "backbone archive")
	if err != nil {
		return nil, err
	}
	return &Archiver{pool, archivedb.New()}, nil
}

// Close ends the connections.
func (a *Archiver) Close() { a.pool.Close() }

// ArchivePayloads implements ports.Archiver.
func (a *Archiver) ArchivePayloads(ctx context.Context, l ports.LeavingPayloads) error {
	p := &archivedb.ArchivePayloadsParams{
		PartitionID: int32(l.Partition), Term: int64(l.Term), Event: int64(l.Manifest), Sequences: pg.Sequences(l.Sequences), Redactions: int64(l.Redactions), StateKeys: l.StateKeys,
	}
	for _, s := range l.States {
		p.PageKeys, p.PageStates, p.PageMacs = append(p.PageKeys, s.FirstKey), append(p.PageStates, s.Packed), append(p.PageMacs, s.MAC)
	}
	return archiveFault(ctx, a.queries.ArchivePayloads(ctx, a.pool, p))
}

// AwaitArchiving implements ports.Archiver.
func (a *Archiver) AwaitArchiving(ctx context.Context) error {
	return pg.Translate(ctx, a.queries.AwaitArchiving(ctx, a.pool))
}

// ReplaceStates implements ports.Archiver.
func (a *Archiver) ReplaceStates(ctx context.Context, page ports.ArchivedStatePage, by []ports.ArchivedStatePage) error {
	p := &archivedb.ReplaceStatesParams{PartitionID: int32(page.Partition), FirstSequence: int64(page.Segment), FirstKey: page.FirstKey, Mac: page.MAC}
	for _, s := range by {
		p.PageKeys, p.PageStates, p.PageMacs = append(p.PageKeys, s.FirstKey), append(p.PageStates, s.Packed), append(p.PageMacs, s.MAC)
	}
	return archiveFault(ctx, a.queries.ReplaceStates(ctx, a.pool, p))
}

// RestorePayloads implements ports.Archiver.
func (a *Archiver) RestorePayloads(ctx context.Context, s ports.ArchivedSegment, records []archive.Record) (missing int, err error) {
	to := &archivedb.RestorePayloadsParams{PartitionID: int32(s.Partition), FirstSequence: int64(s.First)}
	for i := range records {
		r := &records[i]
		to.Sequences, to.Salts, to.Payloads = append(to.Sequences, int64(r.Sequence)), append(to.Salts, r.Salt[:]), append(to.Payloads, string(r.Payload))
	}
	n, err := a.queries.RestorePayloads(ctx, a.pool, to)
	return int(n), archiveFault(ctx, err)
}

// refusals are the faults of the constraints of the functions.
var refusals = map[string]func() *fault.Error{
	"archive_manifest":      archive.ContentChanged,
	"archive_content":       archive.ContentChanged,
	"archive_age":           archive.TooYoung,
	"archive_decisions":     archive.DecisionsStay,
	"archive_redaction":     archive.Redacting,
	"archive_snapshots":     archive.SnapshotMissing,
	"archive_projections":   archive.ProjectionBehind,
	"archive_overlap":       archive.Overlapping,
	"archive_segments_pkey": archive.Overlapping,
	"archive_segment":       archive.SegmentNotFound,
	"archive_lease":         archive.Busy,
}

// archiveFault translates a refusal by the functions.
func archiveFault(ctx context.Context, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return pg.Translate(ctx, err)
	}
	if refusal := refusals[pgErr.ConstraintName]; refusal != nil {
		return refusal().WithCause(pg.RedactError(err))
	}
	if pgErr.Code == "42501" {
		return fault.New(fault.Forbidden, "archive.role_refused", "this database user may not archive; connect as the eraser's role (database.eraser_dsn)").WithCause(pg.RedactError(err))
	}
	return pg.Translate(ctx, err)
}
