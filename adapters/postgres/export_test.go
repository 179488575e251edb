package postgres

import (
	"context"
	"io/fs"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// SameDatabase tells whether a key store's address makes it part of the log's database.
var SameDatabase = sameDatabase

// Queued is how many requests wait for all appenders of a store.
func Queued(s *Store) int {
	n := 0
	for _, a := range s.appenders {
		requests, _ := a.queue.depth()
		n += requests
	}
	return n
}

// Brief is how long an appender waits for a lock.
func Brief(s *Store) time.Duration { return s.brief() }

// Gather moves requests to a group, those that may be taken, and gives what is kept.
func Gather(requests []*ports.AppendRequest, may func(*ports.AppendRequest) bool) (group, kept []*ports.AppendRequest) {
	var items []*waiting
	for _, r := range requests {
		items = append(items, &waiting{request: r})
	}
	taken, left := gather(nil, items, false, func(w *waiting) bool { return may(w.request) }, func(*waiting) {})
	for _, w := range taken {
		group = append(group, w.request)
	}
	for _, w := range left {
		kept = append(kept, w.request)
	}
	return group, kept
}

// MigrateOwn brings the store's own schema to what the files of an earlier release are.
func MigrateOwn(ctx context.Context, dsn string, files fs.FS) error {
	if err := prepareOwner(ctx, dsn, func(string) {}); err != nil {
		return err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(becomeOwner))
	defer db.Close()
	where := bookkeeping{versions: "backbone.migrations_backbone", lock: "backbone.migration_lock", lockID: 1}
	return migrateSet(ctx, db, MigrationSet{Name: "backbone", FS: files}, where, func(string) {})
}

// AppendTexts adds a map of texts as JSON.
var AppendTexts = appendTexts

// FetchPart is how many scattered events one statement fetches.
const FetchPart = fetchPart

// BySequence fetches events by their place.
func (s *Store) BySequence(ctx context.Context, p event.PartitionID, sequences []int64, withPayload bool) ([]event.Recorded, error) {
	return s.bySequence(ctx, p, sequences, withPayload)
}
