package prometheus

import client "github.com/prometheus/client_golang/prometheus"

// fanout are the metrics of publishers.
type fanout struct {
	published     *client.CounterVec
	duplicates    *client.CounterVec
	publishFailed *client.CounterVec
	publishLag    *client.GaugeVec
	publishAge    *client.GaugeVec
	publishLeases *client.GaugeVec
	publishNodes  *client.GaugeVec
	publishMoves  *client.CounterVec
}

func newFanout(f factory) fanout {
	return fanout{
		published:     f.counter("backbone_fanout_published_total", "Messages that the broker has acknowledged.", "publisher"),
		duplicates:    f.counter("backbone_fanout_duplicates_total", "Acknowledged messages that the broker had already and left out.", "publisher"),
		publishFailed: f.counter("backbone_fanout_failures_total", "Batches that failed and are tried again, by code.", "publisher", "code"),
		publishLag:    f.gauge("backbone_fanout_lag_events", "Events of this node's legal entities that are not published yet.", "publisher"),
		publishAge:    f.gauge("backbone_fanout_lag_seconds", "Age of the oldest event that is not published yet, else 0.", "publisher"),
		publishLeases: f.gauge("backbone_fanout_leases", "Legal entities that this node publishes.", "publisher"),
		publishNodes:  f.gauge("backbone_fanout_nodes", "Nodes that share the legal entities of a publisher, as this one sees it.", "publisher"),
		publishMoves:  f.counter("backbone_fanout_lease_changes_total", "Leases of a publisher that this node took, lost, or released for another one, by change.", "publisher", "change"),
	}
}

// Published reports messages that the broker stored, and those of them that it had
// already.
func (f *fanout) Published(publisher string, messages, duplicates int) {
	f.published.WithLabelValues(publisher).Add(float64(messages))
	f.duplicates.WithLabelValues(publisher).Add(float64(duplicates))
}

// PublishFailed counts a batch that failed.
func (f *fanout) PublishFailed(publisher, code string) {
	f.publishFailed.WithLabelValues(publisher, code).Inc()
}

// PublishLag reports what is not published yet.
func (f *fanout) PublishLag(publisher string, events uint64, seconds float64) {
	f.publishLag.WithLabelValues(publisher).Set(float64(events))
	f.publishAge.WithLabelValues(publisher).Set(seconds)
}

// PublisherLeases reports how many legal entities this node publishes.
func (f *fanout) PublisherLeases(publisher string, held int) {
	f.publishLeases.WithLabelValues(publisher).Set(float64(held))
}

// PublisherNodes reports how many nodes share the legal entities.
func (f *fanout) PublisherNodes(publisher string, alive int) {
	f.publishNodes.WithLabelValues(publisher).Set(float64(alive))
}

// PublisherLease counts a lease that changed.
func (f *fanout) PublisherLease(publisher, change string) {
	f.publishMoves.WithLabelValues(publisher, change).Inc()
}
