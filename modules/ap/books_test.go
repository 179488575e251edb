package ap_test

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	"github.com/erpbackbone/backbone/application/administration"
	appendevents "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/ap"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// object is a JSON object of a payload.
type object = map[string]any

// n is an amount as it is written.
func n(s string) json.Number { return json.Number(s) }

type ids struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

func (s *ids) NewID(at time.Time) event.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ulid.MustNew(ulid.Timestamp(at), s.entropy)
}

func (s *ids) NewSalt() event.Salt { return event.Salt{1} }

var (
	shared     sync.Once
	catalog    *module.Catalog
	policies   *opa.Engine
	errCatalog error
)

// books is a legal entity on the memory store, behind the real pipeline.
type books struct {
	tb       testing.TB
	store    *memory.Database
	pipeline *pipeline.Service
	preparer *appendevents.Preparer
	clock    *testkit.Clock
	entity   ports.LegalEntity
	keys     *memoryVault
}

// newBooks opens books in EUR with a chart of accounts and the year 2025 open.
func newBooks(tb testing.TB) *books {
	tb.Helper()
	shared.Do(func() {
		if catalog, errCatalog = module.Build(typestest.Schemas{}, gl.New(), ap.New(), pipeline.Module{}); errCatalog == nil {
			policies, errCatalog = moduletest.Policies(catalog)
		}
	})
	require.NoError(tb, errCatalog)
	clock := testkit.NewClock(time.Date(2025, 3, 20, 12, 0, 0, 0, time.UTC))
	keys := newMemoryVault()
	store := memory.New(memory.Config{Clock: clock, LogName: "test", Keys: keys})
	entity, err := store.Directory.CreateLegalEntity(tb.Context(), ports.LegalEntity{TenantID: "t", Code: "DEMF", Name: "Demo", TimeZone: "Europe/Berlin", Status: "active"})
	require.NoError(tb, err)
	types := registry.New(administration.NewEventTypes(store.Registry), typestest.Schemas{}, nil, catalog, clock)
	require.NoError(tb, types.RegisterBuiltIn(tb.Context()))
	source := &ids{entropy: ulid.Monotonic(rand.New(rand.NewSource(1)), 0)}
	preparer := appendevents.NewPreparer(appendevents.PreparerConfig{Types: types, IDs: source, Limits: appendevents.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}, Sealer: keys})
	b := &books{tb: tb, store: store, preparer: preparer, clock: clock, entity: entity, keys: keys, pipeline: testkit.Must(pipeline.New(pipeline.Config{
		Catalog: catalog, Policies: policies, Preparer: preparer, Appender: store.Appender, Events: store.Events,
		Intents: store.Intents, Idempotency: store.Intents, Sealer: keys, Opener: keys, Clock: clock, IDs: source, LegalEntities: store.Directory, Retries: slices.Repeat([]time.Duration{time.Millisecond}, 50),
		Limits: pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100},
	}))}
	b.setUp()
	return b
}

func (b *books) setUp() {
	setUpBooks(func(who, intentType string, payload object) {
		b.tb.Helper()
		b.execute(who, intentType, payload)
	})
}

// ledgerPayload is the configuration of the ledger that the books begin with.
func ledgerPayload() object {
	return object{
		"functional_currency": "EUR", "default_dimensions": object{"department": "FIN"}, "second_person": false, "orderly_close": false,
		"tax_groups": object{
			"S/19":  object{"rate": 19},
			"S/7":   object{"rate": 7, "recoverable_percent": 50},
			"S/10":  object{"rate": 10, "recoverable_percent": 0, "expense_account": "6900"},
			"AE/0":  object{"rate": 19, "reverse_charge": true},
			"K/0":   object{"rate": 19, "reverse_charge": true, "recoverable_percent": 40},
			"S/5":   object{"rate": 5, "account": "1410"},
			"AE/10": object{"rate": 10, "reverse_charge": true, "recoverable_percent": 0},
			"S/25":  object{"rate": 25}, "S/25.0": object{"rate": 25}, "S/15": object{"rate": 15}, "S/12": object{"rate": 12}, "S/6": object{"rate": 6},
			"S/20": object{"rate": 20}, "S/21": object{"rate": 21}, "S/22": object{"rate": 22}, "S/24": object{"rate": 24}, "AA/6": object{"rate": 6},
			"E/0": object{"rate": 0}, "Z/0": object{"rate": 0}, "O": object{"rate": 0}, "O/0": object{"rate": 0}, "B/22": object{"rate": 22},
		},
		"posting_profile": object{
			"ap_control": "2000", "input_tax": "1400", "output_tax": "2200", "rounding": "7900", "prepayment": "1200",
			"opening": "3900", "withholding": "2300", "default_expense": "6000", "retained_earnings": "3100", "fx_gain": "7000", "fx_loss": "7010",
			"bank": "1010", "discount": "4700", "fx_clearing": "1090",
		},
	}
}

