// Package e2e tests the real binary from outside: it builds cmd/backbone once per
// run, starts it as a process of its own on a real PostgreSQL, and talks to it over
// HTTP and on the command line as a customer does.
//
// The demonstration's books are set up once. Every test that needs a server of its
// own, because it kills it or tampers with its data, starts on a copy of that data
// folder; the others share one server and keep to different legal entities. Drills (TestDrill...)
// kill processes or wait for real leases; `make drill` runs them. TestReport measures idle
// servers; `make bench` runs it.
package e2e
