package disclosure_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// TestReader_WaitingEndsWithContext checks that a reader who gives up does not go on waiting behind
// another one whose store hangs.
func TestReader_WaitingEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.store.hangs = true
		r, err := f.service.Reader(t.Context(), clerk, opening)
		require.NoError(t, err)
		opened := []module.Opened{{Partition: f.entity.Partition, Subject: "person:P-1", Class: shredding.Contact, Values: 1}}
		hanging, giveUp := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Disclose(hanging, opened) }()
		synctest.Wait()

		began := time.Now()
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Disclose(brief, opened), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		giveUp()
		require.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestReader_RecordsWhatItIsGiven(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	r, err := f.service.Reader(t.Context(), clerk, opening)
	require.NoError(t, err)
	require.True(t, r.Reads("any.type", shredding.Contact))
	require.False(t, r.Reads("any.type", shredding.Bank))
	var opened []module.Opened
	for i := range 300 {
		opened = append(opened, module.Opened{Partition: f.entity.Partition, Subject: shredding.Subject(fmt.Sprintf("person:P-%03d", i)), Class: shredding.Contact, Values: 3})
	}
	require.NoError(t, r.Disclose(t.Context(), opened))
	require.Equal(t, 1, f.store.inserts, "one statement for a page")
	found := f.search(t, ports.AccessQuery{Subject: "person:P-017"})
	require.Len(t, found, 1)
	require.NotZero(t, found[0].ID)
	found[0].ID = event.ID{}
	require.Equal(t, access.Access{
		At: start, PersonID: "p-clerk", PrincipalID: "p-clerk-1", Kind: access.PersonalData, Operation: "getEvent", LegalEntity: "USMF",
		Subject: "person:P-017", Class: shredding.Contact, Values: 3, Reason: "ticket 4711", RequestID: "request-1",
	}, found[0])
}

func TestReader_FailsWhenItCannotRecord(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.store.refusal = fault.New(fault.Unavailable, "store.unavailable", "the database does not answer; try again")
	r, err := f.service.Reader(t.Context(), clerk, opening)
	require.NoError(t, err)
	require.ErrorIs(t, r.Disclose(t.Context(), []module.Opened{{Subject: "person:P-1", Class: shredding.Contact}}), f.store.refusal)
}

func TestCheckReason(t *testing.T) {
	t.Parallel()
	require.NoError(t, disclosure.CheckReason("Access-Reason", "review of the vendor master, ticket 4711"))
	for reason, code := range map[string]string{
		strings.Repeat("x", 501): "access.reason_invalid", "two\nlines": "access.reason_invalid", "asked by olga@example.org": "pii.in_text",
	} {
		require.Equal(t, code, fault.CodeOf(disclosure.CheckReason("Access-Reason", reason)))
	}
}

func TestSearch_Pages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for i := range 5 {
		f.open(t, shredding.Subject(fmt.Sprintf("person:P-%d", i)))
	}
	var subjects []string
	cursor := ""
	for range 3 {
		page, next, err := f.service.Search(t.Context(), clerk, ports.AccessQuery{Limit: 2}, cursor)
		require.NoError(t, err)
		for _, a := range page {
			subjects = append(subjects, a.Subject.ID())
		}
		cursor = next
	}
	require.Equal(t, []string{"P-4", "P-3", "P-2", "P-1", "P-0"}, subjects)
	require.Empty(t, cursor)

	_, next, err := f.service.Search(t.Context(), clerk, ports.AccessQuery{Limit: 2}, "")
	require.NoError(t, err)
	_, _, err = f.service.Search(t.Context(), clerk, ports.AccessQuery{Limit: 2, Subject: "person:P-1"}, next)
	require.Equal(t, "cursor.foreign", fault.CodeOf(err))
	_, _, err = f.service.Search(t.Context(), clerk, ports.AccessQuery{Limit: 2}, "nonsense")
	require.Equal(t, "cursor.malformed", fault.CodeOf(err))
	other := clerk
	other.TenantID = "other"
	found, _, err := f.service.Search(t.Context(), other, ports.AccessQuery{Limit: 2}, "")
	require.NoError(t, err)
	require.Empty(t, found)
}

