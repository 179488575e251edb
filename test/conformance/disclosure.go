package conformance

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// AccessLogHarness is a record of reads under test.
type AccessLogHarness struct {
	Accesses ports.AccessLog
	// Age moves the time of the accesses that are stored into the past.
	Age func(t *testing.T, by time.Duration)
}

// RunAccessLog checks the record of reads.
func RunAccessLog(t *testing.T, h AccessLogHarness) {
	t.Helper()
	const log, other = event.PartitionID(41), event.PartitionID(42)
	ids, ctx := newIDSource(), t.Context()
	access := func(person string, subject shredding.Subject, class shredding.Class, kind disclosure.Kind) disclosure.Access {
		return disclosure.Access{
			ID: ids.next(), PersonID: person, PrincipalID: person + "-1", Kind: kind, Operation: "getEvent", LegalEntity: "DEMF",
			Subject: subject, Class: class, Values: 2, Reason: "a reason", RequestID: "request-1",
		}
	}
	search := func(q ports.AccessQuery) []disclosure.Access {
		q.Log = log
		found, err := h.Accesses.SearchAccesses(ctx, q)
		require.NoError(t, err)
		return found
	}
	all := func() []disclosure.Access {
		var found []disclosure.Access
		for a, err := range h.Accesses.Accesses(ctx, log, time.Time{}, time.Date(9000, 1, 1, 0, 0, 0, 0, time.UTC)) {
			require.NoError(t, err)
			found = append(found, a)
		}
		return found
	}

	oldest, err := h.Accesses.OldestAccess(ctx, log)
	require.NoError(t, err)
	require.Zero(t, oldest)
	before, err := h.Accesses.SettleAccesses(ctx)
	require.NoError(t, err)
	first := []disclosure.Access{
		access("p-1", "person:P-1", shredding.Contact, disclosure.PersonalData),
		access("p-1", "person:P-1", shredding.Bank, disclosure.PersonalData),
		access("p-1", "person:P-2", shredding.Contact, disclosure.PersonalData),
	}
	first[1].GrantID = ids.next()
	require.NoError(t, h.Accesses.AddAccesses(ctx, log, first))
	for _, stored := range search(ports.AccessQuery{Class: shredding.Bank}) {
		require.Equal(t, first[1].GrantID, stored.GrantID)
	}
	require.NoError(t, h.Accesses.AddAccesses(ctx, log, []disclosure.Access{access("p-2", "", "", disclosure.Export)}))
	require.NoError(t, h.Accesses.AddAccesses(ctx, other, []disclosure.Access{access("p-3", "", "", disclosure.Export)}))
	after, err := h.Accesses.SettleAccesses(ctx)
	require.NoError(t, err)

	found := all()
	require.Len(t, found, 4)
	for i := range first {
		require.False(t, found[i].At.Before(before), "the time is the store's")
		require.False(t, found[i].At.After(after))
		first[i].At = found[i].At
		require.Equal(t, first[i], found[i])
	}
	newest := slices.Clone(found)
	slices.Reverse(newest)
	require.Equal(t, newest, search(ports.AccessQuery{}))
	require.Equal(t, newest[:2], search(ports.AccessQuery{Limit: 2}))
	require.Equal(t, newest[2:], search(ports.AccessQuery{BeforeAt: newest[1].At, BeforeID: newest[1].ID}))
	for name, q := range map[string]ports.AccessQuery{
		"person":  {PersonID: "p-2"},
		"subject": {Subject: "person:P-2"},
		"class":   {Class: shredding.Bank},
		"kind":    {Kind: disclosure.Export},
	} {
		require.Len(t, search(q), 1, name)
	}
	require.Empty(t, search(ports.AccessQuery{To: found[0].At}))
	require.Len(t, search(ports.AccessQuery{From: found[0].At}), 4)

	// No young access is deleted, whatever the caller asks for.
	deleted, err := h.Accesses.DeleteAccesses(ctx, log, after.Add(365*24*time.Hour), 100)
	require.NoError(t, err)
	require.Zero(t, deleted)
	h.Age(t, 8*24*time.Hour)
	require.NoError(t, h.Accesses.AddAccesses(ctx, log, first[:0]))
	require.NoError(t, h.Accesses.AddAccesses(ctx, log, []disclosure.Access{access("p-4", "", "", disclosure.Report)}))
	oldest, err = h.Accesses.OldestAccess(ctx, log)
	require.NoError(t, err)
	require.Equal(t, all()[0].At, oldest)
	for _, want := range []int{3, 1, 0} {
		deleted, err = h.Accesses.DeleteAccesses(ctx, log, after.Add(365*24*time.Hour), 3)
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}
	require.Len(t, all(), 1)
}
