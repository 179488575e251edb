package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

// directories are the tables that every shard of a cluster has in full; they are
// not keyed by partition.
var directories = []string{"installation", "legal_entities", "principals", "event_types", "event_type_registry", "event_type_generation", "event_type_history", "nodes", "work_nodes", "projections", "webhook_endpoints", "webhook_hosts", "subscriptions", "subscription_consumers", "subscription_tenants", "log_ranges", "log_tiles", "log_checkpoints"}

// TestCatalog_CanBeSharded reads the catalog and fails on anything that would keep the
// schema from running on a sharded cluster, on replicas or behind poolers.
func TestCatalog_CanBeSharded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pgtest.NewPartitions(t, pgtest.Open(t, dsn), 3) // with physical partitions
	conn := pgtest.Connect(t, dsn)

	require.Empty(t, pgtest.Column(t, conn, `
		SELECT c.relname FROM pg_class c
		WHERE c.relnamespace = 'backbone'::regnamespace AND c.relkind IN ('r', 'p') AND c.relname <> ALL ($1)
		  AND c.relname NOT LIKE 'migration%'
		  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'partition_id' AND a.attnotnull)`, directories),
		"tables without partition_id")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
		WHERE c.relnamespace = 'backbone'::regnamespace AND i.indisunique AND c.relname <> ALL ($1) AND c.relname NOT LIKE 'migration%'
		  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'partition_id' AND a.attnum = ANY (i.indkey))`, directories),
		"unique indexes without partition_id")
	require.Equal(t, []string{"backbone.event_type_registry"}, pgtest.Column(t, conn, `
		SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND connamespace = 'backbone'::regnamespace`),
		"foreign keys: none from a hot table, a multixact for each insert")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'backbone'::regnamespace AND c.relkind = 'S' AND c.relname NOT LIKE 'migration%'`),
		"sequences")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT a.attrelid::regclass::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'backbone'::regnamespace AND c.relname NOT LIKE 'migration%'
		  AND (a.attidentity <> '' OR a.atttypid IN ('xid'::regtype, 'xid8'::regtype)) AND a.attnum > 0`),
		"identity and transaction id columns")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE c.relnamespace = 'backbone'::regnamespace AND c.relkind = 'p'`),
		"more than one level of partitions")
	require.Equal(t, []string{
		"event_payloads.payloads_append_only", "event_payloads.payloads_no_truncate", "event_payloads_default.payloads_no_truncate",
		"event_type_generation.event_type_generation_sealed",
		"event_type_history.event_type_history_append_only", "event_type_history.event_type_history_no_truncate", "event_type_history.event_type_history_sealed",
		"event_type_registry.event_type_registry_append_only", "event_type_registry.event_type_registry_no_truncate",
		"events.events_append_only", "events.events_no_truncate", "events_default.events_no_truncate",
		"log_checkpoints.log_checkpoints_append_only", "log_checkpoints.log_checkpoints_no_truncate", "log_ranges.log_ranges_append_only", "log_ranges.log_ranges_no_truncate", "log_tiles.log_tiles_append_only", "log_tiles.log_tiles_no_truncate",
		"partition_heads.partition_heads_never_change",
		"pii_redactions.pii_redactions_append_only", "pii_redactions.pii_redactions_no_truncate",
	}, pgtest.Column(t, conn, `
		SELECT c.relname || '.' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		WHERE c.relnamespace = 'backbone'::regnamespace AND NOT t.tgisinternal AND t.tgparentid = 0 AND c.relname !~ '_p[0-9]+$' ORDER BY 1`),
		"triggers: only those that refuse, nothing depends on them")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'backbone'::regnamespace AND p.prosecdef
		  AND NOT coalesce(p.proconfig @> ARRAY['search_path=pg_catalog, pg_temp'], false)`),
		"definer functions without a fixed search_path")
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'backbone'::regnamespace AND pg_get_userbyid(c.relowner) <> 'backbone_owner'`),
		"relations of another owner")
}

