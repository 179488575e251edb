package pg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Codes of faults, how long a caller waits before it tries again, and the SQLSTATEs that this
// package tests for.
const (
	CodeUnavailable     = "store.unavailable"
	CodeNotMigrated     = "store.not_migrated"
	CodeInternal        = "store.failed"
	RetryAfter          = 500 * time.Millisecond
	SQLStateUnique      = "23505"
	SQLStateCheck       = "23514"
	sqlstateNoData      = "P0002"
	sqlstateLockTimeout = "55P03"
)

// StatementError keeps the parts of a PgError that name things and hold no values. The message
// and the detail of a PgError may quote what a caller sent, so it does not unwrap to the PgError.
type StatementError struct {
	SQLState   string
	Constraint string
	table      string
}

func (e *StatementError) Error() string {
	parts := []string{"SQLSTATE " + e.SQLState}
	if e.Constraint != "" {
		parts = append(parts, "constraint "+e.Constraint)
	}
	if e.table != "" {
		parts = append(parts, "table "+e.table)
	}
	return strings.Join(parts, ", ")
}

// RedactError removes the parts of a library's error that may quote a value.
func RedactError(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &StatementError{SQLState: pgErr.Code, Constraint: pgErr.ConstraintName, table: pgErr.TableName}
	}
	switch {
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, pgx.ErrNoRows):
		return pgx.ErrNoRows
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	if IsUnavailable(err) {
		return errors.New("connection to the database lost")
	}
	// A library's text may quote a value; the types say enough.
	text := "database client:"
	for e := err; e != nil; e = errors.Unwrap(e) {
		text += fmt.Sprintf(" %T", e)
	}
	return errors.New(text)
}

// Translate turns an error of a read or a directory write into a fault: store.unavailable if
// IsUnavailable, store.not_migrated if IsNotMigrated, else store.failed. Faults and the
// caller's own cancellation pass unchanged. The append engine translates its errors itself:
// see group.run in package appender.
func Translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if IsUnavailable(err) {
		return UnavailableFault(err)
	}
	if IsNotMigrated(err) {
		return fault.New(fault.Unavailable, CodeNotMigrated, "the database lacks tables or columns of this version; run backbone migrate").WithCause(RedactError(err))
	}
	return fault.New(fault.Internal, CodeInternal, "the database refused a statement; the server's log has the reason").WithCause(RedactError(err))
}

// InvalidDSN is the fault of an address that the library cannot parse. It has no cause, because
// the library's text may quote the password.
func InvalidDSN(address string) *fault.Error {
	return fault.New(fault.Invalid, "store.dsn_invalid", "%s cannot be read; correct it", address)
}

// UnavailableFault is the fault store.unavailable. It names a refused login and a held lock,
// whose next steps differ from those of an outage.
func UnavailableFault(err error) *fault.Error {
	detail := "the database cannot be reached or is busy; try again"
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && (strings.HasPrefix(pgErr.Code, "28") || pgErr.Code == "3D000") {
		detail = "the database refuses this user, password or database name; correct its address (DSN)"
	} else if IsLockTimeout(err) {
		return LockHeldFault(err)
	}
	return fault.New(fault.Unavailable, CodeUnavailable, detail).WithRetryAfter(RetryAfter).WithCause(RedactError(err))
}

// LockHeldFault is the fault of a statement whose wait for a lock timed out.
func LockHeldFault(err error) *fault.Error {
	return fault.New(fault.Unavailable, CodeUnavailable,
		"another session of the database holds a lock that this needs; try again, and end that session if it stays (backbone doctor --section contention names it)").
		WithRetryAfter(RetryAfter).WithCause(RedactError(err))
}

// IsNotMigrated reports whether the statement named a schema (3F000), table (42P01), column
// (42703) or function (42883) that does not exist: the migrations of this version have not run.
func IsNotMigrated(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pgErr.Code {
	case "3F000", "42P01", "42703", "42883":
		return true
	default:
		return false
	}
}

// IsConnectionLost reports whether err leaves open what the server did: the network failed, or
// the server ended the session (FATAL, PANIC, class 57P, class 08).
func IsConnectionLost(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err != nil && !errors.Is(err, pgx.ErrNoRows)
	}
	return pgErr.Severity == "FATAL" || pgErr.Severity == "PANIC" || strings.HasPrefix(pgErr.Code, "57P") || strings.HasPrefix(pgErr.Code, "08")
}

// IsUnavailable reports whether the caller may try again later: the network or the server
// failed, not the statement or its values. Beside lost connections these are class 53
// (insufficient resources), lock_not_available (55P03) and query_canceled (57014).
func IsUnavailable(err error) bool {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return IsConnectionLost(err) || strings.HasPrefix(pgErr.Code, "53") || pgErr.Code == sqlstateLockTimeout || pgErr.Code == "57014"
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return true
	}
	for _, lost := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, lost) {
			return true
		}
	}
	return err != nil && (pgconn.SafeToRetry(err) || strings.Contains(err.Error(), "conn closed"))
}

// IsSerializationFailure reports whether the same transaction may run again: after
// serialization_failure (40001) and deadlock_detected (40P01).
func IsSerializationFailure(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// ViolatesConstraint reports whether a constraint of this name was violated.
func ViolatesConstraint(err error, constraint string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.ConstraintName == constraint
}

// UnknownLegalEntity is the fault of a partition or code that the directory does not have.
func UnknownLegalEntity() *fault.Error {
	return fault.New(fault.NotFound, "legal_entity.not_found", "there is no such legal entity; check the code or create it first")
}

// IsLockTimeout reports whether a statement waited for a lock until lock_timeout.
func IsLockTimeout(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == sqlstateLockTimeout
}

// SQLStateDenied is insufficient_privilege: the role lacks a grant.
const SQLStateDenied = "42501"
