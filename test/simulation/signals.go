package simulation

import (
	"context"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// hears reports whether a signal reaches the node: some are lost, and all of a frozen or killed
// node.
func (l *link) hears(signal string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draw(operation{method: signal}).Float64() >= l.world.currentWeather().failures*4 && !l.dead && !l.world.now().Before(l.frozen) && (!strings.HasPrefix(signal, "KeyStore.") || !l.isCutOff())
}

// Listen implements ports.WakeUps.
func (p eventStorePort) Listen(ctx context.Context, wake func(event.PartitionID)) error {
	return p.to.Listen(ctx, func(partition event.PartitionID) {
		if p.link.hears("EventStore.Listen") {
			wake(partition)
		}
	})
}

// ListenEventTypes passes the announcements on that are heard.
func (p eventTypeStorePort) ListenEventTypes(ctx context.Context, changed func()) error {
	return p.to.ListenEventTypes(ctx, func() {
		if p.link.hears("EventTypeStore.ListenEventTypes") {
			changed()
		}
	})
}

// reconnect is how long a node takes to notice that its connection is broken, and to connect again.
func (l *link) reconnect() time.Duration {
	r := l.draw(operation{method: "KeyStore.Reconnect"})
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, time.Until(l.cutOff)) + time.Duration(r.ExpFloat64()*float64(2*time.Second))
}

// ListenEvictions implements ports.KeyEvictions: a node that misses a signal is told so.
func (p keyStorePort) ListenEvictions(ctx context.Context, evict func(reference string), lost func()) error {
	return p.to.ListenEvictions(ctx, func(reference string) {
		if p.link.hears("KeyStore.ListenEvictions") {
			evict(reference)
			return
		}
		if p.link.pass(ctx, p.link.reconnect()) == nil {
			lost()
		}
	}, lost)
}
