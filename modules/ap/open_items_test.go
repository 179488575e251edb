package ap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"sort"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
	apsql "github.com/erpbackbone/backbone/sql/ap"
	"github.com/erpbackbone/backbone/test/testkit"
)

// pool opens the tests' database with the module's schema, as the application's role. Each test has the
// partitions of its books.
func pool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	migrations, err := fs.Sub(apsql.FS, "migrations")
	require.NoError(t, err)
	print, err := testkit.Fingerprint(migrations)
	require.NoError(t, err)
	dsn := testkit.SharedDatabase(t, func(ctx context.Context, dsn string) error {
		return migrate.Run(ctx, dsn, nil, migrate.Set{Name: "ap", FS: migrations})
	}, "ap_"+print)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 4
	config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "SET ROLE backbone_app")
		return err
	}
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// all reads the whole log.
func (b *books) all() []event.Recorded {
	b.tb.Helper()
	events, err := b.store.Events.Events(b.tb.Context(), ports.EventQuery{Partition: b.entity.Partition, Limit: 1_000_000})
	require.NoError(b.tb, err)
	return events
}

// project applies events in batches of the given size.
func project(t *testing.T, p *pgxpool.Pool, handler ports.ProjectionHandler, events []event.Recorded, size int) {
	t.Helper()
	for batch := range slices.Chunk(events, size) {
		require.NoError(t, pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
			return handler.Apply(t.Context(), tx, ports.ProjectionBatch{Partition: batch[0].Partition, Events: batch})
		}))
	}
}

// item is a row as it goes over the wire.
type item struct {
	VendorID       string `json:"vendor_id"`
	DocumentID     string `json:"document_id"`
	Number         string `json:"number"`
	Kind           string `json:"kind"`
	InvoiceDate    string `json:"invoice_date"`
	DueDate        string `json:"due_date"`
	Currency       string `json:"currency"`
	Total          string `json:"total"`
	Applied        string `json:"applied"`
	Open           string `json:"open"`
	OpenFunctional string `json:"open_functional"`
	State          string `json:"state"`
	Holds          []struct {
		HoldID string `json:"hold_id"`
		Kind   string `json:"kind"`
		Blocks string `json:"blocks"`
	} `json:"holds"`
	DaysOverdue int               `json:"days_overdue"`
	Dimensions  map[string]string `json:"dimensions"`
	EventID     string            `json:"event_id"`
}

func (b *books) openItems(p *pgxpool.Pool, asOf string, known event.Sequence, params map[string]string) []item {
	b.tb.Helper()
	report, err := appostgres.NewOpenItems(p).Query(b.tb.Context(), ports.ReadModelQuery{
		Partition: b.entity.Partition, Entity: b.entity, AsOf: event.MustDate(asOf), Known: known, KnownAt: fmt.Sprintf("seq:%d", known), Params: params, Limit: 1000,
	})
	require.NoError(b.tb, err)
	require.False(b.tb, report.HasMore)
	return items(b.tb, report)
}

func items(tb testing.TB, report ports.Report) []item {
	tb.Helper()
	raw, err := json.Marshal(report.Rows)
	require.NoError(tb, err)
	var out []item
	require.NoError(tb, json.Unmarshal(raw, &out))
	return out
}

func TestOpenItems_Row(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	b.vendor("V1", nil)
	submitted := b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "A-1", "1000", object{
		"currency": "USD", "rounding_amount": n("0.50"), "due_date": "2025-03-25", "payee_differs": true,
	}))
	id := submitted.Events[0].Stream.ID
	require.Empty(t, b.openItems(p, "2025-12-31", b.head(), nil))
	posted := b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
	project(t, p, appostgres.NewProjection(), b.all(), 7)
	rows := b.openItems(p, "2025-03-31", b.head(), nil)
	require.Len(t, rows, 1)
	require.Equal(t, "PAYEE_DIFFERS", rows[0].Holds[0].Kind)
	require.Equal(t, id+"-H1", rows[0].Holds[0].HoldID)
	require.Equal(t, "payment", rows[0].Holds[0].Blocks)
	rows[0].Holds = nil
	require.Equal(t, item{
		VendorID: "V1", DocumentID: id, Number: "A-1", Kind: "invoice", InvoiceDate: "2025-03-15", DueDate: "2025-03-25", Currency: "USD",
		Total: "1000.50", Applied: "0.00", Open: "1000.50", OpenFunctional: "924.96", State: "posted", DaysOverdue: 6,
		Dimensions: map[string]string{"department": "PROD"}, EventID: posted.Events[2].ID.String(),
	}, rows[0])
	require.Zero(t, b.openItems(p, "2025-03-25", b.head(), nil)[0].DaysOverdue)
	require.Empty(t, b.openItems(p, "2025-03-14", b.head(), nil), "before the posting date")
	require.Empty(t, b.openItems(p, "2025-03-31", posted.Events[2].Sequence-1, nil), "before it was known")

	// A hold taken off today is still on as of yesterday, and as known before.
	before := b.head()
	b.execute("approver", "ap.release_hold", object{"hold_id": id + "-H1", "reason": "contract on file"})
	project(t, p, appostgres.NewProjection(), b.all(), 1000)
	require.Empty(t, b.openItems(p, "2025-03-20", b.head(), nil)[0].Holds)
	require.Len(t, b.openItems(p, "2025-03-19", b.head(), nil)[0].Holds, 1)
	require.Len(t, b.openItems(p, "2025-03-20", before, nil)[0].Holds, 1)
}

