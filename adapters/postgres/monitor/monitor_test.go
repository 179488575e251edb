package monitor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/monitor"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

func openMonitor(t *testing.T, dsn string) *monitor.Monitor {
	t.Helper()
	m := openWithShortTimeouts(t, dsn)
	require.NoError(t, monitor.SetTimeouts(t.Context(), m, pgtest.WaitLimit))
	return m
}

// openWithShortTimeouts opens a monitor with the timeouts that operators have.
func openWithShortTimeouts(t *testing.T, dsn string) *monitor.Monitor {
	t.Helper()
	m, err := monitor.Open(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { m.Close(context.Background()) })
	return m
}

// insertEvents writes events past the appender, a hundred per commit, the last one now.
func insertEvents(t *testing.T, dsn string, p event.PartitionID, count int) {
	t.Helper()
	pgtest.Execute(t, dsn, fmt.Sprintf(`INSERT INTO backbone.events (partition_id, sequence, id, type, schema_version, occurred_at, recorded_at, effective_date, tenant_id, legal_entity,
		actor_type, actor_id, correlation_id, stream_type, stream_id, stream_version, payload_hash, checksum)
		SELECT %[1]d, n, gen_random_uuid(), 'ap.invoice.t' || n %% 4, 1, now(), now() - (%[2]d - n) / 100 * interval '1 millisecond', now(), 'demo', 'LE0', 'human', 'u-1', 'c',
			'invoice', 'person-' || CASE WHEN n %% 5 = 0 THEN 0 ELSE n END, n, sha256(''), sha256('') FROM generate_series(1, %[2]d) n`, p, count))
	pgtest.Execute(t, dsn, fmt.Sprintf(`INSERT INTO backbone.event_payloads SELECT n, %d, '', '{"data":{}}' FROM generate_series(1, %d) n`, p, count))
	pgtest.Execute(t, dsn, fmt.Sprintf(`INSERT INTO backbone.stream_versions (partition_id, stream_type, stream_id, version, first_sequence, last_sequence)
		VALUES (%d, 'invoice', 'person-0', %d / 5, 5, %d)`, p, count, count))
}

func finding(t *testing.T, all []monitor.Finding, subject string) monitor.Finding {
	t.Helper()
	for _, f := range all {
		if f.Subject == subject {
			require.Equal(t, f.Status == monitor.FindingOK, f.Next == "", "a finding that needs an action names it: %+v", f)
			return f
		}
	}
	require.Fail(t, "no finding", "%s in %+v", subject, all)
	return monitor.Finding{}
}

func TestThroughput_Hours(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 12, 30, 0, 0, time.UTC)
	clock := testkit.NewClock(now.Add(-30 * time.Hour))
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, pgtest.WithClock(clock), pgtest.SingleAppender)
	books := pgtest.NewPartitions(t, s, 3)
	at := func(when time.Time, p event.PartitionID, sizes ...int) {
		for _, n := range sizes {
			clock.Set(when)
			when = when.Add(time.Second)
			_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, n))
			require.NoError(t, err)
		}
	}
	at(now.Add(-30*time.Hour), books[0], 5)                  // too long ago
	at(now.Add(-30*time.Hour), books[2], 5)                  // nothing since
	at(now.Truncate(time.Hour).Add(-time.Hour), books[0], 1) // on the hour
	at(now.Add(-time.Hour), books[0], 2, 3)                  // 11:30
	at(now.Add(-time.Minute), books[0], 4)
	at(now.Add(-time.Minute), books[1], 7, 1)

	got, err := openMonitor(t, pgtest.As("backbone_app", dsn)).Throughput(t.Context(), monitor.ThroughputQuery{Now: now})
	require.NoError(t, err)
	require.Len(t, got.Hours, 24)
	hour := func(events, commits int64) monitor.HourOfAppends {
		return monitor.HourOfAppends{Events: events, Commits: commits}
	}
	busy := map[time.Time]monitor.HourOfAppends{}
	for _, h := range got.Hours {
		if h.Events > 0 {
			busy[h.Hour] = monitor.HourOfAppends{Events: h.Events, Commits: h.Commits, Estimated: h.Estimated}
		}
	}
	noon := now.Truncate(time.Hour)
	require.Equal(t, map[time.Time]monitor.HourOfAppends{noon.Add(-time.Hour): hour(6, 3), noon: hour(12, 3)}, busy)
	require.Len(t, got.LegalEntities, 2)
	require.Contains(t, got.Findings()[0].Detail, "18 events in about 6 commits")

	one, err := openMonitor(t, dsn).Throughput(t.Context(), monitor.ThroughputQuery{Now: now, LegalEntity: "LE1"})
	require.NoError(t, err)
	require.Equal(t, int64(8), one.Hours[23].Events)
	_, err = openMonitor(t, dsn).Throughput(t.Context(), monitor.ThroughputQuery{Now: now, LegalEntity: "NONE"})
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
}

