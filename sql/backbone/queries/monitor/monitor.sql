-- Queries of the monitor. Each reads the catalog, or probes the log by primary key a
-- bounded number of times: the cost of none depends on the number of events. Those
-- about sessions, tables and indexes work in any database, also in that of a key store.
-- No result contains a payload, the id of a document, or a person.

-- name: HasLog :one
SELECT (to_regclass('backbone.events') IS NOT NULL)::bool AS has_log;

-- name: ListSequencesAt :many
-- The last event recorded before each of several instants, by bisection as in GetSequenceAt.
WITH RECURSIVE bisection (instant, low, high) AS (
    SELECT i.instant, 0::bigint, @head::bigint FROM (SELECT unnest(@instants::timestamptz[]) AS instant) i
    UNION ALL
    SELECT b.instant,
           CASE WHEN m.before THEN m.middle ELSE b.low END,
           CASE WHEN m.before THEN b.high ELSE m.middle - 1 END
    FROM bisection b
    CROSS JOIN LATERAL (
        SELECT e.sequence AS middle, e.recorded_at < b.instant AS before
        FROM backbone.events e
        WHERE e.partition_id = @partition_id AND e.sequence = (b.low + b.high + 1) / 2
        LIMIT 1
    ) m
    WHERE b.low < b.high
)
SELECT b.instant::timestamptz AS instant, b.low::bigint AS sequence
FROM bisection b
WHERE b.low >= b.high
ORDER BY b.instant;

-- name: CountCommits :many
-- The events that one transaction appended to a partition share recorded_at, to the
-- microsecond. It reads at most page_size events of each range.
SELECT r.after::bigint AS after, count(x.recorded_at)::bigint AS events, count(DISTINCT x.recorded_at)::bigint AS commits
FROM (SELECT unnest(@afters::bigint[]) AS after, unnest(@untils::bigint[]) AS until) r
CROSS JOIN LATERAL (
    SELECT e.recorded_at FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.sequence > r.after AND e.sequence <= r.until
    ORDER BY e.sequence
    LIMIT @page_size::int
) x
GROUP BY r.after
ORDER BY r.after;

-- name: ListLockWaits :many
-- A session that waits for a row holds, or waits for, its tuple lock, which names the row.
WITH held AS MATERIALIZED (
    SELECT l.pid, l.locktype, l.database, l.relation, l.page, l.tuple, l.mode, l.granted, l.waitstart FROM pg_catalog.pg_locks l
), waits AS (
    SELECT DISTINCT ON (w.pid) w.* FROM held w
    WHERE NOT w.granted
      AND w.pid IN (SELECT a.pid FROM pg_catalog.pg_stat_activity a WHERE a.datname = current_database())
    ORDER BY w.pid, w.waitstart
)
SELECT w.pid::int AS pid, pg_blocking_pids(w.pid)::int[] AS blocked_by, w.locktype::text AS lock_type, w.mode::text AS mode,
       coalesce(extract(epoch FROM clock_timestamp() - w.waitstart), 0)::float8 AS seconds,
       coalesce((SELECT n.nspname || '.' || c.relname
                 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                 WHERE c.oid = coalesce(t.relation, w.relation)), '')::text AS relation,
       coalesce(t.page, 0)::int AS page, coalesce(t.tuple, 0)::int AS tuple
FROM waits w
LEFT JOIN LATERAL (
    SELECT h.relation, h.page, h.tuple FROM held h WHERE h.pid = w.pid AND h.locktype = 'tuple' ORDER BY h.relation LIMIT 1
) t ON true
ORDER BY w.waitstart NULLS LAST, w.pid
LIMIT 100;

-- name: GetHeadAt :one
-- The legal entity whose head row has a given position (ctid) in its table.
SELECT e.code, e.tenant_id
FROM backbone.partition_heads h JOIN backbone.legal_entities e ON e.partition_id = h.partition_id
WHERE h.ctid = ('(' || @page::int || ',' || @tuple::int || ')')::tid;

