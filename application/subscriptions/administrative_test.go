package subscriptions_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// administratorAccess lets every principal read the administrative log too.
type administratorAccess struct {
	subscriptions.Access
	fixture *conformance.SubscriptionFixture
}

func (a administratorAccess) Readable(context.Context, ports.Principal) ([]ports.LegalEntity, error) {
	return a.fixture.Entities, nil
}

// The administrative log is delivered to a subscription that names it, and to no other.
func TestPoll_AdministrativeLog(t *testing.T) {
	t.Parallel()
	clock := conformance.NewClock()
	fixture := conformance.NewSubscriptionFixture(t, conformance.NewMemoryStore(memory.Config{Clock: clock}), clock, "t")
	c := conformance.NewDeliveryFixture(fixture, func(config *subscriptions.Config) { config.Access = administratorAccess{config.Access, fixture} })
	log, err := c.Store.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: c.Tenant, Code: ports.AdministrativeCode, Name: "Administration", TimeZone: "UTC", Status: "active", CreatedAt: c.Clock.Now()})
	require.NoError(t, err)
	c.Entities = append(c.Entities, log)
	c.Subscribe(t, "s", subscription.Settings{}, subscription.Filter{})
	c.Subscribe(t, "named", subscription.Settings{}, subscription.Filter{LegalEntities: []string{ports.AdministrativeCode}})
	decided, posted := c.Write(t, 2, 2, "decision"), c.Write(t, 0, 1, "invoice")
	require.Equal(t, posted, ids(poll(t, c, subscriptions.Poll{Limit: 10})))
	named, err := c.Service.Poll(t.Context(), c.Person, subscriptions.Poll{ID: "named", Limit: 10})
	require.NoError(t, err)
	require.Equal(t, decided, ids(named.Deliveries))
}
