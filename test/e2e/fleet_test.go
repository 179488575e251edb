package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	domain "github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/test/oracle"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/testkit/natstest"
)

const (
	answerTime = 4 * time.Second // how long a client of the fleet waits before it asks another node
	avoidTime  = 2 * time.Second // how long clients avoid a node that did not answer
	oneAnswer  = 2 * time.Minute // how long a client waits that asks no other node
)

// fleet is three nodes on one PostgreSQL, with a key server, a message broker, and a blackhole
// between the last node and the notifications of the database.
type fleet struct {
	dir       string
	nodes     [3]*node
	tokens    map[string]string
	app       string // DSN
	super     string // DSN
	broker    *natstest.Server
	blackhole *blackhole
	http      *http.Client // with a short timeout, for callers that try another node
	pg        *embeddedpg.Cluster
	rules     oracle.Require

	partitions map[string]domain.PartitionID // by legal entity
}

// node is one of the servers; it keeps its address when it starts again.
type node struct {
	id, address  string
	env          []string
	process      *process
	avoidedUntil atomic.Int64 // until when, in Unix milliseconds
}

func (n *node) server() string { return "http://" + n.address }

// newFleet starts a fleet on a copy of the demonstration's books.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{dir: copyOfBooks(t), tokens: map[string]string{}, rules: oracle.For(t), partitions: map[string]domain.PartitionID{}, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: answerTime}}
	var books devFile
	text, err := os.ReadFile(filepath.Join(f.dir, "dev.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &books))
	_, port, err := net.SplitHostPort(testkit.Address(t))
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	f.pg, err = embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: f.dir, Port: number})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), endTime)
		defer cancel()
		require.NoError(t, f.pg.Stop(ctx))
	})
	f.super = superuser(t, f.dir)
	f.app = dsnAt(t, books.DSN, fmt.Sprintf("127.0.0.1:%d", f.pg.Port()))

	keys := filepath.Join(f.dir, "kms")
	issued := command(t, nil, "kmsd", "credentials", "--keys", keys, "--out", keys+"-credentials")
	require.Zero(t, issued.code, issued)
	kmsd, err := launch(program(t), "", nil, "kmsd", "--listen", "127.0.0.1:0", "--keys", keys)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, kmsd.end()) })
	found, err := kmsd.awaitOutput(kmsd.stdout, regexp.MustCompile(`(?m)^Listening on (\S+)$`), endTime)
	require.NoError(t, err)
	f.broker, err = natstest.Start(natstest.Config{Directory: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(f.broker.Stop)
	f.blackhole = newBlackhole(t, fmt.Sprintf("127.0.0.1:%d", f.pg.Port()))

	env := []string{
		"BACKBONE_DATABASE_DSN=" + f.app, "BACKBONE_DATABASE_ERASER_DSN=" + dsnAt(t, books.EraserDSN, fmt.Sprintf("127.0.0.1:%d", f.pg.Port())),
		"BACKBONE_KMS_ENDPOINT=http://" + found[1], "BACKBONE_KMS_CREDENTIALS_FILE=" + keys + "-credentials",
		"BACKBONE_ERASURE_EXPORT_DIRECTORY=" + filepath.Join(f.dir, "exports"), "BACKBONE_NATS_URLS=" + f.broker.URL(),
		"BACKBONE_PROJECTOR_TTL=3s", "BACKBONE_PROJECTOR_RENEW=1s", "BACKBONE_FEEDS_HEARTBEAT=1s", "BACKBONE_LOG_LEVEL=warn",
		"BACKBONE_WEBHOOK_ALLOW_PRIVATE_NETWORKS=true", "BACKBONE_WEBHOOK_ALLOW_HTTP=true", "BACKBONE_WEBHOOK_TIMEOUT=15s",
	}
	for _, role := range []string{"admin", "module", "ap_clerk", "approver", "vendor_admin", "auditor"} {
		args := []string{"enroll", "--tenant", books.Tenant, "--person", "fleet-" + strings.ReplaceAll(role, "_", "-"), "--role", role}
		if role == "module" {
			args = append(append(args, "--service"), serviceFlags("p-admin")...)
		}
		r := command(t, env, args...)
		require.Zero(t, r.code, r)
		f.tokens[role] = strings.TrimSpace(r.stdout)
	}
	for i := range f.nodes {
		n := &node{id: fmt.Sprintf("fleet-%d", i), address: testkit.Address(t)}
		n.env = append(env[:len(env):len(env)], "BACKBONE_NODE_ID="+n.id, "BACKBONE_HTTP_LISTEN="+n.address)
		if i == len(f.nodes)-1 {
			n.env = append(n.env, "BACKBONE_DATABASE_LISTEN_DSN="+dsnAt(t, f.app, f.blackhole.address))
		}
		f.nodes[i] = n
		f.startNode(t, n)
	}
	return f
}

// dsnAt is the same database at another address.
func dsnAt(t *testing.T, dsn, address string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	u.Host = address
	return u.String()
}

// startNode starts a node and waits until it answers.
func (f *fleet) startNode(t *testing.T, n *node) {
	t.Helper()
	p, err := launch(program(t), "", n.env, "serve")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.end()) })
	n.process = p
	testkit.EventuallyNoError(t, recoveryStart, func() error {
		if !p.alive() {
			t.Fatalf("%s ended: %s", n.id, p.stderr)
		}
		return f.shortTimeoutClient(n, "").want(http.StatusOK, nil, "GET", "/livez", "")
	}, n.id)
}

