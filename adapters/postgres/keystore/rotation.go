package keystore

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/keystoredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// restoreBatch is how many lines of an export go to the database at once.
const restoreBatch = 500

// KEKs implements ports.KeyRotation.
func (e *Eraser) KEKs(ctx context.Context, tenantID string) ([]ports.KEK, error) {
	rows, err := e.queries.ListKEKs(ctx, e.pool, tenantID)
	if err != nil {
		return nil, translateKeys(ctx, err)
	}
	return storedKEKs(rows), nil
}

func storedKEKs(rows []keystoredb.KeystoreTenantKek) []ports.KEK {
	out := make([]ports.KEK, len(rows))
	for i, r := range rows {
		out[i] = ports.KEK{TenantID: r.TenantID, Epoch: uint32(r.Epoch), KeyID: r.KmsKeyID, State: ports.KEKState(r.State)}
	}
	return out
}

// AddKEK implements ports.KeyRotation.
func (e *Eraser) AddKEK(ctx context.Context, k ports.KEK) error {
	return translateKeys(ctx, e.queries.AddKEK(ctx, e.pool, &keystoredb.AddKEKParams{TenantID: k.TenantID, Epoch: int32(k.Epoch), KmsKeyID: k.KeyID}))
}

// ActivateKEK implements ports.KeyRotation. keys.epoch_missing (NotFound) for an
// unknown epoch, keys.move_refused (FailedPrecondition) while another one drains.
func (e *Eraser) ActivateKEK(ctx context.Context, tenantID string, epoch uint32) error {
	return translateKeys(ctx, e.queries.ActivateKEK(ctx, e.pool, &keystoredb.ActivateKEKParams{TenantID: tenantID, Epoch: int32(epoch)}))
}

// WrappedWith implements ports.KeyRotation. A limit of 0 is none.
func (e *Eraser) WrappedWith(ctx context.Context, tenantID string, epoch uint32, limit int) ([]ports.WrappedRow, error) {
	rows, err := e.queries.ListWrappedWith(ctx, e.pool, &keystoredb.ListWrappedWithParams{TenantID: tenantID, Epoch: int32(epoch), PageSize: pg.PageSize(limit)})
	if err != nil {
		return nil, translateKeys(ctx, err)
	}
	out := make([]ports.WrappedRow, len(rows))
	for i := range rows {
		out[i] = wrappedRow(&rows[i])
	}
	return out, nil
}

// SampleKeys implements ports.KeyRotation.
func (e *Eraser) SampleKeys(ctx context.Context, tenantID string, epoch uint32, n int) ([]ports.WrappedRow, error) {
	rows, err := e.queries.SampleWrappedWith(ctx, e.pool, &keystoredb.SampleWrappedWithParams{TenantID: tenantID, Epoch: int32(epoch), PageSize: int32(n)})
	if err != nil {
		return nil, translateKeys(ctx, err)
	}
	out := make([]ports.WrappedRow, len(rows))
	for i := range rows {
		out[i] = wrappedRow((*keystoredb.ListWrappedWithRow)(&rows[i]))
	}
	return out, nil
}

func wrappedRow(r *keystoredb.ListWrappedWithRow) ports.WrappedRow {
	return ports.WrappedRow{
		Partition: event.PartitionID(r.PartitionID), Reference: reference(r.Reference),
		WrappedKey: wrappedKey(r.Version, r.KekEpoch, r.KmsKeyID, r.Wrapped, r.Fingerprint),
	}
}

// CountWrappedWith implements ports.KeyRotation.
func (e *Eraser) CountWrappedWith(ctx context.Context, tenantID string, epoch uint32) (int64, error) {
	n, err := e.queries.CountWrappedWith(ctx, e.pool, &keystoredb.CountWrappedWithParams{TenantID: tenantID, Epoch: int32(epoch)})
	return n, translateKeys(ctx, err)
}

// SaveRewrapped implements ports.KeyRotation. keys.epoch_closed (Conflict) if the new
// epoch is not the active one. Rows that an erasure holds are left out too.
func (e *Eraser) SaveRewrapped(ctx context.Context, tenantID string, from, to uint32, rows []ports.WrappedRow) (int64, error) {
	params := &keystoredb.SaveRewrappedParams{
		TenantID: tenantID, FromEpoch: int32(from), ToEpoch: int32(to),
		Refs: make([]pgtype.UUID, len(rows)), Versions: make([]int32, len(rows)), Wrappings: make([][]byte, len(rows)),
	}
	for i, r := range rows {
		ref, err := parseReference(r.Reference)
		if err != nil {
			return 0, keyFault("keys.request_invalid", "")
		}
		params.Refs[i], params.Versions[i], params.Wrappings[i] = ref, int32(r.Version), r.Wrapped
	}
	n, err := e.queries.SaveRewrapped(ctx, e.pool, params)
	return n, translateKeys(ctx, err)
}

