package eventlog_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestFetch_ScatteredEvents reads more events than one statement fetches, as they lie
// between others.
func TestFetch_ScatteredEvents(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pgtest.Database(t))
	p := pgtest.NewPartitions(t, s, 1)[0]
	const batches, batch, every = 30, 60, 2
	payloads := map[event.ID]string{}
	var ids []event.ID
	for range batches {
		r := pgtest.Invoice(p, batch)
		for i := range r.Events {
			if e := &r.Events[i]; i%every == 0 {
				e.CorrelationID, e.ActorID = "process", "u-scattered"
				ids = append(ids, e.ID)
				payloads[e.ID] = string(e.Payload)
			}
		}
		_, err := s.Appender.Append(t.Context(), r)
		require.NoError(t, err)
	}
	require.Greater(t, len(ids), 3*eventlog.FetchPart, "several statements")
	read := func(q ports.EventQuery) (found []event.ID) {
		t.Helper()
		q.Partition = p
		events, err := s.Events.Events(t.Context(), q)
		require.NoError(t, err)
		for i := range events {
			e := &events[i]
			found = append(found, e.ID)
			if q.WithoutData {
				require.Empty(t, e.Payload)
				require.Zero(t, e.Salt)
				continue
			}
			require.Equal(t, payloads[e.ID], string(e.Payload))
			require.Equal(t, e.PayloadHash, event.HashPayload(e.Salt, e.Payload), "with its own salt")
		}
		return found
	}
	backward := slices.Clone(ids)
	slices.Reverse(backward)
	for name, q := range map[string]ports.EventQuery{
		"correlation": {CorrelationID: "process"}, "actor": {ActorID: "u-scattered"}, "both": {CorrelationID: "process", ActorID: "u-scattered"},
	} {
		require.Equal(t, ids, read(q), name)
		q.Limit = 777
		require.Equal(t, ids[:777], read(q), name)
		q.Limit, q.Direction = 0, ports.Backward
		require.Equal(t, backward, read(q), name)
		q.WithoutData = true
		require.Equal(t, backward, read(q), name)
	}
	require.Equal(t, ids[100:200], read(ports.EventQuery{CorrelationID: "process", After: event.Sequence(99*every + 1), Limit: 100}))
	require.Empty(t, read(ports.EventQuery{CorrelationID: "another"}))
}

// TestFetch_EventsAreComplete compares every field with what a read by id gives.
func TestFetch_EventsAreComplete(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pgtest.Database(t))
	p := pgtest.NewPartitions(t, s, 1)[0]
	r := pgtest.Invoice(p, 2)
	e := &r.Events[1]
	e.CorrelationID, e.CausedBy, e.SchemaVersion = "process", r.Events[0].ID, 3
	e.Scope = event.Scope{TenantID: "demo", LegalEntity: "LE0", Division: "division", Region: "region", Site: "site", Custom: []byte(`{"plant": "7"}`)}
	e.ActorName, e.ActorDetails = "name", []byte(`{"session_id": "s"}`)
	e.Tags, e.Source = []string{"a", "b"}, event.Source{System: "system", Channel: "channel", Reference: "reference"}
	e.RulesEvaluated, e.PII = []byte(`[{"rule": "r"}]`), map[string]string{"/data/email": "contact"}
	_, err := s.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	want, err := s.Events.EventByID(t.Context(), p, e.ID)
	require.NoError(t, err)
	for name, q := range map[string]ports.EventQuery{"by correlation": {CorrelationID: "process"}, "by sequence": {CorrelationID: "process", Division: "division"}} {
		q.Partition = p
		got, err := s.Events.Events(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, []event.Recorded{want}, got, name)
	}
	require.Equal(t, e.Scope, want.Scope)
	require.Equal(t, e.PII, want.PII)
}

// TestFetch_KeepsOrder asks for places in any order, twice, and for some that are
// nowhere.
func TestFetch_KeepsOrder(t *testing.T) {
	t.Parallel()
	s := pgtest.Open(t, pgtest.Database(t))
	books := pgtest.NewPartitions(t, s, 2)
	for range 6 {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 100))
		require.NoError(t, err)
	}
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 1))
	require.NoError(t, err)
	var wanted []int64
	for n := range int64(500) {
		wanted = append(wanted, 1+n*7919%600)
	}
	wanted = append(wanted, wanted[3], 601, wanted[3], 1<<40)
	events, err := s.Events.BySequence(t.Context(), books[0], wanted, true)
	require.NoError(t, err)
	var got []int64
	for _, e := range events {
		require.Equal(t, books[0], e.Partition)
		require.NotEmpty(t, e.Payload)
		got = append(got, int64(e.Sequence))
	}
	require.Equal(t, slices.DeleteFunc(wanted, func(n int64) bool { return n > 600 }), got)

	events, err = s.Events.BySequence(t.Context(), books[1], []int64{2, 1}, false)
	require.NoError(t, err)
	require.Len(t, events, 1)
}

