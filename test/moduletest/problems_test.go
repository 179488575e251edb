package moduletest

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
)

// failureCounter counts the failures that a test reports.
type failureCounter struct {
	testing.TB
	failures int
}

func (c *failureCounter) Helper()               {}
func (c *failureCounter) Errorf(string, ...any) { c.failures++ }

// TestProblems writes the documents of a run to a file and compares those of further runs with them.
func TestProblems(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "problems.json")
	blocked := fault.New(fault.FailedPrecondition, "stock.item.blocked", "item %s is blocked; use another", "A")
	sameItem := fault.New(fault.FailedPrecondition, "stock.item.blocked", "item %s is blocked; use another", "AB")
	rule := fault.New(fault.Forbidden, "stock.same_person", "ask another person").With("rule", "S1").WithIntent("01JWZX3V9K5T7Q8R2M4N6P0ABC")
	run := func(update bool, refusals ...error) (*Problems, int) {
		p, counter := NewProblems(file, &update, "stock."), &failureCounter{}
		require.NoError(t, p.read())
		for _, err := range refusals {
			p.Check(counter, err)
		}
		return p, counter.failures
	}
	_, failures := run(false, blocked, sameItem)
	require.Equal(t, 1, failures, "a code without a document is reported once")
	written, failures := run(true, sameItem, blocked, rule)
	require.Zero(t, failures)
	require.NoError(t, written.write(true))

	p, failures := run(false, rule, sameItem, blocked, nil, errors.New("x"), fault.New(fault.Invalid, "cash.other", "no"))
	require.Zero(t, failures)
	require.Empty(t, p.differences())
	require.Equal(t, `{"type":"/problems/stock.item.blocked","title":"Unprocessable Entity","status":422,"code":"stock.item.blocked","detail":"item A is blocked; use another"}`, p.expected["stock.item.blocked"])
	require.Contains(t, p.expected["stock.same_person S1"], `"intent_id":"ULID","rule":"S1"`)

	_, failures = run(false, fault.New(fault.Conflict, "stock.item.blocked", "item A is blocked; use another"))
	require.Equal(t, 1, failures, "another status")
	p, _ = run(false, fault.New(fault.FailedPrecondition, "stock.item.blocked", "no"))
	require.Len(t, p.differences(), 2, "another text, and a document that no test provokes")
	p, _ = run(true, blocked)
	require.NoError(t, p.write(true))
	p, failures = run(false, rule)
	require.Equal(t, 1, failures, "its document is gone")
	require.Len(t, p.differences(), 1)
	(*Problems)(nil).Check(t, blocked)
}