// TestGrants lists every privilege of the schema.
func TestGrants(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pgtest.NewPartitions(t, pgtest.Open(t, dsn), 2)
	conn := pgtest.Connect(t, dsn)
	got := pgtest.Grants(t, conn, "backbone", "backbone_owner")
	// S I U D: SELECT, INSERT, UPDATE, DELETE. E: EXECUTE. "U" of the schema is USAGE.
	require.ElementsMatch(t, strings.Fields(`
		backbone_app:business_keys:S backbone_app:create_legal_entity():E backbone_app:content_version():E backbone_app:last_events():E backbone_app:write_event_rows():E backbone_app:event_keys:S backbone_app:event_payloads:S
		backbone_app:event_pii_subjects:S backbone_app:intent_pii_subjects:S backbone_app:event_type_generation:S backbone_app:event_type_generation.tenant_id:U backbone_app:event_type_registry:IS backbone_app:event_types:IS backbone_app:events:IS
		backbone_app:idempotency_keys:DISU backbone_app:installation:IS backbone_app:intents:S backbone_app:legal_entities:S
		backbone_app:number_series:S backbone_app:partition_heads.partition_id:U backbone_app:partition_heads:S
		backbone_app:principals:S backbone_app:projection_checkpoints:DISU backbone_app:schema:U backbone_app:stream_versions:S
		backbone_archiver:event_keys:S backbone_archiver:event_payloads:DIS backbone_archiver:events:S backbone_archiver:partition_heads:S
		backbone_archiver:schema:U backbone_archiver:stream_versions:S
		backbone_archiver:archive_payloads():E backbone_archiver:restore_payloads():E backbone_archiver:replace_states():E backbone_archiver:await_archiving():E backbone_archiver:leases:S backbone_archiver:vouched_hash():E
		backbone_archiver:archive_segments:DIS backbone_archiver:archive_states:DIS backbone_archiver:legal_entities:S backbone_archiver:pii_redactions:S
		backbone_archiver:projection_checkpoints:S backbone_archiver:projections:S backbone_archiver:redaction_requests:S
		backbone_eraser:archive_payloads():E backbone_eraser:restore_payloads():E backbone_eraser:replace_states():E backbone_eraser:await_archiving():E
		backbone_eraser:archive_segments:S backbone_app:archive_segments:S backbone_reader:archive_segments:S
		backbone_eraser:archive_states:S backbone_app:archive_states:S backbone_reader:archive_states:S
		backbone_eraser:event_pii_subjects:S backbone_eraser:intent_pii_subjects:S backbone_eraser:event_payloads:S backbone_eraser:event_type_registry:S backbone_eraser:event_types:S backbone_eraser:events:S backbone_eraser:schema:U
		backbone_reader:event_pii_subjects:S backbone_reader:intent_pii_subjects:S backbone_reader:business_keys:S backbone_reader:event_keys:S backbone_reader:event_payloads:S backbone_reader:event_type_registry:S
		backbone_reader:event_types:S backbone_reader:events:S backbone_reader:installation:S backbone_reader:intents:S backbone_reader:legal_entities:S
		backbone_reader:partition_heads:S backbone_reader:projection_checkpoints:S backbone_reader:schema:U backbone_reader:stream_versions:S
		backbone_redactor:event_payloads:S backbone_redactor:events:S backbone_redactor:schema:U
		backbone_app:pii_redactions:S backbone_reader:pii_redactions:S backbone_reader:number_series:S backbone_reader:idempotency_keys:S backbone_eraser:pii_redactions:S backbone_eraser:redaction_requests:S
		backbone_eraser:legal_entities:S backbone_eraser:installation:S
		backbone_eraser:request_redaction():E backbone_eraser:approve_redaction():E backbone_eraser:redact_payload():E
		backbone_redactor:redact_payload():E backbone_redactor:redaction_requests:S backbone_redactor:pii_redactions:IS
		backbone_redactor:event_payloads.salt:U backbone_redactor:event_payloads.payload:U
		backbone_app:event_type_history:S backbone_reader:event_type_history:S backbone_reader:event_type_generation:S backbone_eraser:event_type_history:S
		backbone_app:entity_snapshots:DISU backbone_app:stream_snapshots:DISU backbone_app:projection_snapshots:DISU
		backbone_reader:entity_snapshots:S backbone_reader:stream_snapshots:S backbone_reader:projection_snapshots:S
		backbone_redactor:entity_snapshots:DS backbone_redactor:stream_snapshots:DS
		backbone_eraser:move_redaction():E backbone_eraser:note_redaction_failure():E backbone_app:redaction_requests:S backbone_reader:redaction_requests:S
		backbone_redactor:event_payloads.redactions:U backbone_redactor:redaction_requests.state:U backbone_redactor:redaction_requests.revision:U
		backbone_redactor:redaction_requests.attempts:U backbone_redactor:redaction_requests.last_error:U backbone_redactor:redaction_requests.updated_at:U
		backbone_app:leases:DISU backbone_app:work_nodes:DISU backbone_reader:work_nodes:S backbone_app:webhook_attempts:DIS backbone_app:webhook_hosts:S backbone_app:nodes:DISU backbone_app:projections:DISU backbone_app:dead_letters:DISU backbone_app:projection_rows:DISU
		backbone_reader:leases:S backbone_reader:nodes:S backbone_reader:projections:S backbone_reader:dead_letters:S
		backbone_app:webhook_endpoints:DISU backbone_reader:webhook_endpoints:S backbone_app:publisher_cursors:ISU backbone_reader:publisher_cursors:S backbone_outbox_reader:schema:U backbone_outbox_reader:outbox:S
		backbone_app:subscriptions:DISU backbone_app:subscription_consumers:DISU backbone_app:subscription_cursors:DISU backbone_app:subscription_messages:DISU backbone_app:subscription_parked:DISU backbone_app:subscription_tenants:ISU backbone_app:subscription_decisions:S
		backbone_reader:subscriptions:S backbone_reader:subscription_cursors:S backbone_reader:subscription_messages:S backbone_reader:subscription_parked:S backbone_reader:subscription_decisions:S
		backbone_app:access_log:S backbone_app:access_log.partition_id:I backbone_app:access_log.value_count:I backbone_app:access_log.id:I backbone_app:access_log.person_id:I
		backbone_app:access_log.principal_id:I backbone_app:access_log.kind:I backbone_app:access_log.operation:I backbone_app:access_log.legal_entity:I backbone_app:access_log.subject_id:I
		backbone_app:access_log.class:I backbone_app:access_log.reason:I backbone_app:access_log.request_id:I backbone_app:access_log.grant_id:I backbone_reader:access_log:S
		backbone_app:blind_index:DIS backbone_app:blind_index_positions:ISU
		backbone_app:paper_contents:S backbone_app:paper_contents.partition_id:I backbone_app:paper_contents.sha256:I backbone_app:paper_contents.paper_id:I
		backbone_app:paper_contents.sealed:I backbone_reader:paper_contents:S backbone_app:sweep_papers():E
		backbone_app:settle_access_log():E backbone_app:delete_accesses():E
		backbone_sealer:event_keys:S backbone_sealer:events:S backbone_sealer:partition_heads:S backbone_sealer:schema:U backbone_sealer:stream_versions:S
		backbone_sealer:log_ranges:IS backbone_sealer:log_tiles:IS backbone_sealer:tile_root():E backbone_sealer:entry_hashes():E backbone_sealer:range_hashes():E backbone_sealer:extend_global_log():E backbone_sealer:log_checkpoints:IS backbone_sealer:record_checkpoint():E
		backbone_app:log_ranges:S backbone_app:log_tiles:S backbone_app:entry_hashes():E backbone_app:range_hashes():E backbone_app:extend_global_log():E backbone_app:log_checkpoints:S backbone_app:record_checkpoint():E
		backbone_reader:log_checkpoints:S backbone_reader:log_ranges:S backbone_reader:log_tiles:S backbone_reader:entry_hashes():E backbone_reader:range_hashes():E
	`), pgtest.Joined(got))
	require.Empty(t, pgtest.Column(t, conn, `
		SELECT rolname FROM pg_roles WHERE rolname LIKE 'backbone%'
		  AND (rolsuper OR rolbypassrls OR rolcreatedb OR rolcreaterole OR rolreplication
		       OR rolcanlogin AND rolname NOT IN ('backbone_owner', 'backbone_app', 'backbone_reader', 'backbone_eraser'))`), "roles with too many rights")
	// The owner's migrations give functions to backbone_redactor and backbone_sealer; no other role is
	// a member of another.
	require.Equal(t, []string{"backbone_owner in backbone_archiver", "backbone_owner in backbone_redactor", "backbone_owner in backbone_sealer"}, pgtest.Column(t, conn, `
		SELECT m.rolname || ' in ' || r.rolname FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member JOIN pg_roles r ON r.oid = a.roleid
		WHERE m.rolname LIKE 'backbone%' OR r.rolname LIKE 'backbone%' ORDER BY 1`), "memberships")
	require.Equal(t, []string{"archive_payloads backbone_archiver", "await_archiving backbone_archiver", "extend_global_log backbone_sealer", "record_checkpoint backbone_sealer",
		"redact_payload backbone_redactor", "replace_states backbone_archiver", "restore_payloads backbone_archiver"}, pgtest.Column(t, conn, `
		SELECT p.proname || ' ' || pg_get_userbyid(p.proowner) FROM pg_proc p
		WHERE p.pronamespace = 'backbone'::regnamespace AND pg_get_userbyid(p.proowner) <> 'backbone_owner' ORDER BY 1`), "functions of another owner")
}

