// Package cli holds the commands of accounts payable for a terminal. They talk to
// a server through its HTTP API alone, so their requests pass the same checks and leave the
// same trace as those of any other caller.
package cli

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/client"
)

// API is what the import calls of a server; *client.Client implements it. It is
// called concurrently.
type API interface {
	// SubmitIntent sends an intent. A refusal is the *fault.Error that the server's
	// problem document describes; any other error means that there was no answer, and
	// the outcome is unknown.
	SubmitIntent(ctx context.Context, params client.SubmitIntentParams, intent client.IntentRequest, options ...client.Option) (client.IntentOutcome, error)
}

// Exit codes of the import.
const (
	ExitRefused    = 1 // something was refused
	ExitUnfinished = 2 // it could not run, or not to the end
)

// ExitError ends a command with an exit code. Its text is for the terminal.
type ExitError struct {
	code int
	text string
	err  error
}

// Error says what happened and what to do next.
func (e *ExitError) Error() string { return e.text }

// Unwrap gives the cause, nil if there is none.
func (e *ExitError) Unwrap() error { return e.err }

// ExitCode is ExitRefused or ExitUnfinished.
func (e *ExitError) ExitCode() int { return e.code }
