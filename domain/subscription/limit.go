package subscription

import "github.com/erpbackbone/backbone/domain/fault"

// LimitReached is the fault of a tenant that has as many subscriptions as it may.
func LimitReached(most int) error {
	return fault.New(fault.FailedPrecondition, "subscription.too_many",
		"the tenant has as many subscriptions as it may have, %d; delete one that nobody needs, or let an operator raise subscriptions.per_tenant", most)
}
