package prometheus

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/erpbackbone/backbone/domain/concurrency"
)

// Metrics implements the observer interfaces of the append engine, the projections, the HTTP
// API and the other services. It is safe for concurrent use.
type Metrics struct {
	registry *client.Registry
	personal
	subscriptions
	feeds
	fanout
	globalLog
	archive
	webhooks
	entities

	appendDuration    *client.HistogramVec
	appendedEvents    client.Counter
	appendConflicts   *client.CounterVec
	groupRequests     client.Observer
	groupEvents       client.Observer
	groupDuration     client.Observer
	queueRequests     *client.GaugeVec
	queueBytes        *client.GaugeVec
	blockedPartitions client.Gauge

	projections

	requestDuration *client.HistogramVec
}

// durationBuckets are the bounds for what takes from tenths of a millisecond to seconds.
var durationBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

// factory makes metrics that are registered at once. The single series of a metric without
// labels is its WithLabelValues(), which puts it on the page with 0.
type factory struct{ promauto.Factory }

func (f factory) counter(name, help string, labels ...string) *client.CounterVec {
	return f.NewCounterVec(client.CounterOpts{Name: name, Help: help}, labels)
}

func (f factory) gauge(name, help string, labels ...string) *client.GaugeVec {
	return f.NewGaugeVec(client.GaugeOpts{Name: name, Help: help}, labels)
}

func (f factory) histogram(name, help string, buckets []float64, labels ...string) *client.HistogramVec {
	return f.NewHistogramVec(client.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}

// New makes the metrics, and those of the Go runtime and the process, in a
// registry of their own.
func New() *Metrics {
	registry := client.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	f := factory{promauto.With(registry)}
	return &Metrics{
		registry:          registry,
		appendDuration:    f.histogram("backbone_append_duration_seconds", "From queueing an append to its answer, by outcome.", durationBuckets, "outcome"),
		appendedEvents:    f.counter("backbone_append_events_total", "Events that were appended.").WithLabelValues(),
		appendConflicts:   f.counter("backbone_append_conflicts_total", "Appends that were refused because another append committed first, by code.", "code"),
		groupRequests:     f.histogram("backbone_append_group_size", "Requests that shared a transaction.", client.ExponentialBuckets(1, 2, 10)).WithLabelValues(),
		groupEvents:       f.histogram("backbone_append_group_events", "Events that shared a transaction.", client.ExponentialBuckets(1, 2, 14)).WithLabelValues(),
		groupDuration:     f.histogram("backbone_append_group_duration_seconds", "How long the transaction of a group took.", durationBuckets).WithLabelValues(),
		queueRequests:     f.gauge("backbone_append_queue_depth", "Requests that wait for an appender.", "appender"),
		blockedPartitions: f.gauge("backbone_append_blocked_legal_entities", "Legal entities whose appends wait for a lock that another session of the database holds.").WithLabelValues(),
		queueBytes:        f.gauge("backbone_append_queue_bytes", "Bytes that wait for an appender.", "appender"),
		requestDuration:   f.histogram("backbone_http_request_duration_seconds", "HTTP requests by method, route and status.", durationBuckets, "method", "route", "status"),
		projections:       newProjections(f),
		personal:          newPersonal(f),
		subscriptions:     newSubscriptions(f),
		feeds:             newFeeds(f),
		fanout:            newFanout(f),
		globalLog:         newGlobalLog(f),
		archive:           newArchive(f),
		webhooks:          newWebhooks(f),
		entities:          newEntities(f),
	}
}

// Handler answers GET /metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{DisableCompression: true})
}

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
	case code == "append.outcome_unknown":
		outcome = "unanswered"
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
