package cli_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
	glsql "github.com/erpbackbone/backbone/sql/gl"
	"github.com/erpbackbone/backbone/test/testkit"
)

var _ cli.API = (*bookFixture)(nil)

// bookFixture is a ledger's read models with journals in four currencies. It answers like a
// server.
type bookFixture struct {
	pool      *pgxpool.Pool
	partition event.PartitionID
	sequence  event.Sequence
	events    []event.Recorded
	asked     int
	payables  map[string]string // path, and ?as_of= where it matters, to a report
}

// partitions counts those of the fixtures, which share a database.
var partitions atomic.Int32

func TestMain(m *testing.M) { os.Exit(testkit.Run(m)) }

func newBookFixture(t *testing.T) *bookFixture {
	t.Helper()
	files, err := fs.Sub(glsql.FS, "migrations")
	require.NoError(t, err)
	print, err := testkit.Fingerprint(files)
	require.NoError(t, err)
	dsn := testkit.SharedDatabase(t, func(ctx context.Context, dsn string) error {
		return migrate.Run(ctx, dsn, nil, migrate.Set{Name: "gl", FS: files})
	}, "gl_read_models_"+print)
	pool, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := &bookFixture{pool: pool, partition: event.PartitionID(partitions.Add(1))}
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
			Partition: b.partition, Sequence: b.sequence, ID: id, Type: eventType, RecordedAt: at, CorrelationID: "order 12, part 3",
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
	b.apply(t)
}

// ReadModel implements cli.API. Reports of accounts payable are those that payables has.
func (b *bookFixture) ReadModel(ctx context.Context, path string, query url.Values, out any, _ ...client.Option) error {
	b.asked++
	if text, known := b.payables[path+"?as_of="+query.Get("as_of")]; known {
		return json.Unmarshal([]byte(text), out)
	}
	if text, known := b.payables[path]; known {
		return json.Unmarshal([]byte(text), out)
	}
	source := map[string]ports.ReadModelSource{
		"gl/accounts": postgres.NewChart(b.pool), "gl/journal-lines": postgres.NewJournalLines(b.pool), "gl/trial-balance": postgres.NewTrialBalance(b.pool),
		"gl/dimension-balances": postgres.NewDimensionBalances(b.pool), "gl/journals": postgres.NewJournals(b.pool), "gl/periods": postgres.NewPeriods(b.pool),
	}[path]
	if source == nil {
		return fault.New(fault.NotFound, "request.not_found", "there is no %s; correct the path", path)
	}
	q := ports.ReadModelQuery{
		Partition: b.partition, Entity: ports.LegalEntity{Code: "DEMF"}, AsOf: event.MustDate("2026-12-31"), Known: b.sequence, Params: map[string]string{}, Cursor: query.Get("cursor"), Limit: 50,
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
	for _, name := range []string{"currency", "dimensions", "account", "from", "module"} {
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
	header := map[string]any{"sequence": strconv.Itoa(int(q.Known))}
	document := map[string]any{"header": header, cmp.Or(r.RowsName, "rows"): rows, "next_cursor": r.NextCursor}
	for _, f := range r.Header {
		header[f.Name] = f.Value
	}
	for _, f := range r.Footer {
		document[f.Name] = f.Value
	}
	text, err := json.Marshal(document)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, out)
}

// ReadStream implements cli.API: it has the stream of the ledger's settings only.
func (b *bookFixture) ReadStream(_ context.Context, _, _ string, params client.ReadStreamParams, _ ...client.Option) (client.StreamPage, error) {
	known, err := strconv.Atoi(strings.TrimPrefix(params.KnownAt, "seq:"))
	if err != nil {
		return client.StreamPage{}, err
	}
	for _, e := range slices.Backward(b.events[:known]) {
		if e.Type == domain.EventLedgerConfigured {
			data, err := e.Data()
			return client.StreamPage{Events: []client.Event{{Data: data}}}, err
		}
	}
	return client.StreamPage{}, nil
}

// ListEvents implements cli.API: it answers the last event up to a sequence.
func (b *bookFixture) ListEvents(_ context.Context, params client.ListEventsParams, _ ...client.Option) (client.EventPage, error) {
	last, err := strconv.Atoi(params.ToSequence)
	if err != nil {
		return client.EventPage{}, err
	}
	return client.EventPage{Events: []client.Event{{RecordedAt: b.events[last-1].RecordedAt}}}, nil
}

// ListLegalEntities implements cli.API.
func (b *bookFixture) ListLegalEntities(context.Context, ...client.Option) (client.LegalEntityList, error) {
	return client.LegalEntityList{LegalEntities: []client.LegalEntity{{Code: "USMF", Name: "Other"}, {Code: "DEMF", Name: "Demo <Nord> & Sønn AS"}}}, nil
}

// apply writes the rows of all events.
func (b *bookFixture) apply(t *testing.T) {
	t.Helper()
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return postgres.NewProjection().Apply(t.Context(), tx, ports.ProjectionBatch{Partition: b.partition, Events: b.events})
	}))
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
			Accounts []struct{ Account, Balance string }
		}
		require.NoError(t, b.ReadModel(t.Context(), "gl/trial-balance", query, &report))
		for _, r := range report.Accounts {
			if n := money.MustNumber(r.Balance); !n.IsZero() {
				out[r.Account+" "+strings.Replace(currency, "functional", "EUR", 1)] = n.String()
			}
		}
	}
	return out
}