func TestCatalog_LogRefusesChanges(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	_, err := s.Appender.Append(t.Context(), pgtest.Invoice(p, 1))
	require.NoError(t, err)
	// The default partition is to hold a row too.
	other := pgtest.Open(t, dsn, pgtest.WithoutPhysicalPartitions)
	le, err := other.Directory.CreateLegalEntity(t.Context(), pgtest.LegalEntity("DEFAULT"))
	require.NoError(t, err)
	_, err = other.Appender.Append(t.Context(), pgtest.Invoice(le.Partition, 1))
	require.NoError(t, err)

	const refused = "42501" // insufficient_privilege, by grant or by trigger
	superuser, app := pgtest.Connect(t, dsn), pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	for _, attack := range pgtest.Attacks(p) {
		_, err := superuser.Exec(t.Context(), attack)
		require.Equal(t, refused, pgtest.SQLState(err), "superuser: %s", attack)
		_, err = app.Exec(t.Context(), attack)
		require.Equal(t, refused, pgtest.SQLState(err), "app: %s", attack)
	}
	_, err = superuser.Exec(t.Context(), "UPDATE backbone.partition_heads SET partition_id = partition_id")
	require.Equal(t, refused, pgtest.SQLState(err))
	_, err = s.Registry.RegisterEventType(t.Context(), eventtype.Registration{
		Type: "crm.lead.won", SchemaVersion: 1, Module: "crm", DataSchema: []byte(`{"type":"object"}`), RetentionClass: eventtype.Standard, RegisteredBy: "p-1",
	})
	require.NoError(t, err) // the table holds a row
	for _, attack := range []string{
		"UPDATE backbone.event_type_registry SET type = type", "DELETE FROM backbone.event_type_registry", "TRUNCATE backbone.event_type_registry",
		"INSERT INTO backbone.event_type_history DEFAULT VALUES", "TRUNCATE backbone.event_type_history", "UPDATE backbone.event_type_generation SET last_change = 1",
	} {
		_, err := superuser.Exec(t.Context(), attack)
		require.Equal(t, refused, pgtest.SQLState(err), attack)
	}

	more := append(pgtest.Attacks(p),
		"UPDATE backbone.partition_heads SET genesis = genesis", "DELETE FROM backbone.partition_heads", "INSERT INTO backbone.partition_heads VALUES (1, '')",
		"INSERT INTO backbone.event_payloads DEFAULT VALUES", "INSERT INTO backbone.event_keys DEFAULT VALUES", "INSERT INTO backbone.business_keys DEFAULT VALUES",
		"INSERT INTO backbone.event_pii_subjects DEFAULT VALUES", "INSERT INTO backbone.intent_pii_subjects DEFAULT VALUES",
		"INSERT INTO backbone.stream_versions DEFAULT VALUES", "UPDATE backbone.stream_versions SET version = version + 1", "UPDATE backbone.stream_versions SET metadata = NULL",
		"INSERT INTO backbone.number_series DEFAULT VALUES", "UPDATE backbone.number_series SET next_number = 1",
		"INSERT INTO backbone.intents DEFAULT VALUES", "UPDATE backbone.intents SET status = 'executed'", "DELETE FROM backbone.stream_versions", "DELETE FROM backbone.number_series",
		"UPDATE backbone.event_keys SET type_no = 0", "DELETE FROM backbone.event_keys", "UPDATE backbone.business_keys SET document = ''",
		"DELETE FROM backbone.business_keys", "DELETE FROM backbone.intents", "UPDATE backbone.installation SET log_name = ''",
		"UPDATE backbone.event_type_registry SET is_active = false", "DELETE FROM backbone.event_type_registry",
		"INSERT INTO backbone.subscription_decisions DEFAULT VALUES", "UPDATE backbone.subscription_decisions SET actor = ''", "DELETE FROM backbone.subscription_decisions",
		"UPDATE backbone.event_type_history SET actor = ''", "DELETE FROM backbone.event_type_history",
		"INSERT INTO backbone.legal_entities DEFAULT VALUES", "DELETE FROM backbone.legal_entities", "DELETE FROM backbone.principals", "UPDATE backbone.principals SET roles = '{admin}'", "INSERT INTO backbone.principals DEFAULT VALUES",
		"ALTER TABLE backbone.events ADD COLUMN x int", "ALTER TABLE backbone.events DISABLE TRIGGER ALL", "DROP TABLE backbone.events",
		fmt.Sprintf("ALTER TABLE backbone.events DETACH PARTITION backbone.events_p%d", p),
		"DROP TRIGGER partition_heads_never_change ON backbone.partition_heads", "CREATE RULE r AS ON INSERT TO backbone.events DO INSTEAD NOTHING",
		"CREATE TABLE backbone.x (a int)", "SET session_replication_role = replica", "COPY backbone.events TO '/tmp/x'", "SELECT lo_import('/etc/passwd')",
		"UPDATE backbone.access_log SET person_id = ''", "DELETE FROM backbone.access_log", "INSERT INTO backbone.access_log (at) VALUES (now())",
		fmt.Sprintf("SELECT * FROM backbone.events_p%d", p))
	_, err = superuser.Exec(t.Context(), `DROP TRIGGER events_append_only ON backbone.events; DROP TRIGGER payloads_append_only ON backbone.event_payloads;
		DROP TRIGGER events_no_truncate ON backbone.events; DROP TRIGGER payloads_no_truncate ON backbone.event_payloads`)
	require.NoError(t, err)
	for _, attack := range more {
		_, err := app.Exec(context.Background(), attack)
		require.Equal(t, refused, pgtest.SQLState(err), "app without triggers: %s", attack)
	}
	require.Equal(t, 1, pgtest.RequireVerified(t, s, p))
}

