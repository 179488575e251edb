// Package wire is the composition root: the one package that imports every adapter. It
// connects the adapters with the services of application/ and with the modules that its
// caller passes; it names no module. Serve runs a node; NewServer and Open compose its parts,
// OpenWithKeys, OpenKeyring and OpenReader those that tools need. cmd/cli calls it.
package wire

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/archive"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/papers"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/snapshots"
	streams "github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/application/upcasting"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// joinModules joins what the business modules and Backbone's own modules declare, by module.Build or
// module.Declare.
func joinModules(join func(ports.SchemaCompiler, ...module.Module) (*module.Catalog, error), schemas ports.SchemaCompiler, modules []plugin.Module) (*module.Catalog, error) {
	declarations := make([]module.Module, 0, len(modules)+3)
	for _, m := range modules {
		declarations = append(declarations, m.Module)
	}
	catalog, err := join(schemas, append(declarations, module.Joined{administration.Module{}, pipeline.Module{}, jobs.Module{}, papers.Module{}, globallog.Module{}, archive.Module{}}, erasure.Module{}, streams.Module{})...)
	if err != nil {
		return nil, fmt.Errorf("modules: %w", err)
	}
	return catalog, nil
}

// Migrate brings a database to this version's schema and to that of the modules. It connects
// as the owner. The server never migrates: an operator runs `backbone migrate` before the new
// nodes start, and `backbone dev` migrates at every start. Of several runs at once one
// migrates while the rest wait.
func Migrate(ctx context.Context, ownerDSN string, progress func(string), modules ...plugin.Module) error {
	var sets []migrate.Set
	for _, m := range modules {
		if m.Migrations == nil {
			continue
		}
		files, err := fs.Sub(m.Migrations, "migrations")
		if err != nil {
			return err
		}
		sets = append(sets, migrate.Set{Name: m.Name(), FS: files})
	}
	return migrate.Run(ctx, ownerDSN, progress, sets...)
}

// App holds the composed services of a node, without its HTTP API.
type App struct {
	Store         Stores
	Catalog       *module.Catalog
	Registry      *registry.Registry
	Upcaster      *upcasting.Service
	Pipeline      *pipeline.Service
	Query         *query.Service
	Reports       *query.Reports
	Figures       *query.Figures
	Tenancy       *tenancy.Service
	Principals    *administration.Principals
	Runner        *projections.Runner
	Subscriptions *subscriptions.Service

	administration *administration.Log

	config      configs.Config
	clock       ports.Clock
	ids         ports.IDSource
	logger      *slog.Logger
	metrics     *prometheus.Metrics
	expiry      *pipeline.Expiry
	appends     *eventappend.Service
	eventTypes  *administration.EventTypes
	streams     *streams.Service
	entities    *entities.Service
	snapshots   *streams.SnapshotService
	archived    *snapshots.Archived // nil without a key service, or an archive
	heads       *subscriptions.HeadWatcher
	globalLog   globalLog
	feeds       *query.Feeds
	live        *live.Service
	ownedKeys   *keyService  // stopped by Close; nil where another closes it, or there is none
	vault       *vault.Vault // seals and opens personal values; without a key service it refuses both
	personal    *personal    // nil without a key service
	operations  *projections.Operations
	disclosures *disclosure.Service
	accesses    *disclosure.Recorder
	custom      *custom.Service // projections that tenants create
	rebuilds    *projections.Rebuilds
	targets     *projections.Targets
	background  *streams.Background
	fanout      *fanoutRunner  // nil in tools and without a broker
	webhooks    *webhookRunner // nil in tools

	verifications *jobs.Service // nil in tools
	papers        *papers.Service
}

// Options are what differs between `serve`, `dev` and tools.
type Options struct {
	Modules                []plugin.Module // business modules; one comes after the modules whose event types it uses
	AllowDevelopmentTokens bool
	// LogName and Deployment identify a new installation. With an empty LogName the
	// database must hold an installation already.
	LogName    string
	Deployment uint16
	Tracer     pgx.QueryTracer // traces statements; nil: none. With telemetry.otlp_endpoint a server traces them itself
	Logger     *slog.Logger    // nil: silent
	Audit      io.Writer       // receives the calls of an embedded key server, one JSON line each; nil: they are not recorded

	serves  bool                // a node, whose policies are recorded; not a tool
	keys    *keyService         // nil: the App refuses personal data, as in tools that need none
	metrics *prometheus.Metrics // nil in tools, whose metrics are not served
}

