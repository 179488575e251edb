// Package httpapi serves the HTTP API.
//
// openapi/openapi.yaml is the source of its routes: [New] derives method, path,
// parameters, body and access action of every operation from the document and binds
// it to a handler by operation id. The handlers of a resource, and the table that
// names them, are in the file of that resource; a new route is written into the
// document and into that file. The table of a new resource is also listed in resources
// (operations.go).
//
// A [Server] checks each request in one order (authenticated, allowed, well-formed and
// within the limits; access.go, request.go, body.go), calls a service of [Config], and
// writes its answer or, for a fault, an RFC 9457 problem document (problem.go). It is
// built by cmd/wire and by tests.
//
// The package decides nothing about the books. It converts a request once, to the
// types of the application, and never stores anything.
package httpapi

//go:generate oapi-codegen -config internal/api/oapi-codegen.yaml openapi/openapi.yaml
