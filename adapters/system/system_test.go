package system_test

import (
	"bytes"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/domain/event"
)

func TestClock_Now(t *testing.T) {
	t.Parallel()
	before := time.Now().Add(-time.Microsecond)
	now := system.Clock{}.Now()
	require.Equal(t, time.UTC, now.Location())
	require.Zero(t, now.Nanosecond()%1000)
	require.False(t, now.Before(before.Truncate(time.Microsecond)))
	require.False(t, now.After(time.Now()))
	require.NotContains(t, now.String(), "m=")
}

func TestNewID_ConcurrentCallers(t *testing.T) {
	t.Parallel()
	const goroutines, each = 8, 20_000
	ids, clock := system.NewIDs(), system.Clock{}
	made := make([][]event.ID, goroutines)
	var wait sync.WaitGroup
	for g := range made {
		wait.Go(func() {
			out := make([]event.ID, each)
			for i := range out {
				out[i] = ids.NewID(clock.Now())
			}
			made[g] = out
		})
	}
	wait.Wait()
	seen := make(map[event.ID]bool, goroutines*each)
	for _, list := range made {
		for i, id := range list {
			require.False(t, seen[id], "twice: %s", id)
			seen[id] = true
			if i > 0 {
				require.Negative(t, list[i-1].Compare(id))
			}
		}
	}
}

func TestNewID_ClockStoppedOrSetBack(t *testing.T) {
	t.Parallel()
	ids := system.NewIDs()
	at := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	last := ids.NewID(at)
	require.Equal(t, uint64(at.UnixMilli()), last.Time())
	for i := range 10_000 {
		next := ids.NewID(at.Add(-time.Duration(i) * time.Minute))
		require.Negative(t, last.Compare(next))
		require.Equal(t, uint64(at.UnixMilli()), next.Time())
		last = next
	}
	next := ids.NewID(at.Add(time.Millisecond))
	require.Negative(t, last.Compare(next))
	require.Equal(t, uint64(at.UnixMilli())+1, next.Time())
}

func TestNewID_TimesOutOfRange(t *testing.T) {
	t.Parallel()
	ids := system.NewIDs()
	first := ids.NewID(time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC))
	require.Zero(t, first.Time())
	second := ids.NewID(time.Time{})
	require.Negative(t, first.Compare(second))
	third := ids.NewID(time.Date(20000, 1, 1, 0, 0, 0, 0, time.UTC))
	require.Negative(t, second.Compare(third))
	require.Negative(t, third.Compare(ids.NewID(time.Now())))
}

func TestNewID_TextRoundTrip(t *testing.T) {
	t.Parallel()
	id := system.NewIDs().NewID(time.Now())
	parsed, err := event.ParseID(id.String())
	require.NoError(t, err)
	require.Equal(t, id, parsed)
}

func TestNewSalt(t *testing.T) {
	t.Parallel()
	ids := system.NewIDs()
	const goroutines, each = 8, 5_000
	var mu sync.Mutex
	seen := make(map[event.Salt]bool, goroutines*each)
	ones := 0
	var wait sync.WaitGroup
	for range goroutines {
		wait.Go(func() {
			for range each {
				salt := ids.NewSalt()
				mu.Lock()
				seen[salt] = true
				for _, b := range salt {
					ones += int(b & 1)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	require.Len(t, seen, goroutines*each)
	require.False(t, seen[event.Salt{}])
	// 640,000 fair bits: 400 is one standard deviation.
	require.InDelta(t, goroutines*each*16/2, ones, 4000)
	a, b := system.NewIDs().NewSalt(), system.NewIDs().NewSalt()
	require.False(t, bytes.Equal(a[:], b[:]))
}

func BenchmarkNewID(b *testing.B) {
	ids, at := system.NewIDs(), time.Now()
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			_ = ids.NewID(at)
		}
	})
}

func BenchmarkNewSalt(b *testing.B) {
	ids := system.NewIDs()
	b.ReportAllocs()
	for b.Loop() {
		_ = ids.NewSalt()
	}
}
