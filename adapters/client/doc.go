// Package client calls Backbone's HTTP API from Go: the command line, the importer
// of accounts payable, tests and programs of other companies.
//
// client.gen.go is generated from the OpenAPI document of a server with the
// built-in modules: a struct for every schema, and a method of [Client] for every
// operation, named by its operation id. What a generator cannot do is written by
// hand: requests are repeated while the server asks for it (client.go), problem
// documents become faults with the same kind, code and members (problem.go), and
// [Client.Follow] and [Client.Export] read streams of events.
//
// The package never decides anything about the books: whatever it sends passes the
// checks that any other caller's requests pass.
package client

//go:generate go run ../httpapi/openapi/assemble ../httpapi/openapi/assembled.yaml
//go:generate oapi-codegen -config oapi-codegen.yaml ../httpapi/openapi/assembled.yaml
