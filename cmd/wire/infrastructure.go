package wire

import (
	"context"
	"maps"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
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
	if in.Catalog, err = buildCatalog(in.Schemas, o.Modules); err != nil {
		return in, err
	}
	if in.Policies, err = NewPolicyEngine(in.Catalog, c.Policy.CachedDecisions); err != nil {
		return in, err
	}
	database, err := postgres.Open(ctx, storeConfig(c, o))
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
		in.Stores.Redactions = redactor
		in.Stores.Close = func() { database.Close(); redactor.Close() }
	}
	return in, nil
}

func (in *Infrastructure) close() {
	in.Stores.Close()
	if in.Keys != nil {
		in.Keys.Store.Close()
	}
}

// Catalog joins what business modules and Backbone's own modules declare.
func Catalog(schemas ports.SchemaCompiler, modules ...module.Module) (*module.Catalog, error) {
	plugins := make([]plugin.Module, len(modules))
	for i, m := range modules {
		plugins[i].Module = m
	}
	return buildCatalog(schemas, plugins)
}

// NewPolicyEngine compiles the policies of a catalog and of the program.
func NewPolicyEngine(c *module.Catalog, cachedDecisions int) (*opa.Engine, error) {
	return opa.New(allPolicies(c), opa.WithData("roles", c.RoleRights()), opa.WithCache(cachedDecisions, cachedQueries(c)...))
}