// TestWriteEventRows_Attacks calls the function that writes the rows of events with rows that no
// new event supports, with the application's credentials.
func TestWriteEventRows_Attacks(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 2)
	for _, partition := range p {
		_, err := s.Appender.Append(t.Context(), pgtest.Invoice(partition, 2))
		require.NoError(t, err)
	}
	app := pgtest.Connect(t, pgtest.As("backbone_app", dsn))
	names := pgtest.Column(t, app, "SELECT unnest(proargnames) FROM pg_proc WHERE proname = 'write_event_rows'")
	// call is a call with some arguments; all others are empty.
	call := func(arguments ...string) string {
		given := map[string]string{}
		for _, a := range arguments {
			name, _, _ := strings.Cut(a, " =>")
			given[name] = a
		}
		all := make([]string, len(names))
		for i, name := range names {
			if all[i] = given[name]; all[i] == "" {
				all[i] = name + " => '{}'"
			}
		}
		return "SELECT backbone.write_event_rows(" + strings.Join(all, ", ") + ")"
	}
	own, other := fmt.Sprintf("'{%d}'", p[0]), fmt.Sprintf("'{%d}'", p[1])
	// newEvent inserts the third event of the partition, of a stream of its own.
	newEvent := fmt.Sprintf(`INSERT INTO backbone.events (partition_id, sequence, id, type, schema_version, occurred_at, recorded_at, effective_date, tenant_id, legal_entity,
		actor_type, actor_id, correlation_id, stream_type, stream_id, stream_version, intent_id, payload_hash, checksum)
		VALUES (%d, 3, gen_random_uuid(), 'crm.note', 1, now(), now(), now(), 'demo', 'USMF', 'human', 'u', 'c', 'note', 'N-1', 1, '00000000-0000-0000-0000-000000000001', sha256(''), sha256(''))`, p[0])
	third := func(more ...string) string {
		return call(append([]string{"partitions => " + own, "firsts => '{3}'", "lasts => '{3}'",
			"payload_partitions => " + own, "payload_sequences => '{3}'", `payload_salts => '{x}'`, `payload_texts => '{"{}"}'`}, more...)...)
	}
	const theirs, others = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
	forgedIntent := func(id string, last int) (arguments []string) {
		values := map[string]string{
			"partitions": own, "ids": "'{" + id + "}'", "firsts": "'{1}'", "counts": "'{1}'", "lasts": fmt.Sprintf("'{%d}'", last), "revisions": "'{1}'",
			"created": "'{2026-01-01}'", "updated": "'{2026-01-01}'", "entities": "'{USMF}'", "types": "'{crm.note}'", "statuses": "'{executed}'",
			"actor_types": "'{human}'", "actor_ids": "'{u}'",
		}
		for _, name := range names {
			if column, ok := strings.CutPrefix(name, "intent_"); ok {
				if values[column] == "" {
					values[column] = "'{NULL}'"
				}
				arguments = append(arguments, name+" => "+values[column])
			}
		}
		return arguments
	}
	for name, c := range map[string]struct {
		before, attack, sqlstate string
	}{
		"nothing but rows":                {"", call("key_partitions => "+own, "key_texts => '{k}'", "key_sequences => '{1}'", "key_types => '{1}'"), "23514"},
		"payload without an event":        {"", third(), "23514"},
		"rows of an earlier event":        {"", strings.ReplaceAll(third(), "'{3}'", "'{2}'"), "23505"},
		"event without its payload":       {newEvent, strings.ReplaceAll(third(), "payload_sequences => '{3}'", "payload_sequences => '{}'"), "23514"},
		"no event among the rows":         {newEvent, strings.ReplaceAll(third(), "lasts => '{3}'", "lasts => '{4}'"), "23514"},
		"key of an earlier event":         {newEvent, third("key_partitions => "+own, "key_texts => '{k}'", "key_sequences => '{2}'", "key_types => '{1}'"), "23514"},
		"key in another partition":        {newEvent, third("key_partitions => "+other, "key_texts => '{k}'", "key_sequences => '{3}'", "key_types => '{1}'"), "23514"},
		"business key of an earlier":      {newEvent, third("business_partitions => "+own, "business_types => '{t}'", "business_texts => '{k}'", "business_sequences => '{1}'", "business_events => '{"+theirs+"}'", "business_documents => '{d}'"), "23514"},
		"stream that does not change":     {newEvent, third("changed_partitions => "+own, "changed_types => '{note}'", "changed_ids => '{N-2}'", `changed_metadata => '{"{}"}'`), "23514"},
		"series of another partition":     {newEvent, third("series_partitions => "+other, "series_names => '{s}'", "series_numbers => '{9}'"), "23514"},
		"series without an event":         {"", call("partitions => "+own, "series_partitions => "+own, "series_names => '{s}'", "series_numbers => '{9}'"), "23514"},
		"series of an empty range":        {"", call("partitions => "+own, "firsts => '{4}'", "lasts => '{3}'", "series_partitions => "+own, "series_names => '{s}'", "series_numbers => '{9}'"), "23514"},
		"range backwards":                 {newEvent, strings.ReplaceAll(third(), "firsts => '{3}'", "firsts => '{5}'"), "23514"},
		"series of a range made up":       {"", call("partitions => "+own, "firsts => '{3,1}'", "lasts => '{3,-1}'", "series_partitions => "+own, "series_names => '{s}'", "series_numbers => '{9}'"), "23514"},
		"business key of a range made up": {"", call("partitions => "+own, "firsts => '{3,1}'", "lasts => '{3,-1}'", "business_partitions => "+own, "business_types => '{t}'", "business_texts => '{k}'", "business_sequences => '{3}'", "business_events => '{"+theirs+"}'", "business_documents => '{d}'"), "23514"},
		"key of a range made up":          {"", call("partitions => '{"+fmt.Sprint(p[0])+","+fmt.Sprint(p[1])+"}'", "firsts => '{3,2}'", "lasts => '{3,0}'", "key_partitions => "+own, "key_texts => '{k}'", "key_sequences => '{3}'", "key_types => '{1}'"), "23514"},
		"range without a partition":       {newEvent, strings.ReplaceAll(third(), "firsts => '{3}', lasts => '{3}'", "firsts => '{3,2}', lasts => '{3,2}'"), "23514"},
		"range without an end":            {newEvent, strings.ReplaceAll(third(), "lasts => '{3}'", "lasts => NULL"), "23514"},
		"person of an earlier event":      {newEvent, third("person_partitions => "+own, "person_subjects => '{employee:E-1}'", "person_sequences => '{1}'", "person_classes => '{0}'", "person_paths => '{\"{}\"}'"), "23514"},
		"person of another intent":        {newEvent, third("request_partitions => "+own, "request_subjects => '{employee:E-1}'", "request_intents => '{"+theirs+"}'", "request_classes => '{0}'", "request_paths => '{\"{}\"}'"), "23514"},
		"intent of another event":         {newEvent, third(forgedIntent(others, 3)...), "23514"},
		"event before the log":            {strings.Replace(newEvent, ", 3, gen", ", -1, gen", 1), strings.ReplaceAll(third(), "'{3}'", "'{-1}'"), "23514"},
		"event after a gap":               {strings.Replace(newEvent, ", 3, gen", ", 9, gen", 1), strings.ReplaceAll(third(), "'{3}'", "'{9}'"), "23514"},
		"request from before":             {"", "INSERT INTO backbone.idempotency_keys (partition_id, key, fingerprint, intent_id, first_sequence, event_count, expires_at, bound) VALUES (1, 'k', sha256(''), NULL, 1, 1, now(), false)", "23514"},
		"intent of an earlier event":      {newEvent, third(forgedIntent(theirs, 2)...), "23514"},
	} {
		t.Run(name, func(t *testing.T) {
			tx, err := app.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }()
			if c.before != "" {
				_, err = tx.Exec(t.Context(), c.before)
				require.NoError(t, err)
			}
			_, err = tx.Exec(t.Context(), c.attack)
			require.Equal(t, c.sqlstate, pgtest.SQLState(err), "%s: %v", c.attack, err)
		})
	}
	// An event of its own changes what it says and nothing else: the stream and the intent that it
	// names. It stays in the log, where a verification finds it.
	tx, err := app.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), newEvent)
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), third(forgedIntent(theirs, 3)...))
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), third())
	require.Equal(t, "23505", pgtest.SQLState(err), "an event gets its rows once")
}
