package administration_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

var start = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

const logName = "ledger.example.org"

// formerDirectory lists principals of an earlier release.
type formerDirectory []ports.Principal

func (d formerDirectory) FormerPrincipals(_ context.Context, tenantID string) (found []ports.Principal, _ error) {
	for _, p := range d {
		if tenantID == "" || p.TenantID == tenantID {
			found = append(found, p)
		}
	}
	return found, nil
}

// chains reads a log that a test may tamper with.
type chains struct {
	*memory.Audit
	fail   func(ctx context.Context, p event.PartitionID) error // nil: nothing
	tamper func([]event.Recorded) []event.Recorded
	mu     sync.Mutex
	pages  map[event.PartitionID]int // that were read
}

func (c *chains) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	c.mu.Lock()
	c.pages[p]++
	c.mu.Unlock()
	if c.fail != nil {
		if err := c.fail(ctx, p); err != nil {
			return nil, err
		}
	}
	page, err := c.Audit.ChainPage(ctx, p, after, limit)
	if c.tamper != nil {
		page = c.tamper(page)
	}
	return page, err
}

// streams reads streams that a test may tamper with.
type streams struct {
	*memory.EventReader
	tamper func(*event.Recorded)
}

func (s *streams) tampered(events []event.Recorded) []event.Recorded {
	for i := range events {
		if s.tamper != nil {
			s.tamper(&events[i])
		}
	}
	return events
}

func (s *streams) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, more, err := s.EventReader.ReadStream(ctx, q)
	return s.tampered(events), more, err
}

func (s *streams) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	events, err := s.EventReader.Events(ctx, q)
	return s.tampered(events), err
}

// failingWriter writes nothing while it has an error.
type failingWriter struct {
	administration.Writer
	err error
}

func (w *failingWriter) Write(ctx context.Context, b administration.Write) error {
	if w.err != nil {
		return w.err
	}
	return w.Writer.Write(ctx, b)
}

type fixture struct {
	store   *memory.Database
	clock   *testkit.Clock
	former  formerDirectory
	writer  *failingWriter
	streams *streams
	chains  *chains
	policy  *administration.Policy // of the nodes; nil: none
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clock := testkit.NewClock(start)
	f := &fixture{store: memory.New(memory.Config{LogName: logName, Deployment: 1, Clock: clock}), clock: clock}
	f.writer = &failingWriter{Writer: testkit.Must(typestest.NewWriter(typestest.StoreOf(f.store), clock, administration.Module{}))}
	f.streams = &streams{EventReader: f.store.Events}
	f.chains = &chains{Audit: f.store.Audit, pages: map[event.PartitionID]int{}}
	return f
}

// node makes the services of another node.
func (f *fixture) node() (*administration.Log, *administration.Principals) {
	log := administration.NewLog(administration.LogConfig{
		Entities: f.store.Directory, Streams: f.streams, Writer: f.writer, Directory: f.former, LogName: logName, Clock: f.clock, Logger: slog.New(slog.DiscardHandler), Policy: f.policy,
	})
	return log, administration.NewPrincipals(log, f.chains, f.store.Events)
}

// types lists the event types of a tenant's administrative log, in order.
func (f *fixture) types(t *testing.T, tenantID string) []string {
	t.Helper()
	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), tenantID)
	require.NoError(t, err)
	require.Len(t, logs, 1)
	events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: logs[0].Partition, Limit: 1000})
	require.NoError(t, err)
	types := make([]string, len(events))
	for i, e := range events {
		types[i] = e.Type
	}
	return types
}

func person(id string) ports.Principal {
	return ports.Principal{
		TenantID: "acme", PersonID: "p-" + id, PrincipalID: "l-" + id, ActorType: event.Human, RoleLabel: "clerk", Roles: []string{"ap_clerk", "controller"},
		LegalEntities: []string{"DEMF", "USMF"}, TokenHash: hash("token of " + id), Development: true, ExpiresAt: start.Add(time.Hour),
	}
}

func hash(text string) event.Hash { return sha256.Sum256([]byte(text)) }

func requirePrincipal(t *testing.T, want, got ports.Principal) {
	t.Helper()
	got.CreatedAt, got.Version = want.CreatedAt, want.Version
	require.Equal(t, want, got)
}

