package httpapi_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	appending "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// noteModule is a minimal module.
type noteModule struct{}

func (noteModule) Name() string { return "note" }

func (noteModule) Register(r *module.Registrar) error {
	r.Prefixes("note")
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "note.page.added", SchemaVersion: 1, Module: "notes", RetentionClass: eventtype.Standard,
		DataSchema:   json.RawMessage(`{"type":"object","properties":{"number":{"type":"string"},"text":{"type":"string"}},"required":["number"],"additionalProperties":false}`),
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "number", Fields: []string{"number"}, Document: "number"}},
	}})
	r.Intent(module.IntentType{
		Type: "note.add_page", Description: "Add a page.", Policy: "backbone.rules.note", Emits: []string{"note.page.added"},
		Schema: json.RawMessage(`{"type":"object","properties":{"number":{"type":"string"},"text":{"type":"string"},"secret":{"type":"boolean"}},"required":["number"],"additionalProperties":false}`),
		Plan: func(_ context.Context, in module.Input, _ module.State) (module.Plan, error) {
			var p struct {
				Number string `json:"number"`
				Text   string `json:"text,omitempty"`
				Secret bool   `json:"secret"`
			}
			if err := json.Unmarshal(in.Payload, &p); err != nil {
				return module.Plan{}, err
			}
			return module.Plan{
				Events: []event.Draft{{
					Type: "note.page.added", Stream: event.StreamID{Type: "page", ID: in.DocumentID(1).String()},
					Data:     map[string]string{"number": p.Number, "text": p.Text},
					Entities: []event.EntityRef{{Type: "page", ID: p.Number, Role: "subject"}},
				}},
				Facts: map[string]bool{"secret": p.Secret},
			}, nil
		},
	})
	r.Roles(module.Role{Name: "ap_clerk", Reads: []shredding.Class{shredding.Contact}}, module.Role{Name: "controller", Approves: true, Reads: []shredding.Class{shredding.Contact, shredding.Bank}})
	r.Policy(ports.PolicyModule{Path: "note.rego", Source: `package backbone.rules.note
submit := {"allow": "ap_clerk" in input.actor.roles}
decision := {"outcome": "needs_approval", "needs": [{"roles": ["controller"], "reason": "it is secret", "rule_id": "note.secret"}], "denials": [], "rules": []} if input.facts.secret
decision := {"outcome": "allow", "needs": [], "denials": [], "rules": [{"rule_id": "note.open", "rule_name": "open pages", "result": "fired", "evaluation_ms": 0}]} if not input.facts.secret
`})
	r.Projection(module.Projection{Name: "note_pages", Version: 1, EventTypes: []string{"note.page.added"}})
	r.ReadModel(module.ReadModel{
		Name: "pages", Description: "Pages by number.", Projection: "note_pages",
		Params:  []module.Param{{Name: "prefix", Type: module.ParamString, Description: "Beginning of the number."}},
		Columns: []module.Column{{Name: "number", Type: "string", Description: "Number."}, {Name: "length", Type: "amount", Description: "In sheets."}},
	})
	r.ReadModel(module.ReadModel{
		Name: "books/{book}/pages", Description: "Pages of a book.", Projection: "note_pages", Flat: true, RowsName: "pages",
		Params: []module.Param{{Name: "book", Type: module.ParamString, Required: true, InPath: true, Description: "The book."}},
	})
	r.File(module.File{
		Type: "note.print", Name: "books/{book}/print", Description: "A book to print.", MediaType: "application/xml", Policy: "backbone.rules.note", Command: "print",
		Params: []module.Param{{Name: "book", Type: module.ParamString, InPath: true, Description: "The book."}},
		Build: module.FileOf(func(_ context.Context, in module.Input, _ module.State, p struct{ Book string }) (module.BuiltFile, error) {
			return module.BuiltFile{
				Name: p.Book + ".xml", Content: []byte(strings.Repeat("<page>"+in.LegalEntity.Code+"</page>", 1000)), Facts: map[string]bool{"secret": p.Book == "secret"},
			}, nil
		}),
	})
	return nil
}

// readModelStub answers read models with the parameters of the question.
type readModelStub struct{}