func TestThroughput_BusyHourIsEstimated(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	books := pgtest.NewPartitions(t, pgtest.Open(t, dsn), 1)
	insertEvents(t, dsn, books[0], 20_000) // 200 commits within a fifth of a second
	got, err := openMonitor(t, dsn).Throughput(t.Context(), monitor.ThroughputQuery{Now: time.Now()})
	require.NoError(t, err)
	var counted, commits int64
	estimated := false
	for _, h := range got.Hours {
		counted, commits, estimated = counted+h.Events, commits+h.Commits, estimated || h.Estimated
	}
	require.Equal(t, int64(20_000), counted, "events are exact")
	require.True(t, estimated)
	require.InDelta(t, 200, commits, 50)
}

func TestContention_NamesLockedHead(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 2)
	release := pgtest.LockHead(t, dsn, books[1])
	answered := make(chan error, 1)
	go func() {
		_, err := s.Appender.Append(context.WithoutCancel(t.Context()), pgtest.Invoice(books[1], 1))
		answered <- err
	}()
	superuser, app := openMonitor(t, dsn), openMonitor(t, pgtest.As("backbone_app", dsn))
	pgtest.AwaitLockWait(t, s, pgtest.Connect(t, dsn))
	c, err := superuser.Contention(t.Context())
	require.NoError(t, err)
	require.Len(t, c.Waits, 1)
	wait := c.Waits[0]
	require.Equal(t, "LE1", wait.LegalEntity)
	require.Equal(t, "demo", wait.TenantID)
	require.Equal(t, "backbone.partition_heads", wait.Relation)
	require.Len(t, wait.BlockedBy, 1)
	holders := 0
	for _, session := range c.Sessions {
		if session.PID == wait.BlockedBy[0] {
			holders++
			require.Equal(t, "idle in transaction", session.State)
			require.Positive(t, session.IdleSeconds)
		}
	}
	require.Equal(t, 1, holders)
	require.Contains(t, finding(t, c.Findings(), "lock waits").Detail, "the head of legal entity LE1, behind pid "+fmt.Sprint(wait.BlockedBy[0]))

	// Every role sees locks, but not the sessions of other roles.
	hidden, err := app.Contention(t.Context())
	require.NoError(t, err)
	require.Len(t, hidden.Waits, 1)
	require.Equal(t, "LE1", hidden.Waits[0].LegalEntity)
	require.Empty(t, hidden.Sessions)
	require.Positive(t, hidden.Hidden)
	require.Contains(t, finding(t, hidden.Findings(), "oldest snapshot").Detail, "hidden from this one: ")
	release()
	require.NoError(t, <-answered)
}

