package streams_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/streams"
)

func TestBackground_Limits(t *testing.T) {
	t.Parallel()
	b := streams.NewBackground()
	t.Cleanup(b.Close)
	hold := make(chan struct{})
	wait := func(context.Context) { <-hold }
	require.True(t, b.Do("a", wait))
	require.False(t, b.Do("a", wait), "one at a time under a key")
	taken := 1
	for i := range 10 {
		if b.Do(fmt.Sprint(i), wait) {
			taken++
		}
	}
	require.Less(t, taken, 10, "what is too much is dropped")
	close(hold)
	b.Wait()
	done := false
	require.True(t, b.Do("a", func(context.Context) { done = true }), "there is room again")
	b.Wait()
	require.True(t, done)
}

func TestBackground_JobTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, begun := streams.NewBackground(), time.Now()
		t.Cleanup(b.Close)
		var failed error
		require.True(t, b.Do("a", func(ctx context.Context) {
			<-ctx.Done()
			failed = ctx.Err()
		}))
		b.Wait()
		require.ErrorIs(t, failed, context.DeadlineExceeded)
		require.Equal(t, 30*time.Second, time.Since(begun))
	})
}

func TestBackground_Close(t *testing.T) {
	t.Parallel()
	b := streams.NewBackground()
	began, ended := make(chan struct{}), false
	require.True(t, b.Do("a", func(ctx context.Context) {
		close(began)
		<-ctx.Done()
		ended = true
	}))
	<-began
	b.Close()
	require.True(t, ended)
	require.False(t, b.Do("b", func(context.Context) {}))
}
