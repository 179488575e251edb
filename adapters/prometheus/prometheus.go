package prometheus

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/erpbackbone/backbone/domain/concurrency"
)

// Metrics observes the append engine, the projections, the HTTP API, and what keeps
// and erases personal data, each
// through the interface that it declares. It is safe for concurrent use.
type Metrics struct {
	registry *client.Registry
	personal
	subscriptions
	feeds
	fanout
	webhooks
	entities

	appendDuration    *client.HistogramVec
	appendedEvents    client.Counter
	appendConflicts   *client.CounterVec
	groupRequests     client.Histogram
	groupEvents       client.Histogram
	groupDuration     client.Histogram
	queueRequests     *client.GaugeVec
	queueBytes        *client.GaugeVec
	blockedPartitions client.Gauge

	projections

	requestDuration *client.HistogramVec
}

// durationBuckets are the bounds for what takes from tenths of a millisecond to seconds.
var durationBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// New makes the metrics, and those of the Go runtime and the process, in a
// registry of their own.
func New() *Metrics {
	m := &Metrics{
		registry: client.NewRegistry(),
		appendDuration: client.NewHistogramVec(client.HistogramOpts{
			Name: "backbone_append_duration_seconds", Help: "From queueing an append to its answer, by outcome.", Buckets: durationBuckets,
		}, []string{"outcome"}),
		appendedEvents: client.NewCounter(client.CounterOpts{
			Name: "backbone_append_events_total", Help: "Events that were appended.",
		}),
		appendConflicts: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_append_conflicts_total", Help: "Appends that were refused because somebody else got there first, by code.",
		}, []string{"code"}),
		groupRequests: client.NewHistogram(client.HistogramOpts{
			Name: "backbone_append_group_size", Help: "Requests that shared a transaction.", Buckets: client.ExponentialBuckets(1, 2, 10),
		}),
		groupEvents: client.NewHistogram(client.HistogramOpts{
			Name: "backbone_append_group_events", Help: "Events that shared a transaction.", Buckets: client.ExponentialBuckets(1, 2, 14),
		}),
		groupDuration: client.NewHistogram(client.HistogramOpts{
			Name: "backbone_append_group_duration_seconds", Help: "How long the transaction of a group took.", Buckets: durationBuckets,
		}),
		queueRequests: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_append_queue_depth", Help: "Requests that wait for an appender.",
		}, []string{"appender"}),
		blockedPartitions: client.NewGauge(client.GaugeOpts{
			Name: "backbone_append_blocked_legal_entities", Help: "Legal entities whose appends wait for a lock that another session of the database holds.",
		}),
		queueBytes: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_append_queue_bytes", Help: "Bytes that wait for an appender.",
		}, []string{"appender"}),
		requestDuration: client.NewHistogramVec(client.HistogramOpts{
			Name: "backbone_http_request_duration_seconds", Help: "HTTP requests by method, route and status.", Buckets: durationBuckets,
		}, []string{"method", "route", "status"}),
	}
	m.registry.MustRegister(
		m.appendDuration, m.appendedEvents, m.appendConflicts, m.groupRequests, m.groupEvents, m.groupDuration, m.queueRequests, m.queueBytes, m.blockedPartitions,
		m.requestDuration,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.projections = newProjections(m.registry)
	m.personal = newPersonal(m.registry)
	m.subscriptions = newSubscriptions(m.registry)
	m.feeds = newFeeds(m.registry)
	m.fanout = newFanout(m.registry)
	m.webhooks = newWebhooks(m.registry)
	m.entities = newEntities(m.registry)
	return m
}

// Handler answers GET /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}

// Registry takes further collectors, such as a connection pool's.
func (m *Metrics) Registry() client.Registerer { return m.registry }

// conflicts are the codes of lost races; a closed list, so that the label stays
// small.
var conflicts = map[string]bool{
	concurrency.CodeWrongExpectedVersion: true, concurrency.CodeConditionFailed: true, concurrency.CodeConditionTooOld: true,
	concurrency.CodeDuplicateKey: true, concurrency.CodeIntentChanged: true, concurrency.CodeIdempotencyMismatch: true,
}

// ObserveAppend reports one append: from queueing to its answer, its events, and
// the code of its fault ("" is success).
func (m *Metrics) ObserveAppend(latency time.Duration, events int, code string) {
	outcome := "refused"
	switch {
	case code == "":
		outcome = "appended"
		m.appendedEvents.Add(float64(events))
	case conflicts[code]:
		outcome = "conflict"
		m.appendConflicts.WithLabelValues(code).Inc()
	}
	m.appendDuration.WithLabelValues(outcome).Observe(latency.Seconds())
}

// ObserveGroup reports one transaction of the append engine.
func (m *Metrics) ObserveGroup(requests, events int, duration time.Duration) {
	m.groupRequests.Observe(float64(requests))
	m.groupEvents.Observe(float64(events))
	m.groupDuration.Observe(duration.Seconds())
}

// ObserveQueue reports what waits for an appender.
func (m *Metrics) ObserveQueue(appender, requests, bytes int) {
	label := strconv.Itoa(appender)
	m.queueRequests.WithLabelValues(label).Set(float64(requests))
	m.queueBytes.WithLabelValues(label).Set(float64(bytes))
}

// ObserveStalledPartitions reports how many legal entities' appends wait for a lock of another
// session.
func (m *Metrics) ObserveStalledPartitions(partitions int) {
	m.blockedPartitions.Set(float64(partitions))
}

// methods are those that get a label of their own; a caller may send anything.
var methods = map[string]bool{"GET": true, "HEAD": true, "POST": true, "PUT": true, "PATCH": true, "DELETE": true, "OPTIONS": true}

// ObserveRequest reports an answered HTTP request. The route is a pattern, never
// a path.
func (m *Metrics) ObserveRequest(method, route string, status int, duration time.Duration) {
	if !methods[method] {
		method = "other"
	}
	m.requestDuration.WithLabelValues(method, strings.ToValidUTF8(route, "?"), strconv.Itoa(status)).Observe(duration.Seconds())
}
