package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// synchronousBackground runs jobs at once.
type synchronousBackground struct{}

func (synchronousBackground) Do(_ string, f func(context.Context)) bool {
	f(context.Background())
	return true
}

// busyBackground drops the first jobs.
type busyBackground struct{ dropped *int }

func (b busyBackground) Do(_ string, f func(context.Context)) bool {
	if *b.dropped > 0 {
		*b.dropped--
		return false
	}
	f(context.Background())
	return true
}

// TestSnapshot_DroppedByBusyBackground checks that the next plan asks for a dropped snapshot
// again, instead of waiting for another SnapshotEvery events.
func TestSnapshot_DroppedByBusyBackground(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	dropped := 2
	c := b.service.Config
	c.Catalog, c.Snapshots, c.Background, c.SnapshotEvery = codecCatalog{c.Catalog, 1}, b.snapshots(&testkit.Secrets{}), busyBackground{&dropped}, 5
	node := testkit.Must(pipeline.New(c))
	for range 9 {
		_, err := node.Submit(t.Context(), cashier, b.moveCash(`{"amount":2}`))
		require.NoError(t, err)
	}
	require.Zero(t, dropped)
	stored, _, err := b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, event.StreamID{Type: "cash", ID: "main"}, true, 0)
	require.NoError(t, err)
	require.Less(t, stored.Version, event.Version(9))
}

// codecCatalog adds a codec to the fold of cashModule.
type codecCatalog struct {
	pipeline.Catalog
	version int
}

func (c codecCatalog) Fold(streamType string) (module.Fold, bool) {
	f, ok := c.Catalog.Fold(streamType)
	f.Codec, f.IsLong = module.JSONCodec[cashBalance](c.version), true
	return f, ok
}

// countingLog counts the events that are read from streams.
type countingLog struct {
	pipeline.Log
	read atomic.Int64
}

func (l *countingLog) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, more, err := l.Log.ReadStream(ctx, q)
	l.read.Add(int64(len(events)))
	return events, more, err
}

func (b *cashFixture) snapshots(secrets *testkit.Secrets) *snapshots.Streams {
	return snapshots.NewStreams(b.store.Snapshots, snapshots.NewAuthenticator(secrets, slog.New(slog.NewJSONHandler(&b.log, nil)), nil))
}

// node starts a node with snapshots that counts the events it reads.
func (b *cashFixture) node(version int) (*pipeline.Service, *countingLog) {
	return b.nodeWith(version, &testkit.Secrets{})
}

func (b *cashFixture) nodeWith(version int, secrets *testkit.Secrets) (*pipeline.Service, *countingLog) {
	c, log := b.service.Config, &countingLog{Log: b.store.Events}
	c.Appender, c.Events, c.Catalog = b.store.Appender, log, codecCatalog{c.Catalog, version}
	c.Snapshots, c.Background, c.SnapshotEvery = b.snapshots(secrets), synchronousBackground{}, 5
	return testkit.Must(pipeline.New(c)), log
}

// seen returns the balance that a node plans with.
func (b *cashFixture) seen(t require.TestingT, n *pipeline.Service) int64 {
	req := b.moveCash(`{"amount":-1000000}`)
	req.DryRun = true
	_, err := n.Submit(context.Background(), cashier, req)
	require.Equal(t, "cash.overdrawn", fault.CodeOf(err))
	var balance int64
	f, _ := fault.As(err)
	_, err = fmt.Sscanf(f.Detail, "there are %d in the cash box", &balance)
	require.NoError(t, err)
	return balance
}

// TestSnapshot_StateEquality starts nodes over random histories. Each starts from the
// stored snapshot if it can decode it, and plans with the same state as the other nodes.
func TestSnapshot_StateEquality(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := newCashFixture(t)
		node, _ := b.node(1)
		events, balance := 0, int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1:
				node, _ = b.node(1)
			case 2:
				other, _ := b.node(2) // another version of the program, with its own codec
				require.Equal(rt, balance, b.seen(rt, other))
			default:
				amount := rapid.Int64Range(-9, 12).Draw(rt, "amount")
				_, err := node.Submit(t.Context(), cashier, b.moveCash(fmt.Sprintf(`{"amount":%d}`, amount)))
				if balance+amount < 0 {
					require.Equal(rt, "cash.overdrawn", fault.CodeOf(err))
					continue
				}
				require.NoError(rt, err)
				balance += amount
				events++
			}
			require.Equal(rt, balance, b.seen(rt, node))
		}
		require.Equal(rt, balance, b.balance(t))
	})
}

