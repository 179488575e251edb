package redaction_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// recorded returns the types and actors of the events of a request, and requires that the last
// one binds its row.
func (f *fixture) recorded(t *testing.T, id event.ID) (types, actors []string) {
	t.Helper()
	events, err := f.journal.Revisions(t.Context(), "acme", event.StreamID{Type: shredding.RedactionStream, ID: id.String()})
	require.NoError(t, err)
	var last shredding.RedactionRecord
	for i := range events {
		actor, err := events[i].Actor()
		require.NoError(t, err)
		raw, err := events[i].Data()
		require.NoError(t, err)
		last = shredding.RedactionRecord{}
		require.NoError(t, json.Unmarshal(raw, &last))
		types, actors = append(types, events[i].Type), append(actors, actor.ID)
	}
	r, err := f.store.Redactions.RedactionRequest(t.Context(), "acme", id)
	require.NoError(t, err)
	row, err := r.Digest()
	require.NoError(t, err)
	require.Equal(t, hex.EncodeToString(row[:]) == last.Row, r.Revision == last.Revision)
	return types, actors
}

func TestJournal_RecordsEveryMove(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.approved(t, moved, "/data/remark")
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	require.Equal(t, "completed", f.state(t, s.ID).State)
	types, actors := f.recorded(t, s.ID)
	require.Equal(t, []string{
		"backbone.redaction.requested", "backbone.redaction.approved", "backbone.redaction.carried_out", "backbone.redaction.progressed",
		"backbone.redaction.progressed", "backbone.redaction.certified",
	}, types)
	require.Equal(t, []string{"p-1", "p-2"}, actors[:2])
}

// TestService_PreviewOfAnotherPerson has the approver preview a request again, whose event has
// changed since.
func TestService_PreviewOfAnotherPerson(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.request(t, visit, "/data/parts/0/text")
	f.approved(t, visit, "/data/report")
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	for range 2 { // the second one changes nothing
		previewed, err := f.service.Preview(t.Context(), person("p-2"), s.ID)
		require.NoError(t, err)
		require.NotEqual(t, s.Scope, previewed.Scope)
	}
	_, actors := f.recorded(t, s.ID)
	require.Equal(t, []string{"p-1", "p-2"}, actors)
	_, err := f.service.Approve(t.Context(), person("p-2"), s.ID, "")
	require.NoError(t, err)
	f.clock.Advance(time.Minute)
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	require.Equal(t, "completed", f.state(t, s.ID).State)
}

// TestWorker_ApprovalNeedsItsEvent writes the approval into the row alone, as a session of the
// database could.
func TestWorker_ApprovalNeedsItsEvent(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.request(t, moved, "/data/remark")
	scope, err := hex.DecodeString(s.Scope)
	require.NoError(t, err)
	_, err = f.store.Redactions.ApproveRedaction(t.Context(), f.entity.Partition, s.ID, "p-2", event.Hash(scope))
	require.NoError(t, err)
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	require.Equal(t, "approved", f.state(t, s.ID).State, "nothing is redacted without the event of the approval")
	require.Equal(t, "redaction.approval_unrecorded", f.state(t, s.ID).LastError)

	_, err = f.service.Approve(t.Context(), person("p-2"), s.ID, "") // as after a call that was cut off
	require.NoError(t, err)
	f.clock.Advance(time.Minute)
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	require.Equal(t, "completed", f.state(t, s.ID).State)
}

// TestWorker_ClockAhead carries nothing out without the event of the approval, also where the
// node's clock is ahead of the store's, for which the approval has not expired.
func TestWorker_ClockAhead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.request(t, moved, "/data/remark")
	r, err := f.store.Redactions.RedactionRequest(t.Context(), "acme", s.ID)
	require.NoError(t, err)
	_, err = f.store.Redactions.ApproveRedaction(t.Context(), f.entity.Partition, s.ID, "p-2", r.Scope)
	require.NoError(t, err)
	f.config.Clock = testkit.NewClock(start.Add(shredding.ApprovalValidity))
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	require.Equal(t, "expired", f.state(t, s.ID).State)
	require.Contains(t, string(f.stored(t, moved).Payload), "for Ada")
}

// brokenJournal is an administrative log that cannot be written.
type brokenJournal struct{ ports.AdministrativeLog }

var errBroken = errors.New("the log cannot be written")

func (brokenJournal) RecordRevision(context.Context, string, event.Actor, ports.Revision) error {
	return errBroken
}

// damagedJournal is an administrative log that is damaged for one tenant.
type damagedJournal struct{ ports.AdministrativeLog }

func (d damagedJournal) AdoptRevisions(ctx context.Context, tenantID, name string, rows func(context.Context) ([]ports.Revision, error)) (event.Sequence, error) {
	if tenantID != "acme" {
		return 0, errBroken
	}
	return d.AdministrativeLog.AdoptRevisions(ctx, tenantID, name, rows)
}

