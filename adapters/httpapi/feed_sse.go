package httpapi

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/application/live"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// write serves the feed until it ends.
func (f *liveFeed) write(w http.ResponseWriter) error {
	defer f.leave()
	if wantsWebSocket(f.request) {
		return f.serveWebSocket(w)
	}
	return f.serveEvents(w)
}

// sseSink sends a feed as server-sent events.
type sseSink struct {
	feed       *liveFeed
	w          http.ResponseWriter
	connection *http.ResponseController
	b          []byte
}

// reconnectMS is how long clients wait before they connect again, in milliseconds.
const reconnectMS = "2000"

// serveEvents writes server-sent events. A feed that the server ends closes with an
// event named "problem", because browsers use "error" for their own failures.
func (f *liveFeed) serveEvents(w http.ResponseWriter) error {
	h := w.Header()
	h.Set(echo.HeaderContentType, "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // proxies must not buffer
	w.WriteHeader(http.StatusOK)
	s := &sseSink{feed: f, w: w, connection: http.NewResponseController(w)}
	if gone := s.send(f.ctx, []byte("retry: "+reconnectMS+"\n\n")); gone != nil {
		return nil //nolint:nilerr // the reader has left
	}
	err := f.run(f.ctx, "sse", s)
	if errors.Is(err, live.ErrDisconnected) || fault.CodeOf(err) == live.CodeTooSlow {
		callOf(f.ctx).code = endCode(err)
		callOf(f.ctx).isAborted = !errors.Is(err, live.ErrDisconnected)
		return nil
	}
	body, _, _ := f.problemDocument(err)
	s.b = append(append(append(s.b[:0], "event: problem\ndata: "...), body...), "\n\n"...)
	_ = s.send(f.ctx, s.b) // the feed ends in any case
	return nil
}

// endCode is the code that the request log shows for the end of a feed.
func endCode(err error) string {
	if errors.Is(err, live.ErrDisconnected) {
		return ""
	}
	return fault.CodeOf(err)
}

// send writes and flushes within WriteTimeout.
func (s *sseSink) send(ctx context.Context, b []byte) error {
	// Only the ResponseRecorder of a test does not support deadlines.
	_ = s.connection.SetWriteDeadline(time.Now().Add(s.feed.server.config.Live.WriteTimeout))
	defer context.AfterFunc(ctx, func() { _ = s.connection.SetWriteDeadline(time.Now().Add(closeTimeout)) })()
	_, err := s.w.Write(b)
	if err == nil {
		err = s.connection.Flush()
	}
	return sendError(err)
}

// sendError converts an error of writing: the reader was too slow, or has left.
func sendError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return live.TooSlow(err)
	default:
		return live.ErrDisconnected
	}
}

func (s *sseSink) id(cursor string) {
	s.b = append(append(append(s.b, "id: "...), cursor...), '\n')
}

// Events implements live.Sink.
func (s *sseSink) Events(ctx context.Context, events []event.Recorded, cursors []string) error {
	documents, err := s.feed.renderEach(ctx, events)
	if err != nil {
		return err
	}
	s.b = s.b[:0]
	for i := range documents {
		s.id(cursors[i])
		s.b = append(append(append(s.b, "event: event\ndata: "...), documents[i]...), "\n\n"...)
		if len(s.b) > maxWriteBytes || i == len(documents)-1 {
			if err := s.send(ctx, s.b); err != nil {
				return err
			}
			s.b = s.b[:0]
		}
	}
	return nil
}

// maxWriteBytes is the size above which buffered events are sent: a reader must receive that
// much, and the last event, within one WriteTimeout.
const maxWriteBytes = 256 << 10

// CaughtUp implements live.Sink.
func (s *sseSink) CaughtUp(ctx context.Context, cursor string) error {
	s.b = s.b[:0]
	s.id(cursor)
	s.b = append(s.feed.appendPosition(append(s.b, "event: caughtUp\ndata: {"...), cursor), "}\n\n"...)
	return s.send(ctx, s.b)
}

// Heartbeat implements live.Sink: a comment, with an id if the position moved over
// events that the filters leave out.
func (s *sseSink) Heartbeat(ctx context.Context, cursor string) error {
	s.b = s.b[:0]
	if cursor != "" {
		s.id(cursor)
	}
	return s.send(ctx, append(s.b, ": heartbeat\n\n"...))
}
