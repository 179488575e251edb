//go:build bench

package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
)

// reportConditions measures appends under a condition over one tag, each caller
// with another tag, against the same appends without it.
func reportConditions(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "conditions", func(ctx context.Context, dsn string) error { return migrate.Run(ctx, dsn, nil) })
	e := openEngine(t, dsn, 1)
	last := make([]event.Sequence, appendCallers)
	measure := func(conditional bool) func(time.Duration) sample {
		return func(period time.Duration) sample {
			return drive(t, appendCallers, period, func(ctx context.Context, caller int) (int, error) {
				r := e.invoices.request(e.entities[0], 1)
				tag := fmt.Sprint("decision:", caller)
				r.Events[0].Tags = append(r.Events[0].Tags, tag)
				r.Events[0].Keys = append(r.Events[0].Keys, event.TagKey(tag))
				if conditional {
					r.Conditions = []concurrency.AppendCondition{{Items: []concurrency.Item{{Tags: []string{tag}}}, After: last[caller]}}
				}
				result, err := e.store.Appender.Append(ctx, r)
				last[caller] = result.Head
				return 1, err
			})
		}
	}
	free := &variant{name: "64 callers, one more tag", measure: measure(false)}
	guarded := &variant{name: "64 callers, a condition over one tag", measure: measure(true)}
	statements := newStatistics(t, cluster, o)
	o.profiled(t, "conditions", func() { takeTurns(t, o, statements, free, guarded) })
	figures.addText("Append: "+free.name, "%s", perSecond(free.rate(), "events"))
	figures.addRate("Append: "+guarded.name, guarded.rate(), guarded.ratio(free), "unconditional", 0.8)
	latencies := guarded.latencies()
	figures.addText("   latency p50, p99", "%s, %s", latency(quantile(latencies, 0.5)), latency(quantile(latencies, 0.99)))
}
