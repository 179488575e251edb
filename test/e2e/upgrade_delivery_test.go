package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/testkit/natstest"
)

// unpublished is how many events of USMF the previous release had not published when it
// was stopped.
const unpublished = 5

// TestDrillUpgradeOfFanoutAndWebhooks upgrades a database of the previous release whose
// fan-out, webhook with a rotated secret and cursor of a feed have different positions: each
// continues from its position, without a gap and without a repeat. The broker is replaced by
// an empty one, since one with the earlier messages would drop repeated ones.
func TestDrillUpgradeOfFanoutAndWebhooks(t *testing.T) {
	t.Parallel()
	const entity, other, at = "USMF", "DEMF", "/api/subscriptions/upgraded"
	ctx := t.Context()
	dir := copyOfBooks(t)
	require.NoError(t, natsServer())
	d := startOn(t, dir, recoveryStart, "--nats")
	registerMachines(t, d)
	module, auditor := d.as(t, "module"), d.as(t, "auditor")
	write := func(c client, entity string, machine int) (id string) {
		t.Helper()
		var out receipts
		require.NoError(t, c.want(http.StatusCreated, &out, "POST", "/api/events", batch(machineServiced(entity, fmt.Sprintf("M-%d", machine), `{"hours":1}`))))
		return out.Events[0].ID
	}

	// Four events were accepted, one was refused and is retried in an hour, one was written
	// while the subscription was paused.
	require.NoError(t, module.want(http.StatusCreated, nil, "POST", "/api/subscriptions", `{"id":"upgraded","subscriber_type":"webhook","subscriber_id":"crm","event_types":["`+machineType+`"],
		"legal_entities":["`+entity+`"],"settings":{"partition_by":"stream","max_retry_count":3,"retry_first_ms":3600000,"retry_longest_ms":3600000}}`))
	hook := newReceiver(t)
	allowHosts(t, d.as(t, "admin"), hook.URL)
	var secrets struct {
		Secret string `json:"secret"`
	}
	require.NoError(t, module.want(http.StatusCreated, nil, "PUT", at+"/endpoint", fmt.Sprintf(`{"url":%q}`, hook.URL+"/hook")))
	require.NoError(t, module.want(http.StatusOK, &secrets, "POST", at+"/rotate-secret", ""))
	for machine := range 4 {
		write(module, entity, machine)
	}
	testkit.Eventually(t, endTime, func() bool { return len(hook.taken()) == 4 }, "deliveries")
	hook.answering(func(int) int { return http.StatusInternalServerError })
	write(module, entity, 4)
	type standing struct {
		Subscription struct {
			Status string `json:"status"`
		} `json:"subscription"`
		InFlight   int        `json:"in_flight"`
		Waiting    int        `json:"waiting"`
		Statistics statistics `json:"statistics"`
	}
	stand := func(c client) (s standing) {
		t.Helper()
		require.NoError(t, c.want(http.StatusOK, &s, "GET", at, ""))
		return s
	}
	testkit.Eventually(t, endTime, func() bool { s := stand(module); return s.Statistics.Retried == 1 && s.InFlight == 0 }, "the refused one waits")
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/pause", ""))
	held := write(module, entity, 5)
	want := stand(module)
	require.Equal(t, "paused", want.Subscription.Status)

	cursor := func(c client, from string) (next string, events []event) {
		t.Helper()
		for more := true; more; {
			var page struct {
				Events  []event `json:"events"`
				Next    string  `json:"next_cursor"`
				HasMore bool    `json:"has_more"`
			}
			require.NoError(t, c.want(http.StatusOK, &page, "GET", "/api/streams/$all?count=1000&from="+from, ""))
			events, from, more = append(events, page.Events...), page.Next, page.HasMore
		}
		return from, events
	}
	kept, before := cursor(auditor, "0")
	testkit.Eventually(t, endTime, func() bool {
		return !slices.ContainsFunc(fanoutStatus(t, dir), func(l fanoutLine) bool { return l.LagEvents != 0 })
	}, "everything is published")

	// The state as the release before stored it.
	source, err := pgx.Connect(ctx, superuser(t, d.dataDir))
	require.NoError(t, err)
	defer func() { _ = source.Close(context.Background()) }()
	dsn := previousDatabase(t, source, beforeParked)
	old, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { _ = old.Close(context.Background()) }()
	columns := columnsOf(t, old)
	delete(columns, "backbone.event_snapshots") // nothing wrote it
	for table, names := range columns {
		copyRows(t, source, old, earlierRows(table, names), table, names)
	}
	_, err = old.Exec(ctx, `UPDATE backbone.publisher_cursors c SET published_through = published_through - $1 FROM backbone.legal_entities l WHERE l.partition_id = c.partition_id AND l.code = $2`, unpublished, entity)
	require.NoError(t, err)
	published := map[string]int{}
	rows, err := old.Query(ctx, `SELECT l.code, c.published_through FROM backbone.publisher_cursors c JOIN backbone.legal_entities l USING (partition_id)`)
	require.NoError(t, err)
	var code string
	var through int
	_, err = pgx.ForEachRow(rows, []any{&code, &through}, func() error { published[code] = through; return nil })
	require.NoError(t, err)
	require.Len(t, published, 2)
	places := map[string][]string{}
	for _, table := range []string{"backbone.publisher_cursors", "backbone.webhook_endpoints", "backbone.subscriptions", "backbone.subscription_cursors", "backbone.subscription_messages", "backbone.leases"} {
		places[table] = columns[table]
	}
	was := rowsOf(t, old, places, "true")
	for table, rows := range was {
		require.NotEmpty(t, rows, table)
	}

	migrated := command(t, nil, "migrate", "--dsn", dsn)
	require.Zero(t, migrated.code, migrated)
	require.Equal(t, was, rowsOf(t, old, places, "true"))
	bindRows(t, source, old)

	// This release continues where the earlier one stopped.
	empty, err := natstest.Start(natstest.Config{Directory: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(empty.Stop)
	inPrevious := func(dsn string) string { return strings.Replace(dsn, "/backbone?", "/previous?", 1) }
	env := append(d.keys(), "BACKBONE_DATABASE_DSN="+inPrevious(d.DSN), "BACKBONE_DATABASE_ERASER_DSN="+inPrevious(d.EraserDSN),
		"BACKBONE_NATS_URLS="+empty.URL(), "BACKBONE_WEBHOOK_ALLOW_PRIVATE_NETWORKS=true", "BACKBONE_WEBHOOK_ALLOW_HTTP=true")
	hook.answering(nil)
	_, server := startServe(t, inPrevious(d.DSN), env...)
	var owner string
	require.NoError(t, old.QueryRow(ctx, `SELECT owner FROM backbone.subscriptions`).Scan(&owner))
	enroll := func(args ...string) client {
		t.Helper()
		enrolled := command(t, env, append([]string{"enroll", "--tenant", d.Tenant, "--person"}, args...)...)
		require.Zero(t, enrolled.code, enrolled)
		return server.as(enrolled.stdout)
	}
	module, auditor = enroll(append([]string{owner, "--service", "--renew"}, serviceFlags("p-admin")...)...), enroll("p-later", "--role", "auditor")
	require.Equal(t, want, stand(module), "paused, and one waits for its next attempt")
	_, none := cursor(auditor, kept)
	require.Empty(t, none, "a cursor of the release before is good")

	allowHosts(t, enroll("p-after", "--role", "admin"), hook.URL) // the release before allowed all
	require.NoError(t, module.want(http.StatusOK, nil, "POST", at+"/resume", ""))
	after := []string{write(module, entity, 6), write(module, other, 7)}
	testkit.Eventually(t, endTime, func() bool { return len(hook.taken()) >= 2 }, "what waited and what is new")
	var delivered []string
	for _, got := range hook.taken() {
		require.NoError(t, checked(secrets.Secret, got), "the secret is the same")
		delivered = append(delivered, got.header.Get("webhook-id"))
	}
	require.ElementsMatch(t, []string{held, after[0]}, delivered, "what was taken before does not come again")
	require.Equal(t, want.Statistics.Retried, stand(module).Statistics.Retried)
	_, seen := cursor(auditor, kept)
	var ids []string
	for _, e := range seen {
		ids = append(ids, e.ID)
	}
	require.ElementsMatch(t, after, ids)

	heads := map[string]int{entity: published[entity] + unpublished + 1, other: published[other] + 1}
	require.Len(t, before, heads[entity]-1+heads[other]-1)
	got := map[string][]string{}
	for _, m := range consume(t, empty.URL(), unpublished+2) {
		code := strings.Split(m.subject, ".")[2]
		got[code] = append(got[code], m.sequence)
	}
	expected := map[string][]string{}
	for code, head := range heads {
		for n := published[code] + 1; n <= head; n++ {
			expected[code] = append(expected[code], fmt.Sprintf("%020d", n))
		}
	}
	require.Equal(t, expected, got, "from the cursors on, in order, nothing before them")
	require.EqualValues(t, unpublished+2, messagesIn(t, empty.URL()))
	verdict := command(t, nil, "verify", "--dsn", dsn)
	require.Zero(t, verdict.code, verdict)
}

// messagesIn counts what a stream holds.
func messagesIn(t *testing.T, address string) uint64 {
	t.Helper()
	js, conn := jetStreams(t, address)
	defer conn.Close()
	stream, err := js.Stream(t.Context(), "BACKBONE")
	require.NoError(t, err)
	return stream.CachedInfo().State.Msgs
}
