package wire

import (
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
func (a *App) composeFeeds(clock ports.Clock, o Options) (err error) {
	c := a.Config
	watch := subscriptions.HeadWatcherConfig{Heads: a.Store.Events, Logger: a.Logger, Clock: clock, Poll: c.Delivery.Poll, Quiet: idlePoll}
	if c.Delivery.Listen == listenNotify {
		watch.WakeUps = a.Store.Events
	}
	if a.HeadWatcher, err = subscriptions.NewHeadWatcher(watch); err != nil {
		return err
	}
	a.Feeds = query.NewFeeds(a.Query, a.Store.Events)
	a.Live, err = live.New(live.Config{Heads: a.HeadWatcher, Clock: clock, Observer: o.Observers.Feeds, Limits: live.Limits{
		Heartbeat: c.Feeds.Heartbeat, AccessCheckInterval: c.Feeds.Review, PerPrincipal: c.Feeds.PerPrincipal, PerNode: c.Feeds.PerNode,
	}})
	return err
}

// liveParts returns the API's configuration of live feeds.
func (a *App) liveParts() httpapi.LiveConfig {
	c := a.Config.Feeds
	return httpapi.LiveConfig{Feeds: a.Feeds, Live: a.Live, Origins: c.Origins, LiveLimits: httpapi.LiveLimits{WriteTimeout: c.WriteTimeout, Batch: c.Batch}}
}
