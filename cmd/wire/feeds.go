package wire

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/adapters/httpapi"
	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/subscriptions"
	"github.com/erpbackbone/backbone/ports"
)

// listenNotify is the value of delivery.listen that uses PostgreSQL's notifications.
const listenNotify = "notify"

// idlePoll is how often an idle node reads what PostgreSQL also announces by notification. It
// bounds the delay after a lost notification.
const idlePoll = 2 * time.Second

// composeFeeds composes the live feeds and the head watcher, which all parts of a node share.
func (a *App) composeFeeds(ctx context.Context, clock ports.Clock) (err error) {
	c := a.config
	watch := subscriptions.HeadWatcherConfig{Heads: a.Store.Events, Logger: a.logger, Clock: clock, Poll: c.Delivery.Poll, Quiet: idlePoll}
	if c.Delivery.Listen == listenNotify {
		watch.WakeUps = a.Store.Events
	}
	if a.heads, err = subscriptions.NewHeadWatcher(watch); err != nil {
		return err
	}
	if err := a.composeGlobalLog(ctx); err != nil {
		return err
	}
	a.feeds = query.NewFeeds(a.Query, a.Store.Events, query.NewGlobalOrder(a.Query, a.Store.GlobalLog))
	a.live, err = live.New(live.Config{Heads: a.heads, Clock: clock, Observer: a.metrics, Limits: live.Limits{
		Heartbeat: c.Feeds.Heartbeat, AccessCheckInterval: c.Feeds.Review, PerPrincipal: c.Feeds.PerPrincipal, PerNode: c.Feeds.PerNode,
	}})
	return err
}

// liveParts returns the API's configuration of live feeds.
func (a *App) liveParts() httpapi.LiveConfig {
	c := a.config.Feeds
	return httpapi.LiveConfig{Feeds: a.feeds, Live: a.live, Origins: c.Origins, LiveLimits: httpapi.LiveLimits{WriteTimeout: c.WriteTimeout, Batch: c.Batch}}
}