// TestWorker_RecordsDespiteADamagedTenant has what a call left recorded though the logs of other
// tenants are damaged.
func TestWorker_RecordsDespiteADamagedTenant(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tenant := range []string{"b", "c", "d", "e", "f", "g", "h"} {
		_, err := f.store.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: tenant, Code: "DEMF", TimeZone: "Europe/Berlin"})
		require.NoError(t, err)
	}
	s := f.request(t, moved, "/data/remark")
	config := f.config
	config.Journal = brokenJournal{f.journal}
	_, err := testkit.Must(redaction.NewService(config, func() {})).Withdraw(t.Context(), person("p-1"), s.ID, "a mistake")
	require.ErrorIs(t, err, errBroken)
	f.clock.Advance(2 * time.Minute)
	config.Journal = damagedJournal{f.journal}
	testkit.Must(redaction.NewWorker(config)).Work(t.Context())
	types, _ := f.recorded(t, s.ID)
	require.Contains(t, types, "backbone.redaction.withdrawn")
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

func TestWorker_RecordsOnceWhileItWaits(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.approved(t, moved, "/data/remark")
	journal := &countingJournal{AdministrativeLog: f.journal}
	f.config.Journal = journal
	f.readers.behind = true
	worker := testkit.Must(redaction.NewWorker(f.config))
	worker.Work(t.Context())
	records := journal.records
	for range 3 {
		worker.Work(t.Context())
		require.Equal(t, "announced", f.state(t, s.ID).State)
	}
	require.Equal(t, records, journal.records, "a request that waits is not looked up in the log again")
	f.readers.behind = false
	worker.Work(t.Context())
	require.Equal(t, "completed", f.state(t, s.ID).State)
	types, _ := f.recorded(t, s.ID)
	require.Len(t, types, 6)
}

func TestWorker_RecordsWhatACallLeft(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.request(t, moved, "/data/remark")
	config := f.config
	config.Journal = brokenJournal{f.journal}
	_, err := testkit.Must(redaction.NewService(config, func() {})).Withdraw(t.Context(), person("p-1"), s.ID, "a mistake")
	require.ErrorIs(t, err, errBroken)
	require.Equal(t, "withdrawn", f.state(t, s.ID).State)
	f.clock.Advance(2 * time.Minute)
	for range 2 {
		testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	}
	types, actors := f.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.redaction.requested", "backbone.redaction.withdrawn"}, types)
	require.Equal(t, "s-backbone-operator", actors[1])
}

// editedStreams reads approvals with another payload, as a session of the database could leave them.
type editedStreams struct{ *memory.EventReader }

// ReadStream implements ports.StreamReader.
func (s editedStreams) ReadStream(ctx context.Context, q ports.StreamQuery) ([]event.Recorded, bool, error) {
	events, more, err := s.EventReader.ReadStream(ctx, q)
	for i := range events {
		if e := &events[i]; e.Type == shredding.RedactionStream+".approved" {
			e.Payload = append(bytes.TrimSuffix(e.Payload, []byte("}")), ` }`...)
		}
	}
	return events, more, err
}

// TestWorker_RefusesAnEditedApproval edits the payload of an approval under its own hash.
func TestWorker_RefusesAnEditedApproval(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.approved(t, moved, "/data/remark")
	config := f.config
	config.Journal = f.newJournal(editedStreams{f.store.Events})
	testkit.Must(redaction.NewWorker(config)).Work(t.Context())
	require.Equal(t, "approved", f.state(t, s.ID).State)
	require.Equal(t, "administration.log_broken", f.state(t, s.ID).LastError)
	f.clock.Advance(time.Minute)
	testkit.Must(redaction.NewWorker(f.config)).Work(t.Context())
	require.Equal(t, "completed", f.state(t, s.ID).State)
}

// TestService_RecordsNoDecisionOfAnother repeats calls about requests that another person has
// decided on, whose call died before its event.
func TestService_RecordsNoDecisionOfAnother(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	config := f.config
	config.Journal = brokenJournal{f.journal}
	dying := testkit.Must(redaction.NewService(config, func() {}))
	n := f.newRequest(moved, "/data/remark")
	n.IdempotencyKey = "k"
	s, err := f.service.Request(t.Context(), person("p-1"), n)
	require.NoError(t, err)
	_, err = dying.Approve(t.Context(), person("p-2"), s.ID, "")
	require.ErrorIs(t, err, errBroken)
	again, err := f.service.Request(t.Context(), person("p-1"), n)
	require.NoError(t, err)
	require.Equal(t, []any{s.ID, "approved"}, []any{again.ID, again.State})
	types, _ := f.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.redaction.requested"}, types, "the requester does not approve")

	_, err = f.service.Approve(t.Context(), person("p-2"), s.ID, "")
	require.NoError(t, err)
	_, err = dying.Withdraw(t.Context(), person("p-2"), s.ID, "a mistake")
	require.ErrorIs(t, err, errBroken)
	_, err = f.service.Withdraw(t.Context(), person("p-3"), s.ID, "a mistake too")
	require.NoError(t, err)
	types, actors := f.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.redaction.requested", "backbone.redaction.approved", "backbone.redaction.withdrawn"}, types)
	require.Equal(t, []string{"p-1", "p-2", "s-backbone-operator"}, actors)
}