// killNode kills a node with SIGKILL.
func (f *fleet) killNode(t *testing.T, n *node) {
	t.Helper()
	require.NoError(t, n.process.signal(syscall.SIGKILL))
	<-n.process.ended
}

// restartNode ends a node and starts it again.
func (f *fleet) restartNode(t *testing.T, n *node) {
	t.Helper()
	f.killNode(t, n)
	f.startNode(t, n)
}

// killDatabase ends PostgreSQL as a power failure does, and starts it again.
func (f *fleet) killDatabase(t *testing.T) {
	t.Helper()
	pid, err := postmaster(f.dir)
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	<-f.pg.Done()
	port := f.pg.Port()
	require.NoError(t, f.pg.Stop(t.Context()), "it releases the folder")
	again, err := embeddedpg.Start(t.Context(), embeddedpg.Config{DataDir: f.dir, Port: port})
	require.NoError(t, err)
	f.pg = again // a stopped cluster may be stopped again, nil may not
}

// client sends requests to one node, which must answer, with a long timeout.
func (f *fleet) client(n *node, role string) client {
	return client{server: n.server(), token: f.tokens[role], http: &http.Client{Transport: f.http.Transport, Timeout: oneAnswer}}
}

// shortTimeoutClient sends requests to a node that may be down.
func (f *fleet) shortTimeoutClient(n *node, role string) client {
	return client{server: n.server(), token: f.tokens[role], http: f.http}
}

// query runs a statement as the superuser.
func (f *fleet) query(t *testing.T, statement string, scan ...any) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), f.super)
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	require.NoError(t, connection.QueryRow(t.Context(), statement).Scan(scan...), statement)
}

// retryableRefusals are refusals that ask the caller to try again.
var retryableRefusals = []string{"idempotency.in_progress"}

// sendToAny sends a request to the nodes in turn until one answers with less than 500. It fails
// when ctx ends.
func (f *fleet) sendToAny(ctx context.Context, first int, role, method, path, body string, header ...string) (answer, error) {
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for i := first; ; i++ {
		n := f.nodes[i%len(f.nodes)]
		var a answer
		var err error
		if time.Now().UnixMilli() >= n.avoidedUntil.Load() {
			a, err = f.shortTimeoutClient(n, role).do(method, path, body, header...)
			if os.IsTimeout(err) && f.isUnresponsive(n) {
				n.avoidedUntil.Store(time.Now().Add(avoidTime).UnixMilli())
			}
			if err == nil && a.status < 500 && !slices.Contains(retryableRefusals, a.code()) {
				return a, nil
			}
		}
		select {
		case <-ctx.Done():
			return a, fmt.Errorf("%s %s: %s: %w", method, path, a, ctx.Err())
		case <-pause.C:
		}
	}
}

// isUnresponsive reports whether a node does not answer /livez: a request may merely take long.
func (f *fleet) isUnresponsive(n *node) bool {
	hasty := client{server: n.server(), http: &http.Client{Transport: f.http.Transport, Timeout: time.Second}}
	return hasty.want(http.StatusOK, nil, "GET", "/livez", "") != nil
}

// blackhole is a proxy to the database that can swallow all bytes: connections stay open and
// transfer nothing, as behind a firewall that dropped their state.
type blackhole struct {
	address string
	mutex   sync.Mutex
	closed  bool // swallows
	pairs   []net.Conn
}

func newBlackhole(t *testing.T, target string) *blackhole {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &blackhole{address: l.Addr().String()}
	t.Cleanup(func() { _ = l.Close(); w.forward() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			w.mutex.Lock()
			w.pairs = append(w.pairs, near, far)
			w.mutex.Unlock()
			go w.pump(near, far)
			go w.pump(far, near)
		}
	}()
	return w
}

func (w *blackhole) pump(from, to net.Conn) {
	defer func() { _, _ = from.Close(), to.Close() }()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		w.mutex.Lock()
		swallow := w.closed
		w.mutex.Unlock()
		if swallow {
			continue
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (w *blackhole) swallow() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.closed = true
}

// forward transfers bytes again. Swallowed bytes are lost, so forward closes the old
// connections.
func (w *blackhole) forward() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.closed = false
	for _, c := range w.pairs {
		_ = c.Close()
	}
	w.pairs = nil
}
