// Package streams keeps snapshots of entities and streams, which save reading a stream
// from its beginning. A redaction begins a new epoch, after which older ones are not used.
package streams

import (
	"bytes"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/streamsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// Snapshots keeps the snapshots of entities and of streams.
type Snapshots struct {
	db      *pg.Database
	queries *streamsdb.Queries
}

// NewSnapshots makes the store of streams' and entities' snapshots.
func NewSnapshots(db *pg.Database) *Snapshots {
	return &Snapshots{db: db, queries: streamsdb.New()}
}

var (
	_ ports.EntitySnapshots = (*Snapshots)(nil)
	_ ports.StreamSnapshots = (*Snapshots)(nil)
)

// The states of an entity's snapshot.
const (
	snapshotValid = "valid"
	snapshotStale = "stale"
)

func (s *Snapshots) epoch(ctx context.Context, p event.PartitionID) (ports.SnapshotEpoch, error) {
	n, err := s.queries.GetSnapshotEpoch(ctx, s.db.Reads, int32(p))
	return ports.SnapshotEpoch(n), pg.Translate(ctx, err)
}

// EntitySnapshots implements ports.EntitySnapshots. The epoch is read first: a
// redaction after it is noticed when a snapshot is saved.
func (s *Snapshots) EntitySnapshots(ctx context.Context, p event.PartitionID, entityType, entityID string) ([]ports.EntitySnapshot, ports.SnapshotEpoch, error) {
	epoch, err := s.epoch(ctx, p)
	if err != nil {
		return nil, 0, err
	}
	rows, err := s.queries.ListEntitySnapshots(ctx, s.db.Reads, &streamsdb.ListEntitySnapshotsParams{
		PartitionID: int32(p), EntityType: entityType, EntityID: entityID, Kept: snapshot.Kept,
	})
	out, err := pg.MapRows(ctx, rows, err, func(r *streamsdb.ListEntitySnapshotsRow) ports.EntitySnapshot {
		return ports.EntitySnapshot{
			Partition: p, EntityType: entityType, EntityID: entityID, AsOf: event.Sequence(r.AsOfSequence), Version: event.Sequence(r.Version),
			Fold: r.Fold, Stale: r.Status == snapshotStale, EffectiveThrough: event.DateOf(r.EffectiveThrough.Time),
			EventCount: int(r.EventCount), Redactions: uint64(r.Redactions), Outdated: r.Outdated, CreatedAt: r.CreatedAt.UTC(), State: r.State, MAC: r.Mac,
		}
	})
	return out, epoch, err
}

// SaveEntitySnapshot implements ports.EntitySnapshots.
func (s *Snapshots) SaveEntitySnapshot(ctx context.Context, n ports.EntitySnapshot, epoch ports.SnapshotEpoch) (bool, error) {
	status := snapshotValid
	if n.Stale {
		status = snapshotStale
	}
	return s.keep(ctx, s.queries.LockEntitySnapshots, func(tx pgx.Tx) (int64, error) {
		return s.queries.SaveEntitySnapshot(ctx, tx, &streamsdb.SaveEntitySnapshotParams{
			AsOfSequence: int64(n.AsOf), Version: int64(n.Version), EventCount: int64(n.EventCount), CreatedAt: event.Micros(n.CreatedAt),
			PartitionID: int32(n.Partition), Fold: n.Fold, SizeBytes: int32(len(n.State)), EffectiveThrough: pg.Date(n.EffectiveThrough),
			Status: status, EntityType: n.EntityType, EntityID: n.EntityID, State: n.State, Redactions: int64(n.Redactions), Mac: n.MAC, Epoch: int64(epoch), Kept: snapshot.Kept,
		})
	}, func(tx pgx.Tx) error {
		return s.queries.DeleteOldEntitySnapshots(ctx, tx, &streamsdb.DeleteOldEntitySnapshotsParams{
			PartitionID: int32(n.Partition), EntityType: n.EntityType, EntityID: n.EntityID, Kept: snapshot.Kept,
		})
	})
}

// keep saves a snapshot and, if it was kept, removes the oldest ones beyond the limit.
func (s *Snapshots) keep(ctx context.Context, lock func(context.Context, streamsdb.DBTX) error, save func(pgx.Tx) (int64, error), prune func(pgx.Tx) error) (kept bool, err error) {
	err = pgx.BeginFunc(ctx, s.db.Reads, func(tx pgx.Tx) error {
		if err := lock(ctx, tx); err != nil {
			return err
		}
		n, err := save(tx)
		if kept = n > 0; err != nil || !kept {
			return err
		}
		return prune(tx)
	})
	return kept && err == nil, pg.Translate(ctx, err)
}

// MarkEntitySnapshotsStale implements ports.EntitySnapshots.
func (s *Snapshots) MarkEntitySnapshotsStale(ctx context.Context, p event.PartitionID, entityType, entityID string, at event.Sequence, effective event.Date) (int, error) {
	n, err := s.queries.MarkEntitySnapshotsStale(ctx, s.db.Reads, &streamsdb.MarkEntitySnapshotsStaleParams{
		PartitionID: int32(p), EntityType: entityType, EntityID: entityID, AtSequence: int64(at), Effective: pg.Date(effective),
	})
	return int(n), pg.Translate(ctx, err)
}

// EntityRedactions implements ports.EntitySnapshots.
func (s *Snapshots) EntityRedactions(ctx context.Context, p event.PartitionID, until event.Sequence) (uint64, error) {
	n, err := s.queries.CountEntityRedactions(ctx, s.db.Reads, &streamsdb.CountEntityRedactionsParams{PartitionID: int32(p), Until: int64(until)})
	return uint64(n), pg.Translate(ctx, err)
}

// RemoveEntitySnapshot implements ports.EntitySnapshots.
func (s *Snapshots) RemoveEntitySnapshot(ctx context.Context, n ports.EntitySnapshot) error {
	return pg.Translate(ctx, s.queries.RemoveEntitySnapshot(ctx, s.db.Reads, &streamsdb.RemoveEntitySnapshotParams{
		PartitionID: int32(n.Partition), EntityType: n.EntityType, EntityID: n.EntityID, AsOfSequence: int64(n.AsOf), Mac: n.MAC,
	}))
}

// StreamRedactions implements ports.StreamSnapshots.
func (s *Snapshots) StreamRedactions(ctx context.Context, p event.PartitionID, stream event.StreamID, until event.Version) (uint64, error) {
	n, err := s.queries.CountStreamRedactions(ctx, s.db.Reads, &streamsdb.CountStreamRedactionsParams{
		PartitionID: int32(p), StreamType: stream.Type, StreamID: stream.ID, Until: int64(until),
	})
	return uint64(n), pg.Translate(ctx, err)
}

// RemoveStreamSnapshot implements ports.StreamSnapshots.
func (s *Snapshots) RemoveStreamSnapshot(ctx context.Context, n ports.StreamSnapshot) error {
	return pg.Translate(ctx, s.queries.RemoveStreamSnapshot(ctx, s.db.Reads, &streamsdb.RemoveStreamSnapshotParams{
		PartitionID: int32(n.Partition), StreamType: n.Stream.Type, StreamID: n.Stream.ID, Internal: n.Internal, Version: int64(n.Version), Mac: n.MAC,
	}))
}

// StreamSnapshot implements ports.Snapshots.
func (s *Snapshots) StreamSnapshot(ctx context.Context, p event.PartitionID, stream event.StreamID, internal bool, v event.Version) (ports.StreamSnapshot, ports.SnapshotEpoch, error) {
	epoch, err := s.epoch(ctx, p)
	if err != nil {
		return ports.StreamSnapshot{}, 0, err
	}
	found, err := s.streamSnapshot(ctx, s.db.Reads, p, stream, internal, v)
	return found, epoch, err
}

func (s *Snapshots) streamSnapshot(ctx context.Context, db streamsdb.DBTX, p event.PartitionID, stream event.StreamID, internal bool, v event.Version) (ports.StreamSnapshot, error) {
	r, err := s.queries.GetStreamSnapshot(ctx, db, &streamsdb.GetStreamSnapshotParams{
		PartitionID: int32(p), StreamType: stream.Type, StreamID: stream.ID, Internal: internal, Version: int64(v),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.StreamSnapshot{}, snapshot.NotFound()
	}
	if err != nil {
		return ports.StreamSnapshot{}, pg.Translate(ctx, err)
	}
	return ports.StreamSnapshot{
		ID: r.ID.Bytes, Partition: p, Stream: stream, Internal: internal, Version: event.Version(r.Version), StateType: r.StateType,
		SchemaVersion: int(r.SchemaVersion), State: r.State, Metadata: r.Metadata, Redactions: uint64(r.Redactions), Outdated: r.Outdated,
		CreatedAt: r.CreatedAt.UTC(), MAC: r.Mac,
	}, nil
}

// SaveStreamSnapshot implements ports.Snapshots.
func (s *Snapshots) SaveStreamSnapshot(ctx context.Context, n ports.StreamSnapshot, epoch ports.SnapshotEpoch) (ports.StreamSnapshot, bool, error) {
	n.CreatedAt = event.Micros(n.CreatedAt)
	kept, err := s.keep(ctx, s.queries.LockStreamSnapshots, func(tx pgx.Tx) (int64, error) {
		return s.queries.SaveStreamSnapshot(ctx, tx, &streamsdb.SaveStreamSnapshotParams{
			Version: int64(n.Version), CreatedAt: n.CreatedAt, PartitionID: int32(n.Partition), SchemaVersion: int32(n.SchemaVersion),
			SizeBytes: int32(len(n.State)), Internal: n.Internal, ID: pg.UUID(n.ID), StreamType: n.Stream.Type, StreamID: n.Stream.ID,
			StateType: n.StateType, State: n.State, Metadata: n.Metadata, Redactions: int64(n.Redactions), Mac: n.MAC, Epoch: int64(epoch), Kept: snapshot.Kept,
		})
	}, func(tx pgx.Tx) error {
		return s.queries.DeleteOldStreamSnapshots(ctx, tx, &streamsdb.DeleteOldStreamSnapshotsParams{
			PartitionID: int32(n.Partition), StreamType: n.Stream.Type, StreamID: n.Stream.ID, Internal: n.Internal, Kept: snapshot.Kept,
		})
	})
	if err != nil || kept {
		return n, kept, err
	}
	have, err := s.streamSnapshot(ctx, s.db.Reads, n.Partition, n.Stream, n.Internal, n.Version)
	switch {
	case fault.KindOf(err) == fault.NotFound || err == nil && n.Internal:
		return ports.StreamSnapshot{}, false, snapshot.Superseded()
	case err != nil:
		return ports.StreamSnapshot{}, false, err
	case have.StateType != n.StateType || have.SchemaVersion != n.SchemaVersion || !bytes.Equal(have.State, n.State) || !bytes.Equal(have.Metadata, n.Metadata):
		return ports.StreamSnapshot{}, false, snapshot.Exists()
	}
	return have, false, nil
}