-- name: ListSessions :many
-- PostgreSQL hides the activity of other roles' sessions from roles without
-- pg_read_all_stats, but not their locks. Snapshots of vacuum hold no row back.
SELECT a.pid::int AS pid, coalesce(a.usename, '')::text AS role, coalesce(a.application_name, '')::text AS application,
       coalesce(a.state, '')::text AS state,
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::float8 AS transaction_seconds,
       coalesce(extract(epoch FROM clock_timestamp() - a.state_change), 0)::float8 AS state_seconds,
       coalesce(age(a.backend_xmin), -1)::int AS snapshot_age,
       (NOT pg_has_role(a.usesysid, 'USAGE') AND NOT pg_has_role('pg_read_all_stats', 'USAGE'))::bool AS hidden
FROM pg_catalog.pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> pg_backend_pid()
  AND coalesce(a.backend_type, '') NOT IN ('autovacuum worker', 'parallel worker')
ORDER BY a.xact_start, a.pid
LIMIT 1000;

-- name: ListHorizonHolders :many
-- Replication slots and prepared transactions that keep vacuum from removing dead rows.
SELECT h.kind::text AS kind, h.name::text AS name, h.snapshot_age::int AS snapshot_age, h.seconds::float8 AS seconds
FROM (
    SELECT 'prepared transaction' AS kind, p.gid AS name, age(p.transaction) AS snapshot_age,
           extract(epoch FROM clock_timestamp() - p.prepared) AS seconds
    FROM pg_catalog.pg_prepared_xacts p WHERE p.database = current_database()
    UNION ALL
    SELECT 'replication slot', s.slot_name::text, greatest(age(s.xmin), age(s.catalog_xmin)), 0
    FROM pg_catalog.pg_replication_slots s WHERE s.xmin IS NOT NULL OR s.catalog_xmin IS NOT NULL
) h
ORDER BY 3 DESC
LIMIT 100;

-- name: GetDatabaseCounters :one
SELECT d.deadlocks::bigint AS deadlocks, d.xact_commit::bigint AS committed, d.xact_rollback::bigint AS rolled_back,
       d.temp_bytes::bigint AS temp_bytes, coalesce(d.stats_reset, to_timestamp(0))::timestamptz AS since,
       pg_database_size(current_database())::bigint AS bytes,
       (SELECT age(x.datfrozenxid) FROM pg_catalog.pg_database x WHERE x.datname = current_database())::int AS frozen_age
FROM pg_catalog.pg_stat_database d
WHERE d.datname = current_database();

-- name: SampleEvents :many
-- Properties of the given events, for estimates. Sizes are those on disk.
SELECT x.sequence, x.type, x.stream_type, x.stream_id, coalesce(p.size, 0)::int AS payload_bytes
FROM (SELECT unnest(@sequences::bigint[]) AS wanted) k
CROSS JOIN LATERAL (
    SELECT e.sequence, e.type, e.stream_type, e.stream_id FROM backbone.events e
    WHERE e.partition_id = @partition_id AND e.sequence >= k.wanted
    ORDER BY e.sequence
    LIMIT 1
) x
LEFT JOIN LATERAL (
    SELECT pg_column_size(y.payload) AS size FROM backbone.event_payloads y
    WHERE y.partition_id = @partition_id AND y.sequence = x.sequence
    LIMIT 1
) p ON true;

-- name: GetStreamSize :one
SELECT s.version, s.first_sequence FROM backbone.stream_versions s
WHERE s.partition_id = @partition_id AND s.stream_type = @stream_type AND s.stream_id = @stream_id;

-- name: ListKeyKinds :many
-- From the planner's statistics, so only after an ANALYZE. It cuts off the part of a key
-- that identifies a document or a person: an entity's type or a tag's name is left.
SELECT (CASE split_part(v.key, ':', 1)
            WHEN 'entity' THEN 'entity ' || split_part(v.key, ':', 2)
            WHEN 'tag' THEN CASE WHEN v.key LIKE 'tag:%:%' THEN 'tag ' || split_part(v.key, ':', 2) ELSE 'tag' END
            ELSE 'other' END)::text AS kind,
       count(*)::int AS keys,
       (max(v.share) * max(c.reltuples))::bigint AS hottest,
       (sum(v.share) * max(c.reltuples))::bigint AS references_estimated
