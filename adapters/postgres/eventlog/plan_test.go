package eventlog_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/appenderdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/blindindexdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/disclosuredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/eventlogdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/intentsdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/monitordb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/projectionsdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/streamsdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
)

// appendQueries and readQueries are the statements of the two pools that touch
// tables which grow without bound.
var appendQueries = []string{
	appenderdb.LockPartitionHeads, appenderdb.ListFreeHeads, appenderdb.ListLastEvents,
	appenderdb.ListStreamVersions, appenderdb.ListIdempotencyKeys, appenderdb.ListBusinessKeys, appenderdb.ListKeyVersions,
	appenderdb.ListKeyConditionHits, appenderdb.ListTypeConditionHits, appenderdb.ListNumberSeries, appenderdb.ListIntentRevisions,
	appenderdb.ListEventIDs, appenderdb.ListEventSequences,
	eventlog.InsertEvents, appenderdb.InsertIdempotencyKeys,
}

var readQueries = []string{
	eventlogdb.GetPartitionHead, eventlogdb.ListHeads, eventlogdb.ListPartitionHeads, eventlogdb.ListRecordingTimes, eventlogdb.ListEventTypes, eventlogdb.GetEventByID, eventlogdb.ListEventsOfStream, eventlogdb.ListEventsOfStreamBackward, eventlogdb.ListEventsOfStreamAsOf, eventlogdb.ListEventsOfStreamAsOfBackward,
	eventlogdb.ListEventsAfter, eventlogdb.ListEventsOfTypesAfter,
	eventlogdb.SearchKey, eventlogdb.SearchKeyBackward, eventlogdb.SearchCorrelation, eventlogdb.SearchCorrelationBackward,
	eventlogdb.SearchActor, eventlogdb.SearchActorBackward, eventlogdb.SearchTypes, eventlogdb.SearchTypesBackward,
	eventlogdb.SearchLog, eventlogdb.SearchLogBackward, eventlogdb.MatchEvents, eventlogdb.GetSequenceAt, eventlogdb.ListLineage,
	eventlogdb.ListDescendants, eventlogdb.ListKeySpans, eventlogdb.ListKeyMatches, eventlogdb.ListTypeMatches,
	eventlogdb.GetStreamStatus, eventlogdb.ListStreamRows, eventlogdb.ListStreamRowsWithEnds, intentsdb.GetIdempotencyKey, intentsdb.GetIntent, intentsdb.ListWaitingIntents,
	intentsdb.ListBoundIntents, intentsdb.ListIntents, intentsdb.ListIntentsBackward, intentsdb.ListIntentsOfStatus, intentsdb.ListIntentsOfStatusBackward,
	monitordb.ListSequencesAt, monitordb.CountCommits, monitordb.SampleEvents, monitordb.GetStreamSize, monitordb.ListProjectionLags, monitordb.GetWaitingIntents, monitordb.ListInstalledPolicies,
	streamsdb.GetSnapshotEpoch, streamsdb.ListEntitySnapshots, streamsdb.SaveEntitySnapshot, streamsdb.DeleteOldEntitySnapshots, streamsdb.MarkEntitySnapshotsStale,
	streamsdb.GetStreamSnapshot, streamsdb.CountStreamRedactions, streamsdb.RemoveStreamSnapshot, streamsdb.CountEntityRedactions, streamsdb.RemoveEntitySnapshot, streamsdb.SaveStreamSnapshot, streamsdb.DeleteOldStreamSnapshots,
	eventlogdb.CountPersonalEvents, eventlogdb.CountPersonalIntents, eventlogdb.ListPersonalEvents, eventlogdb.ListPersonalIntents, eventlogdb.ListPersonalKeys,
	subscriptionsdb.CountSubscriptionMessages, subscriptionsdb.ListOpenMessages, subscriptionsdb.ListOpenMessagesOf, subscriptionsdb.ListMovingMessages, subscriptionsdb.ListWaitingMessages, subscriptionsdb.CountWaitingMessages, subscriptionsdb.ListLowestMessages, subscriptionsdb.ListPartitionsOfMessages, subscriptionsdb.ListParkedKeys, subscriptionsdb.ListAllParkedKeys, subscriptionsdb.ListParkedMessages, subscriptionsdb.ListParkedMessagesOf, subscriptionsdb.CountParkedByCode,
	subscriptionsdb.SaveParked, subscriptionsdb.DeleteParked, subscriptionsdb.ClearParked, eventlogdb.ListExtraPayloads, eventlogdb.ListEventsWithin, eventlogdb.ListPayloadSizes,
	projectionsdb.LoadProjectionRows, projectionsdb.UpsertProjectionRows, projectionsdb.DeleteProjectionRows, projectionsdb.ForgetProjectionRows, projectionsdb.ListProjectionRows,
	subscriptionsdb.ListDueMessages, subscriptionsdb.SaveMessages, subscriptionsdb.DeleteMessages, subscriptionsdb.ClearMessages, subscriptionsdb.ListFormerDecisions,
	subscriptionsdb.InsertWebhookAttempts, subscriptionsdb.TrimWebhookAttempts, subscriptionsdb.ListWebhookAttempts, subscriptionsdb.DeleteWebhookAttempts,
	disclosuredb.InsertAccesses, disclosuredb.SearchAccesses, disclosuredb.SearchAccessesOfPerson, disclosuredb.SearchAccessesOfSubject, disclosuredb.ListAccesses, disclosuredb.OldestAccess,
	blindindexdb.InsertBlindIndex, blindindexdb.ForgetSubject, blindindexdb.CountBlindIndex, blindindexdb.FindSubjects,
}