// manyDocuments fills the books with documents of every kind, posted on dates that
// do not follow the order of recording.
func (b *books) manyDocuments() {
	b.tb.Helper()
	for _, v := range []string{"V1", "V2", "V3"} {
		b.vendor(v, nil)
	}
	for i := range 36 {
		kind := []string{"invoice", "credit_memo", "invoice"}[i%3]
		more := object{"invoice_date": fmt.Sprintf("2025-03-%02d", 1+(i*7)%28), "currency": []string{"EUR", "USD"}[i%2], "payee_differs": i%4 == 0}
		if kind == "invoice" {
			more["document_type"] = []string{"standard", "prepayment", "opening"}[(i/3)%3]
		}
		id := b.execute("ap_clerk", "ap.submit_"+kind, documentPayload(fmt.Sprintf("V%d", 1+i%3), fmt.Sprintf("N%dX", i), fmt.Sprintf("%d.%02d", 100+i*13, i*7%100), more)).Events[0].Stream.ID
		if i%5 == 4 {
			continue // stays unapproved
		}
		b.execute("cfo", "ap.approve_"+kind, object{kind + "_id": id, "posting_date": fmt.Sprintf("2025-03-%02d", 1+(i*11)%28)})
		if i%8 == 0 {
			b.execute("approver", "ap.release_hold", object{"hold_id": id + "-H1", "reason": "checked"})
		}
	}
}

// naive folds the log into open amounts by document and the control account's
// credit balance, in functional currency.
func naive(tb testing.TB, events []event.Recorded, asOf event.Date, known event.Sequence) (open map[string]string, control money.Number) {
	tb.Helper()
	open = map[string]string{}
	for _, e := range events {
		if e.EffectiveDate > asOf || e.Sequence > known {
			continue
		}
		body, err := e.Body()
		require.NoError(tb, err)
		switch e.Type {
		case "ap.invoice.posted", "ap.credit_memo.posted":
			var d struct {
				Amount money.Number `json:"amount"`
			}
			require.NoError(tb, json.Unmarshal(body.Data, &d))
			if e.Type == "ap.credit_memo.posted" {
				d.Amount = d.Amount.Neg()
			}
			open[e.Stream.ID] = d.Amount.Fixed(2)
		case "gl.journal.posted":
			var d struct {
				Lines []struct {
					Account    string       `json:"account"`
					Side       string       `json:"debit_credit"`
					Functional money.Number `json:"amount_in_reporting_currency"`
				} `json:"lines"`
			}
			require.NoError(tb, json.Unmarshal(body.Data, &d))
			for _, l := range d.Lines {
				if l.Account != "2000" {
					continue
				}
				if l.Side == "debit" {
					l.Functional = l.Functional.Neg()
				}
				control = control.Add(l.Functional)
			}
		}
	}
	return open, control
}

func TestOpenItems_EqualControlAccount(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	b.manyDocuments()
	events := b.all()
	project(t, p, appostgres.NewProjection(), events, 11)
	project(t, p, appostgres.NewProjection(), events, 1000) // a second time changes nothing
	// A sequence inside a batch shows the journal without the posting that copies
	// it, so figures are compared where batches end.
	var ends []event.Sequence
	for i, e := range events {
		if i+1 == len(events) || (events[i+1].IntentID != e.IntentID && i%3 == 0) {
			ends = append(ends, e.Sequence)
		}
	}
	for day := 1; day <= 31; day += 3 {
		asOf := fmt.Sprintf("2025-03-%02d", day)
		for _, known := range ends {
			open, control := naive(t, events, event.MustDate(asOf), known)
			var sum money.Number
			got := map[string]string{}
			for _, r := range b.openItems(p, asOf, known, nil) {
				sum = sum.Add(money.MustNumber(r.OpenFunctional))
				got[r.DocumentID] = r.Open
			}
			require.Equal(t, open, got, "as of %s, known %d", asOf, known)
			require.True(t, sum.Equal(control), "as of %s, known %d: %s in the subledger, %s on the account", asOf, known, sum, control)
		}
	}
}

