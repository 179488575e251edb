package erasure_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/system"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

func hash(b []byte) event.Hash { return sha256.Sum256(b) }

// staff is a module with personal data in two retention classes.
type staff struct{}

func (staff) Name() string { return "hr" }

func (staff) Register(r *module.Registrar) error {
	r.Prefixes("hr")
	person := json.RawMessage(`{"path":"$.employee","type":"employee"}`)
	schema := json.RawMessage(`{"type":"object","additionalProperties":false,"required":["employee"],"properties":{"employee":{"type":"string"},"email":{"type":"string"},"phone":{"type":"string"}}}`)
	for name, class := range map[string]eventtype.RetentionClass{"hr.employee.contacted": eventtype.Standard, "hr.employee.paid": eventtype.Regulatory} {
		t := eventtype.Registration{
			Type: name, SchemaVersion: 1, Module: "hr", DataSchema: schema, RetentionClass: class,
			PIIFields: []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: person}, {Path: "$.phone", Class: "contact", Subject: person}},
		}
		if class == eventtype.Regulatory {
			t.MinRetentionYears = 10
		}
		if class == eventtype.Standard {
			// What an earlier version had to be kept for says nothing about this one.
			earlier := t
			earlier.RetentionClass, earlier.MinRetentionYears = eventtype.Regulatory, 10
			r.EventType(module.EventType{Registration: earlier})
			t.SchemaVersion = 2
		}
		r.EventType(module.EventType{Registration: t})
	}
	return nil
}

// rig is an installation with two legal entities.
type rig struct {
	clock    *testkit.Clock
	store    *memory.Database
	register *memory.KeyStore
	types    *registry.Registry
	vault    *vault.Vault // of the node that appends
	exports  *exports
	copies   *copies
	kms      *kms
	notes    *signednote.Signer
	log      *eventappend.Service
	gate     *erasure.Gate
	opener   *opener
	observer *observer
	ids      *system.IDs
	reached  func(event.Sequence) event.Sequence // what a projection says it has read of a head
	de, us   ports.LegalEntity
	vkey     string
	config   erasure.Config
	service  *erasure.Service
}

var start = time.Date(2026, 3, 31, 10, 0, 0, 0, time.UTC)

func setup(t testing.TB) *rig {
	t.Helper()
	b := &rig{
		clock: testkit.NewClock(start), ids: system.NewIDs(), exports: &exports{documents: map[string][]byte{}},
		copies: &copies{rows: map[event.PartitionID]map[shredding.Subject]int64{}, regulated: map[event.PartitionID]map[shredding.Subject]int64{}}, observer: &observer{},
		reached: func(head event.Sequence) event.Sequence { return head },
	}
	b.register = memory.NewKeyStore()
	b.register.SetClock(b.clock)
	require.NoError(t, b.register.Rotation().AddKEK(t.Context(), ports.KEK{TenantID: "acme", Epoch: 1, KeyID: "kek-1"}))
	require.NoError(t, b.register.Rotation().ActivateKEK(t.Context(), "acme", 1))
	b.store = memory.New(memory.Config{LogName: "hr.example.org", Clock: b.clock, Keys: b.register})
	var err error
	b.de, err = b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "DEMF", TimeZone: "Europe/Berlin"})
	require.NoError(t, err)
	b.us, err = b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF", TimeZone: "America/New_York"})
	require.NoError(t, err)
	catalog, err := module.Build(jsonschema.New(), erasure.Module{}, staff{})
	require.NoError(t, err)
	b.types = registry.New(b.store.Registry, jsonschema.New(), nil, catalog, b.clock)
	require.NoError(t, b.types.RegisterBuiltIn(t.Context()))
	dataKeys := memory.NewDataKeys()
	b.vault = vault.New(vault.Config{Keys: b.register, DataKeys: dataKeys, Manifests: b.types, Clock: b.clock})
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: b.types, IDs: b.ids, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 65536, EntityRefs: 4, Tags: 3}, Sealer: b.vault})
	b.log = eventappend.NewService(eventappend.Config{Preparer: preparer, Appender: b.store.Appender, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour})

	b.kms = newKMS(1)
	b.notes, err = signednote.NewSigner("receipts.example.org", "receipts", b.kms)
	require.NoError(t, err)
	b.vkey, err = b.notes.VerifierKey(t.Context())
	require.NoError(t, err)
	b.gate = testkit.Must(erasure.NewGate(erasure.GateConfig{Exports: b.exports, Receipts: b.register.Erasures(), Clock: b.clock, Interval: time.Minute}))
	// Another node verifies, whose memory is empty: none here listens for evictions.
	b.opener = &opener{Opener: vault.New(vault.Config{Keys: b.register, DataKeys: dataKeys, Manifests: b.types, Clock: b.clock})}
	b.config = erasure.Config{
		Register: b.register.Erasures(), Records: b.store.PersonalRecords, Intents: b.store.Intents, Streams: b.store.Events, LegalEntities: b.store.Directory, Types: b.store.Registry,
		Copies: b.copies, Announcer: announcer{b.log}, Opener: b.opener, Chains: chains{b.store}, Notes: b.notes, Exports: b.exports, Gate: b.gate,
		Clock: b.clock, IDs: b.ids, Observer: b.observer, Logger: slog.New(slog.DiscardHandler), Poll: 10 * time.Millisecond, KeyDeletion: 7 * 24 * time.Hour,
	}
	b.copies.rig = b
	b.service = testkit.Must(erasure.NewService(b.config, nil))
	return b
}

