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
	largestMessage = headerBytes      // from a client: a cursor, as it may be in a header
	subscribeTime  = 10 * time.Second // for the message that begins a feed
	goodbyeTime    = 5 * time.Second  // for the last message
	closeOfStatus  = 4000             // close codes are this and the problem's status
)

// checkHandshake refuses what can still be refused with a problem document.
func (s *Server) checkHandshake(r *http.Request) error {
	if !sameOrigin(r, s.config.Live.Origins) {
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

// socket is a reader at a WebSocket.
type socket struct {
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

// serveWebSocket sends messages until the feed ends, and then why.
func (f *liveFeed) serveWebSocket(w http.ResponseWriter) error {
	conn, err := websocket.Accept(w, f.request, &websocket.AcceptOptions{
		Subprotocols: []string{feedProtocol}, InsecureSkipVerify: true, // checkHandshake has looked at the origin
	})
	if err != nil {
		return nil // answered
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(largestMessage)
	s := &socket{feed: f, conn: conn}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(f.ctx)) // a hijacked request's context tells nothing
	defer cancel(nil)
	commands := make(chan command)
	go s.hear(ctx, cancel, commands)
	if err = s.begin(ctx, commands); err == nil {
		go refuseFurther(ctx, cancel, commands)
		err = f.run(ctx, "websocket", s)
	}
	s.end(err)
	return nil
}

// hear reads what the client sends; also its answers to pings are read here.
func (s *socket) hear(ctx context.Context, cancel context.CancelCauseFunc, commands chan<- command) {
	for {
		_, text, err := s.conn.Read(context.WithoutCancel(ctx)) // ends with the connection: a canceled read would break it off
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

// begin waits for the client's message unless the address said where to begin.
func (s *socket) begin(ctx context.Context, commands <-chan command) error {
	if s.feed.fromSet {
		return nil
	}
	late := time.NewTimer(subscribeTime)
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

func (s *socket) subscribe(c command) error {
	switch {
	case c.Action != "subscribe":
		return unknownAction()
	case c.Options.ResolveLinks:
		return fault.New(fault.Invalid, "feed.option_unsupported", "there are no links to resolve in this log; leave resolve_links out or false").WithField("/options/resolve_links")
	case c.Options.BatchSize < 0 || c.Options.BatchSize > largestPage:
		return badParameter("/options/batch_size", "a number from 1 to 1000")
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

// refuseFurther ends a feed whose client says something while it runs.
func refuseFurther(ctx context.Context, cancel context.CancelCauseFunc, commands <-chan command) {
	select {
	case <-ctx.Done():
	case <-commands:
		cancel(unknownAction())
	}
}

// end says why, as a message and as a close code, and where to go on.
func (s *socket) end(err error) {
	callOf(s.feed.ctx).code = codeOfEnd(err)
	if errors.Is(err, live.ErrDisconnected) || fault.CodeOf(err) == live.CodeTooSlow {
		return
	}
	body, status, code := s.feed.problem(err)
	s.b = append(append(s.b[:0], `{"type":"error","problem":`...), body...)
	if cursor := s.feed.source.Cursor(); cursor != "" {
		s.b = s.feed.position(append(s.b, ','), cursor)
	}
	s.b = append(s.b, '}')
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTime)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, s.b); err != nil {
		return
	}
	closing := websocket.StatusCode(closeOfStatus + status)
	if code == live.CodeStopping {
		closing = websocket.StatusGoingAway
	}
	_ = s.conn.Close(closing, code) // the connection ends in any case
}

func (s *socket) send(ctx context.Context, b []byte) error {
	within, cancel := s.within(ctx)
	defer cancel()
	err := s.conn.Write(within, websocket.MessageText, b)
	if err != nil && within.Err() != nil {
		return live.TooSlow(err)
	}
	return unsent(err)
}

// within bounds what a reader has to take. When a feed ends, what is on its way may
// still arrive: a canceled write would break the connection off.
func (s *socket) within(ctx context.Context) (context.Context, func()) {
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.feed.writeTimeout)
	unlink := context.AfterFunc(ctx, func() { time.AfterFunc(goodbyeTime, cancel) })
	return within, func() { unlink(); cancel() }
}

// Events implements live.Sink.
func (s *socket) Events(ctx context.Context, events []event.Recorded, cursors []string) error {
	shown, err := s.feed.shown(ctx, events)
	if err != nil {
		return err
	}
	for i := range shown {
		s.b = append(append(s.b[:0], `{"type":"event","event":`...), shown[i]...)
		s.b = append(s.feed.position(append(s.b, ','), cursors[i]), '}')
		if err := s.send(ctx, s.b); err != nil {
			return err
		}
	}
	return nil
}

// CaughtUp implements live.Sink.
func (s *socket) CaughtUp(ctx context.Context, cursor string) error {
	s.b = append(s.feed.position(append(s.b[:0], `{"type":"caughtUp",`...), cursor), '}')
	return s.send(ctx, s.b)
}

// Heartbeat implements live.Sink: a message for the client's program, and a ping whose
// answer shows that somebody is there.
func (s *socket) Heartbeat(ctx context.Context, cursor string) error {
	s.b = append(s.b[:0], `{"type":"heartbeat"`...)
	if cursor != "" {
		s.b = s.feed.position(append(s.b, ','), cursor)
	}
	if err := s.send(ctx, append(s.b, '}')); err != nil {
		return err
	}
	within, cancel := s.within(ctx)
	defer cancel()
	if err := s.conn.Ping(within); err != nil {
		if within.Err() != nil {
			return live.TooSlow(err)
		}
		return live.ErrDisconnected
	}
	return nil
}
