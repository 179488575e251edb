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
	stallTime = 500 * time.Millisecond // between two answers
	stallLook = 50 * time.Millisecond
)

// recordStalls records when the test, a node or PostgreSQL is stalled because the machine gave
// it no processor or no disk. Events delivered during a stall may be delivered again, which
// would otherwise be unexplained. A lock is no stall: the probes wait for none.
func (f *fleet) recordStalls(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	t.Cleanup(func() { cancel(); done.Wait() })
	watch := func(process string, alive func() error) {
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
					f.broken.addStall(process, last, now)
				}
				last = now
			}
		})
	}
	watch("the test", func() error { return nil })
	for _, n := range f.nodes {
		hasty := client{server: n.server(), http: &http.Client{Transport: f.http.Transport, Timeout: 2 * stallTime}}
		watch(n.id, func() error { return hasty.want(http.StatusOK, nil, "GET", "/livez", "") })
	}
	var connection *pgx.Conn
	t.Cleanup(func() {
		cancel()
		done.Wait()
		if connection != nil {
			_ = connection.Close(context.Background())
		}
	})
	watch("PostgreSQL", func() (err error) {
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
