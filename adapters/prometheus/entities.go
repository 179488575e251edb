package prometheus

import client "github.com/prometheus/client_golang/prometheus"

// entities are the metrics of folds on read.
type entities struct {
	entityReads     *client.CounterVec
	entityFolded    client.Histogram
	entityExhausted client.Counter
}

func newEntities(registry client.Registerer) entities {
	e := entities{
		entityReads: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_entity_reads_total", Help: "Reads of entities, by the consistency that was reached.",
		}, []string{"consistency"}),
		entityFolded: client.NewHistogram(client.HistogramOpts{
			Name: "backbone_entity_folded_events", Help: "Events that a read of an entity folded.", Buckets: []float64{0, 10, 100, 1000, 10_000, 100_000},
		}),
		entityExhausted: client.NewCounter(client.CounterOpts{
			Name: "backbone_entity_budget_exhausted_total", Help: "Reads of entities whose time was up before everything was folded.",
		}),
	}
	registry.MustRegister(e.entityReads, e.entityFolded, e.entityExhausted)
	return e
}

// EntityRead reports what a read of an entity reached, how many events were folded
// for it, and whether its time was up before the fold was complete.
func (e *entities) EntityRead(reached string, folded int, exhausted bool) {
	e.entityReads.WithLabelValues(reached).Inc()
	e.entityFolded.Observe(float64(folded))
	if exhausted {
		e.entityExhausted.Inc()
	}
}
