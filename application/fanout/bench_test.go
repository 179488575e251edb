package fanout_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/nats"
	"github.com/erpbackbone/backbone/application/fanout"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/testkit/natstest"
)

// kilobytes encodes events as documents of about 1 KB.
type kilobytes struct{}

func (kilobytes) Encode(_ context.Context, events []event.Recorded, _ bool) ([][]byte, error) {
	out := make([][]byte, len(events))
	for i := range out {
		out[i] = kilobyte
	}
	return out, nil
}

// BenchmarkFanOut publishes events of 1 KB in eight partitions to one embedded server,
// which has every batch on the disk before it acknowledges. Log, cursors and leases are in
// memory, so this is the broker's side of the rate.
func BenchmarkFanOut(b *testing.B) {
	for _, workers := range []int{1, 4} {
		b.Run(fmt.Sprintf("workers-%d", workers), func(b *testing.B) {
			server, err := natstest.Start(natstest.Config{Directory: b.TempDir()})
			require.NoError(b, err)
			defer server.Stop()
			p, err := nats.Open(nats.Config{
				URLs: []string{server.URL()}, Stream: "BACKBONE", SubjectPrefix: "backbone", Logger: slog.New(slog.DiscardHandler),
				Limits: nats.Limits{Replicas: 1, DuplicateWindow: 2 * time.Minute, Timeout: 5 * time.Second, Batch: 256, MaxBatches: 16},
			})
			require.NoError(b, err)
			defer p.Close()
			require.Eventually(b, func() bool { return p.Verify(b.Context()) == nil }, 10*time.Second, time.Millisecond)
			r := newFixture()
			r.cursors.broker = nil
			c := r.config("bench")
			c.Publisher, c.Batch, c.Workers, c.TTL, c.Encoder = p, 256, workers, time.Minute, kilobytes{}
			const partitions = 8
			for n := range min(partitions, b.N) {
				r.log.write(event.PartitionID(1+n), (b.N+partitions-1-n)/partitions)
			}
			b.ResetTimer()
			ctx, stop := context.WithCancel(b.Context())
			done := make(chan struct{})
			go func() { fanout.New(c).Run(ctx); close(done) }()
			for {
				list, err := r.cursors.PublisherCursors(b.Context(), "nats")
				require.NoError(b, err)
				total := 0
				for _, cursor := range list {
					total += int(cursor.PublishedThrough)
				}
				if total == b.N {
					break
				}
				<-time.After(time.Millisecond)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			stop()
			<-done
		})
	}
}

var kilobyte = []byte(`{"data":"` + strings.Repeat("x", 1000) + `"}`)