// completed returns the options with a logger and metrics, so that no service has to do without.
func (o Options) completed() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.metrics == nil {
		o.metrics = prometheus.New()
	}
	return o
}

// OpenStore opens the database of the log as the configuration says.
func OpenStore(ctx context.Context, c configs.Config) (*postgres.Database, error) {
	return openDatabase(ctx, c, Options{}.completed())
}

func openDatabase(ctx context.Context, c configs.Config, o Options) (_ *postgres.Database, err error) {
	config := storeConfig(c, o)
	if config.Archive, err = archiveFiles(ctx, c.Archive, o.metrics); err != nil {
		return nil, err
	}
	return postgres.Open(ctx, config)
}

// OpenReader opens the database of the log at dsn for a tool that appends nothing, so that
// the clock of its machine does not matter. It finds archived payloads in the archive.
func OpenReader(ctx context.Context, dsn string, archive configs.Archive) (*postgres.Database, error) {
	c := configs.Default()
	c.Database.DSN, c.Archive = configs.DSN(dsn), archive
	c.Engine.MaxClockSkew = -1
	return openDatabase(ctx, c, Options{}.completed())
}

func storeConfig(c configs.Config, o Options) postgres.Config {
	return postgres.Config{
		DSN: c.Database.DSN.Reveal(), KeyStoreDSN: c.KeyStore.DSN.Reveal(), ListenDSN: c.Database.ListenDSN.Reveal(),
		ReadPool: c.Database.ReadPool, Appenders: c.Database.Appenders, PhysicalPartitions: c.Database.PhysicalPartitions,
		Limits: postgres.Limits(c.Engine), Clock: system.Clock{}, Logger: o.Logger, Metrics: o.metrics, Tracer: o.Tracer,
	}
}

// Open composes an App over a migrated database and registers the built-in event types.
func Open(ctx context.Context, config configs.Config, o Options) (*App, error) {
	o = o.completed()
	config.Node.ID = nodeID(config) // one id for all work of this node
	in, err := connect(ctx, config, o)
	if err != nil {
		return nil, err
	}
	return openOn(ctx, config, in, o)
}

// OpenOn composes an App over an infrastructure of the caller, as Open does. Run does no work of
// the fan-out and of webhooks; see PublishTo and DeliverWith.
func OpenOn(ctx context.Context, config configs.Config, in Infrastructure, o Options) (*App, error) {
	o = o.completed()
	o.serves = true
	return openOn(ctx, config, in, o)
}

func openOn(ctx context.Context, config configs.Config, in Infrastructure, o Options) (*App, error) {
	a := &App{config: config, logger: o.Logger, metrics: o.metrics, Store: in.Stores, clock: in.Clock, ids: in.IDs, Catalog: in.Catalog, background: streams.NewBackground()}
	if err := a.compose(ctx, in, o); err != nil {
		if a.personal == nil && in.Keys != nil {
			in.Keys.Close()
		}
		a.Close()
		return nil, err
	}
	return a, nil
}

// OpenWithKeys is Open for a tool that seals personal values: with the configured key service.
// Faults: config.kms_missing, config.exports_missing, config.eraser_missing, those of the key service.
func OpenWithKeys(ctx context.Context, config configs.Config, o Options) (_ *App, err error) {
	config.KMS.AllowLocal = true // the operator allowed the local keys when the server was configured
	if err := requireKeys(config); err != nil {
		return nil, err
	}
	if o.keys, err = openKeyService(ctx, config.KMS, nil, auditLog(o.Audit)); err != nil {
		return nil, err
	}
	a, err := Open(ctx, config, o)
	if err != nil {
		return nil, errors.Join(err, o.keys.stop())
	}
	a.ownedKeys = o.keys
	return a, nil
}

// cachedQueries lists the policy queries whose decisions a node caches. This is safe because
// the policies use neither the time nor random values: equal input has an equal decision.
func cachedQueries(c *module.Catalog) []string {
	queries := []string{"data.backbone.authz.decision"}
	for _, t := range c.IntentTypes() {
		if q := "data." + t.Policy + ".decision"; !slices.Contains(queries, q) {
			queries = append(queries, q)
		}
	}
	return queries
}

