// Package testkit is what the repository's tests share: a database of its own for
// every test, waiting on conditions, a manual clock, and the way to
// data that lies beside the repository.
//
// Databases come from one PostgreSQL that all test binaries of one user share. The
// first binary that needs it starts it in the background; it ends by itself some
// time after the last binary has ended. With BACKBONE_TEST_DSN set (the DSN of a
// superuser of PostgreSQL 15 or newer) that server is used instead. Without any
// PostgreSQL tests are skipped, or fail when BACKBONE_REQUIRE_POSTGRES is set, as
// `make test` does.
package testkit
