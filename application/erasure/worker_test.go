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

// TestConcurrentWorkers lets four workers, as on four nodes, carry out ten requests.
func TestConcurrentWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const requests = 10
	ids := make([]event.ID, requests)
	for i := range ids {
		employee := fmt.Sprintf("E-%d", i)
		b.hire(t, b.de, contacted, employee, 2)
		ids[i] = b.approved(t, func(n *erasure.NewRequest) { n.Subject = "employee:" + employee }).ID
	}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() { testkit.Must(erasure.NewWorker(b.config)).Run(ctx) })
	}
	testkit.Eventually(t, time.Minute, func() bool {
		b.clock.Advance(250 * time.Millisecond)
		for _, id := range ids {
			if b.get(t, id).State != "completed" {
				return false
			}
		}
		return true
	})
	stop()
	workers.Wait()
	require.Len(t, b.announcements(t, b.de), requests)
	require.Len(t, b.exports.names(), 2*requests)
	previous := event.Hash{}
	for n := range uint64(requests) {
		note := b.exports.documents[erasure.ReceiptName(n+1)]
		text, _, _ := bytes.Cut(note, []byte("\n\n"))
		r, err := erasure.ParseReceipt(append(bytes.Clone(text), '\n'))
		require.NoError(t, err)
		require.Equal(t, previous, r.Previous)
		previous = hash(note)
	}
	for _, id := range ids {
		b.certificate(t, id)
	}
}

// TestApprovalWakesWorker completes a request over 20 events while the only node
// acknowledges at once; nothing polls within the test's time.
func TestApprovalWakesWorker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 20)
	b.report(t, "node-1", 0)
	b.config.Poll = time.Hour
	worker := testkit.Must(erasure.NewWorker(b.config))
	b.service = testkit.Must(erasure.NewService(b.config, worker.Wake))
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { worker.Run(ctx) })
	s := b.approved(t)
	testkit.Eventually(t, time.Minute, func() bool { return b.get(t, s.ID).State == "announced" })
	require.Equal(t, "announced", b.get(t, s.ID).State, "the node has not forgotten the key yet")
	b.report(t, "node-1", b.raw(t, s.ID).Generation)
	testkit.Eventually(t, time.Minute, func() bool {
		b.clock.Advance(200 * time.Millisecond)
		return b.get(t, s.ID).State == "completed"
	})
}

func TestWorkerWaitsForSilentNode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.report(t, "deaf", 0)
	b.report(t, "gone", 0)
	b.clock.Advance(119 * time.Second)
	b.report(t, "deaf", 0)
	s := b.approved(t)
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	for range 61 {
		require.Equal(t, "announced", b.get(t, s.ID).State)
		b.clock.Advance(time.Second)
		worker.RunOnce(t.Context())
	}
	b.clock.Advance(time.Second)
	worker.RunOnce(t.Context())
	s = b.get(t, s.ID)
	require.Equal(t, "completed", s.State)
	require.Empty(t, b.observer.failures, "waiting is no failure")
	c, _ := b.certificate(t, s.ID)
	require.Equal(t, 62*time.Second, c.Times.Confirmed.Sub(c.Times.Destroyed))
}

// TestWorkerWaitsForProjection is waited for: a copy that it wrote afterwards would stay.
func TestWorkerWaitsForProjection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 2)
	b.reached = func(event.Sequence) event.Sequence { return 2 }
	s := b.approved(t)
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	require.Equal(t, "evicted", b.get(t, s.ID).State)
	require.EqualValues(t, 2, b.copies.rows[b.de.Partition][subject])
	b.clock.Advance(time.Second)
	worker.RunOnce(t.Context())
	require.Empty(t, b.observer.failures)
	b.clock.Advance(time.Minute)
	worker.RunOnce(t.Context())
	require.Equal(t, []string{"evicted"}, b.observer.failures, "somebody should know by now")
	require.Equal(t, "erasure.projection_behind", b.raw(t, s.ID).LastError)
	b.reached = func(head event.Sequence) event.Sequence { return head }
	b.clock.Advance(time.Minute)
	worker.RunOnce(t.Context())
	require.Equal(t, "completed", b.get(t, s.ID).State)
}

// TestWorkerRepeatsFailingStep fails more often than the alarm's limit.
func TestWorkerRepeatsFailingStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.approved(t)
	var logged bytes.Buffer
	b.config.Logger = slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelError}))
	notes := b.config.Notes
	b.config.Notes = brokenSigner{notes}
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	worker.RunOnce(t.Context())
	require.Len(t, b.observer.failures, 1, "not before its time")
	for i := range 6 {
		require.Equal(t, i >= erasure.AlarmAttempts-1, bytes.Contains(logged.Bytes(), []byte("an operator has to find the cause")), "attempt %d", i+1)
		b.clock.Advance(time.Hour)
		worker.RunOnce(t.Context())
	}
	s = b.get(t, s.ID)
	require.Equal(t, "destroyed", s.State)
	require.Equal(t, erasure.Step{State: "receipted", Attempts: 7, LastError: "kms.unavailable"}, s.Steps[5])
	b.config.Notes = notes
	b.work(t)
	require.Equal(t, "completed", b.get(t, s.ID).State)
}

