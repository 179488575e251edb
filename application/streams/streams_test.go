package streams_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// shopModule folds its carts and owns what is called shop.
type shopModule struct{}

func (shopModule) Name() string { return "shop" }

func (shopModule) Register(r *module.Registrar) error {
	r.Prefixes("shop")
	r.EventType(module.EventType{Registration: eventtype.Registration{Type: "shop.order.placed", SchemaVersion: 1, Module: "shop", DataSchema: json.RawMessage(`{"type":"object"}`)}})
	r.Fold(module.Fold{
		StreamType: "cart", New: func() any { return 0 }, Clone: func(s any) any { return s },
		Apply: func(any, event.Recorded, []byte) error { return nil },
	})
	return nil
}

// appendWriter lends the append service.
type appendWriter struct{ appends *eventappend.Service }

func (w appendWriter) Write(ctx context.Context, r streams.EventWrite) (ports.AppendedEvent, bool, error) {
	receipts, replayed, err := w.appends.Append(ctx, eventappend.Request{
		LegalEntity: r.LegalEntity, Actor: r.Actor, PersonID: r.PersonID, Roles: r.Roles, Drafts: []event.Draft{r.Draft}, Streams: r.Expected,
		IdempotencyKey: r.IdempotencyKey, Digest: r.Fingerprint,
	})
	if err != nil {
		return ports.AppendedEvent{}, false, err
	}
	return receipts[0], replayed, nil
}

type streamFixture struct {
	*streams.Service
	store   *memory.Database
	appends *eventappend.Service
	entity  ports.LegalEntity
}

func newStreamFixture(t *testing.T) *streamFixture {
	t.Helper()
	clock, ids := system.Clock{}, system.NewIDs()
	r := &streamFixture{store: memory.New(memory.Config{LogName: "shop.example.org"})}
	var err error
	r.entity, err = r.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF", TimeZone: "Europe/Berlin"})
	require.NoError(t, err)
	catalog, err := module.Build(jsonschema.New(), shopModule{}, streams.Module{})
	require.NoError(t, err)
	types := registry.New(administration.NewEventTypes(r.store.Registry), jsonschema.New(), nil, catalog, clock)
	require.NoError(t, types.RegisterBuiltIn(t.Context()))
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: ids, Limits: eventappend.Limits{BatchEvents: 3, EventBytes: 40 << 10, EntityRefs: 4, Tags: 3}})
	r.appends = eventappend.NewService(eventappend.Config{Preparer: preparer, Appender: r.store.Appender, Events: r.store.Events, Idempotency: r.store.Intents, Clock: clock, IDs: ids, KeyTTL: time.Hour})
	r.Service = streams.New(streams.Config{Writer: appendWriter{r.appends}, Reader: r.store.Events, Catalog: catalog, Roles: []string{"admin", "module", "cfo"}})
	return r
}

func (r *streamFixture) order(t *testing.T, streamType, id string) event.StreamID {
	t.Helper()
	s := event.StreamID{Type: streamType, ID: id}
	_, _, err := r.appends.Append(t.Context(), eventappend.Request{
		LegalEntity: r.entity, Actor: event.Actor{Type: event.System, ID: "s-1"}, PersonID: "s-1",
		Drafts: []event.Draft{{Type: "shop.order.placed", Stream: s}},
	})
	require.NoError(t, err)
	return s
}

func (r *streamFixture) change(s event.StreamID) streams.Change {
	return streams.Change{LegalEntity: r.entity, Stream: s, Actor: event.Actor{Type: event.Human, ID: "p-1"}, PersonID: "p-1", Roles: []string{"module"}}
}

func metadata(t *testing.T, document string) stream.Metadata {
	t.Helper()
	m, err := stream.ParseMetadata([]byte(document))
	require.NoError(t, err)
	return m
}

