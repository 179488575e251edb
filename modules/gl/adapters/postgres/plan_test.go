package postgres_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
)

// fillBank writes the rows of journals between 6000 and 1000, one every 20 minutes, of statements
// of 100 lines that report them, and of matches of all lines but the last ones.
func (b *ledgerFixture) fillBank(t *testing.T, lines, unmatched int) {
	t.Helper()
	const day = `(timestamp '2021-01-01' + i * interval '20 minutes')::date`
	for statement, n := range map[string]int{
		`INSERT INTO gl.journals (partition_id, version, sequence, recorded_at, effective_date, event_id, source_event_id, journal_id, reverses_journal_id, journal_number, journal_type, description,
			functional_currency, fiscal_year, period, source_module)
		SELECT $2, 0, 1000 + i, now(), ` + day + `, gen_random_uuid(), '', 'J' || lpad(i::text, 25, '0'), '', 'GJ-' || i, 'general', 'Rent', 'USD', '2021', '2021-01', ''
		FROM generate_series(1, $1::int) AS i`: lines,
		`INSERT INTO gl.journal_lines (partition_id, version, sequence, line_number, effective_date, side, account, amount, currency, functional_amount, functional_currency, description, tax_code, dimensions)
		SELECT $2, 0, 1000 + i, s, ` + day + `, CASE s WHEN 1 THEN 'debit' ELSE 'credit' END, CASE s WHEN 1 THEN '6000' ELSE '1000' END, 10, 'USD', 10, 'USD', 'From the bank', '', '{"department": "ENG"}'
		FROM generate_series(1, $1::int) AS i, generate_series(1, 2) AS s`: lines,
		`INSERT INTO gl.bank_statements (partition_id, version, sequence, part, first_date, statement_date, event_id, account, statement_id, currency, opening_balance, closing_balance)
		SELECT $2, 0, 1000000 + i / 100, 1, ` + day + `, (timestamp '2021-01-01' + (i + 99) * interval '20 minutes')::date, gen_random_uuid(), '1000', 'S-' || i / 100, 'USD', -10 * i, -10 * (i + 100)
		FROM generate_series(0, $1::int - 1, 100) AS i`: lines,
		`INSERT INTO gl.bank_lines (partition_id, version, sequence, line_number, part, booking_date, account, statement_id, currency, amount, reference, end_to_end_id, description)
		SELECT $2, 0, 1000000 + i / 100, i % 100 + 1, 1, ` + day + `, '1000', 'S-' || i / 100, 'USD', -10, 'GJ-' || i + 1, '', 'Paid'
		FROM generate_series(0, $1::int - 1) AS i`: lines,
		`INSERT INTO gl.bank_matches (partition_id, version, sequence, part, line_number, matched_as_of, matched, account, statement_id, statement_sequence)
		SELECT $2, 0, 2000000 + i, 1, i % 100 + 1, ` + day + `, true, '1000', 'S-' || i / 100, 1000000 + i / 100
		FROM generate_series(0, $1::int - 1) AS i`: lines - unmatched,
		`INSERT INTO gl.bank_match_lines (partition_id, version, sequence, line_number, matched_as_of, matched, account, journal_id, journal_sequence)
		SELECT $2, 0, 2000000 + i, 2, ` + day + `, true, '1000', 'J' || lpad((i + 1)::text, 25, '0'), 1000 + i + 1
		FROM generate_series(0, $1::int - 1) AS i`: lines - unmatched,
	} {
		_, err := b.pool.Exec(t.Context(), statement, n, int32(b.partition))
		require.NoError(t, err)
	}
}

// queryTracer keeps the queries of a connection.
type queryTracer struct{ queries []pgx.TraceQueryStartData }

func (q *queryTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "SELECT") {
		q.queries = append(q.queries, data)
	}
	return ctx
}

