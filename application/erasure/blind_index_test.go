package erasure_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/blindindex"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	kinds "github.com/erpbackbone/backbone/domain/blindindex"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// searches records the accesses of searches.
type searches struct {
	recorded []access.Access
	why      disclosure.Purpose
	refusal  error
}

func (s *searches) Record(_ context.Context, _ ports.Principal, why disclosure.Purpose, accesses ...access.Access) error {
	if s.refusal == nil {
		s.recorded, s.why = append(s.recorded, accesses...), why
	}
	return s.refusal
}

// newIndex makes the index by which persons of the fixture are found.
func (b *erasureFixture) newIndex(accesses *searches, change ...func(*blindindex.Config)) *blindindex.Index {
	c := blindindex.Config{
		Store: b.store.BlindIndex, Log: b.store.Events, Intents: b.store.Intents, Entities: b.store.Directory, Types: administration.NewEventTypes(b.store.Registry), Manifests: b.types,
		Opener: b.opener, Secrets: b.vault, Accesses: accesses, Cursors: query.NewCursorSealer([]byte("key")), Leases: b.store.Leases, Node: "node-1", Clock: b.clock,
		Logger: slog.New(slog.DiscardHandler), Limits: blindindex.Limits{Interval: time.Millisecond, Renew: time.Second, Batch: 2, Bytes: 1 << 20},
	}
	for _, f := range change {
		f(&c)
	}
	return testkit.Must(blindindex.New(c))
}

var whySearch = disclosure.Purpose{Operation: "searchPersonalData", Reason: "request of the person", RequestID: "request-1"}

func (b *erasureFixture) search(t *testing.T, x *blindindex.Index, kind kinds.Kind, text string) blindindex.Found {
	t.Helper()
	found, err := x.Search(t.Context(), officer, whySearch, blindindex.Query{Kind: kind, Text: text, Entities: []ports.LegalEntity{b.de, b.us}, Limit: 10})
	require.NoError(t, err)
	return found
}

func subjects(found blindindex.Found) (out []string) {
	for _, p := range found.Persons {
		out = append(out, p.Subject.String())
	}
	return out
}

func TestSearch_FindsPersons(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 3)
	b.appendEvents(t, b.us, paidType, "E-2", 1)
	accesses := &searches{}
	x := b.newIndex(accesses)
	require.Equal(t, []string{"DEMF", "USMF"}, b.search(t, x, kinds.Email, "mail2@example.org").Behind)
	require.Equal(t, []access.Access{{Kind: access.PersonalSearch}}, accesses.recorded, "a search that finds no one is recorded too")
	accesses.recorded = nil
	require.NoError(t, x.RunOnce(t.Context()))

	found := b.search(t, x, kinds.Email, "MAIL2@Example.org ")
	require.Equal(t, blindindex.Found{Persons: []blindindex.Person{{
		Subject: subject, Places: []blindindex.Place{{LegalEntity: "DEMF", Type: contactedType, Path: "$.email", Class: shredding.Contact}},
	}}}, found)
	require.Equal(t, []access.Access{{Kind: access.PersonalSearch, Subject: subject, Values: 1}}, accesses.recorded)
	require.Equal(t, whySearch, accesses.why)
	require.Equal(t, []string{"employee:E-1", "employee:E-2"}, subjects(b.search(t, x, kinds.Phone, "0049 (30) 000000")))
	require.Empty(t, b.search(t, x, kinds.Name, "mail2").Persons)

	q := blindindex.Query{Kind: kinds.Email, Text: "mail0@example.org", Entities: []ports.LegalEntity{b.de, b.us}, Limit: 1}
	page, err := x.Search(t.Context(), officer, whySearch, q)
	require.NoError(t, err)
	require.Equal(t, []string{"employee:E-1"}, subjects(page))
	q.Cursor = page.Next
	page, err = x.Search(t.Context(), officer, whySearch, q)
	require.NoError(t, err)
	require.Equal(t, []string{"employee:E-2"}, subjects(page))
	require.Empty(t, page.Next)
	q.Text = "mail1@example.org"
	_, err = x.Search(t.Context(), officer, whySearch, q)
	require.Equal(t, "cursor.foreign", fault.CodeOf(err))
	q.Entities, q.Cursor = []ports.LegalEntity{b.us}, ""
	page, err = x.Search(t.Context(), officer, whySearch, q)
	require.NoError(t, err)
	require.Empty(t, page.Persons, "in another legal entity")

	for _, text := range []string{"", " -- ", string(make([]byte, 501))} {
		_, err := x.Search(t.Context(), officer, whySearch, blindindex.Query{Kind: kinds.Name, Text: text, Limit: 1})
		require.Equal(t, "personal_search.text_invalid", fault.CodeOf(err))
	}
	accesses.refusal = fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")
	_, err = x.Search(t.Context(), officer, whySearch, q)
	require.ErrorIs(t, err, accesses.refusal, "what cannot be recorded is not answered")
}

