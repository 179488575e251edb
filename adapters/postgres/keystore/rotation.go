package keystore

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/keystoredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// restoreBatch is how many lines of an export go to the database at once.
const restoreBatch = 500

// Rotation rotates the tenants' KEKs and restores exported keys, as the role
// backbone_eraser.
type Rotation struct {
	pool    *pgxpool.Pool
	queries *keystoredb.Queries
}

var (
	_ ports.KeyRotation = (*Rotation)(nil)
	_ ports.KeyRecovery = (*Rotation)(nil)
)

// KEKs implements ports.KeyRotation.
func (r *Rotation) KEKs(ctx context.Context, tenantID string) ([]ports.KEK, error) {
	rows, err := r.queries.ListKEKs(ctx, r.pool, tenantID)
	return mapRows(ctx, rows, err, storedKEK)
}

func storedKEK(r *keystoredb.KeystoreTenantKek) ports.KEK {
	return ports.KEK{TenantID: r.TenantID, Epoch: uint32(r.Epoch), KeyID: r.KmsKeyID, State: ports.KEKState(r.State)}
}

// AddKEK implements ports.KeyRotation.
func (r *Rotation) AddKEK(ctx context.Context, k ports.KEK) error {
	return translateKeys(ctx, r.queries.AddKEK(ctx, r.pool, &keystoredb.AddKEKParams{TenantID: k.TenantID, Epoch: int32(k.Epoch), KmsKeyID: k.KeyID}))
}

// ActivateKEK implements ports.KeyRotation. keys.epoch_missing (NotFound) for an
// unknown epoch, keys.move_refused (FailedPrecondition) while another one drains.
func (r *Rotation) ActivateKEK(ctx context.Context, tenantID string, epoch uint32) error {
	return translateKeys(ctx, r.queries.ActivateKEK(ctx, r.pool, &keystoredb.ActivateKEKParams{TenantID: tenantID, Epoch: int32(epoch)}))
}

// WrappedWith implements ports.KeyRotation. A limit of 0 is no limit.
func (r *Rotation) WrappedWith(ctx context.Context, tenantID string, epoch uint32, limit int) ([]ports.WrappedRow, error) {
	rows, err := r.queries.ListWrappedWith(ctx, r.pool, &keystoredb.ListWrappedWithParams{TenantID: tenantID, Epoch: int32(epoch), PageSize: pg.PageSize(limit)})
	return mapRows(ctx, rows, err, wrappedRow)
}

// SampleKeys implements ports.KeyRotation.
func (r *Rotation) SampleKeys(ctx context.Context, tenantID string, epoch uint32, n int) ([]ports.WrappedRow, error) {
	rows, err := r.queries.SampleWrappedWith(ctx, r.pool, &keystoredb.SampleWrappedWithParams{TenantID: tenantID, Epoch: int32(epoch), PageSize: int32(n)})
	return mapRows(ctx, rows, err, func(r *keystoredb.SampleWrappedWithRow) ports.WrappedRow {
		return wrappedRow((*keystoredb.ListWrappedWithRow)(r))
	})
}

func wrappedRow(r *keystoredb.ListWrappedWithRow) ports.WrappedRow {
	return ports.WrappedRow{
		Partition: event.PartitionID(r.PartitionID), Reference: reference(r.Reference),
		WrappedKey: wrappedKey(r.Version, r.KekEpoch, r.KmsKeyID, r.Wrapped, r.Fingerprint),
	}
}

// CountWrappedWith implements ports.KeyRotation.
func (r *Rotation) CountWrappedWith(ctx context.Context, tenantID string, epoch uint32) (int64, error) {
	n, err := r.queries.CountWrappedWith(ctx, r.pool, &keystoredb.CountWrappedWithParams{TenantID: tenantID, Epoch: int32(epoch)})
	return n, translateKeys(ctx, err)
}

// SaveRewrapped implements ports.KeyRotation. keys.epoch_closed (Conflict) if the new
// epoch is not the active one. It skips rows that an erasure has locked.
func (r *Rotation) SaveRewrapped(ctx context.Context, tenantID string, from, to uint32, rows []ports.WrappedRow) (int64, error) {
	params := &keystoredb.SaveRewrappedParams{
		TenantID: tenantID, FromEpoch: int32(from), ToEpoch: int32(to),
		Refs: make([]pgtype.UUID, len(rows)), Versions: make([]int32, len(rows)), Wrappings: make([][]byte, len(rows)),
	}
	for i, row := range rows {
		ref, err := parseReference(row.Reference)
		if err != nil {
			return 0, keyFault("keys.request_invalid", "")
		}
		params.Refs[i], params.Versions[i], params.Wrappings[i] = ref, int32(row.Version), row.Wrapped
	}
	n, err := r.queries.SaveRewrapped(ctx, r.pool, params)
	return n, translateKeys(ctx, err)
}