func TestPrincipals_FollowTheLog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, here := f.node()
	_, there := f.node()
	want := person("1")
	require.NoError(t, here.SavePrincipal(t.Context(), person("2"), "", event.Actor{}))
	require.NoError(t, here.SavePrincipal(t.Context(), want, "", event.Actor{}))
	for _, node := range []*administration.Principals{here, there} {
		got, err := node.PrincipalByTokenHash(t.Context(), want.TokenHash)
		require.NoError(t, err)
		requirePrincipal(t, want, got)
		got, err = node.PrincipalByPerson(t.Context(), "acme", want.PersonID)
		require.NoError(t, err)
		requirePrincipal(t, want, got)
	}

	renewed := want
	renewed.TokenHash, renewed.Roles, renewed.ExpiresAt, renewed.Version = hash("another"), []string{"auditor"}, time.Time{}, 2
	require.NoError(t, there.SavePrincipal(t.Context(), renewed, "", event.Actor{}))
	_, err := here.PrincipalByTokenHash(t.Context(), want.TokenHash)
	require.Equal(t, "auth.token_unknown", fault.CodeOf(err))
	got, err := here.PrincipalByTokenHash(t.Context(), renewed.TokenHash)
	require.NoError(t, err)
	requirePrincipal(t, renewed, got)

	rotated := renewed
	rotated.TokenHash, rotated.Version = hash("a third"), 4
	require.NoError(t, here.SavePrincipal(t.Context(), rotated, "", event.Actor{}))
	require.Equal(t, []string{
		administration.Began, administration.PrincipalEnrolled, administration.TokenIssued, administration.PrincipalEnrolled, administration.TokenIssued,
		administration.PrincipalGranted, administration.TokenRotated, administration.TokenRotated,
	}, f.types(t, "acme"))
}

func TestPrincipals_UnknownToken(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, principals := f.node()
	_, err := principals.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.Equal(t, "principal.not_found", fault.CodeOf(err))
	require.NoError(t, principals.SavePrincipal(t.Context(), person("1"), "", event.Actor{}))
	for _, unknown := range []event.Hash{hash("unknown"), {}} {
		_, err = principals.PrincipalByTokenHash(t.Context(), unknown)
		require.Equal(t, "auth.token_unknown", fault.CodeOf(err))
	}
	_, err = principals.PrincipalByPerson(t.Context(), "acme", "p-2")
	require.Equal(t, "principal.not_found", fault.CodeOf(err))
	_, err = principals.PrincipalByPerson(t.Context(), "another", "p-1")
	require.Equal(t, "principal.not_found", fault.CodeOf(err))
}

func TestPrincipals_LoginThatIsGoodBeforeAnExpiredOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, principals := f.node()
	over, good := person("1"), person("1")
	over.ExpiresAt, good.PrincipalID, good.TokenHash = start.Add(-time.Minute), "l-1-2", hash("second login")
	require.NoError(t, principals.SavePrincipal(t.Context(), over, "", event.Actor{}))
	f.clock.Advance(time.Minute)
	require.NoError(t, principals.SavePrincipal(t.Context(), good, "", event.Actor{}))
	got, err := principals.PrincipalByPerson(t.Context(), "acme", over.PersonID)
	require.NoError(t, err)
	requirePrincipal(t, good, got)
}

func TestPrincipals_TokenOfAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, principals := f.node()
	require.NoError(t, principals.SavePrincipal(t.Context(), person("1"), "", event.Actor{}))
	thief := person("2")
	thief.TokenHash = person("1").TokenHash
	require.Equal(t, "principal.token_taken", fault.CodeOf(principals.SavePrincipal(t.Context(), thief, "", event.Actor{})))
	thief.TenantID, thief.PrincipalID = "other", person("1").PrincipalID
	require.Equal(t, "principal.token_taken", fault.CodeOf(principals.SavePrincipal(t.Context(), thief, "", event.Actor{})))
}

// Of the nodes that enroll or renew one principal at once, one does, and no other token is issued.
func TestPrincipals_Race(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	race := func(p ports.Principal, label string) {
		var running sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			_, principals := f.node()
			running.Go(func() {
				p := p
				p.TokenHash = hash(label + string(rune('a'+i)))
				errs[i] = principals.SavePrincipal(context.Background(), p, "", event.Actor{})
			})
		}
		running.Wait()
		codes := map[string]int{}
		for _, err := range errs {
			codes[fault.CodeOf(err)]++
		}
		require.Equal(t, map[string]int{"": 1, "principal.changed": 3}, codes)
	}
	race(person("1"), "first")
	_, principals := f.node()
	known, err := principals.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.NoError(t, err)
	race(known, "second")
	count := map[string]int{}
	for _, typ := range f.types(t, "acme") {
		count[typ]++
	}
	require.Equal(t, map[string]int{administration.Began: 1, administration.PrincipalEnrolled: 1, administration.TokenIssued: 1, administration.TokenRotated: 1}, count)
}