func TestErasure_ForgetsWhatThePersonIsFoundBy(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.config.Index = b.store.BlindIndex
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	b.appendEvents(t, b.us, contactedType, "E-2", 1)
	x := b.newIndex(&searches{})
	require.NoError(t, x.RunOnce(t.Context()))
	require.Len(t, b.search(t, x, kinds.Email, "mail1@example.org").Persons, 1)

	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	require.Equal(t, "evicted", b.getStatus(t, s.ID).State, "the index has not read the announcement")
	b.clock.Advance(2 * time.Minute)
	require.NoError(t, x.RunOnce(t.Context()))
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	c, _ := b.readCertificate(t, s.ID)
	require.Zero(t, *c.Verification.Index)
	require.Contains(t, c.Summary(), "0 entries left in the index")
	require.Contains(t, c.Summary(), "rows of the search index in backups of the database, until these are deleted")
	require.Empty(t, b.search(t, x, kinds.Email, "mail1@example.org").Persons)
	require.Equal(t, []string{"employee:E-2"}, subjects(b.search(t, x, kinds.Email, "mail0@example.org")))

	// An index that is built again, as after a restore, does not have the person.
	require.NoError(t, b.store.BlindIndex.ClearBlindIndex(t.Context()))
	require.NoError(t, x.RunOnce(t.Context()))
	require.Equal(t, []string{"employee:E-2"}, subjects(b.search(t, x, kinds.Email, "mail0@example.org")))
}

// TestForgetReplayed: a replay deletes the persons of its receipts and leaves the others where they are.
func TestForgetReplayed(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	b.appendEvents(t, b.de, paidType, "E-1", 1)
	b.appendEvents(t, b.de, contactedType, "E-2", 1)
	x := b.newIndex(&searches{})
	require.NoError(t, x.RunOnce(t.Context()))
	key := func(p event.PartitionID, class shredding.KeyClass) ports.ReplayKey {
		return ports.ReplayKey{Partition: p, Subject: subject, Class: class}
	}
	receipts := []erasure.Receipt{{Keys: []ports.ReplayKey{key(b.de.Partition, shredding.KeyStandard), key(99, shredding.KeyStandard)}}, {Keys: []ports.ReplayKey{key(b.us.Partition, shredding.KeyStandard)}}}
	require.NoError(t, erasure.ForgetReplayed(t.Context(), b.store.BlindIndex, receipts))
	require.Empty(t, b.search(t, x, kinds.Email, "mail1@example.org").Persons)
	found := b.search(t, x, kinds.Email, "mail0@example.org")
	require.Equal(t, []string{"employee:E-1", "employee:E-2"}, subjects(found), "what is kept by law, and others")
	require.Empty(t, found.Behind, "nothing is read again")
}

// TestErasure_KeepsIndexOfRetainedClass: values of a class that is kept are still found.
func TestErasure_KeepsIndexOfRetainedClass(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.config.Index = b.store.BlindIndex
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	b.appendEvents(t, b.de, paidType, "E-1", 1)
	x := b.newIndex(&searches{})
	s := b.createApprovedRequest(t)
	require.NoError(t, x.RunOnce(t.Context()))
	b.runNewWorker(t)
	b.clock.Advance(2 * time.Minute)
	require.NoError(t, x.RunOnce(t.Context()))
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	require.Empty(t, b.search(t, x, kinds.Email, "mail1@example.org").Persons)
	found := b.search(t, x, kinds.Email, "mail0@example.org")
	require.Len(t, found.Persons, 1)
	require.Equal(t, []blindindex.Place{{LegalEntity: "DEMF", Type: paidType, Path: "$.email", Class: shredding.Contact}}, found.Persons[0].Places)
}

