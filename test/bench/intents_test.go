//go:build bench

package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/cmd/cli"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/modules"
)

const (
	intentClients = 64
	intentEntity  = "USMF"
)

// reportIntents measures a business transaction from request to answer: HTTP, access,
// schema, planning on folded state, policies, append; while the projections of accounts
// payable and the ledger run.
func reportIntents(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "intents", func(ctx context.Context, dsn string) error { return wire.Migrate(ctx, dsn, nil, modules.BuiltIn()...) })
	server, address := serve(t, dsn, true)
	started := time.Now()
	tokens, err := cli.SetUpDemo(t.Context(), server.App, modules.BuiltIn(), nil, true, nil)
	require.NoError(t, err)
	printLine("books of the demonstration set up in %s", time.Since(started).Round(10*time.Millisecond))
	registerVendors(t, newClients(t, 1, address, tokens["vendor_admin"])[0])

	clients := newClients(t, intentClients, address, tokens["ap_clerk"])
	var number, events atomic.Int64
	step := func(_ context.Context, caller int) (int, error) {
		n := number.Add(1)
		answer, err := clients[caller].want(http.StatusCreated, http.MethodPost, "/api/intents", fmt.Sprintf("bench-%d", n), submission(n))
		if err != nil {
			return 0, err
		}
		events.Add(int64(bytes.Count(answer, []byte(`"stream_version"`))))
		return 1, nil
	}
	drive(t, intentClients, min(o.period, 2*time.Second), step)

	statements, meter := newStatistics(t, cluster, o), newMeter(t, cluster)
	statements.reset(t)
	var rates, eventRates []float64
	v := &variant{}
	before := meter.read()
	started = time.Now()
	o.profiled(t, "intents", func() {
		for round := range o.rounds {
			events.Store(0)
			s := drive(t, intentClients, o.period, step)
			v.samples = append(v.samples, s)
			rates = append(rates, s.rate())
			eventRates = append(eventRates, float64(events.Load())/s.elapsed.Seconds())
			printLine("round %d: intents over HTTP: %s, %s", round+1, perSecond(rates[round], "intents"), perSecond(eventRates[round], "events"))
		}
	})
	effort := meter.spent(before, time.Since(started))
	statements.write(t, "intents")

	const aim = 3000
	intents := median(rates)
	figures.add(figure{name: "ap.submit_invoice over HTTP, 64 clients", value: perSecond(intents, "intents"), target: ">= 3,000", ok: intents >= aim})
	perIntent := median(eventRates) / intents
	figures.addText("   events", "%s (%.1f per intent)", perSecond(median(eventRates), "events"), perIntent)
	latencies := v.latencies()
	figures.addText("   latency p50, p99", "%s, %s", latency(quantile(latencies, 0.5)), latency(quantile(latencies, 0.99)))
	figures.addText("   processor", "%s", effort)

	// A refused intent is stored and recorded in the log too. Each of these repeats the number of
	// an invoice that was accepted.
	taken := submission(1)
	refused := &variant{name: "refused, 64 clients", measure: func(d time.Duration) sample {
		return drive(t, intentClients, d, func(_ context.Context, caller int) (int, error) {
			_, err := clients[caller].want(http.StatusConflict, http.MethodPost, "/api/intents", fmt.Sprintf("bench-refused-%d", number.Add(1)), taken)
			return 1, err
		})
	}}
	accepted := &variant{name: "accepted, 64 clients", measure: func(d time.Duration) sample { return drive(t, intentClients, d, step) }}
	takeTurns(t, o, nil, accepted, refused)
	figures.add(figure{name: "Refused ap.submit_invoice over HTTP, 64 clients", value: perSecond(refused.rate(), "intents"), ratio: fmt.Sprintf("%.2f of accepted", refused.ratio(accepted))})
}

// registerVendors makes the vendors of the invoices.
func registerVendors(t *testing.T, c *client) {
	t.Helper()
	for n := range int64(vendors) {
		id := vendorID(n)
		body := fmt.Appendf(nil, `{"type":"ap.register_vendor","legal_entity":%q,"payload":{"vendor_id":%q,"name":"Contoso Supply Ltd","country":"US"}}`, intentEntity, id)
		_, err := c.want(http.StatusCreated, http.MethodPost, "/api/intents", "vendor-"+id, body)
		require.NoError(t, err)
	}
}

// submission is the body that submits the n-th invoice.
func submission(n int64) []byte {
	body := make([]byte, 0, 1536)
	body = fmt.Appendf(body, `{"type":"ap.submit_invoice","legal_entity":%q,"payload":`, intentEntity)
	body = appendDocument(body, n)
	return append(body, "}}"...)
}
