package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
	glsql "github.com/erpbackbone/backbone/sql/gl"
	"github.com/erpbackbone/backbone/test/testkit"
)

// bookFixture is a ledger's read models with journals in four currencies. It answers like a
// server.
type bookFixture struct {
	pool     *pgxpool.Pool
	sequence event.Sequence
	events   []event.Recorded
	asked    int
}

func newBookFixture(t *testing.T) *bookFixture {
	t.Helper()
	files, err := fs.Sub(glsql.FS, "migrations")
	require.NoError(t, err)
	print, err := testkit.Fingerprint(files)
	require.NoError(t, err)
	dsn := testkit.Database(t, func(ctx context.Context, dsn string) error {
		return migrate.Run(ctx, dsn, nil, migrate.Set{Name: "gl", FS: files})
	}, "gl_read_models_"+print)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bookFixture{pool: pool}
	b.add(domain.EventLedgerConfigured, "2026-01-01", `{"functional_currency": "EUR"}`)
	for i, account := range accounts {
		b.add(domain.EventAccountDefined, "2026-01-01", fmt.Sprintf(`{"code": %q, "name": "Account, no. %d", "type": %q}`, account, i, []string{"asset", "liability", "income", "expense"}[i%4]))
	}
	return b
}

var accounts = []string{"1000", "2000", "4000", "6000", "1200", "2200", "4900", "7900"}

func (b *bookFixture) add(eventType, effective, data string) {
	b.sequence++
	at := time.Date(2026, 3, 1, 0, 0, int(b.sequence), 0, time.UTC)
	id := ulid.MustNew(ulid.Timestamp(at), nil)
	b.events = append(b.events, event.Recorded{
		Skeleton: event.Skeleton{
			Partition: 7, Sequence: b.sequence, ID: id, Type: eventType, RecordedAt: at, CorrelationID: "order 12, part 3",
			EffectiveDate: event.MustDate(effective), Stream: event.StreamID{Type: "gl.journal", ID: id.String()},
		},
		Payload: []byte(`{"data": ` + data + `, "dimensions": {}, "entity_refs": []}`),
	})
}

// randomMonth records journals that balance in each currency and in functional currency,
// some with an exchange difference as a line of amount 0.
func (b *bookFixture) randomMonth(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(7, 8))
	rates := map[string]string{"EUR": "1", "USD": "0.9", "JPY": "0.006", "KWD": "3"}
	scales := map[string]int{"EUR": 2, "USD": 2, "JPY": 0, "KWD": 3}
	for i := range 120 {
		currency := []string{"EUR", "USD", "JPY", "KWD"}[random.IntN(4)]
		amount := strconv.Itoa(1 + random.IntN(100_000))
		if digits := scales[currency]; digits > 0 {
			amount += fmt.Sprintf(".%0*d", digits, random.IntN(1000)%[]int{1, 10, 100, 1000}[digits])
		}
		functional := money.MustNumber(amount).Mul(money.MustNumber(rates[currency])).Round(2)
		from, to := random.IntN(len(accounts)), random.IntN(len(accounts))
		dimensions := []string{`{}`, `{"department": "R & D, north"}`, `{"department": "ENG", "date": "x", "project": "[P] 1"}`}[random.IntN(3)]
		lines := fmt.Sprintf(`{"line_number": 1, "account": %q, "debit_credit": "debit", "amount": %s, "currency": %q, "amount_in_reporting_currency": %s, "dimensions": %s},
			{"line_number": 2, "account": %q, "debit_credit": "credit", "amount": %s, "currency": %q, "amount_in_reporting_currency": %s}`,
			accounts[from], amount, currency, functional, dimensions, accounts[to], amount, currency, functional)
		if currency == "USD" {
			lines += `, {"line_number": 3, "account": "7900", "debit_credit": "debit", "amount": 0, "currency": "USD", "amount_in_reporting_currency": 0.07},
				{"line_number": 4, "account": "1000", "debit_credit": "credit", "amount": 0, "currency": "USD", "amount_in_reporting_currency": 0.07}`
		}
		b.add(domain.EventJournalPosted, fmt.Sprintf("2026-03-%02d", 1+random.IntN(31)), fmt.Sprintf(
			`{"journal_number": "GJ-2026-%06d", "journal_type": "general", "description": "For Jane Doe", "functional_currency": "EUR", "lines": [%s]}`, i+1, lines))
	}
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return postgres.NewProjection().Apply(t.Context(), tx, ports.ProjectionBatch{Partition: 7, Events: b.events})
	}))
}