// TestVerification_ForgetsIndexOfLateEvents: entries that came after the person was forgotten are
// deleted before the certificate says that there are none.
func TestVerification_ForgetsIndexOfLateEvents(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.config.Index = b.store.BlindIndex
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	x := b.newIndex(&searches{})
	s := b.createApprovedRequest(t)
	b.runWorkerUntil(t, shredding.ErasureEvicted)
	require.NoError(t, x.RunOnce(t.Context()))
	b.runWorkerUntil(t, shredding.ErasureRebuilt)
	at := testkit.Must(b.store.BlindIndex.BlindIndexPositions(t.Context(), []event.PartitionID{b.de.Partition}))[b.de.Partition]
	_, err := b.store.BlindIndex.AdvanceBlindIndex(t.Context(), b.de.Partition, at, at.Sequence, []kinds.Entry{{Partition: b.de.Partition, Kind: kinds.Email, Subject: subject}})
	require.NoError(t, err)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	n, err := b.store.BlindIndex.CountBlindIndex(t.Context(), b.de.Partition, subject, shredding.KeyClasses())
	require.NoError(t, err)
	require.Zero(t, n)
}

// refusingOpener cannot open values of an event.
type refusingOpener struct {
	module.Opener
	record  event.ID
	refusal error
}

func (o refusingOpener) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	if slices.ContainsFunc(documents, func(d module.SealedDocument) bool { return d.At.Record == o.record }) {
		return o.refusal
	}
	return o.Opener.Open(ctx, documents, r)
}

// damagedLog has an event whose sealed values are malformed.
type damagedLog struct {
	blindindex.Log
	record event.ID
	damage func(payload []byte) []byte
}

func (l damagedLog) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	events, err := l.Log.Events(ctx, q)
	for i := range events {
		if events[i].ID == l.record {
			events[i].Payload = l.damage(events[i].Payload)
		}
	}
	return events, err
}

// TestIndex_LeavesOutWhatCannotBeOpened: erasures wait for the index, so one key that does not open must
// not stop it.
func TestIndex_LeavesOutWhatCannotBeOpened(t *testing.T) {
	t.Parallel()
	refuse := func(kind fault.Kind, code string) func(*blindindex.Config, event.ID) {
		return func(c *blindindex.Config, record event.ID) {
			c.Opener = refusingOpener{c.Opener, record, fault.New(kind, code, "it does not open")}
		}
	}
	damage := func(change func(payload []byte) []byte) func(*blindindex.Config, event.ID) {
		return func(c *blindindex.Config, record event.ID) { c.Log = damagedLog{c.Log, record, change} }
	}
	for name, breakIt := range map[string]func(*blindindex.Config, event.ID){
		"value":           refuse(fault.Internal, "pii.unsealable"),
		"key":             refuse(fault.Internal, "pii.key_invalid"),
		"wrapped key":     refuse(fault.Invalid, "kms.ciphertext_invalid"),
		"key of another":  refuse(fault.Invalid, "kms.key_mismatch"),
		"deleted KEK":     refuse(fault.NotFound, "kms.key_not_found"),
		"dead epoch":      refuse(fault.FailedPrecondition, "keys.kek_unusable"),
		"malformed value": damage(func([]byte) []byte { return []byte(`{"data":{"email":{"$pii":17}}}`) }),
		"malformed envelope": damage(func(payload []byte) []byte {
			return []byte(strings.Replace(string(payload), `"$pii":"`, `"$pii":"AAAA`, 1))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newErasureFixture(t)
			b.appendEvents(t, b.de, contactedType, "E-1", 3)
			second := testkit.Must(b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.de.Partition, Limit: 10}))[1]
			var logged bytes.Buffer
			x := b.newIndex(&searches{}, func(c *blindindex.Config) {
				breakIt(c, second.ID)
				c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
			})
			require.NoError(t, x.RunOnce(t.Context()))
			require.Contains(t, logged.String(), fmt.Sprintf("tenant=acme partition=%d sequence=%d code=", second.Partition, second.Sequence))
			found := b.search(t, x, kinds.Email, "mail1@example.org")
			require.Empty(t, found.Persons)
			require.Empty(t, found.Behind)
			for _, text := range []string{"mail0@example.org", "mail2@example.org"} {
				require.Len(t, b.search(t, x, kinds.Email, text).Persons, 1)
			}
		})
	}
}

