-- Calls of the erasure of persons, as the eraser.

-- name: RequestErasure :exec
SELECT keystore.request_erasure(@request_id::uuid, @tenant_id::text, @subject_id::text, @partitions::int[], @all_entities::boolean,
    @basis::text, @reason::text, @requester::text, @requested_at::timestamptz, @due_on::date);

-- name: GetErasure :one
SELECT * FROM keystore.erasure(@tenant_id::text, @request_id::uuid);

-- name: ListErasures :many
SELECT * FROM keystore.erasures(@tenant_id::text, @states::text[], @page_size::int);

-- name: ListErasuresToFollow :many
SELECT * FROM keystore.erasures_to_follow(@on_day::date, @after_request_id::uuid, @page_size::int);

-- name: ListErasureSteps :many
SELECT r.state::text AS state, r.done_at::timestamptz AS done_at, r.attempts::int AS attempts
FROM keystore.erasure_steps(@tenant_id::text, @request_id::uuid) AS r (state, done_at, attempts);

-- name: MoveErasure :one
SELECT * FROM keystore.move_erasure(@request_id::uuid, @from_revision::int, @new_state::text, @partitions::int[], sqlc.narg('scope')::bytea, sqlc.narg('preview')::json,
    sqlc.narg('ended_by')::text, sqlc.narg('end_reason')::text, sqlc.narg('classes')::json, sqlc.narg('evicted_at')::timestamptz, sqlc.narg('completed_at')::timestamptz, sqlc.narg('results')::json);

-- name: NoteErasureFailure :one
SELECT keystore.note_erasure_failure(@request_id::uuid, @code::text)::int AS attempts;

-- name: ApproveErasure :one
SELECT * FROM keystore.approve_erasure(@request_id::uuid, @approver::text, @scope::bytea, @approved_at::timestamptz);

-- name: FenceErasure :one
SELECT * FROM keystore.fence_erasure(@request_id::uuid, @from_revision::int, @erased::smallint[], sqlc.narg('classes')::json);

-- name: RefuseErasure :one
SELECT * FROM keystore.refuse_erasure(@request_id::uuid, @from_revision::int, sqlc.narg('person')::text, sqlc.narg('reason')::text, sqlc.narg('classes')::json);

-- name: DestroyErasure :one
SELECT r.number::bigint AS number, r.destroyed_at::timestamptz AS destroyed_at, r.generation::bigint AS generation, r.keys::json AS keys,
       r.previous_hash::bytea AS previous_hash, r.previous_known::boolean AS previous_known
FROM keystore.destroy_erasure(@request_id::uuid) AS r (number, destroyed_at, generation, keys, previous_hash, previous_known);

-- name: SaveReceipt :exec
SELECT keystore.save_receipt(@number::bigint, @note::bytea, @exported::boolean);

-- name: ListReceipts :many
SELECT r.number::bigint AS number, r.request_id::uuid AS request_id, r.tenant_id::text AS tenant_id, r.note::bytea AS note, r.exported::boolean AS exported
FROM keystore.receipts(@from_number::bigint, @page_size::int) AS r (number, request_id, tenant_id, note, exported);

-- name: ListDestroyedFingerprints :many
SELECT r.number::bigint AS number, r.fingerprints::text[] AS fingerprints
FROM keystore.destroyed_fingerprints(@from_number::bigint, @page_size::int) AS r (number, fingerprints);

-- name: ReplayErasure :one
SELECT keystore.replay_erasure(@number::bigint, @request_id::uuid, @tenant_id::text, @note::bytea, @exported::boolean,
    @partition_ids::int[], @subject_ids::text[], @classes::smallint[], @fingerprints::text[])::text AS refused;

-- name: CountNodesBehind :one
SELECT keystore.nodes_behind(@generation::bigint, @since::timestamptz)::bigint AS behind;

-- name: PlaceHold :exec
SELECT keystore.place_hold(@hold_id::uuid, @tenant_id::text, @subject_id::text, @partition_id::int, @reason::text, @placed_by::text, @placed_at::timestamptz, sqlc.narg('until')::date);

-- name: ReleaseHold :one
SELECT * FROM keystore.release_hold(@tenant_id::text, @hold_id::uuid, @person::text, @released_at::timestamptz);

-- name: ListHolds :many
SELECT * FROM keystore.holds(@tenant_id::text, @subject_id::text, @on_day::date);
