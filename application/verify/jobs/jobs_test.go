package jobs_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/typestest"
)

const logName = "ledger.example.org"

var auditor = event.Actor{Type: event.Human, ID: "p-auditor", Name: "auditor"}

// fixture has a log for each tenant, and nodes whose checks wait until the test lets them go on.
type fixture struct {
	store  *memory.Database
	log    *administration.Log
	checks chan func(code string) verify.EntityReport // one is taken for each check
	erased func() (finding string, compared bool, err error)
	keys   ports.DataKeys
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	clock := system.Clock{}
	f := &fixture{store: memory.New(memory.Config{LogName: logName, Deployment: 1, Clock: clock}), checks: make(chan func(string) verify.EntityReport)}
	writer, err := typestest.NewWriter(typestest.StoreOf(f.store), clock, module.Joined{administration.Module{}, jobs.Module{}})
	require.NoError(t, err)
	f.log = administration.NewLog(administration.LogConfig{
		Entities: f.store.Directory, Streams: f.store.Events, Directory: f.store.Directory, LogName: logName, Clock: clock, Logger: slog.New(slog.DiscardHandler), Writer: writer,
	})
	return f
}

func (f *fixture) node(t *testing.T, name string) *jobs.Service {
	t.Helper()
	s := jobs.New(jobs.Config{
		Log: f.log, Events: f.store.Events, Leases: f.store.Leases, LogName: logName, Node: name, Clock: system.Clock{}, IDs: system.NewIDs(), Logger: slog.New(slog.DiscardHandler),
		Check: func(ctx context.Context, _ string, codes []string, progress verify.Progress, take func(*verify.EntityReport) error, _ ...verify.Option) error {
			for _, code := range codes {
				progress(code, 5, 10)
				select {
				case check := <-f.checks:
					checked := report(code)
					if check == nil {
						return errors.Join(take(&checked), fault.New(fault.Unavailable, "store.unavailable", "the database is away; try again"))
					}
					checked = check(code)
					if err := take(&checked); err != nil {
						return err
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		},
		CompareErased: func(_ context.Context, tenantID string) (string, bool, error) {
			if f.erased == nil || tenantID != "acme" {
				return "", false, nil
			}
			return f.erased()
		},
		DataKeys: f.keys,
		Registries: func(_ context.Context, tenantID string, _ ...verify.Option) ([]verify.RegistryReport, error) {
			return []verify.RegistryReport{{Changes: 3, Head: 3, Checksum: strings.Repeat("a", 64)}, {Tenant: tenantID, Changes: 1, Head: 1, Checksum: strings.Repeat("b", 64)}}, nil
		},
	})
	t.Cleanup(s.Close)
	return s
}

func report(code string) verify.EntityReport {
	return verify.EntityReport{LegalEntity: code, Partition: 7, Events: 10, Head: 10, Checksum: strings.Repeat("c", 64)}
}

func damaged(code string) verify.EntityReport {
	r := report(code)
	r.Findings = []verify.Finding{{Kind: verify.ChecksumMismatch, Sequence: 1 << 60, Detail: strings.Repeat("é", 10_000) + "\x00\xff"}}
	r.Suppressed = 2
	return r
}

func logs(codes ...string) jobs.Request {
	r := jobs.Request{WholeTenant: true}
	for i, code := range codes {
		r.Logs = append(r.Logs, ports.LegalEntity{TenantID: "acme", Code: code, Partition: event.PartitionID(i + 100)})
	}
	return r
}

// end waits until a run has ended on its node.
func end(t *testing.T, s *jobs.Service, id event.ID) jobs.Run {
	t.Helper()
	for {
		r, err := s.Get(t.Context(), "acme", id)
		require.NoError(t, err)
		if r.State != jobs.Running && !r.EndedAt.IsZero() {
			return r
		}
		<-time.After(time.Second) // of the bubble
	}
}

func TestService_RecordsARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		here, there := f.node(t, "here"), f.node(t, "there")
		started, err := here.Start(t.Context(), "acme", auditor, logs("USMF", "DEMF"))
		require.NoError(t, err)
		require.Equal(t, jobs.Running, started.State)
		require.Equal(t, "p-auditor", started.StartedBy)
		require.Equal(t, []string{"USMF", "DEMF"}, started.Started.LegalEntities)
		synctest.Wait()
		now, err := here.Get(t.Context(), "acme", started.ID)
		require.NoError(t, err)
		require.Equal(t, "USMF", now.Current)
		require.EqualValues(t, 5, now.Done)

		f.checks <- report
		synctest.Wait()
		now, err = here.Get(t.Context(), "acme", started.ID)
		require.NoError(t, err)
		require.EqualValues(t, 15, now.Done)
		elsewhere, err := there.Get(t.Context(), "acme", started.ID)
		require.NoError(t, err)
		require.EqualValues(t, 10, elsewhere.Done, "whole logs only")
		require.Equal(t, jobs.Running, elsewhere.State)

		f.checks <- report
		ended := end(t, there, started.ID)
		require.Equal(t, jobs.Sound, ended.State)
		require.Len(t, ended.Checked, 2)
		require.Equal(t, []string{"", "acme"}, []string{ended.EventTypes[0].Tenant, ended.EventTypes[1].Tenant})
		require.Zero(t, ended.Findings)
		heads := there.Heads("acme", ended)
		require.Equal(t, logName, heads.LogName)
		require.Len(t, heads.Partitions, 2)
		require.NotNil(t, heads.Registry)
		require.Len(t, heads.Registries, 1)

		all, err := there.List(t.Context(), "acme", 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
		require.Equal(t, jobs.Sound, all[0].State)
		none, err := there.List(t.Context(), "other", 10)
		require.NoError(t, err)
		require.Empty(t, none)
		_, err = there.Get(t.Context(), "other", started.ID)
		require.Equal(t, "verification.not_found", fault.CodeOf(err))
	})
}

func TestService_KeepsDamageAndFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.node(t, "here")
		r, err := s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
		f.checks <- damaged
		ended := end(t, s, r.ID)
		require.Equal(t, jobs.Tampered, ended.State)
		require.Equal(t, 3, ended.Findings)
		finding := ended.Checked[0].Findings[0]
		require.Equal(t, "checksum_mismatch", finding.Kind)
		require.LessOrEqual(t, len(finding.Detail), 500)

		r, err = s.Start(t.Context(), "acme", auditor, logs("USMF", "DEMF"))
		require.NoError(t, err)
		f.checks <- damaged
		f.checks <- nil
		ended = end(t, s, r.ID)
		require.Equal(t, jobs.Failed, ended.State)
		require.Equal(t, "store.unavailable", ended.Code)
		require.Equal(t, 3, ended.Findings, "what was found stays found")
		require.Len(t, ended.Checked, 2)
	})
}

func TestService_OneRunForEachTenantAndNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		nodes := []*jobs.Service{f.node(t, "a"), f.node(t, "b"), f.node(t, "c")}
		var racing sync.WaitGroup
		errs := make([]error, len(nodes))
		for i, s := range nodes {
			racing.Go(func() { _, errs[i] = s.Start(context.Background(), "acme", auditor, logs("USMF")) })
		}
		racing.Wait()
		codes := map[string]int{}
		winner := 0
		for i, err := range errs {
			codes[fault.CodeOf(err)]++
			if err == nil {
				winner = i
			}
		}
		require.Equal(t, map[string]int{"": 1, "verification.running": 2}, codes)
		_, err := nodes[winner].Start(t.Context(), "acme", auditor, logs("USMF"))
		require.Equal(t, "verification.running", fault.CodeOf(err))
		_, err = nodes[winner].Start(t.Context(), "other", auditor, logs("USMF"))
		require.Equal(t, "verification.busy", fault.CodeOf(err))
		elsewhere, err := nodes[(winner+1)%3].Start(t.Context(), "other", auditor, logs("USMF"))
		require.NoError(t, err)
		_, err = nodes[0].Cancel(t.Context(), "other", elsewhere.ID, auditor)
		require.NoError(t, err)
	})
}

// slowRelease gives leases back after an hour.
type slowRelease struct{ ports.Leases }

func (l slowRelease) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	<-time.After(time.Hour) // of the bubble
	return l.Leases.Release(ctx, holder, resources)
}

func TestService_NextRunWaitsForTheLeaseOfOneThatEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.node(t, "here")
		s.Leases = slowRelease{s.Leases}
		first, err := s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
		f.checks <- report
		end(t, s, first.ID)
		next, err := s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
		f.checks <- report
		require.Equal(t, jobs.Sound, end(t, s, next.ID).State)
	})
}

