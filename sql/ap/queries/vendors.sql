-- name: VendorInsert :exec
INSERT INTO ap.vendors (partition_id, version, sequence, effective_date, natural_person, event_id, vendor_id, country, status, subject, name)
VALUES (
    @partition_id, @version, @sequence, @effective_date, @natural_person, @event_id, @vendor_id, @country, @status, @subject,
    nullif(@name::text, '')::json
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
    v.country,
    v.status,
    v.natural_person,
    coalesce(v.name::text, 'null')::text AS name,
    v.event_id::text AS event_id,
    c.contacts::text AS contacts
FROM (
    SELECT DISTINCT ON (r.vendor_id)
        r.vendor_id, r.country, r.status, r.natural_person, r.name, r.event_id
    FROM ap.vendors AS r
    WHERE
        r.partition_id = @partition_id AND r.version = @version AND r.sequence <= @known AND r.effective_date <= @as_of
        AND (@vendor_id::text = '' OR r.vendor_id = @vendor_id)
        AND r.vendor_id > @after_vendor_id::text
    ORDER BY r.vendor_id, r.sequence DESC
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
ORDER BY v.vendor_id
LIMIT @page_size;
