package subscriptions

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// lockedCursor is a locked cursor with messages and parked keys.
type lockedCursor struct {
	ports.DeliveryTx
	now    time.Time
	open   []subscription.Message
	parked map[subscription.Key]event.Sequence
	read   int // messages
	asked  int // for those that wait
}

func (d *lockedCursor) Now() time.Time { return d.now }

func (d *lockedCursor) that(holds func(subscription.Message) bool) (out []subscription.Message) {
	for _, m := range d.open {
		if holds(m) {
			out = append(out, m)
		}
	}
	d.read += len(out)
	return out
}

func (d *lockedCursor) Open(context.Context) ([]subscription.Message, error) {
	return d.that(func(subscription.Message) bool { return true }), nil
}

func (d *lockedCursor) Delivered(context.Context) ([]subscription.Message, error) {
	return d.that(func(m subscription.Message) bool { return m.State != subscription.Waiting }), nil
}

func (d *lockedCursor) Waiting(_ context.Context, after event.Sequence, but []subscription.BlockedKey, limit int) ([]subscription.Message, error) {
	d.asked++
	return d.that(func(m subscription.Message) bool {
		held := func(k subscription.BlockedKey) bool { return k.Key == m.Key && m.Sequence > k.After }
		if limit--; m.State != subscription.Waiting || m.Sequence <= after || slices.ContainsFunc(but, held) {
			limit++
			return false
		}
		return limit >= 0
	}), nil
}

func (d *lockedCursor) ParkedKeys(_ context.Context, keys []subscription.Key) (map[subscription.Key]event.Sequence, error) {
	out := map[subscription.Key]event.Sequence{}
	for _, k := range keys {
		if n, there := d.parked[k]; there {
			out[k] = n
		}
	}
	return out, nil
}

// A part of what is open hands out what the whole of it would.
func TestPartialWindow_DeliversLikeFullWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		d := &lockedCursor{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), parked: map[subscription.Key]event.Sequence{}}
		settings := subscription.Settings{PartitionBy: subscription.PerStream, MessageTimeout: time.Minute, MaxRetries: 5}
		keys := rapid.IntRange(1, 40).Draw(r, "keys")
		key := func(of string) subscription.Key {
			return subscription.Key{1, byte(rapid.IntRange(1, keys).Draw(r, of))}
		}
		for range rapid.IntRange(0, 5).Draw(r, "parked") {
			d.parked[key("parked key")] = event.Sequence(rapid.IntRange(1, 400).Draw(r, "parked at"))
		}
		sequence := event.Sequence(0)
		next := func() event.Sequence {
			sequence += event.Sequence(rapid.IntRange(1, 2).Draw(r, "gap"))
			return sequence
		}
		for range rapid.IntRange(0, 300).Draw(r, "messages") {
			m := subscription.Message{Sequence: next(), Key: key("key"), State: subscription.Waiting}
			if rapid.IntRange(0, 9).Draw(r, "moves") < 4 {
				m.State, m.Attempts = rapid.SampledFrom([]subscription.State{subscription.Leased, subscription.Retry}).Draw(r, "state"), 1
				m.Due = d.now.Add(time.Duration(rapid.IntRange(-2, 2).Draw(r, "due")) * time.Second)
			}
			d.open = append(d.open, m)
		}
		room := rapid.IntRange(1, 30).Draw(r, "room")
		var candidates []subscription.Candidate
		for range rapid.IntRange(0, 30).Draw(r, "new") {
			candidates = append(candidates, subscription.Candidate{Sequence: next(), Key: key("new key")})
		}

		hand := func(w *subscription.Window) (out []subscription.Message, left int) {
			w.Expire()
			held, err := d.ParkedKeys(r.Context(), w.ClaimableKeys())
			require.NoError(r, err)
			w.BlockKeys(held)
			if w.IsPartial() {
				require.NoError(r, loadWaiting(r.Context(), d, w, room))
			}
			out = w.Claim("c", room, nil)
			if left = room - len(out); left == 0 {
				return out, 0
			}
			held, err = d.ParkedKeys(r.Context(), w.CandidateKeys(candidates))
			require.NoError(r, err)
			w.BlockKeys(held)
			fresh, _ := w.Admit(candidates, "c", left, maxWaiting, nil)
			return append(out, fresh...), left
		}
		open, err := d.Open(r.Context())
		require.NoError(r, err)
		whole := subscription.NewWindow(settings, d.now, open)
		want, _ := hand(whole)
		moving, err := d.Delivered(r.Context())
		require.NoError(r, err)
		part := subscription.NewPartialWindow(settings, d.now, moving)
		got, left := hand(part)
		require.Len(r, got, len(want))
		if left > 0 { // all that there was
			require.Equal(r, want, got)
		}
		// No message before an earlier one of its key, unless both are handed out.
		handed := map[event.Sequence]bool{}
		for _, m := range got {
			handed[m.Sequence] = true
		}
		for _, m := range got {
			for _, earlier := range d.open {
				if earlier.Key == m.Key && earlier.Sequence < m.Sequence {
					require.True(r, handed[earlier.Sequence], "%d before %d", m.Sequence, earlier.Sequence)
				}
			}
		}
		lowest := make([]event.Sequence, 0, len(d.open))
		for _, m := range d.open {
			lowest = append(lowest, m.Sequence)
		}
		require.Equal(r, whole.FirstOpen(), part.FirstOpenAmong(lowest[:min(len(lowest), part.ClosedCount()+1)]))
	})
}

