package erasure_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
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
	"github.com/erpbackbone/backbone/test/typestest"
)

func sha256Of(b []byte) event.Hash { return sha256.Sum256(b) }

// hrModule is a module with personal data in two retention classes.
type hrModule struct{}

func (hrModule) Name() string { return "hr" }

func (hrModule) Register(r *module.Registrar) error {
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
			// The retention of an earlier version does not apply to this one.
			earlier := t
			earlier.RetentionClass, earlier.MinRetentionYears = eventtype.Regulatory, 10
			r.EventType(module.EventType{Registration: earlier})
			t.SchemaVersion = 2
		}
		r.EventType(module.EventType{Registration: t})
	}
	return nil
}

// erasureFixture is an installation with two legal entities.
type erasureFixture struct {
	clock              *testkit.Clock
	store              *memory.Database
	register           *memory.KeyStore
	types              *registry.Registry
	vault              *vault.Vault // of the node that appends
	exports            *exportStore
	copies             *readModel
	kms                *testkit.SigningKey
	notes              *signednote.Signer
	log                *eventappend.Service
	gate               *erasure.Gate
	dataKeys           ports.DataKeys
	opener             *opener
	observer           *failureRecorder
	ids                *system.IDs
	projectionPosition func(head event.Sequence) event.Sequence // up to which the read model has read
	de, us             ports.LegalEntity
	verifierKey        string
	config             erasure.Config
	service            *erasure.Service
	journal            *administration.Log
}

// hrCatalog is the same for all fixtures: building it takes longer than most of their work.
var hrCatalog = sync.OnceValues(func() (*module.Catalog, error) {
	return module.Build(typestest.Schemas{}, administration.Module{}, erasure.Module{}, hrModule{})
})

var start = time.Date(2026, 3, 31, 10, 0, 0, 0, time.UTC)

func newErasureFixture(t testing.TB) *erasureFixture {
	t.Helper()
	return newErasureFixtureAt(t, testkit.NewClock(start))
}