func (readModelStub) Query(_ context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	report := ports.Report{
		Header: ports.ReportFields{{Name: "legal_entity", Value: q.Entity.Code}, {Name: "as_of", Value: q.AsOf}, {Name: "known_at", Value: q.KnownAt}},
		Footer: ports.ReportFields{{Name: "total", Value: "1.50"}},
	}
	for _, name := range []string{"prefix", "book"} {
		if v, ok := q.Params[name]; ok {
			report.Header = append(report.Header, ports.ReportField{Name: name, Value: v})
		}
	}
	if q.Cursor == "" && q.Limit == 1 {
		report.Rows = []any{map[string]string{"number": cmp.Or(q.Params["prefix"], "P") + "-1", "length": "1.50"}}
		report.HasMore, report.NextCursor = true, "P-1"
	}
	return report, nil
}

type headPosition struct{ store *memory.Database }

func (c headPosition) Active(context.Context, string) (int, error) { return 1, nil }

func (c headPosition) Position(ctx context.Context, _ string, _ int, p event.PartitionID) (event.Sequence, uint64, error) {
	head, err := c.store.Events.Head(ctx, p)
	return head.Sequence, 0, err
}

// streamWriter adapts the append service to the stream service.
type streamWriter struct{ appends *appending.Service }

func (w streamWriter) Write(ctx context.Context, r streams.EventWrite) (ports.AppendedEvent, bool, error) {
	receipts, replayed, err := w.appends.Append(ctx, appending.Request{
		LegalEntity: r.LegalEntity, Actor: r.Actor, PersonID: r.PersonID, Roles: r.Roles, Drafts: []event.Draft{r.Draft}, Streams: r.Expected,
		IdempotencyKey: r.IdempotencyKey, Digest: r.Fingerprint,
	})
	if err != nil {
		return ports.AppendedEvent{}, false, err
	}
	return receipts[0], replayed, nil
}

// administrationWriter adapts the append service to the administrative log.
type administrationWriter struct{ appends *appending.Service }

func (w administrationWriter) Write(ctx context.Context, b administration.Write) error {
	_, _, err := w.appends.Append(ctx, appending.Request{LegalEntity: b.Log, Actor: b.Actor, PersonID: b.Actor.ID, Drafts: b.Drafts, Streams: b.Streams})
	return err
}

// apiFixture is a running server over the real application and a store in memory.
type apiFixture struct {
	url         string
	store       *memory.Database
	principals  ports.Principals
	network     network
	client      *http.Client
	disclosures *disclosure.Service
	tokens      map[string]string
	log         *bytesLog
	router      routers.Router
	ready       func() map[string]error
	registry    *registryStore
	streams     streams.Config
}

// storedTypes has another name than its method, so that it can be embedded.
type storedTypes = ports.EventTypes

// registryStore is the store of the registry, which a test may take away.
type registryStore struct {
	storedTypes
	away atomic.Bool
}

func (s *registryStore) EventTypeGenerations(ctx context.Context) (map[string]int64, error) {
	if s.away.Load() {
		return nil, fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")
	}
	return s.storedTypes.EventTypeGenerations(ctx)
}

type bytesLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *bytesLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *bytesLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// newServer makes a server whose log is discarded unless the configuration has one. It is ready
// unless the configuration has checks.
func newServer(t testing.TB, config httpapi.Config) *httpapi.Server {
	t.Helper()
	metrics := prometheus.New()
	config.Metrics, config.MetricsPage = metrics, metrics.Handler()
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Ready == nil {
		config.Ready = func(context.Context) map[string]error { return nil }
	}
	server, err := httpapi.New(config)
	require.NoError(t, err)
	return server
}

// limitsOf returns the default limits; change adapts them; nil: no change.
func limitsOf(change func(*httpapi.Limits)) httpapi.Limits {
	c := configs.Default()
	l := httpapi.Limits{
		BodyBytes: int64(c.HTTP.BodyLimitBytes), EventBytes: c.Limits.EventBytes, EventNodes: c.Limits.Nodes, Depth: c.Limits.Depth, BatchEvents: c.Limits.BatchEvents, EntityRefs: c.Limits.EntityRefs, Tags: c.Limits.Tags,
		Body: c.HTTP.ReadTimeout, Request: c.HTTP.RequestTimeout,
		Requests: c.HTTP.RequestsInFlight, Bytes: int64(c.HTTP.BytesInFlight), PrincipalRequests: c.HTTP.PrincipalRequests, PrincipalBytes: int64(c.HTTP.PrincipalBytes), PaperBytes: int64(c.HTTP.PaperBytes),
	}
	if change != nil {
		change(&l)
	}
	return l
}

