// Package typestest makes registries of event types over the administrative logs of a test's
// store.
package typestest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/ports"
)

// Store is what the registries need of a store.
type Store struct {
	Appender    ports.EventAppender
	Events      Events
	Idempotency ports.IdempotencyReader
	Entities    ports.LegalEntities
	Chains      ports.ChainReader
	Types       ports.SharedEventTypes
}

// Events reads events, streams and the ends of logs.
type Events interface {
	ports.EventReader
	administration.Heads
	administration.Streams
}

// LogName is the log name of the memory stores that Memory gets.
const LogName = "ledger.example.org"

// Memory makes the registries over a memory database. It makes the database an installation if
// it is none.
func Memory(tb testing.TB, db *memory.Database, clock ports.Clock) *administration.EventTypes {
	tb.Helper()
	name := LogName
	if installed, err := db.Directory.Installation(context.Background()); err == nil {
		name = installed.LogName
	} else {
		require.NoError(tb, db.Directory.Bootstrap(context.Background(), ports.Installation{LogName: name, Deployment: 1}))
	}
	return New(tb, StoreOf(db), name, clock)
}

// New makes the registries, as a node has them.
func New(tb testing.TB, s Store, logName string, clock ports.Clock) *administration.EventTypes {
	tb.Helper()
	types := administration.NewEventTypes(s.Types)
	// The types of the log itself are in another store, so that the test's has its own types only.
	own, builtIn := memory.New(memory.Config{}), s
	builtIn.Types = own.Registry
	writer, err := NewWriter(builtIn, clock, administration.Module{})
	require.NoError(tb, err)
	types.SetLog(administration.NewLog(administration.LogConfig{
		Entities: s.Entities, Streams: s.Events, Writer: writer, Directory: own.Directory, LogName: logName, Clock: clock, Logger: slog.New(slog.DiscardHandler),
	}), s.Chains, s.Events, nil)
	return types
}

// StoreOf is a memory database as a Store.
func StoreOf(db *memory.Database) Store {
	return Store{Appender: db.Appender, Events: db.Events, Idempotency: db.Intents, Entities: db.Directory, Chains: db.Audit, Types: db.Registry}
}

// NewWriter makes a writer to the administrative logs of a store. It registers the event types of
// the module in the store.
func NewWriter(s Store, clock ports.Clock, m module.Module) (Writer, error) {
	ids := system.NewIDs()
	catalog, err := module.Build(Schemas{}, m)
	if err != nil {
		return Writer{}, err
	}
	types := registry.New(administration.NewEventTypes(s.Types), Schemas{}, nil, catalog, clock)
	if err := types.RegisterBuiltIn(context.Background()); err != nil {
		return Writer{}, err
	}
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: ids, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}})
	return Writer{Appends: eventappend.NewService(eventappend.Config{
		Preparer: preparer, Appender: s.Appender, Events: s.Events, Idempotency: s.Idempotency, Clock: clock, IDs: ids, KeyTTL: time.Hour,
	})}, nil
}

// Writer appends to administrative logs.
type Writer struct{ Appends *eventappend.Service }

// Write implements administration.Writer.
func (w Writer) Write(ctx context.Context, b administration.Write) error {
	_, _, err := w.Appends.Append(ctx, eventappend.Request{LegalEntity: b.Log, Actor: b.Actor, PersonID: b.Actor.ID, Drafts: b.Drafts, Streams: b.Streams})
	return err
}
