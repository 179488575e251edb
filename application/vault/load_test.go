package vault_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/test/testkit"
)

// A key service that does not answer holds up those who need new keys of it, and
// takes neither more connections for each of them nor anything from the others.
func TestLoad_HangingKeyServiceDelaysOnlyItsCallers(t *testing.T) {
	t.Parallel()
	r := setup(t, func(c *vault.Config) { c.MaxCallWait = time.Second })
	r.seal(t, r.hired("known"))
	var calls, most atomic.Int64
	answer := make(chan struct{})
	r.service.set(func(s *keyService) {
		s.hold = func() {
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
			switch _, _, err := r.vault.Seal(t.Context(), r.hired(fmt.Sprint("E-", i))); {
			case err == nil:
				sealed.Add(1)
			case fault.CodeOf(err) == "kms.unavailable":
				busy.Add(1)
			}
		})
	}
	testkit.Eventually(t, time.Minute, func() bool { return calls.Load() == 64 }, "as many as may ask at once")

	for range 100 { // keys in memory and documents without personal values wait for nobody
		r.seal(t, r.hired("known"))
		_, _, err := r.vault.Seal(t.Context(), r.document(`{"data":{"id":"E-1"}}`))
		require.NoError(t, err)
	}
	require.EqualValues(t, 64, calls.Load(), "nobody was answered meanwhile")
	require.LessOrEqual(t, most.Load(), int64(64))

	testkit.Eventually(t, time.Minute, func() bool { return busy.Load() == requests-64 }, "the others are told to come again")
	close(answer)
	waiting.Wait()
	require.EqualValues(t, 64, sealed.Load())
	require.LessOrEqual(t, most.Load(), int64(64))
}
