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

// Caller looks at endpoints.
type Caller struct {
	ports.Principal
	Operator bool // may look at those of others of the tenant
}

// address is what the caller sees of an endpoint's: a query such as ?code=... is often
// all that a receiver asks for, and is shown to its owner alone.
func (c *Caller) address(sub *subscription.Subscription, url string) string {
	if before, _, found := strings.Cut(url, "?"); found && sub.Owner != c.PersonID {
		return before + "?..."
	}
	return url
}

// seen finds a webhook's subscription that the caller may look at.
func (s *Service) seen(ctx context.Context, c Caller, id string) (subscription.Subscription, error) {
	sub, err := s.config.Subscriptions.Subscription(ctx, c.TenantID, id)
	if err != nil {
		return sub, err
	}
	if sub.Owner != c.PersonID && !c.Operator {
		return sub, fault.New(fault.NotFound, "subscription.not_found", "there is no such subscription that you may see; GET /api/subscriptions lists them")
	}
	return sub, webhookOnly(&sub)
}

// Schedule lists the pauses after failed attempts: after the last of them and one more
// failure a message is a dead letter.
func Schedule(s *subscription.Settings) []time.Duration {
	out := make([]time.Duration, 0, max(s.MaxRetries, 0))
	for n := 1; n <= s.MaxRetries; n++ {
		out = append(out, s.Backoff(n))
	}
	return out
}

// Listed is an endpoint in a list.
type Listed struct {
	Endpoint
	Subscription subscription.Subscription
	Last         *Attempt // the newest; nil: none yet
}

// List gives the endpoints that the caller may look at, by subscription.
func (s *Service) List(ctx context.Context, c Caller) ([]Listed, error) {
	all, err := s.config.Endpoints.WebhookEndpoints(ctx, c.TenantID)
	out := []Listed{}
	if err != nil || len(all) == 0 {
		return out, err
	}
	subs, err := s.config.Subscriptions.Subscriptions(ctx, c.TenantID)
	if err != nil {
		return nil, err
	}
	codes, err := s.codes(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		i := slices.IndexFunc(subs, func(sub subscription.Subscription) bool { return sub.UID == e.Subscription })
		if i < 0 || e.DisabledCode == codeDeleted || subs[i].Owner != c.PersonID && !c.Operator {
			continue
		}
		l := Listed{Endpoint: Endpoint{WebhookEndpoint: e}, Subscription: subs[i]}
		l.URL = c.address(&subs[i], l.URL)
		newest, err := s.attempts(ctx, c, e.Subscription, codes, 1)
		if err != nil {
			return nil, err
		}
		if len(newest) > 0 {
			l.Last = &newest[0]
		}
		out = append(out, l)
	}
	slices.SortFunc(out, func(a, b Listed) int { return cmp.Compare(a.Subscription.ID, b.Subscription.ID) })
	return out, nil
}

// Attempt is what came of an attempt, with the code of the event's legal entity.
type Attempt struct {
	ports.WebhookAttempt
	LegalEntity string
}

// Attempts lists what came of the newest attempts, the newest first, at events of legal
// entities that the caller may know of. Older ones than the newest hundred or so are
// forgotten.
func (s *Service) Attempts(ctx context.Context, c Caller, id string, limit int) ([]Attempt, error) {
	sub, err := s.seen(ctx, c, id)
	if err != nil {
		return nil, err
	}
	codes, err := s.codes(ctx, c)
	if err != nil {
		return nil, err
	}
	return s.attempts(ctx, c, sub.UID, codes, limit)
}

func (s *Service) attempts(ctx context.Context, c Caller, uid event.ID, codes map[event.PartitionID]string, limit int) ([]Attempt, error) {
	read := limit
	if len(c.LegalEntities) > 0 {
		read = max(limit, 2*keptAttempts) // all that there are: some of them are not shown
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

// codes are those of the legal entities that a caller may know of.
func (s *Service) codes(ctx context.Context, c Caller) (map[event.PartitionID]string, error) {
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

// keptAttempts of each endpoint are kept.
const keptAttempts = 100
