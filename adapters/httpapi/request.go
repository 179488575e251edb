package httpapi

import (
	"net/url"

	"github.com/labstack/echo/v4"

	"github.com/erpbackbone/backbone/domain/fault"
)

// request gives a handler the parameters of a request, as text: a handler that reads
// a number or a time answers a malformed one with a problem that says what it takes.
type request struct{ c echo.Context }

// path is a parameter of the path. The router leaves it escaped when the path has
// escapes that matter, such as %2F.
func (r request) path(name string) string {
	value := r.c.Param(name)
	if r.c.Request().URL.RawPath != "" {
		if unescaped, err := url.PathUnescape(value); err == nil { // check has refused others
			return unescaped
		}
	}
	return value
}

// query is a parameter of the query; "" if it is absent.
func (r request) query(name string) string { return r.c.QueryParam(name) }

// header is a parameter in a header; "" if it is absent.
func (r request) header(name string) string { return r.c.Request().Header.Get(name) }

// check refuses a request that lacks a parameter of path or query, or gives a parameter
// twice. It does not check that a header is present.
func (r request) check(o operation) error {
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

func (r request) checkParameter(p parameter) error {
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

func unreadableParameter() *fault.Error {
	return fault.New(fault.Invalid, "request.parameter_invalid", "this parameter cannot be read; GET /api/openapi.yaml says how it is written")
}

func repeatedParameter(name string) error {
	return fault.New(fault.Invalid, "request.parameter_repeated", "this parameter is given more than once; give it once").WithField(name)
}
