package e2e

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	stallTime = 500 * time.Millisecond // without a sign of life
	stallLook = 50 * time.Millisecond
)

// recordStalls records when the test, a node or PostgreSQL is stalled, of which the machine is
// the cause: it gave no processor or no disk. What is handed out then may come again,
// which would otherwise be unexplained. A session that waits for a lock is not stalled:
// what is asked for waits for none.
func (f *fleet) recordStalls(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	look := func(who string, alive func() error) {
		done.Go(func() {
			pace := time.NewTicker(stallLook)
			defer pace.Stop()
			for last := time.Now(); ; {
				select {
				case <-ctx.Done():
					return
				case <-pace.C:
				}
				_ = alive() // a process that has ended is not stalled
				now := time.Now()
				if now.Sub(last) > stallTime {
					f.broken.addStall(who, last, now)
				}
				last = now
			}
		})
	}
	look("the test", func() error { return nil })
	for _, n := range f.nodes {
		hasty := client{server: n.server(), http: &http.Client{Transport: f.http.Transport, Timeout: 2 * stallTime}}
		look(n.id, func() error { return hasty.want(http.StatusOK, nil, "GET", "/livez", "") })
	}
	var connection *pgx.Conn
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if connection != nil {
			_ = connection.Close(context.Background())
		}
	})
	look("PostgreSQL", func() (err error) {
		if connection == nil {
			if connection, err = pgx.Connect(ctx, f.super); err != nil {
				connection = nil
				return err
			}
		}
		_, err = connection.Exec(ctx, "SELECT pg_current_xact_id()") // its commit goes to the disk
		if err != nil {
			err = errors.Join(err, connection.Close(ctx))
			connection = nil
		}
		return err
	})
}
