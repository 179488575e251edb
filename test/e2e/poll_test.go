package e2e

import (
	"context"
	"net/http"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// TestDrillPollWithoutListener runs a server as behind a pooler without a direct connection: it
// gets no notification of appends or event types, and a waiting reader sees events all
// the same, a live feed, a long poll, a type that was just registered, and a projection.
func TestDrillPollWithoutListener(t *testing.T) {
	t.Parallel()
	i := install(t, "BACKBONE_DELIVERY_LISTEN=poll")
	_, one := i.serve(t)
	admin, module, auditor := one.as(i.admin), one.as(i.enroll(t, "s-machines", "module", "--service")), one.as(i.enroll(t, "p-0002", "auditor"))
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/admin/legal-entities", `{"code":"POLL","name":"Polling","time_zone":"Europe/Berlin"}`))
	i.machines(t, one.server)
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/admin/projections", `{"name":"serviced","filter":{"types":["`+machineType+`"]},"key":".stream.id","fold":"{count: ((.state.count // 0) + 1)}"}`))
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/subscriptions", `{"id":"poll","subscriber_type":"service","subscriber_id":"crm","event_types":["`+machineType+`"]}`))
	feed := newFeed(t, auditor, "/api/subscribe/streams/$all?from=now")
	connection, err := pgx.Connect(t.Context(), i.owner)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	for range 5 {
		var receipt receipts
		require.NoError(t, module.want(http.StatusCreated, &receipt, "POST", "/api/events", batch(machineServiced("POLL", "M-1", `{"hours":1}`))))
		id := receipt.Events[0].ID
		require.Equal(t, id, feed.next(t))
		var got pollResult
		require.NoError(t, module.want(http.StatusOK, &got, "GET", "/api/subscriptions/poll/poll?wait_ms=20000", ""))
		require.Len(t, got.Events, 1)
		require.Equal(t, id, got.Events[0].ID)
		require.NoError(t, module.want(http.StatusOK, nil, "POST", "/api/subscriptions/poll/acknowledge", `{"event_ids":`+got.ids()+`}`))
		var rows customRows
		require.NoError(t, auditor.wantCaughtUp(&rows, "/api/projections/serviced?legal_entity=POLL&min_sequence="+receipt.Events[0].Sequence))
		require.Len(t, rows.Rows, 1)
		var listening int
		require.NoError(t, connection.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'backbone listen'`).Scan(&listening))
		require.Zero(t, listening)
	}
}
