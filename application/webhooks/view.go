package webhooks

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// Caller is a principal that reads endpoints.
type Caller struct {
	ports.Principal
	Operator bool // may read endpoints of other persons in the legal entities of Principal
}

// visible returns those of subs that the caller may know of.
func (s *Service) visible(ctx context.Context, c Caller, subs ...subscription.Subscription) ([]subscription.Subscription, error) {
	reader := subscription.Reader{PersonID: c.PersonID, Operator: c.Operator, LegalEntities: c.LegalEntities}
	return subscription.Visible(reader, subs, func(tenantID, personID string) ([]string, error) {
		owner, err := s.config.Principals.PrincipalByPerson(ctx, tenantID, personID)
		if fault.KindOf(err) == fault.NotFound {
			return nil, nil
		}
		return owner.LegalEntities, err
	})
}

// visibleURL returns the part of an endpoint's address that the caller may see. A query such as
// ?code=... is often the only secret that a receiver checks, so only the owner sees it.
func (c *Caller) visibleURL(sub *subscription.Subscription, url string) string {
	if before, _, found := strings.Cut(url, "?"); found && sub.Owner != c.PersonID {
		return before + "?..."
	}
	return url
}

// findVisible finds a webhook's subscription that the caller may see.
func (s *Service) findVisible(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.config.Subscriptions.Subscription(ctx, c.TenantID, id)
	if err != nil {
		return sub, err
	}
	visible, err := s.visible(ctx, c, sub)
	if err != nil {
		return sub, err
	}
	if len(visible) == 0 {
		return sub, fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription that you may see; GET /api/subscriptions lists them")
	}
	if sub.SubscriberType != subscription.Webhook {
		return sub, fault.New(fault.FailedPrecondition, "webhook.not_a_webhook", "only a subscription with subscriber_type webhook has an endpoint; make one")
	}
	return sub, nil
}

// Schedule lists the pauses after failed attempts. A message that fails once more after the last
// pause is a dead letter.
func Schedule(s *subscription.Settings) []time.Duration {
	out := make([]time.Duration, 0, max(s.MaxRetries, 0))
	for n := 1; n <= s.MaxRetries; n++ {
		out = append(out, s.Backoff(n))
	}
	return out
}

// ListedEndpoint is an endpoint in a list.
type ListedEndpoint struct {
	Endpoint
	Subscription subscription.Subscription
	Last         *Attempt // the newest; nil: none yet
}

// List returns the endpoints that the caller may see, by subscription.
func (s *Service) List(ctx context.Context, c Caller) ([]ListedEndpoint, error) {
	all, err := s.config.Endpoints.WebhookEndpoints(ctx, c.TenantID)
	out := []ListedEndpoint{}
	if err != nil || len(all) == 0 {
		return out, err
	}
	subs, err := s.config.Subscriptions.Subscriptions(ctx, c.TenantID)
	if err == nil {
		subs, err = s.visible(ctx, c, subs...)
	}
	if err != nil {
		return nil, err
	}
	codes, err := s.legalEntityCodes(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		i := slices.IndexFunc(subs, func(sub subscription.Subscription) bool { return sub.UID == e.Subscription })
		if i < 0 || e.DisabledCode == codeDeleted {
			continue
		}
		l := ListedEndpoint{Endpoint: Endpoint{WebhookEndpoint: e}, Subscription: subs[i]}
		l.URL = c.visibleURL(&subs[i], l.URL)
		newest, err := s.attempts(ctx, c, e.Subscription, codes, 1)
		if err != nil {
			return nil, err
		}
		if len(newest) > 0 {
			l.Last = &newest[0]
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b ListedEndpoint) int { return cmp.Compare(a.Subscription.ID, b.Subscription.ID) })
	return out, nil
}

// Attempt is the outcome of an attempt, with the code of the event's legal entity.
type Attempt struct {
	ports.WebhookAttempt
	LegalEntity string
}

// Attempts lists the newest attempts, the newest first, to deliver events of legal entities
// that the caller may see. About a hundred attempts are stored.
func (s *Service) Attempts(ctx context.Context, c Caller, id string, limit int) ([]Attempt, error) {
	sub, err := s.findVisible(ctx, c, id)
	if err != nil {
		return nil, err
	}
	codes, err := s.legalEntityCodes(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.attempts(ctx, c, sub.UID, codes, limit)
}

func (s *Service) attempts(ctx context.Context, c Caller, uid event.ID, codes map[event.PartitionID]string, limit int) ([]Attempt, error) {
	read := limit
	if len(c.LegalEntities) > 0 {
		read = max(limit, 2*maxStoredAttempts) // all stored ones, since the caller may not see some of them
	}
	list, err := s.config.Attempts.WebhookAttempts(ctx, uid, read)
	if err != nil {
		return nil, err
	}
	out := make([]Attempt, 0, min(len(list), limit))
	for _, a := range list {
		if code, known := codes[a.Partition]; known && len(out) < limit {
			out = append(out, Attempt{a, code})
		}
	}
	return out, nil
}

// legalEntityCodes returns the codes of the legal entities that a caller may see.
func (s *Service) legalEntityCodes(ctx context.Context, c Caller) (map[event.PartitionID]string, error) {
	entities, err := s.config.Entities.LegalEntities(ctx, c.TenantID)
	if err != nil {
		return nil, err
	}
	out := make(map[event.PartitionID]string, len(entities))
	for _, le := range entities {
		if len(c.LegalEntities) == 0 || slices.Contains(c.LegalEntities, le.Code) {
			out[le.Partition] = le.Code
		}
	}
	return out, nil
}

// maxStoredAttempts is how many attempts are stored for each endpoint.
const maxStoredAttempts = 100