// CloseKEK implements ports.KeyRotation.
func (r *Rotation) CloseKEK(ctx context.Context, tenantID string, epoch uint32, to ports.KEKState) error {
	return translateKeys(ctx, r.queries.CloseKEK(ctx, r.pool, &keystoredb.CloseKEKParams{TenantID: tenantID, Epoch: int32(epoch), NewState: string(to)}))
}

// ExportKeys implements ports.KeyRotation: {"table":…,"row":{…}} per line. It leaves out
// the table of nodes.
func (r *Rotation) ExportKeys(ctx context.Context, row func(line []byte) error) error {
	rows, err := r.pool.Query(ctx, `SELECT keystore.export_lines()`)
	if err != nil {
		return translateKeys(ctx, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(bytes.Clone(rows.RawValues()[0])); err != nil {
			return err
		}
	}
	return translateKeys(ctx, rows.Err())
}

// withScratch loads an export into temporary tables and runs f in the same transaction. It
// commits only if f returns true.
func (r *Rotation) withScratch(ctx context.Context, lines ports.ExportedLines, f func(tx pgx.Tx) (commit bool, err error)) error {
	tx, err := r.pool.Begin(ctx)
	if err != nil {
		return translateKeys(ctx, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // harmless after a commit
	// Reading the export may take longer than a session may idle.
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return translateKeys(ctx, err)
	}
	if err := r.queries.OpenScratch(ctx, tx); err != nil {
		return translateKeys(ctx, err)
	}
	batch := make([]string, 0, restoreBatch)
	var failed error
	flush := func() bool {
		if len(batch) > 0 {
			failed = r.queries.LoadScratch(ctx, tx, batch)
			batch = batch[:0]
		}
		return failed == nil
	}
	err = lines(func(line []byte) bool {
		batch = append(batch, string(line))
		return len(batch) < restoreBatch || flush()
	})
	if failed == nil && err == nil {
		flush()
	}
	if failed != nil {
		return exportFault(ctx, failed)
	}
	if err != nil {
		return err
	}
	commit, err := f(tx)
	if err == nil && commit {
		err = tx.Commit(ctx)
	}
	return exportFault(ctx, err)
}

// exportFault distinguishes a damaged export from a failure of the store.
func exportFault(ctx context.Context, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if ok && (strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "23")) {
		return fault.New(fault.Invalid, "keys.export_damaged", "this is no export of a key store, or it is damaged; take another one").WithCause(pg.RedactError(err))
	}
	return translateKeys(ctx, err)
}

// SampleExport implements ports.KeyRecovery.
func (r *Rotation) SampleExport(ctx context.Context, lines ports.ExportedLines, tenantID string, epoch uint32, n int) (rows []ports.WrappedRow, total int64, err error) {
	err = r.withScratch(ctx, lines, func(tx pgx.Tx) (bool, error) {
		sample, err := r.queries.SampleScratch(ctx, tx, &keystoredb.SampleScratchParams{TenantID: tenantID, Epoch: int32(epoch), PageSize: int32(n)})
		for _, row := range sample {
			total = row.Total
			if row.Reference.Valid {
				rows = append(rows, ports.WrappedRow{
					Partition: event.PartitionID(row.PartitionID), Reference: reference(row.Reference),
					WrappedKey: wrappedKey(row.Version, row.KekEpoch, row.KmsKeyID, row.Wrapped, row.Fingerprint),
				})
			}
		}
		return false, err
	})
	return rows, total, err
}

// ExportedKEKs implements ports.KeyRecovery.
func (r *Rotation) ExportedKEKs(ctx context.Context, lines ports.ExportedLines) (keks []ports.KEK, err error) {
	err = r.withScratch(ctx, lines, func(tx pgx.Tx) (bool, error) {
		rows, err := r.queries.ListScratchKEKs(ctx, tx)
		keks = pg.Map(rows, storedKEK)
		return false, err
	})
	return keks, err
}

// RestoreKeys implements ports.KeyRecovery.
func (r *Rotation) RestoreKeys(ctx context.Context, lines ports.ExportedLines, dead []ports.KEK) (taken int64, err error) {
	params := &keystoredb.RestoreScratchParams{DeadTenants: make([]string, len(dead)), DeadEpochs: make([]int32, len(dead))}
	for i, k := range dead {
		params.DeadTenants[i], params.DeadEpochs[i] = k.TenantID, int32(k.Epoch)
	}
	err = r.withScratch(ctx, lines, func(tx pgx.Tx) (bool, error) {
		taken, err = r.queries.RestoreScratch(ctx, tx, params)
		return true, err
	})
	return taken, err
}
