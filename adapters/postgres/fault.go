package postgres

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

// Codes of the faults that only this adapter raises.
const (
	codeUnavailable     = "store.unavailable"
	codeNotMigrated     = "store.not_migrated"
	codeInternal        = "store.failed"
	codeQueueFull       = "append.queue_full"
	codeOutcomeUnknown  = "append.outcome_unknown"
	codeRejected        = "append.rejected_by_store"
	codeClockSkew       = "append.clock_skew"
	codeShuttingDown    = "append.shutting_down"
	retryAfter          = 500 * time.Millisecond
	sqlstateUnique      = "23505"
	sqlstateCheck       = "23514"
	sqlstateNoData      = "P0002"
	sqlstateLockTimeout = "55P03"
)

// storeError is what is left of a PgError: names, never values. Message and
// detail may quote what a caller sent. It does not unwrap to the PgError.
type storeError struct {
	sqlstate   string
	constraint string
	table      string
}

func (e *storeError) Error() string {
	parts := []string{"SQLSTATE " + e.sqlstate}
	if e.constraint != "" {
		parts = append(parts, "constraint "+e.constraint)
	}
	if e.table != "" {
		parts = append(parts, "table "+e.table)
	}
	return strings.Join(parts, ", ")
}

// scrub takes out of a library's error whatever may quote a value.
func scrub(err error) error {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return &storeError{sqlstate: pg.Code, constraint: pg.ConstraintName, table: pg.TableName}
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
	if unavailable(err) {
		return errors.New("connection to the database lost")
	}
	// A library's text may quote a value; the types say enough.
	text := "database client:"
	for e := err; e != nil; e = errors.Unwrap(e) {
		text += fmt.Sprintf(" %T", e)
	}
	return errors.New(text)
}

// translate turns an error of a read or a directory write into a fault. The
// caller's own cancellation passes as it is.
func translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if unavailable(err) {
		return unavailableFault(err)
	}
	if notMigrated(err) {
		return fault.New(fault.Unavailable, codeNotMigrated, "the database lacks tables or columns of this version; run backbone migrate").WithCause(scrub(err))
	}
	return fault.New(fault.Internal, codeInternal, "the database refused a statement; the server's log has the reason").WithCause(scrub(err))
}

func unavailableFault(err error) *fault.Error {
	detail := "the database cannot be reached or is busy; try again"
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok && (strings.HasPrefix(pg.Code, "28") || pg.Code == "3D000") {
		detail = "the database lets nobody in with this user, password and database name; correct its address (DSN)"
	} else if isLockTimeout(err) {
		return heldFault(err)
	}
	return fault.New(fault.Unavailable, codeUnavailable, detail).WithRetryAfter(retryAfter).WithCause(scrub(err))
}

// heldFault is the fault of what waited for a lock until its patience ended.
func heldFault(err error) *fault.Error {
	return fault.New(fault.Unavailable, codeUnavailable,
		"another session of the database holds a lock that this needs; try again, and end that session if it stays (backbone doctor --section contention names it)").
		WithRetryAfter(retryAfter).WithCause(scrub(err))
}

// notMigrated reports that the statement named a schema, table, column or function
// that is not there: the migrations of this version have not run.
func notMigrated(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return false
	}
	switch pg.Code {
	case "3F000", "42P01", "42703", "42883":
		return true
	default:
		return false
	}
}

// connectionLost reports whether err says nothing about what the server did: the
// network failed or the server ended the session.
func connectionLost(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err != nil && !errors.Is(err, pgx.ErrNoRows)
	}
	return pg.Severity == "FATAL" || pg.Severity == "PANIC" || strings.HasPrefix(pg.Code, "57P") || strings.HasPrefix(pg.Code, "08")
}

// unavailable reports whether trying again later makes sense: the network or the
// server failed, not the statement or its values.
func unavailable(err error) bool {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return connectionLost(err) || strings.HasPrefix(pg.Code, "53") || pg.Code == sqlstateLockTimeout || pg.Code == "57014"
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

// serializationFailure reports the errors after which the same transaction may
// simply be run again.
func serializationFailure(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pg.Code == "40001" || pg.Code == "40P01")
}

// violates reports whether a constraint of this name was violated.
func violates(err error, constraint string) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.ConstraintName == constraint
}
