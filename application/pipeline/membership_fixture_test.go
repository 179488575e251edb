package pipeline_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
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
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/typestest"
)

// membershipModule has an intent with personal data: it registers members; a fee over 100
// needs approval. Some fees make the module leak the member's email.
type membershipModule struct{}

const (
	feeLeaksToPolicy        = 66  // the facts contain the email
	feeLeaksToTrace         = 67  // the rule trace contains it
	feeLeaksInRefusal       = -1  // the refusal contains it
	feeLeaksToApprover      = 166 // the refusal of an approval contains it
	feeLeaksInInternalError = -2  // an internal error contains it
	feeDenied               = 13
)

const membershipPolicy = `package backbone.rules.membership
import rego.v1
submit := {"allow": allowed, "reason": "clerks only"}
default allowed := false
allowed if "clerk" in input.actor.roles
default big := false
big if input.facts.fee > 100
decision := {"outcome": "needs_approval", "denials": [], "needs": [{"roles": ["board"], "reason": "over 100", "rule_id": "membership.limit"}], "rules": []} if big
decision := {"outcome": "deny", "denials": [{"code": "membership.full", "kind": "failed_precondition", "detail": "the list is full; ask later", "attributes": {}}], "needs": [], "rules": []} if { not big; input.facts.fee == 13 }
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []} if { not big; input.facts.fee != 13 }
`

type memberList struct{ Members []string } // emails as events hold them

type member struct {
	Member string          `json:"member"`
	Email  json.RawMessage `json:"email,omitempty"`
	Fee    int64           `json:"fee"`
}

func (membershipModule) Name() string { return "membership" }

func (membershipModule) Register(r *module.Registrar) error {
	r.Prefixes("membership")
	r.Policy(ports.PolicyModule{Path: "membership.rego", Source: membershipPolicy})
	schema := json.RawMessage(`{"type":"object","required":["member","fee"],"additionalProperties":false,"properties":{"fee":{"type":"integer"},"member":{"type":"string"},"email":{"type":"string"}}}`)
	fields := []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.member","type":"member"}`)}}
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "membership.member.registered", SchemaVersion: 1, Module: "membership", DataSchema: schema, PIIFields: fields,
	}})
	r.Fold(module.Fold{
		StreamType: "membership",
		New:        func() any { return &memberList{} },
		Clone:      func(s any) any { return &memberList{append([]string{}, s.(*memberList).Members...)} },
		Apply: func(s any, _ event.Recorded, data []byte) error {
			var m member
			err := json.Unmarshal(data, &m)
			s.(*memberList).Members = append(s.(*memberList).Members, string(m.Email))
			return err
		},
	})
	r.Intent(module.IntentType{
		Type: "membership.register_member", Schema: schema, PIIFields: fields, RetentionClass: eventtype.PIISubject,
		Emits: []string{"membership.member.registered"}, Policy: "backbone.rules.membership",
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			var m member
			if err := json.Unmarshal(in.Payload, &m); err != nil {
				return module.Plan{}, err
			}
			if _, err := module.Load[*memberList](ctx, s, event.StreamID{Type: "membership", ID: "main"}); err != nil {
				return module.Plan{}, err
			}
			p := module.Plan{
				Events: []event.Draft{{Type: "membership.member.registered", Stream: event.StreamID{Type: "membership", ID: "main"}, Data: m}},
				Facts:  map[string]any{"fee": m.Fee},
			}
			switch m.Fee {
			case feeLeaksToPolicy:
				p.Facts = map[string]any{"fee": m.Fee, "of": []any{map[string]string{"mail": "to " + string(m.Email)}}}
			case feeLeaksToTrace:
				p.Rules = []event.RuleEvaluation{{RuleID: "r", RuleName: "welcomes " + string(m.Email), Result: event.RuleFired}}
			case feeLeaksInRefusal:
				return p, fault.New(fault.Invalid, "membership.fee_negative", "%s pays nothing; correct the fee", m.Email).WithField("/fee")
			case feeLeaksInInternalError:
				return p, fmt.Errorf("no desk for %s", m.Email)
			case feeLeaksToApprover:
				if len(in.Approvals) > 0 {
					return p, fault.New(fault.FailedPrecondition, "membership.closed", "the list is closed; ask later").WithField("/fee").
						With("of", m.Email).WithViolations(fault.Violation{Code: "membership.closed", Got: string(m.Email)}).WithNumbers(nil, string(m.Email))
				}
			}
			return p, nil
		},
	})
	registerReaders(r)
	return nil
}

// registerReaders declares two intents that read the first member's email. Only
// membership.read_email declares that it does. use says what becomes of the value.
func registerReaders(r *module.Registrar) {
	for name, opens := range map[string][]shredding.Class{"membership.read_email": {shredding.Identity, shredding.Contact}, "membership.peek_email": {shredding.Identity}} {
		r.Intent(module.IntentType{
			Type: name, Opens: opens, Schema: json.RawMessage(`{"type":"object","required":["use"],"additionalProperties":false,"properties":{"use":{"type":"string"},"label":{"type":"string"}}}`),
			Emits: []string{"membership.member.registered"}, Policy: "backbone.rules.membership", Plan: planReadEmail,
		})
	}
}

