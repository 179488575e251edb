package keystore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/keystoredb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/ports"
)

// channelEvict is the NOTIFY channel of evictions. A payload is the reference of a key.
const channelEvict = "keystore_evict"

// Pauses between attempts to listen.
const (
	firstListenPause = 100 * time.Millisecond
	maxListenPause   = 5 * time.Second
	listenTimeout    = 10 * time.Second // for a connection that listens
)

// ListenEvictions implements ports.KeyEvictions on a connection of its own, since
// a transaction pooler does not support LISTEN. It calls lost when the connection is lost
// and each time it begins to listen: keys that were read before may have been destroyed
// since.
func (k *Store) ListenEvictions(ctx context.Context, evict func(reference string), lost func()) error {
	pause := firstListenPause
	for {
		listened, err := k.listenOnce(ctx, evict, lost)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if listened {
			lost()
			pause = firstListenPause
		}
		k.config.Logger.Warn("lost the connection that listens for destroyed keys; the cached keys are evicted", "error", pg.RedactError(err))
		if err := ports.Sleep(ctx, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		pause = min(2*pause, maxListenPause)
	}
}

func (k *Store) listenOnce(ctx context.Context, evict func(string), lost func()) (listened bool, err error) {
	config, err := pgx.ParseConfig(k.config.ListenDSN)
	if err != nil {
		return false, err
	}
	prepare(config, "backbone evictions", nil)
	opening, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(opening, config)
	if err != nil {
		return false, err
	}
	defer pg.CloseConn(conn)
	if _, err := conn.Exec(opening, "LISTEN "+channelEvict); err != nil {
		return false, err
	}
	lost()
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return true, err
		}
		evict(n.Payload)
	}
}

// ReportNode implements ports.KeyEvictions.
func (k *Store) ReportNode(ctx context.Context, node string, forgotten int64) (newest int64, err error) {
	newest, err = k.queries.ReportNode(ctx, k.pool, &keystoredb.ReportNodeParams{NodeID: node, Forgotten: forgotten})
	return newest, translateKeys(ctx, err)
}
