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

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/opa"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// club is a module whose intent holds personal data: it registers members, those who
// pay over 100 after approval. Some fees provoke what a careless module might do.
type club struct{}

const (
	feeTellsPolicy  = 66  // the facts hold the email
	feeTellsTrace   = 67  // the rule trace does
	feeTellsRefusal = -1  // the refusal does
	feeTellsBoard   = 166 // the refusal of an approval does
	feeBreaks       = -2  // an error that nobody foresaw does
	feeDenied       = 13
)

const clubPolicy = `package backbone.rules.club
import rego.v1
submit := {"allow": allowed, "reason": "clerks only"}
default allowed := false
allowed if "clerk" in input.actor.roles
default big := false
big if input.facts.fee > 100
decision := {"outcome": "needs_approval", "denials": [], "needs": [{"roles": ["board"], "reason": "over 100", "rule_id": "club.limit"}], "rules": []} if big
decision := {"outcome": "deny", "denials": [{"code": "club.full", "kind": "failed_precondition", "detail": "the club is full; ask later", "attributes": {}}], "needs": [], "rules": []} if { not big; input.facts.fee == 13 }
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []} if { not big; input.facts.fee != 13 }
`

type clubState struct{ Members []string } // emails as events hold them

type member struct {
	Member string          `json:"member"`
	Email  json.RawMessage `json:"email,omitempty"`
	Fee    int64           `json:"fee"`
}

func (club) Name() string { return "club" }

func (club) Register(r *module.Registrar) error {
	r.Prefixes("club")
	r.Policy(ports.PolicyModule{Path: "club.rego", Source: clubPolicy})
	schema := json.RawMessage(`{"type":"object","required":["member","fee"],"additionalProperties":false,"properties":{"fee":{"type":"integer"},"member":{"type":"string"},"email":{"type":"string"}}}`)
	fields := []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.member","type":"member"}`)}}
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "club.member.registered", SchemaVersion: 1, Module: "club", DataSchema: schema, PIIFields: fields,
	}})
	r.Fold(module.Fold{
		StreamType: "club",
		New:        func() any { return &clubState{} },
		Clone:      func(s any) any { return &clubState{append([]string{}, s.(*clubState).Members...)} },
		Apply: func(s any, _ event.Recorded, data []byte) error {
			var m member
			err := json.Unmarshal(data, &m)
			s.(*clubState).Members = append(s.(*clubState).Members, string(m.Email))
			return err
		},
	})
	r.Intent(module.IntentType{
		Type: "club.register_member", Schema: schema, PIIFields: fields, RetentionClass: eventtype.PIISubject,
		Emits: []string{"club.member.registered"}, Policy: "backbone.rules.club",
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			var m member
			if err := json.Unmarshal(in.Payload, &m); err != nil {
				return module.Plan{}, err
			}
			if _, _, err := module.Load[*clubState](ctx, s, "club", "main"); err != nil {
				return module.Plan{}, err
			}
			p := module.Plan{
				Events: []event.Draft{{Type: "club.member.registered", Stream: event.StreamID{Type: "club", ID: "main"}, Data: m}},
				Facts:  map[string]any{"fee": m.Fee},
			}
			switch m.Fee {
			case feeTellsPolicy:
				p.Facts = map[string]any{"fee": m.Fee, "of": []any{map[string]string{"mail": "to " + string(m.Email)}}}
			case feeTellsTrace:
				p.Rules = []event.RuleEvaluation{{RuleID: "r", RuleName: "welcomes " + string(m.Email), Result: event.RuleFired}}
			case feeTellsRefusal:
				return p, fault.New(fault.Invalid, "club.fee_negative", "%s pays nothing; correct the fee", m.Email).WithField("/fee")
			case feeBreaks:
				return p, fmt.Errorf("no desk for %s", m.Email)
			case feeTellsBoard:
				if len(in.Approvals) > 0 {
					return p, fault.New(fault.FailedPrecondition, "club.closed", "the club is closed; ask later").WithField("/fee").
						With("of", m.Email).WithViolations(fault.Violation{Code: "club.closed", Got: string(m.Email)}).WithNumbers(nil, string(m.Email))
				}
			}
			return p, nil
		},
	})
	return nil
}

// strongroom seals with one key, remembers who was erased, and fingerprints.
type strongroom struct {
	key shredding.Key

	mu     sync.Mutex
	seals  int
	opens  int
	forgot int
	fenced map[string]bool
	gone   map[string]bool
	away   error
}

