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

	signed      client.Gauge
	checkpoints *client.CounterVec
	witnessed   *client.CounterVec

	mirrored      client.Gauge
	mirrorsFailed *client.CounterVec
}

func newGlobalLog(f factory) globalLog {
	return globalLog{
		extended: f.counter("backbone_global_log_events_total", "Events that this node has taken into the global log.").WithLabelValues(),
		window:   f.gauge("backbone_global_log_window_events", "Events of all logs that are not in the global log yet.").WithLabelValues(),
		age:      f.gauge("backbone_global_log_window_seconds", "For how long the first of them has waited, else 0.").WithLabelValues(),

		signed:      f.gauge("backbone_global_log_signed_events", "Events of the newest checkpoint that this node has signed.").WithLabelValues(),
		checkpoints: f.counter("backbone_global_log_checkpoints_total", "Checkpoints of the global log by outcome: signed; failed; refused, since the log is not the one that was signed.", "outcome"),
		witnessed:   f.counter("backbone_global_log_cosignatures_total", "Answers of witnesses to checkpoints by outcome: signed; failed; refused, since the witness has signed another log.", "outcome"),

		mirrored:      f.gauge("backbone_global_log_mirrored_events", "Events of the newest checkpoint that this node has mirrored.").WithLabelValues(),
		mirrorsFailed: f.counter("backbone_global_log_mirror_failures_total", "Failed attempts to write the mirror by cause: failed; refused, since it has another log.", "cause"),
	}
}

// GlobalLogExtended counts events that this node has taken into the global log.
func (g *globalLog) GlobalLogExtended(events int) { g.extended.Add(float64(events)) }

// GlobalLogWindow reports what is not in the global log.
func (g *globalLog) GlobalLogWindow(events uint64, age time.Duration) {
	g.window.Set(float64(events))
	g.age.Set(age.Seconds())
}

// CheckpointSigned counts a checkpoint.
func (g *globalLog) CheckpointSigned(size uint64) {
	g.signed.Set(float64(size))
	g.checkpoints.WithLabelValues("signed").Inc()
}

// CheckpointWitnessed counts the answer of a witness.
func (g *globalLog) CheckpointWitnessed(isSigned, isRefused bool) {
	outcome := "failed"
	switch {
	case isSigned:
		outcome = "signed"
	case isRefused:
		outcome = "refused"
	}
	g.witnessed.WithLabelValues(outcome).Inc()
}

// Mirrored reports the newest checkpoint in the mirror.
func (g *globalLog) Mirrored(size uint64) { g.mirrored.Set(float64(size)) }

// MirrorFailed counts a failed attempt to write it.
func (g *globalLog) MirrorFailed(isRefused bool) {
	g.mirrorsFailed.WithLabelValues(map[bool]string{false: "failed", true: "refused"}[isRefused]).Inc()
}

// CheckpointFailed counts a checkpoint that could not be made.
func (g *globalLog) CheckpointFailed(isRefused bool) {
	g.checkpoints.WithLabelValues(map[bool]string{false: "failed", true: "refused"}[isRefused]).Inc()
}
