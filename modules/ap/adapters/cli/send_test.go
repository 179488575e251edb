package cli_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
)

// TestImport_RunningRequest imports a document while the server still processes the request of
// another import: the import waits for the outcome, at most as long as a request may run.
func TestImport_RunningRequest(t *testing.T) {
	t.Parallel()
	importing := func(answers int) (r *cli.Report, pauses []time.Duration) {
		s := newServer()
		s.before = func(context.Context, submission) error {
			if answers--; answers >= 0 {
				return fault.New(fault.Conflict, "idempotency.in_progress", "the first request with this key is still running").WithRetryAfter(time.Second)
			}
			return nil
		}
		o := options(1)
		o.Wait = func(_ context.Context, d time.Duration) error { pauses = append(pauses, d); return nil }
		return cli.Import(t.Context(), s, []string{writeInvoice(t, t.TempDir(), "a.xml")}, o), pauses
	}
	r, pauses := importing(75)
	require.NoError(t, r.Err())
	require.Equal(t, cli.Totals{Accepted: 1, VendorsRegistered: 1}, counts(r))
	require.Len(t, pauses, 75)
	for _, d := range pauses {
		require.Equal(t, time.Second, d)
	}
	r, pauses = importing(1000)
	require.Equal(t, cli.Totals{Failed: 1}, counts(r))
	require.Equal(t, "idempotency.in_progress", byName(t, r, "a.xml").Code)
	require.Len(t, pauses, 93, "not for ever")
}