func (q *queryTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracedPool connects as the owner, who maintains the tables.
func (b *ledgerFixture) tracedPool(t *testing.T) (*pgxpool.Pool, *queryTracer) {
	t.Helper()
	config := b.pool.Config()
	config.AfterConnect = nil
	tracer := &queryTracer{}
	config.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, tracer
}

// planNode is a step of a plan that ran.
type planNode struct {
	Hit   int        `json:"Shared Hit Blocks"`
	Read  int        `json:"Shared Read Blocks"`
	Rows  int        `json:"Actual Rows"` // of each loop
	Loops int        `json:"Actual Loops"`
	Plans []planNode `json:"Plans"`
}

// rows counts the rows that this step and those below it made.
func (n *planNode) rows() int {
	sum := n.Rows * n.Loops
	for i := range n.Plans {
		sum += n.Plans[i].rows()
	}
	return sum
}

// explain runs queries in one transaction and returns the plan of the last one, which does not depend on its parameters, as
// nodes prepare it.
func explain(t *testing.T, pool *pgxpool.Pool, queries []pgx.TraceQueryStartData) planNode {
	t.Helper()
	var explained []struct{ Plan planNode }
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		last := queries[len(queries)-1]
		for _, q := range queries[:len(queries)-1] {
			if _, err := tx.Exec(t.Context(), q.SQL, q.Args...); err != nil {
				return err
			}
		}
		if _, err := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = force_generic_plan"); err != nil {
			return err
		}
		prepared, err := tx.Prepare(t.Context(), "explained", last.SQL)
		if err != nil {
			return err
		}
		values := make([]string, len(last.Args))
		for i, arg := range last.Args {
			text, err := tx.Conn().TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
			if err != nil {
				return err
			}
			values[i] = "'" + strings.ReplaceAll(string(text), "'", "''") + "'"
		}
		var text []byte
		if err := tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE explained ("+strings.Join(values, ", ")+")").Scan(&text); err != nil {
			return err
		}
		if err := json.Unmarshal(text, &explained); err != nil {
			return err
		}
		return tx.Conn().Deallocate(t.Context(), "explained")
	}))
	return explained[0].Plan
}

// A reconciliation compares lines and matches as a whole, not each line with its matches, which
// once took six pages a line, nor with all matches, as PostgreSQL would where it has no statistics.
func TestBankReconciliation_Plan(t *testing.T) {
	t.Parallel()
	const lines, unmatched = 2_000, 20
	b := setupAlone(t)
	b.project(t)
	b.fillBank(t, lines, unmatched)
	pool, tracer := b.tracedPool(t)
	report, err := postgres.NewBankReconciliation(pool).Query(t.Context(), b.query("2099-01-01", event.Sequence(9_000_000), map[string]string{"account": "1000"}))
	require.NoError(t, err)
	require.Len(t, report.Rows, 2*unmatched)
	queries := slices.Clone(tracer.queries)
	plan := explain(t, pool, queries)
	require.Less(t, plan.rows(), 20*lines, "without statistics")

	for _, table := range []string{"journals", "journal_lines", "bank_statements", "bank_lines", "bank_matches", "bank_match_lines"} {
		_, err := pool.Exec(t.Context(), "VACUUM ANALYZE gl."+table)
		require.NoError(t, err)
	}
	plan = explain(t, pool, queries)
	require.Less(t, plan.rows(), 20*lines)
	require.Less(t, plan.Hit+plan.Read, lines/2)
}

// A page of an account's ledger looks up the journals of its own lines only, also where PostgreSQL has no statistics: it once
// searched all journals for each line of the account.
func TestAccountLedger_Plan(t *testing.T) {
	t.Parallel()
	const lines = 2_000
	b := setupAlone(t)
	b.project(t)
	b.fillBank(t, lines, lines)
	pool, tracer := b.tracedPool(t)
	q := b.query("2099-01-01", event.Sequence(9_000_000), map[string]string{"account": "1000"})
	q.Limit = 50
	report, err := postgres.NewAccountLedger(pool).Query(t.Context(), q)
	require.NoError(t, err)
	require.Len(t, report.Rows, 50)
	plan := explain(t, pool, tracer.queries)
	require.Less(t, plan.rows(), 10*q.Limit)
}

// Rows of an earlier release, which lack the keys that are compared, are not read.
func TestBankReconciliation_EarlierRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.project(t)
	_, err := b.pool.Exec(t.Context(), `INSERT INTO gl.bank_matches (partition_id, version, sequence, part, line_number, matched_as_of, matched, account, statement_id)
		VALUES ($1, 0, 10, 1, 1, '2026-03-01', true, '1000', 'S-1')`, int32(b.partition))
	require.NoError(t, err)
	_, err = postgres.NewBankReconciliation(b.pool).Query(t.Context(), b.query("2026-03-31", 20, map[string]string{"account": "1000"}))
	require.Equal(t, "read.rebuilding", fault.CodeOf(err))
}
