package postgres_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
	glsql "github.com/erpbackbone/backbone/sql/gl"
	"github.com/erpbackbone/backbone/test/testkit"
)

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

// ledgerFixture is an empty partition in the ledger's read models, seen through the application's
// role.
type ledgerFixture struct {
	pool      *pgxpool.Pool
	partition event.PartitionID
	sequence  event.Sequence
	events    []event.Recorded
}

// partitions counts those of the fixtures, which share a database.
var partitions atomic.Int32

func setup(t *testing.T) *ledgerFixture {
	t.Helper()
	return setupIn(t, testkit.SharedDatabase)
}

// setupAlone is setup in a database of the test's own, whose statistics are those of its rows.
func setupAlone(t *testing.T) *ledgerFixture {
	t.Helper()
	return setupIn(t, testkit.Database)
}

func setupIn(t *testing.T, database func(testing.TB, func(context.Context, string) error, string) string) *ledgerFixture {
	t.Helper()
	files, err := fs.Sub(glsql.FS, "migrations")
	require.NoError(t, err)
	print, err := testkit.Fingerprint(files)
	require.NoError(t, err)
	dsn := database(t, func(ctx context.Context, dsn string) error {
		return migrate.Run(ctx, dsn, nil, migrate.Set{Name: "gl", FS: files})
	}, "gl_read_models_"+print)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE backbone_app")
		return err
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &ledgerFixture{pool: pool, partition: event.PartitionID(partitions.Add(1))}
	b.add(domain.EventLedgerConfigured, "2026-01-01", `{"functional_currency": "USD"}`)
	for code, name := range map[string]string{"1000": "Bank", "6000": "Services"} {
		b.add(domain.EventAccountDefined, "2026-01-01", fmt.Sprintf(`{"code": %q, "name": %q, "type": "asset"}`, code, name))
	}
	return b
}

// add records an event without projecting it.
func (b *ledgerFixture) add(eventType, effective, data string) event.Recorded {
	b.sequence++
	at := time.Date(2026, 3, 1, 0, 0, int(b.sequence), 123456000, time.UTC)
	id := ulid.MustNew(ulid.Timestamp(at), nil)
	e := event.Recorded{
		Skeleton: event.Skeleton{
			Partition: b.partition, Sequence: b.sequence, ID: id, Type: eventType, RecordedAt: at,
			EffectiveDate: event.MustDate(effective), Stream: event.StreamID{Type: "gl.journal", ID: id.String()},
		},
		Payload: []byte(`{"data": ` + data + `, "dimensions": {}, "entity_refs": []}`),
	}
	b.events = append(b.events, e)
	return e
}

// journal records a journal in dollars between 6000 (debit) and 1000.
func (b *ledgerFixture) journal(effective, amount string) event.Recorded {
	return b.add(domain.EventJournalPosted, effective, fmt.Sprintf(`{"journal_number": "GJ-2026-%06d", "description": "Rent", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": %s, "currency": "USD", "dimensions": {"department": "ENG"}},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": %s, "currency": "USD", "description": "From the bank"}]}`,
		b.sequence, amount, amount))
}

// project hands all recorded events to the projection, a few at a time.
func (b *ledgerFixture) project(t *testing.T) {
	t.Helper()
	for page := range slices.Chunk(b.events, 50) {
		require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			return postgres.NewProjection().Apply(t.Context(), tx, ports.ProjectionBatch{Partition: page[0].Partition, Events: page})
		}))
	}
}

func (b *ledgerFixture) query(asOf string, known event.Sequence, params map[string]string) ports.ReadModelQuery {
	return ports.ReadModelQuery{
		Partition: b.partition, Entity: ports.LegalEntity{Partition: b.partition, Code: "USMF"}, AsOf: event.MustDate(asOf),
		Known: known, KnownAt: fmt.Sprintf("seq:%d", known), Params: params, Limit: maxRows,
	}
}

func (b *ledgerFixture) trialBalance(t *testing.T, asOf string, known event.Sequence) string {
	t.Helper()
	r, err := postgres.NewTrialBalance(b.pool).Query(t.Context(), b.query(asOf, known, nil))
	require.NoError(t, err)
	return flat(t, r)
}

// flat writes a report as one document.
func flat(t *testing.T, r ports.Report) string {
	t.Helper()
	out := map[string]any{r.RowsName: r.Rows}
	for _, f := range slices.Concat(r.Header, r.Footer) {
		out[f.Name] = f.Value
	}
	text, err := json.Marshal(out)
	require.NoError(t, err)
	return string(text)
}

