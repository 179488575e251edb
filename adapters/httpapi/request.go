package httpapi

import (
	"encoding/base64"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// request gives a handler the parameters of a request. The methods that parse one note
// the first malformed parameter in err and return a zero value; the handler returns err
// before it calls a service.
type request struct {
	c   echo.Context
	err error
}

// path is a parameter of the path. The router leaves it escaped when the path has
// escapes that matter, such as %2F.
func (r *request) path(name string) string {
	value := r.c.Param(name)
	if r.c.Request().URL.RawPath != "" {
		if unescaped, err := url.PathUnescape(value); err == nil { // checkParameters has refused malformed paths
			return unescaped
		}
	}
	return value
}

// stream is the stream that the path names.
func (r *request) stream() event.StreamID {
	return event.StreamID{Type: r.path("type"), ID: r.path("id")}
}

// query is a parameter of the query; "" if it is absent.
func (r *request) query(name string) string { return r.c.QueryParam(name) }

// list is a parameter with values separated by commas; nil if it is absent.
func (r *request) list(name string) []string {
	if text := r.query(name); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

// header is a parameter in a header; "" if it is absent.
func (r *request) header(name string) string { return r.c.Request().Header.Get(name) }

// idempotencyKey is the key by which a service recognizes a request that is sent again. It is
// optional: without it the service takes a repetition for a new request.
func (r *request) idempotencyKey() string { return r.header("Idempotency-Key") }

// fail notes the first error of the request.
func (r *request) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// flag is a parameter that is true or false; false if it is absent.
func (r *request) flag(name string) bool {
	text := r.query(name)
	if text != "" && text != "true" && text != "false" {
		r.fail(invalidParameter(name, "true or false"))
	}
	return text == "true"
}

// withoutData reports whether include_data is false.
func (r *request) withoutData() bool {
	return r.query("include_data") != "" && !r.flag("include_data")
}

func (r *request) direction() ports.Direction {
	switch r.query("direction") {
	case "backward":
		return ports.Backward
	case "", "forward":
	default:
		r.fail(invalidParameter("direction", "forward or backward"))
	}
	return ports.Forward
}

// integer is a parameter with a number between two bounds; defaultValue if it is absent.
// want is the text of the refusal.
func (r *request) integer(name string, least, most, defaultValue int, want string) int {
	if r.query(name) == "" {
		return defaultValue
	}
	n, err := strconv.Atoi(r.query(name))
	if err != nil || n < least || n > most {
		r.fail(invalidParameter(name, want))
	}
	return n
}

// pageLimit is the number of items on a page. For the next page the caller sends the answer's
// next_cursor as cursor, or in /api/streams its next_from or next_cursor as from.
func (r *request) pageLimit(name string) int {
	return r.integer(name, 1, maxPage, defaultPage, wantedPage)
}

// listPage cuts the page that a request asks for out of a list. The cursor has the id of the last
// item of the page before; start finds the place of the item behind it, -1 if there is no such id.
func listPage[T any](r *request, all []T, idOf func(T) string, start func(id string) int) (page []T, next string, err error) {
	limit := r.pageLimit("limit")
	if r.err != nil {
		return nil, "", r.err
	}
	if r.query("cursor") != "" {
		id, err := base64.RawURLEncoding.DecodeString(r.query("cursor"))
		first := -1
		if err == nil {
			first = start(string(id))
		}
		if first < 0 {
			return nil, "", invalidParameter("cursor", "next_cursor of the page before")
		}
		all = all[first:]
	}
	if len(all) > limit {
		all = all[:limit]
		next = base64.RawURLEncoding.EncodeToString([]byte(idOf(all[limit-1])))
	}
	return all, next, nil
}

const (
	defaultPage = 100
	maxPage     = 1000
	wantedPage  = "a number from 1 to 1000"
)

// sequence is a parameter with a sequence; 0 if it is absent.
func (r *request) sequence(name string) event.Sequence {
	return event.Sequence(r.integer(name, 1, math.MaxInt, 0, "a sequence such as 42; the first is 1"))
}

// date is a parameter with a date; nil if it is absent.
func (r *request) date(name string) *event.Date {
	if r.query(name) == "" {
		return nil
	}
	d, err := event.ParseDate(r.query(name))
	if err != nil {
		r.fail(invalidParameter(name, "an ISO date such as 2026-03-31"))
	}
	return &d
}

// moment is a parameter with a bound in time; zero if it is absent. See parseMoment.
func (r *request) moment(name string, isUpperBound bool) time.Time {
	if r.query(name) == "" {
		return time.Time{}
	}
	at, ok := parseMoment(r.query(name), isUpperBound)
	if !ok {
		r.fail(invalidParameter(name, "a date such as 2026-03-31 or an RFC 3339 time such as 2026-03-31T12:00:00Z"))
	}
	return at
}

// parseMoment reads a bound in time: a time, or a date for the UTC day. Upper bounds include
// their value for the caller and exclude it for the store, so the result is the end of
// the day, or the microsecond after the time.
func parseMoment(text string, isUpperBound bool) (time.Time, bool) {
	if d, err := event.ParseDate(text); err == nil {
		if isUpperBound {
			d = d.AddDays(1)
		}
		return d.Time(), true
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return t, false
	}
	t = event.Micros(t)
	if isUpperBound {
		t = t.Add(time.Microsecond)
	}
	return t, true
}

// checkParameters refuses a request that lacks a parameter of path or query, or gives a parameter
// twice. Required headers are left to the handlers.
func (r *request) checkParameters(o operation) error {
	for _, in := range [...]string{"path", "query", "header"} {
		for _, p := range o.parameters {
			if p.in != in {
				continue
			}
			if err := r.checkParameter(p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *request) checkParameter(p parameter) error {
	switch p.in {
	case "path":
		value := r.c.Param(p.name)
		if _, err := url.PathUnescape(value); value == "" || r.c.Request().URL.RawPath != "" && err != nil {
			return unreadableParameter().WithField(p.name)
		}
	case "query":
		switch values := r.c.QueryParams()[p.name]; {
		case len(values) == 0 && p.required:
			return fault.New(fault.Invalid, "request.parameter_missing", "this parameter is required here; add it").WithField(p.name)
		case len(values) > 1:
			return repeatedParameter(p.name)
		}
	case "header":
		if len(r.c.Request().Header.Values(p.name)) > 1 {
			return unreadableParameter()
		}
	}
	return nil
}

func invalidParameter(name, want string) error {
	return fault.New(fault.Invalid, "request.parameter_invalid", "this parameter is %s; correct it", want).WithField(name)
}

func unreadableParameter() *fault.Error {
	return fault.New(fault.Invalid, "request.parameter_invalid", "this parameter cannot be read; GET /api/openapi.yaml says how it is written")
}

func repeatedParameter(name string) error {
	return fault.New(fault.Invalid, "request.parameter_repeated", "this parameter is given more than once; give it once").WithField(name)
}