func (s *strongroom) Seal(_ context.Context, r module.SealRequest) ([]byte, []event.SealedSubject, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seals++
	if s.away != nil {
		return nil, nil, s.away
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

func (s *strongroom) Forget(event.PartitionID, []event.SealedSubject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgot++
}

func (s *strongroom) Open(_ context.Context, documents []module.SealedDocument, r module.Reader) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens++
	if s.away != nil {
		return s.away
	}
	for i, d := range documents {
		out, err := shredding.OpenDocument(nil, d.Document, func(v shredding.Sealed) (shredding.Answer, error) {
			if s.gone[string(v.Subject)] {
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

func (s *strongroom) Fingerprint(_ context.Context, tenantID string, digest event.Hash) (event.Hash, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away != nil {
		return event.Hash{}, s.away
	}
	mac := hmac.New(sha256.New, []byte("secret of "+tenantID))
	mac.Write(digest[:])
	return event.Hash(mac.Sum(nil)), nil
}

func (s *strongroom) set(change func(*strongroom)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// watchedAppender looks at every byte that goes to the store for texts that must
// not.
type watchedAppender struct {
	ports.EventAppender
	forbids  []string
	mu       sync.Mutex
	seen     []ports.AppendRequest
	moved    int   // answers pii.key_moved so often
	fail     error // answers this to whatever holds sealed values
	searched int
	found    []string // where
	forgets  bool     // the store behind has no keys to ask for
}

func (w *watchedAppender) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	w.mu.Lock()
	w.scan(reflect.ValueOf(r), "")
	w.seen = append(w.seen, r)
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
	if w.forgets {
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

func (w *watchedAppender) scan(v reflect.Value, path string) {
	check := func(s string) {
		w.searched++
		for _, forbidden := range w.forbids {
			if strings.Contains(s, forbidden) {
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

// spellings are the ways in which a canary could slip through.
func spellings(s string) []string {
	var wide []byte
	for _, c := range []byte(s) {
		wide = append(wide, c, 0)
	}
	digest := sha256.Sum256([]byte(s))
	out := []string{
		s, strings.ToUpper(s), hex.EncodeToString([]byte(s)), strings.ReplaceAll(s, "@", `\u0040`), string(wide), string(digest[:]), hex.EncodeToString(digest[:]),
	}
	for skip := range 3 { // wherever it begins in what is encoded
		text := base64.RawStdEncoding.EncodeToString([]byte(s[skip:]))
		out = append(out, text[:len(text)/4*4-4])
	}
	return out
}

// clubhouse is a pipeline over a store of its own, with personal data.
type clubhouse struct {
	service *pipeline.Service
	append  *eventappend.Service
	store   *memory.Store
	entity  ports.LegalEntity
	watch   *watchedAppender
	room    *strongroom
}

func openClub(t *testing.T) *clubhouse {
	t.Helper()
	key, err := shredding.NewKey(shredding.KeyStandard, 1, bytes.Repeat([]byte{5}, shredding.DEKSize))
	require.NoError(t, err)
	room := &strongroom{key: key, fenced: map[string]bool{}, gone: map[string]bool{}}
	h := furnish(t, memory.New(memory.Config{LogName: "club.example.org"}), func(module.Manifests) keeper { return room })
	h.room, h.watch.forgets = room, true
	return h
}

// keeper is all that the pipeline needs of a vault.
type keeper interface {
	module.Sealer
	module.Opener
	module.Fingerprints
}

func furnish(t *testing.T, store *memory.Store, keep func(module.Manifests) keeper) *clubhouse {
	t.Helper()
	ctx := t.Context()
	entity, err := store.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "acme", Code: "USMF", Name: "US", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	catalog, err := module.Build(jsonschema.New(), club{})
	require.NoError(t, err)
	policies, err := opa.New(catalog.Policies, opa.WithTimeout("", time.Minute))
	require.NoError(t, err)
	types := registry.New(store, jsonschema.New(), catalog, clock{})
	require.NoError(t, types.RegisterBuiltIn(ctx))
	room := keep(types)
	source := &ids{entropy: ulid.Monotonic(rand.Reader, 0)}
	watch := &watchedAppender{EventAppender: store, forbids: spellings(canary)}
	preparer := eventappend.NewPreparer(types, source, eventappend.Limits{BatchEvents: 100, EventBytes: 1 << 20, EntityRefs: 128, Tags: 32}, eventappend.WithSealer(room))
	t.Cleanup(func() { require.Empty(t, watch.found, "in clear on its way to the store") })
	h := &clubhouse{store: store, entity: entity, watch: watch}
	h.append = eventappend.NewService(preparer, watch, store, store, clock{}, source, time.Hour, eventappend.WithFingerprints(room))
	h.service = pipeline.New(pipeline.Config{
		Catalog: catalog, Schemas: jsonschema.New(), Policies: policies, Preparer: preparer,
		Appender: watch, Events: store, Intents: store, Idempotency: store, Clock: clock{}, IDs: source,
		Retries: []time.Duration{time.Millisecond}, Sealer: room, Opener: room, Fingerprints: room,
	})
	return h
}

func (h *clubhouse) join(fee int) pipeline.Request {
	return pipeline.Request{
		Type: "club.register_member", LegalEntity: h.entity,
		Payload: json.RawMessage(fmt.Sprintf(`{"member": "M-1", "email" : %q, "fee":%d}`, canary, fee)),
	}
}

var (
	clerk = person("p-clerk", "clerk")
	board = person("p-board", "board")
)
