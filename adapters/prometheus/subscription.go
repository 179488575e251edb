package prometheus

import (
	client "github.com/prometheus/client_golang/prometheus"

	"github.com/erpbackbone/backbone/domain/subscription"
)

// subscriptions are the metrics of persistent subscriptions, by tenant and id. Every
// subscription adds its series.
type subscriptions struct {
	subscriptionLag      *client.GaugeVec
	subscriptionAge      *client.GaugeVec
	subscriptionParked   *client.GaugeVec
	subscriptionMessages *client.CounterVec
	subscriptionBreakers *client.CounterVec
}

func newSubscriptions(f factory) subscriptions {
	return subscriptions{
		subscriptionLag:      f.gauge("backbone_subscription_lag_events", "Events that a subscription is not done with; its filter may leave some of them out.", "tenant", "subscription"),
		subscriptionAge:      f.gauge("backbone_subscription_lag_seconds", "Age of the oldest event that a subscription is not done with, else 0; lag_seconds of the API.", "tenant", "subscription"),
		subscriptionParked:   f.gauge("backbone_subscription_parked_messages", "Dead letters of a subscription.", "tenant", "subscription"),
		subscriptionMessages: f.counter("backbone_subscription_messages_total", "What happened to messages on this node: delivered, acknowledged, retried, timed_out, parked, skipped, discarded, replayed.", "tenant", "subscription", "outcome"),
		subscriptionBreakers: f.counter("backbone_subscription_breaker_openings_total", "How often a subscription was parked after too many failures in a row.", "tenant", "subscription"),
	}
}

// SubscriptionLag reports how far a subscription is behind.
func (s *subscriptions) SubscriptionLag(tenantID, id string, events uint64, seconds float64) {
	s.subscriptionLag.WithLabelValues(tenantID, id).Set(float64(events))
	s.subscriptionAge.WithLabelValues(tenantID, id).Set(seconds)
}

// SubscriptionParked reports the dead letters that there are.
func (s *subscriptions) SubscriptionParked(tenantID, id string, messages int) {
	s.subscriptionParked.WithLabelValues(tenantID, id).Set(float64(messages))
}

// SubscriptionCounts adds what happened to messages.
func (s *subscriptions) SubscriptionCounts(tenantID, id string, c subscription.Counts) {
	for outcome, n := range map[string]int64{
		"delivered": c.Delivered, "acknowledged": c.Acknowledged, "retried": c.Retried, "timed_out": c.TimedOut,
		"parked": c.Parked, "skipped": c.Skipped, "discarded": c.Discarded, "replayed": c.Replayed,
	} {
		if n > 0 {
			s.subscriptionMessages.WithLabelValues(tenantID, id, outcome).Add(float64(n))
		}
	}
}

// SubscriptionBreaker counts an opening.
func (s *subscriptions) SubscriptionBreaker(tenantID, id string) {
	s.subscriptionBreakers.WithLabelValues(tenantID, id).Inc()
}

// SubscriptionGone removes the series of a subscription that was deleted.
func (s *subscriptions) SubscriptionGone(tenantID, id string) {
	labels := client.Labels{"tenant": tenantID, "subscription": id}
	for _, v := range []interface{ DeletePartialMatch(client.Labels) int }{
		s.subscriptionLag, s.subscriptionAge, s.subscriptionParked, s.subscriptionMessages, s.subscriptionBreakers,
	} {
		v.DeletePartialMatch(labels)
	}
}
