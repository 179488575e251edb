package wire

import (
	"context"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/archive"
	"github.com/erpbackbone/backbone/configs"
	domain "github.com/erpbackbone/backbone/domain/archive"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// archiveFiles reads the files of the archive; nil if none is configured.
func archiveFiles(ctx context.Context, c configs.Archive, metrics archive.Metrics) (ports.ArchivedPayloads, error) {
	store, err := openObjectStore(ctx, "archive", c.ObjectStore, 0)
	if err != nil || store == nil {
		return nil, err
	}
	return archive.NewFiles(store, metrics), nil
}

// archiveActor is the actor of the events about what left the database and what came back.
const archiveActor = "s-backbone-archive"

// archiveLog reads the log for the archive.
type archiveLog struct {
	EventStore
	ports.ChainReader
	ports.ChainAudit
}

// Archiver composes the archiver of an App with keys. Faults: config.archive_missing, config.eraser_missing, those of the
// store.
func (a *App) Archiver(ctx context.Context) (*archive.Archiver, error) {
	store, err := openObjectStore(ctx, "archive", a.config.Archive.ObjectStore, 0)
	switch {
	case err != nil:
		return nil, err
	case store == nil:
		return nil, fault.New(fault.Invalid, "config.archive_missing", "no archive; set archive.directory to a folder outside the database, or archive.bucket, the same for all nodes")
	case a.Store.Archiver == nil:
		return nil, fault.New(fault.Invalid, "config.eraser_missing", "no address for the role that archives; give backbone_eraser a password and set database.eraser_dsn or BACKBONE_DATABASE_ERASER_DSN")
	}
	return archive.New(archive.Config{
		Log: archiveLog{a.Store.Events, a.Store.Audit, a.Store.Chains}, Register: a.Store.Archive, Payloads: a.Store.Archiver, Files: archive.NewFiles(store, a.metrics), Store: store,
		Entities: a.Store.Directory, States: archivedStates{a}, Holds: a.personal.Erasures, StaysOnline: a.Catalog.StaysOnline, Leases: a.Store.Leases, Holder: "archive-" + a.ids.NewID(a.clock.Now()).String(), Clock: a.clock, Logger: a.logger,
		Append: func(ctx context.Context, le ports.LegalEntity, d event.Draft, at event.Version) (event.Sequence, error) {
			expected := concurrency.NoStream()
			if at > 0 {
				expected = concurrency.Exactly(at)
			}
			appended, _, err := a.appends.Append(ctx, eventappend.Request{
				LegalEntity: le, Actor: event.Actor{Type: event.System, ID: archiveActor, Name: "archive"}, PersonID: archiveActor, Drafts: []event.Draft{d},
				Streams: []concurrency.StreamExpectation{{Stream: d.Stream, Expected: expected}},
			})
			if err != nil {
				return 0, err
			}
			return appended[0].Sequence, nil
		},
	}), nil
}

// archivedStates folds the states that replace archived events.
type archivedStates struct{ app *App }

// EntityState implements archive.States.
func (s archivedStates) EntityState(ctx context.Context, le ports.LegalEntity, entityType, entityID string, through event.Sequence) (domain.State, bool, error) {
	return s.app.entities.ArchivedState(ctx, le, entityType, entityID, through)
}

// StreamState implements archive.States.
func (s archivedStates) StreamState(ctx context.Context, le ports.LegalEntity, stream event.StreamID, through event.Sequence) (state domain.State, needed, found bool, err error) {
	return s.app.Pipeline.ArchivedState(ctx, le, stream, through)
}

// Unpack implements archive.States.
func (s archivedStates) Unpack(ctx context.Context, le ports.LegalEntity, page ports.ArchivedStatePage) ([]domain.State, error) {
	return s.app.archived.Unpack(ctx, le, page)
}

// Pages implements archive.States.
func (s archivedStates) Pages(ctx context.Context, le ports.LegalEntity, segment event.Sequence, states []domain.State) ([]ports.ArchivedStatePage, error) {
	return s.app.archived.Pages(ctx, le, segment, states)
}
