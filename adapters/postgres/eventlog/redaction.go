package eventlog

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
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
	config, err := pgxpool.ParseConfig(eraserDSN)
	if err != nil {
		return nil, pg.InvalidDSN("the database address")
	}
	config.MaxConns = 2
	config.ConnConfig.RuntimeParams["application_name"] = "backbone redaction"
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, pg.UnavailableFault(err)
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, pg.UnavailableFault(err)
	}
	return &Redactor{pool: pool, queries: eventlogdb.New()}, nil
}

// Close ends the connections.
func (r *Redactor) Close() { r.pool.Close() }

// RequestRedaction implements ports.Redactions.
func (r *Redactor) RequestRedaction(ctx context.Context, request ports.RedactionRequest) (ports.RedactionRequest, error) {
	at, err := r.queries.RequestRedaction(ctx, r.pool, &eventlogdb.RequestRedactionParams{
		PartitionID: int32(request.Partition), ID: pg.UUID(request.ID), Sequence: int64(request.Sequence), Pointers: request.Pointers,
		Reason: request.Reason, Person: request.RequestedBy,
	})
	if err != nil {
		return ports.RedactionRequest{}, redactionFault(ctx, err)
	}
	request.RequestedAt = at.UTC()
	return request, nil
}

// ApproveRedaction implements ports.Redactions.
func (r *Redactor) ApproveRedaction(ctx context.Context, p event.PartitionID, id event.ID, person string) (ports.RedactionRequest, error) {
	row, err := r.queries.ApproveRedaction(ctx, r.pool, &eventlogdb.ApproveRedactionParams{PartitionID: int32(p), ID: pg.UUID(id), Person: person})
	if err != nil {
		return ports.RedactionRequest{}, redactionFault(ctx, err)
	}
	return redactionRequest(p, &eventlogdb.ListRedactionRequestsRow{
		ID: pg.UUID(id), RequestedAt: row.RequestedAt, ApprovedAt: row.ApprovedAt, Sequence: row.Sequence, Pointers: row.Pointers, Reason: row.Reason,
		RequestedBy: row.RequestedBy, ApprovedBy: row.ApprovedBy,
	}), nil
}

// RedactionRequests implements ports.Redactions.
func (r *Redactor) RedactionRequests(ctx context.Context, p event.PartitionID) ([]ports.RedactionRequest, error) {
	rows, err := r.queries.ListRedactionRequests(ctx, r.pool, int32(p))
	if err != nil {
		return nil, redactionFault(ctx, err)
	}
	return pg.Map(rows, func(r *eventlogdb.ListRedactionRequestsRow) ports.RedactionRequest { return redactionRequest(p, r) }), nil
}

func redactionRequest(p event.PartitionID, r *eventlogdb.ListRedactionRequestsRow) ports.RedactionRequest {
	return ports.RedactionRequest{
		ID: r.ID.Bytes, Partition: p, Sequence: event.Sequence(r.Sequence), Pointers: r.Pointers, Reason: r.Reason,
		RequestedBy: r.RequestedBy, RequestedAt: r.RequestedAt.UTC(), ApprovedBy: r.ApprovedBy.String, ApprovedAt: pg.TimeOrZero(r.ApprovedAt),
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

// redactionFault translates a refusal by the functions and tables of redaction, which the name
// of the constraint identifies.
func redactionFault(ctx context.Context, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return pg.Translate(ctx, err)
	}
	refuse := func(kind fault.Kind, code, detail string) error {
		return fault.New(kind, "redaction."+code, detail).WithCause(pg.RedactError(err))
	}
	switch pgErr.ConstraintName {
	case "redaction_event":
		return refuse(fault.NotFound, "event_not_found", "there is no such event with a payload in plain JSON; check legal entity and sequence")
	case "redaction_pointer":
		return refuse(fault.Invalid, "pointer_invalid", "a pointer leads to no value below /data of the event; read the event and correct it")
	case "redaction_request":
		return refuse(fault.NotFound, "not_found", "there is no such redaction request in this legal entity; list them")
	case "redaction_requests_two_persons":
		return refuse(fault.Forbidden, "same_person", "a redaction is approved by another person than requested it; ask a colleague")
	case "redaction_approval":
		return refuse(fault.FailedPrecondition, "not_approved", "this redaction is not approved yet; let a second person approve it")
	case "redaction_approval_expired":
		return refuse(fault.FailedPrecondition, "approval_expired", "the approval is valid for 72 hours and is over; let a second person approve again")
	case "redaction_scope":
		return refuse(fault.FailedPrecondition, "scope_changed", "this is not what was approved; request it again")
	case "redaction_event_changed":
		return refuse(fault.FailedPrecondition, "event_changed", "the stored payload is not the one that the log vouches for; verify the log first")
	case "redaction_sealed":
		return refuse(fault.FailedPrecondition, "sealed", "a value at the pointers is sealed; request the erasure of the person instead")
	case "redaction_repeated":
		return refuse(fault.FailedPrecondition, "repeated", "a value at the pointers is redacted already; leave the pointer out")
	case "redaction_payload", "redaction_hash":
		return refuse(fault.Internal, "payload_refused", "the database refused the redacted payload: it differs at other places or its hash does not match; report this defect")
	case "redaction_requests_pkey":
		return refuse(fault.Conflict, "duplicate", "there is a request with this id already; list them")
	}
	switch {
	case pgErr.TableName == "redaction_requests" && (pgErr.Code == pg.SQLStateCheck || pgErr.Code == "23502"):
		return refuse(fault.Invalid, "invalid", "a redaction needs 1 to 64 pointers, a reason of at most 1,000 bytes and person ids of at most 128 letters, digits, '.', '_', ':' and '-'; correct them")
	case pgErr.Code == "42501":
		return refuse(fault.Forbidden, "role_refused", "this database user may not redact; connect as the eraser's role (database.eraser_dsn)")
	case pgErr.ConstraintName == "pii_redactions_chain":
		return refuse(fault.Conflict, "event_changed", "another redaction of this event came first; run it again")
	}
	return pg.Translate(ctx, err)
}
