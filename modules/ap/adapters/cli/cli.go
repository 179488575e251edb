// Package cli holds the terminal commands of accounts payable: Import submits supplier
// documents, Sample runs the demonstration of `backbone dev`. They call a server through
// its HTTP API only, so their requests pass the same checks and leave the same trace as
// those of any other caller.
package cli

import (
	"context"

	"github.com/erpbackbone/backbone/adapters/client"
)

// API is what the import calls of a server; *client.Client implements it. It is
// called concurrently.
type API interface {
	IntentAPI
	// KeepPaper keeps a file. Its errors are as those of SubmitIntent. The same file again is kept once.
	KeepPaper(ctx context.Context, params client.KeepPaperParams, file []byte, options ...client.Option) (client.Paper, error)
}

// IntentAPI takes intents.
type IntentAPI interface {
	// SubmitIntent sends an intent. A refusal is the *fault.Error that the server's
	// problem document describes; any other error means that there was no answer, and
	// the outcome is unknown.
	SubmitIntent(ctx context.Context, params client.SubmitIntentParams, intent client.IntentRequest, options ...client.Option) (client.IntentOutcome, error)
}

// Exit codes of the import.
const (
	ExitRefused    = 1 // at least one file was refused
	ExitUnfinished = 2 // the import could not start, or a file has no final answer
)

// ExitError is the error of a command with its exit code.
type ExitError struct {
	code int
	text string
	err  error
}

// Error is one sentence for the terminal with the next step.
func (e *ExitError) Error() string { return e.text }

// Unwrap returns the cause, or nil.
func (e *ExitError) Unwrap() error { return e.err }

// ExitCode is ExitRefused or ExitUnfinished.
func (e *ExitError) ExitCode() int { return e.code }