// compose builds the services in the order of their dependencies: the vault before the append
// path that seals with it, the head watcher before the subscriptions and projections that wait
// for it, the projections before the erasures that recompute their rows, and the reports before
// the pipeline whose planners read them.
func (a *App) compose(ctx context.Context, in Infrastructure, o Options) (err error) {
	c, clock, ids := a.config, in.Clock, in.IDs
	a.eventTypes = administration.NewEventTypes(a.Store.Registry)
	a.Registry = registry.New(a.eventTypes, in.Schemas, jq.New(), a.Catalog, clock)
	a.Registry.SetLegalEntities(a.Store.Directory)
	a.Upcaster = upcasting.New(a.Registry)
	if err := a.Registry.RegisterBuiltIn(ctx); err != nil {
		return err
	}
	if o.LogName != "" {
		if err := tenancy.Bootstrap(ctx, a.Store.Directory, clock, o.LogName, o.Deployment); err != nil {
			return err
		}
	}
	if err := a.composePersonal(ctx, in.Keys, clock); err != nil {
		return err
	}
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: a.Registry, IDs: ids, Limits: appendLimits(c.Limits), Sealer: a.vault, Upcaster: a.Upcaster})
	a.appends = eventappend.NewService(eventappend.Config{
		Preparer: preparer, Appender: a.Store.Appender, Events: a.Store.Events, Idempotency: a.Store.Intents, Clock: clock, IDs: ids, KeyTTL: c.Idempotency.TTL, Fingerprints: a.vault,
	})
	a.papers = papers.New(papers.Config{
		Store: a.Store.Papers, Appends: paperWriter{a.appends}, Events: a.Store.Events, Opener: a.vault, Secrets: a.vault, Clock: clock, Logger: a.logger,
	})
	if err := a.composeAdministration(ctx, clock, o.installs(a.Catalog)); err != nil {
		return err
	}
	a.Tenancy = tenancy.New(tenancy.Config{
		LegalEntities: a.Store.Directory, LegalEntityCreated: a.legalEntityCreated, Principals: a.Principals, Policies: in.Policies, Owner: a.Catalog.Owner, TypeOwners: a.Registry.Owners, Roles: a.Catalog.RoleNames(),
		Clock: clock, IDs: ids, AllowDevelopmentTokens: o.AllowDevelopmentTokens,
	})
	a.streams = streams.New(streams.Config{Writer: streamWriter{a.appends}, Reader: a.Store.Events, Catalog: a.Catalog, Roles: a.Catalog.RoleNames()})
	cursorKey, err := a.cursorKey(ctx)
	if err != nil {
		return err
	}
	cursors := query.NewCursorSealer(cursorKey)
	var entitySnapshots *snapshots.Entities
	var streamSnapshots *snapshots.Streams
	if a.personal != nil { // without a key service there are none
		authenticator := snapshots.NewAuthenticator(a.vault, a.logger, a.metrics)
		entitySnapshots, streamSnapshots = snapshots.NewEntities(a.Store.Snapshots, authenticator), snapshots.NewStreams(a.Store.Snapshots, authenticator)
		if a.Store.Archive != nil {
			a.archived = snapshots.NewArchived(a.Store.Archive, a.Store.Snapshots, authenticator)
		}
	}
	if err := a.composeDisclosures(a.administration, cursors, clock, ids); err != nil {
		return err
	}
	a.Query = query.New(query.Config{
		Log: a.Store.Events, Directory: a.Tenancy, Cursors: cursors, Clock: clock,
		// One node's clock may be ahead of the database's by the skew and another's behind.
		SettleDelay: 2 * c.Engine.MaxClockSkew,
	})
	a.Registry.SetProver(upcasting.NewProver(a.Store.Events, a.Store.Directory, cursors))
	if err := a.composeFeeds(ctx, clock); err != nil {
		return err
	}
	if err := a.composeSubscriptions(clock, ids, cursors); err != nil {
		return err
	}
	if err := a.composeProjections(in.Handlers, clock); err != nil {
		return err
	}
	if a.personal != nil {
		if err := a.personal.addErasures(a, a.administration, cursors, clock, ids); err != nil {
			return err
		}
		if err := a.personal.addRedactions(ctx, a, in.Stores.Redactions, a.administration, clock, ids); err != nil {
			return err
		}
	}
	a.Reports, err = query.NewReports(a.Query, a.Catalog.ReadModels(), in.ReadModels, a.Runner, 5*time.Second)
	if err != nil {
		return err
	}
	a.Figures = query.NewFigures(a.Query, a.Reports, a.Catalog.Figures())
	a.Pipeline, err = pipeline.New(pipeline.Config{
		Catalog: a.Catalog, Policies: in.Policies, Preparer: preparer, Appender: a.Store.Appender, Events: upcasting.UpcastReader(a.Store.Events, a.Upcaster), Intents: a.Store.Intents,
		Idempotency: a.Store.Intents, Reports: a.Reports, Clock: clock, IDs: ids, Retries: c.Intake.Retries, Logger: a.logger,
		Limits: pipeline.Limits{KeyTTL: c.Idempotency.TTL, CachedStreams: c.Intake.CachedStreams, SnapshotEvery: c.Query.SnapshotEvery},
		Sealer: a.vault, Opener: a.vault, Fingerprints: a.vault,
		Snapshots: streamSnapshots, Archived: a.archived, Background: a.background, ReadingID: a.Registry.ReadingID, Cursors: cursors, LegalEntities: a.Store.Directory,
	})
	if err != nil {
		return err
	}
	a.expiry = pipeline.NewExpiry(pipeline.ExpiryConfig{
		Service: a.Pipeline, Entities: a.Store.Directory, Leases: a.Store.Leases, Node: c.Node.ID, Limit: c.Intake.WaitingLimit, Interval: expiryInterval,
		Clock: clock, Logger: a.logger,
	})
	a.entities, err = entities.New(entities.Config{
		Log: upcasting.UpcastReader(a.Store.Events, a.Upcaster), Snapshots: entitySnapshots, Archived: a.archived, Positions: positions{a.Query, a.Reports}, Folds: a.Catalog, Background: a.background, Clock: clock,
		Logger: a.logger, Observer: a.metrics, ReadingID: a.Registry.ReadingID, Limits: entities.Limits{SnapshotEvery: c.Query.SnapshotEvery, FoldTimeout: c.Query.FoldBudget},
	})
	if err != nil {
		return err
	}
	a.snapshots = streams.NewSnapshotService(streamSnapshots, a.Store.Events, clock, ids)
	return nil
}