func TestContention_FindsOldSnapshots(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	report := pgtest.Connect(t, dsn)
	tx, err := report.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	require.NoError(t, err)
	var pid int32
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT pg_backend_pid()").Scan(&pid))
	writer := pgtest.Connect(t, dsn)
	for range 5 {
		_, err := writer.Exec(t.Context(), "SELECT pg_current_xact_id()")
		require.NoError(t, err)
	}
	m := openMonitor(t, dsn)
	c, err := m.Contention(t.Context())
	require.NoError(t, err)
	require.Len(t, c.Sessions, 1)
	session := c.Sessions[0]
	require.Equal(t, pid, session.PID)
	require.GreaterOrEqual(t, session.SnapshotAge, int32(5))
	require.Equal(t, monitor.FindingOK, finding(t, c.Findings(), "oldest snapshot").Status, "it is young")

	for seconds, want := range map[float64]monitor.FindingStatus{301: monitor.FindingWarn, 3601: monitor.FindingFail} {
		c.Sessions[0].Seconds, c.Sessions[0].IdleSeconds = seconds, seconds
		f := finding(t, c.Findings(), "oldest snapshot")
		require.Equal(t, want, f.Status)
		require.Contains(t, f.Detail, fmt.Sprintf("pid %d", pid))
		require.Equal(t, want, finding(t, c.Findings(), "idle in transaction").Status)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	c, err = m.Contention(t.Context())
	require.NoError(t, err)
	require.Empty(t, c.Sessions)
	c.Waits = []monitor.LockWait{{PID: 1, Seconds: 31, LockType: "advisory"}}
	require.Equal(t, monitor.FindingFail, finding(t, c.Findings(), "lock waits").Status)
}

func TestDistribution_SamplesAreMarked(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 3)
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 3))
	require.NoError(t, err)
	m := openMonitor(t, pgtest.As("backbone_app", dsn))
	small, err := m.Distribution(t.Context())
	require.NoError(t, err)
	require.True(t, small.Exact)
	require.Equal(t, int64(3), small.Events)
	require.Equal(t, "LE1", small.LegalEntities[0].LegalEntity)
	require.Len(t, small.EventTypes, 1)
	require.Equal(t, int64(3), small.EventTypes[0].Events)
	require.Positive(t, small.EventTypes[0].PayloadBytes)
	require.Empty(t, small.Keys, "nothing is known before ANALYZE")

	insertEvents(t, dsn, books[0], 20_000)
	for range 20 {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[1], 20))
		require.NoError(t, err)
	}
	pgtest.Execute(t, dsn, "ANALYZE backbone.event_keys")
	large, err := m.Distribution(t.Context())
	require.NoError(t, err)
	require.False(t, large.Exact)
	require.Equal(t, int64(20_403), large.Events)
	require.LessOrEqual(t, large.Sampled, int64(4003))
	require.Equal(t, int64(20_000), large.LegalEntities[0].Events, "logs are exact")
	byType := map[string]int64{}
	for _, share := range large.EventTypes {
		byType[share.Type] = share.Events
	}
	for n := range 4 {
		require.InDelta(t, 5000, byType[fmt.Sprintf("ap.invoice.t%d", n)], 700)
	}
	require.Equal(t, monitor.LargeStream{LegalEntity: "LE0", StreamType: "invoice", FirstSequence: 5, Events: 4000}, large.Streams[0])
	require.Equal(t, "entity vendor", large.Keys[0].Kind)
	require.InDelta(t, 403, large.Keys[0].Hottest, 50)
	text, err := json.Marshal(large)
	require.NoError(t, err)
	for _, secret := range []string{"person-", "V-1042", "u-17", "c-"} {
		require.NotContains(t, string(text), secret)
	}
}