func TestPrincipals_RecordAnExpiryOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, here := f.node()
	_, there := f.node()
	require.NoError(t, here.SavePrincipal(t.Context(), person("1"), "", event.Actor{}))
	login, err := here.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.NoError(t, err)
	require.NoError(t, here.RecordExpiry(t.Context(), login), "it has not expired: nothing")
	f.clock.Advance(time.Hour)
	var running sync.WaitGroup
	for _, node := range []*administration.Principals{here, there, here, there} {
		running.Go(func() { require.NoError(t, node.RecordExpiry(context.Background(), login)) })
	}
	running.Wait()
	expired, err := there.PrincipalByTokenHash(t.Context(), login.TokenHash)
	require.NoError(t, err)
	require.True(t, expired.ExpiryRecorded)

	renewed := expired
	renewed.TokenHash, renewed.ExpiresAt = hash("another"), f.clock.Now().Add(time.Hour)
	require.NoError(t, there.SavePrincipal(t.Context(), renewed, "", event.Actor{}))
	require.NoError(t, here.RecordExpiry(t.Context(), login), "it has another token: nothing")
	now, err := here.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.NoError(t, err)
	require.False(t, now.ExpiryRecorded)
	require.Equal(t, []string{
		administration.Began, administration.PrincipalEnrolled, administration.TokenIssued, administration.TokenExpired, administration.TokenRotated,
	}, f.types(t, "acme"))
}

func TestPrincipals_Review(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, principals := f.node()
	admin := event.Actor{Type: event.Human, ID: "p-admin", Name: "admin"}
	require.NoError(t, principals.SavePrincipal(t.Context(), person("1"), "joined the company", admin))
	seen, err := principals.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.NoError(t, err)
	changed := seen
	changed.Roles = []string{"cfo"}
	require.NoError(t, principals.SavePrincipal(t.Context(), changed, "promoted", admin))
	require.Equal(t, "principal.changed", fault.CodeOf(principals.ReviewPerson(t.Context(), "acme", "p-1", seen.Version, "yearly review", admin)))
	require.Equal(t, "principal.not_found", fault.CodeOf(principals.ReviewPerson(t.Context(), "acme", "p-2", 0, "yearly review", admin)))
	seen, err = principals.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.NoError(t, err)
	require.NoError(t, principals.ReviewPerson(t.Context(), "acme", "p-1", seen.Version, "yearly review", admin))
	list := func() ports.PrincipalStatus {
		all, err := principals.ListPrincipals(t.Context(), "acme")
		require.NoError(t, err)
		require.Len(t, all, 1)
		return all[0]
	}
	require.Equal(t, "p-admin", list().ReviewedBy)
	require.Equal(t, f.clock.Now(), list().ReviewedAt)
	token, err := principals.PrincipalByTokenHash(t.Context(), changed.TokenHash)
	require.NoError(t, err, "a review changes no access")

	token.Roles = []string{"auditor"}
	require.NoError(t, principals.SavePrincipal(t.Context(), token, "", admin))
	require.NoError(t, principals.RevokePerson(t.Context(), "acme", "p-1", "left", admin))
	require.False(t, list().RevokedAt.IsZero())
	none, err := principals.ListPrincipals(t.Context(), "other")
	require.NoError(t, err)
	require.Empty(t, none)
}

// A release before wrote version 1, without reasons.
func TestPrincipals_ReadVersion1(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	log, principals := f.node()
	stream := event.StreamID{Type: "backbone.principal", ID: "l-9"}
	require.NoError(t, log.Record(t.Context(), "acme", event.Actor{}, concurrency.StreamExpectation{Stream: stream, Expected: concurrency.NoStream()}, event.Draft{
		Type: administration.PrincipalEnrolled, SchemaVersion: 1, Stream: stream, Source: event.Source{System: "backbone"},
		Data: json.RawMessage(`{"principal_id":"l-9","person_id":"p-9","kind":"human","label":"clerk","roles":["ap_clerk"],"legal_entities":[]}`),
	}))
	got, err := principals.PrincipalByPerson(t.Context(), "acme", "p-9")
	require.NoError(t, err)
	require.Equal(t, []string{"ap_clerk"}, got.Roles)
}

