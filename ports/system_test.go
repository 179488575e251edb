package ports_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/ports"
)

func TestLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, began := ports.NewLock(), time.Now()
		require.NoError(t, l.Acquire(t.Context()))

		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, l.Acquire(brief), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))

		time.AfterFunc(time.Second, l.Release)
		require.NoError(t, l.Acquire(t.Context()))
		require.Equal(t, 2*time.Second, time.Since(began))
		l.Release()
		require.ErrorIs(t, l.Acquire(brief), context.DeadlineExceeded, "who has given up gets no free lock either")
	})
}
