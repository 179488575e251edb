package eventlog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Redactor redacts stored payloads as the role backbone_eraser. It has a small pool
// of its own, because the role that appends has no right to redact.
type Redactor struct {
	pool    *pgxpool.Pool
	queries *eventlogdb.Queries
}

var _ ports.Redactions = (*Redactor)(nil)

// OpenRedactor connects as the eraser. Faults: store.dsn_invalid, store.unavailable.
func OpenRedactor(ctx context.Context, eraserDSN string) (*Redactor, error) {
	pool, err := pg.OpenEraser(ctx, eraserDSN, "backbone redaction")
	if err != nil {
		return nil, err
	}
	return &Redactor{pool: pool, queries: eventlogdb.New()}, nil
}

// Close ends the connections.
func (r *Redactor) Close() { r.pool.Close() }

// AddRedaction implements ports.Redactions.
func (r *Redactor) AddRedaction(ctx context.Context, request ports.RedactionRequest) (ports.RedactionRequest, error) {
	row, err := r.queries.RequestRedaction(ctx, r.pool, &eventlogdb.RequestRedactionParams{
		PartitionID: int32(request.Partition), ID: pg.UUID(request.ID), Sequence: int64(request.Sequence), Pointers: request.Pointers,
		Reason: request.Reason, Person: request.RequestedBy, Scope: request.Scope[:], Preview: request.Preview,
	})
	return storedRequest(ctx, &row, err)
}

// RedactionRequest implements ports.Redactions.
func (r *Redactor) RedactionRequest(ctx context.Context, tenantID string, id event.ID) (ports.RedactionRequest, error) {
	row, err := r.queries.GetRedactionRequest(ctx, r.pool, &eventlogdb.GetRedactionRequestParams{TenantID: tenantID, ID: pg.UUID(id)})
	return storedRequest(ctx, &row, err)
}

// RedactionRequests implements ports.RedactionReader.
func (r *Redactor) RedactionRequests(ctx context.Context, tenantID string, states []shredding.RedactionState, limit int) ([]ports.RedactionRequest, error) {
	return listRedactionRequests(ctx, r.queries, r.pool, tenantID, states, limit)
}

func listRedactionRequests(ctx context.Context, queries *eventlogdb.Queries, db eventlogdb.DBTX, tenantID string, states []shredding.RedactionState, limit int) ([]ports.RedactionRequest, error) {
	rows, err := queries.ListRedactionRequests(ctx, db, &eventlogdb.ListRedactionRequestsParams{
		TenantID: tenantID, States: pg.Map(states, func(s *shredding.RedactionState) string { return string(*s) }), PageSize: pg.PageSize(limit),
	})
	return pg.MapRows(ctx, rows, err, redactionRequest)
}

// RedactionWork implements ports.Redactions.
func (r *Redactor) RedactionWork(ctx context.Context, limit int) ([]ports.RedactionRequest, error) {
	rows, err := r.queries.ListRedactionWork(ctx, r.pool, pg.PageSize(limit))
	return pg.MapRows(ctx, rows, err, redactionRequest)
}

// MoveRedaction implements ports.Redactions.
func (r *Redactor) MoveRedaction(ctx context.Context, request ports.RedactionRequest) (ports.RedactionRequest, error) {
	row, err := r.queries.MoveRedaction(ctx, r.pool, &eventlogdb.MoveRedactionParams{
		PartitionID: int32(request.Partition), ID: pg.UUID(request.ID), FromRevision: int32(request.Revision), NewState: string(request.State),
		Scope: request.Scope[:], Preview: request.Preview, EndedBy: pg.OptionalText(request.EndedBy), EndReason: pg.OptionalText(request.EndReason),
		Results: request.Results,
	})
	return storedRequest(ctx, &row, err)
}

// NoteRedactionFailure implements ports.Redactions.
func (r *Redactor) NoteRedactionFailure(ctx context.Context, p event.PartitionID, id event.ID, code string) (attempts int, err error) {
	n, err := r.queries.NoteRedactionFailure(ctx, r.pool, &eventlogdb.NoteRedactionFailureParams{PartitionID: int32(p), ID: pg.UUID(id), Code: code})
	if err != nil {
		return 0, redactionFault(ctx, err)
	}
	return int(n), nil
}

// ApproveRedaction implements ports.Redactions.
func (r *Redactor) ApproveRedaction(ctx context.Context, p event.PartitionID, id event.ID, person string, scope event.Hash) (ports.RedactionRequest, error) {
	row, err := r.queries.ApproveRedaction(ctx, r.pool, &eventlogdb.ApproveRedactionParams{
		PartitionID: int32(p), ID: pg.UUID(id), Person: person, Scope: scope[:],
	})
	return storedRequest(ctx, &row, err)
}

