package subscription

import (
	"cmp"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// NewPartialWindow makes a window of some of the open messages, by sequence. Nothing may be
// handed out before Take has added whatever else could be.
func NewPartialWindow(s Settings, now time.Time, open []Message) *Window {
	w := NewWindow(s, now, open)
	w.partial = true
	return w
}

// IsPartial reports whether more may be open than the window was given.
func (w *Window) IsPartial() bool { return w.partial }

// Add adds open messages that the window was not given, by sequence.
func (w *Window) Add(more []Message) {
	w.open = append(slices.Clip(w.open), more...)
	slices.SortFunc(w.open, func(a, b Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

// HeldKey says that nothing of a key can be handed out that follows a sequence.
type HeldKey struct {
	Key   Key
	After event.Sequence
}

// HeldKeys lists the keys of which nothing can be handed out that follows a message of the
// window, each once, with the first such message. What comes before it may be free: a
// message that was given back, or an earlier one that is replayed.
func (w *Window) HeldKeys() (keys []HeldKey) {
	held := map[Key]bool{}
	for i := range w.open {
		m := &w.open[i]
		if !w.isClosed(m) && m.Key != (Key{}) && !held[m.Key] && (!w.isReady(m) || w.isHeldByParked(m.Key, m.Sequence)) {
			held[m.Key] = true
			keys = append(keys, HeldKey{m.Key, m.Sequence})
		}
	}
	return keys
}

// ClosedCount counts the messages that are no longer open after this window.
func (w *Window) ClosedCount() int {
	n := 0
	for i := range w.open {
		if w.isClosed(&w.open[i]) {
			n++
		}
	}
	return n
}

// FirstOpenAmong is First of a part, given the lowest sequences that were open before, one more
// than Ended.
func (w *Window) FirstOpenAmong(lowest []event.Sequence) event.Sequence {
	first := w.FirstOpen()
	for _, n := range lowest {
		if first > 0 && n >= first {
			break
		}
		i, there := slices.BinarySearchFunc(w.open, n, compareSequence)
		if !there || !w.isClosed(&w.open[i]) {
			return n
		}
	}
	return first
}
