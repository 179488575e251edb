package pipeline_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// What callers say about a request is kept in its row and in the skeleton of its
// events, for ever.
func TestIdentifiersOfARequestAreChecked(t *testing.T) {
	t.Parallel()
	h := openClub(t)
	long := strings.Repeat("x", 513)
	for field, set := range map[string]func(*pipeline.Request, string){
		"/correlation_id":   func(r *pipeline.Request, s string) { r.CorrelationID = s },
		"/source/system":    func(r *pipeline.Request, s string) { r.Source = event.Source{System: s, Channel: "c"} },
		"/source/channel":   func(r *pipeline.Request, s string) { r.Source = event.Source{System: "s", Channel: s} },
		"/source/reference": func(r *pipeline.Request, s string) { r.Source = event.Source{System: "s", Channel: "c", Reference: s} },
	} {
		for text, code := range map[string]string{
			canary: "pii.in_identifier", "DE89 3704 0044 0532 0130 00": "pii.in_identifier", "+49 170 1234567": "pii.in_identifier",
			long: "append.identifier_invalid", "a\x00b": "append.identifier_invalid", "a\xffb": "append.identifier_invalid",
		} {
			for _, fee := range []int{5, 500, feeDenied} {
				for _, dry := range []bool{false, true} {
					req := h.join(fee)
					req.DryRun = dry
					set(&req, text)
					_, err := h.service.Submit(t.Context(), clerk, req)
					f, ok := fault.As(err)
					require.True(t, ok, "%s %.20q %d: %v", field, text, fee, err)
					require.Equal(t, code, f.Code, "%s %.20q %d", field, text, fee)
					require.Equal(t, field, f.Field)
					require.Empty(t, f.IntentID, "a row would keep it")
				}
			}
		}
		req := h.join(5)
		set(&req, "order-9")
		_, err := h.service.Submit(t.Context(), clerk, req)
		require.NoError(t, err)
	}
	require.Len(t, h.watch.seen, 4)
}
