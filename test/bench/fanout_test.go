//go:build bench

package bench

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit/natstest"
)

// broker is one server with JetStream or a cluster of three, in this process.
type broker struct {
	urls     string
	replicas int
	stop     func()
}

// startBroker starts servers on files in an empty folder on the cluster's disk.
func startBroker(t *testing.T, o options, servers int) broker {
	t.Helper()
	dir, err := os.MkdirTemp(o.dir, "backbone-bench-nats-")
	require.NoError(t, err)
	clusterPorts := freePorts(t, servers)
	var urls []string
	var stops []func()
	for i := range servers {
		c := natstest.Config{Directory: fmt.Sprintf("%s/%d", dir, i)}
		if servers > 1 {
			c.Cluster = &natstest.Cluster{Name: "bench", Server: "S" + strconv.Itoa(i), Port: clusterPorts[i], Peers: clusterPorts}
		}
		server, err := natstest.Start(c)
		require.NoError(t, err)
		urls, stops = append(urls, server.URL()), append(stops, server.Stop)
	}
	return broker{urls: strings.Join(urls, ","), replicas: servers, stop: func() {
		for _, stop := range stops {
			stop()
		}
		_ = os.RemoveAll(dir) // nothing in it is needed again
	}}
}

// freePorts finds ports without a listener.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// ready waits until the broker makes streams: a cluster has to find its leader first.
func (b broker) ready(t *testing.T) {
	t.Helper()
	conn, err := nats.Connect(b.urls)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "READY", Subjects: []string{"ready"}, Replicas: b.replicas})
		return err == nil && js.DeleteStream(ctx, "READY") == nil
	}, time.Minute, 50*time.Millisecond, "the broker makes no streams")
}

// messages is how many the stream holds.
func (b broker) messages(t *testing.T, stream string) uint64 {
	t.Helper()
	conn, err := nats.Connect(b.urls)
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	s, err := js.Stream(t.Context(), stream)
	require.NoError(t, err)
	return s.CachedInfo().State.Msgs
}

// fanoutFixture measures a node that publishes the books from their beginning.
type fanoutFixture struct {
	*books
	t       *testing.T
	options options
	total   int // events of all legal entities
}

// publish lets a node publish everything to an empty broker. The clock runs from the
// first events that were acknowledged, so that connecting and leases do not count.
func (f *fanoutFixture) publish(servers int) sample {
	t := f.t
	b := startBroker(t, f.options, servers)
	defer b.stop()
	b.ready(t)
	execute(t, f.dsn, "DELETE FROM backbone.publisher_cursors")
	conn := connect(t, f.dsn)
	published := func() (n int) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce(sum(published_through), 0)::bigint FROM backbone.publisher_cursors").Scan(&n))
		return n
	}
	var stream string
	_, _, stop := startNode(t, f.dsn, true, func(c *configs.Config, _ *wire.Options) {
		c.NATS.URLs, c.NATS.Replicas, stream = configs.DSN(b.urls), b.replicas, c.NATS.Stream
	})
	defer stop()
	var s sample
	var first time.Time
	begun := 0
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * time.Minute); ; <-tick.C {
		n := published()
		if begun == 0 && n > 0 {
			first, begun = time.Now(), n
		}
		if n == f.total {
			s = sample{count: n - begun, elapsed: time.Since(first)}
			break
		}
		require.True(t, time.Now().Before(deadline), "%d of %d events were published", n, f.total)
	}
	require.EqualValues(t, f.total, b.messages(t, stream), "each event once")
	return s
}

// encoding reads the books and encodes the events for publishing, without a broker, with as
// many workers as a node has.
func (f *fanoutFixture) encoding(period time.Duration) (s sample) {
	t, app, c := f.t, f.server.App, configs.Default().NATS
	for started := time.Now(); s.elapsed < period; s.elapsed = time.Since(started) {
		heads, err := app.Store.Events.PartitionHeads(t.Context())
		require.NoError(t, err)
		group, ctx := errgroup.WithContext(t.Context())
		group.SetLimit(c.Workers)
		var mu sync.Mutex
		for id, head := range ports.WithoutAdministration(heads) {
			group.Go(func() error {
				for after := event.Sequence(0); after < head.Sequence; {
					page, err := app.Store.Audit.ChainPage(ctx, id, after, c.Batch)
					if err != nil {
						return err
					}
					upcast, err := app.Upcaster.UpcastForDisplay(ctx, page)
					if err != nil {
						return err
					}
					documents, err := httpapi.EncodeEvents(upcast, nil, false)
					if err != nil {
						return err
					}
					after += event.Sequence(len(page))
					mu.Lock()
					s.count += len(documents)
					mu.Unlock()
				}
				return nil
			})
		}
		require.NoError(t, group.Wait())
	}
	return s
}

// reportFanout measures the fan-out to JetStream.
func reportFanout(t *testing.T, o options, s *bookFixtures, figures *table) {
	s.node(t) // its projections are caught up and idle
	f := &fanoutFixture{books: s.books(t), t: t, options: o}
	heads, err := f.server.App.Store.Events.PartitionHeads(t.Context())
	require.NoError(t, err)
	for _, head := range ports.WithoutAdministration(heads) {
		f.total += int(head.Sequence)
	}
	encoding := &variant{name: "reading and encoding", measure: f.encoding}
	one := &variant{name: "fan-out to one server", measure: func(time.Duration) sample { return f.publish(1) }}
	three := &variant{name: "fan-out to three servers", measure: func(time.Duration) sample { return f.publish(3) }}
	statements := newStatistics(t, s.cluster, o)
	o.period /= 2
	o.profiled(t, "fanout", func() { takeTurns(t, o, statements, encoding, one, three) })

	workers := configs.Default().NATS.Workers
	figures.addText(fmt.Sprintf("Reading and encoding %d events of %d legal entities, %d at a time", f.total, len(heads), workers), "%s", perSecond(encoding.rate(), "events"))
	figures.addComparison("Fan-out to JetStream: 1 server, every batch on its disk", one.rate(), one.ratio(encoding), "reading and encoding")
	figures.addComparison("Fan-out to JetStream: 3 servers on this machine, 3 copies", three.rate(), three.ratio(one), "1 server")
}