func newErasureFixtureAt(t testing.TB, clock *testkit.Clock) *erasureFixture {
	t.Helper()
	b := &erasureFixture{
		clock: clock, ids: system.NewIDs(), exports: &exportStore{documents: map[string][]byte{}},
		copies: &readModel{rows: map[event.PartitionID]map[shredding.Subject]int64{}, regulatory: map[event.PartitionID]map[shredding.Subject]int64{}}, observer: &failureRecorder{},
		projectionPosition: func(head event.Sequence) event.Sequence { return head },
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
	catalog, err := hrCatalog()
	require.NoError(t, err)
	b.types = registry.New(administration.NewEventTypes(b.store.Registry), typestest.Schemas{}, nil, catalog, b.clock)
	require.NoError(t, b.types.RegisterBuiltIn(t.Context()))
	b.dataKeys = memory.NewDataKeys()
	vaultConfig := vault.Config{
		Keys: b.register, DataKeys: b.dataKeys, Manifests: b.types, Clock: b.clock,
		Limits: vault.Limits{Entries: 1000, Life: time.Minute, Poll: 5 * time.Second, MaxCalls: 64, MaxCallWait: 5 * time.Second},
	}
	b.vault, err = vault.New(vaultConfig)
	require.NoError(t, err)
	preparer := eventappend.NewPreparer(eventappend.PreparerConfig{Types: b.types, IDs: b.ids, Limits: eventappend.Limits{BatchEvents: 100, EventBytes: 65536, EntityRefs: 4, Tags: 3}, Sealer: b.vault})
	b.log = eventappend.NewService(eventappend.Config{Preparer: preparer, Appender: b.store.Appender, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour})

	key := testkit.NewSigningKey(1)
	b.kms = &key
	b.notes, err = signednote.NewSigner("receipts.example.org", "receipts", b.kms)
	require.NoError(t, err)
	b.verifierKey, err = b.notes.VerifierKey(t.Context())
	require.NoError(t, err)
	b.gate = b.newGate(b.register.Erasures())
	// Verification uses the vault of another node, whose cache is empty: no vault of the
	// fixture listens for evictions.
	b.opener = &opener{Opener: testkit.Must(vault.New(vaultConfig))}
	b.journal = b.newJournal()
	require.NoError(t, b.journal.BeginAll(t.Context()))
	b.config = erasure.Config{
		Journal: b.journal, Register: b.register.Erasures(), Records: b.store.PersonalRecords, Intents: b.store.Intents, Streams: b.store.Events, LegalEntities: b.store.Directory, Types: administration.NewEventTypes(b.store.Registry),
		Copies: b.copies, Announcer: announcer{b.log}, Opener: b.opener, Chains: chainVerifier{b.store}, Notes: b.notes, Exports: b.exports, Gate: b.gate,
		Clock: b.clock, IDs: b.ids, Observer: b.observer, Logger: slog.New(slog.DiscardHandler), Poll: 10 * time.Millisecond, KeyDeletion: 7 * 24 * time.Hour,
	}
	b.copies.erasureFixture = b
	b.service = testkit.Must(erasure.NewService(b.config, func() {}))
	return b
}

// newJournal makes the administrative log of a node.
func (b *erasureFixture) newJournal() *administration.Log {
	return administration.NewLog(administration.LogConfig{
		Entities: b.store.Directory, Streams: b.store.Events, Writer: typestest.Writer{Appends: b.log}, Directory: b.store.Directory, LogName: "hr.example.org", Clock: b.clock, Logger: slog.New(slog.DiscardHandler),
	})
}

// newGate makes a gate that compares the export store with a register's receipts.
func (b *erasureFixture) newGate(receipts ports.ErasureReceipts) *erasure.Gate {
	return b.newGateOf(receipts, b.register)
}

func (b *erasureFixture) newGateOf(receipts ports.ErasureReceipts, keys ports.SubjectKeys) *erasure.Gate {
	return testkit.Must(erasure.NewGate(erasure.GateConfig{
		Exports: b.exports, Receipts: receipts, Keys: keys, DataKeys: b.dataKeys, Clock: b.clock, Interval: time.Minute, Logger: slog.New(slog.DiscardHandler),
	}))
}

// appendEvents appends events about a person to a legal entity, and copies of them.
func (b *erasureFixture) appendEvents(t testing.TB, le ports.LegalEntity, eventType, employee string, n int) {
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
		b.copies.addRow(le.Partition, shredding.Subject("employee:"+employee))
		if eventType == paidType {
			b.copies.addRegulatory(le.Partition, shredding.Subject("employee:"+employee))
		}
	}
}

const (
	contactedType = "hr.employee.contacted"
	paidType      = "hr.employee.paid"
	subject       = "employee:E-1"
)

func person(id string) ports.Principal {
	return ports.Principal{TenantID: "acme", PersonID: id, PrincipalID: id + "/web", ActorType: event.Human, Roles: []string{"compliance"}}
}

var (
	officer  = person("p-officer")
	approver = person("p-approver")
)

func newRequest(change ...func(*erasure.NewRequest)) erasure.NewRequest {
	n := erasure.NewRequest{Subject: subject, Basis: "gdpr_art_17", Reason: "asked by letter of 1 March"}
	for _, c := range change {
		c(&n)
	}
	return n
}

func (b *erasureFixture) createRequest(t testing.TB, change ...func(*erasure.NewRequest)) erasure.Status {
	t.Helper()
	s, err := b.service.Request(t.Context(), officer, newRequest(change...))
	require.NoError(t, err)
	return s
}

func (b *erasureFixture) createApprovedRequest(t testing.TB, change ...func(*erasure.NewRequest)) erasure.Status {
	t.Helper()
	s, err := b.service.Approve(t.Context(), approver, b.createRequest(t, change...).ID, "")
	require.NoError(t, err)
	return s
}

// runNewWorker advances all requests with a new worker, as after a restart.
func (b *erasureFixture) runNewWorker(t testing.TB) {
	t.Helper()
	testkit.Must(erasure.NewWorker(b.config)).RunOnce(t.Context())
}

