package prometheus

import (
	"cmp"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
)

// webhooks are the metrics of deliveries to endpoints.
type webhooks struct {
	webhookAttempts *client.CounterVec
	webhookDuration client.Observer
	webhookMoves    *client.CounterVec
}

func newWebhooks(f factory) webhooks {
	return webhooks{
		webhookAttempts: f.counter("backbone_webhook_attempts_total", "Deliveries to endpoints by what came of them; taken is success.", "outcome"),
		webhookDuration: f.histogram("backbone_webhook_duration_seconds", "How long a delivery took until it was answered or had failed.", durationBuckets).WithLabelValues(),
		webhookMoves:    f.counter("backbone_webhook_lease_changes_total", "Endpoints that this node took, lost, or released for another one, by change.", "change"),
	}
}

// WebhookAttempt reports a delivery; code is "" for one that was taken.
func (w *webhooks) WebhookAttempt(code string, duration time.Duration) {
	w.webhookAttempts.WithLabelValues(cmp.Or(code, "taken")).Inc()
	w.webhookDuration.Observe(duration.Seconds())
}

// WebhookLease counts an endpoint that was taken, released or lost.
func (w *webhooks) WebhookLease(change string) { w.webhookMoves.WithLabelValues(change).Inc() }
