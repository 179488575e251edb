package vault_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/fault"
)

// TestAcquireSlot_HangingKeyServiceDelaysOnlyItsCallers: a key service that does not answer
// delays requests that need a key from it, with a bounded number of calls, and no others.
func TestAcquireSlot_HangingKeyServiceDelaysOnlyItsCallers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newVaultFixture(t, func(c *vault.Config) { c.MaxCallWait = time.Second })
		r.seal(t, r.contactRequest("known"))
		var calls, most atomic.Int64
		answer := make(chan struct{})
		r.service.set(func(s *keyService) {
			s.onCall = func() {
				n := calls.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				<-answer
				calls.Add(-1)
			}
		})
		var waiting sync.WaitGroup
		var sealed, busy atomic.Int64
		const requests = 400
		for i := range requests {
			waiting.Go(func() {
				switch _, _, err := r.vault.Seal(t.Context(), r.contactRequest(fmt.Sprint("E-", i))); {
				case err == nil:
					sealed.Add(1)
				case fault.CodeOf(err) == "kms.unavailable":
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		require.EqualValues(t, 64, calls.Load(), "as many as may call at the same time")

		begun := time.Now()
		for range 100 { // with keys in memory, and without personal values
			r.seal(t, r.contactRequest("known"))
			_, _, err := r.vault.Seal(t.Context(), r.sealRequest(`{"data":{"id":"E-1"}}`))
			require.NoError(t, err)
		}
		require.Zero(t, time.Since(begun), "nothing is waited for")
		require.EqualValues(t, 64, calls.Load(), "no call has ended")
		require.LessOrEqual(t, most.Load(), int64(64))

		pass(time.Second - 1)
		require.Zero(t, busy.Load())
		pass(1)
		require.EqualValues(t, requests-64, busy.Load(), "the other requests fail with kms.unavailable")
		close(answer)
		waiting.Wait()
		require.EqualValues(t, 64, sealed.Load())
		require.LessOrEqual(t, most.Load(), int64(64))
	})
}
