package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestLongTransaction holds a writing transaction open in one legal entity, with an old
// snapshot, a transaction id, and locks on the head, the checkpoints and the subscription's
// cursor. Readers of another legal entity are not blocked: a feed and a subscription to both,
// and the projections.
func TestLongTransaction(t *testing.T) {
	t.Parallel()
	const locked, free, rounds = "STLA", "STLB", 20
	d := sharedDev(t)
	newEntity(t, d, locked)
	newEntity(t, d, free)
	registerMachines(t, d)
	module := d.as(t, "module")
	write := func(entity string) string {
		t.Helper()
		var receipt receipts
		require.NoError(t, module.want(http.StatusCreated, &receipt, "POST", "/api/events", batch(machineServiced(entity, "M-1", `{"hours":1}`))))
		return receipt.Events[0].ID
	}
	const at = "/api/subscriptions/stall"
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/subscriptions",
		`{"id":"stall","subscriber_type":"service","subscriber_id":"stall","event_types":["`+machineType+`"],"legal_entities":["`+locked+`","`+free+`"]}`))
	take := func() pollResult {
		t.Helper()
		var out pollResult
		require.NoError(t, module.want(http.StatusOK, &out, "GET", at+"/poll?wait_ms=20000", ""))
		require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/acknowledge", `{"event_ids":`+out.ids()+`}`))
		return out
	}
	for _, entity := range []string{locked, free} { // everything has a place in both
		write(entity)
		require.Len(t, take().Events, 1)
	}
	super, err := pgx.Connect(t.Context(), superuser(t, d.dataDir))
	require.NoError(t, err)
	defer func() { _ = super.Close(context.Background()) }()
	behind := func(entity string) (events int) {
		t.Helper()
		require.NoError(t, super.QueryRow(t.Context(), `SELECT coalesce(max(h.head - c.sequence), 1)
			FROM (SELECT partition_id, max(sequence) AS head FROM backbone.events WHERE legal_entity = $1 GROUP BY 1) AS h
			JOIN backbone.projection_checkpoints c USING (partition_id) JOIN backbone.projections p ON p.name = c.projection AND p.version = c.version
			WHERE p.role = 'active'`, entity).Scan(&events))
		return events
	}
	testkit.Eventually(t, endTime, func() bool { return behind(locked) == 0 && behind(free) == 0 })

	feed := newFeed(t, d.as(t, "auditor"), "/api/subscribe/streams/$all?from=now&legal_entities="+locked+","+free)
	other, err := pgx.Connect(t.Context(), superuser(t, d.dataDir))
	require.NoError(t, err)
	defer func() { _ = other.Close(context.Background()) }()
	tx, err := other.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	var partition int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT partition_id FROM backbone.legal_entities WHERE code = $1`, locked).Scan(&partition))
	hold := func(statement string) {
		t.Helper()
		tag, err := tx.Exec(t.Context(), statement, partition)
		require.NoError(t, err)
		require.Positive(t, tag.RowsAffected(), statement)
	}
	hold(`UPDATE backbone.projection_checkpoints SET updated_at = updated_at WHERE partition_id = $1`)
	hold(`UPDATE backbone.subscription_cursors SET updated_at = updated_at WHERE partition_id = $1`)
	held := write(locked)
	require.Equal(t, held, feed.next(t), "a feed needs none of these rows")
	hold(`SELECT FROM backbone.partition_heads WHERE partition_id = $1 FOR UPDATE`)
	testkit.Eventually(t, endTime, func() bool {
		var waiting int
		require.NoError(t, super.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY(pg_blocking_pids(pid))`, other.PgConn().PID()).Scan(&waiting))
		return waiting > 0
	}, "projections of the one legal entity wait")

	for range rounds {
		id := write(free)
		require.Equal(t, id, feed.next(t))
		got := take()
		require.Len(t, got.Events, 1)
		require.Equal(t, id, got.Events[0].ID)
	}
	testkit.Eventually(t, endTime, func() bool { return behind(free) == 0 }, "projections of the other legal entity continue")
	require.Positive(t, behind(locked))

	require.NoError(t, tx.Rollback(t.Context()))
	got := take()
	require.Len(t, got.Events, 1)
	require.Equal(t, held, got.Events[0].ID)
	testkit.Eventually(t, endTime, func() bool { return behind(locked) == 0 }, "projections")
}

// sseFeed is a feed of server-sent events.
type sseFeed struct{ lines *bufio.Scanner }

func newFeed(t *testing.T, c client, path string) *sseFeed {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, c.server+path, nil)
	require.NoError(t, err)
	q.Header.Set("Authorization", "Bearer "+c.token)
	a, err := (&http.Client{Transport: transport}).Do(q)
	require.NoError(t, err)
	t.Cleanup(func() { _ = a.Body.Close() })
	require.Equal(t, http.StatusOK, a.StatusCode)
	f := &sseFeed{bufio.NewScanner(a.Body)}
	for f.lines.Scan() && f.lines.Text() != "event: caughtUp" {
	}
	require.NoError(t, f.lines.Err())
	return f
}

// next waits for an event and returns its id.
func (f *sseFeed) next(t *testing.T) string {
	t.Helper()
	for f.lines.Scan() {
		if f.lines.Text() != "event: event" || !f.lines.Scan() {
			continue
		}
		var e event
		require.NoError(t, answer{body: []byte(strings.TrimPrefix(f.lines.Text(), "data: "))}.decode(&e))
		return e.ID
	}
	require.Fail(t, "the feed ended", fmt.Sprint(f.lines.Err()))
	return ""
}
