package wire

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/system"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// redactionAnnouncer appends the events of redactions.
type redactionAnnouncer struct {
	preparer *eventappend.Preparer
	appender ports.EventAppender
}

// NewRedactionAnnouncer composes the append path for the events of redactions. The store must
// be open as the application's role, the only one that may append.
func NewRedactionAnnouncer(ctx context.Context, store *postgres.Database, limits configs.Limits, modules []plugin.Module) (redaction.Announcer, error) {
	schemas := jsonschema.New()
	catalog, err := buildCatalog(schemas, modules)
	if err != nil {
		return nil, err
	}
	types := registry.New(store.Registry, schemas, jq.New(), catalog, system.Clock{})
	if err := types.RegisterBuiltIn(ctx); err != nil {
		return nil, err
	}
	// A redaction without its event would be unexplained, so the type must exist first.
	if _, err := types.Lookup(ctx, "", redaction.EventType, 0); err != nil {
		return nil, err
	}
	return &redactionAnnouncer{
		preparer: eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: system.NewIDs(), Limits: appendLimits(limits)}),
		appender: store.Appender,
	}, nil
}

// redactionKeyTTL is how long a repeated announcement finds the outcome of the first by its
// idempotency key. Afterwards the event's stream, which can be started once, prevents a second
// event.
const redactionKeyTTL = 24 * time.Hour

// Announce implements redaction.Announcer.
func (a *redactionAnnouncer) Announce(ctx context.Context, x redaction.Announcement) error {
	now := system.Clock{}.Now()
	events, err := a.preparer.Prepare(ctx, module.Batch{
		Drafts: []event.Draft{x.Draft}, LegalEntity: x.LegalEntity,
		Actor: event.Actor{Type: event.System, ID: "backbone", Name: "redaction"}, CorrelationID: x.Draft.CorrelationID, Source: x.Draft.Source, Now: now,
	})
	if err != nil {
		return err
	}
	_, err = a.appender.Append(ctx, ports.AppendRequest{
		Partition: x.LegalEntity.Partition, Events: events, Streams: []concurrency.StreamExpectation{x.Stream},
		Idempotency: &ports.IdempotencyClaim{Key: x.IdempotencyKey, Fingerprint: x.Fingerprint, ExpiresAt: now.Add(redactionKeyTTL)},
	})
	return err
}
