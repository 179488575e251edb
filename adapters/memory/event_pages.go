package memory

import "github.com/erpbackbone/backbone/domain/event"

// withinBytes cuts events before the one whose payload exceeds the bytes together with
// those before it; the first stays however large it is. 0 bytes are no bound.
func withinBytes(events []event.Recorded, bytes int) []event.Recorded {
	total := 0
	for i := range events {
		if total += len(events[i].Payload); bytes > 0 && i > 0 && total > bytes {
			return events[:i]
		}
	}
	return events
}
