// Package postgres keeps the log, its side rows and the directories in PostgreSQL 15 or
// later. Open connects and gives a Store, which holds one object per concern; each of them
// lives in a package of its own below this one and implements the ports of that name:
//
//	eventlog           reading, searching and auditing events
//	eventlog/appender  the append engine
//	registry           event types
//	directory          installation, legal entities, principals
//	intents            intents and idempotency keys
//	streams            snapshots of entities and streams
//	projections        checkpoints, versions, rows, snapshots and targets
//	subscriptions      subscriptions, deliveries, webhooks, publishers
//	leases             leases on work
//	keystore           the keys of persons; opened separately, as another role
//	monitor            measurements and findings for operators
//	migrate            schemas
//
// The packages share internal/pg. They know each other in the few directions that the
// architecture tests name.
package postgres

//go:generate ../../bin/tools/sqlc generate -f ../../sqlc.yaml
