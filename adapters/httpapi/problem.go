package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/domain/fault"
)

// statuses maps kinds of faults to HTTP.
var statuses = map[fault.Kind]int{
	fault.Internal:           http.StatusInternalServerError,
	fault.Invalid:            http.StatusBadRequest,
	fault.Unauthenticated:    http.StatusUnauthorized,
	fault.Forbidden:          http.StatusForbidden,
	fault.NotFound:           http.StatusNotFound,
	fault.Conflict:           http.StatusConflict,
	fault.Gone:               http.StatusGone,
	fault.TooLarge:           http.StatusRequestEntityTooLarge,
	fault.FailedPrecondition: http.StatusUnprocessableEntity,
	fault.TooMany:            http.StatusTooManyRequests,
	fault.Unavailable:        http.StatusServiceUnavailable,
	fault.Timeout:            http.StatusGatewayTimeout,
}

// problem is an RFC 9457 document. Further members of a fault follow by name.
type problem struct {
	Type         string            `json:"type"`
	Title        string            `json:"title"`
	Status       int               `json:"status"`
	Code         string            `json:"code"`
	Detail       string            `json:"detail"`
	Field        string            `json:"field,omitempty"`
	IntentID     string            `json:"intent_id,omitempty"`
	Expected     any               `json:"expected,omitempty"`
	Actual       any               `json:"actual,omitempty"`
	Holder       *fault.Holder     `json:"holder,omitempty"`
	Violations   []fault.Violation `json:"violations,omitempty"`
	RetryAfterMS int64             `json:"retry_after_ms,omitempty"`
	ErrorID      string            `json:"error_id,omitempty"`
}

// problemMembers are the standard members; an attribute of a fault with one of these names is
// left out.
var problemMembers = map[string]bool{
	"type": true, "title": true, "status": true, "code": true, "detail": true, "field": true, "intent_id": true, "expected": true,
	"actual": true, "holder": true, "violations": true, "retry_after_ms": true, "error_id": true,
}

// defaultRetry is the Retry-After of a fault Unavailable that gives none.
const defaultRetry = time.Second

// faultOf converts the error of a handler. isForeseen is false for an internal error,
// which problemOf logs with its causes. The answer has a fault's Detail even then; the text of any
// other error is for the log only.
func faultOf(err error) (f *fault.Error, status int, isForeseen bool) {
	if f, ok := fault.As(err); ok {
		return f, statuses[f.Kind], f.Kind != fault.Internal
	}
	var h *echo.HTTPError
	switch {
	case errors.As(err, &h):
		return routerProblem(h), h.Code, h.Code < http.StatusInternalServerError
	case errors.Is(err, context.DeadlineExceeded):
		f = fault.New(fault.Timeout, "request.timeout", "the request took too long and its outcome is not known; send it again with the same Idempotency-Key, or read before you write again")
	case errors.Is(err, context.Canceled):
		f = fault.New(fault.Timeout, "request.canceled", "the caller went away; send the request again with the same Idempotency-Key")
	default:
		f = fault.New(fault.Internal, "internal", "something failed that was not foreseen; tell an operator the error_id")
		return f, http.StatusInternalServerError, false
	}
	return f, statuses[f.Kind], true
}

// routerProblem describes what the router refuses. Its texts are not passed on, because
// they may quote the request.
func routerProblem(h *echo.HTTPError) *fault.Error {
	switch h.Code {
	case http.StatusNotFound:
		return fault.New(fault.NotFound, "http.not_found", "there is nothing at this path; GET /api/openapi.yaml lists what there is")
	case http.StatusMethodNotAllowed:
		return fault.New(fault.Invalid, "http.method_not_allowed", "this path does not take this method; the header Allow lists those it takes")
	case http.StatusUnsupportedMediaType:
		return fault.New(fault.Invalid, "http.unsupported_media_type", "send the body as Content-Type: application/json, without Content-Encoding")
	default:
		return fault.New(fault.Invalid, "http.refused", "the request was refused; GET /api/openapi.yaml says what can be asked")
	}
}

// problemOf converts an error to a problem document and notes its code for the log.
func (s *Server) problemOf(ctx context.Context, err error) (problem, *fault.Error) {
	f, status, isForeseen := faultOf(err)
	call := callOf(ctx)
	p := problem{
		Type: "/problems/" + f.Code, Title: http.StatusText(status), Status: status, Code: f.Code, Detail: f.Detail, Field: f.Field,
		IntentID: f.IntentID, Expected: f.Expected, Actual: f.Actual, Holder: f.Holder, Violations: f.Violations,
	}
	call.code = f.Code
	if !isForeseen {
		p.ErrorID = call.requestID
		s.log.ErrorContext(ctx, "request failed", "request_id", call.requestID, "route", call.route, "code", f.Code, "error", errorChain(err))
	}
	return p, f
}

// answerProblem is echo's error handler: it answers with the problem document of an error.
func (s *Server) answerProblem(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	p, f := s.problemOf(c.Request().Context(), err)
	retry := f.RetryAfter
	if retry == 0 && f.Kind == fault.Unavailable {
		retry = defaultRetry
	}
	h := c.Response().Header()
	if retry > 0 {
		p.RetryAfterMS = retry.Milliseconds()
		h.Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(retry.Seconds()))))
	}
	if f.Kind == fault.Unauthenticated {
		h.Set(echo.HeaderWWWAuthenticate, `Bearer realm="backbone"`)
	}
	body, err := p.encode(f.Attributes)
	if err != nil {
		s.log.ErrorContext(c.Request().Context(), "problem document could not be encoded", "request_id", callOf(c.Request().Context()).requestID, "error", err.Error())
		body = []byte(`{"type":"/problems/internal","title":"Internal Server Error","status":500,"code":"internal","detail":"something failed that was not foreseen; tell an operator the error_id"}`)
		p.Status = http.StatusInternalServerError
	}
	h.Set(echo.HeaderContentType, "application/problem+json")
	c.Response().WriteHeader(p.Status)
	_, _ = c.Response().Write(body) // an error means that the caller has left
}

// errorChain returns the texts of an error and of the causes that a fault hides from
// callers.
func errorChain(err error) string {
	text := err.Error()
	if f, ok := fault.As(err); ok {
		if cause := f.Unwrap(); cause != nil {
			text += ": " + errorChain(cause)
		}
	}
	return text
}

// encode writes the document, the fault's attributes after the standard members.
func (p problem) encode(attributes map[string]any) ([]byte, error) {
	body, err := encode(p)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		if problemMembers[name] {
			continue
		}
		key, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		value, err := encode(attributes[name])
		if err != nil {
			return nil, err
		}
		body = append(body[:len(body)-1], ',')
		body = append(append(append(body, key...), ':'), value...)
		body = append(body, '}')
	}
	return body, nil
}