func TestPrincipals_Revoked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, here := f.node()
	_, there := f.node()
	second := person("1")
	second.PrincipalID, second.TokenHash = "l-1-2", hash("second login")
	admin := event.Actor{Type: event.Human, ID: "p-admin", Name: "admin"}
	require.NoError(t, here.SavePrincipal(t.Context(), person("1"), "", admin))
	require.NoError(t, here.SavePrincipal(t.Context(), second, "", admin))
	require.NoError(t, here.SavePrincipal(t.Context(), person("2"), "", admin))
	require.NoError(t, here.RevokePerson(t.Context(), "acme", "p-1", "left the company", admin))
	for _, token := range []event.Hash{person("1").TokenHash, second.TokenHash} {
		_, err := there.PrincipalByTokenHash(t.Context(), token)
		require.Equal(t, "auth.token_unknown", fault.CodeOf(err))
	}
	_, err := there.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.Equal(t, "principal.not_found", fault.CodeOf(err))
	_, err = there.PrincipalByTokenHash(t.Context(), person("2").TokenHash)
	require.NoError(t, err)
	require.Equal(t, "principal.not_found", fault.CodeOf(here.RevokePerson(t.Context(), "acme", "p-1", "again", admin)))
	require.Equal(t, "principal.not_found", fault.CodeOf(here.RevokePerson(t.Context(), "other", "p-1", "elsewhere", admin)))

	again := person("1")
	again.TokenHash = hash("of the return")
	require.NoError(t, there.SavePrincipal(t.Context(), again, "", admin))
	got, err := here.PrincipalByTokenHash(t.Context(), again.TokenHash)
	require.NoError(t, err)
	requirePrincipal(t, again, got)

	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
	require.NoError(t, err)
	events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: logs[0].Partition, Types: []string{administration.PrincipalRevoked}, Limit: 10})
	require.NoError(t, err)
	require.Len(t, events, 2, "one for each login")
	require.Equal(t, "p-admin", events[0].ActorID)
	require.Contains(t, string(events[0].Payload), "left the company")
}

func TestPrincipals_RefuseALogThatDoesNotHold(t *testing.T) {
	t.Parallel()
	grant := func(e *event.Recorded) {
		e.Payload = []byte(`{"data":{"principal_id":"l-1","person_id":"p-1","kind":"human","label":"admin","roles":["admin"],"legal_entities":[]},"dimensions":{},"entity_refs":[]}`)
	}
	for name, tamper := range map[string]func([]event.Recorded) []event.Recorded{
		"payload edited": func(page []event.Recorded) []event.Recorded {
			grant(&page[1])
			return page
		},
		"payload edited with its hash": func(page []event.Recorded) []event.Recorded {
			grant(&page[1])
			page[1].PayloadHash = event.HashPayload(page[1].Salt, page[1].Payload)
			return page
		},
		"payload removed": func(page []event.Recorded) []event.Recorded {
			page[1].Payload = nil
			return page
		},
		"actor edited": func(page []event.Recorded) []event.Recorded {
			page[1].ActorID = "p-2"
			return page
		},
		"event removed": func(page []event.Recorded) []event.Recorded { return append(page[:1], page[2:]...) },
		"end removed":   func(page []event.Recorded) []event.Recorded { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			_, before := f.node()
			require.NoError(t, before.SavePrincipal(t.Context(), person("1"), "", event.Actor{}))
			other := person("1")
			other.TenantID, other.TokenHash = "other", hash("of the other tenant")
			require.NoError(t, before.SavePrincipal(t.Context(), other, "", event.Actor{}))
			broken := func() event.PartitionID {
				logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
				require.NoError(t, err)
				return logs[0].Partition
			}()
			f.chains.tamper = func(page []event.Recorded) []event.Recorded {
				if len(page) > 2 && page[0].Partition == broken {
					return tamper(page)
				}
				return page
			}
			_, after := f.node()
			_, err := after.PrincipalByPerson(t.Context(), "acme", "p-1")
			require.Equal(t, "administration.log_broken", fault.CodeOf(err))
			require.Equal(t, "administration.log_broken", fault.CodeOf(after.SavePrincipal(t.Context(), person("3"), "", event.Actor{})))
			_, err = after.PrincipalByTokenHash(t.Context(), person("1").TokenHash)
			require.Error(t, err)
			_, err = after.PrincipalByTokenHash(t.Context(), other.TokenHash)
			require.NoError(t, err, "the other tenant is let in")

			read := f.chains.pages[broken]
			for range 5 {
				_, err = after.PrincipalByTokenHash(t.Context(), other.TokenHash)
				require.NoError(t, err)
			}
			require.Equal(t, read, f.chains.pages[broken], "it is read again once it has another end")
			f.chains.tamper = nil
			require.NoError(t, before.SavePrincipal(t.Context(), person("3"), "", event.Actor{}))
			_, err = after.PrincipalByPerson(t.Context(), "acme", "p-1")
			require.NoError(t, err)
			_, err = before.PrincipalByTokenHash(t.Context(), person("1").TokenHash)
			require.NoError(t, err)
		})
	}
}

