-- +goose Up

-- The one order of all events: ranges of partitions, one after the other, and the tree of RFC 6962 over the
-- checksums of their events. Rows are inserted by extend_global_log only, which takes them from the log: a caller
-- can make the global log longer, and never another one.

-- count events of a partition, from first_sequence on, have the positions from first_position on.
CREATE TABLE backbone.log_ranges (
    first_position bigint NOT NULL CHECK (first_position >= 0),
    first_sequence bigint NOT NULL CHECK (first_sequence > 0),
    count          bigint NOT NULL CHECK (count > 0),
    partition_id   integer NOT NULL CHECK (partition_id > 0),
    CONSTRAINT log_ranges_pkey PRIMARY KEY (first_position),
    CONSTRAINT log_ranges_sequence UNIQUE (partition_id, first_sequence)
);

-- The complete tiles of the tree, of 256 hashes: at level 0 SHA-256(0x00 || checksum) of each event, above it the
-- roots of the tiles below. Incomplete tiles are computed when they are read.
CREATE TABLE backbone.log_tiles (
    index  bigint NOT NULL CHECK (index >= 0),
    level  smallint NOT NULL CHECK (level >= 0),
    root   bytea NOT NULL CHECK (octet_length(root) = 32),
    hashes bytea NOT NULL CHECK (octet_length(hashes) = 32 * 256),
    CONSTRAINT log_tiles_pkey PRIMARY KEY (level, index)
);
-- Hashes do not compress.
ALTER TABLE backbone.log_tiles ALTER COLUMN hashes SET STORAGE EXTERNAL;

-- The root over the hashes of a complete tile: each round joins pairs to SHA-256(0x01 || left || right).
-- +goose StatementBegin
CREATE FUNCTION backbone.tile_root(hashes bytea) RETURNS bytea
    LANGUAGE plpgsql
    IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    WHILE octet_length(hashes) > 32 LOOP
        SELECT string_agg(sha256('\x01'::bytea || substring(hashes FROM 64 * i + 1 FOR 64)), ''::bytea ORDER BY i)
        INTO hashes
        FROM generate_series(0, octet_length(hashes) / 64 - 1) AS i;
    END LOOP;
    RETURN hashes;
END
$$;
-- +goose StatementEnd

-- The hashes of the entries of contiguous events. Statements name one partition, or they would plan for all of them.
-- +goose StatementBegin
CREATE FUNCTION backbone.range_hashes(of_partition integer, from_sequence bigint, to_sequence bigint) RETURNS bytea
    LANGUAGE plpgsql
    STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT string_agg(sha256('\x00'::bytea || e.checksum), ''::bytea ORDER BY e.sequence)
            FROM backbone.events e
            WHERE e.partition_id = of_partition AND e.sequence >= from_sequence AND e.sequence < to_sequence);
END
$$;
-- +goose StatementEnd

-- The hashes of the entries from one position to before another.
-- +goose StatementBegin
CREATE FUNCTION backbone.entry_hashes(from_position bigint, to_position bigint) RETURNS bytea
    LANGUAGE plpgsql
    STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r      backbone.log_ranges;
    hashes bytea := '';
BEGIN
    FOR r IN
        SELECT * FROM backbone.log_ranges l
        WHERE l.first_position >= (SELECT max(b.first_position) FROM backbone.log_ranges b WHERE b.first_position <= from_position)
          AND l.first_position < to_position
        ORDER BY l.first_position
    LOOP
        hashes := hashes || coalesce(backbone.range_hashes(r.partition_id,
            r.first_sequence + greatest(from_position - r.first_position, 0), r.first_sequence + least(to_position - r.first_position, r.count)), '');
    END LOOP;
    RETURN hashes;
END
$$;
-- +goose StatementEnd

-- Takes what partitions have recorded since into the global log, at most so many events of each, in the given
-- order, and returns the new ranges. It takes none of a partition whose next events have a gap between them. Of two
-- callers at a time one gets a violation of log_ranges_pkey: every earlier end of the log is the first position of a
-- range.
-- +goose StatementBegin
CREATE FUNCTION backbone.extend_global_log(partitions integer[], most bigint)
    RETURNS TABLE (first_position bigint, partition_id integer, first_sequence bigint, count bigint)
    LANGUAGE plpgsql
    SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    size_before bigint := coalesce((SELECT r.first_position + r.count FROM backbone.log_ranges r ORDER BY r.first_position DESC LIMIT 1), 0);
    size_after  bigint := size_before;
    last_event  bigint;
    new_hashes  bytea;
    hashes      bytea := backbone.entry_hashes(size_before / 256 * 256, size_before); -- those that no tile has yet
    tile        bigint;
    tile_level  smallint;
