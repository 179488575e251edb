package subscriptions_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// boundAccess gives every principal one sight.
type boundAccess struct {
	subscriptions.Access
	sight *module.Sight
}

func (a boundAccess) Sight(context.Context, ports.Principal) (module.Sight, error) {
	return *a.sight, nil
}

// A service gets no events that it does not see, also none that were stored for it before.
func TestPoll_LeavesOutWhatTheOwnerDoesNotSee(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	var sight module.Sight
	c := conformance.NewDeliveryFixture(conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t"), func(config *subscriptions.Config) {
		config.Access = boundAccess{config.Access, &sight}
	})
	c.Subscribe(t, "s", subscription.Settings{PartitionBy: subscription.PerStream}, subscription.Filter{})
	c.Write(t, 0, 3, "a")
	require.Empty(t, poll(t, c, subscriptions.Poll{}), "bound to nothing")

	sight = module.FullSight()
	written := c.Write(t, 0, 2, "a")
	got := poll(t, c, subscriptions.Poll{Limit: 1})
	require.Equal(t, written[:1], ids(got), "those before were read past")
	refuse(t, c, subscription.RetryLater, "later", got[0].Event.ID)
	sight = module.Sight{}
	clock.Advance(24 * time.Hour)
	require.Empty(t, poll(t, c, subscriptions.Poll{}), "a binding that shrank")

	owners := map[string]string{got[0].Event.Type: "conformance"}
	sight = module.NewSight(ports.Binding{Modules: []string{"conformance"}}, owners, nil)
	require.Equal(t, c.Write(t, 0, 1, "b"), ids(poll(t, c, subscriptions.Poll{})))
}
