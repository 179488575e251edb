package wire

import (
	"context"
	"maps"
	"sync"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/archive"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/system"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/blindindex"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/keyrotation"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/papers"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/redaction"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/application/webhooks"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/ports"
)

// Infrastructure is what a node stands on: an adapter of each port. Open makes that of production
// from a configuration; a simulation brings its own to OpenOn.
type Infrastructure struct {
	Stores   Stores
	Keys     *Keys // nil: the node refuses personal data
	Clock    ports.Clock
	IDs      ports.IDSource
	Catalog  *module.Catalog
	Schemas  ports.SchemaCompiler
	Policies ports.PolicyEngine

	Handlers   map[string]ports.ProjectionHandler // by projection
	ReadModels map[string]ports.ReadModelSource   // by module.ReadModelPath
}

// connect makes the infrastructure of production. The caller closes the stores.
func connect(ctx context.Context, c configs.Config, o Options) (in Infrastructure, err error) {
	in.Clock, in.IDs, in.Schemas = system.Clock{}, system.NewIDs(), jsonschema.New()
	if in.Catalog, in.Policies, err = o.declarations(in.Schemas, c.Policy.CachedDecisions); err != nil {
		return in, err
	}
	database, err := openDatabase(ctx, c, o)
	if err != nil {
		return in, err
	}
	in.Stores = storesOf(database)
	defer func() {
		if err != nil {
			in.close()
		}
	}()
	in.Handlers, in.ReadModels = map[string]ports.ProjectionHandler{}, map[string]ports.ReadModelSource{}
	for _, m := range o.Modules {
		maps.Copy(in.Handlers, m.Projections)
		if m.ReadModels == nil {
			continue
		}
		for name, source := range m.ReadModels(database.Pool()) {
			in.ReadModels[module.ReadModelPath(m.Name(), name)] = postgres.ReadModel(source)
		}
	}
	if o.keys == nil {
		return in, nil
	}
	if in.Keys, err = openKeys(ctx, c, o.keys, o.Logger); err != nil {
		return in, err
	}
	if dsn := redactorDSN(c); dsn != "" {
		redactor, err := eventlog.OpenRedactor(ctx, dsn)
		if err != nil {
			return in, err
		}
		archiver, err := archive.OpenArchiver(ctx, dsn)
		if err != nil {
			redactor.Close()
			return in, err
		}
		in.Stores.Redactions, in.Stores.Archiver = redactor, archiver
		in.Stores.Close = func() { database.Close(); redactor.Close(); archiver.Close() }
	}
	return in, nil
}

// declarations joins what the modules declare. Nodes, and what begins an installation, check all of it. Tools
// of operators work on what was checked then, and compile what they use.
func (o Options) declarations(schemas ports.SchemaCompiler, cachedDecisions int) (*module.Catalog, ports.PolicyEngine, error) {
	if !o.serves && o.LogName == "" {
		catalog, err := joinModules(module.Declare, schemas, o.Modules)
		return catalog, lazyPolicies{sync.OnceValues(func() (*opa.Engine, error) { return NewPolicyEngine(catalog, cachedDecisions) })}, err
	}
	catalog, err := joinModules(module.Build, schemas, o.Modules)
	if err != nil {
		return nil, nil, err
	}
	policies, err := NewPolicyEngine(catalog, cachedDecisions)
	return catalog, policies, err
}

// lazyPolicies compiles the policies when they are asked first.
type lazyPolicies struct{ engine func() (*opa.Engine, error) }

// Decide implements ports.PolicyEngine.
func (p lazyPolicies) Decide(ctx context.Context, query string, input, out any) error {
	engine, err := p.engine()
	if err != nil {
		return err
	}
	return engine.Decide(ctx, query, input, out)
}

// Digest implements ports.PolicyEngine.
func (p lazyPolicies) Digest() string {
	engine, err := p.engine()
	if err != nil {
		return "" // no decision is made with it
	}
	return engine.Digest()
}

func (in *Infrastructure) close() {
	in.Stores.Close()
	if in.Keys != nil {
		in.Keys.Close()
	}
}

// Catalog joins what business modules and Backbone's own modules declare.
func Catalog(schemas ports.SchemaCompiler, modules ...module.Module) (*module.Catalog, error) {
	plugins := make([]plugin.Module, len(modules))
	for i, m := range modules {
		plugins[i].Module = m
	}
	return joinModules(module.Build, schemas, plugins)
}

// NewPolicyEngine compiles the policies of a catalog and of the program.
func NewPolicyEngine(c *module.Catalog, cachedDecisions int) (*opa.Engine, error) {
	return opa.New(allPolicies(c), opa.WithData("roles", c.RoleRights()), opa.WithCache(cachedDecisions, cachedQueries(c)...))
}

// Services are what an App offers its callers, where the App itself does not.
type Services struct {
	Appends       *eventappend.Service
	Streams       *streams.Service
	Snapshots     *streams.SnapshotService
	Entities      *entities.Service
	Feeds         *query.Feeds
	Live          *live.Service
	Operations    *projections.Operations
	Rebuilds      *projections.Rebuilds
	Targets       *projections.Targets
	Custom        *custom.Service
	Disclosures   *disclosure.Service
	Papers        *papers.Service
	Vault         *vault.Vault
	Webhooks      *webhooks.Service // nil without DeliverWith
	Verifications *jobs.Service     // nil without OfferVerifications
	Erasures      *erasure.Service  // nil without a key service, like the rest
	Redactions    *redaction.Service
	Rotation      *keyrotation.Service
	Reports       *disclosure.Reports
	Index         *blindindex.Index
}

// Services returns what the App offers its callers.
func (a *App) Services() Services {
	s := Services{
		Appends: a.appends, Streams: a.streams, Snapshots: a.snapshots, Entities: a.entities, Feeds: a.feeds, Live: a.live, Operations: a.operations, Rebuilds: a.rebuilds,
		Targets: a.targets, Custom: a.custom, Disclosures: a.disclosures, Papers: a.papers, Vault: a.vault, Verifications: a.verifications,
	}
	if a.webhooks != nil {
		s.Webhooks = a.webhooks.service
	}
	if p := a.personal; p != nil {
		s.Erasures, s.Redactions, s.Rotation, s.Reports, s.Index = p.service, p.redactions, p.Rotation, p.reports, p.index
	}
	return s
}