func TestOpenItems_FiltersAndPages(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	b.manyDocuments()
	project(t, p, appostgres.NewProjection(), b.all(), 50)
	all := b.openItems(p, "2025-12-31", b.head(), nil)
	require.True(t, sort.SliceIsSorted(all, func(i, j int) bool {
		return fmt.Sprint(all[i].VendorID, all[i].DueDate, all[i].DocumentID) < fmt.Sprint(all[j].VendorID, all[j].DueDate, all[j].DocumentID)
	}))
	kinds := map[string]int{}
	for _, r := range all {
		kinds[r.Kind]++
		require.Equal(t, r.Kind == "credit_memo", r.Open[0] == '-')
	}
	require.Len(t, kinds, 4)
	for name, c := range map[string]struct {
		params map[string]string
		keep   func(item) bool
	}{
		"vendor":     {map[string]string{"vendor": "V2"}, func(r item) bool { return r.VendorID == "V2" }},
		"currency":   {map[string]string{"currency": "USD"}, func(r item) bool { return r.Currency == "USD" }},
		"due_before": {map[string]string{"due_before": "2025-04-10"}, func(r item) bool { return r.DueDate < "2025-04-10" }},
		"held":       {map[string]string{"held": "true"}, func(r item) bool { return len(r.Holds) > 0 }},
		"not held":   {map[string]string{"held": "false"}, func(r item) bool { return len(r.Holds) == 0 }},
		"kind":       {map[string]string{"kind": "prepayment"}, func(r item) bool { return r.Kind == "prepayment" }},
		"several":    {map[string]string{"vendor": "V1", "currency": "EUR", "held": "false"}, func(r item) bool { return r.VendorID == "V1" && r.Currency == "EUR" && len(r.Holds) == 0 }},
		"unknown":    {map[string]string{"vendor": "V9"}, func(item) bool { return false }},
	} {
		var want []item
		for _, r := range all {
			if c.keep(r) {
				want = append(want, r)
			}
		}
		got := b.openItems(p, "2025-12-31", b.head(), c.params)
		require.Len(t, got, len(want), name)
		for i := range want {
			require.Equal(t, want[i], got[i], name)
		}
	}

	source := appostgres.NewOpenItems(p)
	q := ports.ReadModelQuery{Partition: b.entity.Partition, Entity: b.entity, AsOf: event.MustDate("2025-12-31"), Known: b.head(), KnownAt: "x", Limit: 4}
	var paged []item
	for {
		report, err := source.Query(t.Context(), q)
		require.NoError(t, err)
		paged = append(paged, items(t, report)...)
		if q.Cursor = report.NextCursor; !report.HasMore {
			break
		}
		require.Len(t, report.Rows, 4)
	}
	require.Equal(t, all, paged)

	for code, bad := range map[string]ports.ReadModelQuery{
		"cursor.invalid":           {Cursor: "x"},
		"report.parameter_invalid": {Params: map[string]string{"kind": "toast"}},
	} {
		_, err := source.Query(t.Context(), bad)
		require.Equal(t, code, fault.CodeOf(err))
	}
	for _, name := range []string{"held", "due_before"} {
		_, err := source.Query(t.Context(), ports.ReadModelQuery{Params: map[string]string{name: "perhaps"}})
		require.Equal(t, "report.parameter_invalid", fault.CodeOf(err), name)
	}
}

// TestReadModelGrants checks that the primary key of every table begins with partition_id, and
// that the role of readers may only select.
func TestReadModelGrants(t *testing.T) {
	t.Parallel()
	p := pool(t)
	rows, err := p.Query(t.Context(), `SELECT c.relname, has_table_privilege('backbone_reader', c.oid, 'SELECT'), has_table_privilege('backbone_reader', c.oid, 'INSERT, UPDATE, DELETE'),
		(SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0] WHERE i.indrelid = c.oid AND i.indisprimary)
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = 'ap' AND c.relkind = 'r'`)
	require.NoError(t, err)
	defer rows.Close()
	tables := 0
	for rows.Next() {
		var name, first string
		var mayRead, mayWrite bool
		require.NoError(t, rows.Scan(&name, &mayRead, &mayWrite, &first))
		require.True(t, mayRead, name)
		require.False(t, mayWrite, name)
		require.Equal(t, "partition_id", first, name)
		tables++
	}
	require.NoError(t, rows.Err())
	require.Equal(t, 17, tables)
}
