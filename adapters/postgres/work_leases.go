package postgres

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/backbonedb"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Leases are rows of the log's database, which several nodes share work with.
type Leases struct {
	db      *Database
	queries *backbonedb.Queries
	warned  atomic.Int64 // when locked leases were last reported: Unix nanoseconds
}

func newLeases(db *Database) *Leases { return &Leases{db: db, queries: backbonedb.New()} }

var (
	_ ports.Leases     = (*Leases)(nil)
	_ ports.SharedWork = (*Leases)(nil)
)

// Hold implements ports.Leases.
func (l *Leases) Hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]ports.Lease, error) {
	if err := ports.CheckLease(holder, ttl); err != nil {
		return nil, err
	}
	if len(resources) == 0 {
		return []ports.Lease{}, ctx.Err()
	}
	rows, err := l.hold(ctx, holder, ttl, resources)
	if isLockTimeout(err) {
		if resources, err = l.unlocked(ctx, resources); err == nil {
			rows, err = l.hold(ctx, holder, ttl, resources)
		}
	}
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make([]ports.Lease, len(rows))
	for i, r := range rows {
		out[i] = lease(backbonedb.ListLeasesRow(r))
	}
	slices.SortFunc(out, func(a, b ports.Lease) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}

func (l *Leases) hold(ctx context.Context, holder string, ttl time.Duration, resources []ports.LeaseResource) ([]backbonedb.HoldLeasesRow, error) {
	names, partitions := resourceColumns(resources)
	return brief[backbonedb.HoldLeasesRow](ctx, l.db, l.patience(), backbonedb.HoldLeases, holder, interval(ttl), names, partitions)
}

// patience is how long a statement waits for each lock of somebody else.
func (l *Leases) patience() time.Duration { return l.db.config.limits.share }

// lockedLeasesWarning is between two lines in the log that say so: leases are asked for
// several times a second.
const lockedLeasesWarning = 10 * time.Second

// unlocked leaves out what somebody else locks just now, such as a session of an
// administrator: one lease that cannot be had must not cost a node all of them.
func (l *Leases) unlocked(ctx context.Context, resources []ports.LeaseResource) ([]ports.LeaseResource, error) {
	names, partitions := resourceColumns(resources)
	locked, err := brief[backbonedb.ListLockedLeasesRow](ctx, l.db, l.patience(), backbonedb.ListLockedLeases, names, partitions)
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	if last := l.warned.Load(); now-last > lockedLeasesWarning.Nanoseconds() && l.warned.CompareAndSwap(last, now) {
		l.db.log.WarnContext(ctx, "another session locks leases; backbone doctor --section contention names it", "leases", len(locked))
	}
	return slices.DeleteFunc(slices.Clone(resources), func(r ports.LeaseResource) bool {
		return slices.Contains(locked, backbonedb.ListLockedLeasesRow{Name: r.Name, PartitionID: int32(r.Partition)})
	}), nil
}

// Release implements ports.Leases.
func (l *Leases) Release(ctx context.Context, holder string, resources []ports.LeaseResource) error {
	if len(resources) == 0 {
		return ctx.Err()
	}
	names, partitions := resourceColumns(resources)
	_, err := brief[struct{}](ctx, l.db, l.patience(), backbonedb.ReleaseLeases, holder, names, partitions)
	return translate(ctx, err)
}

// List implements ports.Leases.
func (l *Leases) List(ctx context.Context, name string) ([]ports.Lease, error) {
	rows, err := l.queries.ListLeases(ctx, l.db.reads, name)
	if err != nil {
		return nil, translate(ctx, err)
	}
	out := make([]ports.Lease, len(rows))
	for i, r := range rows {
		out[i] = lease(r)
	}
	return out, nil
}

// forgetNodes is how long the last sign of life of a node stays, in units of what is
// alive.
const forgetNodes = 100

// Beat implements ports.Leases.
func (l *Leases) Beat(ctx context.Context, node string, within time.Duration) ([]string, error) {
	if err := ports.CheckLease(node, within); err != nil {
		return nil, err
	}
	nodes, err := briefColumn[string](ctx, l.db, l.patience(), backbonedb.BeatNode, node, interval(forgetNodes*within), interval(within))
	if isLockTimeout(err) { // the others may think that it is gone; what it holds it can renew
		nodes, err = l.queries.ListAliveNodes(ctx, l.db.reads, &backbonedb.ListAliveNodesParams{Node: node, Within: interval(within)})
	}
	if err != nil {
		return nil, translate(ctx, err)
	}
	return nodes, nil
}

// Leave implements ports.Leases.
func (l *Leases) Leave(ctx context.Context, node string) error {
	return translate(ctx, l.queries.DeleteNode(ctx, l.db.reads, node))
}

// BeatWork implements ports.SharedWork.
func (l *Leases) BeatWork(ctx context.Context, work, node string, within time.Duration) ([]string, error) {
	if err := ports.CheckLease(node, within); err != nil {
		return nil, err
	}
	nodes, err := briefColumn[string](ctx, l.db, l.patience(), backbonedb.BeatWorkNode, work, node, interval(forgetNodes*within), interval(within))
	if isLockTimeout(err) {
		nodes, err = l.queries.ListAliveWorkNodes(ctx, l.db.reads, &backbonedb.ListAliveWorkNodesParams{Work: work, Node: node, Within: interval(within)})
	}
	if err != nil {
		return nil, translate(ctx, err)
	}
	return nodes, nil
}

// LeaveWork implements ports.SharedWork.
func (l *Leases) LeaveWork(ctx context.Context, work, node string) error {
	return translate(ctx, l.queries.DeleteWorkNode(ctx, l.db.reads, &backbonedb.DeleteWorkNodeParams{Work: work, Node: node}))
}

// Prune implements ports.SharedWork.
func (l *Leases) Prune(ctx context.Context, prefix string, keep []string) (int, error) {
	if keep == nil {
		keep = []string{}
	}
	n, err := l.queries.PruneLeases(ctx, l.db.reads, &backbonedb.PruneLeasesParams{Prefix: prefix, Keep: keep})
	if err != nil {
		return 0, translate(ctx, err)
	}
	return int(n), nil
}

func lease(r backbonedb.ListLeasesRow) ports.Lease {
	return ports.Lease{
		LeaseResource: ports.LeaseResource{Name: r.Name, Partition: event.PartitionID(r.PartitionID)},
		Holder:        r.Holder, Term: uint64(r.Term), TakenAt: r.TakenAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
	}
}

func resourceColumns(resources []ports.LeaseResource) (names []string, partitions []int32) {
	names, partitions = make([]string, len(resources)), make([]int32, len(resources))
	for i, r := range resources {
		names[i], partitions[i] = r.Name, int32(r.Partition)
	}
	return names, partitions
}

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}
