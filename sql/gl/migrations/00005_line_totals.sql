-- +goose Up

-- Sums of the lines of an account on a day, for the trial balance: it adds up a row for each
-- day instead of each line. A row has the lines of 32,768 sequences, so that a report known
-- at an older sequence still adds up whole rows, and the lines of one block beside them.
-- Triggers keep the sums: lines come and go by the projection, by its rebuilds, and by the
-- recomputation of single journals.
CREATE TABLE gl.line_totals (
    block               bigint NOT NULL, -- sequence / 32768
    lines               bigint NOT NULL,
    partition_id        integer NOT NULL,
    version             integer NOT NULL,
    effective_date      date NOT NULL,
    account             text COLLATE "C" NOT NULL,
    functional_currency text COLLATE "C" NOT NULL,
    debit               numeric(30, 4) NOT NULL, -- with the scale of lines, so that 0 is written in one way
    credit              numeric(30, 4) NOT NULL,
    CONSTRAINT line_totals_pkey PRIMARY KEY (partition_id, version, account, effective_date, block, functional_currency)
) WITH (fillfactor = 70);

-- +goose StatementBegin
CREATE FUNCTION gl.add_line_totals() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO gl.line_totals AS t (partition_id, version, account, effective_date, block, functional_currency, lines, debit, credit)
    SELECT l.partition_id, l.version, l.account, l.effective_date, l.sequence >> 15, l.functional_currency, count(*),
           coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'debit'), 0), coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'credit'), 0)
    FROM changed AS l
    GROUP BY l.partition_id, l.version, l.account, l.effective_date, l.sequence >> 15, l.functional_currency
    ORDER BY 1, 2, 3, 4, 5, 6 -- two writers lock rows in one order
    ON CONFLICT (partition_id, version, account, effective_date, block, functional_currency)
    DO UPDATE SET lines = t.lines + excluded.lines, debit = t.debit + excluded.debit, credit = t.credit + excluded.credit;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION gl.remove_line_totals() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE gl.line_totals AS t
    SET lines = t.lines - r.lines, debit = t.debit - r.debit, credit = t.credit - r.credit
    FROM (
        SELECT l.partition_id, l.version, l.account, l.effective_date, l.sequence >> 15 AS block, l.functional_currency, count(*) AS lines,
               coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'debit'), 0) AS debit, coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'credit'), 0) AS credit
        FROM changed AS l
        GROUP BY l.partition_id, l.version, l.account, l.effective_date, l.sequence >> 15, l.functional_currency
    ) AS r
    WHERE t.partition_id = r.partition_id AND t.version = r.version AND t.account = r.account AND t.effective_date = r.effective_date
        AND t.block = r.block AND t.functional_currency = r.functional_currency;
    DELETE FROM gl.line_totals AS t
    USING (SELECT DISTINCT l.partition_id, l.version, l.account, l.effective_date FROM changed AS l) AS r
    WHERE t.partition_id = r.partition_id AND t.version = r.version AND t.account = r.account AND t.effective_date = r.effective_date AND t.lines = 0;
    RETURN NULL;
END
$$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION gl.add_line_totals, gl.remove_line_totals FROM PUBLIC;
CREATE TRIGGER lines_added AFTER INSERT ON gl.journal_lines
    REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION gl.add_line_totals();
CREATE TRIGGER lines_removed AFTER DELETE ON gl.journal_lines
    REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION gl.remove_line_totals();

INSERT INTO gl.line_totals (partition_id, version, account, effective_date, block, functional_currency, lines, debit, credit)
SELECT l.partition_id, l.version, l.account, l.effective_date, l.sequence >> 15, l.functional_currency, count(*),
       coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'debit'), 0), coalesce(sum(l.functional_amount) FILTER (WHERE l.side = 'credit'), 0)
FROM gl.journal_lines AS l
GROUP BY l.partition_id, l.version, l.account, l.effective_date, l.sequence >> 15, l.functional_currency;

GRANT SELECT, INSERT, UPDATE, DELETE ON gl.line_totals TO backbone_app;
GRANT SELECT ON gl.line_totals TO backbone_reader;
