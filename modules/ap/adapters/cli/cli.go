// Package cli holds the commands of accounts payable for a terminal. They talk to
// a server through its HTTP API alone, so whatever they do passes the same checks
// and leaves the same trace as any other caller's work.
package cli

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
)

// API is what the import needs of a server. It is called by several goroutines at
// once.
type API interface {
	// SubmitIntent sends an intent. A refusal is the *fault.Error that the server's
	// problem document describes; any other error means that there was no answer,
	// so that nothing is known about the outcome.
	SubmitIntent(ctx context.Context, legalEntity string, s Submission) (Outcome, error)
}

// Submission is an intent to send. Its JSON members are those of the body of
// POST /api/intents; the key travels as the header Idempotency-Key.
type Submission struct {
	Type           string          `json:"type"`
	Payload        json.RawMessage `json:"payload"`
	EffectiveDate  string          `json:"effective_date,omitempty"` // ISO 8601 date
	Source         event.Source    `json:"source"`
	IdempotencyKey string          `json:"-"` // printable ASCII, at most 255 bytes
}

// Outcome is the server's answer, in the members of the answer of
// POST /api/intents. Replayed is the header Idempotency-Replayed: the server knew
// the key and gives its first answer again.
type Outcome struct {
	IntentID      string  `json:"intent_id"`
	Status        string  `json:"status"`
	Events        []Event `json:"events"`
	Rules         []Rule  `json:"rules"`
	CorrelationID string  `json:"correlation_id"`
	Replayed      bool    `json:"-"`
}

// Event is an event that the intent made.
type Event struct {
	ID            string `json:"id"`
	Type          string `json:"type"`
	Sequence      string `json:"sequence"`
	Stream        string `json:"stream"` // "type/id"
	StreamVersion uint64 `json:"stream_version"`
}

// Rule is a rule that looked at the intent, and what it did.
type Rule struct {
	ID      string   `json:"rule_id"`
	Actions []string `json:"actions_taken"`
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
