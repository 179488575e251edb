package vault

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/ports"
)

// expireInterval is how often dead keys are taken out of memory. A dead key is not used,
// swept or not.
const expireInterval = time.Second

// Run listens for evictions and reports to the key store what this node has
// forgotten, every Poll and at once after a signal, until ctx ends. When keys were
// destroyed since the last report everything is forgotten first and reported then.
// A report that fails is repeated with the next one; until then a key's life bounds
// how long it stays.
func (v *Vault) Run(ctx context.Context, evictions ports.KeyEvictions, node string) {
	var running sync.WaitGroup
	running.Go(func() { v.listen(ctx, evictions) })
	running.Go(func() { v.expireLoop(ctx) })
	tick := time.NewTicker(v.Poll)
	defer tick.Stop()
	forgotten := int64(0)
	for ctx.Err() == nil {
		forgotten = v.report(ctx, evictions, node, forgotten)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-v.nudge:
		}
	}
	running.Wait()
	v.EvictAll()
}

// report tells what was forgotten and follows a generation that has moved: forward
// when keys were destroyed, back when the key store came from a backup.
func (v *Vault) report(ctx context.Context, evictions ports.KeyEvictions, node string, forgotten int64) int64 {
	for {
		newest, err := evictions.ReportNode(ctx, node, forgotten)
		if err != nil || newest == forgotten {
			return forgotten
		}
		v.EvictAll() // before it is reported
		forgotten = newest
	}
}

func (v *Vault) listen(ctx context.Context, evictions ports.KeyEvictions) {
	signal := func() {
		select {
		case v.nudge <- struct{}{}:
		default: // a report is due already
		}
	}
	for ctx.Err() == nil {
		_ = evictions.ListenEvictions(ctx, func(reference string) {
			v.Evict(reference)
			signal()
		}, func() {
			v.EvictAll()
			signal()
		})
		// It returns when ctx ends; if it did so early, signals may have been missed.
		v.EvictAll()
		_ = ports.Sleep(ctx, expireInterval)
	}
}

func (v *Vault) expireLoop(ctx context.Context) {
	tick := time.NewTicker(expireInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now := v.Clock.Now()
			v.mu.Lock()
			evicted := v.cache.expire(now)
			v.mu.Unlock()
			v.evicted(evicted)
		}
	}
}