func TestStorage_FindsDefects(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn, func(c *postgres.Config) { c.PhysicalPartitions = 1 })
	books := pgtest.NewPartitions(t, s, 2)
	for _, p := range books {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 2))
		require.NoError(t, err)
	}
	m := openMonitor(t, pgtest.As("backbone_app", dsn))
	got, err := m.Storage(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, &monitor.Partitioning{Physical: 1, Wanted: 1, Shared: 1, SharedEvents: 2, Unattached: []string{}, WithoutPayload: []string{}}, got.Partitioning)
	for _, f := range got.Findings() {
		require.Equal(t, monitor.FindingOK, f.Status, "%+v", f)
	}
	sizes := map[string]monitor.TableSize{}
	for _, table := range got.Tables {
		sizes[table.Name] = table
	}
	require.Equal(t, int32(2), sizes["backbone.events"].Partitions)
	require.Positive(t, sizes["backbone.events"].IndexBytes)
	require.Contains(t, sizes, "keystore.data_subjects")
	require.InDelta(t, 0.1, got.PayloadShare, 0.1)
	require.Positive(t, got.Bytes)

	wider, err := m.Storage(t.Context(), 8)
	require.NoError(t, err)
	require.Equal(t, monitor.FindingWarn, finding(t, wider.Findings(), "partitions").Status, "it cannot become wider any more")

	pgtest.Execute(t, dsn, "CREATE INDEX half_built ON ONLY backbone.events (site)")
	pgtest.Execute(t, dsn, fmt.Sprintf("ALTER TABLE backbone.events DETACH PARTITION backbone.events_p%d", books[0]))
	pgtest.Execute(t, dsn, "ALTER TABLE backbone.stream_versions SET (autovacuum_enabled = off)")
	pgtest.Execute(t, dsn, fmt.Sprintf("INSERT INTO backbone.stream_versions SELECT 1, 1, 1, %d, 'x', n::text FROM generate_series(1, 12000) n", books[1]))
	pgtest.Execute(t, dsn, "UPDATE backbone.stream_versions SET version = version + 1")
	testkit.Eventually(t, pgtest.WaitLimit, func() bool {
		got, err = m.Storage(t.Context(), 1)
		require.NoError(t, err)
		return finding(t, got.Findings(), "dead rows").Status == monitor.FindingWarn
	}, "dead rows are reported")
	findings := got.Findings()
	require.Contains(t, finding(t, findings, "dead rows").Detail, "backbone.stream_versions: 12")
	require.Contains(t, finding(t, findings, "indexes").Detail, "backbone.half_built")
	tables := finding(t, findings, "partition tables")
	require.Equal(t, monitor.FindingFail, tables.Status, "a table of the log was taken out")
	require.Contains(t, tables.Detail, "LE0")
	require.Equal(t, []string{fmt.Sprintf("backbone.events_p%d", books[0])}, got.Partitioning.Unattached)
}

// insertCheckpoint says that a projection has come that far.
func insertCheckpoint(t *testing.T, dsn, projection string, version int, p event.PartitionID, sequence int, status string) {
	t.Helper()
	pgtest.Execute(t, dsn, fmt.Sprintf(`INSERT INTO backbone.projection_checkpoints (projection, version, partition_id, sequence, status, updated_at)
		VALUES ('%s', %d, %d, %d, '%s', now())
		ON CONFLICT (projection, version, partition_id) DO UPDATE SET sequence = excluded.sequence, status = excluded.status`, projection, version, p, sequence, status))
}

// insertVersion enters a version as servers do, or changes what it is there for.
func insertVersion(t *testing.T, dsn, projection string, version int, role, state string) {
	t.Helper()
	pgtest.Execute(t, dsn, fmt.Sprintf(`INSERT INTO backbone.projections (name, version, code, role, status, settings, revision, created_at, changed_at, changed_by)
		VALUES ('%[1]s', %[2]d, %[2]d, '%[3]s', '%[4]s', '{}', 1, now(), now(), 'system')
		ON CONFLICT (name, version) DO UPDATE SET role = excluded.role, status = excluded.status`, projection, version, role, state))
}

