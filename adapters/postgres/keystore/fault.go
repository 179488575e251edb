package keystore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// sqlstateRefused is the SQLSTATE that keystore.refuse raises: the constraint holds the
// fault's code, the detail the id of a request.
const sqlstateRefused = "BK001"

// keyRefusals are the faults that the functions of the key store raise.
var keyRefusals = map[string]struct {
	kind   fault.Kind
	detail string
}{
	"keys.request_invalid":     {fault.Internal, "the request to the key store is invalid: the key of another tenant, a version without the one before, or a damaged reference; report this defect"},
	"keys.epoch_closed":        {fault.Conflict, "new keys are not wrapped with this epoch of the tenant's key any more; make the key again under the active one"},
	"keys.epoch_missing":       {fault.NotFound, "the tenant has no key of this epoch; list its keys"},
	"keys.epoch_taken":         {fault.Conflict, "another process has made the tenant's next key already; list its keys and continue with that one"},
	"keys.epoch_in_use":        {fault.FailedPrecondition, "keys are still wrapped with this epoch; wrap them again first"},
	"keys.move_refused":        {fault.FailedPrecondition, "the tenant's key cannot move to that state from its present one; list its keys and finish the rotation that has begun"},
	"erasure.not_found":        {fault.NotFound, "there is no such erasure request, hold or receipt; look at the list"},
	"erasure.duplicate":        {fault.Conflict, "an erasure of this subject has begun already; follow that one"},
	"erasure.changed":          {fault.Conflict, "another process has changed the request; read it again"},
	"erasure.move_refused":     {fault.FailedPrecondition, "the erasure request cannot move to that state from its present one; read the request again"},
	"erasure.same_person":      {fault.Forbidden, "an erasure is approved by another person than requested it; ask a colleague"},
	"erasure.scope_changed":    {fault.FailedPrecondition, "the request concerns other data than was approved; approve the new preview"},
	"erasure.approval_expired": {fault.FailedPrecondition, "the approval is missing or too old; request the erasure again"},
	"erasure.held":             {fault.FailedPrecondition, "a legal hold forbids the erasure; wait until it ends or have it released"},
	"erasure.receipt_changed":  {fault.Internal, "another receipt is stored under this number; compare the database with the export store before anything else is erased"},
}

func keyFault(code, detail string) *fault.Error {
	if code == "pii.subject_erased" {
		return shredding.Erased("")
	}
	r, ok := keyRefusals[code]
	if !ok {
		return fault.New(fault.Internal, pg.CodeInternal, "the key store refused a statement; the server's log has the reason")
	}
	f := fault.New(r.kind, code, r.detail)
	// The detail is the id of the conflicting request.
	if id, err := parseReference(detail); err == nil {
		f = f.With("request_id", event.ID(id.Bytes).String())
	}
	return f
}

// translateKeys turns an error of the key store into a fault. It returns the caller's own
// cancellation unchanged.
func translateKeys(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch {
		case pgErr.Code == sqlstateRefused:
			return keyFault(pgErr.ConstraintName, pgErr.Detail)
		case strings.HasSuffix(pgErr.ConstraintName, "_two_persons"):
			return keyFault("erasure.same_person", "")
		case pgErr.Code == pg.SQLStateDenied:
			return fault.New(fault.Unavailable, "keys.unavailable", "the database user may not do this in the key store; correct its address (DSN)").WithCause(pg.RedactError(err))
		case pg.IsSerializationFailure(err):
			return Unavailable(err)
		}
	}
	if pg.IsUnavailable(err) {
		return Unavailable(err)
	}
	if pg.IsNotMigrated(err) {
		return Missing(err)
	}
	return fault.New(fault.Internal, pg.CodeInternal, "the key store refused a statement; the server's log has the reason").WithCause(pg.RedactError(err))
}

// mapRows converts the rows of a query that returned err.
func mapRows[A, B any](ctx context.Context, rows []A, err error, convert func(*A) B) ([]B, error) {
	if err != nil {
		return nil, translateKeys(ctx, err)
	}
	return pg.Map(rows, convert), nil
}

func noRows(err error) bool { return errors.Is(err, pgx.ErrNoRows) }

// Unavailable is the fault keys.unavailable: without the key store no personal value can be
// stored.
func Unavailable(err error) *fault.Error {
	return fault.New(fault.Unavailable, "keys.unavailable",
		"the key store cannot be reached, and personal values cannot be stored without it; try again").WithRetryAfter(pg.RetryAfter).WithCause(pg.RedactError(err))
}

// Missing is the fault of a key store whose schema is not migrated, or that the application's
// role may not use.
func Missing(err error) *fault.Error {
	return fault.New(fault.Unavailable, pg.CodeNotMigrated,
		"the key store's schema is missing in its database, or the application may not use it; run `backbone migrate`").WithCause(pg.RedactError(err))
}

// LacksKeyStore reports whether a statement may have failed because the functions of the key
// store do not exist, or this role may not call them.
func LacksKeyStore(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pgErr.Code {
	case "3F000", "42883", "42501":
		return true
	default:
		return false
	}
}
