package simulation

import (
	"context"

	"github.com/erpbackbone/backbone/cmd/wire"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// slowDeliveries passes what a node does in the transaction of a delivery through its link: it takes
// time and fails, and a node that is frozen in it loses the transaction.
type slowDeliveries struct {
	link *link
	wire.SubscriptionStore
}

// Deliver implements ports.Deliveries.
func (s slowDeliveries) Deliver(ctx context.Context, uid event.ID, p event.PartitionID, wait bool, f func(context.Context, ports.DeliveryTx) error) (bool, error) {
	return s.SubscriptionStore.Deliver(ctx, uid, p, wait, func(ctx context.Context, tx ports.DeliveryTx) error {
		_, err := s.link.call(ctx, about("DeliveryTx", p), func() error { return f(ctx, tx) })
		return err
	})
}