// TestDelivery_JudgesActiveVersionOnly has a building and a retained version besides the active
// one; only the active version decides the finding.
func TestDelivery_JudgesActiveVersionOnly(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 1)
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 5))
	require.NoError(t, err)
	for version := 1; version <= 4; version++ {
		insertCheckpoint(t, dsn, "ap.ledger", version, books[0], 2, "running")
	}
	m := openMonitor(t, pgtest.As("backbone_app", dsn))
	later := time.Now().Add(2 * time.Minute)
	findings := func() map[string]monitor.Finding {
		got, err := m.Delivery(t.Context(), later)
		require.NoError(t, err)
		out := map[string]monitor.Finding{}
		for _, f := range got.Findings(later) {
			out[f.Subject] = f
		}
		return out
	}
	require.NotContains(t, findings(), "projection ap.ledger v4", "no server has entered it")

	insertVersion(t, dsn, "ap.ledger", 1, "dropping", "running")
	insertVersion(t, dsn, "ap.ledger", 2, "retained", "running")
	insertVersion(t, dsn, "ap.ledger", 3, "active", "running")
	insertVersion(t, dsn, "ap.ledger", 4, "building", "running")
	found := findings()
	require.NotContains(t, found, "projection ap.ledger v1")
	require.Equal(t, monitor.FindingWarn, found["projection ap.ledger v2"].Status)
	require.Equal(t, monitor.FindingWarn, found["projection ap.ledger v3"].Status, "late, though a later version is built")
	require.Equal(t, monitor.FindingOK, found["projection ap.ledger v4"].Status)
	require.Contains(t, found["projection ap.ledger v4"].Detail, "being built")

	for version := 2; version <= 4; version++ {
		insertCheckpoint(t, dsn, "ap.ledger", version, books[0], 2, "faulted")
	}
	found = findings()
	require.Equal(t, monitor.FindingWarn, found["projection ap.ledger v2"].Status)
	require.Equal(t, monitor.FindingFail, found["projection ap.ledger v3"].Status)
	require.Equal(t, monitor.FindingWarn, found["projection ap.ledger v4"].Status)

	insertCheckpoint(t, dsn, "ap.ledger", 3, books[0], 2, "retrying")
	insertVersion(t, dsn, "ap.ledger", 3, "active", "paused")
	paused := findings()["projection ap.ledger v3"]
	require.Equal(t, monitor.FindingWarn, paused.Status)
	require.Contains(t, paused.Detail, "it is paused")
	require.Contains(t, paused.Next, "resume")
	insertVersion(t, dsn, "ap.ledger", 3, "active", "faulted")
	faulted := findings()["projection ap.ledger v3"]
	require.Equal(t, monitor.FindingFail, faulted.Status, "no single legal entity, but all of them")
	require.Contains(t, faulted.Detail, "all legal entities")
}

func TestDelivery_FindsLag(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 2)
	for _, p := range books {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 5))
		require.NoError(t, err)
	}
	insertCheckpoint(t, dsn, "ap.ledger", 1, books[0], 2, "running")
	insertCheckpoint(t, dsn, "ap.ledger", 2, books[0], 2, "running")
	insertCheckpoint(t, dsn, "ap.ledger", 2, books[1], 5, "running")
	insertVersion(t, dsn, "ap.ledger", 1, "dropped", "running")
	insertVersion(t, dsn, "ap.ledger", 2, "active", "running")
	m := openMonitor(t, pgtest.As("backbone_app", dsn))
	now := time.Now()
	got, err := m.Delivery(t.Context(), now)
	require.NoError(t, err)
	require.Len(t, got.Projections, 2)
	newest := got.Projections[1]
	require.Equal(t, int32(2), newest.Version)
	require.Equal(t, "active", newest.Role)
	require.Equal(t, "dropped", got.Projections[0].Role)
	require.Equal(t, int64(3), newest.Behind)
	require.Equal(t, 2, newest.Entities)
	require.WithinDuration(t, now, newest.WaitingSince, time.Minute)
	require.Equal(t, monitor.FindingOK, finding(t, got.Findings(now), "projection ap.ledger v2").Status)
	require.Equal(t, monitor.FindingWarn, finding(t, got.Findings(now.Add(2*time.Minute)), "projection ap.ledger v2").Status)
	require.Equal(t, "none", finding(t, got.Findings(now), "waiting intents").Detail)
	require.Contains(t, finding(t, got.Findings(now), "erasures").Detail, "not asked")

	insertCheckpoint(t, dsn, "ap.ledger", 2, books[1], 5, "faulted")
	pgtest.Execute(t, dsn, fmt.Sprintf(`INSERT INTO backbone.intents (partition_id, id, created_at, updated_at, first_sequence, event_count, revision, legal_entity, type, status, actor_type, actor_id)
		SELECT %d, gen_random_uuid(), now() - n * interval '1 day' - interval '1 hour', now(), 0, 0, 1, 'LE0', 'ap.submit_invoice', 'pending_approval', 'human', 'u' FROM generate_series(1, 9) n`, books[0]))
	conn := pgtest.Connect(t, dsn)
	_, err = conn.Exec(t.Context(), pgtest.FencedRequest, uuid.New(), "employee:E-1")
	require.NoError(t, err)
	got, err = m.Delivery(t.Context(), now)
	require.NoError(t, err)
	open, err := openMonitor(t, pgtest.As("backbone_eraser", dsn)).OpenErasures(t.Context())
	require.NoError(t, err)
	got.Erasures = &open
	findings := got.Findings(now)
	require.Equal(t, monitor.FindingFail, finding(t, findings, "projection ap.ledger v2").Status)
	intents := finding(t, findings, "waiting intents")
	require.Equal(t, monitor.FindingWarn, intents.Status)
	require.Contains(t, intents.Detail, "9 wait for approval, the oldest for 9 days")
	require.Equal(t, int64(1), open.Open)
	require.Equal(t, monitor.FindingWarn, finding(t, findings, "erasures").Status, "due today")
	require.Equal(t, monitor.FindingFail, finding(t, got.Findings(now.Add(48*time.Hour)), "erasures").Status, "overdue")
}

