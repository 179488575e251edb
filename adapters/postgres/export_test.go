package postgres

import (
	"context"
	"io/fs"
	"slices"
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

// Observer is what the metrics of a store go to.
func Observer(s *Store) Metrics { return s.metrics }

// Unhurried gives a store's sessions so long for whatever they do that a slow machine
// ends none of them.
func Unhurried(c *Config, d time.Duration) {
	c.limits = limits{idle: d, turn: d, lock: d, tell: d, share: d}
	c.GroupTimeout, c.LockTimeout = d, d
}

// UnhurriedKeys gives the sessions of a key store so long.
func UnhurriedKeys(c *KeyStoreConfig, d time.Duration) { c.patience = d }

// UnhurriedMonitor gives the questions of a monitor so long.
func UnhurriedMonitor(ctx context.Context, m *Monitor, d time.Duration) error {
	_, err := m.conn.Exec(ctx, "SELECT set_config('statement_timeout', $1, false), set_config('lock_timeout', $1, false)", milliseconds(d))
	return err
}

// Usual gives a store's sessions as long as a server gives them.
func Usual(c *Config) { c.limits, c.GroupTimeout, c.LockTimeout = usualLimits, 0, 0 }

// ForLocks gives a store's sessions so long to wait for locks, appends and all others.
func ForLocks(c *Config, d time.Duration) { c.limits.lock, c.LockTimeout = d, d }

// BePatient lets the requests of legal entities whose lock was missed already wait so
// long for it from now on.
func BePatient(s *Store, d time.Duration) {
	for _, a := range s.appenders {
		a.queue.mu.Lock()
		a.queue.patience = d
		a.queue.mu.Unlock()
	}
}

// Patience is until when the requests that wait beside an appender wait for a lock.
func Patience(s *Store) (until []time.Time) {
	for _, a := range s.appenders {
		a.queue.mu.Lock()
		for _, d := range a.queue.detours {
			for _, w := range slices.Concat(d.first, d.rest) {
				until = append(until, w.until)
			}
		}
		a.queue.mu.Unlock()
	}
	return until
}

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
