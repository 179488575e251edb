package prometheus

import (
	"cmp"
	"time"

	client "github.com/prometheus/client_golang/prometheus"
)

// personal are the metrics of sealed personal data: keys in memory, calls to the key
// service, erasures and rotations.
type personal struct {
	cacheHits      client.Counter
	cacheMisses    client.Counter
	cacheEvictions client.Counter
	keyCalls       *client.CounterVec
	sealed         client.Counter
	opened         client.Counter
	redacted       client.Counter
	kmsDuration    *client.HistogramVec

	generationLag client.Gauge
	receiptsGate  client.Gauge

	erasures        *client.GaugeVec
	erasureDue      client.Gauge
	erasureFailures *client.CounterVec

	rotations        *client.CounterVec
	rotationDuration client.Observer
	rewrapped        client.Counter
}

func newPersonal(f factory) personal {
	return personal{
		cacheHits:        f.counter("backbone_vault_cache_hits_total", "Keys of persons that were in memory when they were needed.").WithLabelValues(),
		cacheMisses:      f.counter("backbone_vault_cache_misses_total", "Keys of persons that were not.").WithLabelValues(),
		cacheEvictions:   f.counter("backbone_vault_cache_evictions_total", "Keys of persons taken out of memory, for whatever reason.").WithLabelValues(),
		keyCalls:         f.counter("backbone_vault_kms_calls_total", "Keys made and unwrapped by the key service for sealing and opening, by outcome: ok or the fault's code.", "operation", "outcome"),
		sealed:           f.counter("backbone_vault_sealed_values_total", "Personal values sealed.").WithLabelValues(),
		opened:           f.counter("backbone_vault_opened_values_total", "Personal values opened for readers.").WithLabelValues(),
		redacted:         f.counter("backbone_vault_redacted_values_total", "Personal values shown as [REDACTED] because their key was destroyed.").WithLabelValues(),
		kmsDuration:      f.histogram("backbone_kms_call_duration_seconds", "Calls to the key service with all their tries, by operation and outcome: ok or the fault's code.", durationBuckets, "operation", "outcome"),
		generationLag:    f.gauge("backbone_keystore_generation_lag", "Destructions of keys that this node has not followed yet.").WithLabelValues(),
		receiptsGate:     f.gauge("backbone_erasure_receipts_behind", "1 while personal data is withheld because receipts of erasures outside the database are ahead of it or cannot be read, else 0.").WithLabelValues(),
		erasures:         f.gauge("backbone_erasure_requests", "Erasure requests by state.", "state"),
		erasureDue:       f.gauge("backbone_erasure_oldest_due_timestamp_seconds", "When the most urgent open erasure request is due, in Unix time; 0 without one.").WithLabelValues(),
		erasureFailures:  f.counter("backbone_erasure_failures_total", "Failed attempts at a step of an erasure, by the state it was in.", "state"),
		rotations:        f.counter("backbone_key_rotations_total", "Rotations of a tenant's KEK by outcome: ok or failed.", "outcome"),
		rotationDuration: f.histogram("backbone_key_rotation_duration_seconds", "How long a rotation of a tenant's KEK took.", client.ExponentialBuckets(.1, 4, 10)).WithLabelValues(),
		rewrapped:        f.counter("backbone_key_rotation_rewrapped_total", "Keys wrapped again by rotations.").WithLabelValues(),
	}
}

// CacheHits counts keys that were in memory.
func (m *Metrics) CacheHits(keys int) { m.cacheHits.Add(float64(keys)) }

// CacheMisses counts keys that were not.
func (m *Metrics) CacheMisses(keys int) { m.cacheMisses.Add(float64(keys)) }

// Evicted counts keys taken out of memory.
func (m *Metrics) Evicted(keys int) { m.cacheEvictions.Add(float64(keys)) }

// KMSCall counts keys made ("generate") and opened ("unwrap"); code is "" on success.
func (m *Metrics) KMSCall(operation, code string) {
	m.keyCalls.WithLabelValues(operation, cmp.Or(code, "ok")).Inc()
}

// Sealed counts values.
func (m *Metrics) Sealed(values int) { m.sealed.Add(float64(values)) }

// Opened counts values.
func (m *Metrics) Opened(values int) { m.opened.Add(float64(values)) }

// Redacted counts values.
func (m *Metrics) Redacted(values int) { m.redacted.Add(float64(values)) }

// ObserveKMS reports a call to the key service with all its tries; outcome is "ok" or
// the code of the fault.
func (m *Metrics) ObserveKMS(operation, outcome string, elapsed time.Duration) {
	m.kmsDuration.WithLabelValues(operation, outcome).Observe(elapsed.Seconds())
}

// GenerationLag reports how many destructions this node has not followed.
func (m *Metrics) GenerationLag(destructions int64) { m.generationLag.Set(float64(destructions)) }

// ReceiptsBehind reports whether the gate withholds personal data.
func (m *Metrics) ReceiptsBehind(behind bool) {
	m.receiptsGate.Set(0)
	if behind {
		m.receiptsGate.Set(1)
	}
}

// ErasureRequests reports how many requests are in each state, and when the most
// urgent open one is due; the zero time without one.
func (m *Metrics) ErasureRequests(byState map[string]int, oldestDue time.Time) {
	m.erasures.Reset()
	for state, n := range byState {
		m.erasures.WithLabelValues(state).Set(float64(n))
	}
	m.erasureDue.Set(0)
	if !oldestDue.IsZero() {
		m.erasureDue.Set(float64(oldestDue.Unix()))
	}
}

// ErasureFailed counts a failed attempt at the step after a state.
func (m *Metrics) ErasureFailed(state string) { m.erasureFailures.WithLabelValues(state).Inc() }

// Rotated reports an attempt at a rotation; code is "" when it succeeded.
func (m *Metrics) Rotated(rewrapped int64, took time.Duration, code string) {
	outcome := "failed"
	if code == "" {
		outcome = "ok"
		m.rotationDuration.Observe(took.Seconds())
	}
	m.rotations.WithLabelValues(outcome).Inc()
	m.rewrapped.Add(float64(rewrapped))
}
