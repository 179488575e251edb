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
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// call holds the state of a request from its first layer to its log line.
type call struct {
	// requestID is in the answer, the log and the error_id of a problem. It is not the
	// correlation id of events, which is a member of a body.
	requestID   string
	route       string            // "" until an operation has been found
	operation   string            // its id in the OpenAPI document; of a read model its route
	reason      string            // of the header Access-Reason, checked
	subject     shredding.Subject // whose report is made; "": none is
	token       string            // of the caller; feeds and exports check it again
	principal   ports.Principal
	body        []byte        // as sent, checked; valid until the answer
	code        string        // of the problem that answered it
	feedRequest *http.Request // nil unless the answer is a live feed
	wantsRaw    bool          // the caller wants events as they are stored
	isAborted   bool          // the answer is incomplete; the connection must end with an error
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
	unmatchedRoute  = "unmatched"
)

var requestIDPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{8,64}$`)

// observe is the outermost layer. It takes the request's id from X-Request-Id, or makes one,
// sets the deadline, and records the request in log and metrics once it is answered. It
// logs no query, no body and no header.
func (s *Server) observe(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		started := time.Now()
		r := c.Request()
		current := &call{requestID: r.Header.Get(headerRequestID)}
		if !requestIDPattern.MatchString(current.requestID) {
			current.requestID = rand.Text()
		}
		ctx, cancel := context.WithValue(r.Context(), callKey{}, current), context.CancelFunc(func() {})
		if !routesWithoutDeadline[c.Path()] {
			ctx, cancel = context.WithTimeout(ctx, s.limits.Body+s.limits.Request)
		}
		defer cancel()
		c.SetRequest(r.WithContext(ctx))
		h := c.Response().Header()
		h.Set(headerRequestID, current.requestID)
		h.Set(echo.HeaderCacheControl, "no-store")
		h.Set(echo.HeaderXContentTypeOptions, "nosniff")
		if err := next(c); err != nil {
			c.Error(err)
		}
		s.recordRequest(ctx, c, current, time.Since(started))
		if current.isAborted {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
}

// routesWithoutDeadline holds the routes whose answers may take any time; each page of such an
// answer has its own deadline.
var routesWithoutDeadline = map[string]bool{"/api/events/export": true, "/api/personal-data/report": true, pathFeedAll: true, pathFeedStream: true}

func (s *Server) recordRequest(ctx context.Context, c echo.Context, current *call, took time.Duration) {
	route := current.route
	if route == "" {
		route = unmatchedRoute
	}
	status := c.Response().Status
	if current.feedRequest == nil || status >= http.StatusBadRequest { // a feed lasts as long as its reader stays, which is no latency
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
		slog.String("request_id", current.requestID), slog.String("method", c.Request().Method), slog.String("route", route),
		slog.Int("status", status), slog.Int64("ms", took.Milliseconds()), slog.Int64("bytes", c.Response().Size))
	if current.principal.PersonID != "" {
		attributes = append(attributes, slog.String("person_id", current.principal.PersonID))
	}
	if current.code != "" {
		attributes = append(attributes, slog.String("code", current.code))
	}
	s.log.LogAttrs(ctx, level, "request", attributes...)
}

var errPanic = errors.New("panic")

// isProbe reports whether the request is a health check or a scrape of metrics.
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