// ReadModel implements cli.API.
func (b *bookFixture) ReadModel(ctx context.Context, path string, query url.Values, out any, _ ...client.Option) error {
	b.asked++
	source := map[string]ports.ReadModelSource{
		"gl/accounts": postgres.NewChart(b.pool), "gl/journal-lines": postgres.NewJournalLines(b.pool), "gl/trial-balance": postgres.NewTrialBalance(b.pool),
		"gl/dimension-balances": postgres.NewDimensionBalances(b.pool),
	}[path]
	q := ports.ReadModelQuery{
		Partition: 7, Entity: ports.LegalEntity{Code: "DEMF"}, AsOf: event.MustDate("2026-12-31"), Known: b.sequence, Params: map[string]string{}, Cursor: query.Get("cursor"), Limit: 50,
	}
	if text := query.Get("as_of"); text != "" {
		q.AsOf = event.MustDate(text)
	}
	if text, ok := strings.CutPrefix(query.Get("known_at"), "seq:"); ok {
		n, err := strconv.Atoi(text)
		if err != nil {
			return err
		}
		q.Known = event.Sequence(n)
	}
	for _, name := range []string{"currency", "dimensions", "account"} {
		if value := query.Get(name); value != "" {
			q.Params[name] = value
		}
	}
	r, err := source.Query(ctx, q)
	if err != nil {
		return err
	}
	rows := r.Rows
	if rows == nil {
		rows = []any{}
	}
	text, err := json.Marshal(map[string]any{
		"header": map[string]string{"as_of": q.AsOf.String(), "sequence": strconv.Itoa(int(q.Known))}, "rows": rows, "next_cursor": r.NextCursor,
	})
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// balances are those of the trial balance that are not zero, by account and currency.
func (b *bookFixture) balances(t *testing.T, asOf string, known int, currencies ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, currency := range currencies {
		query := url.Values{"as_of": {asOf}, "known_at": {"seq:" + strconv.Itoa(known)}}
		if currency != "functional" {
			query.Set("currency", currency)
		}
		var report struct {
			Rows []struct{ Account, Balance string }
		}
		require.NoError(t, b.ReadModel(t.Context(), "gl/trial-balance", query, &report))
		for _, r := range report.Rows {
			if n := money.MustNumber(r.Balance); !n.IsZero() {
				out[r.Account+" "+strings.Replace(currency, "functional", "EUR", 1)] = n.String()
			}
		}
	}
	return out
}

func hledger(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "hledger", args...)
	cmd.Env = append(os.Environ(), "LANG=C.UTF-8", "LC_ALL=C.UTF-8")
	var errors bytes.Buffer
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, errors.String())
	}
	return string(out), err
}

// compareDepartments compares what hledger adds up by the tag department with the balances by
// dimension of an account.
func (b *bookFixture) compareDepartments(t *testing.T, file, asOf string, known int) {
	t.Helper()
	table, err := hledger(t, "-f", file, "bal", "acct:6000", "--pivot", "department", "--flat", "--no-total", "--layout=bare", "-O", "csv")
	require.NoError(t, err)
	rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
	require.NoError(t, err)
	got := map[string]string{}
	for _, row := range rows[1:] {
		department, err := url.QueryUnescape(row[0])
		require.NoError(t, err)
		got[department] = row[2]
	}
	var report struct {
		Rows []struct {
			Dimensions map[string]string
			Balance    string
		}
	}
	require.NoError(t, b.ReadModel(t.Context(), "gl/dimension-balances", url.Values{
		"as_of": {asOf}, "known_at": {"seq:" + strconv.Itoa(known)}, "account": {"6000"}, "dimensions": {"department"},
	}, &report))
	require.NotEmpty(t, report.Rows)
	for _, r := range report.Rows {
		department := strings.Replace(r.Dimensions["department"], "none", "", 1)
		require.Equal(t, money.MustNumber(r.Balance).String(), money.MustNumber(cmp.Or(got[department], "0")).String(), "department %q: %v", department, got)
	}
}

