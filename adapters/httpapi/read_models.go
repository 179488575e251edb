package httpapi

import (
	"cmp"
	"context"
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
	"entities": true, "snapshots": true, "subscriptions": true, "erasure-requests": true, "legal-holds": true, "projections": true,
}

// declaredReadModels turns the declarations into routes.
func declaredReadModels(catalog Catalog) ([]readModel, error) {
	declared := catalog.ReadModels()
	out := make([]readModel, 0, len(declared))
	for _, path := range slices.Sorted(maps.Keys(declared)) {
		m := readModel{ReadModel: declared[path], path: path}
		parts := strings.Split(path, "/")
		if reservedSegments[parts[0]] {
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
		if q.Entity, err = s.authorizeIn(ctx, actionReadModels, r.query("legal_entity"), owner); err != nil {
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