func TestTrialBalance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.journal("2026-03-10", "1200.5")
	b.journal("2026-02-10", "100") // recorded later, effective earlier
	b.add(domain.EventAccountDefined, "2026-01-01", `{"code": "1000", "name": "Bank, renamed", "type": "asset"}`)
	b.project(t)
	require.JSONEq(t, `{"legal_entity": "USMF", "currency": "USD", "as_of": "2026-12-31", "known_at": "seq:99", "accounts": [
		{"account": "1000", "name": "Bank, renamed", "type": "asset", "debit": "0.00", "credit": "1300.50", "balance": "-1300.50"},
		{"account": "6000", "name": "Services", "type": "asset", "debit": "1300.50", "credit": "0.00", "balance": "1300.50"}],
		"total_debit": "1300.50", "total_credit": "1300.50", "unclosed_years": []}`, b.trialBalance(t, "2026-12-31", 99))
	require.JSONEq(t, `{"legal_entity": "USMF", "currency": "USD", "as_of": "2026-12-31", "known_at": "seq:4", "accounts": [
		{"account": "1000", "name": "Bank", "type": "asset", "debit": "0.00", "credit": "1200.50", "balance": "-1200.50"},
		{"account": "6000", "name": "Services", "type": "asset", "debit": "1200.50", "credit": "0.00", "balance": "1200.50"}],
		"total_debit": "1200.50", "total_credit": "1200.50", "unclosed_years": []}`, b.trialBalance(t, "2026-12-31", first.Sequence))
	require.JSONEq(t, `{"legal_entity": "USMF", "currency": "USD", "as_of": "2026-03-09", "known_at": "seq:5", "accounts": [
		{"account": "1000", "name": "Bank", "type": "asset", "debit": "0.00", "credit": "100.00", "balance": "-100.00"},
		{"account": "6000", "name": "Services", "type": "asset", "debit": "100.00", "credit": "0.00", "balance": "100.00"}],
		"total_debit": "100.00", "total_credit": "100.00", "unclosed_years": []}`, b.trialBalance(t, "2026-03-09", 5))
	require.JSONEq(t, `{"legal_entity": "USMF", "currency": "", "as_of": "2026-12-31", "known_at": "seq:0", "accounts": [],
		"total_debit": "0", "total_credit": "0", "unclosed_years": []}`, b.trialBalance(t, "2026-12-31", 0))
}

// Each page shows its accounts and the totals of all.
func TestTrialBalance_Pages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.journal("2026-03-10", "1200.5")
	b.project(t)
	q := b.query("2026-12-31", 99, nil)
	for _, limit := range []int{1, 2, 3} {
		q.Cursor, q.Limit = "", limit
		var accounts []string
		for more := true; more; {
			r, err := postgres.NewTrialBalance(b.pool).Query(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, r.Rows, min(limit, 2))
			require.Equal(t, ports.ReportFields{{Name: "total_debit", Value: "1200.50"}, {Name: "total_credit", Value: "1200.50"}, {Name: "unclosed_years", Value: []string{}}}, r.Footer)
			for _, row := range r.Rows {
				text, err := json.Marshal(row)
				require.NoError(t, err)
				accounts = append(accounts, string(text[:17]))
			}
			require.Equal(t, r.HasMore, r.NextCursor != "")
			q.Cursor, more = r.NextCursor, r.HasMore
		}
		require.Equal(t, []string{`{"account":"1000"`, `{"account":"6000"`}, accounts, "limit %d", limit)
	}
	q.Cursor = "7000"
	_, err := postgres.NewTrialBalance(b.pool).Query(t.Context(), q)
	require.Equal(t, "cursor.malformed", fault.CodeOf(err))
}

