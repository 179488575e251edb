//go:build bench

package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/awskms"
	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/kmsd"
	"github.com/erpbackbone/backbone/adapters/postgres/keystore"
	"github.com/erpbackbone/backbone/adapters/postgres/migrate"
	"github.com/erpbackbone/backbone/adapters/system"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/kmstest"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	warmPersons  = 1_000
	coldPersons  = 200
	personFields = `"email":{"type":"string"},"address":{"type":"string"},"phone":{"type":"string"}`
)

// sealingFixture appends records of persons with three personal fields of 100 bytes,
// from preparing to the receipt: what a caller waits for.
type sealingFixture struct {
	engine   *engine
	vault    *vault.Vault
	preparer *eventappend.Preparer
	calls    *kmsCalls
	number   atomic.Int64
	full     bool // with references, tags, an expected version and an idempotency key, as the other figures' appends
}

// oneType is a registry of one type.
type oneType struct{ registered *module.RegisteredType }

func (o oneType) Lookup(context.Context, string, string, uint32) (*module.RegisteredType, error) {
	return o.registered, nil
}

func (o oneType) Manifest(context.Context, shredding.Location) (*shredding.Manifest, error) {
	return o.registered.Manifest, nil
}

// kmsCalls counts the calls of the key service.
type kmsCalls struct{ generates, unwraps, misses atomic.Int64 }

func (*kmsCalls) CacheHits(int)       {}
func (c *kmsCalls) CacheMisses(n int) { c.misses.Add(int64(n)) }
func (*kmsCalls) Evicted(int)         {}
func (*kmsCalls) Sealed(int)          {}
func (*kmsCalls) Opened(int)          {}
func (*kmsCalls) Redacted(int)        {}
func (c *kmsCalls) KMSCall(operation, _ string) {
	if operation == "generate" {
		c.generates.Add(1)
		return
	}
	c.unwraps.Add(1)
}

