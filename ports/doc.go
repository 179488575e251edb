// Package ports has the interfaces through which the application reaches stores, policies,
// schemas, brokers and clocks, with the values they exchange. There is one file for each
// concern, and the adapters and the suite of that concern have the same name: subscriptions.go
// here is filled by adapters/postgres/subscriptions and adapters/memory/subscriptions.go, and
// checked by test/conformance/subscriptions.go.
//
// A port here is outbound: inbound HTTP is in adapters/httpapi. No type of pgx, echo or OPA
// appears in a signature. The comment of a method is its contract for every adapter.
package ports
