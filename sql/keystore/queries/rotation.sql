-- Calls of the rotation of KEKs, as the eraser.

-- name: ListKEKs :many
SELECT * FROM keystore.keks(@tenant_id::text);

-- name: AddKEK :exec
SELECT keystore.add_kek(@tenant_id::text, @epoch::int, @kms_key_id::text);

-- name: ActivateKEK :exec
SELECT keystore.activate_kek(@tenant_id::text, @epoch::int);

-- name: ListWrappedWith :many
SELECT r.partition_id::int AS partition_id, r.reference::uuid AS reference, r.version::int AS version, r.kek_epoch::int AS kek_epoch,
       r.kms_key_id::text AS kms_key_id, r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.wrapped_with(@tenant_id::text, @epoch::int, @page_size::int)
    AS r (partition_id, reference, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: SampleWrappedWith :many
SELECT r.partition_id::int AS partition_id, r.reference::uuid AS reference, r.version::int AS version, r.kek_epoch::int AS kek_epoch,
       r.kms_key_id::text AS kms_key_id, r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.sample_wrapped_with(@tenant_id::text, @epoch::int, @page_size::int)
    AS r (partition_id, reference, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: CountWrappedWith :one
SELECT keystore.count_wrapped_with(@tenant_id::text, @epoch::int)::bigint AS wrapped;

-- name: SaveRewrapped :one
SELECT keystore.save_rewrapped(@tenant_id::text, @from_epoch::int, @to_epoch::int, @refs::uuid[], @versions::int[], @wrappings::bytea[])::bigint AS changed;

-- name: CloseKEK :exec
SELECT keystore.close_kek(@tenant_id::text, @epoch::int, @new_state::text);

-- name: OpenScratch :exec
SELECT keystore.open_scratch();

-- name: LoadScratch :exec
SELECT keystore.load_scratch(@lines::text[]);

-- name: ListScratchKEKs :many
SELECT * FROM keystore.scratch_keks_list();

-- name: SampleScratch :many
SELECT r.total::bigint AS total, r.partition_id::int AS partition_id, r.reference::uuid AS reference, r.version::int AS version, r.kek_epoch::int AS kek_epoch,
       r.kms_key_id::text AS kms_key_id, r.wrapped::bytea AS wrapped, r.fingerprint::bytea AS fingerprint
FROM keystore.sample_scratch(@tenant_id::text, @epoch::int, @page_size::int)
    AS r (total, partition_id, reference, version, kek_epoch, kms_key_id, wrapped, fingerprint);

-- name: RestoreScratch :one
SELECT keystore.restore_scratch(@dead_tenants::text[], @dead_epochs::int[])::bigint AS taken;
