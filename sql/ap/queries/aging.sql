-- bounds are due dates in ascending order: a bucket of n has the items due from the n-th bound
-- on, 0 those due before the first one. Entries of a document have one due date, so no query
-- sums documents one by one.

-- name: AgingByVendor :many
SELECT
    e.vendor_id AS value,
    e.currency,
    width_bucket(e.due_date, @bounds::date[])::integer AS bucket,
    sum(e.amount)::text AS open,
    sum(e.functional_amount)::text AS open_functional
FROM ap.document_entries AS e
WHERE
    e.partition_id = @partition_id AND e.version = @version AND e.effective_date <= @as_of AND e.sequence <= @known
    AND e.functional_currency = @functional_currency
    AND e.vendor_id >= @first_vendor_id::text AND e.vendor_id <= @last_vendor_id::text
    AND (@currency::text = '' OR e.currency = @currency)
GROUP BY e.vendor_id, e.currency, bucket
HAVING sum(e.amount) <> 0 OR sum(e.functional_amount) <> 0
ORDER BY e.vendor_id, e.currency, bucket;

-- name: AgingByDimension :many
SELECT
    coalesce(d.dimensions ->> @dimension::text, 'none')::text AS value,
    e.currency,
    width_bucket(e.due_date, @bounds::date[])::integer AS bucket,
    sum(e.amount)::text AS open,
    sum(e.functional_amount)::text AS open_functional
FROM ap.document_entries AS e
INNER JOIN ap.documents AS d
    ON d.partition_id = e.partition_id AND d.version = e.version AND d.document_id = e.document_id AND d.sequence = e.body_sequence
WHERE
    e.partition_id = @partition_id AND e.version = @version AND e.effective_date <= @as_of AND e.sequence <= @known
    AND e.functional_currency = @functional_currency
    AND e.vendor_id >= @first_vendor_id::text AND e.vendor_id <= @last_vendor_id::text
    AND (@currency::text = '' OR e.currency = @currency)
GROUP BY 1, e.currency, bucket
HAVING sum(e.amount) <> 0 OR sum(e.functional_amount) <> 0
ORDER BY 1, e.currency, bucket;

-- name: VendorStatement :many
SELECT
    t.effective_date,
    t.sequence,
    t.document_id,
    d.invoice_number,
    d.kind,
    t.action,
    t.counterpart,
    t.currency,
    t.amount::text AS amount,
    t.functional_amount::text AS functional_amount,
    t.balance::text AS balance,
    t.functional_balance::text AS functional_balance,
    t.event_id::text AS event_id,
    coalesce(d.body ->> 'external_reference', d.body ->> 'payment_reference', '')::text AS reference
FROM (
    SELECT
        e.effective_date, e.sequence, e.document_id, e.body_sequence, e.action, e.counterpart, e.currency, e.amount, e.functional_amount, e.event_id,
        sum(e.amount) OVER (PARTITION BY e.currency ORDER BY e.effective_date, e.sequence) AS balance,
        sum(e.functional_amount) OVER (ORDER BY e.effective_date, e.sequence) AS functional_balance
    FROM ap.document_entries AS e
    WHERE
        e.partition_id = @partition_id AND e.version = @version AND e.vendor_id = @vendor_id AND e.effective_date <= @as_of AND e.sequence <= @known
        AND e.functional_currency = @functional_currency AND (@currency::text = '' OR e.currency = @currency)
) AS t
INNER JOIN ap.documents AS d
    ON d.partition_id = @partition_id AND d.version = @version AND d.document_id = t.document_id AND d.sequence = t.body_sequence
WHERE (t.effective_date, t.sequence) > (@after_date::date, @after_sequence::bigint)
ORDER BY t.effective_date, t.sequence
LIMIT @page_size;

-- name: VendorBalances :many
SELECT
    e.currency,
    coalesce(sum(e.amount) FILTER (WHERE e.effective_date < @from_date::date), 0)::text AS opening,
    coalesce(sum(e.functional_amount) FILTER (WHERE e.effective_date < @from_date::date), 0)::text AS opening_functional,
    sum(e.amount)::text AS closing,
    sum(e.functional_amount)::text AS closing_functional
FROM ap.document_entries AS e
WHERE
    e.partition_id = @partition_id AND e.version = @version AND e.vendor_id = @vendor_id AND e.effective_date <= @as_of AND e.sequence <= @known
    AND e.functional_currency = @functional_currency AND (@currency::text = '' OR e.currency = @currency)
GROUP BY e.currency
ORDER BY e.currency;
