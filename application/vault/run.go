package vault

import (
	"context"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/ports"
)

// expireInterval is how often expired keys are zeroed. An expired key is never used, even
// before that.
const expireInterval = time.Second

// Run listens for evictions and reports to the key store which generation this node has
// evicted, every Poll and at once after a signal, until ctx ends. If keys were destroyed
// since the last report, Run first evicts all keys and then reports. It repeats a failed
// report with the next one; until then Life bounds how long a key stays in memory.
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
		case <-v.reportDue:
		}
	}
	running.Wait()
	v.EvictAll()
}

// report reports the evicted generation and evicts all keys when the key store has another
// one: a later one when keys were destroyed, an earlier one when it was restored from a
// backup. It returns the generation that is evicted now.
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
		case v.reportDue <- struct{}{}:
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
		// It returns when ctx ends. If it returned earlier, signals may have been missed.
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
