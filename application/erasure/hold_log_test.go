package erasure_test

import (
	"context"
	"strings"
	"sync"
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
	_, _, err := testkit.Must(erasure.NewService(config, func() {})).PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "proceedings"})
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

// A repeated call with the same key places no second hold, also after it died in between, and
// releases nothing: it returns the holds as they are. Other content under the key is refused.
func TestPlaceHold_IdempotencyKey(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	both := erasure.NewHold{Subject: subject, LegalEntities: []string{"USMF", "DEMF"}, Reason: "proceedings", IdempotencyKey: "k-1"}
	dying := b.config
	dying.Register = brokenHolds{dying.Register}
	_, _, err := testkit.Must(erasure.NewService(dying, func() {})).PlaceHold(t.Context(), officer, both)
	require.ErrorIs(t, err, errInjected)
	first, replayed, err := b.service.PlaceHold(t.Context(), officer, both)
	require.NoError(t, err)
	require.False(t, replayed, "the first call died after one of two")
	require.Len(t, first, 2)
	_, err = b.service.ReleaseHold(t.Context(), approver, first[0].ID)
	require.NoError(t, err)
	b.clock.Advance(23 * time.Hour) // another day
	again, replayed, err := b.service.PlaceHold(t.Context(), officer, both)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, approver.PersonID, again[0].ReleasedBy)
	require.Equal(t, first[1], again[1])
	stored, err := b.register.Erasures().AllHolds(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, stored, 2)

	until := event.DateOf(b.clock.Now()).AddDays(7)
	for name, change := range map[string]func(*erasure.NewHold){
		"subject": func(n *erasure.NewHold) { n.Subject = "employee:E-9" }, "reason": func(n *erasure.NewHold) { n.Reason = "audit" }, "until": func(n *erasure.NewHold) { n.Until = &until },
		"fewer": func(n *erasure.NewHold) { n.LegalEntities = n.LegalEntities[1:] }, "other": func(n *erasure.NewHold) { n.LegalEntities = n.LegalEntities[:1] }, "tenant": func(n *erasure.NewHold) { n.LegalEntities = nil },
	} {
		n := both
		change(&n)
		_, _, err := b.service.PlaceHold(t.Context(), officer, n)
		require.Equal(t, "idempotency.mismatch", fault.CodeOf(err), name)
	}
	one := both
	one.LegalEntities, one.IdempotencyKey = []string{"DEMF"}, "k-2"
	_, _, err = b.service.PlaceHold(t.Context(), officer, one)
	require.NoError(t, err)
	one.LegalEntities = both.LegalEntities
	_, _, err = b.service.PlaceHold(t.Context(), officer, one)
	require.Equal(t, "idempotency.mismatch", fault.CodeOf(err), "more")
	one.IdempotencyKey = strings.Repeat("k", 256)
	_, _, err = b.service.PlaceHold(t.Context(), officer, one)
	require.Equal(t, "idempotency.key_invalid", fault.CodeOf(err))
	_, replayed, err = b.service.PlaceHold(t.Context(), approver, both)
	require.NoError(t, err)
	require.False(t, replayed, "keys are those of a person")
}

// Of calls with the same key at the same time one places the hold.
func TestPlaceHold_RaceOfOneKey(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	n := erasure.NewHold{Subject: subject, Reason: "proceedings", IdempotencyKey: "k-1"}
	other := n
	other.Reason = "audit"
	var running sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		running.Go(func() {
			ask := n
			if i%4 == 3 {
				ask = other
			}
			_, _, errs[i] = b.service.PlaceHold(context.Background(), officer, ask)
		})
	}
	running.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil {
			require.Equal(t, "idempotency.mismatch", fault.CodeOf(err))
			refused++
		}
	}
	stored, err := b.register.Erasures().AllHolds(t.Context(), "acme")
	require.NoError(t, err)
	require.Len(t, stored, 1)
	require.Equal(t, map[string]int{n.Reason: 2, other.Reason: 6}[stored[0].Reason], refused)
}

// TestReleaseHold_OfTwoPersons lifts a hold twice: the first event counts.
func TestReleaseHold_OfTwoPersons(t *testing.T) {
	t.Parallel()
	b := newErasureFixture(t)
	placed, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "proceedings"})
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
	placed, _, err := b.service.PlaceHold(t.Context(), officer, erasure.NewHold{Subject: subject, Reason: "proceedings"})
	require.NoError(t, err)
	_, err = b.register.Erasures().ReleaseHold(t.Context(), "acme", placed[0].ID, approver.PersonID, b.clock.Now())
	require.NoError(t, err)
	s := b.createApprovedRequest(t)
	b.runNewWorker(t)
	r := b.storedRequest(t, s.ID)
	require.Equal(t, shredding.ErasureApproved, r.State)
	require.Equal(t, "erasure.hold_forged", r.LastError)
}
