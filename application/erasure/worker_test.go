package erasure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// waitInterval is the pause between attempts at a step that waits for a condition.
const waitInterval = 200 * time.Millisecond

// pass lets simulated time pass, and waits until the workers have done what was due by then.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// TestWorker_ConcurrentWorkers runs four workers, as on four nodes, with ten requests.
func TestWorker_ConcurrentWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newErasureFixtureAt(t, testkit.NewRunningClock(start))
		const requests = 10
		ids := make([]event.ID, requests)
		for i := range ids {
			employee := fmt.Sprintf("E-%d", i)
			b.appendEvents(t, b.de, contactedType, employee, 2)
			ids[i] = b.createApprovedRequest(t, func(n *erasure.NewRequest) { n.Subject = "employee:" + employee }).ID
		}
		ctx, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() { testkit.Must(erasure.NewWorker(b.config)).Run(ctx) })
		}
		pass(time.Second)
		stop()
		workers.Wait()
		for _, id := range ids {
			require.Equal(t, "completed", b.getStatus(t, id).State)
		}
		require.Len(t, b.announcements(t, b.de), requests)
		require.Len(t, b.exports.names(), 2*requests)
		previous := event.Hash{}
		for n := range uint64(requests) {
			note := b.exports.documents[erasure.ReceiptName(n+1)]
			text, _, _ := bytes.Cut(note, []byte("\n\n"))
			r, err := erasure.ParseReceipt(append(bytes.Clone(text), '\n'))
			require.NoError(t, err)
			require.Equal(t, previous, r.Previous)
			previous = sha256Of(note)
		}
		for _, id := range ids {
			b.readCertificate(t, id)
		}
	})
}

// TestWorker_WakesOnApproval completes a request without a poll of the worker: the only node
// reports its evictions at once.
func TestWorker_WakesOnApproval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newErasureFixtureAt(t, testkit.NewRunningClock(start))
		b.appendEvents(t, b.de, contactedType, "E-1", 20)
		b.reportNode(t, "node-1", 0)
		b.config.Poll = time.Hour
		worker := testkit.Must(erasure.NewWorker(b.config))
		b.service = testkit.Must(erasure.NewService(b.config, worker.Wake))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() { worker.Run(ctx) })
		s := b.createApprovedRequest(t)
		pass(waitInterval) // the worker waits if it saw the approval before its event was recorded
		require.Equal(t, "announced", b.getStatus(t, s.ID).State, "the node has not evicted the key yet")
		b.reportNode(t, "node-1", b.storedRequest(t, s.ID).Generation)
		pass(waitInterval)
		require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	})
}

// countingJournal counts the calls that record a move.
type countingJournal struct {
	ports.AdministrativeLog
	records int
}

func (j *countingJournal) RecordRevision(ctx context.Context, tenantID string, actor event.Actor, r ports.Revision) error {
	j.records++
	return j.AdministrativeLog.RecordRevision(ctx, tenantID, actor, r)
}

func TestWorker_WaitsForSilentNode(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	journal := &countingJournal{AdministrativeLog: b.journal}
	b.config.Journal = journal
	b.reportNode(t, "hanging", 0)
	b.reportNode(t, "stopped", 0)
	b.clock.Advance(119 * time.Second)
	b.reportNode(t, "hanging", 0)
	s := b.createApprovedRequest(t)
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	records := journal.records
	for range 61 {
		require.Equal(t, "announced", b.getStatus(t, s.ID).State)
		b.clock.Advance(time.Second)
		worker.RunOnce(t.Context())
	}
	require.Equal(t, records, journal.records, "a request that waits is not looked up in the log again")
	b.clock.Advance(time.Second)
	worker.RunOnce(t.Context())
	s = b.getStatus(t, s.ID)
	require.Equal(t, "completed", s.State)
	require.Empty(t, b.observer.failures, "waiting is no failure")
	c, _ := b.readCertificate(t, s.ID)
	require.Equal(t, 62*time.Second, c.Times.Confirmed.Sub(c.Times.Destroyed))
}