FROM pg_catalog.pg_stats s
CROSS JOIN LATERAL (SELECT unnest(s.most_common_vals::text::text[]) AS key, unnest(s.most_common_freqs)::float8 AS share) v
CROSS JOIN (SELECT greatest(k.reltuples, 0)::float8 AS reltuples FROM pg_catalog.pg_class k WHERE k.oid = to_regclass('backbone.event_keys')) c
WHERE s.schemaname = 'backbone' AND s.tablename = 'event_keys' AND s.attname = 'key'
GROUP BY 1
ORDER BY 3 DESC, 1
LIMIT 20;

-- name: ListTableSizes :many
-- Partitioned tables with all their partitions. Rows are the planner's estimate, -1
-- when no partition was ever analyzed.
SELECT (n.nspname || '.' || r.relname)::text AS name, count(*)::int AS parts,
       coalesce(sum(c.reltuples) FILTER (WHERE c.reltuples >= 0), -1)::bigint AS rows_estimated,
       sum(pg_table_size(c.oid))::bigint AS table_bytes, sum(pg_indexes_size(c.oid))::bigint AS index_bytes
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_class r ON r.oid = coalesce(pg_partition_root(c.oid), c.oid)
JOIN pg_catalog.pg_namespace n ON n.oid = r.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\_%' AND n.nspname <> 'information_schema'
GROUP BY 1
ORDER BY sum(pg_table_size(c.oid)) + sum(pg_indexes_size(c.oid)) DESC, 1
LIMIT 200;

-- name: ListVacuumStates :many
-- Tables whose rows are rewritten or deleted, those with the most dead rows first.
SELECT (s.schemaname || '.' || s.relname)::text AS name, s.n_live_tup::bigint AS live, s.n_dead_tup::bigint AS dead,
       s.n_mod_since_analyze::bigint AS changed_since_analyze,
       coalesce(greatest(s.last_vacuum, s.last_autovacuum), to_timestamp(0))::timestamptz AS vacuumed_at,
       coalesce(greatest(s.last_analyze, s.last_autoanalyze), to_timestamp(0))::timestamptz AS analyzed_at
FROM pg_catalog.pg_stat_user_tables s
WHERE s.n_dead_tup > 1000
   OR s.schemaname = 'backbone' AND s.relname IN ('partition_heads', 'stream_versions', 'idempotency_keys', 'number_series', 'intents', 'projection_checkpoints')
ORDER BY s.n_dead_tup DESC, 1
LIMIT 50;

-- name: ListBrokenIndexes :many
-- An index of a partitioned table is invalid while one of its partitions lacks it.
SELECT (n.nspname || '.' || i.relname)::text AS name, (n.nspname || '.' || t.relname)::text AS table_name
FROM pg_catalog.pg_index x
JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid
JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace
WHERE NOT (x.indisvalid AND x.indisready) AND n.nspname NOT LIKE 'pg\_%'
ORDER BY 1
LIMIT 100;

-- name: ListPartitionTables :many
-- The tables of legal entities that have their own.
SELECT c.relname::text AS name, c.relispartition AS attached
FROM pg_catalog.pg_class c
WHERE c.relnamespace = to_regnamespace('backbone') AND c.relkind = 'r' AND c.relname ~ '^(events|event_payloads)_p[0-9]+$'
ORDER BY 1;

-- name: ListProjectionLags :many
-- For each checkpoint: the head of its partition, and when the oldest event after the
-- checkpoint was recorded. Role and state are those of the version in the register, empty
-- for a version that no server has registered.
SELECT c.projection, c.version, c.partition_id, c.status, c.sequence, c.updated_at,
       coalesce(r.role, '')::text AS role, coalesce(r.status, '')::text AS state,
       coalesce(h.sequence, 0)::bigint AS head,
       coalesce(w.recorded_at, to_timestamp(0))::timestamptz AS waiting_since