// CloseKEK implements ports.KeyRotation.
func (e *Eraser) CloseKEK(ctx context.Context, tenantID string, epoch uint32, to ports.KEKState) error {
	return translateKeys(ctx, e.queries.CloseKEK(ctx, e.pool, &keystoredb.CloseKEKParams{TenantID: tenantID, Epoch: int32(epoch), NewState: string(to)}))
}

// ExportKeys implements ports.KeyRotation: {"table":…,"row":{…}} per line. Which nodes
// there are is left out.
func (e *Eraser) ExportKeys(ctx context.Context, row func(line []byte) error) error {
	rows, err := e.pool.Query(ctx, `SELECT keystore.export_lines()`)
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

// inScratch loads an export into tables of a transaction that never commits unless f
// asks for it.
func (e *Eraser) inScratch(ctx context.Context, lines ports.ExportedLines, f func(tx pgx.Tx) (commit bool, err error)) error {
	tx, err := e.pool.Begin(ctx)
	if err != nil {
		return translateKeys(ctx, err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // harmless after a commit
	// Reading the export may take longer than a session may idle.
	if _, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0"); err != nil {
		return translateKeys(ctx, err)
	}
	if err := e.queries.OpenScratch(ctx, tx); err != nil {
		return translateKeys(ctx, err)
	}
	batch := make([]string, 0, restoreBatch)
	var failed error
	flush := func() bool {
		if len(batch) > 0 {
			failed = e.queries.LoadScratch(ctx, tx, batch)
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

// exportFault tells an export that does not fit from a store that fails.
func exportFault(ctx context.Context, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if ok && (strings.HasPrefix(pgErr.Code, "22") || strings.HasPrefix(pgErr.Code, "23")) {
		return fault.New(fault.Invalid, "keys.export_damaged", "this is no export of a key store, or it is damaged; take another one").WithCause(pg.RedactError(err))
	}
	return translateKeys(ctx, err)
}

// SampleExport implements ports.KeyRecovery.
func (e *Eraser) SampleExport(ctx context.Context, lines ports.ExportedLines, tenantID string, epoch uint32, n int) (rows []ports.WrappedRow, total int64, err error) {
	err = e.inScratch(ctx, lines, func(tx pgx.Tx) (bool, error) {
		sample, err := e.queries.SampleScratch(ctx, tx, &keystoredb.SampleScratchParams{TenantID: tenantID, Epoch: int32(epoch), PageSize: int32(n)})
		for _, r := range sample {
			total = r.Total
			if r.Reference.Valid {
				rows = append(rows, ports.WrappedRow{
					Partition: event.PartitionID(r.PartitionID), Reference: reference(r.Reference),
					WrappedKey: wrappedKey(r.Version, r.KekEpoch, r.KmsKeyID, r.Wrapped, r.Fingerprint),
				})
			}
		}
		return false, err
	})
	return rows, total, err
}

// ExportedKEKs implements ports.KeyRecovery.
func (e *Eraser) ExportedKEKs(ctx context.Context, lines ports.ExportedLines) (keks []ports.KEK, err error) {
	err = e.inScratch(ctx, lines, func(tx pgx.Tx) (bool, error) {
		rows, err := e.queries.ListScratchKEKs(ctx, tx)
		keks = storedKEKs(rows)
		return false, err
	})
	return keks, err
}

// RestoreKeys implements ports.KeyRecovery.
func (e *Eraser) RestoreKeys(ctx context.Context, lines ports.ExportedLines, dead []ports.KEK) (taken int64, err error) {
	params := &keystoredb.RestoreScratchParams{DeadTenants: make([]string, len(dead)), DeadEpochs: make([]int32, len(dead))}
	for i, k := range dead {
		params.DeadTenants[i], params.DeadEpochs[i] = k.TenantID, int32(k.Epoch)
	}
	err = e.inScratch(ctx, lines, func(tx pgx.Tx) (bool, error) {
		taken, err = e.queries.RestoreScratch(ctx, tx, params)
		return true, err
	})
	return taken, err
}
