package memory

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
)

// withinBytes cuts events before the one whose payload exceeds the bytes together with
// those before it; the first stays however large it is. Payloads of other than the given
// types do not count, if any are given. 0 bytes are no bound.
func withinBytes(events []event.Recorded, bytes int, types []string) []event.Recorded {
	total := 0
	for i := range events {
		if len(types) == 0 || slices.Contains(types, events[i].Type) {
			total += len(events[i].Payload)
		}
		if bytes > 0 && i > 0 && total > bytes {
			return events[:i]
		}
	}
	return events
}
