package keystore

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/keystoredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// ErasureRegister stores erasure requests, receipts and legal holds and destroys keys, as the
// role backbone_eraser. It takes locks in the key store only, never one of the log.
type ErasureRegister struct {
	pool    *pgxpool.Pool
	queries *keystoredb.Queries
}

var _ ports.ErasureRegister = (*ErasureRegister)(nil)

// AddErasure implements ports.ErasureRegister. The fault erasure.duplicate has the
// id of the open request as "request_id".
func (e *ErasureRegister) AddErasure(ctx context.Context, r ports.ErasureRequest) error {
	return translateKeys(ctx, e.queries.RequestErasure(ctx, e.pool, &keystoredb.RequestErasureParams{
		RequestID: pg.UUID(r.ID), TenantID: r.TenantID, SubjectID: string(r.Subject), Partitions: pg.Partitions(r.Partitions),
		AllEntities: r.AllEntities, Basis: string(r.Basis), Reason: r.Reason, Requester: r.RequestedBy,
		RequestedAt: r.RequestedAt, DueOn: pg.OptionalDate(&r.DueOn),
	}))
}

// Erasure implements ports.ErasureRegister.
func (e *ErasureRegister) Erasure(ctx context.Context, tenantID string, id event.ID) (ports.ErasureRequest, error) {
	row, err := e.queries.GetErasure(ctx, e.pool, &keystoredb.GetErasureParams{TenantID: tenantID, RequestID: pg.UUID(id)})
	return e.stored(ctx, &row, err)
}

// stored converts the row that a function returned.
func (*ErasureRegister) stored(ctx context.Context, row *keystoredb.KeystorePiiDeletionLog, err error) (ports.ErasureRequest, error) {
	if noRows(err) {
		return ports.ErasureRequest{}, keyFault("erasure.not_found", "")
	}
	if err != nil {
		return ports.ErasureRequest{}, translateKeys(ctx, err)
	}
	return erasureRequest(row)
}

// Erasures implements ports.ErasureRegister. Without states it lists the requests in all
// states; a limit of 0 is no limit.
func (e *ErasureRegister) Erasures(ctx context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ports.ErasureRequest, error) {
	names := pg.Map(states, func(s *shredding.ErasureState) string { return string(*s) })
	rows, err := e.queries.ListErasures(ctx, e.pool, &keystoredb.ListErasuresParams{TenantID: tenantID, States: names, PageSize: pg.PageSize(limit)})
	return erasureRequests(ctx, rows, err)
}

