package requests

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

const (
	// AlarmAttempts is the number of failed attempts at a step from which a worker logs an error.
	AlarmAttempts = 5

	firstBackoff = time.Second
	maxBackoff   = time.Minute
)

// Signal wakes a worker before its next poll.
type Signal chan struct{}

// NewSignal makes a Signal.
func NewSignal() Signal { return make(Signal, 1) }

// Wake makes the worker poll at once.
func (s Signal) Wake() {
	select {
	case s <- struct{}{}:
	default: // it is signalled already
	}
}

// Backoff is the pause after a number of failed attempts at a step, from a second to a minute.
func Backoff(attempts int) time.Duration {
	return min(firstBackoff<<min(max(attempts-1, 0), 10), maxBackoff)
}

// Kind is a kind of requests as the log of the server names it: "erasure" or "redaction".
type Kind string

// LogFailure logs a failed attempt at a step, from AlarmAttempts on as an error.
func (k Kind) LogFailure(ctx context.Context, logger *slog.Logger, id event.ID, state, code string, attempts int) {
	level, message := slog.LevelWarn, " step failed; it will be tried again"
	if attempts >= AlarmAttempts {
		level, message = slog.LevelError, " is stuck; an operator has to find the cause"
	}
	logger.Log(ctx, level, string(k)+message, "request", id.String(), "state", state, "code", code, "attempts", attempts, "retry_in", Backoff(attempts).String())
}

// LogMove logs that a request reached a state.
func (k Kind) LogMove(ctx context.Context, logger *slog.Logger, id event.ID, from, to string) {
	logger.InfoContext(ctx, string(k)+" moved", "request", id.String(), "from", from, "to", to)
}

// RecoverStep is deferred by a worker around one step of a request. It turns a panic, such as of
// a read model, into the failure. It logs only the stack, since the panic's value may quote an
// event.
func (k Kind) RecoverStep(ctx context.Context, logger *slog.Logger, id event.ID, state string, failure error, err *error) {
	if v := recover(); v != nil {
		logger.ErrorContext(ctx, string(k)+" panicked", "request", id.String(), "state", state, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
		*err = failure
	}
}
