package prometheus

import (
	"strconv"

	client "github.com/prometheus/client_golang/prometheus"

	"github.com/erpbackbone/backbone/domain/event"
)

// projections are the metrics of read models. A partition is reported by the node that
// works it.
type projections struct {
	lagEvents   *client.GaugeVec
	lagSeconds  *client.GaugeVec
	advanced    *client.CounterVec
	failures    *client.CounterVec
	deadLetters *client.CounterVec
	leases      *client.CounterVec
}

func newProjections(f factory) projections {
	return projections{
		lagEvents:   f.gauge("backbone_projection_lag_events", "Events of a partition that a projection has not read yet.", "projection", "partition"),
		lagSeconds:  f.gauge("backbone_projection_lag_seconds", "Age of the oldest event that a projection has not read, else 0; lag_seconds of the API.", "projection", "partition"),
		advanced:    f.counter("backbone_projection_events_total", "Events that a projection passed.", "projection"),
		failures:    f.counter("backbone_projection_failures_total", "Attempts of a projection that were rolled back.", "projection"),
		deadLetters: f.counter("backbone_projection_dead_letters_total", "Events that a projection could not digest.", "projection"),
		leases:      f.counter("backbone_projection_lease_changes_total", "Leases of a projection that this node took, lost or released, by change.", "projection", "change"),
	}
}

func partitionLabel(p event.PartitionID) string { return strconv.FormatUint(uint64(p), 10) }

// ProjectionLag reports how far a projection is behind in a partition.
func (m *projections) ProjectionLag(projection string, p event.PartitionID, events uint64, seconds float64) {
	m.lagEvents.WithLabelValues(projection, partitionLabel(p)).Set(float64(events))
	m.lagSeconds.WithLabelValues(projection, partitionLabel(p)).Set(seconds)
}

// ProjectionLeft forgets a partition that another node works.
func (m *projections) ProjectionLeft(projection string, p event.PartitionID) {
	m.lagEvents.DeleteLabelValues(projection, partitionLabel(p))
	m.lagSeconds.DeleteLabelValues(projection, partitionLabel(p))
}

// ProjectionAdvanced counts events that were passed.
func (m *projections) ProjectionAdvanced(projection string, events int) {
	m.advanced.WithLabelValues(projection).Add(float64(events))
}

// ProjectionFailed counts an attempt that was rolled back.
func (m *projections) ProjectionFailed(projection string, _ event.PartitionID) {
	m.failures.WithLabelValues(projection).Inc()
}

// ProjectionDeadLetter counts an event that could not be digested.
func (m *projections) ProjectionDeadLetter(projection string, _ event.PartitionID) {
	m.deadLetters.WithLabelValues(projection).Inc()
}

// ProjectionLease counts a lease that changed.
func (m *projections) ProjectionLease(projection, change string) {
	m.leases.WithLabelValues(projection, change).Inc()
}
