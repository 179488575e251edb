package httpapi

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Reports answers read models: query.Reports.
type Reports interface {
	Query(ctx context.Context, q query.ReportQuery) (ports.Report, error)
}

// readModel is a declared read model and where it is served.
type readModel struct {
	module.ReadModel
	path  string // "gl/accounts/{account}/ledger"
	route string // "/api/gl/accounts/:account/ledger"
}

// reserved are the first segments of the core document's paths.
var reserved = map[string]bool{
	"events": true, "event-types": true, "intents": true, "admin": true, "openapi.yaml": true, "query": true, "streams": true,
	"entities": true, "snapshots": true, "subscriptions": true, "erasure-requests": true, "legal-holds": true, "projections": true,
}

// declaredReadModels turns the declarations into routes.
func declaredReadModels(catalog Catalog) ([]readModel, error) {
	declared := catalog.ReadModels()
	out := make([]readModel, 0, len(declared))
	for _, path := range slices.Sorted(maps.Keys(declared)) {
		m := readModel{ReadModel: declared[path], path: path}
		parts := strings.Split(path, "/")
		if reserved[parts[0]] {
			return nil, fmt.Errorf("read model %s: /api/%s is taken by the API itself", path, parts[0])
		}
		inPath := map[string]bool{}
		for i, part := range parts {
			if name, ok := strings.CutPrefix(part, "{"); ok {
				name = strings.TrimSuffix(name, "}")
				inPath[name] = true
				parts[i] = ":" + name
			}
		}
		for _, p := range m.Params {
			if p.InPath != inPath[p.Name] {
				return nil, fmt.Errorf("read model %s: parameter %s is declared in the path or is in it, but not both", path, p.Name)
			}
			if _, common := commonParameters[p.Name]; common {
				return nil, fmt.Errorf("read model %s: parameter %s is one that every read model has", path, p.Name)
			}
			delete(inPath, p.Name)
		}
		if len(inPath) > 0 {
			return nil, fmt.Errorf("read model %s: its path has parameters that are not declared", path)
		}
		m.route = "/api/" + strings.Join(parts, "/")
		out = append(out, m)
	}
	return out, nil
}

// commonParameters are those that every read model has, with their place in the
// document.
var commonParameters = map[string]string{
	"legal_entity": "InLegalEntity", "as_of": "AsOf", "known_at": "KnownAt", "min_sequence": "MinSequence", "limit": "Limit", "cursor": "Cursor",
}

const actionReadModels = "readmodels.read"

// readModelHandler makes the handler of a declared read model.
func readModelHandler(m readModel) handler {
	return func(s *Server, ctx context.Context, r *request) (any, error) {
		q := query.ReportQuery{Path: m.path, Params: map[string]string{}}
		for name, values := range r.c.QueryParams() {
			if len(values) != 1 {
				return nil, repeatedParameter(name)
			}
			if _, common := commonParameters[name]; !common {
				q.Params[name] = values[0]
			}
		}
		for _, p := range m.Params {
			if p.InPath {
				if _, err := url.PathUnescape(r.c.Param(p.Name)); err != nil && r.c.Request().URL.RawPath != "" {
					return nil, invalidParameter(p.Name, "percent-encoded")
				}
				q.Params[p.Name] = r.path(p.Name)
			}
		}
		if r.query("legal_entity") == "" {
			return nil, fault.New(fault.Invalid, "request.parameter_missing", "legal_entity is required; add it").WithField("legal_entity")
		}
		var err error
		if q.Entity, err = s.authorizeIn(ctx, actionReadModels, r.query("legal_entity")); err != nil {
			return nil, err
		}
		if q.Limit = r.pageLimit("limit"); r.err != nil {
			return nil, r.err
		}
		q.AsOf, q.KnownAt, q.MinSequence, q.Cursor = r.query("as_of"), r.query("known_at"), r.query("min_sequence"), r.query("cursor")
		report, err := s.config.Reports.Query(ctx, q)
		if err != nil {
			return nil, err
		}
		body, err := renderReport(report)
		if err != nil {
			return nil, err
		}
		body, err = s.openSealedValues(ctx, q.Entity.Partition, body)
		return answer{status: http.StatusOK, body: body}, err
	}
}

// renderReport writes header, rows, footer and paging of a report, in the order of its
// fields.
func renderReport(r ports.Report) ([]byte, error) {
	w := reportWriter{}
	w.buffer.WriteByte('{')
	if r.Flat {
		w.members(r.Header)
	} else {
		w.object("header", r.Header)
	}
	rows := r.RowsName
	if rows == "" {
		rows = "rows"
	}
	w.member(rows, list(r.Rows))
	switch {
	case r.Flat:
		w.members(r.Footer)
	case len(r.Footer) > 0:
		w.object("footer", r.Footer)
	}
	if !r.Flat || r.HasMore {
		w.member("has_more", r.HasMore)
	}
	if r.NextCursor != "" {
		w.member("next_cursor", r.NextCursor)
	}
	w.buffer.WriteByte('}')
	return w.buffer.Bytes(), w.err
}

type reportWriter struct {
	buffer    bytes.Buffer
	hasMember bool // a member has been written before
	err       error
}

func (w *reportWriter) name(name string) {
	if w.hasMember {
		w.buffer.WriteByte(',')
	}
	w.hasMember = true
	w.value(name)
	w.buffer.WriteByte(':')
}

func (w *reportWriter) value(v any) {
	b, err := encode(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.buffer.Write(b)
}

func (w *reportWriter) member(name string, v any) {
	w.name(name)
	w.value(v)
}

func (w *reportWriter) members(fields []ports.ReportField) {
	for _, f := range fields {
		w.member(f.Name, f.Value)
	}
}

func (w *reportWriter) object(name string, fields []ports.ReportField) {
	w.name(name)
	w.buffer.WriteByte('{')
	w.hasMember = false
	w.members(fields)
	w.buffer.WriteByte('}')
	w.hasMember = true
}