BEGIN
    FOREACH extend_global_log.partition_id IN ARRAY partitions LOOP
        SELECT r.first_sequence + r.count INTO extend_global_log.first_sequence
        FROM backbone.log_ranges r WHERE r.partition_id = extend_global_log.partition_id
        ORDER BY r.first_sequence DESC LIMIT 1;
        extend_global_log.first_sequence := coalesce(extend_global_log.first_sequence, 1);
        SELECT string_agg(sha256('\x00'::bytea || e.checksum), ''::bytea ORDER BY e.sequence), count(*), max(e.sequence)
        INTO new_hashes, extend_global_log.count, last_event
        FROM backbone.events e
        WHERE e.partition_id = extend_global_log.partition_id
          AND e.sequence >= extend_global_log.first_sequence AND e.sequence < extend_global_log.first_sequence + most;
        -- Behind a gap, which no append leaves, there is nothing to take.
        CONTINUE WHEN extend_global_log.count = 0 OR last_event <> extend_global_log.first_sequence + extend_global_log.count - 1;
        extend_global_log.first_position := size_after;
        INSERT INTO backbone.log_ranges (first_position, partition_id, first_sequence, count)
        VALUES (extend_global_log.first_position, extend_global_log.partition_id, extend_global_log.first_sequence, extend_global_log.count);
        size_after := size_after + extend_global_log.count;
        hashes := hashes || new_hashes;
        RETURN NEXT;
    END LOOP;
    FOR entries_tile IN size_before / 256 .. size_after / 256 - 1 LOOP
        INSERT INTO backbone.log_tiles (level, index, root, hashes)
        SELECT 0, entries_tile, backbone.tile_root(t.hashes), t.hashes
        FROM (SELECT substring(hashes FROM ((entries_tile - size_before / 256) * 32 * 256 + 1)::integer FOR 32 * 256) AS hashes) AS t;
        tile := entries_tile + 1;
        tile_level := 1;
        WHILE tile % 256 = 0 LOOP
            tile := tile / 256;
            INSERT INTO backbone.log_tiles (level, index, root, hashes)
            SELECT tile_level, tile - 1, backbone.tile_root(t.hashes), t.hashes
            FROM (SELECT string_agg(b.root, ''::bytea ORDER BY b.index) AS hashes
                  FROM backbone.log_tiles b
                  WHERE b.level = tile_level - 1 AND b.index >= tile * 256 - 256 AND b.index < tile * 256) AS t;
            tile_level := tile_level + 1;
        END LOOP;
    END LOOP;
END
$$;
-- +goose StatementEnd

-- A second line of defence, as on the log.
CREATE TRIGGER log_ranges_append_only BEFORE UPDATE OR DELETE ON backbone.log_ranges
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('global log');
CREATE TRIGGER log_ranges_no_truncate BEFORE TRUNCATE ON backbone.log_ranges
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('global log');
CREATE TRIGGER log_tiles_append_only BEFORE UPDATE OR DELETE ON backbone.log_tiles
    FOR EACH ROW EXECUTE FUNCTION backbone.refuse_change('global log');
CREATE TRIGGER log_tiles_no_truncate BEFORE TRUNCATE ON backbone.log_tiles
    FOR EACH STATEMENT EXECUTE FUNCTION backbone.refuse_change('global log');

REVOKE ALL ON FUNCTION backbone.tile_root(bytea), backbone.range_hashes(integer, bigint, bigint), backbone.entry_hashes(bigint, bigint), backbone.extend_global_log(integer[], bigint) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION backbone.tile_root(bytea) TO backbone_sealer;
GRANT EXECUTE ON FUNCTION backbone.range_hashes(integer, bigint, bigint), backbone.entry_hashes(bigint, bigint) TO backbone_sealer, backbone_app, backbone_reader;
GRANT EXECUTE ON FUNCTION backbone.extend_global_log(integer[], bigint) TO backbone_app;
GRANT SELECT, INSERT ON backbone.log_ranges, backbone.log_tiles TO backbone_sealer;
GRANT SELECT ON backbone.log_ranges, backbone.log_tiles TO backbone_app, backbone_reader;
GRANT CREATE ON SCHEMA backbone TO backbone_sealer;
ALTER FUNCTION backbone.extend_global_log(integer[], bigint) OWNER TO backbone_sealer;
REVOKE CREATE ON SCHEMA backbone FROM backbone_sealer;
