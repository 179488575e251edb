//go:build bench

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

const (
	chains     = 50
	chainLinks = query.MaxLineageDepth + 1 // causalChain, and the event asked for
	smallPage  = 50
	farPage    = 10_000
)

// causalChain are chains of events, each caused by the one before. They are written link by
// link while the store is filled, so that they lie scattered.
type causalChain struct {
	mu    sync.Mutex
	ends  []event.ID // of each chain
	first []event.ID
	all   []event.ID
	links int
}

// link writes the next event of every chain.
func (l *readFixture) link(ctx context.Context, v *invoices) error {
	c := &l.causes
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.links == chainLinks {
		return nil
	}
	r := ports.AppendRequest{Partition: l.entity.Partition, Events: make([]event.Prepared, chains)}
	ends := make([]event.ID, chains)
	for i := range r.Events {
		r.Events[i] = v.prepare(l.entity, int64(1)<<40+int64(c.links*chains+i), time.Now())
		ends[i] = r.Events[i].ID
		if c.links > 0 {
			r.Events[i].CausedBy = c.ends[i]
		}
	}
	if c.links++; c.links == 1 {
		c.first = ends
	}
	c.ends, c.all = ends, append(c.all, ends...)
	_, err := l.server.App.Store.Appender.Append(ctx, r)
	return err
}

// steps of reading what caused what, and business processes.
func (l *readFixture) causalitySteps(address, token string, t *testing.T) []readStep {
	alone := newClients(t, 1, address, token)[0]
	within := 50 * time.Millisecond
	ask := func(want int, path string) (int, error) {
		answer, err := alone.want(http.StatusOK, http.MethodGet, path, "", nil)
		if err != nil {
			return 0, err
		}
		if n := countEvents(answer); n < want {
			return 0, fmt.Errorf("%s has %d events instead of %d", path, n, want)
		}
		return 1, nil
	}
	any := func(ids []event.ID) string { return ids[rand.IntN(len(ids))].String() }
	steps := []readStep{
		{fmt.Sprintf("Lineage of depth %d over HTTP, 1 client", chainLinks-1), 1, within, func(context.Context, int) (int, error) {
			return ask(chainLinks, "/api/events/"+any(l.causes.ends)+"/lineage?legal_entity="+l.entity.Code)
		}},
		{fmt.Sprintf("Descendants to depth %d over HTTP, 1 client", chainLinks-1), 1, within, func(context.Context, int) (int, error) {
			return ask(chainLinks-1, "/api/events/"+any(l.causes.first)+"/descendants?legal_entity="+l.entity.Code)
		}},
	}
	expected := min(streamEvents, max(1, len(l.ids)/longShare))
	return append(steps, readStep{fmt.Sprintf("Process trace of %d events over HTTP, 1 client", expected), 1, within, func(context.Context, int) (int, error) {
		return ask(expected, "/api/events/process/"+l.processes[rand.IntN(len(l.processes))])
	}})
}

// offsets compares a page far into a query with its first page.
func (l *readFixture) offsets(t *testing.T, o options, address, token string, figures *table, statements *statistics) {
	t.Helper()
	c := newClients(t, 1, address, token)[0]
	skip := min((farPage-1)*smallPage, len(l.ids)/1000*1000-1000)
	if skip < 1000 {
		return
	}
	for name, where := range map[string]string{
		"log": "stream_type=scope&stream_id=" + l.entity.Code, "type": "stream_type=type&stream_id=" + invoiceType + "&legal_entity=" + l.entity.Code,
	} {
		page := func(limit int, cursor string) ([]byte, error) {
			path := fmt.Sprintf("/api/events?%s&limit=%d", where, limit)
			if cursor != "" {
				path += "&cursor=" + cursor
			}
			return c.want(http.StatusOK, http.MethodGet, path, "", nil)
		}
		cursor := ""
		for left := skip; left > 0; {
			n := min(left, 1000)
			answer, err := page(n, cursor)
			require.NoError(t, err)
			cursor = nextCursor(t, answer)
			left -= n
		}
		turn := func(cursor string) func(time.Duration) sample {
			return func(period time.Duration) sample {
				return drive(t, 1, period, func(context.Context, int) (int, error) {
					answer, err := page(smallPage, cursor)
					if err == nil && countEvents(answer) != smallPage {
						err = fmt.Errorf("a page has %d events", countEvents(answer))
					}
					return 1, err
				})
			}
		}
		first := &variant{name: "page 1 of the " + name, measure: turn("")}
		far := &variant{name: fmt.Sprintf("page %d of the %s", skip/smallPage+1, name), measure: turn(cursor)}
		takeTurns(t, o, statements, first, far)
		cost := first.ratio(far)
		figures.add(figure{
			name: "Cost of " + far.name, value: latency(quantile(far.latencies(), 0.5)), ratio: fmt.Sprintf("%.2f of page 1", cost),
			target: "< 1.30", ok: cost < 1.3,
		})
	}
}

// nextCursor is the last member of a page.
func nextCursor(t *testing.T, answer []byte) string {
	t.Helper()
	at := bytes.LastIndex(answer, []byte(`,"has_more":`))
	require.Positive(t, at)
	var end struct {
		NextCursor string `json:"next_cursor"`
	}
	require.NoError(t, json.Unmarshal(append([]byte("{"), answer[at+1:]...), &end))
	require.NotEmpty(t, end.NextCursor)
	return end.NextCursor
}