func TestMonitor_IsReadOnlyAndBounded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pgtest.NewPartitions(t, pgtest.Open(t, dsn), 1)
	locker := pgtest.Connect(t, dsn)
	tx, err := locker.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE backbone.legal_entities IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	m := openWithShortTimeouts(t, pgtest.As("backbone_app", dsn))
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.WaitLimit)
	defer cancel()
	_, err = m.Distribution(ctx)
	require.Equal(t, "store.question_too_slow", fault.CodeOf(err), "the lock stays: the question ends by itself")
	require.NoError(t, ctx.Err())
	require.NoError(t, monitor.SetTimeouts(t.Context(), m, pgtest.WaitLimit)) // it does not wait for the table, and is not slow for another reason
	c, err := m.Contention(t.Context())
	require.NoError(t, err, "the question that says why is still answered")
	require.Empty(t, c.Waits)
	require.NoError(t, tx.Rollback(t.Context()))

	// A key store's database has sessions and tables, and no log.
	keys := openMonitor(t, pgtest.As("backbone_app", pgtest.KeyStoreDatabase(t)))
	require.False(t, keys.HasLog())
	_, err = keys.Contention(t.Context())
	require.NoError(t, err)
	storage, err := keys.Storage(t.Context(), 0)
	require.NoError(t, err)
	require.Nil(t, storage.Partitioning)
	require.NotEmpty(t, storage.Tables)

	_, err = monitor.Open(t.Context(), "postgres://%zz")
	require.Equal(t, "store.dsn_invalid", fault.CodeOf(err))
}

// TestDocumentedQueries runs the SQL that docs/operate/diagnose.md offers for psql, as the role
// that it names, on a database with events.
func TestDocumentedQueries(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(testkit.RepoRoot(t), "docs", "operate", "diagnose.md"))
	require.NoError(t, err)
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 2)
	_, err = s.Appender.Append(t.Context(), pgtest.Invoice(books[0], 5))
	require.NoError(t, err)
	insertCheckpoint(t, dsn, "ap.ledger", 1, books[0], 2, "running")
	release := pgtest.LockHead(t, dsn, books[0])
	answered := make(chan error, 1)
	go func() {
		_, err := s.Appender.Append(context.WithoutCancel(t.Context()), pgtest.Invoice(books[0], 1))
		answered <- err
	}()
	conn := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	pgtest.AwaitLockWait(t, s, pgtest.Connect(t, dsn))
	blocks := strings.Split(string(text), "```sql\n")[1:]
	require.GreaterOrEqual(t, len(blocks), 6)
	for _, block := range blocks {
		statement, _, found := strings.Cut(block, "```")
		require.True(t, found)
		rows, err := conn.Query(t.Context(), strings.ReplaceAll(statement, ":'legal_entity'", "'LE0'"))
		require.NoError(t, err, statement)
		found = rows.Next()
		rows.Close()
		require.NoError(t, rows.Err(), statement)
		require.True(t, found, "no row: %s", statement)
	}
	release()
	require.NoError(t, <-answered)
}
