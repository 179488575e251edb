package administration_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
)

// hangingWriter gets no answer from the store.
type hangingWriter struct{}

func (hangingWriter) Write(ctx context.Context, _ administration.Write) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestLog_WaitingEndsWithContext checks that a caller who gives up does not go on waiting behind
// another one whose store hangs.
func TestLog_WaitingEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.writer.Writer = hangingWriter{}
		log, _ := f.node()
		hanging, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := log.Of(hanging, "acme")
			ended <- err
		}()
		synctest.Wait()

		began := time.Now()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := log.Of(brief, "acme")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		giveUp()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}