func appendLimits(c configs.Limits) eventappend.Limits {
	return eventappend.Limits{BatchEvents: c.BatchEvents, EventBytes: c.EventBytes, EntityRefs: c.EntityRefs, Tags: c.Tags}
}

// withUpcasting wraps the handlers so that they receive events in the version in which their
// type is read now. A handler that keeps copies of personal values receives events without the
// erased values.
func (a *App) withUpcasting(handlers map[string]ports.ProjectionHandler) map[string]ports.ProjectionHandler {
	out := make(map[string]ports.ProjectionHandler, len(handlers))
	for name, h := range handlers {
		if ports.HoldsSealedCopies(h) {
			h = vault.Projection(h, a.vault)
		}
		out[name] = upcasting.UpcastProjection(h, a.Upcaster)
	}
	return out
}

// cursorKey derives the key that signs cursors. All nodes of a deployment derive the same one.
// It keeps clients from building positions by hand and protects no secret: a caller who could
// compute it can read the database anyway.
func (a *App) cursorKey(ctx context.Context) ([]byte, error) {
	installation, err := a.Store.Directory.Installation(ctx)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte("backbone/cursor/v1|" + installation.LogName + "|" + installation.CreatedAt.UTC().Format(time.RFC3339Nano)))
	return sum[:], nil
}

// expiredKeysInterval is how often a node deletes expired idempotency keys. A key has no
// effect from the moment it expires; deleting it only frees space.
const expiredKeysInterval = 10 * time.Minute

// expiryInterval is how often the nodes look for intents that have waited too long.
const expiryInterval = time.Minute

