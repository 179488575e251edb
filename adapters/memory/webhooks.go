package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Webhooks keeps the endpoints of subscriptions and their newest attempts.
type Webhooks struct{ *state }

// AddWebhookAttempts implements ports.WebhookAttempts.
func (s *Webhooks) AddWebhookAttempts(ctx context.Context, subscription event.ID, attempts []ports.WebhookAttempt, keep int) error {
	return s.do(ctx, func() error {
		if _, there := s.endpoints[subscription]; !there {
			return nil
		}
		all := append(slices.Clone(s.attempts[subscription]), attempts...)
		slices.SortStableFunc(all, func(a, b ports.WebhookAttempt) int {
			return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
		})
		s.attempts[subscription] = all[max(len(all)-keep, 0):]
		return nil
	})
}

// WebhookAttempts implements ports.WebhookAttempts.
func (s *Webhooks) WebhookAttempts(ctx context.Context, subscription event.ID, limit int) ([]ports.WebhookAttempt, error) {
	return get(ctx, s.state, func() ([]ports.WebhookAttempt, error) {
		out := append([]ports.WebhookAttempt{}, s.attempts[subscription]...)
		slices.Reverse(out)
		return out[:min(limit, len(out))], nil
	})
}

// WebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) WebhookEndpoint(ctx context.Context, subscription event.ID) (ports.WebhookEndpoint, error) {
	return get(ctx, s.state, func() (ports.WebhookEndpoint, error) {
		e, found := s.endpoints[subscription]
		if !found {
			return e, fault.New(fault.NotFound, "webhook.endpoint_not_found", "this subscription has no endpoint; give it one")
		}
		return e, nil
	})
}

// WebhookEndpoints implements ports.WebhookEndpoints.
func (s *Webhooks) WebhookEndpoints(ctx context.Context, tenantID string) ([]ports.WebhookEndpoint, error) {
	return get(ctx, s.state, func() ([]ports.WebhookEndpoint, error) {
		return list(maps.Values(s.endpoints), func(e ports.WebhookEndpoint) bool { return tenantID == "" || e.TenantID == tenantID }, func(a, b ports.WebhookEndpoint) int {
			return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), a.Subscription.Compare(b.Subscription))
		}), nil
	})
}

// FormerHosts lists the hosts that endpoints had in an earlier release: there are none.
func (s *Webhooks) FormerHosts(ctx context.Context, _ string) ([]ports.WebhookHost, error) {
	return nil, ctx.Err()
}

// SaveWebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) SaveWebhookEndpoint(ctx context.Context, e ports.WebhookEndpoint) error {
	return s.do(ctx, func() error {
		if s.endpoints[e.Subscription].Revision != e.Revision-1 {
			return ports.WebhookEndpointChanged()
		}
		s.endpoints[e.Subscription] = e
		return nil
	})
}

// DeleteWebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) DeleteWebhookEndpoint(ctx context.Context, subscription event.ID) error {
	return s.do(ctx, func() error {
		delete(s.endpoints, subscription)
		delete(s.attempts, subscription)
		return nil
	})
}