func TestStreams_Lifecycle(t *testing.T) {
	t.Parallel()
	r := newStreamFixture(t)
	s := r.order(t, "order", "O-1")
	c := r.change(s)

	full := metadata(t, `{"max_count":5,"acl":{"write":["module"]},"custom":{"team":"a","rate":12.10}}`)
	c.Reason, c.IdempotencyKey = "short-lived", "k-1"
	out, err := r.SetMetadata(t.Context(), c, full)
	require.NoError(t, err)
	require.Equal(t, event.StreamActive, out.State)
	require.EqualValues(t, 2, out.Event.StreamVersion)
	again, err := r.SetMetadata(t.Context(), c, full)
	require.NoError(t, err)
	require.True(t, again.Replayed)
	require.Equal(t, out.Event, again.Event)
	status, err := r.Status(t.Context(), r.entity, s, []string{"cfo"})
	require.NoError(t, err)
	require.Equal(t, full, status.Metadata)
	require.EqualValues(t, 2, status.MetadataVersion)
	require.NotContains(t, string(status.Settings), "team", "what only people read stays in the event")
	e, err := r.store.Events.EventByID(t.Context(), r.entity.Partition, out.Event.ID)
	require.NoError(t, err)
	require.Equal(t, "p-1", e.ActorID)
	require.NotEmpty(t, e.CorrelationID)
	require.Contains(t, string(e.Payload), `"reason":"short-lived"`)

	c = r.change(s)
	c.Expected = concurrency.Exactly(1)
	_, err = r.Delete(t.Context(), c, false)
	f, _ := fault.As(err)
	require.Equal(t, concurrency.CodeWrongExpectedVersion, f.Code)
	require.EqualValues(t, 1, f.Expected)
	require.EqualValues(t, 2, f.Actual)
	c.Expected = concurrency.Exactly(2)
	out, err = r.Delete(t.Context(), c, false)
	require.NoError(t, err)
	require.Equal(t, event.StreamDeleted, out.State)
	_, err = r.SetMetadata(t.Context(), r.change(s), stream.Metadata{})
	require.Equal(t, concurrency.CodeStreamDeleted, fault.CodeOf(err))
	r.order(t, "order", "O-1")
	status, err = r.Status(t.Context(), r.entity, s, []string{"admin"})
	require.NoError(t, err)
	require.Equal(t, full, status.Metadata, "metadata outlive a deletion")
	require.EqualValues(t, 4, status.ReadableFrom)
	out, err = r.Delete(t.Context(), r.change(s), true)
	require.NoError(t, err)
	require.Equal(t, event.StreamTombstoned, out.State)
	_, err = r.Delete(t.Context(), r.change(s), true)
	require.Equal(t, concurrency.CodeStreamTombstoned, fault.CodeOf(err))
	status, err = r.Status(t.Context(), r.entity, s, []string{"admin"})
	require.NoError(t, err)
	require.Equal(t, event.StreamTombstoned, status.State)
}