// TestWorker_WaitsForProjection runs with a projection that has not read the announcement: a
// copy that it wrote after the erasure would stay.
func TestWorker_WaitsForProjection(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	b.projectionPosition = func(event.Sequence) event.Sequence { return 2 }
	s := b.createApprovedRequest(t)
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	require.Equal(t, "evicted", b.getStatus(t, s.ID).State)
	require.EqualValues(t, 2, b.copies.rows[b.de.Partition][subject])
	b.clock.Advance(time.Second)
	worker.RunOnce(t.Context())
	require.Empty(t, b.observer.failures)
	b.clock.Advance(time.Minute)
	worker.RunOnce(t.Context())
	require.Equal(t, []string{"evicted"}, b.observer.failures, "a long wait counts as a failure")
	require.Equal(t, "erasure.projection_behind", b.storedRequest(t, s.ID).LastError)
	b.projectionPosition = func(head event.Sequence) event.Sequence { return head }
	b.clock.Advance(time.Minute)
	worker.RunOnce(t.Context())
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
}

// TestWorker_RepeatsFailingStep fails more often than AlarmAttempts.
func TestWorker_RepeatsFailingStep(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createApprovedRequest(t)
	var logged bytes.Buffer
	b.config.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	notes := b.config.Notes
	b.config.Notes = failingSigner{notes}
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	worker.RunOnce(t.Context())
	require.Len(t, b.observer.failures, 1, "the step is not repeated before its pause is over")
	for i := range 6 {
		require.Equal(t, i >= erasure.AlarmAttempts-1, bytes.Contains(logged.Bytes(), []byte("an operator has to find the cause")), "attempt %d", i+1)
		b.clock.Advance(time.Hour)
		worker.RunOnce(t.Context())
	}
	s = b.getStatus(t, s.ID)
	require.Equal(t, "destroyed", s.State)
	require.Equal(t, erasure.Step{State: "receipted", Attempts: 7, LastError: "kms.unavailable"}, s.Steps[5])
	b.config.Notes = notes
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
}

type failingSigner struct{ ports.NoteSigner }

func (failingSigner) SignNote(context.Context, []byte) ([]byte, error) {
	return nil, fault.New(fault.Unavailable, "kms.unavailable", "down")
}

// TestWorker_RecoversPanic: a panic fails the request and not the process, and no log line
// quotes its value.
func TestWorker_RecoversPanic(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	var logged bytes.Buffer
	b.config.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	b.config.Copies = panickingCopies{b.copies}
	b.runNewWorker(t)
	require.Equal(t, "erasure.panicked", b.storedRequest(t, s.ID).LastError)
	require.NotContains(t, logged.String(), "ada@example.org")
	require.Equal(t, "evicted", b.getStatus(t, s.ID).State)
}

type panickingCopies struct{ *readModel }

func (panickingCopies) Forget(context.Context, string, event.PartitionID, shredding.Subject, event.Sequence) error {
	panic(errors.New("ada@example.org"))
}

func TestVerification_FindsReadableValues(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.opener.leaks = true
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	require.Equal(t, "rebuilt", b.getStatus(t, s.ID).State)
	require.Equal(t, "erasure.still_readable", b.storedRequest(t, s.ID).LastError)

	b.opener.leaks = false
	b.copies.addRow(b.de.Partition, subject) // the copy of a late event
	b.clock.Advance(time.Minute)
	worker.RunOnce(t.Context())
	require.Equal(t, "completed", b.getStatus(t, s.ID).State)
	require.Zero(t, b.copies.rows[b.de.Partition][subject])
}

// TestVerification_ListsLateEvents reads an event that was sealed before the destruction and
// recorded after it, as may happen with a key store in a database of its own.
func TestVerification_ListsLateEvents(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	b.runWorkerUntil(t, shredding.ErasureAnnounced)
	b.config.Records = lateRecords{b.config.Records, b.storedRequest(t, s.ID).DestroyedAt.Add(time.Millisecond)}
	b.runNewWorker(t)
	c, _ := b.readCertificate(t, s.ID)
	require.Len(t, c.Verification.Late, 1)
	require.Equal(t, "DEMF", c.Verification.Late[0].LegalEntity)
	require.EqualValues(t, 1, c.Verification.Late[0].Sequence)
}

// lateRecords returns events as if they were recorded at a given time.
type lateRecords struct {
	ports.PersonalRecords
	at time.Time
}

