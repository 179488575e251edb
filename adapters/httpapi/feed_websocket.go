package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	maxMessageBytes  = headerBytes      // from a client: a cursor is as long as in a header
	subscribeTimeout = 10 * time.Second // for the message that begins a feed
	closeTimeout     = 5 * time.Second  // for the last message
	closeCodeBase    = 4000             // plus the problem's status
)

// checkHandshake refuses a request while it can still be answered with a problem
// document.
func (s *Server) checkHandshake(r *http.Request) error {
	if !mayOpenWebSocket(r, s.config.Live.Origins) {
		return fault.New(fault.Forbidden, "feed.origin_refused", "pages of this origin may not open feeds; add its host to feeds.origins")
	}
	offered := subprotocols(r)
	if len(offered) > 0 && !slices.Contains(offered, feedProtocol) {
		return fault.New(fault.Invalid, "feed.subprotocol_missing", "offer the subprotocol %s, beside %s<token> where the token cannot be in a header", feedProtocol, bearerProtocol)
	}
	connection := strings.ToLower(strings.Join(r.Header.Values("Connection"), ","))
	if r.Header.Get("Sec-WebSocket-Version") != "13" || r.Header.Get("Sec-WebSocket-Key") == "" || !strings.Contains(connection, "upgrade") || !r.ProtoAtLeast(1, 1) {
		return fault.New(fault.Invalid, "feed.handshake_invalid", "this is no handshake of a WebSocket in version 13; use a WebSocket library")
	}
	return nil
}

func matchesAny(patterns []string, host string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		fits, err := path.Match(strings.ToLower(p), strings.ToLower(host))
		return err == nil && fits
	})
}

// webSocketSink sends a feed over a WebSocket.
type webSocketSink struct {
	feed *liveFeed
	conn *websocket.Conn
	b    []byte
}

// command is a message of a client.
type command struct {
	Action  string          `json:"action"`
	From    json.RawMessage `json:"from"`
	Options struct {
		BatchSize    int  `json:"batch_size"`
		ResolveLinks bool `json:"resolve_links"`
	} `json:"options"`
}

// serveWebSocket sends messages until the feed ends, and then the reason of its end.
func (f *liveFeed) serveWebSocket(w http.ResponseWriter) error {
	conn, err := websocket.Accept(w, f.request, &websocket.AcceptOptions{
		Subprotocols: []string{feedProtocol}, InsecureSkipVerify: true, // checkHandshake checks the origin
	})
	if err != nil {
		return nil // Accept has answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxMessageBytes)
	s := &webSocketSink{feed: f, conn: conn}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(f.ctx)) // a hijacked request's context ends at once
	defer cancel(nil)
	commands := make(chan command)
	go s.readCommands(ctx, cancel, commands)
	if err = s.awaitSubscribe(ctx, commands); err == nil {
		go refuseCommands(ctx, cancel, commands)
		err = f.run(ctx, "websocket", s)
	}
	s.sendEnd(err)
	return nil
}

// readCommands reads the client's messages, and with them its answers to pings.
func (s *webSocketSink) readCommands(ctx context.Context, cancel context.CancelCauseFunc, commands chan<- command) {
	for {
		_, text, err := s.conn.Read(context.WithoutCancel(ctx)) // ends with the connection; a canceled read would close it
		if err != nil {
			cancel(live.ErrDisconnected)
			return
		}
		var c command
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(&c); err != nil {
			cancel(fault.New(fault.Invalid, "feed.message_invalid", `this message cannot be read; send {"action": "subscribe", "from"?, "options"?: {"batch_size"?}}`))
			return
		}
		select {
		case commands <- c:
		case <-ctx.Done():
			return
		}
	}
}

// awaitSubscribe waits for the client's message unless the query gives the position.
func (s *webSocketSink) awaitSubscribe(ctx context.Context, commands <-chan command) error {
	if s.feed.hasFrom {
		return nil
	}
	late := time.NewTimer(subscribeTimeout)
	defer late.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-late.C:
		return fault.New(fault.Timeout, "feed.subscribe_missing", `say where to begin: from= in the address, or the message {"action": "subscribe", "from": ...}`)
	case c := <-commands:
		return s.subscribe(c)
	}
}

