-- Calls of appending and reading nodes. Each call has names and types of its columns:
-- sqlc does not know those of a function that returns a table.

-- name: ReadSubjectKeys :many
SELECT r.ordinal::int AS ordinal, r.key_ref::uuid AS key_ref, r.state::text AS state, r.active_version::int AS active_version,
       r.version::int AS version, r.kek_epoch::int AS kek_epoch, r.kms_key_id::text AS kms_key_id, r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.read(@ordinals::int[], @partition_ids::int[], @subject_ids::text[], @classes::smallint[])
    AS r (ordinal, key_ref, state, active_version, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: MintSubjectKey :many
SELECT r.ordinal::int AS ordinal, r.key_ref::uuid AS key_ref, r.state::text AS state, r.active_version::int AS active_version,
       r.version::int AS version, r.kek_epoch::int AS kek_epoch, r.kms_key_id::text AS kms_key_id, r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.mint(@tenant_id::text, @partition_id::int, @subject_id::text, @class::smallint, @key_ref::uuid, @new_version::int, @new_kek_epoch::int, @new_wrapped::bytea, @new_fingerprint::bytea)
    AS r (ordinal, key_ref, state, active_version, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: GetActiveKEK :one
SELECT r.epoch::int AS epoch, r.kms_key_id::text AS kms_key_id
FROM keystore.active_kek(@tenant_id::text) AS r (epoch, kms_key_id);

-- name: GetTenantSecret :one
SELECT r.secret_ref::uuid AS secret_ref, r.version::int AS version, r.kek_epoch::int AS kek_epoch, r.kms_key_id::text AS kms_key_id,
       r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.secret(@tenant_id::text, @purpose::text) AS r (secret_ref, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: SaveTenantSecret :one
SELECT r.secret_ref::uuid AS secret_ref, r.version::int AS version, r.kek_epoch::int AS kek_epoch, r.kms_key_id::text AS kms_key_id,
       r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.save_secret(@tenant_id::text, @purpose::text, @new_secret_ref::uuid, @new_version::int, @new_kek_epoch::int, @new_wrapped::bytea, @new_fingerprint::bytea)
    AS r (secret_ref, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: ReportNode :one
SELECT keystore.report_node(@node_id::text, @forgotten::bigint)::bigint AS generation;