func TestTrialBalance_ForeignLines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.add(domain.EventJournalPosted, "2026-03-10", `{"journal_number": "A", "description": "x", "functional_currency": "USD", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 1000, "currency": "JPY", "amount_in_reporting_currency": 6.73, "exchange_rate": 0.006731, "rate_date": "2026-03-01"},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1000, "currency": "JPY", "amount_in_reporting_currency": 6.73}]}`)
	// Raw and in another book currency: not part of these books.
	b.add(domain.EventJournalPosted, "2026-03-10", `{"journal_number": "B", "description": "x", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 5, "currency": "EUR"},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 5, "currency": "EUR"}]}`)
	b.project(t)
	require.Contains(t, b.trialBalance(t, "2026-12-31", 99), `"total_debit":"6.73"`)

	ledger := postgres.NewAccountLedger(b.pool)
	r, err := ledger.Query(t.Context(), b.query("2026-12-31", 99, map[string]string{"account": "6000"}))
	require.NoError(t, err)
	require.Len(t, r.Rows, 1)
	text := flat(t, r)
	for _, part := range []string{`"amount":"1000"`, `"functional_amount":"6.73"`, `"rate":"0.006731"`, `"rate_date":"2026-03-01"`, `"running_balance":"6.73"`} {
		require.Contains(t, text, part)
	}
	r, err = ledger.Query(t.Context(), b.query("2026-12-31", 99, map[string]string{"account": "6000", "currency": "JPY"}))
	require.NoError(t, err)
	require.Contains(t, flat(t, r), `"running_balance":"1000"`)
}

func TestAccountLedger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.journal("2026-03-10", "1200.5")
	b.journal("2026-02-10", "100")
	b.add(domain.EventJournalReversed, "2026-03-12", fmt.Sprintf(
		`{"journal_id": %q, "reversed_by_journal_id": "01J00000000000000000000000", "posting_date": "2026-03-12", "reason": "x"}`, first.Stream.ID))
	b.project(t)
	ledger := postgres.NewAccountLedger(b.pool)
	r, err := ledger.Query(t.Context(), b.query("2026-12-31", 99, map[string]string{"account": "1000"}))
	require.NoError(t, err)
	var rows []map[string]any
	text, err := json.Marshal(r.Rows)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &rows))
	require.Len(t, rows, 2)
	require.Equal(t, "-100.00", rows[0]["running_balance"])
	require.Equal(t, "2026-02-10", rows[0]["effective_date"])
	require.Equal(t, map[string]any{
		"effective_date": "2026-03-10", "recorded_at": "2026-03-01T00:00:04.123456Z", "sequence": "4", "event_id": first.ID.String(),
		"journal_id": first.Stream.ID, "journal_number": "GJ-2026-000003", "line_number": 2.0, "type": "general", "description": "From the bank",
		"side": "credit", "amount": "1200.50", "currency": "USD", "functional_amount": "1200.50", "dimensions": map[string]any{},
		"running_balance": "-1300.50", "reversed_by": "01J00000000000000000000000",
	}, rows[1])

	r, err = ledger.Query(t.Context(), b.query("2026-12-31", 5, map[string]string{"account": "1000", "from": "2026-03-01"}))
	require.NoError(t, err)
	require.Len(t, r.Rows, 1)
	text2 := flat(t, r)
	require.Contains(t, text2, `"opening_balance":"-100.00"`)
	require.Contains(t, text2, `"closing_balance":"-1300.50"`)
	require.NotContains(t, text2, "reversed_by", "not known yet at sequence 5")

	_, err = ledger.Query(t.Context(), b.query("2026-12-31", 99, map[string]string{"account": "9999"}))
	require.Equal(t, "gl.account.not_found", fault.CodeOf(err))
	q := b.query("2026-12-31", 99, map[string]string{"account": "1000"})
	q.Cursor = "nonsense"
	_, err = ledger.Query(t.Context(), q)
	require.Equal(t, "cursor.malformed", fault.CodeOf(err))
}

// TestReports_BothTimeAxes compares reports at random places with a naive fold of the events.
func TestReports_BothTimeAxes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	random := rand.New(rand.NewPCG(1, 2))
	start := event.MustDate("2026-01-01")
	for range 300 {
		b.journal(start.AddDays(random.IntN(90)).String(), fmt.Sprintf("%d.%02d", random.IntN(100_000), random.IntN(100)))
	}
	b.project(t)
	b.project(t) // a rebuild passes the same events again
	for range 40 {
		asOf, known := start.AddDays(random.IntN(90)), event.Sequence(random.IntN(int(b.sequence)+2))
		want := naive(t, b.events, asOf, known)
		text := b.trialBalance(t, asOf.String(), known)
		require.Equal(t, text, b.trialBalance(t, asOf.String(), known), "the same question gives the same bytes")
		var got struct {
			Accounts []struct{ Account, Balance string }
			Debit    string `json:"total_debit"`
			Credit   string `json:"total_credit"`
		}
		require.NoError(t, json.Unmarshal([]byte(text), &got))
		require.Equal(t, got.Debit, got.Credit)
		balances := map[string]string{}
		for _, a := range got.Accounts {
			balances[a.Account] = a.Balance
		}
		require.Equal(t, want, balances)
		b.comparePages(t, asOf, known, want, 1+random.IntN(60))
	}
}

