package prometheus

import (
	"cmp"
	"slices"
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

func newFeeds(f factory) feeds {
	return feeds{
		open:      f.gauge("backbone_feeds_open", "Live feeds by transport and state: catching_up, live or idle.", "transport", "state"),
		delivered: f.counter("backbone_feed_events_total", "Events that the readers of live feeds took.", "transport"),
		age:       f.histogram("backbone_feed_event_age_seconds", "Age of the newest event of a page of a live feed when its reader had taken it.", slices.Concat(durationBuckets, []float64{60, 3600, 86400}), "transport"),
		ended:     f.counter("backbone_feeds_ended_total", "Live feeds that ended, by reason: left or the fault's code.", "transport", "reason"),
	}
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
	f.ended.WithLabelValues(transport, cmp.Or(code, "left")).Inc()
}
