package prometheus

import (
	"time"

	client "github.com/prometheus/client_golang/prometheus"
)

// globalLog are the metrics of the global log.
type globalLog struct {
	extended client.Counter
	window   client.Gauge
	age      client.Gauge
}

func newGlobalLog(f factory) globalLog {
	return globalLog{
		extended: f.counter("backbone_global_log_events_total", "Events that this node has taken into the global log.").WithLabelValues(),
		window:   f.gauge("backbone_global_log_window_events", "Events of all logs that are not in the global log yet.").WithLabelValues(),
		age:      f.gauge("backbone_global_log_window_seconds", "For how long the first of them has waited, else 0.").WithLabelValues(),
	}
}

// GlobalLogExtended counts events that this node has taken into the global log.
func (g *globalLog) GlobalLogExtended(events int) { g.extended.Add(float64(events)) }

// GlobalLogWindow reports what is not in the global log.
func (g *globalLog) GlobalLogWindow(events uint64, age time.Duration) {
	g.window.Set(float64(events))
	g.age.Set(age.Seconds())
}