// TestInsertEvents_RowsAreInKeyOrder uses a database without statistics, in which
// the planner joins the rows of a group the other way round.
func TestInsertEvents_RowsAreInKeyOrder(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 3)
	conn := pgtest.Connect(t, dsn)
	const batches = 20
	for range batches {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 100))
		require.NoError(t, err)
	}
	for _, table := range []string{"events", "event_payloads"} {
		var back, rows int
		require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(`SELECT count(*) FILTER (WHERE sequence < before), count(*) FROM (
			SELECT sequence, lag(sequence) OVER (ORDER BY tableoid, ctid) AS before FROM backbone.%s) r`, table)).Scan(&back, &rows))
		// Two appenders begin pages of their own, and a page with room left is filled.
		require.Less(t, back, rows/20, "rows of %s that lie behind a later one", table)
	}
	// An entry takes 24 bytes: full pages hold some 290 of them when rows come in order,
	// half of that when they do not.
	var pages int
	require.NoError(t, conn.QueryRow(t.Context(), fmt.Sprintf(
		"SELECT pg_relation_size('backbone.events_p%d_pkey') / current_setting('block_size')::int", books[0])).Scan(&pages))
	require.LessOrEqual(t, pages, 10, "2,000 entries, the root and the page that describes the index")
}

// TestFetch_PageReadsOfProcess counts the pages that a process of a thousand events touches
// which lie scattered, each in a page of its own. It is what a trace costs when the
// store does not fit into memory.
func TestFetch_PageReadsOfProcess(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	owner := pgtest.Connect(t, dsn)
	// Rows whose commit is not on the disk yet are not marked as visible to all.
	_, err := owner.Exec(t.Context(), "SET synchronous_commit = on")
	require.NoError(t, err)
	const total, every = 40_000, 40
	for _, statement := range []string{
		`INSERT INTO backbone.events (partition_id, sequence, id, type, schema_version, occurred_at, recorded_at, effective_date, tenant_id, legal_entity,
			actor_type, actor_id, correlation_id, stream_type, stream_id, stream_version, payload_hash, checksum)
		SELECT %[1]d, n, lpad(to_hex(n), 32, '0')::uuid, 'ap.invoice.t', 1, now(), now(), now(), 'demo', 'USMF', 'human', 'u',
			CASE n %% %[3]d WHEN 7 THEN 'process' ELSE 'c-' || n END, 'invoice', 'I-' || n, 1, sha256(''), sha256('') FROM generate_series(1, %[2]d) n`,
		`INSERT INTO backbone.event_payloads (partition_id, sequence, salt, payload)
		SELECT %[1]d, n, '', to_json(repeat('x', 600)) FROM generate_series(1, %[2]d) n`,
	} {
		_, err := owner.Exec(t.Context(), fmt.Sprintf(statement, p, total, every))
		require.NoError(t, err)
	}
	// A session that only just begins, in whatever database, may keep pages from being
	// marked as visible to all.
	testkit.Eventually(t, pgtest.WaitLimit, func() (visible bool) {
		for _, table := range []string{"events", "event_payloads"} {
			_, err := owner.Exec(t.Context(), "VACUUM ANALYZE backbone."+table)
			require.NoError(t, err)
		}
		require.NoError(t, owner.QueryRow(t.Context(), `SELECT bool_and(relallvisible >= relpages) FROM pg_class WHERE relname IN ($1, $2)`,
			fmt.Sprintf("events_p%d", p), fmt.Sprintf("event_payloads_p%d", p)).Scan(&visible))
		return visible
	}, "all pages are visible to all")
	app := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	_, err = app.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET jit = off")
	require.NoError(t, err)
	var sequences []int64
	for n := int64(7); n <= total; n += every {
		sequences = append(sequences, n)
	}
	require.Len(t, sequences, 1000)
	search := countPagesRead(t, app, eventlogdb.SearchCorrelation, false, int32(p), "process", int64(0), int64(1)<<62, int32(1001))
	events := countPagesRead(t, app, eventlogdb.ListEventsOfCorrelation, true, int32(p), "process", sequences[0], sequences[999])
	payloads := countPagesRead(t, app, eventlogdb.ListPayloadsBySequence, true, int32(p), sequences)
	t.Logf("pages: search %d, events %d, payloads %d", search, events, payloads)
	require.LessOrEqual(t, search, 30, "pages of the correlation's index, no event")
	require.LessOrEqual(t, events, 1000+30, "each event's page once, and again the index")
	require.LessOrEqual(t, payloads, 1000+2*1000+10, "each payload's page once, and the way to it through two levels of the primary key")
}

// countPagesRead runs a query and counts the pages that it asked for, in memory or not.
func countPagesRead(t *testing.T, conn *pgx.Conn, query string, scattered bool, args ...any) int {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	if scattered {
		_, err := tx.Exec(t.Context(), eventlogdb.ReadScattered, int32(0))
		require.NoError(t, err)
	}
	count := func(query string) int {
		var text []byte
		require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) "+query, args...).Scan(&text))
		var explained []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
				Rows int `json:"Actual Rows"`
			}
		}
		require.NoError(t, json.Unmarshal(text, &explained))
		require.Equal(t, 1000, explained[0].Plan.Rows)
		return explained[0].Plan.Hit + explained[0].Plan.Read
	}
	count(query) // the first run asks for pages of the catalogue too
	return count(query)
}
