package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/erpbackbone/backbone/ports"
)

// ReconnectPause is between two attempts to open a connection that broke.
const ReconnectPause = time.Second

// CloseConn closes a connection within CloseTimeout; nil is allowed.
func CloseConn(conn *pgx.Conn) {
	if conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), CloseTimeout)
	defer cancel()
	_ = conn.Close(ctx) // an error changes nothing: the connection is not used again
}

// Connect opens a connection outside the pools.
func (s *Database) Connect(ctx context.Context, dsn, name string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	s.prepareConn(config, name, nil)
	return pgx.ConnectConfig(ctx, config)
}

// listenCheckTimeout bounds the start of a listening connection, and the answer to its probe.
const listenCheckTimeout = 5 * time.Second

// ListenTo calls notify with the payload of each notification, and with "" whenever it starts to
// listen, because notifications may have been lost before.
func (s *Database) ListenTo(ctx context.Context, channel string, notify func(payload string)) error {
	for {
		err := s.listenOnce(ctx, channel, notify)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.Log.Warn("lost the connection that listens; readers poll", "channel", channel, "error", RedactError(err))
		if err := ports.Sleep(ctx, ReconnectPause); err != nil {
			return err
		}
	}
}

func (s *Database) listenOnce(ctx context.Context, channel string, notify func(payload string)) error {
	beginning, cancel := context.WithTimeout(ctx, listenCheckTimeout)
	defer cancel()
	conn, err := s.Connect(beginning, s.Config.ListenDSN, "backbone listen")
	if err != nil {
		return err
	}
	defer CloseConn(conn)
	if _, err := conn.Exec(beginning, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return err
	}
	notify("")
	for {
		n, err := s.waitNotification(ctx, conn)
		if err != nil {
			return err
		}
		if n != nil {
			notify(n.Payload)
		}
	}
}

// waitNotification waits for a notification. After ListenCheck without one it pings the
// server; nil without an error means that the connection still works.
func (s *Database) waitNotification(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	quiet, cancel := context.WithTimeout(ctx, s.Config.Limits.ListenCheck)
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
