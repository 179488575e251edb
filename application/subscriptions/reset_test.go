package subscriptions_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// A legal entity that joins after a reset begins where the reset went, unless the caller of the
// reset sees only some legal entities. The definition stays as it was requested.
func TestReset_AppliesToLegalEntitiesThatJoinLater(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]struct {
		to    func(noon time.Time) subscription.Start
		by    func(owner ports.Principal) subscriptions.Caller // nil: the owner
		comes int                                              // of three events, the first and second written before the subscription was made, the third before the reset
	}{
		"none":             {nil, nil, 1},
		"to the beginning": {func(time.Time) subscription.Start { return subscription.Start{From: subscription.Beginning} }, nil, 3},
		"to a time": {func(noon time.Time) subscription.Start {
			return subscription.Start{From: subscription.AtTime, Time: noon}
		}, nil, 2},
		"to the end": {func(time.Time) subscription.Start { return subscription.Start{From: subscription.End} }, nil, 0},
		"to a position": {func(time.Time) subscription.Start {
			return subscription.Start{From: subscription.Position, Positions: map[string]event.Sequence{"AA": 1}}
		}, nil, 1},
		"by an operator": {func(time.Time) subscription.Start { return subscription.Start{From: subscription.Beginning} }, func(p ports.Principal) subscriptions.Caller {
			return subscriptions.Caller{Principal: ports.Principal{TenantID: p.TenantID, PersonID: "o"}, Operator: true}
		}, 3},
		"by one who sees A": {func(time.Time) subscription.Start { return subscription.Start{From: subscription.Beginning} }, func(p ports.Principal) subscriptions.Caller {
			return subscriptions.Caller{Principal: ports.Principal{TenantID: p.TenantID, PersonID: "o", LegalEntities: []string{"AA"}}, Operator: true}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := counter(t)
			c.Write(t, 0, 1, "one")
			joins := c.Write(t, 1, 1, "two")
			c.Clock.Advance(time.Minute)
			noon := c.Clock.Now()
			joins = append(joins, c.Write(t, 1, 1, "two")...)
			c.Clock.Advance(time.Minute)
			c.Person.LegalEntities = []string{"AA"}
			settings := subscription.Settings{Start: subscription.Start{From: subscription.End}}
			c.Subscribe(t, "s", settings, subscription.Filter{})
			c.Clock.Advance(time.Minute)
			joins = append(joins, c.Write(t, 1, 1, "two")...)
			c.Clock.Advance(time.Minute)
			if r.to != nil {
				by := owner(c)
				if r.by != nil {
					by = r.by(c.Person)
				}
				_, err := c.Service.Reset(t.Context(), by, "s", r.to(noon))
				require.NoError(t, err)
				acknowledge(t, c, ids(poll(t, c, subscriptions.Poll{}))...)
			}
			c.Clock.Advance(time.Minute)
			c.Person.LegalEntities = nil
			want := append(slices.Clone(joins[len(joins)-r.comes:]), c.Write(t, 1, 1, "two")...)
			require.Equal(t, want, ids(poll(t, c, subscriptions.Poll{})))
			_, created, err := c.Service.Create(t.Context(), c.Person, subscription.Subscription{ID: "s", SubscriberType: "service", SubscriberID: "suite", Settings: settings})
			require.NoError(t, err)
			require.False(t, created)
		})
	}
}
