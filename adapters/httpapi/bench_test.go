package httpapi_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// BenchmarkSubmitIntent is the hot path without a database: 64 clients over
// loopback, the real pipeline, the store in memory.
func BenchmarkSubmitIntent(b *testing.B) {
	h := startAPI(b)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			body := fmt.Sprintf(`{"type":"note.add_page","legal_entity":"USMF","payload":{"number":"P-%d","text":"%s"}}`, n.Add(1), strings.Repeat("x", 1500))
			r, err := http.NewRequest(http.MethodPost, h.url+"/api/intents", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+h.tokens["ap_clerk"])
			r.Header.Set("Content-Type", "application/json")
			res, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusCreated {
				b.Errorf("status %d", res.StatusCode)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "intents/s")
}
