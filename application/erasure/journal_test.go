package erasure_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// recorded returns the types and actors of the events of a request, and the data of the last one.
func (b *erasureFixture) recorded(t *testing.T, id event.ID) (types, actors []string, last shredding.ErasureRecord) {
	t.Helper()
	events, err := b.journal.Revisions(t.Context(), "acme", event.StreamID{Type: shredding.ErasureStream, ID: id.String()})
	require.NoError(t, err)
	for i := range events {
		actor, err := events[i].Actor()
		require.NoError(t, err)
		raw, err := events[i].Data()
		require.NoError(t, err)
		last = shredding.ErasureRecord{}
		require.NoError(t, json.Unmarshal(raw, &last))
		types, actors = append(types, events[i].Type), append(actors, actor.ID)
	}
	return types, actors, last
}

// requireBound requires that the last event of a request binds its row.
func (b *erasureFixture) requireBound(t *testing.T, id event.ID) {
	t.Helper()
	r := b.storedRequest(t, id)
	row, err := r.Digest()
	require.NoError(t, err)
	_, _, last := b.recorded(t, id)
	require.Equal(t, hex.EncodeToString(row[:]), last.Row)
	require.Equal(t, r.Revision, last.Revision)
}

func TestJournal_RecordsEveryMove(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 2)
	s := b.createApprovedRequest(t)
	_, err := b.service.Approve(t.Context(), approver, s.ID, "") // records nothing again
	require.NoError(t, err)
	b.runNewWorker(t)
	require.Equal(t, string(shredding.ErasureCompleted), b.getStatus(t, s.ID).State)

	types, actors, last := b.recorded(t, s.ID)
	require.Equal(t, []string{
		"backbone.erasure.requested", "backbone.erasure.previewed", "backbone.erasure.approved", "backbone.erasure.fenced", "backbone.erasure.carried_out",
		"backbone.erasure.progressed", "backbone.erasure.progressed", "backbone.erasure.progressed", "backbone.erasure.progressed", "backbone.erasure.progressed",
		"backbone.erasure.certified",
	}, types)
	require.Equal(t, []string{officer.PersonID, officer.PersonID, approver.PersonID}, actors[:3])
	require.NotContains(t, actors[3:], approver.PersonID)
	require.Equal(t, uint64(1), last.Receipt)
	require.NotEmpty(t, last.ReceiptSHA256)
	require.ElementsMatch(t, []string{"DEMF", "USMF", ports.AdministrativeCode}, last.LegalEntities)
	b.requireBound(t, s.ID)
}

// TestWorker_ApprovalNeedsItsEvent writes the approval into the register alone, as a session of
// the database could.
func TestWorker_ApprovalNeedsItsEvent(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createRequest(t)
	r := b.storedRequest(t, s.ID)
	_, err := b.register.Erasures().ApproveErasure(t.Context(), s.ID, approver.PersonID, r.Scope, b.clock.Now())
	require.NoError(t, err)
	b.runNewWorker(t)
	require.Equal(t, shredding.ErasureApproved, b.storedRequest(t, s.ID).State, "nothing is erased without the event of the approval")
	types, _, _ := b.recorded(t, s.ID)
	require.NotContains(t, types, "backbone.erasure.approved")

	_, err = b.service.Approve(t.Context(), approver, s.ID, "") // as after a call that was cut off
	require.NoError(t, err)
	b.runNewWorker(t)
	require.Equal(t, shredding.ErasureCompleted, b.storedRequest(t, s.ID).State)
	b.requireBound(t, s.ID)
}

// brokenJournal is an administrative log that cannot be written while it is broken.
type brokenJournal struct {
	ports.AdministrativeLog
	broken bool
}

func (j *brokenJournal) RecordRevision(ctx context.Context, tenantID string, actor event.Actor, r ports.Revision) error {
	if j.broken {
		return errInjected
	}
	return j.AdministrativeLog.RecordRevision(ctx, tenantID, actor, r)
}