// hire appends events about a person to a legal entity, and copies of them.
func (b *rig) hire(t testing.TB, le ports.LegalEntity, eventType, employee string, n int) {
	t.Helper()
	for i := range n {
		_, _, err := b.log.Append(t.Context(), eventappend.Request{
			LegalEntity: le, Actor: event.Actor{Type: event.System, ID: "hr", Name: "hr"}, PersonID: "hr",
			Drafts: []event.Draft{{
				Type: eventType, Stream: event.StreamID{Type: "employee", ID: employee},
				Data: json.RawMessage(fmt.Sprintf(`{"employee":%q,"email":"mail%d@example.org","phone":"+49 30 %06d"}`, employee, i, i)),
			}},
		})
		require.NoError(t, err)
		b.copies.add(le.Partition, shredding.Subject("employee:"+employee))
		if eventType == paid {
			b.copies.keep(le.Partition, shredding.Subject("employee:"+employee))
		}
	}
}

const (
	contacted = "hr.employee.contacted"
	paid      = "hr.employee.paid"
	subject   = "employee:E-1"
)

func person(id string) ports.Principal {
	return ports.Principal{TenantID: "acme", PersonID: id, PrincipalID: id + "/web", ActorType: event.Human, Roles: []string{"compliance"}}
}

var (
	officer  = person("p-officer")
	approver = person("p-approver")
)

func request(change ...func(*erasure.NewRequest)) erasure.NewRequest {
	n := erasure.NewRequest{Subject: subject, Basis: "gdpr_art_17", Reason: "asked by letter of 1 March"}
	for _, c := range change {
		c(&n)
	}
	return n
}

func (b *rig) requested(t testing.TB, change ...func(*erasure.NewRequest)) erasure.Status {
	t.Helper()
	s, err := b.service.Request(t.Context(), officer, request(change...))
	require.NoError(t, err)
	return s
}

func (b *rig) approved(t testing.TB, change ...func(*erasure.NewRequest)) erasure.Status {
	t.Helper()
	s, err := b.service.Approve(t.Context(), approver, b.requested(t, change...).ID, "")
	require.NoError(t, err)
	return s
}

// work lets a new worker, as after a restart, do what it can at once.
func (b *rig) work(t testing.TB) {
	t.Helper()
	testkit.Must(erasure.NewWorker(b.config)).RunOnce(t.Context())
}

func (b *rig) get(t testing.TB, id event.ID) erasure.Status {
	t.Helper()
	s, err := b.service.Get(t.Context(), officer, id)
	require.NoError(t, err)
	return s
}

func (b *rig) raw(t testing.TB, id event.ID) ports.ErasureRequest {
	t.Helper()
	r, err := b.register.Erasures().Erasure(t.Context(), "acme", id)
	require.NoError(t, err)
	return r
}

// announcements reads the events that tell of erasures.
func (b *rig) announcements(t testing.TB, le ports.LegalEntity) []event.Recorded {
	t.Helper()
	found, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: le.Partition, Types: []string{erasure.SubjectErased}, Limit: 100})
	require.NoError(t, err)
	return found
}

// certificate reads the certificate and checks it as anybody can.
func (b *rig) certificate(t testing.TB, id event.ID) (erasure.Certificate, []byte) {
	t.Helper()
	document, err := b.service.Certificate(t.Context(), officer, id)
	require.NoError(t, err)
	c, err := erasure.VerifyCertificate(document, signednote.Opener{}, b.vkey)
	require.NoError(t, err)
	return c, document
}

// opener opens as a node does, a broken one when it is alive.
type opener struct {
	module.Opener
	alive bool
}

func (o *opener) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	if err := o.Opener.Open(ctx, documents, r); err != nil || !o.alive {
		return err
	}
	for i := range documents {
		documents[i].Document = []byte(`["still there"]`)
	}
	return nil
}

type announcer struct{ log *eventappend.Service }

func (a announcer) Announce(ctx context.Context, n erasure.Announcement) error {
	_, _, err := a.log.Append(ctx, eventappend.Request{
		LegalEntity: n.LegalEntity, Actor: event.Actor{Type: event.System, ID: "backbone", Name: "erasure"}, PersonID: "backbone",
		Drafts: []event.Draft{n.Draft}, IdempotencyKey: n.IdempotencyKey, Fingerprint: n.Fingerprint,
	})
	return err
}

// chains computes every checksum again.
type chains struct{ store *memory.Database }

