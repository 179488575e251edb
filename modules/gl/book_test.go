package gl_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
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
	appendpkg "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// now is the time of every test: a Friday in March.
var now = time.Date(2026, 3, 20, 10, 0, 0, 0, time.UTC)

// ids makes ULIDs at the clock's time.
type ids struct{}

func (ids) NewID(at time.Time) event.ID { return ulid.MustNew(ulid.Timestamp(at), rand.Reader) }

func (ids) NewSalt() (s event.Salt) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// ledgerFixture is a legal entity with its ledger behind the real pipeline, in memory.
type ledgerFixture struct {
	tb      testing.TB
	store   *memory.Database
	intake  *pipeline.Service
	append  *appendpkg.Service
	entity  ports.LegalEntity
	persons map[string]pipeline.Caller
}

// shared builds the catalog and compiles its policies once for all tests.
var shared = sync.OnceValues(func() (c struct {
	catalog  *module.Catalog
	policies *opa.Engine
}, err error) {
	if c.catalog, err = module.Build(typestest.Schemas{}, gl.New(), causingModule{}, pipeline.Module{}); err == nil {
		c.policies, err = moduletest.Policies(c.catalog)
	}
	return c, err
})

// newUnconfiguredLedger is a legal entity without any configuration.
func newUnconfiguredLedger(t testing.TB) *ledgerFixture {
	t.Helper()
	clock := testkit.NewClock(now)
	schemas := typestest.Schemas{}
	compiled, err := shared()
	require.NoError(t, err)
	catalog, policies := compiled.catalog, compiled.policies
	store := memory.New(memory.Config{Clock: clock, LogName: "test.example"})
	types := registry.New(administration.NewEventTypes(store.Registry), schemas, nil, catalog, clock)
	require.NoError(t, types.RegisterBuiltIn(t.Context()))
	entity, err := store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "demo", Code: "USMF", Name: "USMF", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	limits := configs.Default().Limits
	preparer := appendpkg.NewPreparer(appendpkg.PreparerConfig{Types: types, IDs: ids{}, Limits: appendpkg.Limits{
		BatchEvents: limits.BatchEvents, EventBytes: limits.EventBytes, EntityRefs: limits.EntityRefs, Tags: limits.Tags,
	}})
	b := &ledgerFixture{
		tb: t, store: store, entity: entity, persons: map[string]pipeline.Caller{},
		intake: testkit.Must(pipeline.New(pipeline.Config{
			Catalog: catalog, Policies: policies, Preparer: preparer, Appender: store.Appender,
			Events: store.Events, Intents: store.Intents, Idempotency: store.Intents, Clock: clock, IDs: ids{}, LegalEntities: store.Directory,
			Limits: pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100}, Retries: slices.Repeat([]time.Duration{time.Millisecond}, 50),
		})),
		append: appendpkg.NewService(appendpkg.Config{Preparer: preparer, Appender: store.Appender, Events: store.Events, Idempotency: store.Intents, Clock: clock, IDs: ids{}, KeyTTL: time.Hour}),
	}
	return b
}

// newLedger is a legal entity that keeps books in USD, with the second person off.
func newLedger(t testing.TB) *ledgerFixture {
	t.Helper()
	b := newUnconfiguredLedger(t)
	b.setUp(t)
	return b
}

// setUp keeps the legal entity's books in USD, with the second person off.
func (b *ledgerFixture) setUp(t testing.TB) {
	t.Helper()
	b.execute(t, "admin", "gl.configure_ledger", exampleConfigureLedger)
	for _, a := range exampleAccounts {
		b.execute(t, "gl_accountant", "gl.define_account", a)
	}
	for _, v := range exampleDimensionValues {
		b.execute(t, "gl_accountant", "gl.define_dimension_value", v)
	}
	b.execute(t, "controller", "gl.define_fiscal_year", exampleFiscalYear)
	for _, m := range []string{"gl", "ap"} {
		b.period(t, "open", m, "2026-03", "")
	}
	b.execute(t, "gl_accountant", "gl.set_exchange_rate", exampleRate)
}

// otherLedger is another legal entity of the tenant, with books like those of newLedger.
func (b *ledgerFixture) otherLedger(t testing.TB, code string) *ledgerFixture {
	t.Helper()
	entity, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "demo", Code: code, Name: code, TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	other := *b
	other.entity = entity
	other.setUp(t)
	return &other
}

// caller is the person who has a role; "role:2" is another one with the same role.
func (b *ledgerFixture) caller(role string) pipeline.Caller {
	if c, ok := b.persons[role]; ok {
		return c
	}
	name, _, _ := strings.Cut(role, ":")
	person := "person-" + role
	c := pipeline.Caller{
		Principal: ports.Principal{TenantID: "demo", PersonID: person, PrincipalID: person, ActorType: event.Human, Roles: []string{name}},
		Actor:     event.Actor{Type: event.Human, ID: person, Name: name},
	}
	b.persons[role] = c
	return c
}

func (b *ledgerFixture) submit(role, intentType, payload string) (pipeline.Outcome, error) {
	return b.submitOn(role, intentType, payload, nil)
}

// execute submits an intent that takes effect at once.
func (b *ledgerFixture) execute(t testing.TB, role, intentType, payload string) pipeline.Outcome {
	t.Helper()
	out, err := b.submit(role, intentType, payload)
	require.NoError(t, err, payload)
	require.Equal(t, intent.Executed, out.Status, payload)
	for _, e := range out.Events { // the process that the answer names has the intent's events
		stored, err := b.store.Events.EventByID(t.Context(), b.entity.Partition, e.ID)
		require.NoError(t, err)
		require.Equal(t, out.CorrelationID, stored.CorrelationID, "%s of %s", e.Type, intentType)
	}
	return out
}

