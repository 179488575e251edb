package upcasting_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// sizeRecordingLog knows how large the largest answer was.
type sizeRecordingLog struct {
	upcasting.Log
	largest int
}

func (w *sizeRecordingLog) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	found, err := w.Log.SearchEvents(ctx, q, scan)
	bytes := 0
	for i := range found.Events {
		bytes += len(found.Events[i].Payload)
	}
	w.largest = max(w.largest, bytes)
	return found, err
}

// TestProve_ByteLimit leaves none of them out, also when calls are short.
func TestProve_ByteLimit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reads := &sizeRecordingLog{Log: b.store.Events}
	b.types.SetProver(upcasting.NewProver(reads, b.store.Directory, query.NewCursorSealer([]byte("key"))))
	b.register(version(1, leadV1))
	who := strings.Repeat("x", 1<<16-1)
	for i := range 150 {
		require.NoError(t, b.append(0, lead, 1, fmt.Sprintf(`{"size":%d,"who":%q}`, i, who)))
	}
	brief := registry.ProofRequest{MaxDuration: time.Nanosecond, Visible: map[event.PartitionID]string{b.entities[0].Partition: "DEMF"}}
	var found registry.Assessment
	for done := false; !done; done = found.Report.Complete {
		found = b.check(version(2, leadV2, from(1, rename)), brief)
		brief.Token = found.Report.Cursor
	}
	require.Equal(t, 150, found.Report.Events)
	require.False(t, found.Report.Failed, found.Report.Failures)
	require.Positive(t, reads.largest)
	require.LessOrEqual(t, reads.largest, 8<<20)
}