func TestService_Cancel(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"here", "there"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				nodes := map[string]*jobs.Service{"here": f.node(t, "here"), "there": f.node(t, "there")}
				r, err := nodes["here"].Start(t.Context(), "acme", auditor, logs("USMF", "DEMF"))
				require.NoError(t, err)
				f.checks <- damaged
				synctest.Wait()
				cancelled, err := nodes[where].Cancel(t.Context(), "acme", r.ID, event.Actor{Type: event.Human, ID: "p-operator", Name: "operator"})
				require.NoError(t, err)
				require.Equal(t, jobs.Cancelled, cancelled.State)
				require.Equal(t, "p-operator", cancelled.EndedBy)
				require.Equal(t, 3, cancelled.Findings)
				_, err = nodes["there"].Cancel(t.Context(), "acme", r.ID, auditor)
				require.Equal(t, "verification.ended", fault.CodeOf(err))
				<-time.After(10 * time.Second) // its node has looked
				synctest.Wait()
				next, err := nodes["here"].Start(t.Context(), "acme", auditor, logs("USMF"))
				require.NoError(t, err)
				f.checks <- report
				require.Equal(t, jobs.Sound, end(t, nodes["here"], next.ID).State)
			})
		})
	}
}

func TestService_InterruptedRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		stopped, there := f.node(t, "stopped"), f.node(t, "there")
		r, err := stopped.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
		stopped.Close()
		ended, err := there.Get(t.Context(), "acme", r.ID)
		require.NoError(t, err)
		require.Equal(t, jobs.Interrupted, ended.State)
		require.False(t, ended.EndedAt.IsZero())
		_, err = stopped.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.Equal(t, "verification.busy", fault.CodeOf(err))

		// A node that died has recorded no end, and its lease ends by itself.
		log, err := f.log.Of(t.Context(), "acme")
		require.NoError(t, err)
		id := system.NewIDs().NewID(time.Now())
		require.NoError(t, f.recordStart(t.Context(), id))
		_, err = f.store.Leases.Hold(t.Context(), "dead/"+id.String(), 30*time.Second, []ports.LeaseResource{{Name: "verification", Partition: log.Partition}})
		require.NoError(t, err)
		running, err := there.Get(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, jobs.Running, running.State)
		_, err = there.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.Equal(t, "verification.running", fault.CodeOf(err))
		<-time.After(2 * time.Minute)
		all, err := there.List(t.Context(), "acme", 1)
		require.NoError(t, err)
		require.Equal(t, jobs.Interrupted, all[0].State)
		require.True(t, all[0].EndedAt.IsZero())
		next, err := there.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
		dead, err := there.Get(t.Context(), "acme", id)
		require.NoError(t, err)
		require.Equal(t, jobs.Interrupted, dead.State)
		require.False(t, dead.EndedAt.IsZero(), "recorded")
		f.checks <- report
		end(t, there, next.ID)
	})
}

// recordStart records the start of a run whose node then died.
func (f *fixture) recordStart(ctx context.Context, id event.ID) error {
	stream := event.StreamID{Type: "backbone.verification", ID: id.String()}
	return f.log.Record(ctx, "acme", auditor, concurrency.StreamExpectation{Stream: stream, Expected: concurrency.NoStream()}, event.Draft{
		Type: jobs.Started, SchemaVersion: 1, Stream: stream, Data: jobs.StartedData{LegalEntities: []string{"USMF"}}, Source: event.Source{System: "backbone"},
	})
}

func TestService_BoundsTheRunsOfAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.node(t, "here")
		for range 20 {
			r, err := s.Start(t.Context(), "acme", auditor, logs("USMF"))
			require.NoError(t, err)
			f.checks <- report
			end(t, s, r.ID)
			synctest.Wait()
		}
		_, err := s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.Equal(t, "verification.too_many", fault.CodeOf(err))
		<-time.After(time.Hour)
		_, err = s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
	})
}

func TestService_Heads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.node(t, "here")
		request := logs("USMF")
		request.Heads = &verify.Heads{LogName: logName, Partitions: []verify.Head{{Tenant: "other", LegalEntity: "USMF", Partition: 9}}}
		_, err := s.Start(t.Context(), "acme", auditor, request)
		require.Equal(t, "verification.heads_foreign", fault.CodeOf(err))
		request.Heads.Partitions = append(request.Heads.Partitions, verify.Head{Tenant: "acme", LegalEntity: "GONE", Partition: 8})
		r, err := s.Start(t.Context(), "acme", auditor, request)
		require.NoError(t, err)
		require.NotEmpty(t, r.Started.ReferenceSHA256)
		f.checks <- report
		f.checks <- report
		ended := end(t, s, r.ID)
		require.Equal(t, "GONE", ended.Checked[1].LegalEntity, "a legal entity that only the heads have is checked too")
	})
}

