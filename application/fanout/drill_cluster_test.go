package fanout_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/nats"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/testkit/natstest"
)

// serverVariable makes this test binary a NATS server: it is killed with SIGKILL, which
// a server inside the test's own process could not be.
const serverVariable = "BACKBONE_PUBLISH_TEST_SERVER"

func TestMain(m *testing.M) {
	text := os.Getenv(serverVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var c natstest.Config
	err := json.Unmarshal([]byte(text), &c)
	if err == nil {
		_, err = natstest.Start(c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the test does
	os.Exit(0)
}

const maxWait = time.Minute

// natsCluster is three server processes with JetStream.
type natsCluster struct {
	js      jetstream.JetStream
	configs []natstest.Config
	running []*exec.Cmd // nil: killed
}

// portsToKeep are for servers that are killed and come back there.
func portsToKeep(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	for range n {
		_, text, err := net.SplitHostPort(testkit.Address(t))
		require.NoError(t, err)
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		out = append(out, port)
	}
	return out
}

func startCluster(t *testing.T) *natsCluster {
	t.Helper()
	ports := portsToKeep(t, 6)
	c := &natsCluster{running: make([]*exec.Cmd, 3)}
	for i := range 3 {
		c.configs = append(c.configs, natstest.Config{
			Directory: t.TempDir(), Port: ports[i],
			Cluster: &natstest.Cluster{Name: "C", Server: "S" + strconv.Itoa(i), Port: ports[3+i], Peers: ports[3:]},
		})
	}
	t.Cleanup(func() {
		for i := range 3 {
			c.kill(i)
		}
	})
	for i := range 3 {
		c.start(t, i)
	}
	conn, err := client.Connect(strings.Join(c.urls(), ","), client.RetryOnFailedConnect(true), client.MaxReconnects(-1), client.ReconnectWait(100*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	c.js, err = jetstream.New(conn)
	require.NoError(t, err)
	return c
}

func (c *natsCluster) start(t *testing.T, i int) {
	t.Helper()
	config, err := json.Marshal(c.configs[i])
	require.NoError(t, err)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), serverVariable+"="+string(config))
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // closed when this process ends, however it ends
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c.running[i] = cmd
}

// kill ends a server with SIGKILL.
func (c *natsCluster) kill(i int) {
	if cmd := c.running[i]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
		c.running[i] = nil
	}
}

// leader finds the server that leads the stream, and whether all copies of the stream
// are there and current.
func (c *natsCluster) leader(stream string) (leader int, whole bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return -1, false
	}
	cluster := s.CachedInfo().Cluster
	if cluster == nil || cluster.Leader == "" {
		return -1, false
	}
	leader, err = strconv.Atoi(strings.TrimPrefix(cluster.Leader, "S"))
	if err != nil {
		return -1, false
	}
	whole = len(cluster.Replicas) == 2
	for _, r := range cluster.Replicas {
		whole = whole && r.Current && !r.Offline
	}
	return leader, whole
}

// whole waits until the stream has a leader and all its copies, and gives the leader.
func (c *natsCluster) whole(t *testing.T) (leader int) {
	t.Helper()
	testkit.Eventually(t, 2*maxWait, func() (whole bool) {
		leader, whole = c.leader("BACKBONE")
		return whole && c.running[leader] != nil
	}, "a stream with all its copies")
	return leader
}

func (c *natsCluster) urls() (out []string) {
	for _, config := range c.configs {
		out = append(out, "nats://127.0.0.1:"+strconv.Itoa(config.Port))
	}
	return out
}

// contents reads a stream: the sequences of each partition in its order.
func contents(t *testing.T, urls []string, want uint64) map[string][]int {
	t.Helper()
	conn, err := client.Connect(strings.Join(urls, ","))
	require.NoError(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	require.NoError(t, err)
	var consumer jetstream.Consumer
	testkit.EventuallyNoError(t, maxWait, func() error {
		consumer, err = js.OrderedConsumer(context.Background(), "BACKBONE", jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		return err
	})
	out := map[string][]int{}
	messages, err := consumer.Messages()
	require.NoError(t, err)
	defer messages.Stop()
	for range want {
		m, err := messages.Next(jetstream.NextMaxWait(maxWait))
		require.NoError(t, err, "%d of %d messages", len(out), want)
		var body struct {
			Sequence int `json:"sequence,string"`
		}
		require.NoError(t, json.Unmarshal(m.Data(), &body))
		entity := strings.Split(m.Subject(), ".")[2]
		out[entity] = append(out[entity], body.Sequence)
	}
	stream, err := js.Stream(context.Background(), "BACKBONE")
	require.NoError(t, err)
	require.Equal(t, want, stream.CachedInfo().State.Msgs, "more messages than events")
	return out
}

// TestDrillBrokerClusterLosesServers publishes to three servers under load while
// the leader of the stream is killed again and again, and at last the whole cluster.
func TestDrillBrokerClusterLosesServers(t *testing.T) {
	for _, atomic := range []bool{true, false} {
		t.Run(map[bool]string{true: "atomic batches", false: "one at a time"}[atomic], func(t *testing.T) {
			cluster := startCluster(t)
			prepareStream(t, cluster.js, atomic)
			r := newFixture()
			r.cursors.broker = nil // the real one is asked at the end
			const partitions, ahead = 6, 500
			writing, stopWriting := context.WithCancel(context.Background())
			var writers sync.WaitGroup
			writers.Go(func() { // a steady load, that waits for what is published
				tick := time.NewTicker(5 * time.Millisecond)
				defer tick.Stop()
				for n := 0; ; n++ {
					select {
					case <-writing.Done():
						return
					case <-tick.C:
						p := event.PartitionID(1 + n%partitions)
						heads, _ := r.log.Heads()
						if heads[p].Sequence < r.cursors.through(t, p)+ahead {
							r.log.write(p, 10)
						}
					}
				}
			})
			defer stopWriting()
			for _, node := range []string{"a", "b"} {
				c := r.config(node)
				p, err := nats.Open(nats.Config{
					URLs: cluster.urls(), Stream: "BACKBONE", SubjectPrefix: "backbone",
					Limits: nats.Limits{Replicas: 3, Timeout: 2 * time.Second, DuplicateWindow: 5 * time.Minute, Batch: 256},
				})
				require.NoError(t, err)
				t.Cleanup(p.Close)
				c.Publisher, c.TTL, c.Batch = p, 3*time.Second, 100
				c.FirstPause, c.LongestPause = 50*time.Millisecond, 500*time.Millisecond
				_, _ = run(t, c)
			}
			progress := func() {
				t.Helper()
				from := map[event.PartitionID]event.Sequence{}
				for p := event.PartitionID(1); p <= partitions; p++ {
					from[p] = r.cursors.through(t, p)
				}
				for p, was := range from {
					testkit.Eventually(t, 2*maxWait, func() bool { return r.cursors.through(t, p) > was+50 }, "partition ", p, " goes on")
				}
			}
			progress()
			for range 3 {
				down := cluster.whole(t)
				cluster.kill(down)
				progress() // with two of three
				cluster.start(t, down)
			}
			// All of them at once. What they had acknowledged is in files that the machine
			// still has.
			cluster.whole(t)
			for i := range 3 {
				cluster.kill(i)
			}
			for i := range 3 {
				cluster.start(t, i)
			}
			progress()
			stopWriting()
			writers.Wait()
			heads, _ := r.log.Heads()
			var total uint64
			for p, h := range heads {
				testkit.Eventually(t, 2*maxWait, func() bool { return r.cursors.through(t, p) == h.Sequence }, "partition ", p, " at its head")
				total += uint64(h.Sequence)
			}
			got := contents(t, cluster.urls(), total)
			for p, h := range heads {
				sequences := got[fmt.Sprintf("LE%d", p)]
				require.Len(t, sequences, int(h.Sequence), "partition %d", p)
				for i, n := range sequences {
					require.Equal(t, i+1, n, "partition %d is out of order", p)
				}
			}
			t.Logf("%d events, each once and in order", total)
		})
	}
}

// prepareStream makes the stream as an operator does.
func prepareStream(t *testing.T, js jetstream.JetStream, atomic bool) {
	t.Helper()
	testkit.EventuallyNoError(t, 2*maxWait, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: "BACKBONE", Subjects: []string{"backbone.>"}, Replicas: 3, Duplicates: 5 * time.Minute, AllowAtomicPublish: atomic,
		})
		return err
	})
}