func (l lateRecords) PersonalEvents(ctx context.Context, p event.PartitionID, s shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	found, err := l.PersonalRecords.PersonalEvents(ctx, p, s, after, limit)
	for i := range found {
		found[i].RecordedAt = l.at
	}
	return found, err
}

// TestReceipt_SigningKeyReplaced: the note that was stored first stays.
func TestReceipt_SigningKeyReplaced(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createApprovedRequest(t)
	b.exports.unavailable = true
	config := b.config
	config.Gate = openGate{}
	testkit.Must(erasure.NewWorker(config)).RunOnce(t.Context())
	require.Equal(t, "destroyed", b.getStatus(t, s.ID).State)
	stored := b.listReceipts(t)[0].Note
	require.NotEmpty(t, stored)
	require.False(t, b.listReceipts(t)[0].Exported)

	b.exports.unavailable = false
	*b.kms = testkit.NewSigningKey(2)
	b.runNewWorker(t)
	require.Equal(t, string(stored), string(b.exports.documents[erasure.ReceiptName(1)]))
}

type openGate struct{}

func (openGate) Check(context.Context) error { return nil }

// TestReceipt_SignedInOrder runs a worker that reads only the second of two requests.
func TestReceipt_SignedInOrder(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	first := b.createApprovedRequest(t)
	b.runWorkerUntil(t, shredding.ErasureDestroyed)
	b.clock.Advance(time.Minute)
	second := b.createApprovedRequest(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	config := b.config
	config.Register = registerWithout{b.register.Erasures(), first.ID}
	testkit.Must(erasure.NewWorker(config)).RunOnce(t.Context())
	require.Equal(t, "destroyed", b.getStatus(t, second.ID).State)
	require.Empty(t, b.listReceipts(t)[1].Note, "its text would lack the hash of the first")
	require.Empty(t, b.observer.failures)
	b.runNewWorker(t)
	require.Equal(t, "completed", b.getStatus(t, first.ID).State)
	require.Equal(t, "completed", b.getStatus(t, second.ID).State)
}

// registerWithout hides one request.
type registerWithout struct {
	*memory.ErasureRegister
	id event.ID
}

func (w registerWithout) Erasures(ctx context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ports.ErasureRequest, error) {
	all, err := w.ErasureRegister.Erasures(ctx, tenantID, states, limit)
	return slices.DeleteFunc(all, func(r ports.ErasureRequest) bool { return r.ID == w.id }), err
}

// TestFollowUps requests a follow-up for each ended request that kept a class until a day that
// has passed, however many have ended.
func TestFollowUps(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	register := b.register.Erasures()
	yesterday, tomorrow := event.DateOf(start).AddDays(-1), event.DateOf(start).AddDays(1)
	end := func(n int, until *event.Date) {
		id := b.ids.NewID(start)
		require.NoError(t, register.AddErasure(t.Context(), ports.ErasureRequest{
			ID: id, TenantID: "acme", Subject: shredding.Subject(fmt.Sprintf("employee:E-%d", n)), Partitions: []event.PartitionID{b.de.Partition},
			Basis: shredding.GDPRArticle17, Reason: "asked by letter", RequestedBy: "p-officer", RequestedAt: start.Add(time.Duration(n) * time.Second), DueOn: tomorrow,
		}))
		r, err := register.Erasure(t.Context(), "acme", id)
		require.NoError(t, err)
		r.State, r.EndReason, r.Classes = shredding.ErasureRefused, "retention", []ports.ErasureClass{{Class: shredding.KeyRegulatory, Refused: "retention", Until: until}}
		_, err = register.MoveErasure(t.Context(), r)
		require.NoError(t, err)
	}
	const over = 450 // more than two pages
	for n := range over {
		end(n, &yesterday)
	}
	end(over, &tomorrow)
	end(over+1, nil)
	for range 2 {
		testkit.Must(erasure.NewWorker(b.config)).FollowUp(t.Context())
		requested, err := register.Erasures(t.Context(), "acme", []shredding.ErasureState{shredding.ErasureRequested}, 0)
		require.NoError(t, err)
		require.Len(t, requested, over)
	}
}
