-- What verification compares with the administrative logs, as the eraser.

-- name: ListAllHolds :many
SELECT * FROM keystore.all_holds(@tenant_id::text);

-- name: ListErasureJournal :many
SELECT r.request_id::uuid AS request_id, r.revision::int AS revision, coalesce(r.state, '')::text AS state, coalesce(r.person, '')::text AS person,
       coalesce(r.requester_person, '')::text AS requester_person, coalesce(r.approver_person, '')::text AS approver_person, r.scope::bytea AS scope, coalesce(r.stored_at, 'epoch')::timestamptz AS stored_at
FROM keystore.erasure_journal(@tenant_id::text) AS r (request_id, revision, state, person, requester_person, approver_person, scope, stored_at);

-- name: ListContradictions :many
SELECT r.problem::text AS problem, r.about::text AS about
FROM keystore.contradictions(@tenant_id::text, @partitions::int[]) AS r (problem, about);
