package memory_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

const table = "balance"

type handlerFunc func(tx *memory.Tx) error

func (f handlerFunc) Apply(_ context.Context, tx ports.ProjectionTx, _ ports.ProjectionBatch) error {
	m, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	return f(m)
}

type balanceFixture struct {
	store     *memory.Database
	partition event.PartitionID
}

func newBalanceFixture(t *testing.T) *balanceFixture {
	t.Helper()
	store := memory.New(memory.Config{LogName: "books.example.org", Deployment: 3, Random: bytes.NewReader([]byte{0, 0, 0, 9, 0, 0, 0, 9, 0, 0, 0, 10})})
	le, err := store.Directory.CreateLegalEntity(context.Background(), ports.LegalEntity{TenantID: "acme", Code: "DEMF"})
	require.NoError(t, err)
	return &balanceFixture{store: store, partition: le.Partition}
}

// apply appends one event and lets the handler project it.
func (b *balanceFixture) apply(t *testing.T, n byte, f handlerFunc) error {
	t.Helper()
	ctx := context.Background()
	_, err := b.store.Appender.Append(ctx, ports.AppendRequest{Partition: b.partition, Events: []event.Prepared{{
		Skeleton: event.Skeleton{ID: event.ID{n}, Type: "gl.journal.posted", Stream: event.StreamID{Type: "journal", ID: "1"}},
		Payload:  []byte(`{}`),
	}}})
	require.NoError(t, err)
	_, _, err = b.store.Projections.Advance(ctx, ports.ProjectionAdvance{ProjectionWork: ports.ProjectionWork{Projection: "balance", Version: 1, Partition: b.partition}, Limit: 10}, f)
	return err
}

func TestReadModel(t *testing.T) {
	t.Parallel()

	t.Run("transaction reads its own staged writes, other readers do not", func(t *testing.T) {
		t.Parallel()
		b := newBalanceFixture(t)
		require.NoError(t, b.apply(t, 1, func(tx *memory.Tx) error {
			tx.Put(table, "a/1", 10)
			tx.Put(table, "a/2", 20)
			tx.Put(table, "b/1", 30)
			tx.Delete(table, "a/2")
			v, ok := tx.Get(table, "a/1")
			require.True(t, ok)
			require.Equal(t, 10, v)
			_, ok = tx.Get(table, "a/2")
			require.False(t, ok)
			require.Equal(t, []memory.Row{{Key: "a/1", Value: 10}}, tx.Rows(table, "a/"))
			_, ok = b.store.ReadModels.Row(table, "a/1")
			require.False(t, ok, "other readers do not see staged writes")
			return nil
		}))
		require.Equal(t, []memory.Row{{Key: "a/1", Value: 10}, {Key: "b/1", Value: 30}}, b.store.ReadModels.Rows(table, ""))
		require.Equal(t, []memory.Row{}, b.store.ReadModels.Rows("none", ""))
	})

	t.Run("failed handler changes nothing", func(t *testing.T) {
		t.Parallel()
		b := newBalanceFixture(t)
		require.NoError(t, b.apply(t, 1, func(tx *memory.Tx) error { tx.Put(table, "a", 1); return nil }))
		broken := errors.New("broken")
		require.ErrorIs(t, b.apply(t, 2, func(tx *memory.Tx) error {
			v, _ := tx.Get(table, "a")
			tx.Put(table, "a", v.(int)+1)
			tx.Delete(table, "b")
			return broken
		}), broken)
		v, ok := b.store.ReadModels.Row(table, "a")
		require.True(t, ok)
		require.Equal(t, 1, v)
	})

	t.Run("transaction ends with its handler", func(t *testing.T) {
		t.Parallel()
		b := newBalanceFixture(t)
		var kept *memory.Tx
		require.NoError(t, b.apply(t, 1, func(tx *memory.Tx) error { kept = tx; return nil }))
		require.Panics(t, func() { kept.Put(table, "late", 1) })
		_, err := memory.Bind(kept)
		require.Equal(t, fault.Internal, fault.KindOf(err))
		_, err = memory.Bind("another adapter's")
		require.Equal(t, fault.Internal, fault.KindOf(err))
	})
}

func TestCreateLegalEntity_DrawsPartitionNumbers(t *testing.T) {
	t.Parallel()
	b := newBalanceFixture(t)
	require.Equal(t, event.PartitionID(3<<19|9), b.partition)
	ctx := context.Background()
	second, err := b.store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "USMF"})
	require.NoError(t, err)
	require.Equal(t, event.PartitionID(3<<19|10), second.Partition, "a taken number is drawn again")
	require.Equal(t, "active", second.Status)
	_, err = b.store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "GBSI"})
	require.Equal(t, fault.Internal, fault.KindOf(err), "an exhausted source must not repeat a number")
}

func TestNew_ZeroConfig(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	store := memory.New(memory.Config{})
	_, err := store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "DEMF"})
	require.Equal(t, "installation.not_bootstrapped", fault.CodeOf(err))
	require.NoError(t, store.Directory.Bootstrap(ctx, ports.Installation{LogName: "books.example.org"}))
	before := time.Now()
	le, err := store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "DEMF"})
	require.NoError(t, err)
	require.WithinDuration(t, before, le.CreatedAt, time.Minute)
}
