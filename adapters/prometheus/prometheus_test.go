package prometheus_test

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/domain/concurrency"
)

func TestHandlerShowsEveryReport(t *testing.T) {
	t.Parallel()
	m := prometheus.New()
	m.ObserveAppend(3*time.Millisecond, 2, "")
	m.ObserveAppend(time.Millisecond, 1, concurrency.CodeDuplicateKey)
	m.ObserveAppend(time.Millisecond, 1, "append.rejected_by_store")
	m.ObserveAppend(time.Second, 1, "append.outcome_unknown")
	m.ObserveGroup(64, 128, 4*time.Millisecond)
	m.ObserveQueue(1, 7, 4096)
	m.ProjectionLag("gl_balances", 12, 5, 1.5)
	m.ProjectionLag("gl_balances", 13, 5, 1.5)
	m.ProjectionLeft("gl_balances", 13)
	m.ProjectionFailed("gl_balances", 12)
	m.ProjectionAdvanced("gl_balances", 40)
	m.ProjectionDeadLetter("gl_balances", 12)
	m.ProjectionLease("gl_balances", "taken")
	m.ObserveRequest("POST", "/api/intents", 201, 2*time.Millisecond)
	m.ObserveRequest("BREW", "unmatched", 405, time.Millisecond)
	m.CacheHits(9)
	m.CacheMisses(2)
	m.Evicted(1)
	m.KMSCall("unwrap", "")
	m.KMSCall("generate", "kms.unavailable")
	m.Sealed(3)
	m.Opened(4)
	m.Redacted(5)
	m.ObserveKMS("Decrypt", "ok", 2*time.Millisecond)
	m.GenerationLag(1)
	m.ReceiptsBehind(true)
	m.ErasureRequests(map[string]int{"approved": 2}, time.Unix(1_800_000_000, 0))
	m.ErasureFailed("destroyed")
	m.Rotated(12, time.Second, "")
	m.Rotated(0, time.Second, "kms.unavailable")
	m.FeedState("sse", "", "catching_up")
	m.FeedState("sse", "catching_up", "idle")
	m.FeedState("websocket", "", "catching_up")
	m.FeedState("websocket", "catching_up", "disconnected")
	m.FeedDelivered("sse", 7, 3*time.Millisecond)
	m.FeedEnded("websocket", "")
	m.FeedEnded("sse", "auth.token_expired")
	m.ArchiveRead("unavailable")

	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	page := answer.Body.String()
	for _, line := range []string{
		`backbone_archive_reads_total{outcome="unavailable"} 1`,
		`backbone_feeds_open{state="catching_up",transport="sse"} 0`,
		`backbone_feeds_open{state="idle",transport="sse"} 1`,
		`backbone_feeds_open{state="catching_up",transport="websocket"} 0`,
		`backbone_feed_events_total{transport="sse"} 7`,
		`backbone_feed_event_age_seconds_count{transport="sse"} 1`,
		`backbone_feeds_ended_total{reason="left",transport="websocket"} 1`,
		`backbone_feeds_ended_total{reason="auth.token_expired",transport="sse"} 1`,
		`backbone_append_duration_seconds_count{outcome="appended"} 1`,
		`backbone_append_duration_seconds_count{outcome="conflict"} 1`,
		`backbone_append_duration_seconds_count{outcome="refused"} 1`,
		`backbone_append_duration_seconds_count{outcome="unanswered"} 1`,
		`backbone_append_events_total 2`,
		`backbone_append_conflicts_total{code="append.duplicate_business_key"} 1`,
		`backbone_append_group_size_sum 64`,
		`backbone_append_queue_depth{appender="1"} 7`,
		`backbone_projection_lag_events{partition="12",projection="gl_balances"} 5`,
		`backbone_projection_lag_seconds{partition="12",projection="gl_balances"} 1.5`,
		`backbone_projection_failures_total{projection="gl_balances"} 1`,
		`backbone_projection_events_total{projection="gl_balances"} 40`,
		`backbone_projection_dead_letters_total{projection="gl_balances"} 1`,
		`backbone_projection_lease_changes_total{change="taken",projection="gl_balances"} 1`,
		`backbone_http_request_duration_seconds_count{method="POST",route="/api/intents",status="201"} 1`,
		`backbone_http_request_duration_seconds_count{method="other",route="unmatched",status="405"} 1`,
		`backbone_vault_cache_hits_total 9`,
		`backbone_vault_cache_misses_total 2`,
		`backbone_vault_cache_evictions_total 1`,
		`backbone_vault_kms_calls_total{operation="generate",outcome="kms.unavailable"} 1`,
		`backbone_vault_kms_calls_total{operation="unwrap",outcome="ok"} 1`,
		`backbone_vault_sealed_values_total 3`,
		`backbone_vault_opened_values_total 4`,
		`backbone_vault_redacted_values_total 5`,
		`backbone_kms_call_duration_seconds_count{operation="Decrypt",outcome="ok"} 1`,
		`backbone_keystore_generation_lag 1`,
		`backbone_erasure_receipts_behind 1`,
		`backbone_erasure_requests{state="approved"} 2`,
		`backbone_erasure_oldest_due_timestamp_seconds 1.8e+09`,
		`backbone_erasure_failures_total{state="destroyed"} 1`,
		`backbone_key_rotations_total{outcome="ok"} 1`,
		`backbone_key_rotations_total{outcome="failed"} 1`,
		`backbone_key_rotation_rewrapped_total 12`,
		`go_goroutines`,
	} {
		require.Contains(t, page, line)
	}
}