// intentManifests declare the address of the payload of hr.contact.
type intentManifests struct{ module.Manifests }

func (m intentManifests) Manifest(ctx context.Context, at shredding.Location) (*shredding.Manifest, error) {
	if at.Kind != shredding.KindIntent || at.Type != "hr.contact" {
		return m.Manifests.Manifest(ctx, at)
	}
	manifest, _ := eventtype.Manifest([]eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.employee","type":"employee"}`)}})
	return manifest, nil
}

// addIntent stores an intent about a person with an event about it, as the pipeline does.
func (b *erasureFixture) addIntent(t *testing.T, about, employee, email string) event.ID {
	t.Helper()
	in := intent.Intent{
		ID: b.ids.NewID(start), Partition: b.de.Partition, LegalEntity: "DEMF", Type: "hr.contact", Actor: event.Actor{Type: event.Human, ID: "p-1", Name: "hr"},
		PersonID: "p-1", Status: intent.PendingApproval, Revision: 1, CreatedAt: start, UpdatedAt: start,
	}
	var used []event.SealedSubject
	var err error
	in.Payload, used, err = b.vault.Seal(t.Context(), module.SealRequest{
		TenantID: "acme", Document: fmt.Appendf(nil, `{"employee":%q,"email":%q}`, employee, email), At: module.LocationOf(&in),
		Fields: []shredding.Field{{Pointer: "/email", Class: shredding.Contact, Subject: shredding.Subject("employee:" + employee)}},
	})
	require.NoError(t, err)
	r := testkit.WriteIntent(ports.IntentWrite{Sealed: used, Intent: in})
	e := &r.Events[0]
	e.Type, e.Payload = about, []byte(`{"data":{"intent_type":"hr.contact"},"dimensions":{},"entity_refs":[]}`)
	e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
	_, err = b.store.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	return in.ID
}

// TestIndex_FindsPersonsOfIntents: a person of whom only a request tells is found by it, until the person
// is erased. What is large is opened in parts.
func TestIndex_FindsPersonsOfIntents(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.config.Index = b.store.BlindIndex
	b.addIntent(t, intent.Waiting, "E-1", "waits@example.org")
	b.addIntent(t, intent.ExecutedEmpty, "E-2", "executed@example.org")
	b.addIntent(t, intent.Refused, "E-3", "refused@example.org")
	largest := 0
	x := b.newIndex(&searches{}, func(c *blindindex.Config) {
		c.Manifests, c.Opener, c.Limits.Batch, c.Limits.Bytes = intentManifests{b.types}, countingOpener{c.Opener, &largest}, 10, 1
	})
	require.NoError(t, x.RunOnce(t.Context()))
	require.Equal(t, 1, largest, "of records that are opened at once")
	found := b.search(t, x, kinds.Email, "waits@example.org")
	require.Empty(t, found.Behind)
	require.Equal(t, []blindindex.Person{{
		Subject: "employee:E-1", Places: []blindindex.Place{{LegalEntity: "DEMF", Type: "hr.contact", Path: "$.email", Class: shredding.Contact}},
	}}, found.Persons)
	require.Equal(t, []string{"employee:E-2"}, subjects(b.search(t, x, kinds.Email, "executed@example.org")))
	require.Empty(t, b.search(t, x, kinds.Email, "refused@example.org").Persons, "the pipeline keeps no values of refused intents")

	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	b.clock.Advance(2 * time.Minute)
	require.NoError(t, x.RunOnce(t.Context()))
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	require.NoError(t, b.store.BlindIndex.ClearBlindIndex(t.Context()))
	require.NoError(t, x.RunOnce(t.Context()))
	require.Empty(t, b.search(t, x, kinds.Email, "waits@example.org").Persons)
	require.Equal(t, []string{"employee:E-2"}, subjects(b.search(t, x, kinds.Email, "executed@example.org")))
}

// countingOpener counts the records that are opened at once.
type countingOpener struct {
	module.Opener
	largest *int
}

func (o countingOpener) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	*o.largest = max(*o.largest, len(documents))
	return o.Opener.Open(ctx, documents, r)
}