func (b *erasureFixture) getStatus(t testing.TB, id event.ID) erasure.Status {
	t.Helper()
	s, err := b.service.Get(t.Context(), officer, id)
	require.NoError(t, err)
	return s
}

func (b *erasureFixture) storedRequest(t testing.TB, id event.ID) ports.ErasureRequest {
	t.Helper()
	r, err := b.register.Erasures().Erasure(t.Context(), "acme", id)
	require.NoError(t, err)
	return r
}

// announcements reads the events of erasures in a log.
func (b *erasureFixture) announcements(t testing.TB, le ports.LegalEntity) []event.Recorded {
	t.Helper()
	found, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: le.Partition, Types: []string{erasure.SubjectErased}, Limit: 100})
	require.NoError(t, err)
	return found
}

// readCertificate reads a certificate and verifies it with the public key.
func (b *erasureFixture) readCertificate(t testing.TB, id event.ID) (erasure.Certificate, []byte) {
	t.Helper()
	document, err := b.service.Certificate(t.Context(), officer, id)
	require.NoError(t, err)
	c, err := erasure.VerifyCertificate(document, signednote.Opener{}, b.verifierKey)
	require.NoError(t, err)
	return c, document
}

// opener opens values as a node does. With leaks set it returns clear text for erased ones.
type opener struct {
	module.Opener
	leaks bool
}

func (o *opener) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	if err := o.Opener.Open(ctx, documents, r); err != nil || !o.leaks {
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
		Drafts: []event.Draft{n.Draft}, IdempotencyKey: n.IdempotencyKey, Digest: n.Fingerprint,
	})
	return err
}

// chainVerifier recomputes every checksum.
type chainVerifier struct{ store *memory.Database }

func (c chainVerifier) VerifyChain(ctx context.Context, le ports.LegalEntity) (erasure.ChainVerdict, error) {
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

// readModel holds sealed copies, a row for each event.
type readModel struct {
	*erasureFixture
	mu         sync.Mutex
	rows       map[event.PartitionID]map[shredding.Subject]int64
	regulatory map[event.PartitionID]map[shredding.Subject]int64 // of the rows, those with values of the regulatory class
}

func (c *readModel) addRow(p event.PartitionID, s shredding.Subject) { c.count(c.rows, p, s) }
func (c *readModel) addRegulatory(p event.PartitionID, s shredding.Subject) {
	c.count(c.regulatory, p, s)
}

func (c *readModel) count(rows map[event.PartitionID]map[shredding.Subject]int64, p event.PartitionID, s shredding.Subject) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rows[p] == nil {
		rows[p] = map[shredding.Subject]int64{}
	}
	rows[p][s]++
}

func (c *readModel) HoldersOfCopies() []string { return []string{"hr_people"} }

// Forget removes the rows whose values are erased.
func (c *readModel) Forget(ctx context.Context, name string, p event.PartitionID, s shredding.Subject, passed event.Sequence) error {
	head, err := c.store.Events.Head(ctx, p)
	if err != nil {
		return err
	}
	if c.projectionPosition(head.Sequence) < passed {
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
	regulatory := c.regulatory[p][s]
	left := c.rows[p][s] - regulatory
	if keys[0].State == shredding.KeyDestroyed {
		left = 0
	}
	if keys[1].State == shredding.KeyDestroyed {
		regulatory = 0
		delete(c.regulatory[p], s)
	}
	if left += regulatory; left > 0 {
		c.rows[p][s] = left
	} else {
		delete(c.rows[p], s)
	}
	return nil
}

func (c *readModel) CountCopies(_ context.Context, _ string, p event.PartitionID, s shredding.Subject) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows[p][s], nil
}

// exportStore is an export store in memory.
type exportStore struct {
	mu          sync.Mutex
	documents   map[string][]byte
	unavailable bool
}

func (e *exportStore) lock() (func(), error) {
	e.mu.Lock()
	if e.unavailable {
		e.mu.Unlock()
		return nil, fault.New(fault.Unavailable, "export.unavailable", "not mounted")
	}
	return e.mu.Unlock, nil
}