// scatteredQueries are the statements that run under ReadScattered.
var scatteredQueries = []string{eventlogdb.ListEventsBySequence, eventlogdb.ListEventsOfCorrelation, eventlogdb.ListPayloadsBySequence}

// unbounded are the tables that no plan may read from end to end.
var unbounded = regexp.MustCompile(`^(events|event_payloads)(_default|_p[0-9]+)?$|^(event_keys|stream_versions|business_keys|idempotency_keys|intents|event_pii_subjects|intent_pii_subjects|entity_snapshots|stream_snapshots|projection_rows|subscription_messages|subscription_parked|subscription_decisions|webhook_attempts|access_log|blind_index)$`)

// partitionTable matches the tables of single legal entities, and that of all others.
var partitionTable = regexp.MustCompile(`_(default|p[0-9]+)$`)

// TestPlans runs EXPLAIN as the application's role, with generic plans as the
// application uses them, on an empty database, on one that was filled and never
// analysed, and after ANALYZE. Every access to a growing table must be an index
// scan whose condition names more than the partition.
func TestPlans(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 3)
	owner := pgtest.Connect(t, dsn)
	_, err := owner.Exec(t.Context(), "ALTER TABLE backbone.events SET (autovacuum_enabled = off)")
	require.Error(t, err) // partitioned tables have no storage: switched off one by one below
	for _, table := range pgtest.Column(t, owner, `SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'backbone'::regnamespace AND relkind = 'r'`) {
		_, err := owner.Exec(t.Context(), "ALTER TABLE "+table+" SET (autovacuum_enabled = off)")
		require.NoError(t, err)
	}
	rows := 15_000
	if os.Getenv("BACKBONE_TEST_LARGE") != "" {
		rows = 1_000_000
	}
	check := func(state string) {
		for settings, queries := range map[string][]string{
			"SET plan_cache_mode = force_generic_plan; SET jit = off":                                                                                                                readQueries,
			"SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off":                                                                                      appendQueries,
			"SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off; SET enable_indexscan = off; SET cpu_operator_cost = 0; SET cpu_index_tuple_cost = 0": scatteredQueries,
		} {
			conn := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
			_, err := conn.Exec(t.Context(), settings)
			require.NoError(t, err)
			for _, query := range queries {
				for _, finding := range findScans(t, conn, query, books[0], state != "empty") {
					t.Errorf("%s: %s", state, finding)
				}
			}
			require.NoError(t, conn.Close(t.Context()))
		}
		conn := pgtest.Connect(t, dsn) // the functions have the rights of their owner
		_, err := conn.Exec(t.Context(), "SET plan_cache_mode = force_generic_plan; SET jit = off; SET enable_seqscan = off")
		require.NoError(t, err)
		for _, query := range slices.Concat(statementsOf(t, conn, "write_event_rows", 9), statementsOf(t, conn, "list_appended", 1), statementsOf(t, conn, "last_events", 1), statementsOf(t, conn, "content_version", 1)) {
			for _, finding := range findScans(t, conn, query, books[0], state != "empty") {
				t.Errorf("%s: %s", state, finding)
			}
		}
	}
	check("empty")
	fill(t, owner, books[0], rows)
	check("never analysed")
	_, err = owner.Exec(t.Context(), "ANALYZE")
	require.NoError(t, err)
	check("analysed")
}

