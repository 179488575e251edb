package httpapi

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
)

// EncodeEvents writes events as the API shows them everywhere, one document for each.
// They have been opened for their reader. The codes are those of other legal entities
// in which events may have been caused. A bare event has no data, dimensions and
// entities.
func EncodeEvents(recorded []event.Recorded, codes map[event.PartitionID]string, bare bool) ([][]byte, error) {
	r := &renderer{codes: codes, bare: bare}
	out := make([][]byte, len(recorded))
	for i := range recorded {
		r.b = make([]byte, 0, len(recorded[i].Payload)+len(recorded[i].RulesEvaluated)+1024)
		if err := r.event(&recorded[i]); err != nil {
			return nil, err
		}
		out[i] = slices.Clip(r.b)
	}
	return out, nil
}
