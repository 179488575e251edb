package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/domain/event"
)

// Listen implements ports.WakeUps. It keeps a direct connection of its own, since
// LISTEN does not survive a pooler, and opens it again whenever it breaks.
func (s *Store) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	return s.listen(ctx, channelAppended, func(payload string) {
		var message struct {
			Partition event.PartitionID `json:"partition"`
		}
		if err := json.Unmarshal([]byte(payload), &message); err == nil && message.Partition != 0 {
			wake(message.Partition)
		}
	})
}

// ListenEventTypes calls changed whenever somebody registered an event type, and
// after every reconnection, until ctx ends.
func (s *Store) ListenEventTypes(ctx context.Context, changed func()) error {
	return s.listen(ctx, channelEventTypes, func(string) { changed() })
}

func (s *Store) listen(ctx context.Context, channel string, hear func(payload string)) error {
	for {
		err := s.listenOnce(ctx, channel, hear)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.log.Warn("lost the connection that listens; readers poll", "channel", channel, "error", scrub(err))
		timer := time.NewTimer(reconnectPause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

func (s *Store) listenOnce(ctx context.Context, channel string, hear func(payload string)) error {
	conn, err := s.connect(ctx, s.config.ListenDSN, "backbone listen")
	if err != nil {
		return err
	}
	defer closeConn(conn)
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		hear(n.Payload)
	}
}