// storedRequest converts the row that a function returned.
func storedRequest(ctx context.Context, row *eventlogdb.BackboneRedactionRequest, err error) (ports.RedactionRequest, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.RedactionRequest{}, shredding.RedactionNotFound()
	}
	if err != nil {
		return ports.RedactionRequest{}, redactionFault(ctx, err)
	}
	return redactionRequest(row), nil
}

func redactionRequest(r *eventlogdb.BackboneRedactionRequest) ports.RedactionRequest {
	return ports.RedactionRequest{
		ID: r.ID.Bytes, TenantID: r.TenantID, Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence), EventID: r.EventID.Bytes,
		Pointers: r.Pointers, Reason: r.Reason, State: shredding.RedactionState(r.State), Revision: int(r.Revision), Scope: hashOf(r.Scope), Preview: r.Preview,
		RequestedBy: r.RequestedBy, RequestedAt: r.RequestedAt.UTC(), ApprovedBy: r.ApprovedBy.String, ApprovedAt: pg.TimeOrZero(r.ApprovedAt),
		EndedBy: r.EndedBy.String, EndReason: r.EndReason.String, Attempts: int(r.Attempts), LastError: r.LastError.String,
		UpdatedAt: r.UpdatedAt.UTC(), CompletedAt: pg.TimeOrZero(r.CompletedAt), Results: r.Results,
	}
}

// RedactPayload implements ports.Redactions.
func (r *Redactor) RedactPayload(ctx context.Context, request ports.RedactionRequest, to ports.RedactedPayload) (ports.Redaction, error) {
	row, err := r.queries.RedactPayload(ctx, r.pool, &eventlogdb.RedactPayloadParams{
		PartitionID: int32(request.Partition), Sequence: int64(request.Sequence), Pointers: request.Pointers, ID: pg.UUID(request.ID),
		Salt: to.Salt[:], Payload: to.Payload, OldHash: to.OldHash[:], NewHash: to.NewHash[:],
	})
	if err != nil {
		return ports.Redaction{}, redactionFault(ctx, err)
	}
	return ports.Redaction{
		ID: request.ID, Partition: request.Partition, Sequence: event.Sequence(row.Sequence), EventID: row.EventID.Bytes, Pointers: row.Pointers,
		Reason: row.Reason, RequestedBy: row.RequestedBy, ApprovedBy: row.ApprovedBy, RedactedAt: row.RedactedAt.UTC(),
		OldPayloadHash: hashOf(row.OldPayloadHash), NewPayloadHash: hashOf(row.NewPayloadHash),
	}, nil
}

// Redactions implements ports.RedactionReader.
func (r *Redactor) Redactions(ctx context.Context, p event.PartitionID) ([]ports.Redaction, error) {
	return listRedactions(ctx, r.queries, r.pool, p)
}

// refusals are the faults of the constraints of the functions and tables of redaction.
var refusals = map[string]func() *fault.Error{
	"redaction_event":                shredding.RedactionEventNotFound,
	"redaction_pointer":              shredding.RedactionPointerInvalid,
	"redaction_request":              shredding.RedactionNotFound,
	"redaction_requests_two_persons": shredding.RedactionSamePerson,
	"redaction_approval":             shredding.RedactionNotApproved,
	"redaction_approval_expired":     shredding.RedactionApprovalExpired,
	"redaction_scope":                shredding.RedactionScopeChanged,
	"redaction_changed":              shredding.RedactionChanged,
	"redaction_move":                 shredding.RedactionMoveRefused,
	"redaction_number":               shredding.RedactionOfNumber,
	"redaction_event_changed":        shredding.RedactionEventChanged,
	"redaction_sealed":               shredding.RedactionOfSealed,
	"redaction_repeated":             shredding.RedactionRepeated,
	"redaction_payload":              shredding.RedactionPayloadRefused,
	"redaction_hash":                 shredding.RedactionPayloadRefused,
	"redaction_duplicate":            shredding.RedactionDuplicate,
}

// redactionFault translates a refusal by the functions and tables of redaction.
func redactionFault(ctx context.Context, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return pg.Translate(ctx, err)
	}
	cause := pg.RedactError(err)
	if refusal := refusals[pgErr.ConstraintName]; refusal != nil {
		return refusal().WithCause(cause)
	}
	switch {
	case pgErr.TableName == "redaction_requests" && (pgErr.Code == pg.SQLStateCheck || pgErr.Code == "23502"):
		return shredding.RedactionInvalid().WithCause(cause)
	case pgErr.Code == "42501":
		return fault.New(fault.Forbidden, "redaction.role_refused", "this database user may not redact; connect as the eraser's role (database.eraser_dsn)").WithCause(cause)
	case pgErr.ConstraintName == "pii_redactions_chain":
		return fault.New(fault.Conflict, "redaction.event_changed", "another redaction of this event came first; run it again").WithCause(cause)
	}
	return pg.Translate(ctx, err)
}