func (c chains) VerifyChain(ctx context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
	events, err := c.store.Audit.ChainPage(ctx, le.Partition, 0, 100_000)
	v := erasure.ChainVerdict{LegalEntity: le.Code, Events: uint64(len(events))}
	previous := event.GenesisChecksum("hr.example.org", le.Partition)
	for i := range events {
		e := &events[i]
		sum, _ := e.ChainChecksum(previous, nil)
		if sum != e.Checksum || event.HashPayload(e.Salt, e.Payload) != e.PayloadHash {
			v.Findings++
		}
		previous, v.Head, v.Checksum = sum, e.Sequence, fmt.Sprintf("%x", sum[:])
	}
	return v, err
}

// copies is a read model with copies, a row for each event.
type copies struct {
	*rig
	mu        sync.Mutex
	rows      map[event.PartitionID]map[shredding.Subject]int64
	regulated map[event.PartitionID]map[shredding.Subject]int64 // of the rows, those of the regulatory class
}

func (c *copies) add(p event.PartitionID, s shredding.Subject)  { c.count(c.rows, p, s) }
func (c *copies) keep(p event.PartitionID, s shredding.Subject) { c.count(c.regulated, p, s) }

func (c *copies) count(rows map[event.PartitionID]map[shredding.Subject]int64, p event.PartitionID, s shredding.Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rows[p] == nil {
		rows[p] = map[shredding.Subject]int64{}
	}
	rows[p][s]++
}

func (c *copies) HoldersOfCopies() []string { return []string{"hr_people"} }

// Forget makes rows as a fold of the events as readers are shown them would.
func (c *copies) Forget(ctx context.Context, name string, p event.PartitionID, s shredding.Subject, passed event.Sequence) error {
	head, err := c.store.Events.Head(ctx, p)
	if err != nil {
		return err
	}
	if c.reached(head.Sequence) < passed {
		return projection.TargetBehind(name, 1)
	}
	keys, err := c.register.SubjectKeys(ctx, []ports.SubjectKeyID{
		{Partition: p, Subject: s, Class: shredding.KeyStandard}, {Partition: p, Subject: s, Class: shredding.KeyRegulatory},
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	regulated := c.regulated[p][s]
	left := c.rows[p][s] - regulated
	if keys[0].State == shredding.KeyDestroyed {
		left = 0
	}
	if keys[1].State == shredding.KeyDestroyed {
		regulated = 0
		delete(c.regulated[p], s)
	}
	if left += regulated; left > 0 {
		c.rows[p][s] = left
	} else {
		delete(c.rows[p], s)
	}
	return nil
}

func (c *copies) CountCopies(_ context.Context, _ string, p event.PartitionID, s shredding.Subject) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[p][s], nil
}

// exports is an export store in memory.
type exports struct {
	mu        sync.Mutex
	documents map[string][]byte
	away      bool
}

func (e *exports) lock() (func(), error) {
	e.mu.Lock()
	if e.away {
		e.mu.Unlock()
		return nil, fault.New(fault.Unavailable, "export.unavailable", "not mounted")
	}
	return e.mu.Unlock, nil
}

func (e *exports) PutIfAbsent(_ context.Context, name string, content []byte) error {
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if stands, taken := e.documents[name]; taken && string(stands) != string(content) {
		return fault.New(fault.Conflict, "export.name_taken", "taken")
	}
	e.documents[name] = slices.Clone(content)
	return nil
}

func (e *exports) Get(_ context.Context, name string) ([]byte, error) {
	unlock, err := e.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	content, found := e.documents[name]
	if !found {
		return nil, fault.New(fault.NotFound, "export.not_found", "no such document")
	}
	return slices.Clone(content), nil
}

func (e *exports) List(_ context.Context, prefix string) ([]string, error) {
	unlock, err := e.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	var out []string
	for name := range e.documents {
		if len(name) >= len(prefix) && name[:len(prefix)] == prefix {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (e *exports) Delete(_ context.Context, name string) error {
	delete(e.documents, name)
	return nil
}

// kms signs as the key service does.
type kms struct{ key ed25519.PrivateKey }

func newKMS(seed byte) *kms {
	return &kms{key: ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize))}
}

func (k *kms) Sign(_ context.Context, _ string, message []byte) ([]byte, error) {
	if len(message) == 0 || len(message) > ports.MaximumSignedMessage {
		return nil, fault.New(fault.Invalid, "kms.request_invalid", "too long")
	}
	return ed25519.Sign(k.key, message), nil
}

func (k *kms) PublicKey(context.Context, string) (ed25519.PublicKey, error) {
	return k.key.Public().(ed25519.PublicKey), nil
}

// observer remembers failures.
type observer struct {
	mu       sync.Mutex
	failures []string
	open     map[string]int
}

func (o *observer) ErasureFailed(state string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = append(o.failures, state)
}

func (o *observer) ErasureRequests(byState map[string]int, _ time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.open = byState
}
