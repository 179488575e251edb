package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Webhooks implements ports.WebhookEndpoints and ports.WebhookAttempts. The zero value is empty.
type Webhooks struct {
	mu       sync.Mutex
	rows     map[event.ID]ports.WebhookEndpoint
	attempts map[event.ID][]ports.WebhookAttempt // by time
}

// AddWebhookAttempts implements ports.WebhookAttempts.
func (s *Webhooks) AddWebhookAttempts(ctx context.Context, subscription event.ID, attempts []ports.WebhookAttempt, keep int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.rows[subscription]; !there {
		return nil
	}
	if s.attempts == nil {
		s.attempts = map[event.ID][]ports.WebhookAttempt{}
	}
	all := append(slices.Clone(s.attempts[subscription]), attempts...)
	slices.SortStableFunc(all, func(a, b ports.WebhookAttempt) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Sequence, b.Sequence))
	})
	s.attempts[subscription] = all[max(len(all)-keep, 0):]
	return nil
}

// WebhookAttempts implements ports.WebhookAttempts.
func (s *Webhooks) WebhookAttempts(ctx context.Context, subscription event.ID, limit int) ([]ports.WebhookAttempt, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := append([]ports.WebhookAttempt{}, s.attempts[subscription]...)
	slices.Reverse(out)
	return out[:min(limit, len(out))], nil
}

// WebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) WebhookEndpoint(ctx context.Context, subscription event.ID) (ports.WebhookEndpoint, error) {
	if err := ctx.Err(); err != nil {
		return ports.WebhookEndpoint{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e, found := s.rows[subscription]
	if !found {
		return e, fault.New(fault.NotFound, "webhook.endpoint_not_found", "this subscription has no endpoint; give it one")
	}
	return e, nil
}

// WebhookEndpoints implements ports.WebhookEndpoints.
func (s *Webhooks) WebhookEndpoints(ctx context.Context, tenantID string) ([]ports.WebhookEndpoint, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]ports.WebhookEndpoint, 0, len(s.rows))
	for _, e := range s.rows {
		if tenantID == "" || e.TenantID == tenantID {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b ports.WebhookEndpoint) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), bytes.Compare(a.Subscription[:], b.Subscription[:]))
	})
	return out, nil
}

// SaveWebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) SaveWebhookEndpoint(ctx context.Context, e ports.WebhookEndpoint) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[e.Subscription].Revision != e.Revision-1 {
		return fault.New(fault.Conflict, "webhook.endpoint_changed", "somebody else changed the endpoint meanwhile; read it and try again")
	}
	if s.rows == nil {
		s.rows = map[event.ID]ports.WebhookEndpoint{}
	}
	s.rows[e.Subscription] = e
	return nil
}

// DeleteWebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) DeleteWebhookEndpoint(ctx context.Context, subscription event.ID) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.rows, subscription)
	delete(s.attempts, subscription)
	return nil
}