FROM backbone.projection_checkpoints c
LEFT JOIN backbone.projections r ON r.name = c.projection AND r.version = c.version
LEFT JOIN LATERAL (
    SELECT e.sequence FROM backbone.events e WHERE e.partition_id = c.partition_id ORDER BY e.sequence DESC LIMIT 1
) h ON true
LEFT JOIN LATERAL (
    SELECT e.recorded_at FROM backbone.events e
    WHERE e.partition_id = c.partition_id AND e.sequence > c.sequence
    ORDER BY e.sequence
    LIMIT 1
) w ON true
ORDER BY c.projection, c.version, c.partition_id;

-- name: GetWaitingIntents :one
-- At most page_size of each legal entity are counted.
SELECT count(w.created_at)::bigint AS waiting, coalesce(min(w.created_at), to_timestamp(0))::timestamptz AS oldest
FROM backbone.legal_entities e
CROSS JOIN LATERAL (
    SELECT i.created_at FROM backbone.intents i
    WHERE i.partition_id = e.partition_id AND i.status = 'pending_approval'
    ORDER BY i.created_at, i.id
    LIMIT @page_size::int
) w;

-- name: ListReservedTypes :many
-- Types that tenants registered, before this was refused, under prefixes of the product.
SELECT DISTINCT t.tenant_id, t.type
FROM backbone.event_type_registry t
WHERE t.tenant_id <> '' AND split_part(t.type, '.', 1) = ANY(@prefixes::text[])
ORDER BY 1, 2
LIMIT 100;

-- name: ListTenantTypes :many
-- The versions of tenants' event types that take events, as their logs, and the tables from before
-- these, have them.
WITH changes AS (
    SELECT t.tenant_id, t.type, t.schema_version, 0::bigint AS sequence, CASE WHEN t.is_active THEN 'registered' ELSE 'deprecated' END AS action, t.document::text AS document
    FROM backbone.event_type_registry t
    WHERE t.tenant_id <> ''
    UNION ALL
    SELECT l.tenant_id, p.payload #>> '{data,type}', (p.payload #>> '{data,schema_version}')::integer, e.sequence, split_part(e.type, '.', 3), p.payload #>> '{data,document}'
    FROM backbone.legal_entities l
    JOIN backbone.events e ON e.partition_id = l.partition_id AND e.type = ANY (ARRAY['backbone.event_type.proposed', 'backbone.event_type.registered',
        'backbone.event_type.amended', 'backbone.event_type.deprecated', 'backbone.event_type.reactivated'])
    JOIN backbone.event_payloads p ON p.partition_id = e.partition_id AND p.sequence = e.sequence
    WHERE l.code = '_ADMIN'
)
SELECT c.tenant_id, ((array_agg(c.document ORDER BY c.sequence DESC) FILTER (WHERE c.document IS NOT NULL))[1])::text AS document
FROM changes c
GROUP BY c.tenant_id, c.type, c.schema_version
HAVING (array_agg(c.action ORDER BY c.sequence DESC) FILTER (WHERE c.action IN ('registered', 'deprecated', 'reactivated')))[1] <> 'deprecated'
ORDER BY c.tenant_id, c.type, c.schema_version
LIMIT 1000;

-- name: ListInstalledPolicies :many
-- The policies that each tenant's log recorded last.
SELECT l.tenant_id, coalesce(p.payload #>> '{data,sha256}', '')::text AS sha256,
       coalesce(p.payload #>> '{data,release}', '')::text AS release, e.recorded_at
FROM backbone.legal_entities l
CROSS JOIN LATERAL (
    SELECT x.sequence, x.recorded_at FROM backbone.events x
    WHERE x.partition_id = l.partition_id AND x.type = 'backbone.policy.installed'
    ORDER BY x.sequence DESC
    LIMIT 1
) e
CROSS JOIN LATERAL (
    SELECT y.payload FROM backbone.event_payloads y
    WHERE y.partition_id = l.partition_id AND y.sequence = e.sequence
    LIMIT 1
) p
WHERE l.code = '_ADMIN'
ORDER BY l.tenant_id
LIMIT 1000;
