package ap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	glpostgres "github.com/erpbackbone/backbone/modules/gl/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
	apsql "github.com/erpbackbone/backbone/sql/ap"
	glsql "github.com/erpbackbone/backbone/sql/gl"
	"github.com/erpbackbone/backbone/test/testkit"
)

// bothSchemas opens a database with the schemas of both modules, as the role of readers.
func bothSchemas(t *testing.T) (writer, reader *pgxpool.Pool) {
	t.Helper()
	ledger, err := fs.Sub(glsql.FS, "migrations")
	require.NoError(t, err)
	payable, err := fs.Sub(apsql.FS, "migrations")
	require.NoError(t, err)
	print := ""
	for _, files := range []fs.FS{ledger, payable} {
		of, err := testkit.Fingerprint(files)
		require.NoError(t, err)
		print += of[:min(len(of), 12)]
	}
	dsn := testkit.Database(t, func(ctx context.Context, dsn string) error {
		return migrate.Run(ctx, dsn, nil, migrate.Set{Name: "gl", FS: ledger}, migrate.Set{Name: "ap", FS: payable})
	}, "ap_gl_"+print)
	open := func(role string) *pgxpool.Pool {
		config, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		config.MaxConns = 2
		config.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, "SET ROLE "+role)
			return err
		}
		p, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(p.Close)
		return p
	}
	return open("backbone_app"), open("backbone_reader")
}

// builtUpTo is the progress of projections that have read the log up to a sequence.
type builtUpTo event.Sequence

func (builtUpTo) Active(context.Context, string) (int, error) { return 0, nil }

func (n builtUpTo) Position(context.Context, string, int, event.PartitionID) (event.Sequence, uint64, error) {
	return event.Sequence(n), 0, nil
}

// TestSubledgerControl_AtRandomPoints asks at 60 random sequences, most of which lie inside a
// batch: the subledger and the control account agree at each, per vendor and currency.
func TestSubledgerControl_AtRandomPoints(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	writer, reader := bothSchemas(t)
	b.manyDocuments()
	events := b.all()
	project(t, writer, appostgres.NewProjection(), events, 100)
	project(t, writer, glpostgres.NewProjection(), events, 100)
	models := catalog.ReadModels()
	sources := map[string]ports.ReadModelSource{}
	for path := range models {
		sources[path] = glpostgres.NewChart(reader)
	}
	const path = "gl/subledger-control"
	sources[path] = appostgres.NewSubledgerControl(reader, ap.LedgerProjection)
	sources["gl/trial-balance"] = glpostgres.NewTrialBalance(reader)
	service := query.New(query.Config{
		Log: b.store.Events, Directory: tenancy.New(tenancy.Config{LegalEntities: b.store.Directory, Clock: b.clock}),
		Cursors: query.NewCursorSealer([]byte("0123456789abcdef0123456789abcdef")), Clock: b.clock,
	})
	reports, err := query.NewReports(service, models, sources, builtUpTo(b.head()), time.Second)
	require.NoError(t, err)
	ask := func(path string, known int, asOf string, params map[string]string, out any) ports.Report {
		t.Helper()
		r, err := reports.Query(t.Context(), query.ReportQuery{Path: path, Entity: b.entity, AsOf: asOf, KnownAt: fmt.Sprintf("seq:%d", known), Params: params, Limit: 1000})
		require.NoError(t, err)
		text, err := json.Marshal(r.Rows)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, out))
		return r
	}
	type row struct {
		ControlAccount       string `json:"control_account"`
		Vendor               string `json:"vendor_id"`
		Currency             string `json:"currency"`
		Difference           string `json:"difference"`
		FunctionalDifference string `json:"difference_functional"`
	}
	random := rand.New(rand.NewPCG(5, 6))
	snapped, compared := 0, 0
	for range 60 {
		known, asOf := 1+random.IntN(int(b.head())), fmt.Sprintf("2025-03-%02d", 1+random.IntN(31))
		for _, params := range []map[string]string{nil, {"by_vendor": "true"}} {
			var rows []row
			r := ask(path, known, asOf, params, &rows)
			for _, of := range rows {
				require.Equal(t, []string{"0.00", "0.00"}, []string{of.Difference, of.FunctionalDifference}, "%s of %s as of %s, known %d", of.Currency, of.Vendor, asOf, known)
				require.Equal(t, "2000", of.ControlAccount)
				compared++
			}
			for _, f := range r.Header {
				if f.Name == "snapped_from" {
					snapped++
				}
			}
		}
	}
	require.Greater(t, snapped, 20, "points inside batches")
	require.Greater(t, compared, 100)

	// A journal on the control account that no document knows is a difference.
	b.clock.Advance(time.Second)
	var vendor []row
	ask(path, int(b.head()), "2025-03-31", map[string]string{"vendor": "V1"}, &vendor)
	require.Len(t, vendor, 2, "two currencies")
	stray := events[len(events)-1]
	stray.Type, stray.Sequence = "gl.journal.posted", stray.Sequence+1
	stray.Payload = []byte(`{"data": {"journal_number": "X", "description": "x", "functional_currency": "EUR", "lines": [
		{"line_number": 1, "account": "2000", "debit_credit": "debit", "amount": 1, "currency": "EUR", "dimensions": {"vendor": "V1"}},
		{"line_number": 2, "account": "6000", "debit_credit": "credit", "amount": 1, "currency": "EUR"}]}, "dimensions": {}, "entity_refs": []}`)
	project(t, writer, glpostgres.NewProjection(), []event.Recorded{stray}, 1)
	report, err := sources[path].Query(t.Context(), ports.ReadModelQuery{
		Partition: b.entity.Partition, Entity: b.entity, AsOf: event.MustDate("2025-12-31"), Known: stray.Sequence, Limit: 100,
	})
	require.NoError(t, err)
	require.Equal(t, ports.ReportFields{{Name: "total_difference_functional", Value: "1.00"}}, report.Footer)
}
