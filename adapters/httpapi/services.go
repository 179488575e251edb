package httpapi

import (
	"context"
	"time"

	appending "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// Access authenticates and authorizes callers, and resolves legal entities:
// tenancy.Service.
type Access interface {
	Authenticate(ctx context.Context, token string) (ports.Principal, error)
	Authorize(ctx context.Context, p ports.Principal, a tenancy.Action) error
	LegalEntity(ctx context.Context, tenantID, code string) (ports.LegalEntity, error)
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	CreateLegalEntity(ctx context.Context, le ports.LegalEntity) (ports.LegalEntity, error)
	// Reader returns the classes of personal data that the principal may read.
	Reader(ctx context.Context, p ports.Principal) (module.Reader, error)
}

// Personal opens sealed personal values: vault.Vault.
type Personal interface {
	// Open replaces the sealed values of all documents for the reader; on an error no
	// document is changed. See module.Opener.
	Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error
}

// Intents is the intent pipeline: pipeline.Service.
type Intents interface {
	Submit(ctx context.Context, caller pipeline.Caller, req pipeline.Request) (pipeline.Outcome, error)
	Get(ctx context.Context, le ports.LegalEntity, id event.ID) (intent.Intent, pipeline.Outcome, error)
	Approve(ctx context.Context, approver pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
	Reject(ctx context.Context, approver pipeline.Caller, d pipeline.Decision) (pipeline.Outcome, error)
}

// Appends appends events without an intent: append.Service.
type Appends interface {
	Append(ctx context.Context, r appending.Request) (receipts []ports.AppendedEvent, replayed bool, err error)
}

// Streams deletes streams and keeps their metadata: streams.Service.
type Streams interface {
	Delete(ctx context.Context, c streams.Change, forGood bool) (streams.Outcome, error)
	SetMetadata(ctx context.Context, c streams.Change, m stream.Metadata) (streams.Outcome, error)
	Status(ctx context.Context, le ports.LegalEntity, id event.StreamID, roles []string) (streams.Status, error)
}

// Upcasts converts events to the newest schema version of their type:
// upcasting.Service.
type Upcasts interface {
	UpcastForDisplay(ctx context.Context, events []event.Recorded) ([]event.Recorded, error)
}

// Events reads the log: query.Service.
type Events interface {
	ByID(ctx context.Context, le ports.LegalEntity, id event.ID) (event.Recorded, error)
	Events(ctx context.Context, sel query.Selection) (query.Page, error)
	Stream(ctx context.Context, q query.StreamQuery) (query.StreamPage, error)
	Feed(ctx context.Context, q query.FeedQuery) (query.Page, error)
	Lineage(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID) (query.Lineage, error)
	Descendants(ctx context.Context, le ports.LegalEntity, readableCodes []string, id event.ID, limit int) (query.Descendants, error)
	Process(ctx context.Context, tenantID string, readableCodes []string, correlationID string, limit int) (query.Process, error)
	Match(ctx context.Context, q query.MatchQuery) (query.MatchPage, error)
}

// EventTypes is the registry: registry.Registry.
type EventTypes interface {
	Register(ctx context.Context, reg eventtype.Registration, by string, p registry.Proof) (eventtype.Registration, error)
	Check(ctx context.Context, reg eventtype.Registration, p registry.Proof) (registry.Assessment, error)
	Fetch(ctx context.Context, name string) ([]eventtype.Registration, error)
	List(ctx context.Context) ([]eventtype.Registration, error)
	FindUnregistered(ctx context.Context, types []string) ([]string, error)
	Deprecate(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error)
	Reactivate(ctx context.Context, name string, version uint32, by, reason string) ([]eventtype.Registration, error)
	History(ctx context.Context, name string) ([]eventtype.Change, error)
	Changes(ctx context.Context) ([]eventtype.Change, error)
}

// Erasures erases personal data and keeps legal holds: erasure.Service. It covers only
// what the caller may see.
type Erasures interface {
	Request(ctx context.Context, p ports.Principal, r erasure.NewRequest) (erasure.Status, error)
	// Approve takes the scope of the preview that the approver saw, and fails with
	// erasure.scope_changed if the scope has changed. "" approves the present scope.
	Approve(ctx context.Context, p ports.Principal, id event.ID, scope string) (erasure.Status, error)
	Reject(ctx context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error)
	Withdraw(ctx context.Context, p ports.Principal, id event.ID, reason string) (erasure.Status, error)
	Get(ctx context.Context, p ports.Principal, id event.ID) (erasure.Status, error)
	List(ctx context.Context, p ports.Principal, states []string, limit int) ([]erasure.Status, error)
	// Certificate returns the file's bytes; erasure.not_completed before it is complete.
	Certificate(ctx context.Context, p ports.Principal, id event.ID) ([]byte, error)
	PlaceHold(ctx context.Context, p ports.Principal, h erasure.NewHold) ([]erasure.Hold, error)
	ReleaseHold(ctx context.Context, p ports.Principal, id event.ID) (erasure.Hold, error)
	Holds(ctx context.Context, p ports.Principal, subject string) ([]erasure.Hold, error)
}

// Reports answers read models: query.Reports.
type Reports interface {
	Query(ctx context.Context, q query.ReportQuery) (ports.Report, error)
}

// Catalog holds the declarations of the modules: module.Catalog.
type Catalog interface {
	ReadModels() map[string]module.ReadModel
	IntentTypes() []module.IntentType
	Owner(eventType string) string
}

// Metrics observes requests. It is called on the hot path and must not block.
type Metrics interface {
	// ObserveRequest reports an answered request. The route is a pattern, "unmatched"
	// if there is none.
	ObserveRequest(method, route string, status int, duration time.Duration)
}

type discardMetrics struct{}

func (discardMetrics) ObserveRequest(string, string, int, time.Duration) {}
