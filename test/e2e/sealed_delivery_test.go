package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	contactType = "ap.vendor.contact_recorded"
	// feedOfContacts is read from its beginning; the time is that of live feeds.
	feedOfContacts = "/api/subscribe/streams/$all?from=0&event_types=" + contactType
)

// deliveryChannels is one subscriber of every kind of delivery.
type deliveryChannels struct {
	client
	persona string
	taking  *receiver // takes what comes
	failing *receiver // refuses it, until the test changes that
}

// at is the path of one of the subscriptions: poll, parked, taken, failed.
func (o deliveryChannels) at(kind string) string {
	return "/api/subscriptions/" + kind + "-" + strings.ReplaceAll(o.persona, "_", "-")
}

// subscribe starts all deliveries before the first event.
func (o deliveryChannels) subscribe(t *testing.T) {
	t.Helper()
	for kind, to := range map[string]*receiver{"poll": nil, "parked": nil, "taken": o.taking, "failed": o.failing} {
		subscriber := "service"
		if to != nil {
			subscriber = "webhook"
		}
		id := strings.TrimPrefix(o.at(kind), "/api/subscriptions/")
		require.NoError(t, o.want(http.StatusCreated, nil, "POST", "/api/subscriptions", fmt.Sprintf(
			`{"id":%q,"subscriber_type":%q,"subscriber_id":"crm","event_types":[%q],"settings":{"max_retry_count":0}}`, id, subscriber, contactType)))
		if to != nil {
			require.NoError(t, o.want(http.StatusCreated, nil, "PUT", o.at(kind)+"/endpoint", fmt.Sprintf(`{"url":%q}`, to.URL)))
		}
	}
}

// pollResult is what a poll of one of the outlet's subscriptions brings, which is one event.
func (o deliveryChannels) polled(t *testing.T, kind string) (body, ids string) {
	t.Helper()
	a := must(o.do("GET", o.at(kind)+"/poll?wait_ms=20000", ""))
	require.Equal(t, http.StatusOK, a.status, a)
	var p pollResult
	require.NoError(t, a.decode(&p))
	require.Len(t, p.Events, 1)
	return string(a.body), p.ids()
}

// deadLetter is the one dead letter of a subscription as a caller reads
// it, in the list and by itself.
func (o deliveryChannels) deadLetter(t *testing.T, reader client, kind string) string {
	t.Helper()
	var list struct {
		Messages []struct {
			EventID string `json:"event_id"`
		} `json:"messages"`
	}
	var all answer
	testkit.Eventually(t, endTime, func() bool {
		all = must(reader.do("GET", o.at(kind)+"/parked", ""))
		return all.decode(&list) == nil && len(list.Messages) == 1
	}, "a dead letter of "+o.persona)
	one := must(reader.do("GET", o.at(kind)+"/parked/"+list.Messages[0].EventID, ""))
	require.Equal(t, http.StatusOK, one.status, one)
	return string(all.body) + string(one.body)
}

// sent is the newest message that a receiver has seen.
func (r *receiver) sent(t *testing.T) string {
	t.Helper()
	var body string
	testkit.Eventually(t, endTime, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.got) > 0 {
			body = string(r.got[len(r.got)-1].body)
		}
		return body != ""
	}, "a delivery")
	return body
}

// firstOfFeed returns the first message of a feed over each transport.
func firstOfFeed(t *testing.T, c client, path string) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), liveTime)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, strings.Replace(c.server, "http", "ws", 1)+path, &websocket.DialOptions{Subprotocols: []string{"backbone.v1", "bearer." + c.token}})
	require.NoError(t, err)
	defer func() { _ = conn.CloseNow() }()
	_, message, err := conn.Read(ctx)
	require.NoError(t, err)
	require.Contains(t, string(message), `{"type":"event"`)

	r, err := http.NewRequestWithContext(ctx, "GET", c.server+path, nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "text/event-stream")
	res, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	require.Equal(t, http.StatusOK, res.StatusCode)
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "data: ") {
	}
	require.NoError(t, lines.Err())
	return map[string]string{"websocket": string(message), "server-sent events": lines.Text()}
}

