// Package moduletest runs business modules behind the real pipeline, for their tests: New
// on the in-memory store, for intents and policies; NewOnPostgres on PostgreSQL, for projections
// and read models too. Tests of modules in other repositories
// may import it.
package moduletest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/papers"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// Books are a legal entity, USMF in UTC, whose intents go through the pipeline.
type Books struct {
	Catalog  *module.Catalog
	Pipeline *pipeline.Service
	Entity   ports.LegalEntity
	Problems *Problems // of the module that is tested; nil: problem documents are not compared

	t       testing.TB
	head    func(context.Context, event.PartitionID) (ports.Head, error)
	events  func(context.Context, ports.EventQuery) ([]event.Recorded, error)
	reports *query.Reports // nil on the in-memory store
	create  func(context.Context, ports.LegalEntity) (ports.LegalEntity, error)
}

// Another opens books of another legal entity of the tenant on the same store.
func (b *Books) Another(code string) *Books {
	b.t.Helper()
	other := *b
	var err error
	other.Entity, err = b.create(b.t.Context(), ports.LegalEntity{TenantID: b.Entity.TenantID, Code: code, Name: code, TimeZone: "UTC", Status: "active"})
	require.NoError(b.t, err)
	return &other
}

// New opens books in memory for modules and those whose events they emit. It is
// 2026-03-20 10:00 UTC.
func New(t testing.TB, modules ...module.Module) *Books {
	t.Helper()
	clock, schemas, ids := testkit.NewClock(time.Date(2026, 3, 20, 10, 0, 0, 0, time.UTC)), typestest.Schemas{}, system.NewIDs()
	catalog, err := module.Build(schemas, append(slices.Clip(modules), module.Joined{pipeline.Module{}, papers.Module{}})...)
	require.NoError(t, err)
	policies, err := Policies(catalog)
	require.NoError(t, err)
	store := memory.New(memory.Config{Clock: clock, LogName: "test.example.org"})
	entity, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "test", Code: "USMF", Name: "USMF", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	types := registry.New(administration.NewEventTypes(store.Registry), schemas, nil, catalog, clock)
	require.NoError(t, types.RegisterBuiltIn(t.Context()))
	limits := configs.Default().Limits
	return &Books{
		Catalog: catalog, Entity: entity, t: t, head: store.Events.Head, events: store.Events.Events, create: store.Directory.CreateLegalEntity,
		Pipeline: testkit.Must(pipeline.New(pipeline.Config{
			Catalog: catalog, Policies: policies, Appender: store.Appender, Events: store.Events, Intents: store.Intents, Idempotency: store.Intents, Clock: clock, IDs: ids, LegalEntities: store.Directory,
			Limits: pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100},
			Preparer: eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: ids, Limits: eventappend.Limits{
				BatchEvents: limits.BatchEvents, EventBytes: limits.EventBytes, EntityRefs: limits.EntityRefs, Tags: limits.Tags,
			}}),
		})),
	}
}

// Policies compiles the policies of a catalog with those of the API. Like a node the engine caches
// decisions, which are most of what an intent costs on the in-memory store; its timeout is long
// enough for a busy machine.
func Policies(catalog *module.Catalog) (*opa.Engine, error) {
	sources := slices.Clip(catalog.Policies)
	for path, source := range configs.Policies() {
		sources = append(sources, ports.PolicyModule{Path: path, Source: source})
	}
	var decisions []string
	for _, t := range catalog.IntentTypes() {
		decisions = append(decisions, "data."+t.Policy+".decision")
	}
	return opa.New(sources, opa.WithData("roles", catalog.RoleRights()), opa.WithTimeout(time.Minute),
		opa.WithCache(configs.Default().Policy.CachedDecisions, slices.Compact(slices.Sorted(slices.Values(decisions)))...))
}

// NewOnPostgres opens books on PostgreSQL with read models that follow the log: those of a tenant
// of the test's own, on a node that other tests with the same modules use too if the package's TestMain calls testkit.Run.
// Without PostgreSQL the test is skipped.
func NewOnPostgres(t testing.TB, modules ...plugin.Module) *Books {
	t.Helper()
	app := nodeOf(t, modules)
	tenantID := "test-" + strings.ToLower(rand.Text())
	entity, err := app.Tenancy.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenantID, Code: "USMF"}, event.Actor{})
	require.NoError(t, err)
	return &Books{Catalog: app.Catalog, Pipeline: app.Pipeline, Entity: entity, t: t, head: app.Store.Events.Head, events: app.Store.Events.Events, reports: app.Reports,
		create: func(ctx context.Context, le ports.LegalEntity) (ports.LegalEntity, error) {
			return app.Tenancy.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: le.TenantID, Code: le.Code}, event.Actor{})
		},
	}
}

// Report asks a read model by its path, "ap/open-items", once it has caught up with the
// log, and decodes its rows. Only books on PostgreSQL have read models.
func (b *Books) Report(path string, params map[string]string, rows any) {
	b.t.Helper()
	b.ReportAsOf(path, "", params, rows)
}

// ReportAsOf is Report as of an effective date, "2026-03-31".
func (b *Books) ReportAsOf(path, asOf string, params map[string]string, rows any) {
	b.t.Helper()
	report := b.ReportAt(path, asOf, "", params)
	text, err := json.Marshal(report.Rows)
	require.NoError(b.t, err)
	require.NoError(b.t, json.Unmarshal(text, rows))
}

