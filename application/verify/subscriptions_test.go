package verify_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestRun_Subscriptions compares the rows of subscriptions with the administrative log.
func TestRun_Subscriptions(t *testing.T) {
	t.Parallel()
	log, v := administered(t)
	rows := log.Database.Subscriptions
	one := subscription.Subscription{
		UID: event.ID{1}, TenantID: "acme", ID: "one", Owner: "p-1", SubscriberType: "service", SubscriberID: "bank", Status: subscription.Active, Revision: 1, CreatedAt: start,
		Filter: subscription.Filter{EventTypes: []string{"gl.journal.posted"}}, Settings: subscription.Settings{MaxRetries: 5},
	}
	by := ports.Principal{PersonID: "p-1", ActorType: event.Human, RoleLabel: "module"}
	require.NoError(t, log.Subscriptions().Decide(t.Context(), ports.SubscriptionDecision{Action: ports.SubscriptionCreated, Subscription: one, By: by}))
	store := func(sub subscription.Subscription) {
		t.Helper()
		require.NoError(t, rows.DeleteSubscription(t.Context(), event.ID{1}))
		require.NoError(t, rows.DeleteSubscription(t.Context(), event.ID{2}))
		_, created, err := rows.CreateSubscription(t.Context(), sub, nil, 0)
		require.NoError(t, err)
		require.True(t, created)
	}
	store(one)
	require.Empty(t, kinds(t, v))
	mismatch := []verify.FindingKind{verify.SubscriptionMismatch}
	moved := subscription.Start{From: subscription.End}
	for name, edit := range map[string]func(s *subscription.Subscription){
		"another type":         func(s *subscription.Subscription) { s.Filter.EventTypes = []string{"gl.journal.reversed"} },
		"another legal entity": func(s *subscription.Subscription) { s.Filter.LegalEntities = []string{"DEMF"} },
		"fewer attempts":       func(s *subscription.Subscription) { s.Settings.MaxRetries = 1 },
		"another owner":        func(s *subscription.Subscription) { s.Owner = "p-2" },
		"another receiver":     func(s *subscription.Subscription) { s.SubscriberID = "thief" },
		"paused":               func(s *subscription.Subscription) { s.Status = subscription.Paused },
		"moved":                func(s *subscription.Subscription) { s.ResetStart = &moved },
		"created later":        func(s *subscription.Subscription) { s.CreatedAt = start.Add(time.Hour) },
		"another subscription": func(s *subscription.Subscription) { s.UID = event.ID{2} },
	} {
		edited := one
		edit(&edited)
		store(edited)
		require.Equal(t, mismatch, kinds(t, v), name)
	}
	parked := one
	parked.Status, parked.Revision, parked.Failures = subscription.Parked, 9, 10
	store(parked)
	require.Empty(t, kinds(t, v), "a breaker is no decision")

	require.NoError(t, rows.DeleteSubscription(t.Context(), one.UID))
	require.Equal(t, mismatch, kinds(t, v), "removed")
	require.NoError(t, log.Subscriptions().Decide(t.Context(), ports.SubscriptionDecision{Action: ports.SubscriptionDeleted, Subscription: one, Before: 1, By: by}))
	require.Empty(t, kinds(t, v), "deleted")
	store(one)
	require.Equal(t, mismatch, kinds(t, v), "still there")
	require.Contains(t, firstDetail(t, v), "as it was before this event")
	other := one
	other.Owner = "p-2"
	store(other)
	require.Contains(t, firstDetail(t, v), "no event created it")
}

// firstDetail says what the first finding in the administrative log is.
func firstDetail(t *testing.T, v *tamperedLog) string {
	t.Helper()
	reports, err := verify.Run(t.Context(), v, "acme", []string{ports.AdministrativeCode}, nil)
	require.NoError(t, err)
	return reports[0].Findings[0].Detail
}

// formerRows are decisions about messages that an earlier release stored.
type formerRows []ports.ParkedDecision

func (f formerRows) FormerDecisions(_ context.Context, tenantID string, after ports.ParkedDecision, limit int) ([]ports.ParkedDecision, error) {
	left := slices.DeleteFunc(slices.Clone(f), func(d ports.ParkedDecision) bool { return d.TenantID != tenantID || d.Partition <= after.Partition })
	return left[:min(limit, len(left))], nil
}

// TestRun_FormerDecisions compares the decisions of an earlier release with their digest, which the log
// takes over once.
func TestRun_FormerDecisions(t *testing.T) {
	t.Parallel()
	rows := formerRows{{TenantID: "other"}}
	for p := range event.PartitionID(2500) { // several pages
		rows = append(rows, ports.ParkedDecision{TenantID: "acme", Subscription: "s", Partition: p + 1, Action: "discard", Actor: "p-1", Reason: "a test"})
	}
	log := testkit.Must(conformance.NewAdministrativeLog(testkit.NewClock(start), administration.AdoptMessageDecisions(rows)))
	_, err := log.Of(t.Context(), "acme")
	require.NoError(t, err)
	v := vaultOn(log.Database)
	v.former = rows
	require.Empty(t, kinds(t, v))
	mismatch := []verify.FindingKind{verify.SubscriptionMismatch}
	v.former = slices.Clone(rows)
	v.former[2400].Actor = "p-2"
	require.Equal(t, mismatch, kinds(t, v), "edited")
	v.former = rows[:2400]
	require.Equal(t, mismatch, kinds(t, v), "deleted")
	v.former = append(rows, ports.ParkedDecision{TenantID: "acme", Partition: 9000})
	require.Equal(t, mismatch, kinds(t, v), "invented")
}
