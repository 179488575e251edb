// Package tamper holds the verdict about each table and column of the database (verdicts_test.go):
// what finds an edit of it, what heals it, or why an edit cannot matter. Its tests compare the
// verdicts with the catalog, so that a new column needs one, and attack an installation as a
// superuser would: each column, row and invented row in turn, and each must be found or healed
// as its verdict says. docs/verify.md has the verdicts in short.
package tamper