func TestSnapshot_NodeStart(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	node, _ := b.node(1)
	for range 23 {
		_, err := node.Submit(t.Context(), cashier, b.moveCash(`{"amount":2}`))
		require.NoError(t, err)
	}
	stream := event.StreamID{Type: "cash", ID: "main"}
	stored, _, err := b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
	require.NoError(t, err)
	require.Equal(t, "fold:cash", stored.StateType)
	require.Equal(t, 1, stored.SchemaVersion)
	require.GreaterOrEqual(t, stored.Version, event.Version(18))
	_, _, err = b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, stream, false, 0)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err), "clients do not see it")

	fresh, log := b.node(1)
	require.EqualValues(t, 46, b.seen(t, fresh))
	require.EqualValues(t, 23-stored.Version, log.read.Load())

	other, log := b.node(2)
	require.EqualValues(t, 46, b.seen(t, other))
	require.GreaterOrEqual(t, log.read.Load(), int64(23), "a snapshot of another codec is not used")

	for _, damaged := range []string{`[]`, `null`, `{"Balance":"much"}`} {
		_, epoch, err := b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
		require.NoError(t, err)
		_, _, err = b.snapshots(&testkit.Secrets{}).Save(t.Context(), b.entity.TenantID, ports.StreamSnapshot{
			ID: ulid.Make(), Partition: b.entity.Partition, Stream: stream, Internal: true, Version: 23, StateType: "fold:cash", SchemaVersion: 1,
			State: json.RawMessage(damaged), CreatedAt: time.Now(),
		}, epoch)
		require.NoError(t, err)
		fresh, log := b.node(1)
		require.EqualValues(t, 46, b.seen(t, fresh), damaged)
		require.GreaterOrEqual(t, log.read.Load(), int64(23))
		healed, _, err := b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(healed.State), `{"Balance":46`), "a valid snapshot replaced it")
	}
}

// TestSnapshot_Forged checks that a node plans with what the events say when a snapshot was
// edited, or put back from before a redaction, and removes it.
func TestSnapshot_Forged(t *testing.T) {
	t.Parallel()
	stream := event.StreamID{Type: "cash", ID: "main"}
	for name, forge := range map[string]func(*ports.StreamSnapshot){
		"state":          func(s *ports.StreamSnapshot) { s.State = json.RawMessage(`{"Balance":1000}`) },
		"version":        func(s *ports.StreamSnapshot) { s.Version++ },
		"later version":  func(s *ports.StreamSnapshot) { s.Version = 1 << 60 },
		"state type":     func(s *ports.StreamSnapshot) { s.StateType = "fold:cash@x" },
		"schema version": func(s *ports.StreamSnapshot) { s.SchemaVersion++ },
		"id":             func(s *ports.StreamSnapshot) { s.ID = ulid.Make() },
		"metadata":       func(s *ports.StreamSnapshot) { s.Metadata = json.RawMessage(`{}`) },
		"redactions":     func(s *ports.StreamSnapshot) { s.Redactions++ },
		"mac":            func(s *ports.StreamSnapshot) { s.MAC = nil },
		"of a client": func(s *ports.StreamSnapshot) {
			s.Internal = false
			s.MAC = testkit.Must(clientMAC(*s))
			s.Internal = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newCashFixture(t)
			node, _ := b.node(1)
			for range 23 {
				_, err := node.Submit(t.Context(), cashier, b.moveCash(`{"amount":2}`))
				require.NoError(t, err)
			}
			stored, _, err := b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
			require.NoError(t, err)
			require.NoError(t, b.store.Snapshots.RemoveStreamSnapshot(t.Context(), stored))
			forged := stored
			forge(&forged)
			_, _, err = b.store.Snapshots.SaveStreamSnapshot(t.Context(), forged, 0)
			require.NoError(t, err)

			fresh, log := b.node(1)
			require.EqualValues(t, 46, b.seen(t, fresh))
			require.Less(t, log.read.Load(), int64(23+23), "from an older snapshot, and once more for the next one")
			require.Contains(t, b.log.String(), "snapshot.forged")
			healed, _, err := b.store.Snapshots.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(string(healed.State), `{"Balance":`+fmt.Sprint(2*healed.Version)))
		})
	}
}

// clientMAC returns the code that a client's snapshot of the same content has.
func clientMAC(s ports.StreamSnapshot) ([]byte, error) {
	store := memory.New(memory.Config{Clock: testkit.NewClock(s.CreatedAt), LogName: "other.example"})
	c := snapshots.NewStreams(store.Snapshots, snapshots.NewAuthenticator(&testkit.Secrets{}, slog.New(slog.DiscardHandler), nil))
	saved, _, err := c.Save(context.Background(), "acme", s, 0)
	return saved.MAC, err
}

func TestSnapshot_WithoutKeyService(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	node, _ := b.node(1)
	for range 23 {
		_, err := node.Submit(t.Context(), cashier, b.moveCash(`{"amount":2}`))
		require.NoError(t, err)
	}
	secrets := &testkit.Secrets{Err: fault.New(fault.Unavailable, "kms.unavailable", "down")}
	fresh, log := b.nodeWith(1, secrets)
	require.EqualValues(t, 46, b.seen(t, fresh))
	require.GreaterOrEqual(t, log.read.Load(), int64(23), "from the first event")
	require.Contains(t, b.log.String(), "kms.unavailable")
	fresh, log = b.node(1)
	require.EqualValues(t, 46, b.seen(t, fresh))
	require.Less(t, log.read.Load(), int64(23), "the snapshots were not removed")
}

// TestNewRefusesMissingLimits checks that a limit which the caller left out is no default.
func TestNewRefusesMissingLimits(t *testing.T) {
	t.Parallel()
	c := newCashFixture(t).service.Config
	c.SnapshotEvery = 0
	_, err := pipeline.New(c)
	require.ErrorContains(t, err, "SnapshotEvery")
}
