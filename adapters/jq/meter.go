package jq

import (
	"context"
	"encoding/json"
	"errors"
	"math/big"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
)

// meter is the budget of one run. The machine checks its context before every step, so the
// meter is that context and counts the checks. Functions that the rewriter inserts spend
// the work of steps that cost more.
type meter struct {
	parent      context.Context
	steps       int
	work        int
	deadline    time.Time
	isExhausted bool
}

var (
	closedChannel = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

	errExhausted = errors.New("limit exceeded")
)

func (m *meter) start(ctx context.Context, l Limits) {
	*m = meter{parent: ctx, steps: l.Steps, work: l.Work, deadline: time.Now().Add(l.Time)}
}

// stop releases the run's context.
func (m *meter) stop() { m.parent = nil }

// Done implements context.Context.
func (m *meter) Done() <-chan struct{} {
	m.steps--
	if m.steps < 0 {
		m.isExhausted = true
	} else if m.steps&0x3ff == 0 && !m.isExhausted {
		m.checkDeadline()
	}
	if m.isExhausted {
		return closedChannel
	}
	return nil
}

func (m *meter) checkDeadline() {
	if m.parent.Err() != nil || time.Now().After(m.deadline) {
		m.isExhausted = true
	}
}

// Err implements context.Context.
func (m *meter) Err() error {
	if m.isExhausted {
		return errExhausted
	}
	return nil
}

// Deadline implements context.Context.
func (m *meter) Deadline() (time.Time, bool) { return m.deadline, true }

// Value implements context.Context.
func (m *meter) Value(any) any { return nil }

// spend takes work off the budget. Once the budget is used up the run ends at its next step,
// even if the program catches errors.
func (m *meter) spend(n int) bool {
	if n < 0 || n > m.work {
		m.isExhausted = true
	}
	if m.isExhausted {
		return false
	}
	m.work -= n
	return true
}

// toFault makes a fault of the error that ended a run.
func (m *meter) toFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if m.isExhausted {
		return fault.New(fault.FailedPrecondition, codeLimit, "the jq program does not end, or its values grow too large; make it do less")
	}
	_ = err // its text repeats values of the document
	return fault.New(fault.FailedPrecondition, codeFailed, "the jq program ended with an error; make it check what it works on")
}

// The cost of a value by its parts, about their bytes in memory.
const (
	costElement = 32
	costMember  = 96
	// maxDepth bounds values inside one another: functions of the library recurse.
	maxDepth = 256
)

// payShallow pays for a value without the values inside it.
func (m *meter) payShallow(v any, factor int) bool {
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

// payDeep pays for a value and all values inside it; one that occurs twice is paid twice.
func (m *meter) payDeep(v any, factor, depth int) bool {
	if depth > maxDepth {
		m.isExhausted = true
		return false
	}
	if !m.payShallow(v, factor) {
		return false
	}
	switch v := v.(type) {
	case []any:
		for _, inner := range v {
			if !m.payDeep(inner, factor, depth+1) {
				return false
			}
		}
	case map[string]any:
		for name, inner := range v {
			if !m.spend(factor*len(name)) || !m.payDeep(inner, factor, depth+1) {
				return false
			}
		}
	}
	return true
}
