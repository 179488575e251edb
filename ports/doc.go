// Package ports holds the interfaces through which the application reaches
// stores, policies, schemas and clocks. A port here is outbound: inbound HTTP is
// in adapters/httpapi. No pgx, echo or OPA type appears in a signature. Each
// comment says what every adapter must promise; test/conformance checks it.
package ports