func erasureRequests(ctx context.Context, rows []keystoredb.KeystorePiiDeletionLog, err error) ([]ports.ErasureRequest, error) {
	if err != nil {
		return nil, translateKeys(ctx, err)
	}
	out := make([]ports.ErasureRequest, len(rows))
	for i := range rows {
		if out[i], err = erasureRequest(&rows[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ErasureSteps implements ports.ErasureRegister.
func (e *ErasureRegister) ErasureSteps(ctx context.Context, tenantID string, id event.ID) ([]ports.ErasureStep, error) {
	rows, err := e.queries.ListErasureSteps(ctx, e.pool, &keystoredb.ListErasureStepsParams{TenantID: tenantID, RequestID: pg.UUID(id)})
	return mapRows(ctx, rows, err, func(r *keystoredb.ListErasureStepsRow) ports.ErasureStep {
		return ports.ErasureStep{State: shredding.ErasureState(r.State), At: r.DoneAt.UTC(), Attempts: int(r.Attempts)}
	})
}

// MoveErasure implements ports.ErasureRegister.
func (e *ErasureRegister) MoveErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	classes, err := json.Marshal(r.Classes)
	if err != nil {
		return ports.ErasureRequest{}, err
	}
	var scope []byte
	if r.Scope != (event.Hash{}) {
		scope = r.Scope[:]
	}
	row, err := e.queries.MoveErasure(ctx, e.pool, &keystoredb.MoveErasureParams{
		RequestID: pg.UUID(r.ID), FromRevision: int32(r.Revision), NewState: string(r.State), Partitions: pg.Partitions(r.Partitions),
		Scope: scope, Preview: r.Preview, EndedBy: pg.OptionalText(r.EndedBy), EndReason: pg.OptionalText(r.EndReason), Classes: classes,
		EvictedAt: pg.OptionalTime(r.EvictedAt), CompletedAt: pg.OptionalTime(r.CompletedAt), Results: r.Results,
	})
	return e.stored(ctx, &row, err)
}

// NoteErasureFailure implements ports.ErasureRegister.
func (e *ErasureRegister) NoteErasureFailure(ctx context.Context, id event.ID, code string) (attempts int, err error) {
	n, err := e.queries.NoteErasureFailure(ctx, e.pool, &keystoredb.NoteErasureFailureParams{RequestID: pg.UUID(id), Code: code})
	return int(n), translateKeys(ctx, err)
}

// ApproveErasure implements ports.ErasureRegister.
func (e *ErasureRegister) ApproveErasure(ctx context.Context, id event.ID, approver string, scope event.Hash, at time.Time) (ports.ErasureRequest, error) {
	row, err := e.queries.ApproveErasure(ctx, e.pool, &keystoredb.ApproveErasureParams{
		RequestID: pg.UUID(id), Approver: approver, Scope: scope[:], ApprovedAt: at,
	})
	return e.stored(ctx, &row, err)
}

// FenceErasure implements ports.ErasureRegister.
func (e *ErasureRegister) FenceErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	classes, err := json.Marshal(r.Classes)
	if err != nil {
		return ports.ErasureRequest{}, err
	}
	erased := []int16{}
	for _, c := range r.Classes {
		if c.Erased {
			erased = append(erased, int16(c.Class))
		}
	}
	slices.Sort(erased)
	row, err := e.queries.FenceErasure(ctx, e.pool, &keystoredb.FenceErasureParams{
		RequestID: pg.UUID(r.ID), FromRevision: int32(r.Revision), Erased: slices.Compact(erased), Classes: classes,
	})
	return e.stored(ctx, &row, err)
}

// RefuseErasure implements ports.ErasureRegister.
func (e *ErasureRegister) RefuseErasure(ctx context.Context, r ports.ErasureRequest, reason string) (ports.ErasureRequest, error) {
	classes, err := json.Marshal(r.Classes)
	if err != nil {
		return ports.ErasureRequest{}, err
	}
	row, err := e.queries.RefuseErasure(ctx, e.pool, &keystoredb.RefuseErasureParams{
		RequestID: pg.UUID(r.ID), FromRevision: int32(r.Revision), Person: pg.OptionalText(r.EndedBy), Reason: pg.OptionalText(reason), Classes: classes,
	})
	return e.stored(ctx, &row, err)
}

// DestroyErasure implements ports.ErasureRegister.
func (e *ErasureRegister) DestroyErasure(ctx context.Context, id event.ID, check func(ctx context.Context) error) (ports.Destruction, ports.ErasureRequest, error) {
	var destruction ports.Destruction
	var request ports.ErasureRequest
	err := pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error {
		before, err := e.queries.GetErasure(ctx, tx, &keystoredb.GetErasureParams{RequestID: pg.UUID(id)})
		if err != nil && !errors.Is(err, pgx.ErrNoRows) { // the function refuses a request that is not there
			return err
		}
		row, err := e.queries.DestroyErasure(ctx, tx, pg.UUID(id))
		if err != nil {
			return err
		}
		if check != nil && before.State == string(shredding.ErasureFenced) {
			if err := check(ctx); err != nil {
				return err
			}
		}
		if destruction, err = destructionOf(&row); err != nil {
			return err
		}
		stored, err := e.queries.GetErasure(ctx, tx, &keystoredb.GetErasureParams{RequestID: pg.UUID(id)})
		if err != nil {
			return err
		}
		request, err = erasureRequest(&stored)
		return err
	})
	if err != nil {
		return ports.Destruction{}, ports.ErasureRequest{}, translateKeys(ctx, err)
	}
	return destruction, request, nil
}

func destructionOf(r *keystoredb.DestroyErasureRow) (ports.Destruction, error) {
	d := ports.Destruction{DestroyedAt: r.DestroyedAt.UTC(), Generation: r.Generation, Receipt: uint64(r.Number), PreviousKnown: r.PreviousKnown}
	copy(d.PreviousHash[:], r.PreviousHash)
	var keys []struct {
		Partition    event.PartitionID  `json:"partition"`
		Class        shredding.KeyClass `json:"class"`
		Reference    string             `json:"reference"`
		Fingerprints []string           `json:"fingerprints"`
	}
	if err := json.Unmarshal(r.Keys, &keys); err != nil {
		return d, damagedRequest(err)
	}
	for _, k := range keys {
		key := ports.DestroyedKey{Partition: k.Partition, Class: k.Class, Reference: k.Reference}
		for _, text := range k.Fingerprints {
			f, ok := shredding.ParseFingerprint(text)
			if !ok {
				return d, damagedRequest(nil)
			}
			key.Fingerprints = append(key.Fingerprints, f)
		}
		d.Keys = append(d.Keys, key)
	}
	return d, nil
}

// SaveReceipt implements ports.ErasureRegister.
func (e *ErasureRegister) SaveReceipt(ctx context.Context, number uint64, note []byte, exported bool) error {
	return translateKeys(ctx, e.queries.SaveReceipt(ctx, e.pool, &keystoredb.SaveReceiptParams{Number: int64(number), Note: note, Exported: exported}))
}

// Receipts implements ports.ErasureRegister. A limit of 0 is no limit.
func (e *ErasureRegister) Receipts(ctx context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	rows, err := e.queries.ListReceipts(ctx, e.pool, &keystoredb.ListReceiptsParams{FromNumber: int64(from), PageSize: pg.PageSize(limit)})
	return mapRows(ctx, rows, err, func(r *keystoredb.ListReceiptsRow) ports.ErasureReceipt {
		return ports.ErasureReceipt{Number: uint64(r.Number), RequestID: r.RequestID.Bytes, TenantID: r.TenantID, Note: r.Note, Exported: r.Exported}
	})
}

// ErasuresToFollow implements ports.ErasureRegister.
func (e *ErasureRegister) ErasuresToFollow(ctx context.Context, on event.Date, after event.ID, limit int) ([]ports.ErasureRequest, error) {
	rows, err := e.queries.ListErasuresToFollow(ctx, e.pool, &keystoredb.ListErasuresToFollowParams{OnDay: pg.OptionalDate(&on), AfterRequestID: pg.UUID(after), PageSize: pg.PageSize(limit)})
	return erasureRequests(ctx, rows, err)
}

// DestroyedFingerprints implements ports.ErasureReceipts.
func (e *ErasureRegister) DestroyedFingerprints(ctx context.Context, from uint64, limit int) ([]ports.ReceiptFingerprints, error) {
	rows, err := e.queries.ListDestroyedFingerprints(ctx, e.pool, &keystoredb.ListDestroyedFingerprintsParams{FromNumber: int64(from), PageSize: pg.PageSize(limit)})
	return mapRows(ctx, rows, err, func(r *keystoredb.ListDestroyedFingerprintsRow) ports.ReceiptFingerprints {
		out := ports.ReceiptFingerprints{Number: uint64(r.Number)}
		for _, text := range r.Fingerprints {
			if f, ok := shredding.ParseFingerprint(text); ok {
				out.Fingerprints = append(out.Fingerprints, f)
			}
		}
		return out
	})
}

// ReplayErasure implements ports.ErasureRegister.
func (e *ErasureRegister) ReplayErasure(ctx context.Context, receipt ports.ErasureReceipt, keys []ports.ReplayKey) error {
	params := &keystoredb.ReplayErasureParams{
		Number: int64(receipt.Number), RequestID: pg.UUID(receipt.RequestID), TenantID: receipt.TenantID, Note: receipt.Note, Exported: receipt.Exported,
		PartitionIds: []int32{}, SubjectIds: []string{}, Classes: []int16{}, Fingerprints: []string{},
	}
	for _, k := range keys {
		prints := make([]string, len(k.Fingerprints))
		for i, f := range k.Fingerprints {
			prints[i] = hex.EncodeToString(f[:])
		}
		params.PartitionIds = append(params.PartitionIds, int32(k.Partition))
		params.SubjectIds = append(params.SubjectIds, string(k.Subject))
		params.Classes = append(params.Classes, int16(k.Class))
		params.Fingerprints = append(params.Fingerprints, strings.Join(prints, ","))
	}
	refused, err := e.queries.ReplayErasure(ctx, e.pool, params)
	if err == nil && refused != "" {
		return keyFault(refused, "")
	}
	return translateKeys(ctx, err)
}

// NodesBehind implements ports.ErasureRegister.
func (e *ErasureRegister) NodesBehind(ctx context.Context, generation int64, since time.Time) (int, error) {
	n, err := e.queries.CountNodesBehind(ctx, e.pool, &keystoredb.CountNodesBehindParams{Generation: generation, Since: since})
	return int(n), translateKeys(ctx, err)
}

// PlaceHold implements ports.ErasureRegister.
func (e *ErasureRegister) PlaceHold(ctx context.Context, h ports.LegalHold) error {
	return translateKeys(ctx, e.queries.PlaceHold(ctx, e.pool, &keystoredb.PlaceHoldParams{
		HoldID: pg.UUID(h.ID), TenantID: h.TenantID, SubjectID: string(h.Subject), PartitionID: int32(h.Partition), Reason: h.Reason,
		PlacedBy: h.PlacedBy, PlacedAt: h.PlacedAt, Until: pg.OptionalDate(h.Until),
	}))
}

// ReleaseHold implements ports.ErasureRegister.
func (e *ErasureRegister) ReleaseHold(ctx context.Context, tenantID string, id event.ID, by string, at time.Time) (ports.LegalHold, error) {
	row, err := e.queries.ReleaseHold(ctx, e.pool, &keystoredb.ReleaseHoldParams{TenantID: tenantID, HoldID: pg.UUID(id), Person: by, ReleasedAt: at})
	if err != nil {
		return ports.LegalHold{}, translateKeys(ctx, err)
	}
	return legalHold(&row), nil
}

// Holds implements ports.ErasureRegister. A hold is in force on its day Until too. Subject ""
// lists the holds of all subjects.
func (e *ErasureRegister) Holds(ctx context.Context, tenantID string, subject shredding.Subject, on event.Date) ([]ports.LegalHold, error) {
	rows, err := e.queries.ListHolds(ctx, e.pool, &keystoredb.ListHoldsParams{TenantID: tenantID, SubjectID: string(subject), OnDay: pg.OptionalDate(&on)})
	return mapRows(ctx, rows, err, legalHold)
}

// AllHolds implements ports.KeyStoreAudit.
func (e *ErasureRegister) AllHolds(ctx context.Context, tenantID string) ([]ports.LegalHold, error) {
	rows, err := e.queries.ListAllHolds(ctx, e.pool, tenantID)
	return mapRows(ctx, rows, err, legalHold)
}

// ErasureRows implements ports.KeyStoreAudit.
func (e *ErasureRegister) ErasureRows(ctx context.Context, tenantID string) ([]ports.ErasureRow, error) {
	rows, err := e.queries.ListErasures(ctx, e.pool, &keystoredb.ListErasuresParams{TenantID: tenantID, States: []string{}, PageSize: pg.PageSize(0)})
	return mapRows(ctx, rows, err, func(r *keystoredb.KeystorePiiDeletionLog) ports.ErasureRow {
		out := ports.ErasureRow{ID: r.RequestID.Bytes, Revision: int(r.Revision)}
		if request, err := erasureRequest(r); err == nil {
			out.Digest, _ = request.Digest() // its members can always be encoded
		}
		return out
	})
}

// ErasureJournal implements ports.KeyStoreAudit.
func (e *ErasureRegister) ErasureJournal(ctx context.Context, tenantID string) ([]ports.ErasureJournalEntry, error) {
	rows, err := e.queries.ListErasureJournal(ctx, e.pool, tenantID)
	return mapRows(ctx, rows, err, func(r *keystoredb.ListErasureJournalRow) ports.ErasureJournalEntry {
		out := ports.ErasureJournalEntry{
			RequestID: r.RequestID.Bytes, Revision: int(r.Revision), State: shredding.ErasureState(r.State), Person: r.Person,
			Requester: r.RequesterPerson, Approver: r.ApproverPerson,
		}
		copy(out.Scope[:], r.Scope)
		if r.ApproverPerson != "" {
			out.StoredAt = r.StoredAt.UTC()
		}
		return out
	})
}

// Contradictions implements ports.KeyStoreAudit.
func (e *ErasureRegister) Contradictions(ctx context.Context, tenantID string, partitions []event.PartitionID) ([]ports.Contradiction, error) {
	rows, err := e.queries.ListContradictions(ctx, e.pool, &keystoredb.ListContradictionsParams{TenantID: tenantID, Partitions: pg.Partitions(partitions)})
	return mapRows(ctx, rows, err, func(r *keystoredb.ListContradictionsRow) ports.Contradiction {
		return ports.Contradiction{Problem: ports.ContradictionKind(r.Problem), About: r.About}
	})
}

func legalHold(r *keystoredb.KeystoreLegalHold) ports.LegalHold {
	return ports.LegalHold{
		ID: r.HoldID.Bytes, TenantID: r.TenantID, Subject: shredding.Subject(r.SubjectID), Partition: event.PartitionID(r.PartitionID),
		Reason: r.Reason, PlacedBy: r.PlacedBy, PlacedAt: r.PlacedAt.UTC(), Until: dayOf(r.Until),
		ReleasedBy: r.ReleasedBy.String, ReleasedAt: pg.TimeOrZero(r.ReleasedAt),
	}
}

func erasureRequest(r *keystoredb.KeystorePiiDeletionLog) (ports.ErasureRequest, error) {
	out := ports.ErasureRequest{
		ID: r.RequestID.Bytes, TenantID: r.TenantID, Subject: shredding.Subject(r.SubjectID), AllEntities: r.AllEntities,
		Basis: shredding.Basis(r.Basis), Reason: r.Reason, RequestedBy: r.RequesterPerson, RequestedAt: r.RequestedAt.UTC(),
		State: shredding.ErasureState(r.State), Revision: int(r.Revision), Preview: r.Preview,
		ApprovedBy: r.ApproverPerson.String, ApprovedAt: pg.TimeOrZero(r.ApprovedAt), EndedBy: r.EndedBy.String, EndReason: r.EndReason.String,
		DestroyedAt: pg.TimeOrZero(r.DestroyedAt), Generation: r.Generation, Receipt: uint64(r.Receipt),
		EvictedAt: pg.TimeOrZero(r.EvictedAt), CompletedAt: pg.TimeOrZero(r.CompletedAt), Results: r.Results,
		Attempts: int(r.Attempts), LastError: r.LastError.String, UpdatedAt: r.UpdatedAt.UTC(),
	}
	for _, p := range r.Partitions {
		out.Partitions = append(out.Partitions, event.PartitionID(p))
	}
	if d := dayOf(r.DueOn); d != nil {
		out.DueOn = *d
	}
	copy(out.Scope[:], r.Scope)
	if len(r.Classes) > 0 {
		if err := json.Unmarshal(r.Classes, &out.Classes); err != nil {
			return out, damagedRequest(err)
		}
	}
	return out, nil
}

// damagedRequest drops the cause, which may quote stored data.
func damagedRequest(error) *fault.Error {
	return fault.New(fault.Internal, pg.CodeInternal, "a stored erasure request cannot be read; look at the key store's tables")
}

func dayOf(d pgtype.Date) *event.Date {
	if !d.Valid {
		return nil
	}
	out := event.DateOf(d.Time)
	return &out
}