func personType(t *testing.T, sealed bool) *module.RegisteredType {
	t.Helper()
	reg := eventtype.Registration{
		Type: "bench.person.recorded", SchemaVersion: 1, Module: "bench", RetentionClass: eventtype.PIISubject, Number: 7, Active: true,
		DataSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["person_id"],"properties":{"person_id":{"type":"string"},` + personFields + `}}`),
	}
	schema, err := jsonschema.New().Compile(reg.DataSchema)
	require.NoError(t, err)
	r := &module.RegisteredType{Registration: reg, Schema: schema, KeyClass: shredding.KeyPIISubject}
	if sealed {
		var declared []shredding.Declaration
		for _, name := range []string{"email", "address", "phone"} {
			declared = append(declared, shredding.Declaration{Path: "$." + name, Class: "contact", Subject: json.RawMessage(`{"path":"$.person_id","type":"person"}`)})
		}
		manifest, findings := shredding.ParseManifest(declared)
		require.Empty(t, findings)
		r.Manifest = manifest
	}
	return r
}

func newPersonal(t *testing.T, e *engine, keys *keystore.Store, data ports.DataKeys, sealed bool) *sealingFixture {
	t.Helper()
	types := oneType{personType(t, sealed)}
	p := &sealingFixture{engine: e, calls: &kmsCalls{}}
	c := configs.Default()
	p.vault = testkit.Must(vault.New(vault.Config{
		Keys: keys, DataKeys: data, Manifests: types, Observer: p.calls,
		Limits: vault.Limits{Entries: c.Vault.CachedKeys, Life: c.Vault.KeyLife, Poll: c.Vault.Poll, MaxCalls: c.KMS.Calls, MaxCallWait: c.KMS.CallWait},
	}))
	p.preparer = eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: system.NewIDs(), Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}, Sealer: p.vault})
	return p
}

func (p *sealingFixture) append(ctx context.Context, person int64) error {
	le := p.engine.entities[0]
	n := p.number.Add(1)
	value := strings.Repeat("x", 80)
	data := fmt.Appendf(nil, `{"person_id":"P%d","email":"%s%020d","address":"%s%020d","phone":"%s%020d"}`, person, value, n, value, n, value, n)
	now := time.Now()
	id := p.engine.invoices.ids.NewID(now).String()
	draft := event.Draft{
		Type: "bench.person.recorded", EffectiveDate: event.MustDate("2025-03-15"), Stream: event.StreamID{Type: "person", ID: id}, Data: json.RawMessage(data),
	}
	if p.full {
		draft.Dimensions = map[string]string{"department": "PROD", "cost_center": "CC-5100"}
		draft.Entities = []event.EntityRef{{Type: "person", ID: fmt.Sprintf("P%d", person), Role: "subject"}, {Type: "record", ID: id, Role: "document"}}
		draft.Tags = []string{"period:2025-03", "fy:2025"}
	}
	prepared, err := p.preparer.Prepare(ctx, module.Batch{
		Drafts:      []event.Draft{draft},
		LegalEntity: le, Actor: event.Actor{Type: event.System, ID: "bench", Name: "module"}, CorrelationID: id,
		Source: event.Source{System: "backbone", Channel: "api"}, Now: now,
	})
	if err != nil {
		return err
	}
	r := ports.AppendRequest{Partition: le.Partition, Events: prepared}
	if p.full {
		r.Streams = []concurrency.StreamExpectation{{Stream: prepared[0].Stream, Expected: concurrency.NoStream()}}
		r.Idempotency = claim(&prepared[0], now)
	}
	_, err = p.engine.store.Appender.Append(ctx, r)
	return err
}

func (p *sealingFixture) measure(t *testing.T) func(time.Duration) sample {
	return func(period time.Duration) sample {
		return drive(t, appendCallers, period, func(ctx context.Context, _ int) (int, error) {
			return 1, p.append(ctx, p.number.Load()%warmPersons)
		})
	}
}

// reportPersonal measures what sealing costs an append: three sealed fields against
// the same three in clear, and what a person costs whose keys the node has not cached.
func reportPersonal(t *testing.T, o options, cluster *embeddedpg.Cluster, figures *table) {
	dsn := newDatabase(t, cluster, "personal", func(ctx context.Context, dsn string) error { return migrate.Run(ctx, dsn, nil) })
	e := openEngine(t, dsn, 1)
	keys, data := openKeys(t, dsn)
	clear, sealed := newPersonal(t, e, keys, data, false), newPersonal(t, e, keys, data, true)
	for n := range int64(warmPersons) {
		require.NoError(t, sealed.append(t.Context(), n))
	}
	require.Equal(t, int64(warmPersons), sealed.calls.generates.Load(), "one call per new person")

	fullClear, fullSealed := newPersonal(t, e, keys, data, false), newPersonal(t, e, keys, data, true)
	fullClear.full, fullSealed.full = true, true
	inClear := &variant{name: "three fields in clear", measure: fullClear.measure(t)}
	inSeal := &variant{name: "three sealed fields, keys in memory", measure: fullSealed.measure(t)}
	bareClear := &variant{name: "three fields in clear and nothing else", measure: clear.measure(t)}
	bareSeal := &variant{name: "three sealed fields and nothing else", measure: sealed.measure(t)}
	statements := newStatistics(t, cluster, o)
	o.profiled(t, "personal", func() { takeTurns(t, o, statements, inClear, inSeal, bareClear, bareSeal) })
	figures.addText("Append, prepared and stored: "+inClear.name, "%s", perSecond(inClear.rate(), "events"))
	figures.addRate("   "+inSeal.name, inSeal.rate(), inSeal.ratio(inClear), "in clear", 0.8)
	figures.addText("   "+bareClear.name, "%s", perSecond(bareClear.rate(), "events"))
	figures.add(figure{name: "   " + bareSeal.name, value: perSecond(bareSeal.rate(), "events"), ratio: fmt.Sprintf("%.2f of that", bareSeal.ratio(bareClear))})

	// A fresh node has no keys cached: one read and one unwrap each.
	cold := newPersonal(t, e, keys, data, true)
	started := time.Now()
	for n := range int64(coldPersons) {
		require.NoError(t, cold.append(t.Context(), n))
	}
	elapsed := time.Since(started)
	calls := cold.calls.generates.Load() + cold.calls.unwraps.Load()
	perPerson := float64(calls) / coldPersons
	figures.add(figure{
		name: "Append for a person this node does not know, one after another", value: latency(elapsed / coldPersons),
		ratio: fmt.Sprintf("%.2f KMS calls", perPerson), target: "<= 1.00", ok: perPerson <= 1,
	})
}

// openKeys returns a key store with a KEK for the tenant of the benchmark, and data
// keys of a key server on loopback.
func openKeys(t *testing.T, superuserDSN string) (*keystore.Store, ports.DataKeys) {
	t.Helper()
	server := kmstest.Serve(t, nil)
	config := configs.Default()
	client := func(profile string) *awskms.Client {
		c, err := awskms.New(t.Context(), awskms.Config{
			Endpoint: server.Endpoint, Region: kmsd.Region, Profile: profile, CredentialsFile: server.Credentials, Signer: kmsd.Signer{},
			Limits: awskms.Limits{Timeout: config.KMS.Timeout, Tries: config.KMS.Tries, Backoff: config.KMS.Backoff},
		})
		require.NoError(t, err)
		return c
	}
	store, err := keystore.Open(t.Context(), keystore.Config{DSN: asApp(t, superuserDSN), EraserDSN: asRole(t, superuserDSN, "backbone_eraser"), Limits: keystore.Limits{PoolSize: config.KeyStore.Pool, LockTimeout: config.KeyStore.LockTimeout}})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	kek, err := client(kmsd.Rotator).Create(t.Context(), "alias/bench/epoch-1", ports.WrapDataKeys)
	require.NoError(t, err)
	require.NoError(t, store.Rotation().AddKEK(t.Context(), ports.KEK{TenantID: "bench", Epoch: 1, KeyID: kek.ID, State: ports.KEKPending}))
	require.NoError(t, store.Rotation().ActivateKEK(t.Context(), "bench", 1))
	return store, client(kmsd.App)
}
