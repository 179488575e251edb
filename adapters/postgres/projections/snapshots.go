package projections

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// Snapshots saves the rows of a version, so that a rebuild can start from them.
type Snapshots struct{ *work }

// NewSnapshots makes the store of projections' snapshots.
func NewSnapshots(c *Checkpoints) *Snapshots {
	return &Snapshots{c.work}
}

var _ ports.ProjectionSnapshots = (*Snapshots)(nil)

// PlanSnapshot implements ports.ProjectionSnapshots.
func (s *Snapshots) PlanSnapshot(ctx context.Context, name string, version, source int) error {
	return pg.Translate(ctx, s.queries.PlanSnapshotParts(ctx, s.db.Reads, &projectionsdb.PlanSnapshotPartsParams{Name: name, Version: int32(version), OfVersion: int32(source)}))
}

// SavePart implements ports.ProjectionSnapshots. The transaction reads checkpoint and rows in one
// snapshot of the database. It verifies the role of the version at the end, so that a drop does
// not wait for the copy.
func (s *Snapshots) SavePart(ctx context.Context, c ports.SnapshotCopy) (done bool, err error) {
	err = s.inTransaction(ctx, pgx.RepeatableRead, func(tx pgx.Tx) error {
		part, err := s.lockPart(ctx, tx, c)
		if done = part != nil; err != nil || !done || part.TakenAt.Valid {
			return err
		}
		at, err := s.queries.GetShownCheckpoint(ctx, tx, &projectionsdb.GetShownCheckpointParams{Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition)})
		if errors.Is(err, pgx.ErrNoRows) {
			return untranslatedError{projection.OtherCode(c.Projection, c.Version)}
		}
		if err != nil {
			return err
		}
		finish := &projectionsdb.FinishSnapshotPartParams{
			Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition), Sequence: at.Sequence, Redactions: at.Redactions,
			TakenAt: pg.OptionalTime(s.db.Now()), LastEventAt: at.LastEventAt,
		}
		redactions, err := s.queries.GetSnapshotEpoch(ctx, tx, int32(c.Partition))
		if err != nil {
			return err
		}
		if redactions == at.Redactions {
			if finish.RowCount, err = s.copyRows(ctx, tx, c, int(at.Version), c.Version); err != nil {
				return err
			}
		}
		if finish.Mac, err = s.authenticate(ctx, tx, c, c.Version, ports.SnapshotPart{
			Sequence: event.Sequence(at.Sequence), Redactions: uint64(at.Redactions), Rows: uint64(finish.RowCount),
		}); err != nil {
			return err
		}
		if err := s.queries.FinishSnapshotPart(ctx, tx, finish); err != nil {
			return err
		}
		return s.requireRole(ctx, tx, c.Projection, c.Version, projection.Saving)
	})
	return done && err == nil, err
}

// RestorePart implements ports.ProjectionSnapshots. It locks the part, so that its rows stay
// until they are copied.
func (s *Snapshots) RestorePart(ctx context.Context, c ports.SnapshotCopy) (done bool, err error) {
	err = s.inTransaction(ctx, pgx.ReadCommitted, func(tx pgx.Tx) error {
		part, err := s.lockPart(ctx, tx, c)
		if done = part != nil; err != nil || !done || !part.TakenAt.Valid {
			return err
		}
		redactions, err := s.queries.GetSnapshotEpoch(ctx, tx, int32(c.Partition))
		if err != nil || redactions != part.Redactions {
			return err // the version reads the partition from the beginning of the log
		}
		begun, err := s.queries.RestoreCheckpoint(ctx, tx, &projectionsdb.RestoreCheckpointParams{
			Projection: c.Projection, Version: int32(c.To), PartitionID: int32(c.Partition), Sequence: part.Sequence, UpdatedAt: s.db.Now(),
			LastEventAt: part.LastEventAt, Redactions: part.Redactions, Types: append([]string{}, c.Types...),
		})
		if err != nil || begun == 0 {
			return err
		}
		if _, err := s.copyRows(ctx, tx, c, c.Version, c.To); err != nil {
			return err
		}
		// Of the copies, which no other session can change before the commit.
		mac, err := s.authenticate(ctx, tx, c, c.To, ports.SnapshotPart{
			Sequence: event.Sequence(part.Sequence), Redactions: uint64(part.Redactions), Rows: uint64(part.RowCount),
		})
		if err != nil {
			return err
		}
		if !hmac.Equal(mac, part.Mac) {
			return untranslatedError{snapshot.Forged()}
		}
		if err := s.requireRole(ctx, tx, c.Projection, c.Version, projection.Saved); err != nil {
			return err
		}
		return s.requireRole(ctx, tx, c.Projection, c.To, projection.Building)
	})
	return done && err == nil, err
}

// lockPart returns nil for a part that another node has locked, or that is gone.
func (s *Snapshots) lockPart(ctx context.Context, tx pgx.Tx, c ports.SnapshotCopy) (*projectionsdb.LockSnapshotPartRow, error) {
	part, err := s.queries.LockSnapshotPart(ctx, tx, &projectionsdb.LockSnapshotPartParams{Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition)})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &part, err
}

// requireRole locks a version that has a role until the transaction ends.
func (s *Snapshots) requireRole(ctx context.Context, tx pgx.Tx, name string, version int, want projection.Role) error {
	role, err := s.queries.ShareProjection(ctx, tx, &projectionsdb.ShareProjectionParams{Name: name, Version: int32(version)})
	if errors.Is(err, pgx.ErrNoRows) || err == nil && projection.Role(role) != want {
		return untranslatedError{projection.Changed()}
	}
	return err
}

