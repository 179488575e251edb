// Package testkit is shared by the tests of the repository: a new database for every
// test, waiting on conditions, a clock that the test moves, and the paths of the repository and of data
// outside it.
//
// Databases come from one PostgreSQL that all test binaries of one user share. The
// first binary that needs it starts it in the background; it ends by itself some
// time after the last binary has ended. With BACKBONE_TEST_DSN set (the DSN of a
// superuser of PostgreSQL 15 or newer) that server is used instead. Without any
// PostgreSQL tests are skipped, or fail when BACKBONE_REQUIRE_POSTGRES is set, as
// `make test` does.
package testkit
