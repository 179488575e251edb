-- name: VendorInsert :exec
INSERT INTO ap.vendors (partition_id, version, sequence, effective_date, natural_person, event_id, vendor_id, country, status, subject, name)
VALUES (
    @partition_id, @version, @sequence, @effective_date, @natural_person, @event_id, @vendor_id, @country, @status, @subject,
    nullif(@name::text, '')::json
)
ON CONFLICT DO NOTHING;

-- name: VendorChangeInsert :exec
INSERT INTO ap.vendors (partition_id, version, sequence, effective_date, vendor_id, country, status, subject, name)
VALUES (
    @partition_id, @version, @sequence, @effective_date, @vendor_id, nullif(@country::text, ''), nullif(@status::text, ''), @subject,
    nullif(@name::text, '')::json
)
ON CONFLICT DO NOTHING;

-- name: VendorAccountInsert :exec
INSERT INTO ap.vendor_accounts (
    partition_id, version, sequence, effective_date, vendor_id, request_id, currency, state, subject, iban, account, bank, bic, holder
)
VALUES (
    @partition_id, @version, @sequence, @effective_date, @vendor_id, @request_id, @currency, @state, @subject,
    nullif(@iban::text, '')::json, nullif(@account::text, '')::json, nullif(@bank::text, '')::json, nullif(@bic::text, '')::json,
    nullif(@holder::text, '')::json
)
ON CONFLICT DO NOTHING;

-- name: VendorContactInsert :exec
INSERT INTO ap.vendor_contacts (
    partition_id, version, sequence, effective_date, removed, vendor_id, contact_id, subject, name, email, phone, job_function
)
VALUES (
    @partition_id, @version, @sequence, @effective_date, @removed, @vendor_id, @contact_id, @subject,
    nullif(@name::text, '')::json, nullif(@email::text, '')::json, nullif(@phone::text, '')::json, nullif(@job_function::text, '')::json
)
ON CONFLICT DO NOTHING;

-- Personal values are returned as they are stored; the caller decides who may read them.

-- name: Vendors :many
SELECT
    v.vendor_id,
    v.country::text AS country,
    v.status::text AS status,
    v.natural_person::boolean AS natural_person,
    coalesce(v.name::text, 'null')::text AS name,
    v.event_id::text AS event_id,
    c.contacts::text AS contacts,
    b.bank::text AS bank
FROM (
    SELECT
        r.vendor_id,
        (array_agg(r.country ORDER BY r.sequence DESC) FILTER (WHERE r.country IS NOT NULL))[1] AS country,
        (array_agg(r.status ORDER BY r.sequence DESC) FILTER (WHERE r.status IS NOT NULL))[1] AS status,
        (array_agg(r.name ORDER BY r.sequence DESC) FILTER (WHERE r.name IS NOT NULL))[1] AS name,
        bool_or(r.natural_person) AS natural_person,
        (array_agg(r.event_id) FILTER (WHERE r.event_id IS NOT NULL))[1] AS event_id
    FROM ap.vendors AS r
    WHERE
        r.partition_id = @partition_id AND r.version = @version AND r.sequence <= @known AND r.effective_date <= @as_of
        AND (@vendor_id::text = '' OR r.vendor_id = @vendor_id)
        AND r.vendor_id > @after_vendor_id::text
    GROUP BY r.vendor_id
    HAVING bool_or(r.event_id IS NOT NULL)
) AS v
CROSS JOIN LATERAL (
    SELECT coalesce(
        json_agg(json_strip_nulls(json_build_object(
            'contact_id', n.contact_id, 'name', n.name, 'email', n.email, 'phone', n.phone, 'function', n.job_function
        )) ORDER BY n.contact_id) FILTER (WHERE NOT n.removed),
        '[]'::json
    ) AS contacts
    FROM (
        SELECT DISTINCT ON (k.contact_id)
            k.contact_id, k.removed, k.name, k.email, k.phone, k.job_function
        FROM ap.vendor_contacts AS k
        WHERE
            k.partition_id = @partition_id AND k.version = @version AND k.vendor_id = v.vendor_id
            AND k.sequence <= @known AND k.effective_date <= @as_of
        ORDER BY k.contact_id, k.sequence DESC
    ) AS n
) AS c
-- A request is what its newest row says. The account of a currency is the one approved last.
CROSS JOIN LATERAL (
    SELECT json_strip_nulls(json_build_object(
        'state', CASE
            WHEN bool_or(a.state = 'requested') THEN 'pending'
            WHEN bool_or(a.state = 'approved') THEN 'approved'
            ELSE 'none'
        END,
        'accounts', coalesce(json_agg(a.account ORDER BY a.currency) FILTER (WHERE a.state = 'approved' AND a.place = 1), '[]'::json),
        'request', (json_agg(a.account ORDER BY a.sequence DESC) FILTER (WHERE a.state = 'requested')) -> 0
    )) AS bank
    FROM (
        SELECT
            q.currency, d.state, d.sequence,
            row_number() OVER (PARTITION BY q.currency, d.state ORDER BY d.sequence DESC) AS place,
            json_build_object(
                'request_id', q.request_id, 'currency', q.currency, 'iban', q.iban, 'account', q.account, 'bank', q.bank,
                'bic', q.bic, 'holder', q.holder
            ) AS account
        FROM ap.vendor_accounts AS q
        CROSS JOIN LATERAL (
            SELECT k.state, k.sequence
            FROM ap.vendor_accounts AS k
            WHERE
                k.partition_id = q.partition_id AND k.version = q.version AND k.vendor_id = q.vendor_id AND k.request_id = q.request_id
                AND k.sequence <= @known AND k.effective_date <= @as_of
            ORDER BY k.sequence DESC
            LIMIT 1
        ) AS d
        WHERE
            q.partition_id = @partition_id AND q.version = @version AND q.vendor_id = v.vendor_id AND q.state = 'requested'
            AND q.sequence <= @known AND q.effective_date <= @as_of
    ) AS a
) AS b
ORDER BY v.vendor_id
LIMIT @page_size;
