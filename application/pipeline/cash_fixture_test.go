package pipeline_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
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
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

// cashModule is the smallest module that uses the whole pipeline: a cash box that may
// not be overdrawn, with withdrawals over 100 approved by a supervisor and paper
// slips that count once.
type cashModule struct{}

type cashBalance struct{ Balance int64 }

const cashPolicy = `package backbone.rules.cash
import rego.v1
submit := {"allow": allowed, "reason": "cashiers only"}
default allowed := false
allowed if "cashier" in input.actor.roles
default big := false
big if input.facts.amount > 100
decision := {"outcome": "needs_approval", "denials": [], "needs": [{"roles": ["supervisor"], "reason": "over 100", "rule_id": "cash.limit"}], "rules": [{"rule_id": "cash.limit", "rule_name": "limit", "result": "fired"}]} if big
decision := {"outcome": "deny", "denials": [{"code": "cash.closed", "kind": "failed_precondition", "detail": "the cash box is closed; open it first", "attributes": {"hours": "9-17"}}], "needs": [], "rules": [{"rule_id": "cash.closed", "rule_name": "opening hours", "result": "fired"}]} if { not big; input.facts.amount == 13 }
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": [{"rule_id": "cash.limit", "rule_name": "limit", "result": "condition_false"}]} if { not big; input.facts.amount != 13 }
`

func (cashModule) Name() string { return "cash" }

func (cashModule) Register(r *module.Registrar) error {
	r.Prefixes("cash")
	r.Policy(ports.PolicyModule{Path: "cash.rego", Source: cashPolicy})
	schema := json.RawMessage(`{"type":"object","required":["amount"],"additionalProperties":false,"properties":{"amount":{"type":"integer"},"slip":{"type":"string"}}}`)
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "cash.cash.moved", SchemaVersion: 1, Module: "cash", DataSchema: schema, RetentionClass: eventtype.Standard,
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "slip", Fields: []string{"slip"}, Normalise: eventtype.NormaliseDocumentNumber, Document: "slip"}},
	}})
	r.Fold(module.Fold{
		StreamType: "cash",
		New:        func() any { return &cashBalance{} },
		Clone:      func(s any) any { c := *s.(*cashBalance); return &c },
		Apply: func(s any, _ event.Recorded, data []byte) error {
			var d struct{ Amount int64 }
			err := json.Unmarshal(data, &d)
			s.(*cashBalance).Balance += d.Amount
			return err
		},
	})
	r.Intent(module.IntentType{
		Type: "cash.move_cash", Schema: schema, Emits: []string{"cash.cash.moved"}, Policy: "backbone.rules.cash",
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			var p struct {
				Amount int64  `json:"amount"`
				Slip   string `json:"slip,omitempty"`
			}
			if err := json.Unmarshal(in.Payload, &p); err != nil {
				return module.Plan{}, err
			}
			var kept json.RawMessage // a slip that names a person is not stored
			if name, personal := strings.CutPrefix(p.Slip, "by "); personal {
				if p.Slip, kept = "", json.RawMessage(`{"amount":1}`); name == "" {
					return module.Plan{Kept: kept}, fault.New(fault.Invalid, "cash.slip_invalid", "the slip has no name; correct it")
				}
			}
			box, err := module.Load[*cashBalance](ctx, s, event.StreamID{Type: "cash", ID: "main"})
			if err != nil {
				return module.Plan{}, err
			}
			if box.Balance+p.Amount < 0 {
				return module.Plan{}, fault.New(fault.FailedPrecondition, "cash.overdrawn", "there are %d in the cash box; take less", box.Balance)
			}
			return module.Plan{
				Events: []event.Draft{{Type: "cash.cash.moved", Stream: event.StreamID{Type: "cash", ID: "main"}, Data: p}},
				Facts:  map[string]any{"amount": max(p.Amount, -p.Amount)},
				Kept:   kept,
			}, nil
		},
		OnDuplicate: func(_ context.Context, _ module.Input, _ module.State, _ string, h fault.Holder) error {
			return fault.New(fault.Conflict, "cash.slip_used", "slip was used already; look at the holder").WithHolder(h)
		},
	})
	return nil
}