func TestWorker_RecordsWhatACallLeft(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	s := b.createRequest(t)
	journal := &brokenJournal{b.journal, true}
	config := b.config
	config.Journal = journal
	service := testkit.Must(erasure.NewService(config, func() {}))
	_, err := service.Withdraw(t.Context(), officer, s.ID, "a mistake")
	require.ErrorIs(t, err, errInjected)
	require.Equal(t, shredding.ErasureWithdrawn, b.storedRequest(t, s.ID).State)

	b.runNewWorker(t)
	types, _, _ := b.recorded(t, s.ID)
	require.NotContains(t, types, "backbone.erasure.withdrawn", "the call may still be at work")
	b.clock.Advance(2 * time.Minute)
	b.runNewWorker(t)
	b.runNewWorker(t)
	types, actors, last := b.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.erasure.requested", "backbone.erasure.previewed", "backbone.erasure.withdrawn"}, types)
	require.Equal(t, "s-backbone-operator", actors[2], "the person is in the data")
	require.Equal(t, officer.PersonID, last.EndedBy)
	b.requireBound(t, s.ID)
}

// TestJournal_AdoptsRequests begins with a request that an earlier release stored as approved.
func TestJournal_AdoptsRequests(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	config := b.config
	b.config.Journal = unrecorded{b.journal}
	b.service = testkit.Must(erasure.NewService(b.config, func() {}))
	s := b.createApprovedRequest(t)
	types, _, _ := b.recorded(t, s.ID)
	require.Empty(t, types)

	b.config = config
	b.runNewWorker(t)
	require.Equal(t, shredding.ErasureCompleted, b.storedRequest(t, s.ID).State)
	types, actors, _ := b.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.erasure.approved", "backbone.erasure.fenced"}, types[:2])
	require.Equal(t, "s-backbone-operator", actors[0])
	b.requireBound(t, s.ID)
}

// unrecorded is a release without an administrative log of requests.
type unrecorded struct{ ports.AdministrativeLog }

func (unrecorded) RecordRevision(context.Context, string, event.Actor, ports.Revision) error {
	return nil
}

func (unrecorded) AdoptRevisions(context.Context, string, string, func(context.Context) ([]ports.Revision, error)) (event.Sequence, error) {
	return 0, nil
}

// TestService_RecordsNoDecisionOfAnother repeats calls about requests that another person has
// decided on, whose call died before its event.
func TestService_RecordsNoDecisionOfAnother(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	config := b.config
	config.Journal = &brokenJournal{b.journal, true}
	dying := testkit.Must(erasure.NewService(config, func() {}))
	keyed := func(n *erasure.NewRequest) { n.IdempotencyKey = "k" }
	s := b.createRequest(t, keyed)
	_, err := dying.Approve(t.Context(), approver, s.ID, "")
	require.ErrorIs(t, err, errInjected)
	again := b.createRequest(t, keyed)
	require.Equal(t, []any{s.ID, "approved"}, []any{again.ID, again.State})
	types, _, _ := b.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.erasure.requested", "backbone.erasure.previewed"}, types, "the requester does not approve")

	_, err = b.service.Approve(t.Context(), approver, s.ID, "")
	require.NoError(t, err)
	_, err = dying.Withdraw(t.Context(), approver, s.ID, "a mistake")
	require.ErrorIs(t, err, errInjected)
	_, err = b.service.Withdraw(t.Context(), officer, s.ID, "a mistake too")
	require.NoError(t, err)
	types, actors, last := b.recorded(t, s.ID)
	require.Equal(t, []string{"backbone.erasure.approved", "backbone.erasure.withdrawn"}, types[2:])
	require.Equal(t, []string{approver.PersonID, "s-backbone-operator"}, actors[2:])
	require.Equal(t, approver.PersonID, last.EndedBy)
}
