package prometheus

import client "github.com/prometheus/client_golang/prometheus"

// entities are the metrics of folds on read, and of snapshots.
type entities struct {
	snapshotsForged *client.CounterVec
	entityReads     *client.CounterVec
	entityFolded    client.Observer
	entityExhausted client.Counter
}

func newEntities(f factory) entities {
	return entities{
		snapshotsForged: f.counter("backbone_snapshots_forged_total", "Stored snapshots that no node had stored so; they were removed and not used.", "of"),
		entityReads:     f.counter("backbone_entity_reads_total", "Reads of entities, by the consistency that was reached.", "consistency"),
		entityFolded:    f.histogram("backbone_entity_folded_events", "Events that a read of an entity folded.", []float64{0, 10, 100, 1000, 10_000, 100_000}).WithLabelValues(),
		entityExhausted: f.counter("backbone_entity_budget_exhausted_total", "Reads of entities whose time was up before everything was folded.").WithLabelValues(),
	}
}

// SnapshotForged reports a snapshot of an entity, a stream or a projection.
func (e *entities) SnapshotForged(of string) { e.snapshotsForged.WithLabelValues(of).Inc() }

// EntityRead reports what a read of an entity reached, how many events were folded
// for it, and whether its time was up before the fold was complete.
func (e *entities) EntityRead(reached string, folded int, exhausted bool) {
	e.entityReads.WithLabelValues(reached).Inc()
	e.entityFolded.Observe(float64(folded))
	if exhausted {
		e.entityExhausted.Inc()
	}
}
