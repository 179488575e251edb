package administration_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// typesNode is a node with registries of event types.
func (f *fixture) typesNode(t *testing.T, shared ports.SharedEventTypes) (*administration.EventTypes, *administration.Log) {
	t.Helper()
	catalog, err := module.Build(jsonschema.New(), administration.Module{})
	require.NoError(t, err)
	log, _ := f.node()
	types := administration.NewEventTypes(shared)
	types.SetLog(log, f.chains, f.store.Events, catalog.EventTypes)
	return types, log
}

func serviced(version uint32) eventtype.Registration {
	return eventtype.Registration{
		TenantID: "acme", Type: "equipment.machine.serviced", SchemaVersion: version, Module: "equipment", DataSchema: json.RawMessage(`{"type":"object","title":"<ä> & \u2028"}`),
		RetentionClass: eventtype.Standard, By: event.Actor{Type: event.System, ID: "s-deployer", Name: "module"},
	}
}

func TestEventTypes_AreEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	here, _ := f.typesNode(t, f.store.Registry)
	there, _ := f.typesNode(t, f.store.Registry)
	stored, err := here.RegisterEventType(t.Context(), serviced(1))
	require.NoError(t, err)
	require.True(t, stored.Active)
	require.Equal(t, "s-deployer", stored.RegisteredBy)
	require.Equal(t, start, stored.RegisteredAt)
	listed, generation, err := there.EventTypes(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, []eventtype.Registration{stored}, listed)
	require.EqualValues(t, 1, generation)
	generations, err := there.EventTypeGenerations(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 1, generations["acme"])
	require.NotZero(t, generations[""])
	require.Equal(t, []string{
		administration.Began, administration.EventTypeHistorySealed, administration.EventTypesBuiltIn, "backbone.event_type.registered",
	}, f.types(t, "acme"))
	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
	require.NoError(t, err)
	events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: logs[0].Partition, Types: []string{"backbone.event_type.registered"}, Limit: 10})
	require.NoError(t, err)
	require.Equal(t, event.System, events[0].ActorType)
	require.Equal(t, "s-deployer", events[0].ActorID)

	large := serviced(2)
	large.Description = strings.Repeat("x", 1<<20)
	_, err = here.RegisterEventType(t.Context(), large)
	require.Equal(t, "event_type.too_large", fault.CodeOf(err))
}

// Each release lists the built-in types that it brought, once, also if several nodes start. A
// row that no release declares is never listed.
func TestEventTypes_ListBuiltIn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.store.Registry.RegisterEventType(t.Context(), eventtype.Registration{Type: "gl.journal.invented", SchemaVersion: 1, DataSchema: json.RawMessage(`{}`)})
	require.NoError(t, err)
	errs := make(chan error)
	for range 3 {
		_, log := f.typesNode(t, f.store.Registry)
		go func() {
			_, err := log.Of(context.Background(), "acme")
			errs <- err
		}()
	}
	require.NoError(t, errors.Join(<-errs, <-errs, <-errs))
	require.Equal(t, []string{administration.Began, administration.EventTypeHistorySealed, administration.EventTypesBuiltIn}, f.types(t, "acme"))

	_, err = f.store.Registry.RegisterEventType(t.Context(), eventtype.Registration{Type: "gl.journal.archived", SchemaVersion: 1, DataSchema: json.RawMessage(`{}`)})
	require.NoError(t, err)
	log, _ := f.node()
	types := administration.NewEventTypes(f.store.Registry)
	types.SetLog(log, f.chains, f.store.Events, []module.EventType{{Registration: eventtype.Registration{Type: "gl.journal.archived", SchemaVersion: 1}}})
	_, err = log.Of(t.Context(), "acme")
	require.NoError(t, err)
	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
	require.NoError(t, err)
	events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: logs[0].Partition, Types: []string{administration.EventTypesBuiltIn}, Limit: 10})
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.NotContains(t, string(events[0].Payload), "invented")
	require.Contains(t, string(events[1].Payload), "gl.journal.archived")
	require.NotContains(t, string(events[1].Payload), "backbone.")
}