// moduleBinding is that of the services in the role module.
var moduleBinding = ports.Binding{
	ResponsiblePerson: "p-controller", Modules: []string{"assets", "crm", "equipment", "fleet", "hr", "note", "sensors", "streams"}, PIIClasses: shredding.Classes(),
}

// startAPI starts a server; change may replace parts of its configuration.
func startAPI(t testing.TB, change ...func(*httpapi.Config)) *apiFixture {
	t.Helper()
	return startAPIWithFeeds(t, live.Limits{}, change...)
}

// startAPIWithFeeds is startAPI with limits of live feeds; those that are 0 are the defaults.
func startAPIWithFeeds(t testing.TB, feeds live.Limits, change ...func(*httpapi.Config)) *apiFixture {
	t.Helper()
	return startAPIOn(t, loopback, feeds, change...)
}

// startSimulatedAPI is startAPI in a bubble of testing/synctest.
func startSimulatedAPI(t testing.TB, change ...func(*httpapi.Config)) *apiFixture {
	t.Helper()
	return startAPIOn(t, memoryNetwork, live.Limits{}, change...)
}

func startAPIOn(t testing.TB, network network, feeds live.Limits, change ...func(*httpapi.Config)) *apiFixture {
	t.Helper()
	ctx, clock, ids := t.Context(), system.Clock{}, system.NewIDs()
	h := &apiFixture{network: network, store: memory.New(memory.Config{LogName: "test.example", Deployment: 1}), tokens: map[string]string{}, log: &bytesLog{}}
	catalog, engine := declared.catalog, declared.policies
	h.router = declared.router
	eventTypes := administration.NewEventTypes(h.store.Registry)
	h.registry = &registryStore{storedTypes: eventTypes}
	types := registry.New(h.registry, &schemas, nil, catalog, clock)
	require.NoError(t, types.RegisterBuiltIn(ctx))
	preparer := appending.NewPreparer(appending.PreparerConfig{Types: types, IDs: ids, Limits: appending.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}})
	appends := appending.NewService(appending.Config{Preparer: preparer, Appender: h.store.Appender, Events: h.store.Events, Idempotency: h.store.Intents, Clock: clock, IDs: ids, KeyTTL: time.Hour})
	log := administration.NewLog(administration.LogConfig{
		Entities: h.store.Directory, Streams: h.store.Events, Writer: administrationWriter{appends}, Directory: h.store.Directory, LogName: "test.example", Clock: clock, Logger: slog.New(slog.DiscardHandler),
	})
	h.principals = administration.NewPrincipals(log, h.store.Audit, h.store.Events)
	eventTypes.SetLog(log, h.store.Audit, h.store.Events, catalog.EventTypes)
	who := tenancy.New(tenancy.Config{
		LegalEntities: h.store.Directory, LegalEntityCreated: log.LegalEntityCreated, Principals: h.principals, Policies: engine, Owner: catalog.Owner, TypeOwners: types.Owners, Roles: catalog.RoleNames(), Clock: clock, IDs: ids,
	})
	reads := query.New(query.Config{Log: h.store.Events, Directory: who, Cursors: query.NewCursorSealer([]byte("key")), Clock: clock})
	models, sources := catalog.ReadModels(), map[string]ports.ReadModelSource{}
	for path := range models {
		sources[path] = readModelStub{}
	}
	reports, err := query.NewReports(reads, models, sources, headPosition{h.store}, time.Second)
	require.NoError(t, err)
	for _, code := range []string{"DEMF", "USMF"} {
		_, err := who.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "demo", Code: code}, event.Actor{})
		require.NoError(t, err)
	}
	for _, role := range []string{"ap_clerk", "controller", "auditor", "admin", "operator", "compliance", "compliance_approver", "module"} {
		p := ports.Principal{TenantID: "demo", PersonID: "p-" + role, PrincipalID: "l-" + role, ActorType: event.Human, RoleLabel: role, Roles: []string{role}}
		if role == "module" {
			p.ActorType, p.Binding = event.System, moduleBinding
		}
		h.tokens[role], err = who.Enroll(ctx, p)
		require.NoError(t, err)
		p.PrincipalID, p.PersonID, p.LegalEntities = "l-german-"+role, "p-german-"+role, []string{"DEMF"}
		h.tokens["german_"+role], err = who.Enroll(ctx, p)
		require.NoError(t, err)
		p.PrincipalID, p.PersonID, p.LegalEntities = "l-american-"+role, "p-american-"+role, []string{"USMF"}
		h.tokens["american_"+role], err = who.Enroll(ctx, p)
		require.NoError(t, err)
	}
	h.tokens["second_admin"], err = who.Enroll(ctx, ports.Principal{TenantID: "demo", PersonID: "p-second_admin", PrincipalID: "l-second_admin", ActorType: event.Human, RoleLabel: "admin", Roles: []string{"admin"}})
	require.NoError(t, err)
	h.tokens["admin_service"], err = who.Enroll(ctx, ports.Principal{TenantID: "demo", PersonID: "p-admin_service", PrincipalID: "l-admin_service", ActorType: event.System, RoleLabel: "admin", Roles: []string{"admin"}, Binding: moduleBinding})
	require.NoError(t, err)
	service := ports.Principal{TenantID: "demo", PersonID: "s-1", PrincipalID: "l-s", ActorType: event.System, Roles: []string{"compliance_approver"}, Binding: ports.Binding{ResponsiblePerson: "p-controller"}}
	h.tokens["compliance_service"], err = who.Enroll(ctx, service)
	require.NoError(t, err)
	expired := ports.Principal{TenantID: "demo", PersonID: "p-x", PrincipalID: "l-x", ActorType: event.Human, Roles: []string{"ap_clerk"}, ExpiresAt: time.Now().Add(-time.Hour)}
	h.tokens["expired"], err = who.Enroll(ctx, expired)
	require.NoError(t, err)

	h.disclosures = testkit.Must(disclosure.New(disclosure.Config{
		Accesses: h.store.AccessLog, Rights: who, Logs: log, Principals: h.principals.(*administration.Principals), Administration: log, Entities: h.store.Directory,
		Cursors: query.NewCursorSealer([]byte("key")), Clock: clock, IDs: ids, Limits: disclosure.Limits{LongestGrant: 24 * time.Hour},
	}))
	authenticator := snapshots.NewAuthenticator(&testkit.Secrets{}, slog.New(slog.DiscardHandler), nil)
	h.streams = streams.Config{Writer: streamWriter{appends}, Reader: h.store.Events, Catalog: catalog, Roles: catalog.RoleNames()}
	config := httpapi.Config{
		Access: who, Disclosures: h.disclosures, Events: reads, GlobalOrder: query.NewGlobalOrder(reads, h.store.GlobalLog), Positions: h.store.GlobalLog, Proofs: globallog.NewProver(h.store.GlobalLog), Types: types, Reports: reports, Figures: query.NewFigures(reads, nil, catalog.Figures()), Catalog: catalog, Limits: limitsOf(nil),
		Appends: appends, Names: noNames{}, Verifications: &verificationStub{},
		Streams: streams.New(h.streams),
		Intents: testkit.Must(pipeline.New(pipeline.Config{
			Catalog: catalog, Policies: engine, Preparer: preparer, Appender: h.store.Appender, Events: h.store.Events, Intents: h.store.Intents,
			Idempotency: h.store.Intents, Clock: clock, IDs: ids,
			Limits:  pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100},
			Cursors: query.NewCursorSealer([]byte("key")),
		})),
		Entities: testkit.Must(entities.New(entities.Config{
			Log: h.store.Events, Snapshots: snapshots.NewEntities(h.store.Snapshots, authenticator), Positions: reads, Folds: catalog, Background: synchronous{}, Clock: clock,
			Limits: entities.Limits{SnapshotEvery: 10, FoldTimeout: time.Minute},
		})),
		Snapshots: streams.NewSnapshotService(snapshots.NewStreams(h.store.Snapshots, authenticator), h.store.Events, clock, ids),
		Logger:    slog.New(slog.NewJSONHandler(h.log, nil)),
		Ready: func(context.Context) map[string]error {
			if h.ready != nil {
				return h.ready()
			}
			return nil
		},
	}
	watch := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: h.store.Events, WakeUps: h.store.Events, Clock: clock, Poll: 500 * time.Millisecond}))
	watching := make(chan struct{})
	go func() { defer close(watching); watch.Run(ctx) }()
	t.Cleanup(func() { <-watching })
	defaults := configs.Default().Feeds
	feeds = live.Limits{
		Heartbeat: cmp.Or(feeds.Heartbeat, defaults.Heartbeat), AccessCheckInterval: cmp.Or(feeds.AccessCheckInterval, defaults.Review),
		PerPrincipal: cmp.Or(feeds.PerPrincipal, defaults.PerPrincipal), PerNode: cmp.Or(feeds.PerNode, defaults.PerNode),
	}
	config.Live = httpapi.LiveConfig{Feeds: query.NewFeeds(reads, h.store.Events, query.NewGlobalOrder(reads, h.store.GlobalLog)), Live: testkit.Must(live.New(live.Config{Heads: watch, Clock: clock, Limits: feeds})), LiveLimits: httpapi.LiveLimits{WriteTimeout: defaults.WriteTimeout, Batch: defaults.Batch}}
	for _, f := range change {
		f(&config)
	}
	h.serve(t, newServer(t, config))
	return h
}

