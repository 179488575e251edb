//go:build bench

package bench

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

const (
	groupEntities  = 32   // legal entities of a group that is read as one feed
	groupEvents    = 2000 // of each
	replayPage     = 1000 // what a page holds at most
	replayOverHTTP = 20_000
	replayInGo     = 100_000
)

// replay reads all events of the tenant from the beginning, page by page, as a
// reader does that builds a copy; at the end it begins again. Payloads are bytes:
// no reader decodes them.
func (l *readFixture) replay(t *testing.T, o options, address, token string, figures *table, statements *statistics) {
	t.Helper()
	reader := newClients(t, 1, address, token)[0]
	feed := func(tenant string, withoutData bool) func(ctx context.Context, cursor string) (int, bool, string, error) {
		return func(ctx context.Context, cursor string) (int, bool, string, error) {
			page, err := l.server.App.Query.Feed(ctx, query.FeedQuery{TenantID: tenant, Cursor: cursor, Count: replayPage, WithoutData: withoutData})
			return len(page.Events), page.HasMore, page.NextCursor, err
		}
	}
	overHTTP := func(data string) func(ctx context.Context, cursor string) (int, bool, string, error) {
		return func(_ context.Context, cursor string) (int, bool, string, error) {
			answer, err := reader.want(http.StatusOK, http.MethodGet, fmt.Sprintf("/api/streams/$all?count=%d&include_data=%s&from=%s", replayPage, data, cursor), "", nil)
			if err != nil {
				return 0, false, "", err
			}
			n := countEvents(answer)
			return n, n == replayPage, nextCursor(t, answer), nil
		}
	}
	follow := func(name string, next func(ctx context.Context, cursor string) (int, bool, string, error)) *variant {
		cursor := "0"
		return &variant{name: name, measure: func(period time.Duration) (s sample) {
			o.profiled(t, "replay "+name, func() {
				s = drive(t, 1, period, func(ctx context.Context, _ int) (int, error) {
					n, more, following, err := next(ctx, cursor)
					if cursor = following; !more {
						cursor = "0"
					}
					return n, err
				})
			})
			return s
		}}
	}
	var after event.Sequence
	chain := &variant{name: "raw", measure: func(period time.Duration) sample {
		return drive(t, 1, period, func(ctx context.Context, _ int) (int, error) {
			page, err := l.server.App.Store.Audit.ChainPage(ctx, l.entity.Partition, after, replayPage)
			if after = 0; len(page) == replayPage {
				after = page[replayPage-1].Sequence
			}
			return len(page), err
		})
	}}
	goAll, goBare := follow("go with payloads", feed(l.entity.TenantID, false)), follow("go without payloads", feed(l.entity.TenantID, true))
	group := follow("go of a group", feed(l.group(t), false))
	httpAll, httpBare := follow("http with payloads", overHTTP("true")), follow("http without payloads", overHTTP("false"))
	takeTurns(t, o, statements, chain, goAll, goBare, group, httpAll, httpBare)
	require.Positive(t, chain.rate())
	for _, f := range []struct {
		name   string
		v      *variant
		target float64
	}{
		{"Replay of $all through the Go API, payloads as bytes", goAll, replayInGo},
		{"Replay of $all through the Go API, without payloads", goBare, replayInGo},
		{"Replay of $all over HTTP, with payloads", httpAll, replayOverHTTP},
		{"Replay of $all over HTTP, without payloads", httpBare, replayOverHTTP},
	} {
		figures.add(figure{
			name: f.name, value: perSecond(f.v.rate(), "events"), ratio: fmt.Sprintf("%.2f of reading the log", f.v.ratio(chain)),
			target: ">= " + perSecond(f.target, "events"), ok: f.v.rate() >= f.target,
		})
	}
	figures.add(figure{
		name:  fmt.Sprintf("Replay of $all of %d legal entities through the Go API", groupEntities),
		value: perSecond(group.rate(), "events"), ratio: fmt.Sprintf("%.2f of one legal entity's", group.ratio(goAll)),
	})
	figures.addText("   reading the log a page at a time", "%s", perSecond(chain.rate(), "events"))
}

// group fills the logs of a tenant with many legal entities.
func (l *readFixture) group(t *testing.T) (tenant string) {
	t.Helper()
	tenant = "group"
	typ, err := l.server.App.Registry.Lookup(t.Context(), "", invoiceType, 0)
	require.NoError(t, err)
	v := newInvoices(typ.Number)
	for n := range groupEntities {
		le, err := l.server.App.Tenancy.CreateLegalEntity(t.Context(), ports.LegalEntity{
			TenantID: tenant, Code: fmt.Sprintf("LE%02d", n), Name: "Bench", TimeZone: "UTC", Status: "active",
		}, event.Actor{})
		require.NoError(t, err)
		for range groupEvents / batchEvents {
			r := ports.AppendRequest{Partition: le.Partition, Events: make([]event.Prepared, batchEvents)}
			for i := range r.Events {
				r.Events[i] = v.prepare(le, v.number.Add(1), time.Now())
			}
			_, err := l.server.App.Store.Appender.Append(t.Context(), r)
			require.NoError(t, err)
		}
	}
	return tenant
}
