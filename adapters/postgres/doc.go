// Package postgres keeps the log, its side rows and the directories in
// PostgreSQL 15 or later. It implements every port that touches the database.
//
// Appends go through a few appenders per process, each of which gathers waiting
// requests of many partitions into one transaction of two round trips: lock the
// head rows and read what the requests build on; decide in Go; insert everything
// in sets and commit. The head row locks are the only truth, so several processes
// may append to one partition. See Store.Append.
package postgres

//go:generate ../../bin/tools/sqlc generate -f ../../sqlc.yaml