func planReadEmail(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var input struct{ Use, Label string }
	if err := json.Unmarshal(in.Payload, &input); err != nil {
		return module.Plan{}, err
	}
	main := event.StreamID{Type: "membership", ID: "main"}
	list, err := module.Load[*memberList](ctx, s, main)
	if err != nil {
		return module.Plan{}, err
	}
	opened, err := s.Open(ctx, json.RawMessage(list.Members[0]))
	if err != nil {
		return module.Plan{}, err
	}
	var email string
	if err := json.Unmarshal(opened, &email); err != nil {
		return module.Plan{}, err
	}
	next := member{Member: "M-2", Fee: int64(len(email))}
	p := module.Plan{Facts: map[string]any{"fee": 5}}
	var tags []string
	switch input.Use {
	case "seal":
		next.Email = opened
	case "store":
		next.Member = "M-" + email
	case "tag":
		tags = []string{"of:" + email}
	case "label":
		next.Member = input.Label
	case "facts":
		p.Facts = map[string]any{"fee": 5, "mail": email}
	case "refuse":
		return p, fault.New(fault.FailedPrecondition, "membership.closed", "%s is a member; ask later", email)
	}
	p.Events = []event.Draft{{Type: "membership.member.registered", Stream: main, Data: next, Tags: tags}}
	return p, nil
}

// fakeVault seals with one key, refuses fenced subjects, opens no values of destroyed
// subjects, and keys fingerprints.
type fakeVault struct {
	key shredding.Key

	mu          sync.Mutex
	seals       int
	opens       int
	forgets     int
	fenced      map[string]bool
	destroyed   map[string]bool
	unavailable error
}

func (s *fakeVault) Seal(_ context.Context, r module.SealRequest) ([]byte, []event.SealedSubject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seals++
	if s.unavailable != nil {
		return nil, nil, s.unavailable
	}
	key := s.key
	key.Class = r.Class
	var used []event.SealedSubject
	out, err := shredding.SealDocument(nil, r.Document, r.Fields, func(f shredding.Field, value []byte) (shredding.Envelope, error) {
		if s.fenced[string(f.Subject)] {
			return nil, shredding.Erased(f.Pointer)
		}
		used = append(used, event.SealedSubject{Subject: string(f.Subject), KeyClass: uint8(r.Class), KeyVersion: key.Version, Pointers: []string{f.Pointer}})
		at := r.At
		at.Pointer = f.Pointer
		return shredding.Seal(key, at, f.Subject, value)
	})
	return out, used, err
}

func (s *fakeVault) Forget(event.PartitionID, []event.SealedSubject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets++
}

func (s *fakeVault) Open(_ context.Context, documents []module.SealedDocument, r module.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens++
	if s.unavailable != nil {
		return s.unavailable
	}
	for i, d := range documents {
		out, err := shredding.OpenDocument(nil, d.Document, func(v shredding.Sealed) (shredding.Answer, error) {
			if s.destroyed[string(v.Subject)] {
				return shredding.Destroyed(), nil
			}
			h, err := v.Envelope.Header()
			if err != nil {
				return shredding.Answer{}, err
			}
			key := s.key
			key.Class = h.Class
			at := d.At
			at.Pointer = v.Pointer
			plain, err := shredding.Open(key, at, v.Subject, v.Envelope)
			return shredding.Clear(plain), err
		})
		if err != nil {
			return err
		}
		documents[i].Document = out
	}
	return nil
}

func (s *fakeVault) Fingerprint(_ context.Context, tenantID string, digest event.Hash) (event.Hash, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unavailable != nil {
		return event.Hash{}, s.unavailable
	}
	mac := hmac.New(sha256.New, []byte("secret of "+tenantID))
	mac.Write(digest[:])
	return event.Hash(mac.Sum(nil)), nil
}

func (s *fakeVault) set(change func(*fakeVault)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// scanningAppender searches everything that is sent to the store for forbidden texts.
type scanningAppender struct {
	ports.EventAppender
	forbidden   []string
	mu          sync.Mutex
	requests    []ports.AppendRequest
	moved       int   // number of pii.key_moved answers to give first
	fail        error // the answer to requests with sealed values
	searched    int
	found       []string // paths of forbidden texts
	stripSealed bool     // the store has no key store, so sealed subjects are removed
}

func (w *scanningAppender) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	w.mu.Lock()
	w.scan(reflect.ValueOf(r), "")
	w.requests = append(w.requests, r)
	holds := r.Intent != nil && len(r.Intent.Sealed) > 0
	for _, e := range r.Events {
		holds = holds || len(e.Sealed) > 0
	}
	err := w.fail
	if holds && w.moved > 0 {
		w.moved--
		err = fault.New(fault.Conflict, shredding.CodeKeyMoved, "seal again")
	}
	w.mu.Unlock()
	if holds && err != nil {
		return ports.AppendResult{}, err
	}
	if w.stripSealed {
		events := make([]event.Prepared, len(r.Events))
		for i, e := range r.Events {
			e.Sealed = nil
			events[i] = e
		}
		r.Events = events
		if r.Intent != nil {
			write := *r.Intent
			write.Sealed = nil
			r.Intent = &write
		}
	}
	return w.EventAppender.Append(ctx, r)
}