// TestExport_Hledger has another program add up the export: it passes the strict checks and
// has the balances of the trial balance, on both axes.
func TestExport_Hledger(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("hledger"); err != nil {
		t.Skip("hledger is not installed; apt-get install hledger")
	}
	b := newBookFixture(t)
	b.randomMonth(t)
	for _, c := range []struct {
		asOf  string
		known int
	}{{"2026-12-31", int(b.sequence)}, {"2026-03-17", int(b.sequence)}, {"2026-03-31", int(b.sequence) / 2}, {"2026-03-09", int(b.sequence) - 7}} {
		for _, functional := range []bool{true, false} {
			var text bytes.Buffer
			journals, err := cli.Export(t.Context(), b, &text, cli.Options{LegalEntity: "DEMF", AsOf: c.asOf, KnownAt: "seq:" + strconv.Itoa(c.known), Functional: functional})
			require.NoError(t, err)
			require.Positive(t, journals)
			require.NotContains(t, text.String(), "Jane Doe")
			file := filepath.Join(t.TempDir(), "books.journal")
			require.NoError(t, os.WriteFile(file, text.Bytes(), 0o600))
			_, err = hledger(t, "-f", file, "check")
			require.NoError(t, err)
			_, err = hledger(t, "-f", file, "check", "--strict")
			require.NoError(t, err)
			table, err := hledger(t, "-f", file, "bal", "--flat", "--no-total", "--layout=bare", "-O", "csv")
			require.NoError(t, err)
			rows, err := csv.NewReader(strings.NewReader(table)).ReadAll()
			require.NoError(t, err)
			got := map[string]string{}
			for _, row := range rows[1:] {
				if n := money.MustNumber(strings.ReplaceAll(row[2], ",", "")); !n.IsZero() {
					got[row[0]+" "+row[1]] = n.String()
				}
			}
			currencies := []string{"functional"}
			if !functional {
				currencies = []string{"EUR", "USD", "JPY", "KWD"}
			}
			require.Equal(t, b.balances(t, c.asOf, c.known, currencies...), got, "%+v, functional %v", c, functional)
			if functional {
				b.compareDepartments(t, file, c.asOf, c.known)
			}

			// One cent more on one posting is found.
			first := strings.Index(text.String(), "\n    1000  ")
			end := first + 1 + strings.Index(text.String()[first+1:], "\n")
			changed := text.String()[:end] + "\n    1000  1 " + map[bool]string{true: "EUR", false: "JPY"}[functional] + text.String()[end:]
			require.NoError(t, os.WriteFile(file, []byte(changed), 0o600))
			_, err = hledger(t, "-f", file, "check", "--strict")
			require.Error(t, err)
		}
	}
}

func TestExport_Text(t *testing.T) {
	t.Parallel()
	b := newBookFixture(t)
	b.add(domain.EventJournalPosted, "2026-03-02", `{"journal_number": "GJ-2026-000001", "journal_type": "general", "description": "x", "functional_currency": "EUR", "lines": [
		{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 10, "currency": "USD", "amount_in_reporting_currency": 9, "dimensions": {"department": "R & D, north", "date": "x"}},
		{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 10, "currency": "USD", "amount_in_reporting_currency": 9}]}`)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return postgres.NewProjection().Apply(t.Context(), tx, ports.ProjectionBatch{Partition: 7, Events: b.events})
	}))
	var progress []uint64
	var text bytes.Buffer
	journals, err := cli.Export(t.Context(), b, &text, cli.Options{LegalEntity: "DEMF", Functional: true, Progress: func(done, _ uint64) { progress = append(progress, done) }})
	require.NoError(t, err)
	require.Equal(t, 1, journals)
	require.Equal(t, []uint64{uint64(b.sequence)}, progress)
	require.True(t, strings.HasPrefix(text.String(), "; legal entity DEMF, functional currency, effective by 2026-12-31, known at sequence 10\ndecimal-mark .\n\ncommodity 1000.00 EUR\n\naccount 1000  ; type:A, name:Account%2C%20no.%200\n"), text.String())
	last := b.events[len(b.events)-1]
	require.True(t, strings.HasSuffix(text.String(), "\n2026-03-02 (GJ-2026-000001) general\n"+
		"    ; event:"+last.ID.String()+", intent:, correlation:order%2012%2C%20part%203, recorded:2026-03-01T00:00:10.000000Z\n"+
		"    6000  9.00 EUR  ; dimension_date:x, department:R%20%26%20D%2C%20north\n"+
		"    1000  -9.00 EUR\n"), text.String())
	require.True(t, slices.IsSorted(progress))
}

func TestCommand_Usage(t *testing.T) {
	for _, variable := range []string{"BACKBONE_LEGAL_ENTITY", "BACKBONE_TOKEN", "BACKBONE_SERVER"} {
		t.Setenv(variable, "")
	}
	for line, want := range map[string]string{
		"export": "required flag", "export --format saft --legal-entity DEMF --token t -o x": "--format is hledger",
		"export --format hledger --basis both --legal-entity DEMF --token t -o x": "--basis is functional or transaction",
		"export --format hledger --token t -o x":                                  "no legal entity",
		"export --format hledger --legal-entity DEMF -o x":                        "no access token",
	} {
		cmd := cli.Command()
		cmd.SetArgs(strings.Fields(line))
		cmd.SetOut(&bytes.Buffer{})
		cmd.SetErr(&bytes.Buffer{})
		require.ErrorContains(t, cmd.Execute(), want, line)
	}
}
