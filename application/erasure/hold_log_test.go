package erasure_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// brokenHolds is a register in which no hold can be stored, like that of a call that dies there.
type brokenHolds struct{ ports.ErasureRegister }

func (brokenHolds) PlaceHold(context.Context, ports.LegalHold) error { return errInjected }

// TestPlaceHold_DiesBeforeTheRow places a hold whose event is recorded and whose row is not.
func TestPlaceHold_DiesBeforeTheRow(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	s := b.createApprovedRequest(t)
	config := b.config
	config.Register = brokenHolds{config.Register}
	_, err := testkit.Must(erasure.NewService(config, func() {})).PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "proceedings"})
	require.ErrorIs(t, err, errInjected)
	stored, err := b.register.Erasures().AllHolds(t.Context(), "acme")
	require.NoError(t, err)
	require.Empty(t, stored)

	b.runNewWorker(t)
	require.Equal(t, shredding.ErasureRefused, b.storedRequest(t, s.ID).State, "the hold of the log is in force")
	stored, err = b.register.Erasures().AllHolds(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, stored, 1)
	require.Equal(t, officer.PersonID, stored[0].PlacedBy)
}

// TestReleaseHold_OfTwoPersons lifts a hold twice: the first event counts.
func TestReleaseHold_OfTwoPersons(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	placed, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "proceedings"})
	require.NoError(t, err)
	_, err = b.service.ReleaseHold(t.Context(), approver, placed[0].ID)
	require.NoError(t, err)
	b.clock.Advance(time.Hour)
	again, err := b.service.ReleaseHold(t.Context(), officer, placed[0].ID)
	require.NoError(t, err)
	require.Equal(t, approver.PersonID, again.ReleasedBy)
	events, err := b.journal.Revisions(t.Context(), "acme", event.StreamID{Type: shredding.HoldStream, ID: placed[0].ID.String()})
	require.NoError(t, err)
	require.Len(t, events, 2)
	actor, err := events[1].Actor()
	require.NoError(t, err)
	require.Equal(t, approver.PersonID, actor.ID)

	_, err = b.service.ReleaseHold(t.Context(), officer, b.ids.NewID(start))
	require.Equal(t, "erasure.not_found", fault.CodeOf(err))
}

// TestWorker_HoldLiftedByHand lifts a hold in the register alone, as a session of the database
// could.
func TestWorker_HoldLiftedByHand(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	b.appendEvents(t, b.de, contactedType, "E-1", 1)
	placed, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "proceedings"})
	require.NoError(t, err)
	_, err = b.register.Erasures().ReleaseHold(t.Context(), "acme", placed[0].ID, approver.PersonID, b.clock.Now())
	require.NoError(t, err)
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	r := b.storedRequest(t, s.ID)
	require.Equal(t, shredding.ErasureApproved, r.State)
	require.Equal(t, "erasure.hold_forged", r.LastError)
}
