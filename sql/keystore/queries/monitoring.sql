-- name: CountOpenErasures :one
SELECT count(*)::bigint AS open, count(*) FILTER (WHERE e.attempts >= 5)::bigint AS stuck, coalesce(min(e.due_on), 'infinity')::date AS due_on
FROM keystore.erasures('', @states::text[], 10000) AS e;