// twoTenants enrolls a person in each of two tenants and returns the log of the first one.
func (f *fixture) twoTenants(t *testing.T) (log event.PartitionID, own, other event.Hash) {
	t.Helper()
	_, principals := f.node()
	require.NoError(t, principals.SavePrincipal(t.Context(), person("1"), "", event.Actor{}))
	elsewhere := person("1")
	elsewhere.TenantID, elsewhere.TokenHash = "other", hash("of the other tenant")
	require.NoError(t, principals.SavePrincipal(t.Context(), elsewhere, "", event.Actor{}))
	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
	require.NoError(t, err)
	return logs[0].Partition, person("1").TokenHash, elsewhere.TokenHash
}

// A log that cannot be read keeps out the callers of its tenant, not those of others.
func TestPrincipals_ALogThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	broken, own, other := f.twoTenants(t)
	clear(f.chains.pages)
	failure := fault.New(fault.Unavailable, "store.unavailable", "try again")
	f.chains.fail = func(_ context.Context, p event.PartitionID) error {
		if p == broken {
			return failure
		}
		return nil
	}
	_, principals := f.node()
	requireCode := func(want string, token event.Hash) {
		t.Helper()
		_, err := principals.PrincipalByTokenHash(t.Context(), token)
		require.Equal(t, want, fault.CodeOf(err))
	}
	requireCode("", other)
	requireCode("store.unavailable", own)
	requireCode("store.unavailable", hash("unknown"))
	_, err := principals.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.Equal(t, "store.unavailable", fault.CodeOf(err))
	require.Equal(t, "store.unavailable", fault.CodeOf(principals.SavePrincipal(t.Context(), person("3"), "", event.Actor{})))
	require.Equal(t, 1, f.chains.pages[broken], "it is not read again at once")

	failure = fault.New(fault.Internal, "store.failed", "an event cannot be decoded")
	f.clock.Advance(time.Second)
	requireCode("", other)
	requireCode("auth.token_unknown", hash("unknown"))
	_, err = principals.PrincipalByPerson(t.Context(), "acme", "p-1")
	require.Equal(t, "store.failed", fault.CodeOf(err))

	f.chains.fail = nil
	requireCode("auth.token_unknown", own)
	f.clock.Advance(time.Second)
	requireCode("", own)
}

// What was read before the database failed is not read again, and gives no right until the rest is read.
func TestPrincipals_GoOnWhereTheReadFailed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	log, own, _ := f.twoTenants(t)
	_, principals := f.node()
	_, err := principals.PrincipalByTokenHash(t.Context(), own)
	require.NoError(t, err)
	_, other := f.node()
	require.NoError(t, other.RevokePerson(t.Context(), "acme", "p-1", "left", event.Actor{}))
	f.chains.fail = func(context.Context, event.PartitionID) error {
		return fault.New(fault.Unavailable, "store.unavailable", "try again")
	}
	_, err = principals.PrincipalByTokenHash(t.Context(), own)
	require.Equal(t, "store.unavailable", fault.CodeOf(err))
	f.chains.fail = nil
	f.chains.tamper = func(page []event.Recorded) []event.Recorded {
		if page[0].Partition == log {
			require.Equal(t, administration.PrincipalRevoked, page[0].Type)
		}
		return page
	}
	f.clock.Advance(time.Second)
	_, err = principals.PrincipalByTokenHash(t.Context(), own)
	require.Equal(t, "auth.token_unknown", fault.CodeOf(err))
}

