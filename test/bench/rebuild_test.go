//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/modules/gl"
)

// rebuildFixture measures a projection that is rebuilt on a working node, while events
// are appended at the steady rate.
type rebuildFixture struct {
	*books
	t        *testing.T
	node     *node
	operator *client
	invoices *invoices
}

// rebuildStatus is the answer of the API about a rebuild.
type rebuildStatus struct {
	Active   int   `json:"active"`
	Dropping []int `json:"dropping"`
	Building *struct {
		Version  int    `json:"version"`
		Done     string `json:"done_events"`
		CaughtUp bool   `json:"caught_up"`
		Faulted  int    `json:"faulted"`
	} `json:"building"`
}

func (r *rebuildFixture) request(method, verb, body string) (s rebuildStatus) {
	var content []byte
	if body != "" {
		content = []byte(body)
	}
	answer, err := r.operator.want(http.StatusOK, method, "/api/admin/projections/"+gl.ProjectionLedger+"/"+verb, "", content)
	require.NoError(r.t, err)
	require.NoError(r.t, json.Unmarshal(answer, &s))
	return s
}

// appendUntil appends invoices at the steady rate until finished returns true, and returns the
// latencies of the appends.
func (r *rebuildFixture) appendUntil(finished func() bool) sample {
	ctx, stop := context.WithCancel(r.t.Context())
	var running sync.WaitGroup
	pace := tokens(ctx, &running)
	var mu sync.Mutex
	var latencies []time.Duration
	s := drive(r.t, deliveryCallers, time.Minute, func(ctx context.Context, caller int) (int, error) {
		if finished() {
			return 0, context.Canceled // ends all callers
		}
		select {
		case <-pace:
		case <-time.After(10 * time.Millisecond):
			return 0, nil
		}
		request := r.invoices.request(r.parts[caller%deliveryEntities].LegalEntity, 1)
		before := time.Now()
		_, err := r.node.server.App.Store.Appender.Append(ctx, request)
		mu.Lock()
		latencies = append(latencies, time.Since(before))
		mu.Unlock()
		return 1, err
	})
	stop()
	running.Wait()
	slices.Sort(latencies)
	s.latencies = latencies
	return s
}

// measureAppends appends without a rebuild.
func (r *rebuildFixture) measureAppends(period time.Duration) sample {
	started := time.Now()
	return r.appendUntil(func() bool { return time.Since(started) >= period })
}

// measureDuringRebuild rebuilds once while events are appended. It returns how many events the
// new version read until it could be activated, and the appends during the rebuild.
func (r *rebuildFixture) measureDuringRebuild() (passed, appended sample) {
	var finished atomic.Bool
	var running sync.WaitGroup
	running.Go(func() {
		defer finished.Store(true)
		started := time.Now()
		b := r.request(http.MethodPost, "rebuild", `{"switch":false}`).Building
		for tick := time.NewTicker(10 * time.Millisecond); b != nil && !b.CaughtUp; b = r.request(http.MethodGet, "rebuild", "").Building {
			if time.Since(started) > 30*time.Second {
				tick.Stop()
				r.t.Errorf("the rebuild did not catch up")
				return
			}
			<-tick.C
		}
		passed.elapsed = time.Since(started)
		if b == nil || b.Faulted > 0 {
			r.t.Errorf("the rebuild was lost or is stalled")
			return
		}
		var err error
		if passed.count, err = strconv.Atoi(b.Done); err != nil {
			r.t.Errorf("events that were passed: %v", err)
		}
	})
	appended = r.appendUntil(finished.Load)
	running.Wait()
	return passed, appended
}

// dropVersion ends the rebuild and waits until its rows are removed.
func (r *rebuildFixture) dropVersion() {
	s := r.request(http.MethodPost, "cancel", "")
	// Rows are removed in small steps; the time for it is not measured.
	for _, version := range s.Dropping {
		for _, table := range []string{"gl.journal_lines", "gl.journal_reversals", "gl.journals", "gl.accounts", "gl.ledgers"} {
			execute(r.t, r.dsn, "DELETE FROM "+table+" WHERE version = "+strconv.Itoa(version))
		}
	}
	require.Eventually(r.t, func() bool { return len(r.request(http.MethodGet, "rebuild", "").Dropping) == 0 }, time.Minute, 50*time.Millisecond)
}

// reportRebuild measures a rebuild beside the active version.
func reportRebuild(t *testing.T, o options, s *bookFixtures, figures *table) {
	n := s.node(t)
	b := s.books(t)
	typ, err := n.server.App.Registry.Lookup(t.Context(), "", invoiceType, 0)
	require.NoError(t, err)
	r := &rebuildFixture{books: b, t: t, node: n, operator: newClients(t, 1, n.address, b.tokens["operator"])[0], invoices: newInvoices(typ.Number)}
	var appends []sample
	alone := &variant{name: "appends, no rebuild", measure: r.measureAppends}
	rebuild := &variant{name: "rebuild of gl.ledger", measure: func(time.Duration) sample {
		passed, appended := r.measureDuringRebuild()
		r.dropVersion()
		appends = append(appends, appended)
		return passed
	}}
	statements := newStatistics(t, s.cluster, o)
	o.period /= 2
	o.profiled(t, "rebuild", func() { takeTurns(t, o, statements, alone, rebuild) })
	awaitCaughtUp(t, n.server.App)

	during := &variant{samples: appends[1:]} // the first was the warming up
	figures.addText("Rebuild of gl.ledger, while events are appended", "%s", perSecond(rebuild.rate(), "events"))
	figures.addText("   events until it can be switched to, time", "%d, %.2f s", rebuild.samples[0].count, rebuild.samples[0].elapsed.Seconds())
	figures.addText("   append rate without and with the rebuild", "%s, %s", perSecond(alone.rate(), "events"), perSecond(during.rate(), "events"))
	without, with := alone.latencies(), during.latencies()
	figures.addText("   append latency p50, p99 without", "%s, %s", latency(quantile(without, 0.5)), latency(quantile(without, 0.99)))
	figures.addText("   append latency p50, p99 with", "%s, %s", latency(quantile(with, 0.5)), latency(quantile(with, 0.99)))
}