// fill writes many events past the appender.
func fill(t *testing.T, conn *pgx.Conn, p event.PartitionID, rows int) {
	t.Helper()
	for _, statement := range []string{
		`INSERT INTO backbone.events (partition_id, sequence, id, type, schema_version, occurred_at, recorded_at, effective_date, tenant_id, legal_entity,
			actor_type, actor_id, correlation_id, stream_type, stream_id, stream_version, caused_by, intent_id, payload_hash, checksum)
		SELECT %[1]d, n, lpad(to_hex(n), 32, '0')::uuid, 'ap.invoice.t' || n %% 10, 1, now(), now(), now(), 'demo', 'USMF', 'human', 'u-' || n %% 50,
			'c-' || n, 'invoice', 'I-' || n, 1, lpad(to_hex(n - 1), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, sha256(''), sha256('') FROM generate_series(1, %[2]d) n`,
		`INSERT INTO backbone.event_payloads (partition_id, sequence, salt, payload) SELECT %[1]d, n, '', '{}' FROM generate_series(1, %[2]d) n`,
		`INSERT INTO backbone.event_keys (partition_id, key, sequence, type_no) SELECT %[1]d, 'entity:vendor:' || n %% 100, n, 1 FROM generate_series(1, %[2]d) n`,
		`INSERT INTO backbone.stream_versions (partition_id, stream_type, stream_id, version, first_sequence, last_sequence)
		SELECT %[1]d, 'invoice', 'I-' || n, 1, n, n FROM generate_series(1, %[2]d) n`,
		`INSERT INTO backbone.business_keys (partition_id, event_type, key, sequence, event_id)
		SELECT %[1]d, 'ap.invoice.t0', 'K-' || n, n, lpad(to_hex(n), 32, '0')::uuid FROM generate_series(1, %[2]d / 4) n`,
		`INSERT INTO backbone.idempotency_keys (partition_id, key, fingerprint, first_sequence, event_count, expires_at)
		SELECT %[1]d, 'K-' || n, '', n, 1, now() FROM generate_series(1, %[2]d / 4) n`,
		`INSERT INTO backbone.event_pii_subjects (partition_id, subject_id, sequence, class, paths)
		SELECT %[1]d, 'employee:E-' || n %% 50, n, 0, '{/data/email}' FROM generate_series(1, %[2]d / 2) n`,
		`INSERT INTO backbone.intent_pii_subjects (partition_id, subject_id, intent_id, class, paths)
		SELECT %[1]d, 'employee:E-' || n %% 50, lpad(to_hex(n), 32, '0')::uuid, 0, '{/email}' FROM generate_series(1, %[2]d / 4) n`,
		`INSERT INTO backbone.intents (partition_id, id, created_at, updated_at, first_sequence, event_count, revision, legal_entity, type, status, actor_type, actor_id)
		SELECT %[1]d, lpad(to_hex(n), 32, '0')::uuid, now(), now(), n, 1, 1, 'USMF', 'ap.submit_invoice', 'executed', 'human', 'u' FROM generate_series(1, %[2]d / 4) n`,
		`INSERT INTO backbone.entity_snapshots (as_of_sequence, version, event_count, created_at, partition_id, size_bytes, effective_through, status, entity_type, entity_id, fold, state, redactions, mac)
		SELECT n, n, 100, now(), %[1]d, 2, now(), 'valid', 'vendor', 'V-' || n %% 2000, '1', '{}', 0, sha256('') FROM generate_series(1, %[2]d / 10) n`,
		`INSERT INTO backbone.stream_snapshots (version, created_at, partition_id, schema_version, size_bytes, internal, id, stream_type, stream_id, state_type, state, redactions, mac)
		SELECT n, now(), %[1]d, 1, 2, true, lpad(to_hex(n), 32, '0')::uuid, 'invoice', 'I-' || n %% 2000, 'fold:invoice', '{}', 0, sha256('') FROM generate_series(1, %[2]d / 10) n`,
		`INSERT INTO backbone.projection_rows (projection, version, partition_id, key, state, sequence)
		SELECT 'demo/p' || n %% 20, 1 + n %% 2, %[1]d, 'K-' || n, '{}', n FROM generate_series(1, %[2]d / 2) n`,
		`INSERT INTO backbone.subscription_messages (subscription, partition_id, sequence, event_id, order_key, state, consumer, attempts, due_at, code, detail, changed_at)
		SELECT lpad(to_hex(n %% 50), 32, '0')::uuid, %[1]d, n, lpad(to_hex(n), 32, '0')::uuid, decode(md5(n::text), 'hex'), CASE n %% 3 WHEN 0 THEN 'waiting' WHEN 1 THEN 'leased' ELSE 'retry' END,
			'', 1, CASE n %% 3 WHEN 0 THEN NULL ELSE now() END, '', '', now() FROM generate_series(1, %[2]d / 2) n`,
		`INSERT INTO backbone.subscription_parked (subscription, partition_id, sequence, event_id, order_key, consumer, attempts, code, detail, changed_at)
		SELECT lpad(to_hex(n %% 5), 32, '0')::uuid, %[1]d, n, lpad(to_hex(n), 32, '0')::uuid, decode(md5((n %% 500)::text), 'hex'), '', 6, '', '', now() FROM generate_series(1, %[2]d / 2) n`,
		`INSERT INTO backbone.subscription_decisions (partition_id, id, tenant_id, subscription, sequence, event_id, action, actor, reason, code, at)
		SELECT %[1]d, lpad(to_hex(n), 32, '0')::uuid, 'demo', 'S-' || n %% 50, n, lpad(to_hex(n), 32, '0')::uuid, 'skip', 'u', '', '', now() FROM generate_series(1, %[2]d / 4) n`,
		`INSERT INTO backbone.webhook_attempts (subscription, event_id, attempted_at, sequence, partition_id, attempt, status, duration_ms, code)
		SELECT lpad(to_hex(n / 100), 32, '0')::uuid, lpad(to_hex(n), 32, '0')::uuid, now() + n * interval '1 s', n, %[1]d, 1, 204, 5, '' FROM generate_series(1, %[2]d / 4) n`,
		`INSERT INTO backbone.access_log (partition_id, at, value_count, id, person_id, principal_id, kind, operation, legal_entity, subject_id, class, reason, request_id)
		SELECT %[1]d, now() - n * interval '1 s', 1, lpad(to_hex(n), 32, '0')::uuid, 'u-' || n %% 50, 'u', 'personal_values', 'getEvent', 'USMF',
			CASE n %% 4 WHEN 0 THEN '' ELSE 'employee:E-' || n %% 500 END, 'contact', 'ticket', '' FROM generate_series(1, %[2]d * 2) n`,
		`INSERT INTO backbone.blind_index (partition_id, kind, key_class, hash, subject_id, class, event_type, path)
		SELECT %[1]d, n %% 3, n %% 2, substr(decode(md5((n %% 5000)::text), 'hex'), 1, 8), 'employee:E-' || n, 'contact', 'hr.employee.hired', '/email' FROM generate_series(1, %[2]d / 2) n`,
	} {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(statement, p, rows))
		require.NoError(t, err)
	}
}

