// Package leases stores the leases with which nodes divide work, and the heartbeats of the
// nodes, as rows of the log's database. Members of application/sharing call its [Store]. The
// leases on keys that the append engine takes are the key store's, not these.
package leases

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/leasesdb"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pg"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Store implements ports.Leases.
type Store struct {
	db      *pg.Database
	queries *leasesdb.Queries
	warned  atomic.Int64 // when locked leases were last reported: Unix nanoseconds
}

// New makes a Store over db.
func New(db *pg.Database) *Store { return &Store{db: db, queries: leasesdb.New()} }

var _ ports.Leases = (*Store)(nil)

// Hold implements ports.Leases.
func (l *Store) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if err := ports.CheckLease(holder, ttl); err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		return []ports.Lease{}, ctx.Err()
	}
	rows, err := l.hold(ctx, holder, ttl, resources)
	if pg.IsLockTimeout(err) {
		if resources, err = l.unlocked(ctx, resources); err == nil {
			rows, err = l.hold(ctx, holder, ttl, resources)
		}
	}
	out, err := pg.MapRows(ctx, rows, err, func(r *leasesdb.HoldLeasesRow) ports.Lease { return lease((*leasesdb.ListLeasesRow)(r)) })
	slices.SortFunc(out, func(a, b ports.Lease) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
	})
	return out, err
}

func (l *Store) hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]leasesdb.HoldLeasesRow, error) {
	names, partitions := resourceColumns(resources)
	return pg.QueryWithLockTimeout[leasesdb.HoldLeasesRow](ctx, l.db, l.lockWait(), leasesdb.HoldLeases, holder, interval(ttl), names, partitions)
}

// lockWait is how long a statement waits for each lock of another session.
func (l *Store) lockWait() time.Duration { return l.db.Config.Limits.LeaseLockTimeout }

// lockedLeasesWarning is the time between two warnings about locked leases, since nodes ask for
// leases several times a second.
const lockedLeasesWarning = 10 * time.Second

// unlocked leaves out the leases that another session locks now, such as an
// administrator's: one locked lease must not cost a node all of its leases.
func (l *Store) unlocked(ctx context.Context, resources []ports.LeaseResource) ([]ports.LeaseResource, error) {
	names, partitions := resourceColumns(resources)
	locked, err := pg.QueryWithLockTimeout[leasesdb.ListLockedLeasesRow](ctx, l.db, l.lockWait(), leasesdb.ListLockedLeases, names, partitions)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	if last := l.warned.Load(); now-last > lockedLeasesWarning.Nanoseconds() && l.warned.CompareAndSwap(last, now) {
		l.db.Log.WarnContext(ctx, "another session locks leases; backbone doctor --section contention names it", "leases", len(locked))
	}
	return slices.DeleteFunc(slices.Clone(resources), func(r ports.LeaseResource) bool {
		return slices.Contains(locked, leasesdb.ListLockedLeasesRow{Name: r.Name, PartitionID: int32(r.Partition)})
	}), nil
}

// Release implements ports.Leases.
func (l *Store) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	if len(resources) == 0 {
		return ctx.Err()
	}
	names, partitions := resourceColumns(resources)
	_, err := pg.QueryWithLockTimeout[struct{}](ctx, l.db, l.lockWait(), leasesdb.ReleaseLeases, holder, names, partitions)
	return pg.Translate(ctx, err)
}

// List implements ports.Leases.
func (l *Store) List(ctx context.Context, name string) ([]ports.Lease, error) {
	rows, err := l.queries.ListLeases(ctx, l.db.Reads, name)
	return pg.MapRows(ctx, rows, err, lease)
}

// forgetNodes is how long the last heartbeat of a node is stored, in units of the time
// for which it counts.
const forgetNodes = 100

// Beat implements ports.Leases. Heartbeats for work "" have a table of their own, because older
// releases know only that one.
func (l *Store) Beat(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if err := ports.CheckLease(node, within); err != nil {
		return nil, err
	}
	statement, arguments := leasesdb.BeatWorkNode, []any{work, node, interval(forgetNodes * within), interval(within)}
	if work == "" {
		statement, arguments = leasesdb.BeatNode, arguments[1:]
	}
	nodes, err := pg.QueryColumnWithLockTimeout[string](ctx, l.db, l.lockWait(), statement, arguments...)
	// While another session locks the node's row, other nodes may take this one for dead. It
	// can still renew the leases that it holds.
	switch locked := pg.IsLockTimeout(err); {
	case locked && work == "":
		nodes, err = l.queries.ListAliveNodes(ctx, l.db.Reads, &leasesdb.ListAliveNodesParams{Node: node, Within: interval(within)})
	case locked:
		nodes, err = l.queries.ListAliveWorkNodes(ctx, l.db.Reads, &leasesdb.ListAliveWorkNodesParams{Work: work, Node: node, Within: interval(within)})
	}
	return nodes, pg.Translate(ctx, err)
}

// Leave implements ports.Leases.
func (l *Store) Leave(ctx context.Context, work, node string) error {
	if work == "" {
		return pg.Translate(ctx, l.queries.DeleteNode(ctx, l.db.Reads, node))
	}
	return pg.Translate(ctx, l.queries.DeleteWorkNode(ctx, l.db.Reads, &leasesdb.DeleteWorkNodeParams{Work: work, Node: node}))
}

// Prune implements ports.Leases.
func (l *Store) Prune(ctx context.Context, prefix string, keep []string) (int, error) {
	keep = append([]string{}, keep...) // never NULL
	n, err := l.queries.PruneLeases(ctx, l.db.Reads, &leasesdb.PruneLeasesParams{Prefix: prefix, Keep: keep})
	return int(n), pg.Translate(ctx, err)
}

func lease(r *leasesdb.ListLeasesRow) ports.Lease {
	return ports.Lease{
		LeaseResource: ports.LeaseResource{Name: r.Name, Partition: event.PartitionID(r.PartitionID)},
		Holder:        r.Holder, Term: uint64(r.Term), TakenAt: r.TakenAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
	}
}

func resourceColumns(resources []ports.LeaseResource) (names []string, partitions []int32) {
	return pg.Map(resources, func(r *ports.LeaseResource) string { return r.Name }), pg.Map(resources, func(r *ports.LeaseResource) int32 { return int32(r.Partition) })
}

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}
