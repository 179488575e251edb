package verify

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// comparison compares the rows that a node serves from with what the administrative log of
// their tenant recorded.
type comparison interface {
	// note takes the next event of the log. Its payload is the one that was recorded.
	note(c *chain, e *event.Recorded)
	// compare reads the rows, after the last event, and adds what does not agree to the
	// findings. An error means that the rows could not be read.
	compare(ctx context.Context, c *chain, store Store) error
}

// comparisons are those of one run over an administrative log.
func comparisons(r *run) []comparison {
	all := []comparison{legalEntities{}, &eventTypes{listed: map[registryVersion]listedVersion{}}, webhooks{}, subscriptions{}, projections{}, &accesses{}, settling{newRedactionRequests(), r}}
	if r.keyStore != nil {
		all = append(all, settling{newErasures(r.keyStore), r}, settling{holds{keys: r.keyStore, placed: map[event.ID]*hold{}}, r}, settling{newEpochs(r.keyStore), r})
	}
	return all
}

// settling compares again what differs: rows and events of requests, holds and epochs are in
// different databases, and a server may be between the two. Its comparison can be repeated.
type settling struct {
	comparison
	run *run
}

func (s settling) compare(ctx context.Context, c *chain, store Store) error {
	findings, suppressed := len(c.report.Findings), c.report.Suppressed
	for left := s.run.settle; ; left-- {
		err := s.comparison.compare(ctx, c, store)
		differs := len(c.report.Findings) > findings || c.report.Suppressed > suppressed
		if err != nil || !differs || left <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(settleInterval):
		}
		c.report.Findings, c.report.Suppressed = c.report.Findings[:findings], suppressed
	}
}

const settleInterval = time.Second