func (s *webSocketSink) subscribe(c command) error {
	switch {
	case c.Action != "subscribe":
		return unknownAction()
	case c.Options.ResolveLinks:
		return fault.New(fault.Invalid, "feed.option_unsupported", "there are no links to resolve in this log; leave resolve_links out or false").WithField("/options/resolve_links")
	case c.Options.BatchSize < 0 || c.Options.BatchSize > maxPage:
		return invalidParameter("/options/batch_size", "a number from 1 to 1000")
	case c.Options.BatchSize > 0:
		s.feed.batch = c.Options.BatchSize
	}
	source, err := s.feed.open(strings.Trim(string(c.From), `"`), false)
	if err == nil {
		s.feed.source = source
	}
	return err
}

func unknownAction() error {
	return fault.New(fault.Invalid, "feed.action_unknown", `the only action is "subscribe", once, before the feed begins; end a feed by closing its connection`).WithField("/action")
}

// refuseCommands ends a feed whose client sends a message while it runs.
func refuseCommands(ctx context.Context, cancel context.CancelCauseFunc, commands <-chan command) {
	select {
	case <-ctx.Done():
	case <-commands:
		cancel(unknownAction())
	}
}

// sendEnd sends the reason as a message and as a close code, with the cursor to continue at.
func (s *webSocketSink) sendEnd(err error) {
	callOf(s.feed.ctx).code = endCode(err)
	if errors.Is(err, live.ErrDisconnected) || fault.CodeOf(err) == live.CodeTooSlow {
		return
	}
	body, status, code := s.feed.problemDocument(err)
	s.b = append(append(s.b[:0], `{"type":"error","problem":`...), body...)
	if cursor := s.feed.source.Cursor(); cursor != "" {
		s.b = s.feed.appendPosition(append(s.b, ','), cursor)
	}
	s.b = append(s.b, '}')
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, s.b); err != nil {
		return
	}
	closing := websocket.StatusCode(closeCodeBase + status)
	if code == live.CodeStopping {
		closing = websocket.StatusGoingAway
	}
	_ = s.conn.Close(closing, code) // the connection is closed in any case
}

func (s *webSocketSink) send(ctx context.Context, b []byte) error {
	within, cancel := s.sendContext(ctx)
	defer cancel()
	err := s.conn.Write(within, websocket.MessageText, b)
	if err != nil && within.Err() != nil {
		return live.TooSlow(err)
	}
	return sendError(err)
}

// sendContext bounds one write. A write that is in progress when the feed ends may still
// complete: canceling it would close the connection before the last message.
func (s *webSocketSink) sendContext(ctx context.Context) (context.Context, func()) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.feed.server.config.Live.WriteTimeout)
	unlink := context.AfterFunc(ctx, func() { time.AfterFunc(closeTimeout, cancel) })
	return within, func() { unlink(); cancel() }
}

// Events implements live.Sink.
func (s *webSocketSink) Events(ctx context.Context, events []event.Recorded, cursors []string) error {
	documents, err := s.feed.renderEach(ctx, events)
	if err != nil {
		return err
	}
	for i := range documents {
		s.b = append(append(s.b[:0], `{"type":"event","event":`...), documents[i]...)
		s.b = append(s.feed.appendPosition(append(s.b, ','), cursors[i]), '}')
		if err := s.send(ctx, s.b); err != nil {
			return err
		}
	}
	return nil
}

// CaughtUp implements live.Sink.
func (s *webSocketSink) CaughtUp(ctx context.Context, cursor string) error {
	s.b = append(s.feed.appendPosition(append(s.b[:0], `{"type":"caughtUp",`...), cursor), '}')
	return s.send(ctx, s.b)
}

// Heartbeat implements live.Sink: a message for the program, and a ping whose answer
// shows that the client is connected.
func (s *webSocketSink) Heartbeat(ctx context.Context, cursor string) error {
	s.b = append(s.b[:0], `{"type":"heartbeat"`...)
	if cursor != "" {
		s.b = s.feed.appendPosition(append(s.b, ','), cursor)
	}
	if err := s.send(ctx, append(s.b, '}')); err != nil {
		return err
	}
	within, cancel := s.sendContext(ctx)
	defer cancel()
	if err := s.conn.Ping(within); err != nil {
		if within.Err() != nil {
			return live.TooSlow(err)
		}
		return live.ErrDisconnected
	}
	return nil
}
