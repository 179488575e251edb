//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/domain/subscription"
)

// Idle subscriptions, each with a consumer that waits for events.
const (
	idleSubscriptions = 200
	idlePeriods       = 4 // of a measurement: what happens every 15 s must be in it

	idleSettled = 70 * time.Second // until a node trusts that signals announce every event, and polls less
)

// idleUsage is what a period without events cost.
type idleUsage struct {
	process, postgres float64 // share of a core
	statements        float64 // per second
}

// reportIdle measures what subscriptions cost an idle node: every
// consumer polls over HTTP, waits as long as it may, and polls again. The consumers are
// in this process, so their part of the waiting is in the node's share.
func reportIdle(t *testing.T, o options, s *bookFixtures, figures *table) {
	u := newSubscriber(t, s)
	service := u.node.server.App.Subscriptions
	meter := newMeter(t, s.cluster)
	period := idlePeriods * o.period
	measure := func(period time.Duration) idleUsage {
		before, first := meter.read(), u.node.sent.statements.Load()
		started := time.Now()
		select {
		case <-time.After(period):
		case <-t.Context().Done():
		}
		after, seconds := meter.read(), time.Since(started).Seconds()
		return idleUsage{(after.process - before.process) / seconds, (after.postgres - before.postgres) / seconds, float64(u.node.sent.statements.Load()-first) / seconds}
	}
	statements := newStatistics(t, s.cluster, o)
	debug.FreeOSMemory() // as a server does once it serves
	measure(idleSettled)
	none := measure(period)

	for i := range idleSubscriptions {
		_, _, err := service.Create(t.Context(), u.owner, subscription.Subscription{
			ID: fmt.Sprintf("idle-%d", i), SubscriberType: "service", SubscriberID: "bench",
			Settings: subscription.Settings{Start: subscription.Start{From: subscription.End}},
		})
		require.NoError(t, err)
	}
	clients := newClients(t, idleSubscriptions, u.node.address, u.tokens["controller"])
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	var waiting atomic.Int64
	for i, c := range clients {
		running.Go(func() {
			// The first waits end evenly spread, so that the polls are, too.
			wait := subscriptions.MaxWait * time.Duration(i+1) / idleSubscriptions
			for ; ctx.Err() == nil; wait = subscriptions.MaxWait {
				waiting.Add(1)
				answer, err := c.want(http.StatusOK, http.MethodGet, fmt.Sprintf("/api/subscriptions/idle-%d/poll?limit=100&wait_ms=%d", i, wait.Milliseconds()), "", nil)
				if ctx.Err() != nil {
					return
				}
				if err == nil && countEvents(answer) > 0 {
					err = errors.New("an idle subscription got an event")
				}
				if err != nil {
					t.Errorf("consumer %d: %v", i, err)
					return
				}
			}
		})
	}
	require.Eventually(t, func() bool { return waiting.Load() >= idleSubscriptions }, time.Minute, 10*time.Millisecond)
	measure(o.period) // the first polls all come at once
	statements.reset(t)
	many := measure(period)
	statements.write(t, "idle")
	stop()
	for i := range clients { // which ends the poll that waits there
		require.NoError(t, service.Delete(context.WithoutCancel(t.Context()), subscriptions.Caller{Principal: u.owner}, fmt.Sprintf("idle-%d", i)))
	}
	running.Wait()

	figures.addText(fmt.Sprintf("A node on which nothing happens, over %s", period), "%s", none)
	figures.addText(fmt.Sprintf("   with %d subscriptions, each polled again and again for %s", idleSubscriptions, subscriptions.MaxWait), "%s", many)
}

func (l idleUsage) String() string {
	return fmt.Sprintf("%.1f %% of a core here, %.1f %% in PostgreSQL, %.1f statements/s", 100*l.process, 100*l.postgres, l.statements)
}