func (h *apiFixture) serve(t testing.TB, server *httpapi.Server) {
	t.Helper()
	listener, client := h.network(t)
	h.client = client
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, server.Shutdown(ctx))
		require.NoError(t, <-served)
	})
	h.url = "http://" + listener.Addr().String()
}

// dialRaw opens a connection of a test that speaks HTTP itself.
func (h *apiFixture) dialRaw(t *testing.T) net.Conn {
	t.Helper()
	connection, err := h.client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// network makes a listener and a client that reaches it.
type network func(t testing.TB) (net.Listener, *http.Client)

func loopback(t testing.TB) (net.Listener, *http.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return listener, http.DefaultClient
}

func memoryNetwork(testing.TB) (net.Listener, *http.Client) {
	p := newPipes()
	return p, p.client()
}

// declarations are what the servers of these tests declare, and what follows from it.
type declarations struct {
	catalog  *module.Catalog
	policies *opa.Engine
	document []byte
	router   routers.Router // of the document, against which every answer is checked
}

// declared is compiled once: that takes longer than most tests. It is compiled before them, since
// nothing of a bubble of testing/synctest may leave it.
var declared = testkit.Must(declare())

func declare() (d declarations, err error) {
	if d.catalog, err = module.Build(&schemas, noteModule{}, module.Joined{administration.Module{}, pipeline.Module{}}, streams.Module{}); err != nil {
		return d, err
	}
	policies := slices.Clip(d.catalog.Policies)
	for path, source := range configs.Policies() {
		policies = append(policies, ports.PolicyModule{Path: path, Source: source})
	}
	// A busy machine decides as an idle one.
	if d.policies, err = opa.New(policies, opa.WithData("roles", d.catalog.RoleRights()), opa.WithTimeout(time.Minute)); err != nil {
		return d, err
	}
	if d.document, err = httpapi.Document(d.catalog); err != nil {
		return d, err
	}
	loader := openapi3.NewLoader()
	document, err := loader.LoadFromData(d.document)
	if err != nil {
		return d, err
	}
	if err := document.Validate(loader.Context); err != nil {
		return d, err
	}
	d.router, err = legacy.NewRouter(document)
	return d, err
}

// The servers serve the document against which all answers of these tests are checked.
func TestDocument_IsServed(t *testing.T) {
	t.Parallel()
	h := startAPI(t)
	res, err := h.client.Get(h.url + "/api/openapi.yaml")
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, string(declared.document), string(text))
}