// interruptedTypes run something when the built-in types are first asked for.
type interruptedTypes struct {
	sharedPort
	interrupt func()
	asked     int
}

type sharedPort = ports.SharedEventTypes // embedded by a name that no method has

func (m *interruptedTypes) SharedGeneration(ctx context.Context) (int64, error) {
	if m.asked++; m.asked == 1 {
		m.interrupt()
	}
	return m.sharedPort.SharedGeneration(ctx)
}

// What a node reads from the log at the same time does not change what it decides by.
func TestEventTypes_ListBuiltInOnOneState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	shared := &interruptedTypes{sharedPort: f.store.Registry}
	types, log := f.typesNode(t, shared)
	_, other := f.typesNode(t, f.store.Registry)
	shared.interrupt = func() {
		_, err := other.Of(t.Context(), "acme")
		require.NoError(t, err)
		_, _, err = types.EventTypes(t.Context(), "acme")
		require.NoError(t, err)
	}
	_, err := log.Of(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, 2, shared.asked, "the expected version tells that another node was first")
	require.Equal(t, []string{administration.Began, administration.EventTypeHistorySealed, administration.EventTypesBuiltIn}, f.types(t, "acme"))
}

// What a release adds to a built-in version is listed beside it; a row that does more has no
// effect and is not listed.
func TestEventTypes_ListAmendments(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	row := eventtype.Registration{Type: "gl.journal.archived", SchemaVersion: 1, DataSchema: json.RawMessage(`{"additionalProperties":false,"properties":{"size":{"type":"integer"}}}`)}
	start := func() int {
		log, _ := f.node()
		types := administration.NewEventTypes(f.store.Registry)
		types.SetLog(log, f.chains, f.store.Events, []module.EventType{{Registration: row}})
		_, err := log.Of(t.Context(), "acme")
		require.NoError(t, err)
		logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
		require.NoError(t, err)
		events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: logs[0].Partition, Types: []string{administration.EventTypesBuiltIn}, Limit: 10})
		require.NoError(t, err)
		return len(events)
	}
	_, err := f.store.Registry.RegisterEventType(t.Context(), row)
	require.NoError(t, err)
	require.Equal(t, 1, start())
	amended := row
	amended.Amends, amended.DataSchema = true, json.RawMessage(`{"additionalProperties":false,"properties":{"size":{"type":"integer"},"count":{"type":"integer"}}}`)
	_, err = f.store.Registry.RegisterEventType(t.Context(), amended)
	require.NoError(t, err)
	require.Equal(t, 2, start())
	require.Equal(t, 2, start())
	forged := row
	forged.Amends, forged.Schemas = true, make([]eventtype.SchemaSince, 2)
	_, err = f.store.Registry.RegisterEventType(t.Context(), forged)
	require.NoError(t, err)
	require.Equal(t, 2, start())
}

// A name that was reserved and not registered, because the node was cut off, can be registered.
func TestEventTypes_CutOffAfterTheName(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	types, _ := f.typesNode(t, f.store.Registry)
	_, err := f.store.Registry.ReserveEventTypes(t.Context(), []string{serviced(1).Type})
	require.NoError(t, err)
	_, err = types.RegisterEventType(t.Context(), serviced(1))
	require.NoError(t, err)
}

// registerForTwo registers a type for the tenants acme and globex, and returns the log of acme.
func (f *fixture) registerForTwo(t *testing.T) (types *administration.EventTypes, log event.PartitionID) {
	t.Helper()
	types, _ = f.typesNode(t, f.store.Registry)
	for _, tenant := range []string{"acme", "globex"} {
		r := serviced(1)
		r.TenantID = tenant
		_, err := types.RegisterEventType(t.Context(), r)
		require.NoError(t, err)
	}
	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
	require.NoError(t, err)
	return types, logs[0].Partition
}