type ids struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

func (i *ids) NewID(at time.Time) event.ID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return ulid.MustNew(ulid.Timestamp(at), i.entropy)
}

func (i *ids) NewSalt() (s event.Salt) {
	_, _ = rand.Read(s[:])
	return s
}

type clock struct{}

func (clock) Now() time.Time { return time.Now() }

// cashFixture is a pipeline with cashModule over its own memory store.
type cashFixture struct {
	service  *pipeline.Service
	store    *memory.Database
	entity   ports.LegalEntity
	appender *hookedAppender
	log      strings.Builder // of the snapshots
}

// hookedAppender calls a hook between planning and appending, where a test acts as
// another node.
type hookedAppender struct {
	ports.EventAppender
	mu     sync.Mutex
	before func(ports.AppendRequest)
}

func (h *hookedAppender) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	h.mu.Lock()
	hook := h.before
	h.mu.Unlock()
	if hook != nil {
		hook(r)
	}
	return h.EventAppender.Append(ctx, r)
}

func newCashFixture(t *testing.T) *cashFixture {
	t.Helper()
	return newFixtureWith(t, cashModule{})
}

func newFixtureWith(t *testing.T, modules ...module.Module) *cashFixture {
	t.Helper()
	ctx := t.Context()
	store := memory.New(memory.Config{LogName: "cash.example.org"})
	entity, err := store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "USMF", Name: "US", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	catalog, err := module.Build(typestest.Schemas{}, append(slices.Clip(modules), pipeline.Module{})...)
	require.NoError(t, err)
	policies, err := opa.New(catalog.Policies, opa.WithTimeout(time.Minute)) // long enough for a busy machine
	require.NoError(t, err)
	types := registry.New(administration.NewEventTypes(store.Registry), typestest.Schemas{}, nil, catalog, clock{})
	require.NoError(t, types.RegisterBuiltIn(ctx))
	source := &ids{entropy: ulid.Monotonic(rand.Reader, 0)}
	b := &cashFixture{store: store, entity: entity, appender: &hookedAppender{EventAppender: store.Appender}}
	b.service, err = pipeline.New(pipeline.Config{
		Catalog: catalog, Policies: newSharedAnswers(t, policies),
		Preparer: eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: source, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}}),
		Appender: b.appender, Events: store.Events, Intents: store.Intents, Idempotency: store.Intents, Clock: clock{}, IDs: source,
		Retries: []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond},
		Cursors: query.NewCursorSealer([]byte("a key of this test")),
		Limits:  pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100},
	})
	require.NoError(t, err)
	return b
}

// secondNode makes another node over the same store, with its own cache.
func (b *cashFixture) secondNode(t *testing.T) *pipeline.Service {
	t.Helper()
	c := b.service.Config
	c.Appender = b.store.Appender
	return testkit.Must(pipeline.New(c))
}

func person(id string, roles ...string) pipeline.Caller {
	return pipeline.Caller{
		Principal: ports.Principal{TenantID: "acme", PersonID: id, PrincipalID: id + "-login", ActorType: event.Human, Roles: roles},
		Actor:     event.Actor{Type: event.Human, ID: id, Name: "cashier"},
	}
}

func (b *cashFixture) moveCash(payload string) pipeline.Request {
	return pipeline.Request{Type: "cash.move_cash", LegalEntity: b.entity, Payload: json.RawMessage(payload)}
}

func (b *cashFixture) balance(t *testing.T) int64 {
	t.Helper()
	events, err := b.store.Events.EventsOfStream(t.Context(), b.entity.Partition, event.StreamID{Type: "cash", ID: "main"}, 1, 1000)
	require.NoError(t, err)
	var sum int64
	for _, e := range events {
		body, err := e.Body()
		require.NoError(t, err)
		var d struct{ Amount int64 }
		require.NoError(t, json.Unmarshal(body.Data, &d))
		sum += d.Amount
	}
	return sum
}
