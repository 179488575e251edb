package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/tenancy"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Reports answers read models: query.Reports.
type Reports interface {
	Query(ctx context.Context, q query.ReportQuery) (ports.Report, error)
}

// readModel is a declared read model and its address.
type readModel struct {
	module.ReadModel
	path  string // "gl/accounts/{account}/ledger"
	route string // "/api/gl/accounts/:account/ledger"
}

// reservedSegments are the first segments of the core document's paths.
var reservedSegments = map[string]bool{
	"events": true, "event-types": true, "intents": true, "admin": true, "openapi.yaml": true, "query": true, "streams": true,
	"entities": true, "snapshots": true, "trace": true, "subscriptions": true, "erasure-requests": true, "legal-holds": true, "projections": true,
}

// declaredReadModels turns the declarations into routes.
func declaredReadModels(catalog Catalog) ([]readModel, error) {
	declared := catalog.ReadModels()
	out := make([]readModel, 0, len(declared))
	for _, path := range slices.Sorted(maps.Keys(declared)) {
		m := readModel{ReadModel: declared[path], path: path}
		var err error
		if m.route, err = routeOf(path, m.Params); err != nil {
			return nil, fmt.Errorf("read model %s: %w", path, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// routeOf makes the route of a declared path, "gl/accounts/{account}/ledger".
func routeOf(path string, params []module.Param) (string, error) {
	parts := strings.Split(path, "/")
	if reservedSegments[parts[0]] {
		return "", fmt.Errorf("/api/%s is taken by the API itself", parts[0])
	}
	inPath := map[string]bool{}
	for i, part := range parts {
		if name, ok := strings.CutPrefix(part, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			inPath[name] = true
			parts[i] = ":" + name
		}
	}
	for _, p := range params {
		if p.InPath != inPath[p.Name] {
			return "", fmt.Errorf("parameter %s is declared in the path or is in it, but not both", p.Name)
		}
		if _, common := commonParameters[p.Name]; common {
			return "", fmt.Errorf("parameter %s is one that every read model has", p.Name)
		}
		delete(inPath, p.Name)
	}
	if len(inPath) > 0 {
		return "", errors.New("the path has parameters that are not declared")
	}
	return "/api/" + strings.Join(parts, "/"), nil
}

// commonParameters are those that every read model has, with their names under
// components/parameters of the document.
var commonParameters = map[string]string{
	"legal_entity": "InLegalEntity", "as_of": "AsOf", "known_at": "KnownAt", "min_sequence": "MinSequence", "format": "Format", "limit": "Limit", "cursor": "Cursor",
}

const actionReadModels = "readmodels.read"

// readModelHandler makes the handler of a declared read model.
func readModelHandler(m readModel) handler {
	owner := tenancy.TypeAccess{Type: m.path, BuiltIn: true}
	owner.Module, _, _ = strings.Cut(m.path, "/")
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
		err := readPathParams(r, m.Params, q.Params)
		if err != nil {
			return nil, err
		}
		if q.Entity, err = s.declaredRouteEntity(ctx, r, actionReadModels, owner); err != nil {
			return nil, err
		}
		if q.Limit = r.pageLimit("limit"); r.err != nil {
			return nil, r.err
		}
		format := cmp.Or(r.query("format"), "json")
		if format != "json" && format != "csv" {
			return nil, invalidParameter("format", "json or csv")
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
		if body, err = s.openSealedValues(ctx, q.Entity.Partition, body); err != nil {
			return nil, err
		}
		out := answer{status: http.StatusOK, body: body}
		if format == "csv" {
			out.contentType, out.nextCursor = mimeCSV, report.NextCursor
			out.body, err = reportCSV(m.ReadModel, q.Params, body)
		}
		return out, err
	}
}

// readPathParams adds the parameters of the path of a declared route.
func readPathParams(r *request, declared []module.Param, params map[string]string) error {
	for _, p := range declared {
		if !p.InPath {
			continue
		}
		if _, err := url.PathUnescape(r.c.Param(p.Name)); err != nil && r.c.Request().URL.RawPath != "" {
			return invalidParameter(p.Name, "percent-encoded")
		}
		params[p.Name] = r.path(p.Name)
	}
	return nil
}

// declaredRouteEntity finds the legal entity that the query of a declared route names, and checks
// that the caller may do the action in it.
func (s *Server) declaredRouteEntity(ctx context.Context, r *request, action string, owner tenancy.TypeAccess) (ports.LegalEntity, error) {
	code := r.query("legal_entity")
	if code == "" {
		return ports.LegalEntity{}, fault.New(fault.Invalid, "request.parameter_missing", "legal_entity is required; add it").WithField("legal_entity")
	}
	return s.authorizeIn(ctx, action, code, owner)
}

// renderReport writes header, rows, footer and paging of a report, in the order of its
// fields.
func renderReport(r ports.Report) ([]byte, error) {
	var fields ports.ReportFields
	if r.Flat {
		fields = append(fields, r.Header...)
	} else {
		fields = append(fields, ports.ReportField{Name: "header", Value: r.Header})
	}
	fields = append(fields, ports.ReportField{Name: cmp.Or(r.RowsName, "rows"), Value: nonNil(r.Rows)})
	switch {
	case r.Flat:
		fields = append(fields, r.Footer...)
	case len(r.Footer) > 0:
		fields = append(fields, ports.ReportField{Name: "footer", Value: r.Footer})
	}
	if !r.Flat || r.HasMore {
		fields = append(fields, ports.ReportField{Name: "has_more", Value: r.HasMore})
	}
	if r.NextCursor != "" {
		fields = append(fields, ports.ReportField{Name: "next_cursor", Value: r.NextCursor})
	}
	return encode(fields)
}