// comparePages reads each account's ledger page by page.
func (b *ledgerFixture) comparePages(t *testing.T, asOf event.Date, known event.Sequence, want map[string]string, limit int) {
	t.Helper()
	for _, account := range slices.Sorted(maps.Keys(want)) {
		q := b.query(asOf.String(), known, map[string]string{"account": account})
		whole, err := postgres.NewAccountLedger(b.pool).Query(t.Context(), q)
		require.NoError(t, err)
		require.False(t, whole.HasMore)
		require.Equal(t, want[account], whole.Footer[0].Value)
		var paged []any
		q.Limit = limit
		for {
			page, err := postgres.NewAccountLedger(b.pool).Query(t.Context(), q)
			require.NoError(t, err)
			paged = append(paged, page.Rows...)
			if !page.HasMore {
				break
			}
			require.Len(t, page.Rows, limit)
			q.Cursor = page.NextCursor
		}
		require.Equal(t, whole.Rows, paged)
	}
}

// maxRows is more than the rows of any report here.
const maxRows = 5000

// naive folds the events for the balances by account.
func naive(t *testing.T, events []event.Recorded, asOf event.Date, known event.Sequence) map[string]string {
	t.Helper()
	sums := map[string]money.Number{}
	for _, e := range events {
		if e.Type != domain.EventJournalPosted || e.Sequence > known || e.EffectiveDate > asOf {
			continue
		}
		body, err := e.Body()
		require.NoError(t, err)
		j, err := domain.DecodeJournal(body.Data)
		require.NoError(t, err)
		for _, l := range j.Lines {
			change := l.FunctionalAmount
			if l.Side == domain.Credit {
				change = change.Neg()
			}
			sums[l.Account] = sums[l.Account].Add(change)
		}
	}
	out := map[string]string{}
	for account, sum := range sums {
		out[account] = sum.Fixed(2)
	}
	return out
}

// TestGrants shows what the roles may do with the tables.
func TestGrants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tables, err := b.pool.Query(t.Context(), `SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = 'gl' AND relkind = 'r' 
		AND (NOT has_table_privilege('backbone_reader', c.oid, 'SELECT') OR has_table_privilege('backbone_reader', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')
			OR NOT has_table_privilege('backbone_app', c.oid, 'DELETE') OR has_table_privilege('backbone_app', c.oid, 'TRUNCATE'))`)
	require.NoError(t, err)
	wrong, err := pgx.CollectRows(tables, pgx.RowTo[string])
	require.NoError(t, err)
	require.Empty(t, wrong)
}

// TestProjection_SeparateVersions builds a version while readers see another one: reports have
// the rows of one version, and a reset removes those of one version.
func TestProjection_SeparateVersions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.journal("2026-03-10", "10")
	apply := func(version int, events []event.Recorded) {
		t.Helper()
		require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			return postgres.NewProjection().Apply(t.Context(), tx, ports.ProjectionBatch{Partition: b.partition, Version: version, Events: events})
		}))
	}
	report := func(version int) string {
		t.Helper()
		q := b.query("2026-12-31", 99, nil)
		q.Version = version
		r, err := postgres.NewTrialBalance(b.pool).Query(t.Context(), q)
		require.NoError(t, err)
		lines := flat(t, r)
		if len(r.Rows) == 0 {
			return lines
		}
		q.Params = map[string]string{"account": "1000"}
		r, err = postgres.NewAccountLedger(b.pool).Query(t.Context(), q)
		require.NoError(t, err)
		return lines + flat(t, r)
	}
	apply(1, b.events)
	one := report(1)
	require.Contains(t, one, `"total_debit":"10.00"`)
	require.Contains(t, report(2), `"total_debit":"0"`, "nothing is built yet")
	apply(2, b.events)
	require.Equal(t, one, report(2))
	b.journal("2026-03-11", "5")
	apply(2, b.events[len(b.events)-1:])
	require.Equal(t, one, report(1))
	require.Contains(t, report(2), `"total_debit":"15.00"`)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return postgres.NewProjection().Reset(t.Context(), tx, ports.ProjectionBatch{Partition: b.partition, Version: 2})
	}))
	require.Equal(t, one, report(1))
	require.Contains(t, report(2), `"total_debit":"0"`)
}
