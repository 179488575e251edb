package cli

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/adapters/jq"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/adapters/prometheus"
	"github.com/erpbackbone/backbone/adapters/system"
	appending "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// toy is a built-in module with one type.
type toy struct{}

func (toy) Name() string { return "toy" }

func (toy) Register(r *module.Registrar) error {
	r.Prefixes("toy")
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "toy.car.made", SchemaVersion: 1, Module: "toy", RetentionClass: eventtype.Standard, DataSchema: json.RawMessage(`{"type":"object"}`),
	}})
	return nil
}

// newTerminal serves an empty registry to a principal with roles.
func newTerminal(t *testing.T, roles ...string) *terminal {
	t.Helper()
	ctx, clock, ids, schemas := t.Context(), system.Clock{}, system.NewIDs(), jsonschema.New()
	store := memory.New(memory.Config{LogName: "test.example", Deployment: 1})
	catalog, err := module.Build(schemas, toy{})
	require.NoError(t, err)
	policies := catalog.Policies
	for path, source := range configs.Policies() {
		policies = append(policies, ports.PolicyModule{Path: path, Source: source})
	}
	engine, err := opa.New(policies, opa.WithData("roles", catalog.RoleRights()), opa.WithTimeout(time.Minute))
	require.NoError(t, err)
	types := registry.New(typestest.Memory(t, store, clock), schemas, jq.New(), catalog, clock)
	require.NoError(t, types.RegisterBuiltIn(ctx))
	who := tenancy.New(tenancy.Config{LegalEntities: store.Directory, Principals: &testkit.Principals{}, Policies: engine, Owner: catalog.Owner, Roles: catalog.RoleNames(), Clock: clock, IDs: ids})
	token, err := who.Enroll(ctx, ports.Principal{TenantID: "demo", PersonID: "p-1", PrincipalID: "l-1", ActorType: event.Human, Roles: roles})
	require.NoError(t, err)
	second, err := who.Enroll(ctx, ports.Principal{TenantID: "demo", PersonID: "p-2", PrincipalID: "l-2", ActorType: event.Human, Roles: roles})
	require.NoError(t, err)
	reads := query.New(query.Config{Log: store.Events, Directory: who, Cursors: query.NewCursorSealer([]byte("key")), Clock: clock})
	preparer := appending.NewPreparer(appending.PreparerConfig{Types: types, IDs: ids, Limits: appending.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}})
	server, err := httpapi.New(httpapi.Config{
		Logger: slog.New(slog.DiscardHandler), Metrics: prometheus.New(),
		Limits: httpapi.Limits{BodyBytes: 4 << 20, EventBytes: 1 << 20, EventNodes: 50_000, Depth: 32, BatchEvents: 100, EntityRefs: 128, Tags: 32, Body: time.Minute, Request: time.Minute, Requests: 100, Bytes: 64 << 20, PrincipalRequests: 100, PrincipalBytes: 64 << 20, PaperBytes: 64 << 20},
		Access: who, Events: reads, Types: types, Catalog: catalog, Appends: appending.NewService(appending.Config{Preparer: preparer, Appender: store.Appender, Events: store.Events, Idempotency: store.Intents, Clock: clock, IDs: ids}),
		Intents: testkit.Must(pipeline.New(pipeline.Config{
			Catalog: catalog, Policies: engine, Preparer: preparer, Appender: store.Appender, Events: store.Events, Intents: store.Intents, Idempotency: store.Intents, Clock: clock, IDs: ids,
			Limits: pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100},
		})),
	})
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, server.Shutdown(context.Background()))
		require.NoError(t, <-served)
	})
	return &terminal{server: "http://" + listener.Addr().String(), token: token, second: second}
}

