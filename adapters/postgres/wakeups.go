package postgres

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/domain/event"
)

// Listen implements ports.WakeUps. It keeps a direct connection of its own, since
// LISTEN does not survive a pooler, and opens it again whenever it breaks. Whenever it
// listens anew it wakes once with partition 0, since signals may have been missed.
func (s *Reader) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	return s.db.listen(ctx, channelAppended, func(payload string) {
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

// listenCheckTimeout is how long a listening connection may take to begin, and to show
// that it is still there.
const listenCheckTimeout = 5 * time.Second

// ListenEventTypes calls changed whenever somebody registered an event type, and
// after every reconnection, until ctx ends.
func (s *Registry) ListenEventTypes(ctx context.Context, changed func()) error {
	return s.db.listen(ctx, channelEventTypes, func(string) { changed() })
}

// listen hears payloads, and an empty one whenever it begins to listen.
func (s *Database) listen(ctx context.Context, channel string, hear func(payload string)) error {
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

func (s *Database) listenOnce(ctx context.Context, channel string, hear func(payload string)) error {
	beginning, cancel := context.WithTimeout(ctx, listenCheckTimeout)
	defer cancel()
	conn, err := s.connect(beginning, s.config.ListenDSN, "backbone listen")
	if err != nil {
		return err
	}
	defer closeConn(conn)
	if _, err := conn.Exec(beginning, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	hear("")
	for {
		n, err := s.waitNotification(ctx, conn)
		if err != nil {
			return err
		}
		if n != nil {
			hear(n.Payload)
		}
	}
}

// waitNotification waits for a signal. After a silence it asks the server whether the
// connection still is one; nil without an error is that it is.
func (s *Database) waitNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, s.config.ListenCheck)
	n, err := conn.WaitForNotification(quiet)
	silent := err != nil && quiet.Err() != nil && ctx.Err() == nil && !conn.IsClosed()
	cancel()
	if !silent {
		return n, err
	}
	asking, cancel := context.WithTimeout(ctx, listenCheckTimeout)
	defer cancel()
	return nil, conn.Ping(asking)
}