type brokenSigner struct{ ports.NoteSigner }

func (brokenSigner) SignNote(context.Context, []byte) ([]byte, error) {
	return nil, fault.New(fault.Unavailable, "kms.unavailable", "away")
}

// TestWorkerRecoversPanic stops the request and not the process, and its panic is not
// quoted.
func TestWorkerRecoversPanic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 1)
	s := b.approved(t)
	var logged bytes.Buffer
	b.config.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	b.config.Copies = panicking{b.copies}
	b.work(t)
	require.Equal(t, "erasure.panicked", b.raw(t, s.ID).LastError)
	require.NotContains(t, logged.String(), "ada@example.org")
	require.Equal(t, "evicted", b.get(t, s.ID).State)
}

type panicking struct{ *copies }

func (panicking) Forget(context.Context, string, event.PartitionID, shredding.Subject, event.Sequence) error {
	panic(errors.New("ada@example.org"))
}

func TestVerificationFindsReadableValues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 1)
	s := b.approved(t)
	b.opener.alive = true
	worker := testkit.Must(erasure.NewWorker(b.config))
	worker.RunOnce(t.Context())
	require.Equal(t, "rebuilt", b.get(t, s.ID).State)
	require.Equal(t, "erasure.still_readable", b.raw(t, s.ID).LastError)

	b.opener.alive = false
	b.copies.add(b.de.Partition, subject) // by an event that came late
	b.clock.Advance(time.Minute)
	worker.RunOnce(t.Context())
	require.Equal(t, "completed", b.get(t, s.ID).State)
	require.Zero(t, b.copies.rows[b.de.Partition][subject])
}

// TestLateEvent was sealed before and recorded after the destruction, as may happen
// with a key store of its own.
func TestLateEvent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.hire(t, b.de, contacted, "E-1", 1)
	s := b.approved(t)
	b.stopAt(t, shredding.ErasureAnnounced)
	b.config.Records = late{b.config.Records, b.raw(t, s.ID).DestroyedAt.Add(time.Millisecond)}
	b.work(t)
	c, _ := b.certificate(t, s.ID)
	require.Len(t, c.Verification.Late, 1)
	require.Equal(t, "DEMF", c.Verification.Late[0].LegalEntity)
	require.EqualValues(t, 1, c.Verification.Late[0].Sequence)
}

type late struct {
	ports.PersonalRecords
	at time.Time
}

func (l late) PersonalEvents(ctx context.Context, p event.PartitionID, s shredding.Subject, after event.Sequence, limit int) ([]event.Recorded, error) {
	found, err := l.PersonalRecords.PersonalEvents(ctx, p, s, after, limit)
	for i := range found {
		found[i].RecordedAt = l.at
	}
	return found, err
}

// TestReplacedSigner keeps the note that was stored first.
func TestReplacedSigner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.approved(t)
	b.exports.away = true
	config := b.config
	config.Gate = open{}
	testkit.Must(erasure.NewWorker(config)).RunOnce(t.Context())
	require.Equal(t, "destroyed", b.get(t, s.ID).State)
	stored := b.receipts(t)[0].Note
	require.NotEmpty(t, stored)
	require.False(t, b.receipts(t)[0].Exported)

	b.exports.away = false
	b.kms.key = newKMS(2).key
	b.work(t)
	require.Equal(t, string(stored), string(b.exports.documents[erasure.ReceiptName(1)]))
}

type open struct{}

func (open) Check(context.Context) error { return nil }

// TestReceiptOrder lets a worker meet the second receipt first.
func TestReceiptOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.approved(t)
	b.stopAt(t, shredding.ErasureDestroyed)
	b.clock.Advance(time.Minute)
	second := b.approved(t, func(n *erasure.NewRequest) { n.Subject = "employee:E-2" })
	config := b.config
	config.Register = without{b.register.Erasures(), first.ID}
	testkit.Must(erasure.NewWorker(config)).RunOnce(t.Context())
	require.Equal(t, "destroyed", b.get(t, second.ID).State)
	require.Empty(t, b.receipts(t)[1].Note, "its text would lack the hash of the first")
	require.Empty(t, b.observer.failures)
	b.work(t)
	require.Equal(t, "completed", b.get(t, first.ID).State)
	require.Equal(t, "completed", b.get(t, second.ID).State)
}

// without hides a request from a worker.
type without struct {
	*memory.ErasureRegister
	id event.ID
}

func (w without) Erasures(ctx context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ports.ErasureRequest, error) {
	all, err := w.ErasureRegister.Erasures(ctx, tenantID, states, limit)
	return slices.DeleteFunc(all, func(r ports.ErasureRequest) bool { return r.ID == w.id }), err
}