// TestSealedDelivery delivers personal values through polls, dead letters, webhooks, live
// feeds, the broker, the outbox and a read model. Entitled readers get them, other readers the
// mask; no table, file, log or broker holds them; and after an erasure no reader gets them, not
// even in events that were waiting.
func TestSealedDelivery(t *testing.T) {
	t.Parallel()
	const entity, contact = "USMF", "C-SEALED"
	values := map[string]string{"name": "Wilma Wryneck " + rand.Text(), "email": strings.ToLower(rand.Text()) + "@canary.example.org"}
	control := "Sealed Firm " + rand.Text() + " Ltd" // no personal datum: it is found
	dir := copyOfBooks(t)
	require.NoError(t, natsServer())
	d := startOn(t, dir, recoveryStart, "--nats")
	auditor, admin := d.as(t, "auditor"), d.as(t, "admin")
	outlets := map[string]deliveryChannels{}
	for _, persona := range []string{"ap_clerk", "gl_accountant"} {
		o := deliveryChannels{d.as(t, persona), persona, newReceiver(t), newReceiver(t)}
		o.failing.answering(func(int) int { return http.StatusInternalServerError })
		allowHosts(t, admin, o.taking.URL, o.failing.URL)
		o.subscribe(t)
		outlets[persona] = o
	}
	// The error of a failing fold contains its input.
	require.NoError(t, admin.want(http.StatusCreated, nil, "POST", "/api/admin/projections",
		fmt.Sprintf(`{"name":"poisoned","filter":{"types":[%q]},"key":".data.vendor_id","fold":"error(.event.data | tostring)"}`, contactType)))
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-SEALED", "name": control, "country": "US"})
	outlets["ap_clerk"].must(t, entity, "ap.set_vendor_contact", object{"vendor_id": "V-SEALED", "contact_id": contact, "name": values["name"], "email": values["email"]})

	requireValues := func(text, way string, clear bool, instead string) {
		t.Helper()
		for field, value := range values {
			require.Equal(t, clear, strings.Contains(text, value), "%s of %s", field, way)
		}
		require.Equal(t, !clear, strings.Contains(text, instead), way)
		require.NotContains(t, text, `"$pii"`, "%s: a sealed value was delivered", way)
	}
	everyWay := func(clear map[string]bool, instead string) {
		t.Helper()
		for persona, o := range outlets {
			for way, text := range firstOfFeed(t, o.client, feedOfContacts) {
				require.Contains(t, text, contactType)
				requireValues(text, way+" of "+persona, clear[persona], instead)
			}
			requireValues(string(must(o.do("GET", "/api/ap/vendors?vendor=V-SEALED&legal_entity="+entity, "")).body), "read model for "+persona, clear[persona], instead)
		}
		for way, text := range firstOfFeed(t, auditor, feedOfContacts) {
			require.Contains(t, text, contactType)
			requireValues(text, way+" of the auditor", false, instead)
		}
	}
	entitled := map[string]bool{"ap_clerk": true}
	everyWay(entitled, maskedValue)
	for persona, o := range outlets {
		text, _ := o.polled(t, "poll") // not answered: it is in flight
		requireValues(text, "poll of "+persona, entitled[persona], maskedValue)
		text, ids := o.polled(t, "parked")
		requireValues(text, "poll of "+persona, entitled[persona], maskedValue)
		require.NoError(t, o.want(http.StatusOK, nil, "POST", o.at("parked")+"/nack", `{"event_ids":`+ids+`,"action":"park","code":"crm.invalid"}`))
		// Webhooks leave the installation: personal values are masked in them by default.
		requireValues(o.taking.sent(t), "webhook of "+persona, false, maskedValue)
		requireValues(o.failing.sent(t), "failed webhook of "+persona, false, maskedValue)
		for _, kind := range []string{"parked", "failed"} {
			requireValues(o.deadLetter(t, o.client, kind), kind+" of "+persona, entitled[persona], maskedValue)
			for _, value := range values {
				require.NotContains(t, o.deadLetter(t, admin, kind), value, "an administrator reads no events")
			}
		}
	}

	// Values in the database and at the broker are sealed or masked.
	super, err := pgx.Connect(t.Context(), superuser(t, dir))
	require.NoError(t, err)
	defer func() { _ = super.Close(context.WithoutCancel(t.Context())) }()
	outbox := func() (payload string) {
		require.NoError(t, super.QueryRow(t.Context(), "SELECT payload::text FROM backbone.outbox WHERE type = $1", contactType).Scan(&payload))
		return payload
	}
	sealed := outbox()
	require.Contains(t, sealed, `"$pii"`)
	testkit.Eventually(t, endTime, func() bool {
		var dead int
		require.NoError(t, super.QueryRow(t.Context(), "SELECT count(*) FROM backbone.dead_letters WHERE kind = 'projection' AND name LIKE '%poisoned'").Scan(&dead))
		return dead == 1
	}, "a dead letter of the projection")
	tables := func(want ...string) {
		t.Helper()
		rows, err := super.Query(t.Context(), `SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
			WHERE relkind IN ('r', 'm', 'v') AND nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1`)
		require.NoError(t, err)
		all, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		filled := map[string]bool{}
		for _, table := range all {
			var text strings.Builder
			_, err := super.PgConn().CopyTo(t.Context(), &text, fmt.Sprintf("COPY (SELECT t::text FROM %s t) TO STDOUT", table))
			require.NoError(t, err, table)
			filled[table] = text.Len() > 0
			for field, value := range values {
				require.NotContains(t, text.String(), value, "%s in %s", field, table)
			}
		}
		for _, table := range want {
			require.True(t, filled[table], "%s was looked at, among %v", table, all)
		}
	}
	tables("ap.vendor_contacts", "backbone.dead_letters", "backbone.intents", "backbone.outbox", "backbone.subscription_messages", "backbone.subscription_parked")
	heads := 0
	for _, p := range fanoutStatus(t, dir) {
		heads += p.Head
	}
	published := func() (found string) {
		t.Helper()
		for _, m := range consume(t, d.NATS, heads) {
			if strings.Contains(m.text, contactType) {
				require.Empty(t, found)
				found = m.text
			}
		}
		return found
	}
	message := published()
	requireValues(message, "broker", false, maskedValue)

	// After an erasure no delivery opens them: new events, deliveries in flight, parked and
	// replayed ones.
	eraseSubject(t, d.as(t, "compliance"), d.as(t, "compliance_approver"), "contact:"+contact)
	everyWay(nil, redactedValue)
	for persona, o := range outlets {
		for _, kind := range []string{"parked", "failed"} {
			requireValues(o.deadLetter(t, o.client, kind), kind+" of "+persona, false, redactedValue)
		}
		o.failing.answering(nil)
		for _, kind := range []string{"parked", "failed"} {
			require.NoError(t, o.want(http.StatusOK, nil, "POST", o.at(kind)+"/parked/replay", `{"all":true,"reason":"It was mended."}`))
		}
		text, _ := o.polled(t, "parked")
		requireValues(text, "replay to "+persona, false, redactedValue)
		requireValues(o.failing.sent(t), "replay to the webhook of "+persona, false, redactedValue)
		o.taking.answering(nil)
		for _, kind := range []string{"poll", "taken"} {
			require.NoError(t, o.want(http.StatusOK, nil, "POST", o.at(kind)+"/reset", `{"to":"beginning"}`))
		}
		text, _ = o.polled(t, "poll")
		requireValues(text, "poll of "+persona+" after a reset", false, redactedValue)
		requireValues(o.taking.sent(t), "webhook of "+persona+" after a reset", false, redactedValue)
	}
	require.Equal(t, sealed, outbox(), "stored bytes never change")
	require.Equal(t, message, published())
	tables("backbone.outbox", "backbone.webhook_attempts")

	// No file holds them: pages, write-ahead log, logs, the broker's store.
	code, err := d.interrupt()
	require.NoError(t, err)
	require.Zero(t, code, d.stderr)
	var needles []needle
	for field, value := range values {
		needles = append(needles, spellings(field, value)...)
	}
	s := newScanner(t, append(needles, spellings("control", control)...))
	require.NoError(t, s.folder(dir))
	s.text("output", []byte(d.stdout.String()+d.stderr.String()))
	require.NotContains(t, s.where, "output")
	for place, names := range s.where {
		for name := range names {
			require.True(t, strings.HasPrefix(name, "control"), "%s: %s", place, name)
		}
	}
	for _, place := range []string{"/pg/data/base/", "/pg/data/pg_wal/", "/nats/"} {
		require.Contains(t, s.names(place), "control as text", "the scan sees what lies in %s", place)
	}
	for _, place := range []string{"/pg/postgresql.log", "/kms-audit.log"} {
		require.Contains(t, s.seen, place)
	}
}