// schemaCache compiles each schema once per run: the servers have the same event types.
type schemaCache struct{ compiled sync.Map }

var schemas schemaCache

func (c *schemaCache) Compile(source json.RawMessage) (ports.Schema, error) {
	if s, ok := c.compiled.Load(string(source)); ok {
		return s.(ports.Schema), nil
	}
	s, err := jsonschema.New().Compile(source)
	if err == nil {
		c.compiled.Store(string(source), s)
	}
	return s, err
}

// testRequest is a request of a test.
type testRequest struct {
	method, path, token string
	body                string
	header              map[string]string
	cacheControl        string // Cache-Control of the answer; "": no-store
}

// testAnswer is the answer.
type testAnswer struct {
	status int
	header http.Header
	body   []byte
}

func (a testAnswer) json(t *testing.T) map[string]any {
	t.Helper()
	var out map[string]any
	require.NoError(t, json.Unmarshal(a.body, &out), string(a.body))
	return out
}

// do sends a request, checks the answer against the document, and the request too
// if it was accepted.
func (h *apiFixture) do(t *testing.T, a testRequest) testAnswer {
	t.Helper()
	build := func() *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), a.method, h.url+a.path, strings.NewReader(a.body))
		require.NoError(t, err)
		if a.body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		if a.token != "" {
			token := a.token
			if known, ok := h.tokens[a.token]; ok {
				token = known
			}
			r.Header.Set("Authorization", "Bearer "+token)
		}
		for name, value := range a.header {
			r.Header.Set(name, value)
		}
		return r
	}
	res, err := h.client.Do(build())
	require.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	out := testAnswer{status: res.StatusCode, header: res.Header, body: body}
	require.Equal(t, cmp.Or(a.cacheControl, "no-store"), res.Header.Get("Cache-Control"))
	require.NotEmpty(t, res.Header.Get("X-Request-Id"))

	r := build()
	r.URL.Scheme, r.URL.Host = "", "" // the document's server is "/"
	route, parameters, err := h.router.FindRoute(r)
	if err != nil {
		require.Contains(t, []int{http.StatusNotFound, http.StatusMethodNotAllowed}, out.status, "%s %s is not in the document", a.method, a.path)
		return out
	}
	input := &openapi3filter.RequestValidationInput{
		Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc},
	}
	if out.status < 300 {
		require.NoError(t, openapi3filter.ValidateRequest(t.Context(), input), "the request is not as the document says")
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: out.status, Header: out.header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	answer.SetBodyBytes(out.body)
	require.NoError(t, openapi3filter.ValidateResponse(t.Context(), answer), "the answer is not as the document says: %s", out.body)
	return out
}

