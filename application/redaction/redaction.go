package redaction

import (
	"context"
	"log/slog"
	"time"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// EventType is the type of the event of a redaction, StreamType the type of its stream,
// whose id is the request's.
const (
	EventType  = "pii.payload.redacted"
	StreamType = "pii.redaction"
)

// kind names the requests of this package.
const kind requests.Kind = "redaction"

// Events reads the log. ports.EventReader has it.
type Events interface {
	EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error)
	EventsOfStream(ctx context.Context, p event.PartitionID, s event.StreamID, from event.Version, limit int) ([]event.Recorded, error)
}

// ReadModels recomputes rows that hold copies of an event's values. projections.Targets has it.
type ReadModels interface {
	// RecomputeReaders recomputes the rows of an entity in every projection that reads the type,
	// and names those in which it cannot. Fault projection.target_behind while one has not
	// passed the sequence.
	RecomputeReaders(ctx context.Context, eventType string, le ports.LegalEntity, entity event.StreamID, passed event.Sequence) (left []string, err error)
}

// LegalEntities lists those of a tenant; "" lists all. ports.LegalEntities has it.
type LegalEntities interface {
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// Config is what Service and Worker need. A field is required unless its comment says
// otherwise; Service needs no Announcer, ReadModels, Chains and Notes.
type Config struct {
	Redactions    ports.Redactions
	Events        Events
	Rules         Rules
	LegalEntities LegalEntities
	ReadModels    ReadModels
	Journal       ports.AdministrativeLog
	Announcer     ports.Announcer
	Chains        ports.ChainVerifier
	Notes         ports.NoteSigner
	Exports       ports.ExportStore
	Archive       Archive // nil: payloads are not archived
	Clock         ports.Clock
	IDs           ports.IDSource
	Logger        *slog.Logger
	Poll          time.Duration // how often a worker looks for approved requests; positive
}

// Archive has payloads that are not in the store.
type Archive interface {
	// Forget brings the payload of an event back into the store and deletes every copy of it that is archived.
	Forget(ctx context.Context, le ports.LegalEntity, n event.Sequence) error
}

func (c Config) check() error {
	return fault.RequirePositive("redaction.Config", struct{ Poll time.Duration }{c.Poll})
}

// entities are the legal entities of a tenant.
type entities []ports.LegalEntity

func (c Config) entities(ctx context.Context, tenantID string) (entities, error) {
	return c.LegalEntities.LegalEntities(ctx, tenantID)
}

// find returns the legal entity that a condition holds for.
func (e entities) find(is func(ports.LegalEntity) bool) (ports.LegalEntity, bool) {
	for _, le := range e {
		if is(le) {
			return le, true
		}
	}
	return ports.LegalEntity{}, false
}

func (e entities) byPartition(p event.PartitionID) (ports.LegalEntity, bool) {
	return e.find(func(le ports.LegalEntity) bool { return le.Partition == p })
}

func streamOf(id event.ID) event.StreamID { return event.StreamID{Type: StreamType, ID: id.String()} }