// statementsOf returns the statements of a function that write or return rows, with its parameters
// numbered, and requires that there are as many as count.
func statementsOf(t *testing.T, conn *pgx.Conn, function string, count int) (statements []string) {
	t.Helper()
	var source string
	var names, types []string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT p.prosrc, p.proargnames, ARRAY(SELECT format_type(o, NULL) FROM unnest(p.proargtypes) o)
		FROM pg_proc p WHERE p.pronamespace = 'backbone'::regnamespace AND p.proname = $1`, function).Scan(&source, &names, &types))
	for i, found := range regexp.MustCompile(`(?s)(INSERT INTO|WITH|UPDATE|RETURN QUERY|SELECT r)[\s.][^;]*;`).FindAllString(source, -1) {
		found = strings.TrimSuffix(strings.Replace(found, "INTO stored, continued, of_partitions, of_sequences, of_intents\n", "", 1), ";")
		found = strings.Replace(strings.TrimPrefix(found, "RETURN QUERY"), "INTO found_version", "", 1)
		for variable, value := range map[string]string{
			"of_partition": "partitions[1]", "first_of": "firsts[1]", "last_of": "lasts[1]",
			"of_partitions": "intent_partitions", "of_sequences": "intent_lasts", "of_intents": "intent_ids",
		} {
			found = regexp.MustCompile(`\b`+variable+`\b`).ReplaceAllString(found, value)
		}
		parameters := 0
		for j, name := range names[:len(types)] { // those of the result follow
			if word := regexp.MustCompile(`\b` + name + `\b`); word.MatchString(found) {
				parameters++
				found = word.ReplaceAllString(found, fmt.Sprintf("($$%d::%s)", parameters, types[j]))
			}
		}
		statements = append(statements, fmt.Sprintf("-- name: %s_%d :exec\n%s", function, i+1, found))
	}
	require.Len(t, statements, count, function)
	return statements
}

type plan struct {
	Node      string `json:"Node Type"`
	Relation  string `json:"Relation Name"`
	Index     string `json:"Index Name"`
	Condition string `json:"Index Cond"`
	Plans     []plan `json:"Plans"`
}

func (p *plan) walk(f func(*plan)) {
	f(p)
	for i := range p.Plans {
		p.Plans[i].walk(f)
	}
}

// findScans explains a query and returns what is wrong with its scans. Of empty tables all
// indexes cost the same, so filled says whether the better one must be used.
func findScans(t *testing.T, conn *pgx.Conn, query string, p event.PartitionID, filled bool) (findings []string) {
	t.Helper()
	name := strings.Fields(query)[2]
	description, err := conn.Prepare(t.Context(), "described_"+name, query)
	require.NoError(t, err, name)
	values := make([]string, len(description.ParamOIDs))
	for i, oid := range description.ParamOIDs {
		values[i] = sample(t, oid, p)
	}
	_, err = conn.Exec(t.Context(), "PREPARE explained AS "+query)
	require.NoError(t, err, name)
	var text []byte
	execute := "explained"
	if len(values) > 0 {
		execute += "(" + strings.Join(values, ", ") + ")"
	}
	require.NoError(t, conn.QueryRow(t.Context(), "EXPLAIN (FORMAT JSON) EXECUTE "+execute).Scan(&text), name)
	_, err = conn.Exec(t.Context(), "DEALLOCATE explained")
	require.NoError(t, err)
	var explained []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(text, &explained))
	explained[0].Plan.walk(func(n *plan) {
		if !unbounded.MatchString(n.Relation) || n.Node == "ModifyTable" || n.Node == "LockRows" {
			return
		}
		if partitionTable.MatchString(n.Relation) && !strings.HasSuffix(n.Relation, fmt.Sprintf("_p%d", p)) {
			return // of other legal entities, which are empty here
		}
		switch {
		case n.Node == "Bitmap Heap Scan": // its index scan is judged below
			n.Plans = slices.DeleteFunc(n.Plans, func(c plan) bool {
				return c.Node == "Bitmap Index Scan" && (strings.Contains(c.Condition, " AND ") && regexp.MustCompile(needed[name]).MatchString(c.Condition) || whole[name])
			})
			if len(n.Plans) > 0 {
				findings = append(findings, fmt.Sprintf("%s reads %s by a bitmap of %q", name, n.Relation, n.Plans[0].Condition))
			}
		case n.Node != "Index Scan" && n.Node != "Index Only Scan":
			findings = append(findings, fmt.Sprintf("%s reads %s by %s", name, n.Relation, n.Node))
		case filled && !regexp.MustCompile(needed[name]).MatchString(n.Condition):
			findings = append(findings, fmt.Sprintf("%s reads %s through %s by %q, without %q", name, n.Relation, n.Index, n.Condition, needed[name]))
		case !strings.Contains(n.Condition, " AND ") && !ordered[name] && (!whole[name] || n.Condition == ""):
			findings = append(findings, fmt.Sprintf("%s reads %s through %s by %q only", name, n.Relation, n.Index, n.Condition))
		case n.Relation == "event_keys" && !strings.Contains(n.Condition, "(key = "):
			findings = append(findings, fmt.Sprintf("%s reads all keys of a partition by %q", name, n.Condition))
		}
	})
	return findings
}

// ordered are the queries that take the first rows of a partition in the index's
// own order and stop at a limit.
var ordered = map[string]bool{"last_events_1": true, "last_events_2": true, "GetPartitionHead": true, "ListHeads": true, "ListPartitionHeads": true, "ListWaitingIntents": true, "ListProjectionLags": true, "GetWaitingIntents": true, "ListDueMessages": true, "OldestAccess": true}

// whole are the queries that want all of one subscription, or all that is due.
var whole = map[string]bool{
	"CountSubscriptionMessages": true, "CountParkedByCode": true, "ListDueMessages": true,
	"ListWebhookAttempts": true, "TrimWebhookAttempts": true, "DeleteWebhookAttempts": true, // about a hundred
}

// needed is what must be searched for in the index: what else the queries ask for may
// hold for a whole partition.
var needed = map[string]string{
	"ListEventsBySequence": `\(sequence = ANY \(`, "ListPayloadsBySequence": `\(sequence = ANY \(`, "ListEventsOfCorrelation": `\(correlation_id = `,
	"SearchAccessesOfSubject": `\(subject_id = `, "SearchAccessesOfPerson": `\(person_id = `,
	"ForgetSubject": `\(subject_id = `, "CountBlindIndex": `\(subject_id = `, "FindSubjects": `\((hash|subject_id) = `,
}

// sample is a literal of a parameter's type.
func sample(t *testing.T, oid uint32, p event.PartitionID) string {
	t.Helper()
	partition := fmt.Sprint(p)
	literals := map[uint32]string{
		pgtype.Int4OID: partition, pgtype.Int4ArrayOID: "'{" + partition + "}'", pgtype.Int8OID: "100", pgtype.Int8ArrayOID: "'{5}'",
		pgtype.TextOID: "'I-5'", pgtype.TextArrayOID: "'{I-5}'", pgtype.UUIDOID: "'00000000-0000-0000-0000-000000000005'",
		pgtype.UUIDArrayOID: "'{00000000-0000-0000-0000-000000000005}'", pgtype.ByteaOID: "'x'", pgtype.ByteaArrayOID: "'{x}'",
		pgtype.TimestamptzOID: "now()", pgtype.TimestamptzArrayOID: "'{2026-01-01}'", pgtype.DateOID: "'2026-01-01'", pgtype.DateArrayOID: "'{2026-01-01}'",
		pgtype.BoolOID: "true", pgtype.Int2OID: "0", pgtype.Int2ArrayOID: "'{0}'", pgtype.JSONBOID: "'{}'", pgtype.JSONOID: "'{}'",
	}
	literal, ok := literals[oid]
	require.True(t, ok, "no sample for type %d", oid)
	return literal
}
