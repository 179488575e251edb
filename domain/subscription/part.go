package subscription

import (
	"cmp"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// NewPart makes a window of some of the open messages, by sequence. Nothing may be
// handed out before Take has added whatever else could be.
func NewPart(s Settings, now time.Time, some []Message) *Window {
	w := NewWindow(s, now, some)
	w.part = true
	return w
}

// Part reports whether more may be open than the window was given.
func (w *Window) Part() bool { return w.part }

// Take adds open messages that the window was not given, by sequence.
func (w *Window) Take(more []Message) {
	w.open = append(slices.Clip(w.open), more...)
	slices.SortFunc(w.open, func(a, b Message) int { return cmp.Compare(a.Sequence, b.Sequence) })
}

// HeldKey says that nothing of a key can be handed out that follows a sequence.
type HeldKey struct {
	Key   Key
	After event.Sequence
}

// Held lists the keys of which nothing can be handed out that follows a message of the
// window, each once, with the first such message. What comes before it may be free: a
// message that was given back, or an earlier one that is replayed.
func (w *Window) Held() (keys []HeldKey) {
	held := map[Key]bool{}
	for i := range w.open {
		m := &w.open[i]
		if !w.gone(m) && m.Key != (Key{}) && !held[m.Key] && (!w.ready(m) || w.behindParked(m.Key, m.Sequence)) {
			held[m.Key] = true
			keys = append(keys, HeldKey{m.Key, m.Sequence})
		}
	}
	return keys
}

// Ended counts the messages that are no longer open after this window.
func (w *Window) Ended() int {
	n := 0
	for i := range w.open {
		if w.gone(&w.open[i]) {
			n++
		}
	}
	return n
}

// FirstOf is First of a part, given the lowest sequences that were open before, one more
// than Ended.
func (w *Window) FirstOf(lowest []event.Sequence) event.Sequence {
	first := w.First()
	for _, n := range lowest {
		if first > 0 && n >= first {
			break
		}
		i, there := slices.BinarySearchFunc(w.open, n, bySequence)
		if !there || !w.gone(&w.open[i]) {
			return n
		}
	}
	return first
}
