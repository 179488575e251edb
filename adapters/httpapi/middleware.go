package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// call is what is known about a request while it runs.
type call struct {
	requestID string
	route     string // "" until an operation has been found
	token     string // of the caller; long answers check it again
	principal ports.Principal
	body      []byte        // as sent, checked; valid until the answer
	code      string        // of the problem that answered it
	request   *http.Request // of a live feed
	wantsRaw  bool          // events are wanted as they are stored
	isAborted bool          // the answer is incomplete; the connection must end with an error
}

type callKey struct{}

// callOf finds the request's call. Outside a request it is an empty one.
func callOf(ctx context.Context) *call {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c
	}
	return &call{}
}

const (
	headerRequestID = "X-Request-Id"
	unmatched       = "unmatched"
)

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// observe is the outermost layer: it gives the request an id and a deadline, and
// reports it in log and metrics once it is answered. It logs no query, no body
// and no header.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		r := c.Request()
		this := &call{requestID: r.Header.Get(headerRequestID)}
		if !requestIDPattern.MatchString(this.requestID) {
			this.requestID = rand.Text()
		}
		ctx, cancel := context.WithValue(r.Context(), callKey{}, this), context.CancelFunc(func() {})
		if !routesWithoutDeadline[c.Path()] {
			ctx, cancel = context.WithTimeout(ctx, s.limits.Body+s.limits.Request)
		}
		defer cancel()
		c.SetRequest(r.WithContext(ctx))
		h := c.Response().Header()
		h.Set(headerRequestID, this.requestID)
		h.Set(echo.HeaderCacheControl, "no-store")
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		if err := next(c); err != nil {
			c.Error(err)
		}
		s.report(ctx, c, this, time.Since(started))
		if this.isAborted {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
}

// routesWithoutDeadline holds the routes whose answers have no deadline as a whole; each of their
// pages has that of a request.
var routesWithoutDeadline = map[string]bool{"/api/events/export": true, pathFeedAll: true, pathFeedStream: true}

func (s *Server) report(ctx context.Context, c echo.Context, this *call, took time.Duration) {
	route := this.route
	if route == "" {
		route = unmatched
	}
	status := c.Response().Status
	if this.request == nil || status >= http.StatusBadRequest { // the duration of a feed is no latency
		s.config.Metrics.ObserveRequest(c.Request().Method, route, status, took)
	}
	level := slog.LevelInfo
	switch {
	case status >= http.StatusInternalServerError:
		level = slog.LevelWarn
	case isProbe(c):
		level = slog.LevelDebug
	}
	if !s.log.Enabled(ctx, level) {
		return
	}
	attributes := make([]slog.Attr, 0, 8)
	attributes = append(attributes,
		slog.String("request_id", this.requestID), slog.String("method", c.Request().Method), slog.String("route", route),
		slog.Int("status", status), slog.Int64("ms", took.Milliseconds()), slog.Int64("bytes", c.Response().Size))
	if this.principal.PersonID != "" {
		attributes = append(attributes, slog.String("person_id", this.principal.PersonID))
	}
	if this.code != "" {
		attributes = append(attributes, slog.String("code", this.code))
	}
	s.log.LogAttrs(ctx, level, "request", attributes...)
}

var errPanic = errors.New("panic")

// isProbe reports whether the request is one that monitors repeat.
func isProbe(c echo.Context) bool {
	switch c.Request().URL.Path {
	case "/livez", "/readyz", "/metrics":
		return true
	default:
		return false
	}
}

// traceCodeOnly answers an error and passes only its code to the tracer, which records the
// text of errors: details may quote the request.
func (s *Server) traceCodeOnly(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		err := next(c)
		if err == nil {
			return nil
		}
		c.Error(err)
		return errors.New(callOf(c.Request().Context()).code)
	}
}

// recoverPanic turns a panic into an internal problem. The panic's value may quote the
// request, so only its type and its stack are logged.
func (s *Server) recoverPanic(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			thrown := recover()
			if thrown == nil {
				return
			}
			if err, isError := thrown.(error); isError && errors.Is(err, http.ErrAbortHandler) {
				panic(thrown)
			}
			ctx := c.Request().Context()
			s.log.ErrorContext(ctx, "request panicked",
				"request_id", callOf(ctx).requestID, "route", c.Path(), "type", fmt.Sprintf("%T", thrown), "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "internal", "something failed that was not foreseen; tell an operator the error_id").
				WithCause(errPanic)
		}()
		return next(c)
	}
}
