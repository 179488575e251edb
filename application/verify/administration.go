package verify

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// comparison compares the rows that a node serves from with what a log recorded: mostly the
// administrative log of their tenant.
type comparison interface {
	// note takes the next event of the log. Its payload is the one that was recorded.
	note(c *chain, e *event.Recorded)
	// compare reads the rows, after the last event, and adds what does not agree to the
	// findings. An error means that the rows could not be read.
	compare(ctx context.Context, c *chain, store Store) error
}

// comparisons are those of one run over an administrative log.
func comparisons(r *run) []comparison {
	all := []comparison{settling{newRedactionRequests(), r}}
	for _, c := range []comparison{&eventTypes{listed: map[listedVersion]event.Sequence{}}, legalEntities{}, webhooks{}, subscriptions{}, projections{}, skips{}, &formerDecisions{}, &accesses{}} {
		all = append(all, settling{&following{comparison: c}, r})
	}
	if r.policies != "" {
		all = append(all, &policies{digest: r.policies})
	}
	if r.keyStore != nil {
		all = append(all, settling{newErasures(r.keyStore), r}, settling{holds{keys: r.keyStore, placed: map[event.ID]*hold{}}, r}, settling{newEpochs(r.keyStore), r})
	}
	return all
}

// following notes the newest events before each comparison: a server goes on recording while a
// log is verified.
type following struct {
	comparison
	through event.Sequence // of the last event that was noted
}

func (f *following) note(c *chain, e *event.Recorded) {
	if e.Sequence > f.through {
		f.through = e.Sequence
		f.comparison.note(c, e)
	}
}

func (f *following) compare(ctx context.Context, c *chain, store Store) error {
	if err := c.noteLatest(ctx, store, f); err != nil {
		return err
	}
	return f.comparison.compare(ctx, c, store)
}

// settling compares again what differs, since a server may be between an event and its row. Its
// comparison can be repeated.
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