func (e *exportStore) PutIfAbsent(_ context.Context, name string, content []byte) error {
	unlock, err := e.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if stored, taken := e.documents[name]; taken && string(stored) != string(content) {
		return fault.New(fault.Conflict, "export.name_taken", "taken")
	}
	e.documents[name] = slices.Clone(content)
	return nil
}

func (e *exportStore) Get(_ context.Context, name string) ([]byte, error) {
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

func (e *exportStore) List(_ context.Context, prefix string) ([]string, error) {
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

func (e *exportStore) Delete(_ context.Context, name string) error {
	delete(e.documents, name)
	return nil
}

// failureRecorder records the states at whose steps attempts failed.
type failureRecorder struct {
	mu       sync.Mutex
	failures []string
}

func (o *failureRecorder) ErasureFailed(state string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = append(o.failures, state)
}

func (*failureRecorder) ErasureRequests(map[string]int, time.Time) {}

func (e *exportStore) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.documents))
}

func (b *erasureFixture) listRequests(t testing.TB) []erasure.Status {
	t.Helper()
	all, err := b.service.List(t.Context(), officer, nil, 0)
	require.NoError(t, err)
	return all
}

// receipts lists those of the register.
func (b *erasureFixture) listReceipts(t testing.TB) []ports.ErasureReceipt {
	t.Helper()
	all, err := b.register.Erasures().Receipts(t.Context(), 1, 100)
	require.NoError(t, err)
	return all
}

// report says that a node has forgotten what was destroyed up to a generation.
func (b *erasureFixture) reportNode(t testing.TB, node string, forgotten int64) {
	t.Helper()
	_, err := b.register.ReportNode(t.Context(), node, forgotten)
	require.NoError(t, err)
}

func (b *erasureFixture) createEntity(t testing.TB, code string) ports.LegalEntity {
	t.Helper()
	le, err := b.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code, TimeZone: "UTC"})
	require.NoError(t, err)
	return le
}

// requireAppendRefused requires appends about the subject to be refused.
func (b *erasureFixture) requireAppendRefused(t testing.TB, le ports.LegalEntity) {
	t.Helper()
	_, _, err := b.log.Append(t.Context(), eventappend.Request{
		LegalEntity: le, Actor: event.Actor{Type: event.System, ID: "hr", Name: "hr"}, PersonID: "hr",
		Drafts: []event.Draft{{Type: contactedType, Stream: event.StreamID{Type: "employee", ID: "E-1"}, Data: json.RawMessage(`{"employee":"E-1","email":"late@example.org"}`)}},
	})
	require.Equal(t, "pii.subject_erased", fault.CodeOf(err))
}

// stopAt works until the request is in a state, and not further.
func (b *erasureFixture) runWorkerUntil(t testing.TB, state shredding.ErasureState) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	config := b.config
	config.Register = stoppingRegister{b.register.Erasures(), state, cancel}
	testkit.Must(erasure.NewWorker(config)).RunOnce(ctx)
	require.Equal(t, string(state), b.listRequests(t)[0].State)
}

// stoppingRegister ends the worker's context when a request reaches a state.
type stoppingRegister struct {
	*memory.ErasureRegister
	state shredding.ErasureState
	stop  context.CancelFunc
}

func (s stoppingRegister) stopIfReached(r ports.ErasureRequest, err error) (ports.ErasureRequest, error) {
	if err == nil && r.State == s.state {
		s.stop()
	}
	return r, err
}

func (s stoppingRegister) MoveErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return s.stopIfReached(s.ErasureRegister.MoveErasure(ctx, r))
}

func (s stoppingRegister) FenceErasure(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return s.stopIfReached(s.ErasureRegister.FenceErasure(ctx, r))
}

func (s stoppingRegister) DestroyErasure(ctx context.Context, id event.ID, check func(ctx context.Context) error) (ports.Destruction, ports.ErasureRequest, error) {
	d, r, err := s.ErasureRegister.DestroyErasure(ctx, id, check)
	r, err = s.stopIfReached(r, err)
	return d, r, err
}