// Run does the background work of a node until ctx ends: it refreshes the registry, runs
// projections, rebuilds, subscriptions, webhooks, the fan-out, erasures and rotations, and
// deletes expired idempotency keys, and ends intents that waited too long. It returns when all of that has stopped.
func (a *App) Run(ctx context.Context) {
	logFailure := func(err error) {
		if err != nil && ctx.Err() == nil {
			a.logger.WarnContext(ctx, "background work failed; it will be tried again", "code", fault.CodeOf(err))
		}
	}
	var running sync.WaitGroup
	refresh := time.Second
	if a.config.Delivery.Listen == listenNotify {
		refresh = 2 * idlePoll // bounds the delay after a lost notification
		running.Go(func() {
			logFailure(a.Store.Registry.ListenEventTypes(ctx, func() { logFailure(a.Registry.RefreshAll(ctx)) }))
		})
	}
	running.Go(func() { a.Registry.Run(ctx, refresh, logFailure) })
	running.Go(func() { a.deleteExpiredKeys(ctx, logFailure) })
	running.Go(func() { a.expiry.Run(ctx) })
	running.Go(func() { a.accesses.Run(ctx) })
	running.Go(func() { a.papers.Run(ctx) })
	if a.personal != nil {
		running.Go(func() { a.personal.run(ctx, a, logFailure) })
	}
	running.Go(func() { a.heads.Run(ctx) })
	running.Go(func() { a.globalLog.run(ctx) })
	running.Go(func() { a.rebuilds.Run(ctx) })
	running.Go(func() { a.Subscriptions.Run(ctx) })
	if a.webhooks != nil {
		running.Go(func() { a.webhooks.dispatcher.Run(ctx) })
	}
	if a.fanout != nil {
		running.Go(func() { a.fanout.dispatcher.Load().Run(ctx) })
	}
	a.Runner.Run(ctx)
	running.Wait()
}

// HasKeys reports whether the node has a key service, without which it stores no personal data.
func (a *App) HasKeys() bool { return a.personal != nil }

func (a *App) deleteExpiredKeys(ctx context.Context, logFailure func(error)) {
	tick := time.NewTicker(expiredKeysInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, err := a.Store.Intents.DeleteExpiredIdempotencyKeys(ctx, a.clock.Now())
			logFailure(err)
		}
	}
}

// Ready checks the parts of the node; nil means that a part is ready. A failure of a part that
// most requests do not need is an httpapi.Degraded.
func (a *App) Ready(ctx context.Context) map[string]error {
	out := map[string]error{"database": a.Store.Ping(ctx)}
	_, out["installation"] = a.Store.Directory.Installation(ctx)
	if a.personal != nil {
		a.personal.ready(ctx, out)
	}
	checks := map[string]func() error{"projections": a.Runner.Health, "subscriptions": a.Subscriptions.Health}
	if a.webhooks != nil {
		checks["webhooks"] = a.webhooks.dispatcher.Health
	}
	if a.fanout != nil {
		checks["fanout"] = a.fanout.dispatcher.Load().Health
	}
	for name, check := range checks {
		out[name] = nil
		if err := check(); err != nil {
			out[name] = httpapi.Degraded{Err: err}
		}
	}
	return out
}

// Close cancels snapshots and the verification in progress, answers the queued appends and closes the connections.
func (a *App) Close() {
	a.background.Close()
	if a.verifications != nil {
		a.verifications.Close()
	}
	if a.fanout != nil {
		a.fanout.close()
	}
	a.Store.Close()
	if a.personal != nil {
		a.personal.Keys.Close()
	}
	if err := a.ownedKeys.stop(); err != nil {
		a.logger.Warn("the embedded key server did not stop cleanly", "error", err)
	}
}

// positions resolves known_at. For a moment within the settle delay it waits, since events of
// that time may still be appended.
type positions struct {
	query   *query.Service
	reports *query.Reports
}

// ResolveKnownAt implements entities.Positions.
func (p positions) ResolveKnownAt(ctx context.Context, partition event.PartitionID, knownAt string) (event.Sequence, string, error) {
	if knownAt != "" {
		if err := p.reports.WaitUntilSettled(ctx, knownAt); err != nil {
			return 0, "", err
		}
	}
	return p.query.ResolveKnownAt(ctx, partition, knownAt)
}

var invalidInNodeID = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// nodeID returns the configured id, else the host's name with a random suffix that differs at
// every call: a node that restarts has lost its caches and counts as a new node.
func nodeID(c configs.Config) string {
	if c.Node.ID != "" {
		return c.Node.ID
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "node"
	}
	host = invalidInNodeID.ReplaceAllString(host, "-")
	return host[:min(len(host), 40)] + "-" + strings.ToLower(rand.Text()[:8])
}
