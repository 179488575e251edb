package gl_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// TestClosePeriod_ConcurrentPosting closes a period while 16 clients post into it:
// exactly the journals before the close are posted, and no number is lost.
func TestClosePeriod_ConcurrentPosting(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for _, role := range []string{"controller", "gl_accountant"} {
		b.caller(role)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for client := range 17 {
		wait.Go(func() {
			if client == 16 {
				_, err := b.submit("controller", "gl.close_period", `{"module": "gl", "period": "2026-03", "level": "hard"}`)
				mu.Lock()
				defer mu.Unlock()
				codes["close "+fault.CodeOf(err)]++
				return
			}
			for range 20 {
				_, err := b.submit("gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))
				mu.Lock()
				codes[fault.CodeOf(err)]++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	require.Equal(t, 1, codes["close "], "%v", codes)
	require.Equal(t, 320, codes[""]+codes["gl.period.hard_closed"], "%v", codes)

	events, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, Limit: 1000})
	require.NoError(t, err)
	var closed event.Sequence
	journals := 0
	for _, e := range events {
		switch e.Type {
		case "gl.period.hard_closed":
			if closed == 0 {
				closed = e.Sequence
			}
		case "gl.journal.posted":
			require.Zero(t, closed, "journal %d came after the close %d", e.Sequence, closed)
			journals++
		}
	}
	require.Equal(t, codes[""], journals)
}

// TestClosePeriod_ConcurrentParking closes a period for good while clients submit journals that
// need an approval: a close that takes effect leaves none that waits for the period, and each
// refused close names one.
func TestClosePeriod_ConcurrentParking(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	for _, role := range []string{"controller", "controller:2", "gl_accountant"} {
		b.caller(role)
	}
	const clients = 4
	closed, begun := make(chan struct{}), make(chan struct{}, clients)
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			for {
				o, err := b.submit("gl_accountant", "gl.post_journal", twoLines("20000", "20000", "USD", "2026-03-15"))
				if err != nil {
					assert.Equal(t, "gl.period.hard_closed", fault.CodeOf(err))
					return
				}
				select {
				case begun <- struct{}{}:
				default:
				}
				_, err = b.intake.Reject(t.Context(), b.caller("controller:2"), pipeline.Decision{LegalEntity: b.entity, Intent: o.IntentID, Comment: "not this month"})
				if !assert.NoError(t, err) {
					return
				}
				select {
				case <-closed:
					return
				default:
				}
			}
		})
	}
	<-begun
	for range 10_000 {
		_, err := b.submit("controller", "gl.close_period", `{"module": "gl", "period": "2026-03", "level": "hard"}`)
		if err == nil {
			break
		}
		if f, _ := fault.As(err); f.Code == "gl.period.pending_intents" {
			require.NotEmpty(t, f.Attributes["intent_ids"])
		} else {
			require.Equal(t, concurrency.CodeConditionFailed, f.Code)
		}
	}
	close(closed)
	wait.Wait()

	events, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, Limit: 100_000})
	require.NoError(t, err)
	waiting, hard := map[string]bool{}, false
	for _, e := range events {
		switch e.Type {
		case intent.Waiting:
			require.False(t, hard, "an intent began to wait after the close")
			waiting[e.Stream.ID] = true
		case intent.RejectedEvent:
			delete(waiting, e.Stream.ID)
		case "gl.period.hard_closed":
			require.Empty(t, waiting, "the close took effect while intents waited")
			hard = true
		}
	}
	require.True(t, hard)
}