// failingStore refuses leases.
type failingStore struct{ ports.Leases }

func (failingStore) Hold(context.Context, string, time.Duration, []ports.LeaseResource) ([]ports.Lease, error) {
	return nil, errors.New("the store is away")
}

func TestService_StartThatFailsFreesTheNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.node(t, "here")
		leases := s.Leases
		s.Leases = failingStore{leases}
		_, err := s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.ErrorContains(t, err, "away")
		s.Leases = leases
		_, err = s.Start(t.Context(), "acme", auditor, logs("USMF"))
		require.NoError(t, err)
	})
}

func TestService_NoLegalEntity(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, err := newFixture(t).node(t, "here").Start(t.Context(), "acme", auditor, jobs.Request{})
		require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
	})
}

// slowLeases gives a lease when the test lets it.
type slowLeases struct {
	ports.Leases
	give chan struct{}
}

func (l slowLeases) Hold(ctx context.Context, holder string, ttl time.Duration, of []ports.LeaseResource) ([]ports.Lease, error) {
	<-l.give
	return l.Leases.Hold(ctx, holder, ttl, of)
}

// TestService_CloseWaitsForAStart closes a node whose run is about to be recorded: the connections
// close after Close.
func TestService_CloseWaitsForAStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		s := f.node(t, "here")
		give := make(chan struct{})
		s.Leases = slowLeases{s.Leases, give}
		started := make(chan jobs.Run, 1)
		go func() {
			r, err := s.Start(context.Background(), "acme", auditor, logs("USMF"))
			if err == nil {
				started <- r
			}
			close(started)
		}()
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			s.Close()
		}()
		synctest.Wait()
		select {
		case <-closed:
			require.Fail(t, "closed before the end of the run is recorded")
		default:
		}
		close(give)
		<-closed
		ended, err := f.node(t, "there").Get(t.Context(), "acme", (<-started).ID)
		require.NoError(t, err)
		require.Equal(t, jobs.Interrupted, ended.State)
		require.False(t, ended.EndedAt.IsZero(), "recorded")
	})
}

// TestService_ComparesKeys keeps what a run says about the key store, as `backbone verify` does.
func TestService_ComparesKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		request := logs("_ADMIN")
		request.OpenKeys = true
		_, err := f.node(t, "without").Start(t.Context(), "acme", auditor, request)
		require.Equal(t, "verification.keys_missing", fault.CodeOf(err))

		f.keys = memory.NewDataKeys()
		s := f.node(t, "here")
		for _, c := range []struct {
			finding string
			err     error
			state   jobs.State
			want    *jobs.ErasuresData
		}{
			{"", nil, jobs.Sound, &jobs.ErasuresData{}},
			{"a destroyed key is back", nil, jobs.Tampered, &jobs.ErasuresData{Finding: "a destroyed key is back"}},
			{"", fault.New(fault.Unavailable, "pii.receipts_behind", "the folder cannot be read"), jobs.Failed, nil},
		} {
			f.erased = func() (string, bool, error) { return c.finding, c.err == nil, c.err }
			r, err := s.Start(t.Context(), "acme", auditor, request)
			require.NoError(t, err)
			require.True(t, r.Started.OpenKeys)
			f.checks <- func(code string) verify.EntityReport {
				checked := report(code)
				checked.UnboundNumbers, checked.UnboundRequests, checked.Policy = 3, 4, &verify.Policy{SHA256: "ab", Release: "1.0", InForce: true}
				return checked
			}
			ended := end(t, s, r.ID)
			require.Equal(t, c.state, ended.State)
			require.Equal(t, c.want, ended.Erasures)
			require.EqualValues(t, 3, ended.Checked[0].UnboundNumbers)
			require.EqualValues(t, 4, ended.Checked[0].UnboundRequests)
			require.Equal(t, &verify.Policy{SHA256: "ab", Release: "1.0", InForce: true}, ended.Checked[0].Policy)
		}
		r, err := s.Start(t.Context(), "acme", auditor, jobs.Request{Logs: logs("DEMF").Logs})
		require.NoError(t, err)
		f.checks <- report
		require.Nil(t, end(t, s, r.ID).Erasures, "the receipts are of all legal entities")
	})
}
