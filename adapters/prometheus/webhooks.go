package prometheus

import (
	"time"

	client "github.com/prometheus/client_golang/prometheus"
)

// webhooks are the metrics of deliveries to endpoints.
type webhooks struct {
	webhookAttempts *client.CounterVec
	webhookDuration client.Histogram
	webhookMoves    *client.CounterVec
}

func newWebhooks(registry client.Registerer) webhooks {
	w := webhooks{
		webhookAttempts: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_webhook_attempts_total", Help: "Deliveries to endpoints by what came of them; taken is success.",
		}, []string{"outcome"}),
		webhookDuration: client.NewHistogram(client.HistogramOpts{
			Name: "backbone_webhook_duration_seconds", Help: "How long a delivery took until it was answered or had failed.", Buckets: durationBuckets,
		}),
		webhookMoves: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_webhook_lease_changes_total", Help: "Endpoints that this node took, lost, or released for another one, by change.",
		}, []string{"change"}),
	}
	registry.MustRegister(w.webhookAttempts, w.webhookDuration, w.webhookMoves)
	return w
}

// WebhookAttempt reports a delivery; code is "" for one that was taken.
func (w *webhooks) WebhookAttempt(code string, duration time.Duration) {
	if code == "" {
		code = "taken"
	}
	w.webhookAttempts.WithLabelValues(code).Inc()
	w.webhookDuration.Observe(duration.Seconds())
}

// WebhookLease counts an endpoint that was taken, released or lost.
func (w *webhooks) WebhookLease(change string) { w.webhookMoves.WithLabelValues(change).Inc() }
