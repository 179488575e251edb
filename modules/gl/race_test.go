package gl_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
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