// failingIntents do not read the row of an intent.
type failingIntents struct {
	blindindex.Intents
	id   event.ID
	fail error
}

func (i failingIntents) Intent(ctx context.Context, p event.PartitionID, id event.ID) (intent.Intent, error) {
	if id == i.id {
		return intent.Intent{}, i.fail
	}
	return i.Intents.Intent(ctx, p, id)
}

// TestIndex_IntentsThatCannotBeRead: a row that is gone stops no one else's from being found, and an outage
// leaves none out.
func TestIndex_IntentsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	gone := b.addIntent(t, intent.Waiting, "E-1", "gone@example.org")
	b.addIntent(t, intent.Waiting, "E-2", "there@example.org")
	var logged bytes.Buffer
	index := func(fail error) *blindindex.Index {
		return b.newIndex(&searches{}, func(c *blindindex.Config) {
			c.Manifests, c.Intents, c.Logger = intentManifests{b.types}, failingIntents{c.Intents, gone, fail}, slog.New(slog.NewTextHandler(&logged, nil))
		})
	}
	outage := fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")
	x := index(outage)
	require.ErrorIs(t, x.RunOnce(t.Context()), outage)
	require.Contains(t, b.search(t, x, kinds.Email, "there@example.org").Behind, "DEMF")

	x = index(fault.New(fault.NotFound, "intent.not_found", "the legal entity has no such intent; check the id"))
	require.NoError(t, x.RunOnce(t.Context()))
	require.Contains(t, logged.String(), "sequence=1 code=intent.not_found")
	require.Equal(t, []string{"employee:E-2"}, subjects(b.search(t, x, kinds.Email, "there@example.org")))
	require.Empty(t, b.search(t, x, kinds.Email, "gone@example.org").Persons)
}

// answeringOpener opens all values to the same one.
type answeringOpener struct{ value string }

func (o answeringOpener) Open(_ context.Context, documents []module.SealedDocument, _ module.Reader) error {
	for i := range documents {
		var values []json.RawMessage
		if err := json.Unmarshal(documents[i].Document, &values); err != nil {
			return err
		}
		for n := range values {
			values[n] = json.RawMessage(o.value)
		}
		documents[i].Document, _ = json.Marshal(values)
	}
	return nil
}

// TestIndex_StoresNoNamesOfMembers: a name of a member in a sealed object may be that of a person.
func TestIndex_StoresNoNamesOfMembers(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	x := b.newIndex(&searches{}, func(c *blindindex.Config) { c.Opener = answeringOpener{`{"Anna Meyer":{"email":"anna@example.org"}}`} })
	require.NoError(t, x.RunOnce(t.Context()))
	found := b.search(t, x, kinds.Email, "anna@example.org")
	require.Len(t, found.Persons, 1)
	for _, place := range found.Persons[0].Places {
		require.Contains(t, []string{"$.email", "$.phone"}, place.Path)
	}
}

// largestStore remembers how many entries were stored at once.
type largestStore struct {
	ports.BlindIndex
	largest *int
}

func (s largestStore) AdvanceBlindIndex(ctx context.Context, p event.PartitionID, from ports.BlindIndexPosition, to event.Sequence, entries []kinds.Entry) (ports.BlindIndexPosition, error) {
	*s.largest = max(*s.largest, len(entries))
	return s.BlindIndex.AdvanceBlindIndex(ctx, p, from, to, entries)
}

// numbered opens each value to the addresses of a record that no other one has.
type numbered struct{ each int }

func (o numbered) Open(ctx context.Context, documents []module.SealedDocument, r module.Reader) error {
	for i := range documents {
		addresses := make([]string, o.each)
		for n := range addresses {
			addresses[n] = fmt.Sprintf("%d@%s", n, documents[i].At.Record)
		}
		value, _ := json.Marshal(map[string]any{"email": addresses})
		if err := (answeringOpener{string(value)}).Open(ctx, documents[i:i+1], r); err != nil {
			return err
		}
	}
	return nil
}