func TestRecorder_BindsHoursToTheChain(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	f.open(t, "person:P-1")
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Empty(t, f.periods(t), "the hour has not ended")
	f.clock.Advance(time.Hour)
	f.open(t, "person:P-2") // in the next hour
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Len(t, f.periods(t), 1)
	f.clock.Advance(5 * time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Len(t, f.periods(t), 2)
	f.clock.Advance(5 * time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Len(t, f.periods(t), 2, "nothing was read")
}

// TestRecorder_SettlesOnce waits once for the accesses that are being stored, for all tenants.
func TestRecorder_SettlesOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.store.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "other", Code: "USMF", TimeZone: "UTC", Status: "active"})
	require.NoError(t, err)
	require.NoError(t, f.log.BeginAll(t.Context()))
	logs, err := f.store.AdministrativeLogs(t.Context(), "")
	require.NoError(t, err)
	require.Len(t, logs, 2)
	for _, log := range logs {
		require.NoError(t, f.store.AddAccesses(t.Context(), log.Partition, []access.Access{{ID: event.ID{byte(log.Partition)}, PersonID: "p-clerk", Kind: access.PersonalData}}))
	}
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	f.store.settled.Store(0)
	f.clock.Advance(time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.EqualValues(t, 1, f.store.settled.Load())
	for _, log := range logs {
		recorded, err := f.store.StreamStatus(t.Context(), log.Partition, access.AccessStream)
		require.NoError(t, err)
		require.EqualValues(t, 1, recorded.Version, log.TenantID)
	}
}

func TestRecorder_Race(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.open(t, "person:P-1")
	f.clock.Advance(time.Hour)
	var running sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		node := f.node(t)
		running.Go(func() { errs[i] = node.RunOnce(context.Background()) })
	}
	running.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Len(t, f.periods(t), 1)
}

func TestRecorder_DeletesAfterTheRetention(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.open(t, "person:P-1")
	f.clock.Advance(24 * time.Hour)
	f.open(t, "person:P-2")
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	f.clock.Advance(time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Len(t, f.periods(t), 2)

	f.clock.Advance(retention - 2*time.Hour) // the first period is over the retention, the second is not
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	found := f.search(t, ports.AccessQuery{})
	require.Len(t, found, 2, "the first period ended with its run, a day after its access")
	f.clock.Advance(time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	found = f.search(t, ports.AccessQuery{})
	require.Len(t, found, 1)
	require.EqualValues(t, "person:P-2", found[0].Subject)

	f.clock.Advance(24 * time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Empty(t, f.search(t, ports.AccessQuery{}))
	f.clock.Advance(2 * retention)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	last := f.periods(t)[len(f.periods(t))-1]
	require.Zero(t, last.Accesses)
	require.EqualValues(t, 2, last.DeletedThrough)
	require.Len(t, f.periods(t), 4, "without accesses there is nothing to say")
}

// A node that dies between the event and the deletion leaves accesses that the next run deletes.
func TestRecorder_CrashBeforeDeletion(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.open(t, "person:P-1")
	f.clock.Advance(time.Hour)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	f.clock.Advance(retention)
	crashed := errors.New("crash")
	dying, err := disclosure.NewRecorder(disclosure.RecorderConfig{
		Accesses: dyingAccesses{f.store, crashed}, Entities: f.store, Streams: f.store, Administration: f.log, Clock: f.clock, Logger: f.recorder.Logger, Limits: f.recorder.Limits,
	})
	require.NoError(t, err)
	require.ErrorIs(t, dying.RunOnce(t.Context()), crashed)
	require.Len(t, f.search(t, ports.AccessQuery{}), 1)
	require.NoError(t, f.recorder.RunOnce(t.Context()))
	require.Empty(t, f.search(t, ports.AccessQuery{}))
}

type dyingAccesses struct {
	ports.AccessLog
	crash error
}

func (d dyingAccesses) DeleteAccesses(context.Context, event.PartitionID, time.Time, int) (int, error) {
	return 0, d.crash
}
