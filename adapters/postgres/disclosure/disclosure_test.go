package disclosure_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestAccessLog(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	conformance.RunAccessLog(t, conformance.AccessLogHarness{
		Accesses: pgtest.Open(t, dsn).AccessLog,
		Age: func(t *testing.T, by time.Duration) {
			pgtest.Execute(t, dsn, fmt.Sprintf("UPDATE backbone.access_log SET at = at - interval '%d seconds'", int(by.Seconds())))
		},
	})
}

// TestSettle_WaitsForAccessesInFlight: an access whose transaction has not ended cannot appear
// before the settled time later.
func TestSettle_WaitsForAccessesInFlight(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	store := pgtest.Open(t, dsn)
	writer, watcher := pgtest.Connect(t, pgtest.As("backbone_app", dsn)), pgtest.Connect(t, dsn)
	tx, err := writer.Begin(t.Context())
	require.NoError(t, err)
	var at time.Time
	require.NoError(t, insert(t.Context(), tx).Scan(&at))

	settled := make(chan time.Time, 1)
	go func() {
		s, err := store.AccessLog.SettleAccesses(context.Background())
		if err != nil {
			s = time.Time{}
		}
		settled <- s
	}()
	require.Eventually(t, func() bool { return pgtest.CountLockWaiters(t, watcher) > 0 }, 30*time.Second, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.True(t, pgtest.Receive(t, settled, "the settled time").After(at))
	require.NoError(t, store.AccessLog.AddAccesses(t.Context(), 1, []disclosure.Access{{ID: [16]byte{2}, PersonID: "p-1", Kind: disclosure.Export}}))
}

func insert(ctx context.Context, tx pgx.Tx) pgx.Row {
	return tx.QueryRow(ctx, `INSERT INTO backbone.access_log (partition_id, id, person_id, principal_id, kind, operation, legal_entity, subject_id, class, value_count, reason, request_id)
		VALUES (1, '00000000-0000-0000-0000-000000000001', 'p', 'l', 'export', 'o', '', '', '', 0, '', '') RETURNING at`)
}