// TestIndex_Bounds: an event with a hundred thousand addresses costs no more than one with a thousand, and
// many such events are stored in parts.
func TestIndex_Bounds(t *testing.T) {
	t.Parallel()
	for events, each := range map[int]int{1: 100_000, 12: 2000} {
		b := newErasureFixture(t)
		b.appendEvents(t, b.de, contactedType, "E-1", events)
		largest, logged := 0, bytes.Buffer{}
		x := b.newIndex(&searches{}, func(c *blindindex.Config) {
			c.Opener, c.Store, c.Limits.Batch = numbered{each}, largestStore{c.Store, &largest}, 100
			c.Logger = slog.New(slog.NewTextHandler(&logged, nil))
		})
		require.NoError(t, x.RunOnce(t.Context()))
		require.Equal(t, min(events, 10)*kinds.MaxTerms, largest)
		require.Equal(t, events, strings.Count(logged.String(), "more terms than"))
		n, err := b.store.BlindIndex.CountBlindIndex(t.Context(), b.de.Partition, subject, shredding.KeyClasses())
		require.NoError(t, err)
		require.EqualValues(t, events*kinds.MaxTerms, n)
		require.Empty(t, b.search(t, x, kinds.Email, "a@b.org").Behind)
	}
}

// TestIndex_WaitsForWhatMayPass: an outage leaves no value out.
func TestIndex_WaitsForWhatMayPass(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 3)
	second := testkit.Must(b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.de.Partition, Limit: 10}))[1]
	for _, refusal := range []error{
		fault.New(fault.Unavailable, "kms.unavailable", "try again"), fault.New(fault.Timeout, "store.timeout", "try again"), fault.New(fault.Unavailable, "pii.receipts_behind", "replay"),
		fault.New(fault.Unavailable, "pii.key_evicted", "try again"), fault.New(fault.FailedPrecondition, "pii.keys_missing", "configure it"), io.ErrUnexpectedEOF,
	} {
		var logged bytes.Buffer
		x := b.newIndex(&searches{}, func(c *blindindex.Config) {
			c.Opener, c.Logger = refusingOpener{b.opener, second.ID, refusal}, slog.New(slog.NewTextHandler(&logged, nil))
		})
		require.ErrorIs(t, x.RunOnce(t.Context()), refusal)
		require.Contains(t, logged.String(), fmt.Sprintf("tenant=acme partition=%d sequence=0 code=%s", b.de.Partition, fault.CodeOf(refusal)))
		require.Contains(t, b.search(t, x, kinds.Email, "mail1@example.org").Behind, "DEMF")
	}
	x := b.newIndex(&searches{})
	require.NoError(t, x.RunOnce(t.Context()))
	require.Len(t, b.search(t, x, kinds.Email, "mail1@example.org").Persons, 1)
}

// amendedTypes declare the telephone number from their second generation on.
type amendedTypes struct {
	blindindex.Types
	generation int64
}

func (a *amendedTypes) EventTypeGenerations(context.Context) (map[string]int64, error) {
	return map[string]int64{"": a.generation}, nil
}

func (a *amendedTypes) EventTypes(ctx context.Context, tenantID string) ([]eventtype.Registration, int64, error) {
	types, _, err := a.Types.EventTypes(ctx, tenantID)
	for i := range types {
		if a.generation == 1 {
			types[i].PIIFields = slices.DeleteFunc(slices.Clone(types[i].PIIFields), func(f eventtype.PIIField) bool { return f.Path == "$.phone" })
		}
	}
	return types, a.generation, err
}

// TestIndex_FindsAmendedMembers: what an amendment of a version declares is searched from its first event on.
func TestIndex_FindsAmendedMembers(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	types := &amendedTypes{generation: 1}
	x := b.newIndex(&searches{}, func(c *blindindex.Config) { types.Types, c.Types = c.Types, types })
	require.NoError(t, x.RunOnce(t.Context()))
	require.Len(t, b.search(t, x, kinds.Email, "mail0@example.org").Persons, 1)
	require.Empty(t, b.search(t, x, kinds.Phone, "+49 30 000000").Persons)
	types.generation = 2
	b.appendEvents(t, b.de, contactedType, "E-2", 1)
	require.NoError(t, x.RunOnce(t.Context()))
	require.Equal(t, []string{"employee:E-2"}, subjects(b.search(t, x, kinds.Phone, "+49 30 000000")))
}

