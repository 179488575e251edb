-- name: ExchangeRateInsert :exec
INSERT INTO gl.exchange_rates (partition_id, version, sequence, recorded_at, event_id, from_currency, to_currency, rate_type, rate_date, rate, actor_id, reason)
VALUES (@partition_id, @version, @sequence, @recorded_at, @event_id, @from_currency, @to_currency, @rate_type, @rate_date, cast(cast(@rate AS text) AS numeric), @actor_id, @reason)
ON CONFLICT DO NOTHING;

-- name: ExchangeRates :many
-- The rates of days up to as_of; with latest only the last one of each pair and type.
SELECT r.from_currency, r.to_currency, r.rate_type, r.rate_date, r.rate::text AS rate, r.recorded_at, r.actor_id, r.reason, r.event_id
FROM (
    SELECT DISTINCT ON (e.from_currency, e.to_currency, e.rate_type, e.rate_date)
        e.from_currency, e.to_currency, e.rate_type, e.rate_date, trim_scale(e.rate) AS rate, e.recorded_at, e.actor_id, e.reason, e.event_id,
        max(e.rate_date) OVER (PARTITION BY e.from_currency, e.to_currency, e.rate_type) AS last_date
    FROM gl.exchange_rates AS e
    WHERE e.partition_id = @partition_id AND e.version = @version AND e.sequence <= @known AND e.rate_date <= @as_of
        AND (@from_currency::text = '' OR e.from_currency = @from_currency::text)
        AND (@to_currency::text = '' OR e.to_currency = @to_currency::text)
        AND (@rate_type::text = '' OR e.rate_type = @rate_type::text)
    ORDER BY e.from_currency, e.to_currency, e.rate_type, e.rate_date, e.sequence DESC
) AS r
WHERE NOT @latest::boolean OR r.rate_date = r.last_date
ORDER BY r.from_currency, r.to_currency, r.rate_type, r.rate_date;
