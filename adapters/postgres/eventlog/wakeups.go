package eventlog

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
)

// Listen implements ports.WakeUps. It keeps a direct connection of its own, because LISTEN does
// not work through a transaction pooler, and opens it again whenever it breaks. After each
// connection it wakes once with partition 0, because notifications may have been lost.
func (s *Reader) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	return s.db.ListenTo(ctx, ChannelAppended, func(payload string) {
		if payload == "" {
			wake(0)
			return
		}
		var message struct {
			Partition event.PartitionID `json:"partition"`
		}
		if err := json.Unmarshal([]byte(payload), &message); err == nil && message.Partition != 0 {
			wake(message.Partition)
		}
	})
}

// ChannelAppended is the channel of NOTIFY that says which partitions grew. Payloads carry
// ids and numbers, nothing else.
const ChannelAppended = "event_appended"
