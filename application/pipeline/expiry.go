package pipeline

import (
	"context"
	"log/slog"
	"time"

	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// expiryPage is how many waiting intents one query reads.
const expiryPage = 100

// Expire ends the intents of a legal entity that were submitted at before or earlier and
// still wait, and returns their number. A decision that is written first wins. An intent
// that cannot be ended does not stop those of its page that follow.
func (s *Service) Expire(ctx context.Context, le ports.LegalEntity, before time.Time) (expired int, failed error) {
	for {
		waiting, err := s.Intents.WaitingIntents(ctx, le.Partition, expiryPage)
		if err != nil {
			return expired, err
		}
		for _, in := range waiting {
			if in.CreatedAt.After(before) {
				return expired, failed
			}
			a := &attempt{service: s, entity: le, stored: in, storedApprovals: len(in.Approvals)}
			a.caller.Actor = event.Actor{Type: event.System, ID: "backbone", Name: "expiry"}
			switch _, err := a.end(ctx, intent.Expired, intent.Approval{}); {
			case fault.CodeOf(err) == concurrency.CodeIntentChanged:
			case err != nil:
				failed = err
			default:
				expired++
			}
		}
		if len(waiting) < expiryPage || failed != nil {
			return expired, failed
		}
	}
}

// ExpiryConfig is what an Expiry needs; all of it is required.
type ExpiryConfig struct {
	Service  *Service
	Entities ports.LegalEntities
	Leases   ports.Leases
	Node     string        // unique among the nodes
	Limit    time.Duration // how long an intent may wait from its submission on
	Interval time.Duration // between two looks at the waiting intents
	Clock    ports.Clock
	Logger   *slog.Logger
}

// Expiry ends intents that have waited too long. Nodes share the legal entities under leases,
// which only save work: the store lets one of an expiry and a decision through.
type Expiry struct {
	ExpiryConfig
	member *sharing.Member
}

// NewExpiry makes an Expiry.
func NewExpiry(c ExpiryConfig) *Expiry {
	return &Expiry{c, sharing.New(sharing.Config{
		Leases: c.Leases, Work: "intents", Holder: c.Node, TTL: 3 * c.Interval, Now: c.Clock.Now, Logger: c.Logger,
	})}
}

// Run looks at once and then every Interval, until ctx ends.
func (e *Expiry) Run(ctx context.Context) {
	tick := time.NewTicker(e.Interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := e.RunOnce(ctx); err != nil && ctx.Err() == nil {
			e.Logger.WarnContext(ctx, "waiting intents could not be expired; it will be tried again", "code", fault.CodeOf(err))
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	e.member.Leave(ctx)
}

// RunOnce expires the intents of the legal entities that this node holds.
func (e *Expiry) RunOnce(ctx context.Context) error {
	entities, err := e.Entities.LegalEntities(ctx, "")
	if err != nil {
		return err
	}
	wanted := make([]ports.LeaseResource, len(entities))
	for i, le := range entities {
		wanted[i] = ports.LeaseResource{Name: "intents/expiry", Partition: le.Partition}
	}
	if _, err := e.member.Renew(ctx, wanted, nil); err != nil {
		return err
	}
	var failed error
	for i, le := range entities {
		if _, _, held := e.member.Lease(wanted[i]); !held {
			continue
		}
		n, err := e.Service.Expire(ctx, le, e.Clock.Now().Add(-e.Limit))
		if err != nil {
			failed = err // the other legal entities go on
		}
		if n > 0 {
			e.Logger.InfoContext(ctx, "intents that waited too long have expired", "legal_entity", le.Code, "intents", n)
		}
	}
	return failed
}
