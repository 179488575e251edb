package opa_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDecideCancelled: a decision whose caller cancels is reported as canceled.
func TestDecideCancelled(t *testing.T) {
	t.Parallel()
	e := engine(t, "package backbone.test\n\ndecision := input.n > 1\n")
	left, leave := context.WithCancel(t.Context())
	leave()
	var out bool
	err := e.Decide(left, "data.backbone.test.decision", map[string]any{"n": 2}, &out)
	requireOutOfTime(t, err)
	require.ErrorIs(t, err, context.Canceled)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	err = e.Decide(late, "data.backbone.test.decision", map[string]any{"n": 2}, &out)
	requireOutOfTime(t, err)
	require.NotErrorIs(t, err, context.Canceled)
}
