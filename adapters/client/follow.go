package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// The names of the server-sent events of a feed.
const (
	FeedEvent    = "event"
	FeedCaughtUp = "caughtUp"
	feedProblem  = "problem"
)

// FeedItem is an event of a live feed, or the notice that the feed has caught up with the log.
type FeedItem struct {
	ID   string // the position to resume from after it
	Name string // FeedEvent or FeedCaughtUp
	Data []byte // JSON, valid until the next item
}

// Feed names a feed and where it begins.
type Feed struct {
	Path       string // /api/subscribe/streams/...
	Parameters url.Values
	LastID     string // of the last item that the caller received; "": the parameters give the position
	// Lost is called when the connection was lost, with the reason and the pause before
	// the next attempt; nil: no call.
	Lost func(err error, pause time.Duration)
}

const (
	maxFeedSilence      = time.Minute // must be longer than the server's interval of heartbeats
	firstReconnectPause = 500 * time.Millisecond
)

// Follow passes the items of a live feed to take. When the connection is lost or the
// server is unavailable it connects again and resumes after the last item: no item is
// missed and none comes twice. It ends with ctx, with an error of take, or with any fault but
// Unavailable, Timeout and TooMany.
func (c *Client) Follow(ctx context.Context, f Feed, take func(FeedItem) error) error {
	pause := firstReconnectPause
	for {
		before := f.LastID
		err := c.followOnce(ctx, &f, take)
		var done callbackError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &done):
			return done.err
		}
		if problem, ok := fault.As(err); ok && problem.Kind != fault.Unavailable && problem.Kind != fault.Timeout && problem.Kind != fault.TooMany {
			return err
		}
		if f.LastID != before {
			pause = firstReconnectPause
		}
		wanted := pause
		if problem, ok := fault.As(err); ok {
			wanted = max(pause, problem.RetryAfter)
		}
		wanted = min(wanted, c.longestWait)
		if f.Lost != nil {
			f.Lost(err, wanted)
		}
		if err := ports.Sleep(ctx, wanted); err != nil {
			return err
		}
		pause = min(2*pause, c.longestWait)
	}
}

// callbackError is an error of the callback, which ends the feed.
type callbackError struct{ err error }

func (t callbackError) Error() string { return t.err.Error() }

func (c *Client) followOnce(ctx context.Context, f *Feed, take func(FeedItem) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(maxFeedSilence, func() {
		cancel(fault.New(fault.Timeout, "client.feed_silent", "the server has said nothing for a minute; connect again"))
	})
	defer silent.Stop()
	header := http.Header{"Accept": {"text/event-stream, application/problem+json"}}
	if f.LastID != "" {
		header.Set("Last-Event-ID", f.LastID)
	}
	res, err := c.openStream(ctx, f.Path, f.Parameters, header)
	if err != nil {
		return lostFeedFault(ctx, err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewReaderSize(res.Body, 64<<10)
	var item FeedItem
	for {
		line, err := readLine(lines)
		if err != nil {
			return lostFeedFault(ctx, err)
		}
		silent.Reset(maxFeedSilence)
		if line[0] == ':' {
			continue // a comment
		}
		name, value, _ := strings.Cut(strings.TrimRight(string(line), "\r\n"), ": ")
		switch name {
		case "id":
			item.ID = value
		case "event":
			item.Name = value
		case "data":
			item.Data = []byte(value)
		case "":
			if err := dispatch(f, item, take); err != nil {
				return err
			}
			item = FeedItem{}
		}
	}
}

// dispatch handles an item at the empty line that ends it. An item with only an id moves
// the position.
func dispatch(f *Feed, item FeedItem, take func(FeedItem) error) error {
	switch item.Name {
	case feedProblem:
		var status struct {
			Status int `json:"status"`
		}
		if err := json.Unmarshal(item.Data, &status); err != nil {
			return abortedFault(err)
		}
		return decodeProblem(&http.Response{StatusCode: status.Status, Header: http.Header{}}, item.Data)
	case FeedEvent, FeedCaughtUp:
		if err := take(item); err != nil {
			return callbackError{err}
		}
	}
	if item.ID != "" {
		f.LastID = item.ID
	}
	return nil
}

func lostFeedFault(ctx context.Context, err error) error {
	if f, ok := fault.As(context.Cause(ctx)); ok {
		return f
	}
	if f, ok := fault.As(err); ok {
		return f
	}
	return unreachableFault(ctx, err)
}

// StreamPath is the path of the feed of one stream.
func StreamPath(streamType, id string) string {
	return "/api/subscribe/streams/" + url.PathEscape(streamType) + "/" + url.PathEscape(id)
}

// AllPath is the path of the feed of all legal entities.
const AllPath = "/api/subscribe/streams/$all"