// However much waits behind keys that are held, a poll does not read it.
func TestPartialWindow_SkipsHeldKeys(t *testing.T) {
	t.Parallel()
	d := &lockedCursor{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	for n := event.Sequence(1); n <= 5000; n++ {
		m := subscription.Message{Sequence: n, Key: subscription.Key{1, byte(n % 6)}, State: subscription.Waiting}
		if n <= 6 {
			m.State, m.Attempts, m.Due = subscription.Leased, 1, d.now.Add(time.Minute)
		}
		d.open = append(d.open, m)
	}
	d.open = append(d.open, subscription.Message{Sequence: 5001, Key: subscription.Key{2}, State: subscription.Waiting})
	taker := fetcher{sub: &subscription.Subscription{Settings: subscription.Settings{PartitionBy: subscription.PerStream, MessageTimeout: time.Minute}}}
	w, err := taker.loadWindow(t.Context(), d)
	require.NoError(t, err)
	require.NoError(t, loadWaiting(t.Context(), d, w, 10))
	require.Equal(t, []event.Sequence{5001}, w.Claimable(10, nil), "its key is free")
	require.Equal(t, 7, d.read)
}

// However many keys parked messages hold, what waits behind them is not read in ever so
// many small pages, each of which would be held against all that was read before it.
func TestPartialWindow_ManyHeldKeys(t *testing.T) {
	t.Parallel()
	d := &lockedCursor{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), parked: map[subscription.Key]event.Sequence{}}
	const keys = maxBlockedKeys + 50
	for n := event.Sequence(1); n < maxWaiting; n++ {
		k := subscription.Key{1, byte(n % keys), byte(n % keys >> 8)}
		d.parked[k] = 0
		d.open = append(d.open, subscription.Message{Sequence: n, Key: k, State: subscription.Waiting})
	}
	d.open = append(d.open, subscription.Message{Sequence: maxWaiting, Key: subscription.Key{2}, State: subscription.Waiting})
	w := subscription.NewPartialWindow(subscription.Settings{PartitionBy: subscription.PerStream, MessageTimeout: time.Minute}, d.now, nil)
	require.NoError(t, loadWaiting(t.Context(), d, w, 1))
	require.Equal(t, []event.Sequence{maxWaiting}, w.Claimable(1, nil), "its key is free")
	require.LessOrEqual(t, d.asked, 10)
}
