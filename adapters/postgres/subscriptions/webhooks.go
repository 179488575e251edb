package subscriptions

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/subscriptionsdb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Webhooks stores the endpoints of webhooks and the newest attempts to deliver to them.
type Webhooks struct {
	db      *pg.Database
	queries *subscriptionsdb.Queries
}

// NewWebhooks makes the store of webhook endpoints and their attempts.
func NewWebhooks(db *pg.Database) *Webhooks {
	return &Webhooks{db: db, queries: subscriptionsdb.New()}
}

var (
	_ ports.WebhookEndpoints = (*Webhooks)(nil)
	_ ports.WebhookAttempts  = (*Webhooks)(nil)
)

func webhookEndpoint(w *subscriptionsdb.BackboneWebhookEndpoint) ports.WebhookEndpoint {
	names := w.HeaderNames
	if len(names) == 0 {
		names = nil
	}
	return ports.WebhookEndpoint{
		HeaderNames: names, Headers: w.Headers, PersonalReason: w.PersonalReason.String,
		Subscription: event.ID(w.Subscription.Bytes), TenantID: w.TenantID, URL: w.Url, SecretNumber: int(w.SecretNumber),
		PreviousUntil: pg.TimeOrZero(w.PreviousUntil), DisabledAt: pg.TimeOrZero(w.DisabledAt), DisabledCode: w.DisabledCode.String,
		Revision: w.Revision, CreatedAt: w.CreatedAt.UTC(), UpdatedAt: w.UpdatedAt.UTC(),
	}
}

// WebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) WebhookEndpoint(ctx context.Context, subscription event.ID) (ports.WebhookEndpoint, error) {
	r, err := s.queries.GetWebhookEndpoint(ctx, s.db.Reads, pg.UUID(subscription))
	if errors.Is(err, pgx.ErrNoRows) {
		return ports.WebhookEndpoint{}, fault.New(fault.NotFound, "webhook.endpoint_not_found", "this subscription has no endpoint; give it one")
	}
	if err != nil {
		return ports.WebhookEndpoint{}, pg.Translate(ctx, err)
	}
	return webhookEndpoint(&r.BackboneWebhookEndpoint), nil
}

// WebhookEndpoints implements ports.WebhookEndpoints.
func (s *Webhooks) WebhookEndpoints(ctx context.Context, tenantID string) ([]ports.WebhookEndpoint, error) {
	rows, err := s.queries.ListWebhookEndpoints(ctx, s.db.Reads, tenantID)
	return pg.MapRows(ctx, rows, err, func(r *subscriptionsdb.ListWebhookEndpointsRow) ports.WebhookEndpoint {
		return webhookEndpoint(&r.BackboneWebhookEndpoint)
	})
}

// SaveWebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) SaveWebhookEndpoint(ctx context.Context, e ports.WebhookEndpoint) error {
	var saved int64
	var err error
	names := append([]string{}, e.HeaderNames...) // never NULL
	if e.Revision == 1 {
		saved, err = s.queries.InsertWebhookEndpoint(ctx, s.db.Reads, &subscriptionsdb.InsertWebhookEndpointParams{
			Subscription: pg.UUID(e.Subscription), TenantID: e.TenantID, Url: e.URL, SecretNumber: int32(e.SecretNumber), PreviousUntil: pg.OptionalTime(e.PreviousUntil),
			DisabledAt: pg.OptionalTime(e.DisabledAt), DisabledCode: pg.OptionalText(e.DisabledCode), CreatedAt: e.CreatedAt, UpdatedAt: e.UpdatedAt, HeaderNames: names, Headers: e.Headers,
			PersonalReason: pg.OptionalText(e.PersonalReason),
		})
	} else {
		saved, err = s.queries.UpdateWebhookEndpoint(ctx, s.db.Reads, &subscriptionsdb.UpdateWebhookEndpointParams{
			Subscription: pg.UUID(e.Subscription), Url: e.URL, SecretNumber: int32(e.SecretNumber), PreviousUntil: pg.OptionalTime(e.PreviousUntil),
			DisabledAt: pg.OptionalTime(e.DisabledAt), DisabledCode: pg.OptionalText(e.DisabledCode), ExpectedRevision: e.Revision - 1, UpdatedAt: e.UpdatedAt, HeaderNames: names, Headers: e.Headers,
			PersonalReason: pg.OptionalText(e.PersonalReason),
		})
	}
	if err != nil {
		return pg.Translate(ctx, err)
	}
	if saved == 0 {
		return ports.WebhookEndpointChanged()
	}
	return nil
}

