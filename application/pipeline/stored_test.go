package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// atOnce is a Background that is never late.
type atOnce struct{}

func (atOnce) Do(_ string, f func(context.Context)) bool { f(context.Background()); return true }

// busy is a Background that has no time for the first jobs.
type busy struct{ dropped *int }

func (b busy) Do(_ string, f func(context.Context)) bool {
	if *b.dropped > 0 {
		*b.dropped--
		return false
	}
	f(context.Background())
	return true
}

// TestAStateThatNobodyHadTimeForIsStoredLater: the next plan asks again, and not the one
// that is as many events on as lie between two stored states.
func TestAStateThatNobodyHadTimeForIsStoredLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	dropped := 2
	c := b.service.Config
	c.Catalog, c.Snapshots, c.Background, c.SnapshotEvery = withCodec{c.Catalog, 1}, b.store, busy{&dropped}, 5
	node := pipeline.New(c)
	for range 9 {
		_, err := node.Submit(t.Context(), cashier, b.move(`{"amount":2}`))
		require.NoError(t, err)
	}
	require.Zero(t, dropped)
	stored, _, err := b.store.StreamSnapshot(t.Context(), b.entity.Partition, event.StreamID{Type: "till", ID: "main"}, true, 0)
	require.NoError(t, err)
	require.Less(t, stored.Version, event.Version(9))
}

// withCodec declares how the till's state is stored.
type withCodec struct {
	pipeline.Catalog
	version int
}

func (c withCodec) Fold(streamType string) (module.Fold, bool) {
	f, ok := c.Catalog.Fold(streamType)
	f.Codec = module.JSONCodec[tillState](c.version)
	return f, ok
}

// countedLog counts the events that are read of streams.
type countedLog struct {
	pipeline.Log
	read atomic.Int64
}

func (l *countedLog) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, more, err := l.Log.ReadStream(ctx, q)
	l.read.Add(int64(len(events)))
	return events, more, err
}

// node is one that starts now, with stored states, and counts what it reads.
func (b *bundle) node(version int) (*pipeline.Service, *countedLog) {
	c, log := b.service.Config, &countedLog{Log: b.store}
	c.Appender, c.Events, c.Catalog = b.store, log, withCodec{c.Catalog, version}
	c.Snapshots, c.Background, c.SnapshotEvery = b.store, atOnce{}, 5
	return pipeline.New(c), log
}

// seen is the balance that a node plans with.
func (b *bundle) seen(t require.TestingT, n *pipeline.Service) int64 {
	req := b.move(`{"amount":-1000000}`)
	req.DryRun = true
	_, err := n.Submit(context.Background(), cashier, req)
	require.Equal(t, "till.overdrawn", fault.CodeOf(err))
	var balance int64
	f, _ := fault.As(err)
	_, err = fmt.Sscanf(f.Detail, "there are %d in the till", &balance)
	require.NoError(t, err)
	return balance
}

// TestStatesAreTheSameFromTheStore lets nodes come and go over random histories. Each
// begins with what is stored, if it can read it, and plans with the same state.
func TestStatesAreTheSameFromTheStore(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		b := setup(t)
		node, _ := b.node(1)
		events, balance := 0, int64(0)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1:
				node, _ = b.node(1)
			case 2:
				other, _ := b.node(2) // another program, which may store its own
				require.Equal(rt, balance, b.seen(rt, other))
			default:
				amount := rapid.Int64Range(-9, 12).Draw(rt, "amount")
				_, err := node.Submit(t.Context(), cashier, b.move(fmt.Sprintf(`{"amount":%d}`, amount)))
				if balance+amount < 0 {
					require.Equal(rt, "till.overdrawn", fault.CodeOf(err))
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

func TestANodeBeginsWithTheStoredState(t *testing.T) {
	t.Parallel()
	b := setup(t)
	node, _ := b.node(1)
	for range 23 {
		_, err := node.Submit(t.Context(), cashier, b.move(`{"amount":2}`))
		require.NoError(t, err)
	}
	stream := event.StreamID{Type: "till", ID: "main"}
	stored, _, err := b.store.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
	require.NoError(t, err)
	require.Equal(t, "fold:till", stored.StateType)
	require.Equal(t, 1, stored.SchemaVersion)
	require.GreaterOrEqual(t, stored.Version, event.Version(18))
	_, _, err = b.store.StreamSnapshot(t.Context(), b.entity.Partition, stream, false, 0)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err), "clients do not see it")

	fresh, log := b.node(1)
	require.EqualValues(t, 46, b.seen(t, fresh))
	require.EqualValues(t, 23-stored.Version, log.read.Load())

	other, log := b.node(2)
	require.EqualValues(t, 46, b.seen(t, other))
	require.GreaterOrEqual(t, log.read.Load(), int64(23), "what another codec wrote is not read")

	for _, damaged := range []string{`[]`, `null`, `{"Balance":"much"}`} {
		_, epoch, err := b.store.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
		require.NoError(t, err)
		_, _, err = b.store.SaveStreamSnapshot(t.Context(), ports.StreamSnapshot{
			ID: ulid.Make(), Partition: b.entity.Partition, Stream: stream, Internal: true, Version: 23, StateType: "fold:till", SchemaVersion: 1,
			State: json.RawMessage(damaged), CreatedAt: time.Now(),
		}, epoch)
		require.NoError(t, err)
		fresh, log := b.node(1)
		require.EqualValues(t, 46, b.seen(t, fresh), damaged)
		require.GreaterOrEqual(t, log.read.Load(), int64(23))
		healed, _, err := b.store.StreamSnapshot(t.Context(), b.entity.Partition, stream, true, 0)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(healed.State), `{"Balance":46`), "a sound one took its place")
	}
}
