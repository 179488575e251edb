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

func newFanout(registry client.Registerer) fanout {
	f := fanout{
		published: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_fanout_published_total", Help: "Messages that the broker has acknowledged.",
		}, []string{"publisher"}),
		duplicates: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_fanout_duplicates_total", Help: "Acknowledged messages that the broker had already and left out.",
		}, []string{"publisher"}),
		publishFailed: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_fanout_failures_total", Help: "Batches that failed and are tried again, by code.",
		}, []string{"publisher", "code"}),
		publishLag: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_fanout_lag_events", Help: "Events of this node's legal entities that are not published yet.",
		}, []string{"publisher"}),
		publishAge: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_fanout_lag_seconds", Help: "Age of the oldest event that is not published yet, else 0.",
		}, []string{"publisher"}),
		publishLeases: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_fanout_leases", Help: "Legal entities that this node publishes.",
		}, []string{"publisher"}),
		publishNodes: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_fanout_nodes", Help: "Nodes that share the legal entities of a publisher, as this one sees it.",
		}, []string{"publisher"}),
		publishMoves: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_fanout_lease_changes_total", Help: "Leases of a publisher that this node took, lost, or released for another one, by change.",
		}, []string{"publisher", "change"}),
	}
	registry.MustRegister(f.published, f.duplicates, f.publishFailed, f.publishLag, f.publishAge, f.publishLeases, f.publishNodes, f.publishMoves)
	return f
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