// staleStore answers positions that another node has moved since.
type staleStore struct {
	ports.BlindIndex
	moved func()
}

func (s staleStore) BlindIndexPositions(ctx context.Context, partitions []event.PartitionID) (map[event.PartitionID]ports.BlindIndexPosition, error) {
	defer s.moved()
	return s.BlindIndex.BlindIndexPositions(ctx, partitions)
}

func TestIndex_Race(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 3)
	other := b.newIndex(&searches{})
	x := b.newIndex(&searches{}, func(c *blindindex.Config) {
		c.Store = staleStore{b.store.BlindIndex, func() { require.NoError(t, other.RunOnce(context.Background())) }}
	})
	require.NoError(t, x.RunOnce(t.Context()), "another node was first")
	require.Len(t, b.search(t, other, kinds.Email, "mail2@example.org").Persons, 1)
}

// TestIndex_BeginsAgainWithAnotherSecret: hashes under a secret that was lost find no one.
func TestIndex_BeginsAgainWithAnotherSecret(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	require.NoError(t, b.newIndex(&searches{}).RunOnce(t.Context()))
	x := b.newIndex(&searches{}, func(c *blindindex.Config) { c.Secrets = otherSecrets{} })
	found := b.search(t, x, kinds.Email, "mail0@example.org")
	require.Empty(t, found.Persons)
	require.Equal(t, []string{"DEMF"}, found.Behind, "the answer says that it is not whole")
	require.NoError(t, x.RunOnce(t.Context()))
	found = b.search(t, x, kinds.Email, "mail0@example.org")
	require.Len(t, found.Persons, 1)
	require.Empty(t, found.Behind)
}

type otherSecrets struct{}

func (otherSecrets) Derive(_ context.Context, tenantID, purpose, label string) (shredding.Secret, error) {
	return shredding.NewSecret([]byte(tenantID + purpose + label)), nil
}

var _ erasure.Index = ports.BlindIndex(nil)

// TestIndex_RunsOnOneNode has a node stop: another one continues with its next renewal.
func TestIndex_RunsOnOneNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newErasureFixtureAt(t, testkit.NewRunningClock(start))
		heads := testkit.Must(subscriptions.NewHeadWatcher(subscriptions.HeadWatcherConfig{Heads: b.store.Events, WakeUps: b.store.Events, Clock: b.clock, Poll: time.Second}))
		start := func(run func(context.Context)) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { run(ctx) })
			stop = func() { cancel(); running.Wait() }
			t.Cleanup(stop)
			return stop
		}
		node := func(name string) *blindindex.Index {
			return b.newIndex(&searches{}, func(c *blindindex.Config) {
				c.Changes, c.Node, c.Limits.Interval, c.Limits.Renew = heads, name, time.Second, 10*time.Second
			})
		}
		first, second := node("node-1"), node("node-2")
		requireHolder := func(name string) {
			t.Helper()
			list, err := b.store.Leases.List(t.Context(), "blind-index")
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, name, list[0].Holder)
		}
		requireFound := func(email string, persons int) {
			t.Helper()
			require.Len(t, b.search(t, second, kinds.Email, email).Persons, persons)
		}
		start(heads.Run)
		stop := start(first.Run)
		pass(time.Second)
		start(second.Run)
		pass(time.Second)
		requireHolder("node-1")
		b.appendEvents(t, b.de, contactedType, "E-1", 2)
		pass(2 * time.Second) // the events of an interval are read at once
		requireFound("mail1@example.org", 1)
		requireHolder("node-1")

		stop()
		b.appendEvents(t, b.de, contactedType, "E-2", 2)
		pass(5 * time.Second)
		requireFound("mail1@example.org", 1)
		pass(5 * time.Second)
		requireFound("mail1@example.org", 2)
		requireHolder("node-2")
	})
}