// DeleteWebhookEndpoint implements ports.WebhookEndpoints.
func (s *Webhooks) DeleteWebhookEndpoint(ctx context.Context, subscription event.ID) error {
	if err := s.queries.DeleteWebhookEndpoint(ctx, s.db.Reads, pg.UUID(subscription)); err != nil {
		return pg.Translate(ctx, err)
	}
	return pg.Translate(ctx, s.queries.DeleteWebhookAttempts(ctx, s.db.Reads, pg.UUID(subscription)))
}

// AddWebhookAttempts implements ports.WebhookAttempts.
func (s *Webhooks) AddWebhookAttempts(ctx context.Context, subscription event.ID, attempts []ports.WebhookAttempt, keep int) error {
	p := subscriptionsdb.InsertWebhookAttemptsParams{Subscription: pg.UUID(subscription)}
	for i := range attempts {
		a := &attempts[i]
		p.EventIds, p.AttemptedAt, p.NextAt = append(p.EventIds, pg.UUID(a.EventID)), append(p.AttemptedAt, a.At), append(p.NextAt, timeOrEpoch(a.Next))
		p.Sequences, p.Partitions = append(p.Sequences, int64(a.Sequence)), append(p.Partitions, int32(a.Partition))
		p.Attempts, p.Statuses = append(p.Attempts, int32(a.Attempt)), append(p.Statuses, int32(a.Status))
		p.Durations, p.Codes = append(p.Durations, int32(a.Duration.Milliseconds())), append(p.Codes, a.Code)
	}
	if len(attempts) == 0 {
		return ctx.Err()
	}
	if err := s.queries.InsertWebhookAttempts(ctx, s.db.Reads, &p); err != nil {
		return pg.Translate(ctx, err)
	}
	return pg.Translate(ctx, s.queries.TrimWebhookAttempts(ctx, s.db.Reads, &subscriptionsdb.TrimWebhookAttemptsParams{Subscription: pg.UUID(subscription), Newest: int32(keep)}))
}

// WebhookAttempts implements ports.WebhookAttempts.
func (s *Webhooks) WebhookAttempts(ctx context.Context, subscription event.ID, limit int) ([]ports.WebhookAttempt, error) {
	rows, err := s.queries.ListWebhookAttempts(ctx, s.db.Reads, &subscriptionsdb.ListWebhookAttemptsParams{Subscription: pg.UUID(subscription), Newest: int32(limit)})
	return pg.MapRows(ctx, rows, err, func(row *subscriptionsdb.ListWebhookAttemptsRow) ports.WebhookAttempt {
		r := &row.BackboneWebhookAttempt
		return ports.WebhookAttempt{
			EventID: event.ID(r.EventID.Bytes), Partition: event.PartitionID(r.PartitionID), Sequence: event.Sequence(r.Sequence), Attempt: int(r.Attempt),
			At: r.AttemptedAt.UTC(), Status: int(r.Status), Code: r.Code, Duration: time.Duration(r.DurationMs) * time.Millisecond, Next: pg.TimeOrZero(r.NextAt),
		}
	})
}

// FormerHosts lists the hosts that an earlier release allowed, by host. Nothing is added to them.
func (s *Webhooks) FormerHosts(ctx context.Context, tenantID string) ([]ports.WebhookHost, error) {
	rows, err := s.queries.ListWebhookHosts(ctx, s.db.Reads, tenantID)
	return pg.MapRows(ctx, rows, err, func(r *subscriptionsdb.ListWebhookHostsRow) ports.WebhookHost {
		return ports.WebhookHost{TenantID: tenantID, Host: r.Host, AddedBy: r.AddedBy, AddedAt: r.AddedAt.UTC()}
	})
}
