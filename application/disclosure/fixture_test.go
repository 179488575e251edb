package disclosure_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
	"github.com/erpbackbone/backbone/test/typestest"
)

var start = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

const retention = 90 * 24 * time.Hour

// contactRights read contact data only.
type contactRights struct{}

func (contactRights) Reads(_ string, c shredding.Class) bool { return c == shredding.Contact }

func (contactRights) Rights(_ context.Context, p ports.Principal, granted []shredding.Class) (module.Rights, error) {
	if slices.Contains(p.Roles, "auditor") {
		return grantedRights(granted), nil
	}
	return contactRights{}, nil
}

type grantedRights []shredding.Class

func (g grantedRights) Reads(_ string, c shredding.Class) bool { return slices.Contains(g, c) }

// store is a database that may refuse accesses.
type store struct {
	*memory.EventReader
	*memory.Directory
	*memory.AccessLog
	refusal error
	inserts int
	settled atomic.Int32
	hangs   bool // reading the legal entities
}

func (s *store) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.Directory.LegalEntities(ctx, tenantID)
}

func (s *store) SettleAccesses(ctx context.Context) (time.Time, error) {
	s.settled.Add(1)
	return s.AccessLog.SettleAccesses(ctx)
}

func (s *store) AddAccesses(ctx context.Context, log event.PartitionID, accesses []access.Access) error {
	s.inserts++
	if s.refusal != nil {
		return s.refusal
	}
	return s.AccessLog.AddAccesses(ctx, log, accesses)
}

type fixture struct {
	store      *store
	clock      *testkit.Clock
	log        *administration.Log
	service    *disclosure.Service
	recorder   *disclosure.Recorder
	principals *administration.Principals
	audit      *memory.Audit
	entity     ports.LegalEntity
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clock := testkit.NewClock(start)
	d := memory.New(memory.Config{LogName: typestest.LogName, Deployment: 1, Clock: clock})
	f := &fixture{clock: clock, store: &store{EventReader: d.Events, Directory: d.Directory, AccessLog: d.AccessLog}}
	writer, err := typestest.NewWriter(typestest.StoreOf(d), clock, administration.Module{})
	require.NoError(t, err)
	f.log = administration.NewLog(administration.LogConfig{
		Entities: d.Directory, Streams: d.Events, Writer: writer, Directory: d.Directory, LogName: typestest.LogName, Clock: clock, Logger: slog.New(slog.DiscardHandler),
	})
	f.entity, err = d.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	require.NoError(t, f.log.BeginAll(t.Context()))
	f.audit = d.Audit
	f.principals = administration.NewPrincipals(f.log, d.Audit, d.Events)
	f.service, err = disclosure.New(disclosure.Config{
		Accesses: f.store, Rights: contactRights{}, Logs: f.log, Principals: f.principals, Administration: f.log, Entities: f.store,
		Cursors: query.NewCursorSealer([]byte("key")), Clock: clock, IDs: system.NewIDs(), Limits: disclosure.Limits{LongestGrant: 30 * 24 * time.Hour},
	})
	require.NoError(t, err)
	f.recorder = f.node(t)
	return f
}

// node makes the recorder of a node.
func (f *fixture) node(t *testing.T) *disclosure.Recorder {
	t.Helper()
	r, err := disclosure.NewRecorder(disclosure.RecorderConfig{
		Accesses: f.store, Entities: f.store, Streams: f.store, Administration: f.log, Clock: f.clock, Logger: slog.New(slog.DiscardHandler),
		Limits: disclosure.RecorderLimits{Retention: retention, Interval: time.Minute},
	})
	require.NoError(t, err)
	return r
}

var clerk = ports.Principal{TenantID: "acme", PersonID: "p-clerk", PrincipalID: "p-clerk-1", ActorType: event.Human, Roles: []string{"ap_clerk"}}

var opening = disclosure.Purpose{Operation: "getEvent", Reason: "ticket 4711", RequestID: "request-1"}

// open records that the clerk opened a contact value.
func (f *fixture) open(t *testing.T, subject shredding.Subject) {
	t.Helper()
	r, err := f.service.Reader(t.Context(), clerk, opening)
	require.NoError(t, err)
	require.NoError(t, r.Disclose(t.Context(), []module.Opened{{Partition: f.entity.Partition, Subject: subject, Class: shredding.Contact, Values: 2}}))
}

func (f *fixture) search(t *testing.T, q ports.AccessQuery) []access.Access {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 1000
	}
	found, _, err := f.service.Search(t.Context(), clerk, q, "")
	require.NoError(t, err)
	return found
}

// periods reads what the administrative log recorded, and checks that periods follow each other.
func (f *fixture) periods(t *testing.T) (periods []access.Period) {
	t.Helper()
	log, err := f.log.Of(t.Context(), "acme")
	require.NoError(t, err)
	found, err := f.store.EventsOfStream(t.Context(), log.Partition, access.AccessStream, 1, 1000)
	require.NoError(t, err)
	for i := range found {
		data, err := found[i].Data()
		require.NoError(t, err)
		var p access.Period
		require.NoError(t, json.Unmarshal(data, &p))
		if i > 0 {
			require.Equal(t, periods[i-1].To, p.From)
		}
		periods = append(periods, p)
	}
	return periods
}
