package jq

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// meter is the budget of one run. The machine asks its context before every step, so
// the meter is that context: it counts the questions. What a step may cost beyond its
// own is spent by the functions that rewriting puts before it.
type meter struct {
	parent   context.Context
	steps    int
	work     int
	deadline time.Time
	over     bool
}

var (
	ended = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

	errOver = errors.New("limit exceeded")
)

func (m *meter) start(ctx context.Context, l Limits) {
	*m = meter{parent: ctx, steps: l.Steps, work: l.Work, deadline: time.Now().Add(l.Time)}
}

// stop lets go of what a run was given.
func (m *meter) stop() { m.parent = nil }

// Done implements context.Context.
func (m *meter) Done() <-chan struct{} {
	m.steps--
	if m.steps < 0 {
		m.over = true
	} else if m.steps&0x3ff == 0 && !m.over {
		m.look()
	}
	if m.over {
		return ended
	}
	return nil
}

func (m *meter) look() {
	if m.parent.Err() != nil || time.Now().After(m.deadline) {
		m.over = true
	}
}

// Err implements context.Context.
func (m *meter) Err() error {
	if m.over {
		return errOver
	}
	return nil
}

// Deadline implements context.Context.
func (m *meter) Deadline() (time.Time, bool) { return m.deadline, true }

// Value implements context.Context.
func (m *meter) Value(any) any { return nil }

// spend takes work off the budget. Once it is used up the run ends at its next step,
// whatever the program catches.
func (m *meter) spend(n int) bool {
	if n < 0 || n > m.work {
		m.over = true
	}
	if m.over {
		return false
	}
	m.work -= n
	return true
}

// reason makes a fault of what ended a run.
func (m *meter) reason(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m.over {
		return fault.New(fault.FailedPrecondition, codeLimit, "the jq program does not end, or its values grow too large; make it do less")
	}
	_ = err // its text repeats values of the document
	return fault.New(fault.FailedPrecondition, codeFailed, "the jq program ended with an error; make it check what it works on")
}

// What a value costs by its parts, about its bytes in memory.
const (
	costElement = 32
	costMember  = 96
	// maxDepth bounds values inside one another: functions of the library recurse.
	maxDepth = 256
)

// shallow pays for a value without what is inside it.
func (m *meter) shallow(v any, factor int) bool {
	switch v := v.(type) {
	case string:
		return m.spend(factor * (len(v) + 16))
	case json.Number:
		return m.spend(factor * (len(v) + 16))
	case *big.Int:
		return m.spend(factor * (v.BitLen()/8 + 32))
	case []any:
		return m.spend(factor * (costElement*len(v) + 16))
	case map[string]any:
		return m.spend(factor * (costMember*len(v) + 16))
	default:
		return true
	}
}

// deep pays for a value with all that is inside it, as often as it is there.
func (m *meter) deep(v any, factor, depth int) bool {
	if depth > maxDepth {
		m.over = true
		return false
	}
	if !m.shallow(v, factor) {
		return false
	}
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			if !m.deep(inner, factor, depth+1) {
				return false
			}
		}
	case map[string]any:
		for name, inner := range v {
			if !m.spend(factor*len(name)) || !m.deep(inner, factor, depth+1) {
				return false
			}
		}
	}
	return true
}