// A database that does not answer holds no caller up for longer than a query may take, and a caller
// who waits for another one's read leaves when its own time is over.
func TestPrincipals_ReadsTakeABoundedTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hung, own, other := f.twoTenants(t)
	synctest.Test(t, func(t *testing.T) {
		f.chains.fail = func(ctx context.Context, p event.PartitionID) error {
			if p == hung {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		_, principals := f.node()
		read := make(chan error)
		go func() {
			_, err := principals.PrincipalByTokenHash(context.Background(), own)
			read <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := principals.PrincipalByTokenHash(ctx, other)
			left <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		require.Equal(t, "store.unavailable", fault.CodeOf(<-read))
		_, err := principals.PrincipalByTokenHash(t.Context(), other)
		require.NoError(t, err)
	})
}

func TestLog_AdoptsTheFormerDirectoryOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	le, err := f.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF", Name: "Contoso", TimeZone: "Europe/Berlin"})
	require.NoError(t, err)
	former := person("1")
	f.former = formerDirectory{former}
	var running sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		log, _ := f.node()
		running.Go(func() { errs[i] = log.BeginAll(context.Background()) })
	}
	running.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, []string{administration.LegalEntityCreated, administration.PrincipalEnrolled, administration.TokenIssued, administration.Began}, f.types(t, "acme"))

	logs, err := f.store.Directory.AdministrativeLogs(t.Context(), "acme")
	require.NoError(t, err)
	events, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: logs[0].Partition, Limit: 10})
	require.NoError(t, err)
	data, err := events[0].Data()
	require.NoError(t, err)
	var created struct {
		Code      string            `json:"code"`
		Partition event.PartitionID `json:"partition_id"`
	}
	require.NoError(t, json.Unmarshal(data, &created))
	require.Equal(t, "USMF", created.Code)
	require.Equal(t, le.Partition, created.Partition)

	// A row that appears later gives no rights.
	intruder := person("2")
	f.former = append(f.former, intruder)
	log, principals := f.node()
	require.NoError(t, log.BeginAll(t.Context()))
	_, err = principals.PrincipalByTokenHash(t.Context(), intruder.TokenHash)
	require.Equal(t, "auth.token_unknown", fault.CodeOf(err))
	got, err := principals.PrincipalByTokenHash(t.Context(), former.TokenHash)
	require.NoError(t, err)
	requirePrincipal(t, former, got)
}

// A node records the policies that it decides by in every tenant's log, unless they are those of
// the node before it.
func TestLog_RecordsPolicies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"})
	require.NoError(t, err)
	start := func(digest string) {
		f.policy = &administration.Policy{SHA256: strings.Repeat(digest, 64), Release: "1.0.0"}
		var running sync.WaitGroup
		for range 3 {
			log, _ := f.node()
			running.Go(func() { require.NoError(t, log.BeginAll(context.Background())) })
		}
		running.Wait()
		log, _ := f.node()
		_, err := log.Of(t.Context(), "new")
		require.NoError(t, err)
	}
	count := func(tenant string) (n int) {
		for _, typ := range f.types(t, tenant) {
			if typ == administration.PolicyInstalled {
				n++
			}
		}
		return n
	}
	start("a")
	start("a")
	require.Equal(t, 1, count("acme"))
	require.Equal(t, 1, count("new"), "a tenant that came later")
	start("b")
	require.Equal(t, 2, count("acme"))
	start("a")
	require.Equal(t, 3, count("acme"), "back to the policies before")
	require.Equal(t, 3, count("new"))
	f.policy = nil
	log, _ := f.node()
	require.NoError(t, log.BeginAll(t.Context()), "a tool decides nothing")
	require.Equal(t, 3, count("acme"))
}

// unrecordedEntity makes a legal entity without its event, after the log has begun.
func (f *fixture) unrecordedEntity(t *testing.T) (log *administration.Log, le ports.LegalEntity) {
	t.Helper()
	log, _ = f.node()
	_, err := log.Of(t.Context(), "acme")
	require.NoError(t, err)
	le, err = f.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"})
	require.NoError(t, err)
	return log, le
}