// The registry of a tenant whose log does not hold together is not read; others are.
func TestEventTypes_RefuseALogThatDoesNotHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	types, acme := f.registerForTwo(t)
	f.chains.tamper = func(page []event.Recorded) []event.Recorded {
		for i := range page {
			if e := &page[i]; e.Partition == acme && e.Type == "backbone.event_type.registered" {
				e.Payload = []byte(strings.Replace(string(e.Payload), "equipment.machine", "equipment.engine", 1))
			}
		}
		return page
	}
	fresh, log := f.typesNode(t, f.store.Registry)
	require.NoError(t, log.BeginAll(t.Context()), "a node starts for the other tenants")
	_, _, err := fresh.EventTypes(t.Context(), "acme")
	require.Equal(t, "administration.log_broken", fault.CodeOf(err))
	_, err = fresh.RegisterEventType(t.Context(), serviced(2))
	require.Equal(t, "administration.log_broken", fault.CodeOf(err))
	listed, _, err := fresh.EventTypes(t.Context(), "globex")
	require.NoError(t, err)
	require.Len(t, listed, 1)
	generations, err := fresh.EventTypeGenerations(t.Context())
	require.NoError(t, err)
	require.Negative(t, generations["acme"], "so that loading it says why")
	// It is read again once it has another end.
	read := f.chains.pages[acme]
	for range 10 {
		_, _, err = fresh.EventTypes(t.Context(), "acme")
		require.Equal(t, "administration.log_broken", fault.CodeOf(err))
		_, err = fresh.EventTypeGenerations(t.Context())
		require.NoError(t, err)
	}
	require.Equal(t, read, f.chains.pages[acme])
	f.chains.tamper = nil
	_, err = types.RegisterEventType(t.Context(), serviced(2))
	require.NoError(t, err)
	listed, _, err = fresh.EventTypes(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, listed, 2)
}

// A log that cannot be read keeps no other tenant from its event types.
func TestEventTypes_ALogThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, acme := f.registerForTwo(t)
	f.chains.fail = func(_ context.Context, p event.PartitionID) error {
		if p == acme {
			return fault.New(fault.Unavailable, "store.unavailable", "try again")
		}
		return nil
	}
	fresh, _ := f.typesNode(t, f.store.Registry)
	generations, err := fresh.EventTypeGenerations(t.Context())
	require.NoError(t, err)
	require.Negative(t, generations["acme"], "so that loading it says why")
	require.EqualValues(t, 1, generations["globex"])
	_, _, err = fresh.EventTypes(t.Context(), "acme")
	require.Equal(t, "store.unavailable", fault.CodeOf(err))
	f.chains.fail = nil
	f.clock.Advance(time.Second)
	listed, _, err := fresh.EventTypes(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, listed, 1)
}

// heads counts the ends of logs that were asked for.
type heads struct {
	of    administration.Heads
	asked int
}

func (h *heads) Heads(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.Head, error) {
	h.asked += len(partitions)
	return h.of.Heads(ctx, partitions)
}

// A start asks for the end of each tenant's log a few times, however many tenants there are.
func TestEventTypes_StartWithManyTenants(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const tenants = 30
	for i := range tenants {
		_, err := f.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: fmt.Sprintf("tenant-%d", i), Code: "DEMF"})
		require.NoError(t, err)
	}
	_, log := f.typesNode(t, f.store.Registry)
	require.NoError(t, log.BeginAll(t.Context()))
	counted := &heads{of: f.store.Events}
	catalog, err := module.Build(jsonschema.New(), administration.Module{})
	require.NoError(t, err)
	log, _ = f.node()
	types := administration.NewEventTypes(f.store.Registry)
	types.SetLog(log, f.chains, counted, catalog.EventTypes)
	clear(f.chains.pages)
	require.NoError(t, log.BeginAll(t.Context()))
	require.LessOrEqual(t, counted.asked, 2*tenants)
	for p, pages := range f.chains.pages {
		require.Equal(t, 1, pages, "of %d", p)
	}
}
