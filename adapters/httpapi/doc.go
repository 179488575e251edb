// Package httpapi serves the HTTP API that openapi.yaml describes: who asks, may
// they, is the body within the limits and well-formed, and only then the
// application. It decides nothing about the books; it translates requests into
// calls of the application and answers and faults back into documents.
package httpapi

//go:generate oapi-codegen -config internal/api/oapi-codegen.yaml openapi/openapi.yaml
