// Package fault holds the one error type that crosses layers. A fault says what
// happened by a closed Kind and a stable Code; its Detail is written for the
// caller and ends with the next step. Programs act on Kind and Code, never on
// text. Adapters translate library errors into faults once; an error that is not
// a fault is an internal error and its text is never shown to a caller.
package fault

import (
	"errors"
	"fmt"
	"time"
)

// Kind is the closed list of ways a request can fail. HTTP maps each kind to one
// status. Do not reorder: the numbers appear in metrics.
type Kind uint8

// The kinds.
const (
	Internal           Kind = iota // unexpected
	Invalid                        // the request is wrong in itself
	Unauthenticated                // the caller is not known
	Forbidden                      // the caller is known and may not
	NotFound                       // no such thing, or the caller may not see it
	Conflict                       // another request came first
	Gone                           // it existed and was ended for good
	TooLarge                       // over a size limit
	FailedPrecondition             // right request, wrong state
	TooMany                        // rate limit
	Unavailable                    // try again later
	Timeout                        // the outcome is not known in time
)

var kindNames = [...]string{
	"internal", "invalid", "unauthenticated", "forbidden", "not_found", "conflict", "gone",
	"too_large", "failed_precondition", "too_many", "unavailable", "timeout",
}

// String gives the name used in logs and metrics.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "internal"
}

// Kinds lists every kind, for tests that check a mapping is complete.
func Kinds() []Kind {
	out := make([]Kind, len(kindNames))
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

// Holder names the event that already holds what was asked for, such as a
// business key.
type Holder struct {
	EventID    string `json:"event_id"`
	DocumentID string `json:"document_id,omitempty"`
	Sequence   string `json:"sequence,omitempty"`
}

// Violation is one finding among several: a schema keyword, a missing dimension,
// a rule of a document. Values of the input are never copied into it, except
// amounts, which are not personal.
type Violation struct {
	Field      string `json:"field,omitempty"` // RFC 6901 pointer into the caller's document
	Code       string `json:"code"`
	Rule       string `json:"rule,omitempty"`
	Severity   string `json:"severity,omitempty"` // "error" (default) or "warning"
	Detail     string `json:"detail,omitempty"`
	Expected   string `json:"expected,omitempty"`
	Got        string `json:"got,omitempty"`
	Difference string `json:"difference,omitempty"`
	Currency   string `json:"currency,omitempty"`
	BT         string `json:"bt,omitempty"`      // business term of EN 16931
	Element    string `json:"element,omitempty"` // path in the source document
	Line       int    `json:"line,omitempty"`    // line of the source document
}

// Error is a fault. Build one with New and the With methods; treat it as
// immutable afterwards (the With methods return a changed copy).
type Error struct {
	Kind       Kind
	Code       string // stable, documented: "append.wrong_expected_version"
	Detail     string // for the caller; ends with the next step
	Field      string // RFC 6901 pointer, when one field is to blame
	Expected   any    // number or decimal string
	Actual     any    // number or decimal string
	Holder     *Holder
	Violations []Violation
	Attributes map[string]any // further members of the problem document, snake_case
	IntentID   string
	RetryAfter time.Duration
	cause      error
}

// New makes a fault. The detail is formatted as by fmt.Sprintf.
func New(kind Kind, code, detail string, args ...any) *Error {
	if len(args) > 0 {
		detail = fmt.Sprintf(detail, args...)
	}
	return &Error{Kind: kind, Code: code, Detail: detail}
}

// Error gives code and detail. It never contains the cause, which may quote
// values.
func (e *Error) Error() string { return e.Code + ": " + e.Detail }

// Unwrap gives the cause for errors.Is and errors.As.
func (e *Error) Unwrap() error { return e.cause }

func (e *Error) clone() *Error { c := *e; return &c }

// WithField names the field to blame by its RFC 6901 pointer.
func (e *Error) WithField(pointer string) *Error { c := e.clone(); c.Field = pointer; return c }

// WithNumbers sets the expected and the actual value.
func (e *Error) WithNumbers(expected, actual any) *Error {
	c := e.clone()
	c.Expected, c.Actual = expected, actual
	return c
}

// WithHolder names the event that got there first.
func (e *Error) WithHolder(h Holder) *Error { c := e.clone(); c.Holder = &h; return c }

// WithViolations attaches the single findings.
func (e *Error) WithViolations(v ...Violation) *Error { c := e.clone(); c.Violations = v; return c }

// With adds a member to the problem document.
func (e *Error) With(name string, value any) *Error {
	c := e.clone()
	c.Attributes = make(map[string]any, len(e.Attributes)+1)
	for k, v := range e.Attributes {
		c.Attributes[k] = v
	}
	c.Attributes[name] = value
	return c
}

// WithIntent names the stored intent that records the refusal.
func (e *Error) WithIntent(id string) *Error { c := e.clone(); c.IntentID = id; return c }

// WithRetryAfter says when trying again makes sense.
func (e *Error) WithRetryAfter(d time.Duration) *Error { c := e.clone(); c.RetryAfter = d; return c }

// WithCause keeps the error that led here, for logs; it is never shown.
func (e *Error) WithCause(err error) *Error { c := e.clone(); c.cause = err; return c }

// KindOf gives the kind of the first fault in err's chain, Internal if there is
// none.
func KindOf(err error) Kind {
	if e, ok := As(err); ok {
		return e.Kind
	}
	return Internal
}

// CodeOf gives the code of the first fault in err's chain, "internal" if there is
// none, "" for nil.
func CodeOf(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := As(err); ok {
		return e.Code
	}
	return "internal"
}

// WithField names the member that the fault in err's chain is about. Other errors are returned
// as they are.
func WithField(err error, pointer string) error {
	if f, ok := As(err); ok {
		return f.WithField(pointer)
	}
	return err
}

// As finds the first fault in err's chain.
func As(err error) (*Error, bool) {
	var e *Error
	ok := errors.As(err, &e)
	return e, ok
}