func write(t *testing.T, directory, name, text string) string {
	t.Helper()
	path := filepath.Join(directory, name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const (
	wonV1 = `{"type":"crm.lead.won","schema_version":1,"module":"crm","description":"Won <at last> & for good","data_schema":{"type":"object","required":["size"],"properties":{"size":{"type":"number","minimum":1.50,"description":"\u00e4 <b>"}},"additionalProperties":false},"examples":[{"size":2.50}]}`
	wonV2 = `{"type":"crm.lead.won","schema_version":2,"module":"crm","data_schema":{"type":"object","required":["size","colour"],"properties":{"size":{"type":"number","minimum":1.50},"colour":{"type":"string","default":"none"}},"additionalProperties":false}}`
	wonV3 = `{"type":"crm.lead.won","schema_version":3,"module":"crm","data_schema":{"type":"object","required":["size","colour"],"properties":{"size":{"type":"number","minimum":1.50},"colour":{"type":"string"}},"additionalProperties":false}}`
	lost  = `{"type":"crm.lead.lost","schema_version":1,"module":"crm","data_schema":{"type":"object"}}`
)

func contents(t *testing.T, directory string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(directory)
	require.NoError(t, err)
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(directory, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(text)
	}
	return out
}

func TestTypesPushAndPull(t *testing.T) {
	t.Parallel()
	d, dir := newTerminal(t, "admin"), t.TempDir()
	write(t, dir, "crm.lead.won.v2.json", wonV2)
	write(t, dir, "crm.lead.won.v1.json", wonV1)
	write(t, dir, "crm.lead.won.v3.json", wonV3)
	write(t, dir, "crm.lead.lost.v1.json", lost)
	require.NoError(t, d.run(t, "types", "push", dir, "--dry-run"))
	plan := d.printed()
	require.NotContains(t, plan, "Registered")
	require.Regexp(t, `(?m)^crm.lead.lost +1 +new_type +- +-$`, plan)
	require.Regexp(t, `(?m)^crm.lead.won +2 +new_version +version 1 +not shown$`, plan)
	require.Regexp(t, `(?m)^crm.lead.won +3 +new_version +version 2 +yes$`, plan, "compared with the file before, not with what is registered")
	require.Contains(t, plan, "crm.lead.won v2  ok  required_added /data_schema/properties/colour")

	require.NoError(t, d.run(t, "types", "push", dir))
	require.Contains(t, d.printed(), "Registered 4, unchanged 0.")
	require.NoError(t, d.run(t, "types", "push", dir))
	require.Contains(t, d.printed(), "Registered 0, unchanged 4.")

	// Pulled, pushed elsewhere and pulled again, the bytes are the same.
	pulled, again := filepath.Join(t.TempDir(), "types"), t.TempDir()
	require.NoError(t, d.run(t, "types", "pull", pulled))
	require.Contains(t, d.printed(), "Written 4, unchanged 0.")
	other := newTerminal(t, "admin")
	require.NoError(t, other.run(t, "types", "push", pulled))
	require.NoError(t, other.run(t, "types", "pull", again))
	first := contents(t, pulled)
	require.Len(t, first, 4, "no types of built-in modules")
	require.Equal(t, first, contents(t, again))
	require.Contains(t, first["crm.lead.won.v1.json"], `"description": "Won <at last> & for good"`)
	require.Contains(t, first["crm.lead.won.v1.json"], `"minimum": 1.50`, "numbers stay as they were written")
	require.Less(t, strings.Index(first["crm.lead.won.v1.json"], `"required"`), strings.Index(first["crm.lead.won.v1.json"], `"properties"`), "and members in their order")

	write(t, pulled, "notes.json", "{}")
	require.NoError(t, d.run(t, "types", "pull", pulled))
	text := d.printed()
	require.Contains(t, text, "Written 0, unchanged 4.")
	require.Contains(t, text, "only here notes.json")
}

func TestTypesPushRefusesAll(t *testing.T) {
	t.Parallel()
	d, dir := newTerminal(t, "admin"), t.TempDir()
	write(t, dir, "crm.lead.won.v1.json", wonV1)
	write(t, dir, "crm.lead.won.v2.json", strings.Replace(wonV2, `,"default":"none"`, "", 1))
	write(t, dir, "crm.lead.won.v3.json", wonV3)
	write(t, dir, "crm.lead.lost.v1.json", lost)
	err := d.run(t, "types", "push", dir)
	require.Equal(t, "types.refused", fault.CodeOf(err))
	text := d.printed()
	require.Contains(t, text, "crm.lead.won v2  REFUSED  required_added /data_schema/properties/colour")
	require.Contains(t, text, "crm.lead.won v3  REFUSED  types.version_before_refused")
	require.NoError(t, d.run(t, "types", "pull", t.TempDir()))
	require.Contains(t, d.printed(), "Written 0, unchanged 0.")

	require.NoError(t, d.run(t, "types", "check", "--json", filepath.Join(dir, "crm.lead.won.v1.json"), filepath.Join(dir, "crm.lead.lost.v1.json")))
	var checks struct {
		Checks []struct{ File, Type, Verdict string }
	}
	require.NoError(t, json.Unmarshal([]byte(d.printed()), &checks))
	require.Equal(t, "new_type", checks.Checks[1].Verdict)
	bad := write(t, t.TempDir(), "x.json", `{"type":"toy.car.sold","schema_version":1,"module":"toy","data_schema":{"type":"object"}}`)
	require.Equal(t, "types.refused", fault.CodeOf(d.run(t, "types", "check", "--json", bad)))
	require.Contains(t, d.printed(), "event_type.owned_by_module")
}

func TestTypesPushReadsFiles(t *testing.T) {
	t.Parallel()
	d := newTerminal(t, "admin")
	for name, c := range map[string]struct {
		files map[string]string
		code  string
	}{
		"none":         {nil, "types.directory_empty"},
		"misnamed":     {map[string]string{"crm.lead.won.v2.json": wonV1}, "types.file_misnamed"},
		"no JSON":      {map[string]string{"a.json": `{`}, "types.file_invalid"},
		"two values":   {map[string]string{"a.json": wonV1 + wonV2}, "types.file_invalid"},
		"other member": {map[string]string{"a.json": `{"type":"a.b","version":1}`}, "types.file_invalid"},
		"twice":        {map[string]string{"a.json": wonV1, "crm.lead.won.v1.json": wonV1}, "types.version_repeated"},
		"too large":    {map[string]string{"a.json": `{"description":"` + strings.Repeat("x", 4<<20) + `"}`}, "types.file_invalid"},
	} {
		dir := filepath.Join(t.TempDir(), "[types]*")
		require.NoError(t, os.Mkdir(dir, 0o700))
		for file, text := range c.files {
			write(t, dir, file, text)
		}
		require.Equal(t, c.code, fault.CodeOf(d.run(t, "types", "push", dir)), name)
	}
	require.ErrorIs(t, d.run(t, "types", "push", filepath.Join(t.TempDir(), "missing")), os.ErrNotExist)
}

// A push leaves a version with upcasters proposed, and what builds on it for a later push.
func TestTypesPush_Proposed(t *testing.T) {
	t.Parallel()
	d, dir := newTerminal(t, "admin"), t.TempDir()
	write(t, dir, "crm.lead.won.v1.json", wonV1)
	write(t, dir, "crm.lead.won.v2.json", strings.Replace(wonV2, `"module"`, `"upcasters":[{"from_version":1,"jq":".colour = (.size|tostring)"}],"module"`, 1))
	write(t, dir, "crm.lead.won.v3.json", wonV3)
	require.NoError(t, d.run(t, "types", "push", dir))
	text := d.printed()
	require.Contains(t, text, "Registered 2, unchanged 0.")
	require.Contains(t, text, "backbone types confirm crm.lead.won")
	require.Regexp(t, `Not registered, because .*crm.lead.won.v3.json`, text)
	require.NoError(t, d.other().run(t, "types", "confirm", "crm.lead.won"))
	d.printed()
	require.NoError(t, d.run(t, "types", "push", dir))
	require.Contains(t, d.printed(), "Registered 1, unchanged 2.")
}

// A file with further optional members amends its version, also if a later version is pushed with it.
func TestTypesPush_Amended(t *testing.T) {
	t.Parallel()
	d, dir := newTerminal(t, "admin"), t.TempDir()
	write(t, dir, "crm.lead.won.v1.json", wonV1)
	require.NoError(t, d.run(t, "types", "push", dir))
	d.printed()
	write(t, dir, "crm.lead.won.v1.json", strings.Replace(wonV1, `"size":{`, `"count":{"type":"integer"},"size":{`, 1))
	write(t, dir, "crm.lead.won.v2.json", wonV2)
	require.NoError(t, d.run(t, "types", "push", dir))
	text := d.printed()
	require.Regexp(t, `crm.lead.won +1 +amendment`, text)
	require.Contains(t, text, "Registered 2, unchanged 0.")
	require.Contains(t, text, "Of these 1 got optional members and kept their version.")
	require.NoError(t, d.run(t, "types", "history", "crm.lead.won"))
	require.Regexp(t, `crm.lead.won +1 +amended`, d.printed())
}

func TestTypesDeprecate(t *testing.T) {
	t.Parallel()
	d, dir := newTerminal(t, "admin"), t.TempDir()
	write(t, dir, "crm.lead.won.v1.json", wonV1)
	require.NoError(t, d.run(t, "types", "push", dir))
	d.printed()
	require.NoError(t, d.run(t, "types", "deprecate", "crm.lead.won", "--reason", "over"))
	require.Regexp(t, `crm.lead.won +1 +active .* deprecation_proposed by p-1`, d.printed())
	require.Equal(t, "event_type.same_person", fault.CodeOf(d.run(t, "types", "confirm", "crm.lead.won")))
	other := d.other()
	require.NoError(t, other.run(t, "types", "confirm", "crm.lead.won"))
	require.Regexp(t, `crm.lead.won +1 +deprecated`, other.printed())
	require.NoError(t, d.run(t, "types", "reactivate", "crm.lead.won"))
	require.NoError(t, d.run(t, "types", "reject", "crm.lead.won"))
	require.NoError(t, d.run(t, "types", "reactivate", "crm.lead.won"))
	require.NoError(t, other.run(t, "types", "confirm", "crm.lead.won"))
	require.Regexp(t, `crm.lead.won +1 +active`, other.printed())
	require.NoError(t, d.run(t, "types", "history", "crm.lead.won"))
	text := d.printed()
	require.Regexp(t, `1 +registered +p-1`, text)
	require.Regexp(t, `1 +deprecation_proposed +p-1 +[0-9a-f]{12} +over`, text)
	require.Regexp(t, `1 +deprecated +p-2 +[0-9a-f]{12}`, text)
	require.Equal(t, "event_type.owned_by_module", fault.CodeOf(d.run(t, "types", "deprecate", "toy.car.made")))
}