// copyRows copies the rows of one version to another.
func (s *Snapshots) copyRows(ctx context.Context, tx pgx.Tx, c ports.SnapshotCopy, from, to int) (copied int64, err error) {
	for _, table := range c.Tables {
		if table.Derived {
			continue
		}
		columns, err := s.queries.ColumnsOf(ctx, tx, &projectionsdb.ColumnsOfParams{SchemaName: table.Schema, TableName: table.Name})
		if err != nil {
			return copied, err
		}
		tag, err := tx.Exec(ctx, copyStatement(table, columns), tableArguments(table, c.Projection, int32(c.Partition), int32(from), int32(to))...)
		if err != nil {
			return copied, err
		}
		copied += tag.RowsAffected()
	}
	return copied, nil
}

// authenticate computes the MAC of a part whose rows a version has.
func (s *Snapshots) authenticate(ctx context.Context, tx pgx.Tx, c ports.SnapshotCopy, version int, part ports.SnapshotPart) ([]byte, error) {
	part.Projection, part.Version, part.Partition = c.Projection, c.Version, c.Partition
	if _, err := tx.Exec(ctx, plainTexts); err != nil {
		return nil, err
	}
	digest := sha256.New()
	for _, table := range c.Tables {
		rows, err := tx.Query(ctx, digestStatement(table), tableArguments(table, c.Projection, int32(c.Partition), int32(version))...)
		if err != nil {
			return nil, err
		}
		count, row := uint64(0), []byte(nil)
		if _, err := pgx.ForEachRow(rows, []any{&row}, func() error {
			digest.Write(row)
			count++
			return nil
		}); err != nil {
			return nil, err
		}
		digest.Write(binary.BigEndian.AppendUint64([]byte(tableName(table)), count))
	}
	digest.Sum(part.Digest[:0])
	mac, err := c.Authenticate(part)
	if err != nil {
		return nil, untranslatedError{err}
	}
	return mac, nil
}

// plainTexts sets what the text of a row depends on.
const plainTexts = `SELECT set_config('TimeZone', 'UTC', true), set_config('bytea_output', 'hex', true), set_config('extra_float_digits', '1', true)`

// digestStatement lists the hashes of the rows of the version $2 in the partition $1, in an order
// that depends on nothing else.
func digestStatement(t ports.ProjectionTable) string {
	return fmt.Sprintf(`SELECT sha256(convert_to((to_jsonb(t) - 'version')::text, 'UTF8')) FROM %s AS t
		WHERE t.partition_id = $1 AND t.version = $2%s ORDER BY 1`, tableName(t), projectionFilter(t, 3))
}

// copyStatement copies the rows of the version $2 in the partition $1 to the version $3.
func copyStatement(t ports.ProjectionTable, columns []string) string {
	into, values := make([]string, len(columns)), make([]string, len(columns))
	for i, name := range columns {
		into[i] = pgx.Identifier{name}.Sanitize()
		if values[i] = into[i]; name == "version" {
			values[i] = "$3::integer"
		}
	}
	return fmt.Sprintf("INSERT INTO %[1]s (%[2]s) SELECT %[3]s FROM %[1]s WHERE partition_id = $1 AND version = $2%[4]s",
		tableName(t), strings.Join(into, ", "), strings.Join(values, ", "), projectionFilter(t, 4))
}

// FinishSnapshot implements ports.ProjectionSnapshots.
func (s *Snapshots) FinishSnapshot(ctx context.Context, name string, version, keep int, by string) error {
	return s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		if err := s.changeRole(ctx, tx, name, int32(version), by, projection.Saved, projection.Saving); err != nil {
			return err
		}
		older, err := s.queries.OlderSnapshots(ctx, tx, &projectionsdb.OlderSnapshotsParams{Name: name, Version: int32(version), Keep: int32(keep)})
		if err != nil {
			return err
		}
		for _, v := range older {
			if err := s.endVersion(ctx, tx, name, v, by, projection.Saved); err != nil {
				return err
			}
		}
		return nil
	})
}

// SnapshotParts implements ports.ProjectionSnapshots.
func (s *Snapshots) SnapshotParts(ctx context.Context, name string) ([]ports.SnapshotPart, error) {
	rows, err := s.queries.ListSnapshotParts(ctx, s.db.Reads, name)
	return pg.MapRows(ctx, rows, err, func(r *projectionsdb.ListSnapshotPartsRow) ports.SnapshotPart {
		return ports.SnapshotPart{
			Projection: r.Projection, Version: int(r.Version), Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence),
			Rows: uint64(r.RowCount), TakenAt: pg.TimeOrZero(r.TakenAt), Usable: r.TakenAt.Valid && r.Usable,
		}
	})
}

// ForgetPart implements ports.ProjectionSnapshots. It deletes the part first and so waits
// for a node that copies it.
func (s *Snapshots) ForgetPart(ctx context.Context, c ports.SnapshotCopy) error {
	return s.inTransaction(ctx, "", func(tx pgx.Tx) error {
		removed, err := s.queries.DeleteSnapshotPart(ctx, tx, &projectionsdb.DeleteSnapshotPartParams{Projection: c.Projection, Version: int32(c.Version), PartitionID: int32(c.Partition)})
		if err != nil || removed == 0 {
			return err
		}
		for _, table := range c.Tables {
			if _, err := tx.Exec(ctx, deleteStatement(table), tableArguments(table, c.Projection, int32(c.Partition), int32(c.Version))...); err != nil {
				return err
			}
		}
		return nil
	})
}

// deleteStatement deletes the rows of the version $2 in the partition $1.
func deleteStatement(t ports.ProjectionTable) string {
	return fmt.Sprintf("DELETE FROM %s WHERE partition_id = $1 AND version = $2%s", tableName(t), projectionFilter(t, 3))
}