func (w *scanningAppender) scan(v reflect.Value, path string) {
	check := func(s string) {
		w.searched++
		for _, text := range w.forbidden {
			if strings.Contains(s, text) {
				w.found = append(w.found, path)
			}
		}
	}
	switch v.Kind() {
	case reflect.String:
		check(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			w.scan(v.Elem(), path)
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			var b []byte
			for i := range v.Len() {
				b = append(b, byte(v.Index(i).Uint()))
			}
			check(string(b))
			return
		}
		for i := range v.Len() {
			w.scan(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			w.scan(k, path+".key")
			w.scan(v.MapIndex(k), path+"."+k.String())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			w.scan(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
}

const canary = "ada.canary@personal.example"

// encodingsOf lists the encodings and digests in which a canary could reach the store.
func encodingsOf(s string) []string {
	var wide []byte
	for _, c := range []byte(s) {
		wide = append(wide, c, 0)
	}
	digest := sha256.Sum256([]byte(s))
	out := []string{
		s, strings.ToUpper(s), hex.EncodeToString([]byte(s)), strings.ReplaceAll(s, "@", `\u0040`), string(wide), string(digest[:]), hex.EncodeToString(digest[:]),
	}
	for skip := range 3 { // base64 at each alignment
		text := base64.RawStdEncoding.EncodeToString([]byte(s[skip:]))
		out = append(out, text[:len(text)/4*4-4])
	}
	return out
}

// membershipFixture is a pipeline with membershipModule over its own memory store.
type membershipFixture struct {
	service  *pipeline.Service
	append   *eventappend.Service
	store    *memory.Database
	entity   ports.LegalEntity
	appender *scanningAppender
	vault    *fakeVault
}

func newMembershipFixture(t *testing.T) *membershipFixture {
	t.Helper()
	key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{5}, shredding.DEKSize))
	require.NoError(t, err)
	room := &fakeVault{key: key, fenced: map[string]bool{}, destroyed: map[string]bool{}}
	h := newMembershipFixtureOn(t, memory.New(memory.Config{LogName: "membership.example.org"}), func(module.Manifests) vaultPort { return room })
	h.vault, h.appender.stripSealed = room, true
	return h
}

// vaultPort joins the ports that the pipeline needs of a vault.
type vaultPort interface {
	module.Sealer
	module.Opener
	module.Fingerprints
}

func newMembershipFixtureOn(t *testing.T, store *memory.Database, newVault func(module.Manifests) vaultPort) *membershipFixture {
	t.Helper()
	ctx := t.Context()
	entity, err := store.Directory.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "USMF", Name: "US", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	catalog, err := module.Build(typestest.Schemas{}, membershipModule{}, pipeline.Module{})
	require.NoError(t, err)
	policies, err := opa.New(catalog.Policies, opa.WithTimeout(time.Minute))
	require.NoError(t, err)
	types := registry.New(administration.NewEventTypes(store.Registry), typestest.Schemas{}, nil, catalog, clock{})
	require.NoError(t, types.RegisterBuiltIn(ctx))
	vault := newVault(types)
	source := &ids{entropy: ulid.Monotonic(rand.Reader, 0)}
	scanner := &scanningAppender{EventAppender: store.Appender, forbidden: encodingsOf(canary)}
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: types, IDs: source, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}, Sealer: vault})
	t.Cleanup(func() { require.Empty(t, scanner.found, "personal data was sent to the store in clear") })
	h := &membershipFixture{store: store, entity: entity, appender: scanner}
	h.append = eventappend.NewService(eventappend.Config{Preparer: preparer, Appender: scanner, Events: store.Events, Idempotency: store.Intents, Clock: clock{}, IDs: source, KeyTTL: time.Hour, Fingerprints: vault})
	h.service, err = pipeline.New(pipeline.Config{
		Catalog: catalog, Policies: policies, Preparer: preparer,
		Appender: scanner, Events: store.Events, Intents: store.Intents, Idempotency: store.Intents, Clock: clock{}, IDs: source,
		Retries: []time.Duration{time.Millisecond}, Sealer: vault, Opener: vault, Fingerprints: vault,
		Limits: pipeline.Limits{KeyTTL: time.Hour, CachedStreams: 1000, SnapshotEvery: 100},
	})
	require.NoError(t, err)
	return h
}

func (h *membershipFixture) registerMember(fee int) pipeline.Request {
	return pipeline.Request{
		Type: "membership.register_member", LegalEntity: h.entity,
		Payload: json.RawMessage(fmt.Sprintf(`{"member": "M-1", "email" : %q, "fee":%d}`, canary, fee)),
	}
}

var (
	clerk = person("p-clerk", "clerk")
	board = person("p-board", "board")
)