// heads are the sequences of all partitions.
func (h *apiFixture) heads(t *testing.T) map[event.PartitionID]event.Sequence {
	t.Helper()
	all, err := h.store.Events.PartitionHeads(t.Context())
	require.NoError(t, err)
	out := map[event.PartitionID]event.Sequence{}
	for p, head := range all {
		out[p] = head.Sequence
	}
	return out
}

// machineType registers a type that no built-in module owns.
func (h *apiFixture) machineType(t *testing.T) {
	t.Helper()
	a := h.do(t, testRequest{method: "POST", path: "/api/event-types", token: "admin", body: `{
		"type": "equipment.machine.serviced", "schema_version": 1, "module": "equipment", "description": "A machine was serviced.",
		"data_schema": {"type": "object", "properties": {"hours": {"type": "number"}, "note": {"type": "string", "x-not-pii": "a remark on the machine"}, "filler": {"type": "array"}}, "required": ["hours"], "additionalProperties": false},
		"required_dimensions": ["department"], "required_entity_refs": [{"entity_type": "machine", "role": "subject", "cardinality": "one"}],
		"examples": [{"hours": 2.5}]}`})
	require.Equal(t, http.StatusCreated, a.status, string(a.body))
}

// serviced is one event of that type; more replaces or adds members.
func serviced(more string) string {
	if more != "" {
		more = "," + more
	}
	return `{"type":"equipment.machine.serviced","scope":{"legal_entity":"USMF"},"stream":{"type":"machine","id":"M-17"},"data":{"hours":2.5},` +
		`"dimensions":{"department":"OPS"},"entities":[{"entity_type":"machine","entity_id":"M-17","role":"subject"}]` + more + `}`
}