// Event reads the event at a sequence.
func (b *Books) Event(at event.Sequence) event.Recorded {
	b.t.Helper()
	found, err := b.events(b.t.Context(), ports.EventQuery{Partition: b.Entity.Partition, After: at - 1, Until: at, Limit: 1})
	require.NoError(b.t, err)
	require.Len(b.t, found, 1)
	return found[0]
}

// ReportAt asks a read model as of a date and as known at a time or sequence; "" is today, and
// all that is known. The answer has the rows of all pages. Their members must be declared as columns.
func (b *Books) ReportAt(path, asOf, knownAt string, params map[string]string) ports.Report {
	b.t.Helper()
	require.NotNil(b.t, b.reports, "read models need NewOnPostgres")
	q := query.ReportQuery{Path: path, Entity: b.Entity, AsOf: asOf, KnownAt: knownAt, Params: params, Limit: 1000}
	var rows []any
	for {
		report, err := b.reports.Query(b.t.Context(), q)
		require.NoError(b.t, err)
		rows = append(rows, report.Rows...)
		if !report.HasMore {
			report.Rows = rows
			b.requireColumns(path, params, rows)
			return report
		}
		q.Cursor = report.NextCursor
	}
}

// requireColumns demands that CSV files and tables, which have the declared columns, leave
// nothing of the rows out.
func (b *Books) requireColumns(path string, params map[string]string, rows []any) {
	b.t.Helper()
	var declared []string
	for _, c := range b.Catalog.ReadModels()[path].ColumnsFor(params) {
		declared = append(declared, c.Name)
	}
	text, err := json.Marshal(rows)
	require.NoError(b.t, err)
	var members []map[string]json.RawMessage
	require.NoError(b.t, json.Unmarshal(text, &members))
	for _, row := range members {
		require.Subset(b.t, declared, slices.Collect(maps.Keys(row)), "columns of %s", path)
	}
}

// Log reads the events of the books.
func (b *Books) Log() []event.Recorded {
	b.t.Helper()
	events, err := b.events(b.t.Context(), ports.EventQuery{Partition: b.Entity.Partition, Limit: 10_000})
	require.NoError(b.t, err)
	return events
}

// Caller is a person who holds a role; "controller:2" is another one with the same role.
func (b *Books) Caller(who string) pipeline.Caller {
	b.t.Helper()
	role, _, _ := strings.Cut(who, ":")
	require.Contains(b.t, b.Catalog.RoleNames(), role, "no module declares the role")
	return pipeline.Caller{
		Principal: ports.Principal{TenantID: b.Entity.TenantID, PersonID: "person-" + who, PrincipalID: "person-" + who, ActorType: event.Human, Roles: []string{role}},
		Actor:     event.Actor{Type: event.Human, ID: "person-" + who, Name: role},
	}
}

// Submit submits an intent as a person who holds the role.
func (b *Books) Submit(who, intentType, payload string) (pipeline.Outcome, error) {
	b.t.Helper()
	return b.submit(who, intentType, payload, nil)
}

// SubmitOn is Submit with an effective date.
func (b *Books) SubmitOn(who, intentType, payload string, effective event.Date) (pipeline.Outcome, error) {
	b.t.Helper()
	return b.submit(who, intentType, payload, &effective)
}

func (b *Books) submit(who, intentType, payload string, effective *event.Date) (pipeline.Outcome, error) {
	b.t.Helper()
	out, err := b.Pipeline.Submit(b.t.Context(), b.Caller(who), pipeline.Request{
		Type: intentType, LegalEntity: b.Entity, Payload: json.RawMessage(payload), EffectiveDate: effective, Source: event.Source{System: "test", Channel: "api"},
	})
	b.Problems.Check(b.t, err)
	return out, err
}

// Execute submits an intent that takes effect at once.
func (b *Books) Execute(who, intentType, payload string) pipeline.Outcome {
	b.t.Helper()
	out, err := b.Submit(who, intentType, payload)
	require.NoError(b.t, err, payload)
	require.Equal(b.t, intent.Executed, out.Status, payload)
	return out
}

// Pend submits an intent that waits for approval.
func (b *Books) Pend(who, intentType, payload string) pipeline.Outcome {
	b.t.Helper()
	out, err := b.Submit(who, intentType, payload)
	require.NoError(b.t, err, payload)
	require.Equal(b.t, intent.PendingApproval, out.Status, payload)
	return out
}

// Approve lets a waiting intent through.
func (b *Books) Approve(who string, waiting pipeline.Outcome) (pipeline.Outcome, error) {
	b.t.Helper()
	out, err := b.Pipeline.Approve(b.t.Context(), b.Caller(who), pipeline.Decision{LegalEntity: b.Entity, Intent: waiting.IntentID, PlanHash: waiting.PlanHash})
	b.Problems.Check(b.t, err)
	return out, err
}

// Refuse submits an intent that is refused with a code, and makes no event.
func (b *Books) Refuse(code, who, intentType, payload string) {
	b.t.Helper()
	before, err := b.head(b.t.Context(), b.Entity.Partition)
	require.NoError(b.t, err)
	_, refusal := b.Submit(who, intentType, payload)
	require.Equal(b.t, code, fault.CodeOf(refusal), "%v", refusal)
	since, err := b.events(b.t.Context(), ports.EventQuery{Partition: b.Entity.Partition, After: before.Sequence, Limit: 100})
	require.NoError(b.t, err)
	for _, e := range since {
		require.Equal(b.t, intent.Refused, e.Type, "a refused intent makes no event")
	}
}
