package conformance

import (
	"context"
	"log/slog"
	"slices"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/typestest"
)

// AdministrativeLog are the administrative logs of a database in memory.
type AdministrativeLog struct {
	*administration.Log
	Database *memory.Database
	config   administration.LogConfig
}

// NewAdministrativeLog makes a database with administrative logs.
func NewAdministrativeLog(clock ports.Clock, adoptions ...administration.Adoption) (*AdministrativeLog, error) {
	d := memory.New(memory.Config{LogName: typestest.LogName, Deployment: 1, Clock: clock})
	writer, err := typestest.NewWriter(typestest.StoreOf(d), clock, administration.Module{})
	if err != nil {
		return nil, err
	}
	l := &AdministrativeLog{Database: d, config: administration.LogConfig{
		Entities: d.Directory, Streams: d.Events, Directory: d.Directory, LogName: typestest.LogName, Clock: clock, Logger: slog.New(slog.DiscardHandler), Adoptions: adoptions, Writer: writer,
	}}
	l.Log = l.Node()
	return l, nil
}

// Node makes the logs of another node, which adopts further what an earlier release stored.
func (l *AdministrativeLog) Node(adoptions ...administration.Adoption) *administration.Log {
	config := l.config
	config.Adoptions = append(slices.Clip(config.Adoptions), adoptions...)
	return administration.NewLog(config)
}

// Webhooks are the decisions about webhooks.
func (l *AdministrativeLog) Webhooks() *administration.Webhooks {
	return administration.NewWebhooks(l.Log)
}

// Subscriptions are the decisions about subscriptions.
func (l *AdministrativeLog) Subscriptions() *administration.Subscriptions {
	return administration.NewSubscriptions(l.Log)
}

// Projections are the decisions about custom projections.
func (l *AdministrativeLog) Projections() *administration.Projections {
	return administration.NewProjections(l.Log, func(_ context.Context, _, personID string) (event.Actor, error) {
		return event.Actor{Type: event.Human, ID: personID, Name: "operator"}, nil
	})
}

// Events lists the events of a tenant's log.
func (l *AdministrativeLog) Events(ctx context.Context, tenantID string) ([]event.Recorded, error) {
	log, err := l.Of(ctx, tenantID)
	if err != nil {
		return nil, err
	}
	return l.Database.Events.Events(ctx, ports.EventQuery{Partition: log.Partition, Limit: 10_000})
}