// refuse submits an intent that is refused with the code, and makes no event.
func (b *ledgerFixture) refuse(t testing.TB, code, role, intentType, payload string) fault.Error {
	t.Helper()
	before, err := b.store.Events.Head(t.Context(), b.entity.Partition)
	require.NoError(t, err)
	_, err = b.submit(role, intentType, payload)
	require.Equal(t, code, fault.CodeOf(err), "%v", err)
	since, err2 := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, After: before.Sequence})
	require.NoError(t, err2)
	for _, e := range since {
		require.Equal(t, intent.Refused, e.Type, "a refused intent makes no event")
	}
	f, _ := fault.As(err)
	require.Equal(t, kindOf(code), f.Kind, code)
	return *f
}

// kindOf is the kind that follows from a code's wording.
func kindOf(code string) fault.Kind {
	ends := func(suffixes ...string) bool {
		for _, s := range suffixes {
			if strings.HasSuffix(code, s) {
				return true
			}
		}
		return false
	}
	switch {
	case ends(".not_found"):
		return fault.NotFound
	case ends(".duplicate") || strings.Contains(code, ".already_"):
		return fault.Conflict
	case ends(".over_limit", ".forbidden") || strings.HasPrefix(code, "sod."):
		return fault.Forbidden
	case strings.HasPrefix(code, "money.") || strings.HasPrefix(code, "text.") || strings.HasPrefix(code, "pii.") || strings.Contains(code, ".unbalanced") || ends("_mismatch", "_invalid"):
		return fault.Invalid
	default:
		return fault.FailedPrecondition
	}
}

// pend submits an intent that waits for approval.
func (b *ledgerFixture) pend(t testing.TB, role, intentType, payload string) pipeline.Outcome {
	t.Helper()
	out, err := b.submit(role, intentType, payload)
	require.NoError(t, err)
	require.Equal(t, intent.PendingApproval, out.Status)
	return out
}

func (b *ledgerFixture) approve(t testing.TB, role string, waiting pipeline.Outcome) (pipeline.Outcome, error) {
	t.Helper()
	out, err := b.intake.Approve(t.Context(), b.caller(role), pipeline.Decision{LegalEntity: b.entity, Intent: waiting.IntentID})
	problems.Check(t, err)
	return out, err
}

// period opens, closes ("soft", "hard") or reopens a period.
func (b *ledgerFixture) period(t testing.TB, step, moduleName, period, reason string) pipeline.Outcome {
	t.Helper()
	switch step {
	case "open":
		return b.execute(t, "controller", "gl.open_period", fmt.Sprintf(`{"module": %q, "period": %q}`, moduleName, period))
	case "reopen":
		return b.execute(t, "controller", "gl.reopen_period", fmt.Sprintf(`{"module": %q, "period": %q, "reason": %q}`, moduleName, period, reason))
	default:
		return b.execute(t, "controller", "gl.close_period", fmt.Sprintf(`{"module": %q, "period": %q, "level": %q}`, moduleName, period, step))
	}
}

// journal reads the journal that an intent posted.
func (b *ledgerFixture) journal(t testing.TB, out pipeline.Outcome) (event.Recorded, map[string]any) {
	t.Helper()
	require.NotEmpty(t, out.Events)
	e, err := b.store.Events.EventByID(t.Context(), b.entity.Partition, out.Events[0].ID)
	require.NoError(t, err)
	body, err := e.Body()
	require.NoError(t, err)
	var data map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(body.Data)))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&data))
	return e, data
}

// raw appends an event past the intents, as a migration does.
func (b *ledgerFixture) raw(eventType, streamType, data string, dimensions map[string]string) error {
	return b.rawOn(eventType, streamType, ids{}.NewID(now).String(), data, dimensions)
}

func (b *ledgerFixture) rawOn(eventType, streamType, streamID, data string, dimensions map[string]string) error {
	_, _, err := b.append.Append(context.Background(), appendpkg.Request{
		LegalEntity: b.entity, Actor: event.Actor{Type: event.Import, ID: "importer"}, PersonID: "importer",
		Drafts: []event.Draft{{
			Type: eventType, EffectiveDate: event.MustDate("2026-03-10"), Stream: event.StreamID{Type: streamType, ID: streamID},
			Data: json.RawMessage(data), Dimensions: dimensions,
		}},
	})
	problems.Check(b.tb, err)
	return err
}

// twoLines is a journal between account 6000 (debit) and 1000 (credit).
func twoLines(debit, credit, currency, date string) string {
	return fmt.Sprintf(`{"description": "Rent", "posting_date": %q, "currency": %q, "dimensions": {"department": "ENG"}, "lines": [
		{"account": "6000", "debit_credit": "debit", "amount": %s},
		{"account": "1000", "debit_credit": "credit", "amount": %s}]}`, date, currency, debit, credit)
}

// submitOn submits with an effective date.
func (b *ledgerFixture) submitOn(role, intentType, payload string, date *event.Date) (pipeline.Outcome, error) {
	out, err := b.intake.Submit(context.Background(), b.caller(role), pipeline.Request{
		Type: intentType, LegalEntity: b.entity, Payload: json.RawMessage(payload), EffectiveDate: date,
		Source: event.Source{System: "test", Channel: "api"},
	})
	problems.Check(b.tb, err)
	return out, err
}

func (b *ledgerFixture) mustApprove(t testing.TB, role string, waiting pipeline.Outcome) pipeline.Outcome {
	t.Helper()
	out, err := b.approve(t, role, waiting)
	require.NoError(t, err)
	return out
}

// noSchemas accepts every schema; for tests of folds and planners alone.
type noSchemas struct{}

func (noSchemas) Compile(json.RawMessage) (ports.Schema, error) { return nil, nil }
