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

// Run evicts the keys that the key store reports as destroyed, until ctx ends. It reports to
// the key store up to which generation this node has evicted them, every Poll and at once after
// a signal. After a failed report, Life still bounds how long a key stays in memory.
func (v *Vault) Run(ctx context.Context, evictions ports.KeyEvictions, node string) {
	var running sync.WaitGroup
	running.Go(func() { v.listen(ctx, evictions) })
	running.Go(func() { v.expireLoop(ctx) })
	tick := time.NewTicker(v.Poll)
	defer tick.Stop()
	generation := int64(0)
	for ctx.Err() == nil {
		generation = v.report(ctx, evictions, node, generation)
		select {
		case <-ctx.Done():
		case <-tick.C:
		case <-v.reportDue:
		}
	}
	running.Wait()
	v.EvictAll()
}

// report stores up to which generation this node has evicted the destroyed keys. If the key store
// has another generation, report learns which keys were destroyed, evicts all keys and reports
// again: a later one means that keys were destroyed, an earlier one that the key store was
// restored from a backup. It returns the last generation up to which keys are evicted.
func (v *Vault) report(ctx context.Context, evictions ports.KeyEvictions, node string, evicted int64) int64 {
	for {
		newest, err := evictions.ReportNode(ctx, node, evicted)
		if err != nil || newest == evicted {
			return evicted
		}
		learned := v.Learn(ctx)
		v.EvictAll() // before the next report
		if learned != nil {
			return evicted
		}
		evicted = newest
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
			v.countEvicted(evicted)
		}
	}
}
