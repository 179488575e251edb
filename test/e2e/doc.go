// Package e2e tests the real binary from outside: it builds cmd/backbone once per
// run, starts it as a separate process on a real PostgreSQL, and uses it over HTTP and
// on the command line as a customer does.
//
// The demonstration's books are set up once. A test that kills its server or changes
// data behind it starts one on a copy of that data folder (startOn, copyOfBooks); the
// other tests share one server (sharedDev) and use different legal entities. install makes
// an installation for `backbone serve`, without the demonstration. Drills (TestDrill...)
// kill processes or wait for real leases; `make drill` runs them. The fleet of the files
// fleet_* is three nodes under load, for TestDrillFleet.... TestReport measures idle servers;
// `make bench` runs it.
package e2e