// setUpBooks submits the intents that open books in EUR.
func setUpBooks(execute func(who, intentType string, payload object)) {
	execute("admin", "gl.configure_ledger", ledgerPayload())
	for _, a := range []struct{ code, kind, control string }{
		{"1200", "asset", "none"}, {"1400", "asset", "none"}, {"1410", "asset", "none"}, {"2000", "liability", "ap"}, {"2200", "liability", "none"},
		{"2300", "liability", "none"}, {"3100", "equity", "none"}, {"3900", "equity", "none"}, {"5100", "expense", "none"},
		{"6000", "expense", "none"}, {"6100", "expense", "none"}, {"6900", "expense", "none"}, {"7000", "income", "none"}, {"7010", "expense", "none"}, {"7900", "expense", "none"},
	} {
		execute("gl_accountant", "gl.define_account", object{"code": a.code, "name": "Account " + a.code, "type": a.kind, "control": a.control})
	}
	for _, v := range []string{"department ENG", "department PROD", "department FIN", "cost_center CC-5100", "project P-1"} {
		dimension, value, _ := strings.Cut(v, " ")
		execute("gl_accountant", "gl.define_dimension_value", object{"dimension": dimension, "value": value, "name": value})
	}
	execute("controller", "gl.define_fiscal_year", object{"label": "2025", "start": "2025-01-01", "end": "2025-12-31"})
	for month := 1; month <= 11; month++ { // December stays unopened
		for _, m := range []string{"gl", "ap"} {
			execute("controller", "gl.open_period", object{"module": m, "period": fmt.Sprintf("2025-%02d", month)})
		}
	}
	execute("module", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": "2025-03-01", "rate": n("0.9245")})
	execute("admin", "ap.configure", object{"second_person": false, "coding": []object{
		{"accounting_cost": "BookingCode001", "account": "6100", "dimensions": object{"department": "ENG"}},
	}, "withholding_codes": object{"W10": object{"percent": 10}, "W100": object{"percent": 100}}})
}

// caller is a person with one role, called after it; "approver:ann" is another
// person with the role.
func caller(who string) pipeline.Caller {
	role, name, _ := strings.Cut(who, ":")
	if name == "" {
		name = role
	}
	actor := event.Actor{Type: event.Human, ID: "person-" + name, Name: role}
	if role == "module" || role == "importer" {
		actor.Type = event.System
	}
	return pipeline.Caller{Principal: ports.Principal{TenantID: "t", PersonID: actor.ID, PrincipalID: actor.ID, ActorType: actor.Type, Roles: []string{role}}, Actor: actor}
}

func (b *books) submitAs(c pipeline.Caller, intentType string, payload object) (pipeline.Outcome, error) {
	b.tb.Helper()
	raw, err := json.Marshal(payload)
	require.NoError(b.tb, err)
	out, err := b.pipeline.Submit(b.tb.Context(), c, pipeline.Request{
		Type: intentType, LegalEntity: b.entity, Payload: raw, Source: event.Source{System: "test", Channel: "api"},
	})
	problems.Check(b.tb, err)
	return out, err
}

// decide lets a waiting intent through.
func (b *books) decide(c pipeline.Caller, waiting pipeline.Outcome) (pipeline.Outcome, error) {
	b.tb.Helper()
	out, err := b.pipeline.Approve(b.tb.Context(), c, pipeline.Decision{LegalEntity: b.entity, Intent: waiting.IntentID})
	problems.Check(b.tb, err)
	return out, err
}

func (b *books) submit(who, intentType string, payload object) (pipeline.Outcome, error) {
	b.tb.Helper()
	return b.submitAs(caller(who), intentType, payload)
}

// execute submits an intent that takes effect at once.
func (b *books) execute(who, intentType string, payload object) pipeline.Outcome {
	b.tb.Helper()
	out, err := b.submit(who, intentType, payload)
	require.NoError(b.tb, err, "%s", intentType)
	require.Equal(b.tb, intent.Executed, out.Status, "%s", intentType)
	b.requireProcess(out)
	return out
}

// requireProcess checks that the process that the answer names has the intent's events.
func (b *books) requireProcess(out pipeline.Outcome) {
	b.tb.Helper()
	stored, _, err := b.pipeline.Get(b.tb.Context(), b.entity, out.IntentID)
	require.NoError(b.tb, err)
	require.Equal(b.tb, out.CorrelationID, stored.CorrelationID)
	for _, e := range b.events(out) {
		require.Equal(b.tb, out.CorrelationID, e.CorrelationID, "%s of %s", e.Type, stored.Type)
	}
}

// refusal is a fault that was expected. It is no error.
type refusal fault.Error

// refuse submits an intent that is refused with the code, and makes no event.
func (b *books) refuse(code, who, intentType string, payload object) *refusal {
	b.tb.Helper()
	before := b.head()
	_, err := b.submit(who, intentType, payload)
	return b.requireRefusal(code, before, err)
}

func (b *books) requireRefusal(code string, before event.Sequence, err error) *refusal {
	b.tb.Helper()
	require.Error(b.tb, err)
	require.Equal(b.tb, code, fault.CodeOf(err), "%v", err)
	b.requireOnly(before, intent.Refused)
	f, _ := fault.As(err)
	return (*refusal)(f)
}

// requireOnly checks that all events after a sequence are of a type about refused intents.
func (b *books) requireOnly(after event.Sequence, eventType string) {
	b.tb.Helper()
	since, err := b.store.Events.Events(b.tb.Context(), ports.EventQuery{Partition: b.entity.Partition, After: after})
	require.NoError(b.tb, err)
	for _, e := range since {
		require.Equal(b.tb, eventType, e.Type, "a refused intent makes no event")
	}
}

func (b *books) head() event.Sequence {
	b.tb.Helper()
	h, err := b.store.Events.Head(b.tb.Context(), b.entity.Partition)
	require.NoError(b.tb, err)
	return h.Sequence
}

// recorded is an event with its data decoded.
type recorded struct {
	event.Recorded
	data object
	body event.Body
}

func (b *books) events(out pipeline.Outcome) []recorded {
	b.tb.Helper()
	all := make([]recorded, len(out.Events))
	for i, r := range out.Events {
		all[i] = b.event(r.ID)
	}
	return all
}

func (b *books) event(id event.ID) recorded {
	b.tb.Helper()
	e, err := b.store.Events.EventByID(b.tb.Context(), b.entity.Partition, id)
	require.NoError(b.tb, err)
	body, err := e.Body()
	require.NoError(b.tb, err)
	d := json.NewDecoder(strings.NewReader(string(body.Data)))
	d.UseNumber()
	r := recorded{Recorded: e, body: body}
	require.NoError(b.tb, d.Decode(&r.data))
	return r
}

func types(events []recorded) []string {
	out := make([]string, len(events))
	for i, e := range events {
		out[i] = e.Type
	}
	return out
}

// vendor registers a vendor with an id of its own.
func (b *books) vendor(id string, more object) string {
	b.tb.Helper()
	p := object{"vendor_id": id, "name": "Vendor " + id, "country": "DE", "registration_id": "R" + id}
	for k, v := range more {
		if p[k] = v; v == nil {
			delete(p, k)
		}
	}
	b.execute("vendor_admin", "ap.register_vendor", p)
	return id
}

// documentPayload is a document of one line without tax.
func documentPayload(vendor, number, amount string, more object) object {
	p := object{
		"invoice_number": number, "vendor_id": vendor, "invoice_date": "2025-03-15", "currency": "EUR", "total_amount": n(amount),
		"lines": []object{{"line_number": 1, "amount": n(amount), "account": "5100", "dimensions": object{"department": "PROD"}}},
	}
	for k, v := range more {
		if p[k] = v; v == nil {
			delete(p, k)
		}
	}
	return p
}

// invoice submits a document as the clerk and gives its id.
func (b *books) invoice(p object) string {
	b.tb.Helper()
	return b.execute("ap_clerk", "ap.submit_invoice", p).Events[0].Stream.ID
}

// submitDated submits an invoice as the clerk with an effective date of the
// intent's own.
func (b *books) submitDated(date *event.Date, payload object) (pipeline.Outcome, error) {
	b.tb.Helper()
	raw, err := json.Marshal(payload)
	require.NoError(b.tb, err)
	return b.pipeline.Submit(b.tb.Context(), caller("ap_clerk"), pipeline.Request{
		Type: "ap.submit_invoice", LegalEntity: b.entity, Payload: raw, EffectiveDate: date,
	})
}

// otherEntity is a legal entity whose books are not set up.
func (b *books) otherEntity() ports.LegalEntity {
	return ports.LegalEntity{TenantID: "t", Code: "NEW", Name: "New", TimeZone: "UTC", Status: "active"}
}

// realBooks opens the years and sets the rates that real documents need.
func (b *books) realBooks() {
	b.tb.Helper()
	for year := 2024; year >= 2010; year-- { // a calendar grows without gaps
		b.execute("controller", "gl.define_fiscal_year", object{"label": fmt.Sprint(year), "start": fmt.Sprintf("%d-01-01", year), "end": fmt.Sprintf("%d-12-31", year)})
		for month := 1; month <= 12; month++ {
			for _, m := range []string{"gl", "ap"} {
				b.execute("controller", "gl.open_period", object{"module": m, "period": fmt.Sprintf("%d-%02d", year, month)})
			}
			for currency, rate := range map[string]string{"DKK": "0.134", "NOK": "0.0987", "SEK": "0.0911", "USD": "0.91", "GBP": "1.17"} {
				b.execute("module", "gl.set_exchange_rate", object{"from": currency, "to": "EUR", "date": fmt.Sprintf("%d-%02d-01", year, month), "rate": n(rate)})
			}
		}
	}
}
