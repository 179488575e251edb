package snapshots_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// counter counts forged snapshots.
type counter map[string]int

func (c counter) SnapshotForged(of string) { c[of]++ }

// fixture is a store with a snapshot of a client.
type fixture struct {
	store   *memory.Database
	streams *snapshots.Streams
	secrets *testkit.Secrets
	forged  counter
	log     *bytes.Buffer
	saved   ports.StreamSnapshot
}

var (
	entity = ports.LegalEntity{TenantID: "acme", Code: "DEMF", Partition: 7}
	truck  = event.StreamID{Type: "fleet.truck", ID: "T-9"}
	at     = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
)

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{store: memory.New(memory.Config{Clock: testkit.NewClock(at), LogName: "fleet.example"}), secrets: &testkit.Secrets{}, forged: counter{}, log: &bytes.Buffer{}}
	f.streams = snapshots.NewStreams(f.store.Snapshots, snapshots.NewAuthenticator(f.secrets, slog.New(slog.NewJSONHandler(f.log, nil)), f.forged))
	var err error
	f.saved, _, err = f.streams.Save(t.Context(), entity.TenantID, ports.StreamSnapshot{
		ID: ulid.MustParse("01JNG2Z7M0000000000000000A"), Partition: entity.Partition, Stream: truck, Version: 4, StateType: "Truck", SchemaVersion: 1,
		State: json.RawMessage(`{"litres":66}`), Metadata: json.RawMessage(`{"by":"fleet"}`), CreatedAt: at,
	}, 0)
	require.NoError(t, err)
	return f
}

func (f *fixture) read(t *testing.T) (ports.StreamSnapshot, error) {
	t.Helper()
	s, _, err := f.streams.Read(t.Context(), entity, truck, false, 0)
	return s, err
}

// TestStreams_Format holds the text of the MAC: another one makes all stored snapshots forged.
func TestStreams_Format(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	text := "\x00\x00\x00\x1bbackbone/stream-snapshot/v1" + "\x00\x00\x00\x07" + "\x00\x00\x00\x0bfleet.truck" + "\x00\x00\x00\x03T-9" + "\x00\x00\x00\x00" +
		"\x00\x00\x00\x00\x00\x00\x00\x04" + "\x00\x00\x00\x1a01JNG2Z7M0000000000000000A" + "\x00\x00\x00\x05Truck" + "\x00\x00\x00\x01" +
		"\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x06\x4c\x06\xcf\xcb\x84\x00" + "\x00\x00\x00\x0d{\"litres\":66}" + "\x00\x00\x00\x0e{\"by\":\"fleet\"}"
	want, err := f.secrets.Authenticate(t.Context(), "acme", "snapshot", []byte(text))
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(want[:]), hex.EncodeToString(f.saved.MAC))
}

func TestStreams_ForgedSnapshotOfClient(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got, err := f.read(t)
	require.NoError(t, err)
	require.Equal(t, f.saved, got)

	forged := f.saved
	forged.State = json.RawMessage(`{"litres":1}`)
	require.NoError(t, f.store.Snapshots.RemoveStreamSnapshot(t.Context(), f.saved))
	_, _, err = f.store.Snapshots.SaveStreamSnapshot(t.Context(), forged, 0)
	require.NoError(t, err)
	_, err = f.read(t)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	require.Contains(t, f.log.String(), `"code":"snapshot.forged"`)
	require.NotContains(t, f.log.String(), "litres")
	require.Equal(t, counter{"stream": 1}, f.forged)

	_, created, err := f.streams.Save(t.Context(), entity.TenantID, f.saved, 0)
	require.NoError(t, err)
	require.True(t, created, "the forged one is gone")
}

// TestStreams_OtherTenant checks that the snapshot of a tenant proves nothing to another one.
func TestStreams_OtherTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := entity
	other.TenantID = "globex"
	_, _, err := f.streams.Read(t.Context(), other, truck, false, 0)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
}

func TestStreams_WithoutKeyService(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.secrets.Err = fault.New(fault.Unavailable, "kms.unavailable", "down")
	_, err := f.read(t)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	_, _, err = f.streams.Save(t.Context(), entity.TenantID, f.saved, 0)
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	require.Empty(t, f.forged)
	f.secrets.Err = nil
	_, err = f.read(t)
	require.NoError(t, err, "it is still there")

	var none *snapshots.Streams
	_, _, err = none.Read(t.Context(), entity, truck, false, 0)
	require.Equal(t, "snapshot.not_found", fault.CodeOf(err))
	_, _, err = none.Save(t.Context(), entity.TenantID, f.saved, 0)
	require.Equal(t, "pii.keys_missing", fault.CodeOf(err))
}
