package prometheus

import (
	"time"

	client "github.com/prometheus/client_golang/prometheus"
)

// feeds are the metrics of live feeds.
type feeds struct {
	open      *client.GaugeVec
	delivered *client.CounterVec
	age       *client.HistogramVec
	ended     *client.CounterVec
}

func newFeeds(r client.Registerer) feeds {
	f := feeds{
		open: client.NewGaugeVec(client.GaugeOpts{
			Name: "backbone_feeds_open", Help: "Live feeds by transport and state: catching_up, live or idle.",
		}, []string{"transport", "state"}),
		delivered: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_feed_events_total", Help: "Events that the readers of live feeds took.",
		}, []string{"transport"}),
		age: client.NewHistogramVec(client.HistogramOpts{
			Name: "backbone_feed_event_age_seconds", Help: "Age of the newest event of a page of a live feed when its reader had taken it.",
			Buckets: append(append([]float64{}, durationBuckets...), 60, 3600, 86400),
		}, []string{"transport"}),
		ended: client.NewCounterVec(client.CounterOpts{
			Name: "backbone_feeds_ended_total", Help: "Live feeds that ended, by reason: left or the fault's code.",
		}, []string{"transport", "reason"}),
	}
	r.MustRegister(f.open, f.delivered, f.age, f.ended)
	return f
}

// FeedState reports that a feed changed its state; from is "" for a new one.
func (f *feeds) FeedState(transport, from, to string) {
	if from != "" {
		f.open.WithLabelValues(transport, from).Dec()
	}
	if to != "disconnected" {
		f.open.WithLabelValues(transport, to).Inc()
	}
}

// FeedDelivered reports events that a reader took, and how old the newest was.
func (f *feeds) FeedDelivered(transport string, events int, age time.Duration) {
	f.delivered.WithLabelValues(transport).Add(float64(events))
	f.age.WithLabelValues(transport).Observe(age.Seconds())
}

// FeedEnded reports the end of a feed; code is "" when its reader left.
func (f *feeds) FeedEnded(transport, code string) {
	if code == "" {
		code = "left"
	}
	f.ended.WithLabelValues(transport, code).Inc()
}