func TestLog_RecordsALegalEntityWhoseCreationWasCutOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, le := f.unrecordedEntity(t)
	restarted, _ := f.node()
	require.NoError(t, restarted.BeginAll(t.Context()))
	require.NoError(t, restarted.LegalEntityCreated(t.Context(), le, event.Actor{}))
	require.Equal(t, []string{administration.Began, administration.LegalEntityCreated}, f.types(t, "acme"))
}

// A legal entity whose event could not be appended gets it with the next use of the log.
func TestLog_LegalEntityAfterAFailedAppend(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	log, le := f.unrecordedEntity(t)
	f.writer.err = fault.New(fault.Unavailable, "store.unavailable", "try again")
	require.Equal(t, "store.unavailable", fault.CodeOf(log.LegalEntityCreated(t.Context(), le, event.Actor{})))
	f.writer.err = nil
	_, err := log.Of(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, []string{administration.Began, administration.LegalEntityCreated}, f.types(t, "acme"))
}

// The event of a legal entity names who created it, also on a node that uses the log for the
// first time.
func TestLog_NamesWhoCreatedALegalEntity(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	admin := event.Actor{Type: event.Human, ID: "p-admin", Name: "admin"}
	for code, by := range map[string]event.Actor{"USMF": admin, "DEMF": {}} {
		log, _ := f.node()
		le, err := f.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: code})
		require.NoError(t, err)
		require.NoError(t, log.LegalEntityCreated(t.Context(), le, by))
		require.NoError(t, log.LegalEntityCreated(t.Context(), le, admin), "once")
	}
	log, _ := f.node()
	created, err := log.EventsOfTypes(t.Context(), "acme", administration.LegalEntityCreated)
	require.NoError(t, err)
	actors := map[string]string{}
	for _, e := range created {
		actors[e.Stream.ID] = e.ActorID
	}
	require.Equal(t, map[string]string{"USMF": "p-admin", "DEMF": "s-backbone-operator"}, actors)
}

// held is a revision of a legal hold.
func held(number int) ports.Revision {
	const id = "01JQ8E6Z6G3V5T8C9N2M4K7R1P"
	return ports.Revision{Stream: event.StreamID{Type: shredding.HoldStream, ID: id}, Number: number, Type: shredding.HoldPlaced, Data: map[string]any{
		"hold_id": id, "revision": number, "subject": "employee:E-1", "reason": "proceedings 4 O 112/26", "placed_by": "p-0002", "placed_at": "2026-03-31T10:00:00Z",
	}}
}

// The thousandth revision is recorded as the first one is.
func TestLog_RecordsRevisionsWithoutEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	log, _ := f.node()
	for n := 1; n <= 1002; n++ {
		require.NoError(t, log.RecordRevision(t.Context(), "acme", event.Actor{}, held(n)))
	}
	require.NoError(t, log.RecordRevision(t.Context(), "acme", event.Actor{}, held(1002)), "once")
	last, err := log.Latest(t.Context(), "acme", held(1).Stream)
	require.NoError(t, err)
	require.EqualValues(t, 1002, last.StreamVersion)
}

// Nothing is decided by an event whose payload was edited under its own hash.
func TestLog_RefusesAnEditedPayload(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	log, _ := f.node()
	require.NoError(t, log.RecordRevision(t.Context(), "acme", event.Actor{}, held(1)))
	for name, tamper := range map[string]func(*event.Recorded){
		"edited":  func(e *event.Recorded) { e.Payload = bytes.Replace(e.Payload, []byte("E-1"), []byte("E-2"), 1) },
		"removed": func(e *event.Recorded) { e.Payload = nil },
	} {
		f.streams.tamper = tamper
		for read, run := range map[string]func() error{
			"Latest":         func() error { _, err := log.Latest(t.Context(), "acme", held(1).Stream); return err },
			"Revisions":      func() error { _, err := log.Revisions(t.Context(), "acme", held(1).Stream); return err },
			"EventsOfTypes":  func() error { _, err := log.EventsOfTypes(t.Context(), "acme", shredding.HoldPlaced); return err },
			"RecordRevision": func() error { return log.RecordRevision(t.Context(), "acme", event.Actor{}, held(2)) },
		} {
			require.Equal(t, "administration.log_broken", fault.CodeOf(run()), "%s, %s", read, name)
		}
	}
}