func TestStreams_ChangeRefusals(t *testing.T) {
	t.Parallel()
	r := newStreamFixture(t)
	none := event.StreamID{Type: "order", ID: "none"}
	_, err := r.Delete(t.Context(), r.change(none), false)
	require.Equal(t, concurrency.CodeStreamNotFound, fault.CodeOf(err))
	_, err = r.Status(t.Context(), r.entity, none, nil)
	require.Equal(t, concurrency.CodeStreamNotFound, fault.CodeOf(err))

	for _, owned := range []event.StreamID{{Type: "cart", ID: "C-1"}, {Type: "shop.basket", ID: "B-1"}, {Type: "stream.x", ID: "1"}} {
		r.order(t, owned.Type, owned.ID)
		for _, forGood := range []bool{false, true} {
			_, err = r.Delete(t.Context(), r.change(owned), forGood)
			require.Equal(t, "stream.owned_by_module", fault.CodeOf(err))
			require.Equal(t, fault.FailedPrecondition, fault.KindOf(err))
		}
		admin := r.change(owned)
		admin.Roles = []string{"admin"}
		for _, document := range []string{`{"max_count":3}`, `{"acl":{"read":["module"]}}`, `{"custom":{"a":1}}`, `{}`} {
			_, err = r.SetMetadata(t.Context(), admin, metadata(t, document))
			require.Equal(t, "stream.owned_by_module", fault.CodeOf(err), "%s %s", owned, document)
		}
		status, err := r.Status(t.Context(), r.entity, owned, []string{"admin"})
		require.NoError(t, err)
		require.EqualValues(t, 1, status.Version, "nothing was written")
	}

	_, err = r.SetMetadata(t.Context(), r.change(none), metadata(t, `{"acl":{"read":["cfo"],"write":["cf0"]}}`))
	require.Equal(t, "stream.role_unknown", fault.CodeOf(err))
	f, _ := fault.As(err)
	require.Equal(t, "/acl/write", f.Field)
	c := r.change(none)
	c.Reason = strings.Repeat("ü", 1001)
	_, err = r.SetMetadata(t.Context(), c, stream.Metadata{})
	require.Equal(t, "stream.reason_too_long", fault.CodeOf(err))
	c.Reason = "asked for by ada@example.org"
	_, err = r.SetMetadata(t.Context(), c, stream.Metadata{})
	require.Equal(t, "pii.in_text", fault.CodeOf(err))
	_, err = r.Delete(t.Context(), c, true)
	require.Equal(t, "pii.in_text", fault.CodeOf(err))

	// A list binds every caller that changes the stream except administrators.
	_, err = r.SetMetadata(t.Context(), r.change(none), metadata(t, `{"acl":{"delete":[],"metadata":["cfo"]}}`))
	require.NoError(t, err)
	_, err = r.Delete(t.Context(), r.change(none), true)
	require.Equal(t, "stream.access_denied", fault.CodeOf(err))
	_, err = r.SetMetadata(t.Context(), r.change(none), stream.Metadata{})
	require.Equal(t, "stream.access_denied", fault.CodeOf(err))
	_, err = r.Status(t.Context(), r.entity, none, []string{"module"})
	require.Equal(t, "stream.access_denied", fault.CodeOf(err))
	c = r.change(none)
	c.Roles = nil // no roles at all differ from the log itself
	_, err = r.Delete(t.Context(), c, false)
	require.Equal(t, "stream.access_denied", fault.CodeOf(err))
	c.Roles = []string{"admin"}
	_, err = r.Delete(t.Context(), c, false)
	require.NoError(t, err)
}

// Limits that were set on a module's stream before it was closed to them can be lifted, once.
func TestStreams_LiftLimitsOfModuleStream(t *testing.T) {
	t.Parallel()
	r := newStreamFixture(t)
	s := r.order(t, "shop.basket", "B-1")
	limits := metadata(t, `{"max_count":1,"acl":{"read":["module"]}}`)
	settings, access, err := limits.Settings()
	require.NoError(t, err)
	_, _, err = appendWriter{r.appends}.Write(t.Context(), streams.EventWrite{
		LegalEntity: r.entity, Actor: event.Actor{Type: event.System, ID: "s-1"}, PersonID: "s-1",
		Draft: event.Draft{
			Type: stream.MetadataChanged, SchemaVersion: 1, Stream: s, Data: json.RawMessage(`{"metadata":{"max_count":1,"acl":{"read":["module"]}}}`),
			Change: &event.StreamChange{Action: event.DescribeStream, Settings: settings, Access: access},
		},
	})
	require.NoError(t, err)
	_, err = r.SetMetadata(t.Context(), r.change(s), metadata(t, `{"max_count":2}`))
	require.Equal(t, "stream.owned_by_module", fault.CodeOf(err))
	_, err = r.SetMetadata(t.Context(), r.change(s), stream.Metadata{})
	require.NoError(t, err)
	_, err = r.SetMetadata(t.Context(), r.change(s), stream.Metadata{})
	require.Equal(t, "stream.owned_by_module", fault.CodeOf(err))
}
