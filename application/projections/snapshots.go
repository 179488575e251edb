package projections

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// KeptSnapshots is how many snapshots of a projection are kept for each scope: for all
// partitions, and for each single one.
const KeptSnapshots = 3

// Snapshot is a frozen copy of the active version of a projection.
type Snapshot struct {
	Version   int
	Partition event.PartitionID // that it covers; 0: all
	Complete  bool              // else nodes are still copying it
	SameCode  bool              // the handler that builds the next version also built it
	StartedAt time.Time
	StartedBy string
	Parts     []ports.SnapshotPart
}

// TakeSnapshot orders a snapshot of the active version, in all partitions or in that of the
// order. Any node copies the partitions, each in a transaction of its own. Faults:
// projection.not_found, projection.rebuild_unsupported, projection.snapshot_under_way,
// projection.not_read.
func (r *Rebuilds) TakeSnapshot(ctx context.Context, o Order) (Rebuild, error) {
	all, err := r.list(ctx, o.Name)
	if err != nil {
		return Rebuild{}, err
	}
	active, next := projection.Projection{}, 0
	for _, p := range all {
		if p.Name != o.Name {
			continue
		}
		next = max(next, p.Version+1)
		switch {
		case p.Role == projection.Active:
			active = p
		case p.Role == projection.Saving && p.Scope == o.Partition:
			return Rebuild{}, projection.SnapshotInProgress(o.Name)
		}
	}
	if active.Name == "" {
		return Rebuild{}, projection.NotFound(o.Name)
	}
	if tables, _ := r.tables(active); len(tables) == 0 || r.config.Snapshots == nil {
		return Rebuild{}, fault.New(fault.FailedPrecondition, "projection.rebuild_unsupported", "projection %s does not say which tables it writes; there is nothing to copy", o.Name)
	}
	p := active
	p.Version, p.Role, p.Scope, p.Base, p.SelfSwitching, p.ChangedBy = next, projection.Saving, o.Partition, 0, false, o.By
	if err := r.requireCovered(ctx, p); err != nil {
		return Rebuild{}, err
	}
	if err := r.addVersion(ctx, p, projection.SnapshotInProgress(o.Name)); err != nil {
		return Rebuild{}, err
	}
	return r.Show(ctx, o.Name)
}

// DropSnapshot drops a snapshot; its rows are removed in steps. Fault
// projection.snapshot_not_found.
func (r *Rebuilds) DropSnapshot(ctx context.Context, o Order) (Rebuild, error) {
	all, err := r.list(ctx, o.Name)
	if err != nil {
		return Rebuild{}, err
	}
	for _, p := range all {
		if p.Name != o.Name || p.Version != o.Snapshot || p.Scope != o.Partition || p.Role != projection.Saved && p.Role != projection.Saving {
			continue
		}
		if err := r.config.Versions.DropProjection(ctx, o.Name, p.Version, o.By); err != nil {
			return Rebuild{}, err
		}
		r.config.Logger.InfoContext(ctx, "a snapshot of a projection is removed", "projection", o.Name, "version", p.Version, "by", o.By)
		return r.Show(ctx, o.Name)
	}
	return Rebuild{}, projection.SnapshotNotFound(o.Name)
}

// addSnapshots lists the snapshots, newest first.
func (r *Rebuilds) addSnapshots(ctx context.Context, all []projection.Projection, out *Rebuild) error {
	if r.config.Snapshots == nil {
		return nil
	}
	var parts []ports.SnapshotPart
	for _, p := range all {
		if p.Name != out.Projection || p.Role != projection.Saved && p.Role != projection.Saving {
			continue
		}
		if parts == nil {
			var err error
			if parts, err = r.config.Snapshots.SnapshotParts(ctx, out.Projection); err != nil {
				return err
			}
		}
		s := Snapshot{Version: p.Version, Partition: p.Scope, Complete: p.Role == projection.Saved, SameCode: r.buildsSame(all, p), StartedAt: p.CreatedAt, StartedBy: p.ChangedBy}
		for _, part := range parts {
			if part.Version == p.Version {
				s.Parts = append(s.Parts, part)
			}
		}
		out.Snapshots = append(out.Snapshots, s)
	}
	slices.Reverse(out.Snapshots)
	return nil
}

// buildsSame reports whether the code that built a version would also build the next one.
func (r *Rebuilds) buildsSame(all []projection.Projection, p projection.Projection) bool {
	if d := r.declared(p.Name); d != nil {
		return p.Code == d.Version
	}
	i := slices.IndexFunc(all, isActive(p.Name))
	return i >= 0 && projection.SameCode(all[i], p)
}

// chooseBase sets the snapshot that a version starts from, if the order names one.
func (r *Rebuilds) chooseBase(ctx context.Context, all []projection.Projection, o Order, next *projection.Projection) error {
	if o.Snapshot == 0 && !o.Latest {
		return nil
	}
	if r.config.Snapshots == nil {
		return projection.SnapshotNotFound(o.Name)
	}
	parts, err := r.config.Snapshots.SnapshotParts(ctx, o.Name)
	if err != nil {
		return err
	}
	var refused error                        // why the newest snapshot was refused
	for _, p := range slices.Backward(all) { // by version
		if p.Name != o.Name || p.Role != projection.Saved || !o.Latest && p.Version != o.Snapshot || o.Latest && p.Scope != 0 && p.Scope != o.Partition {
			continue
		}
		held, usable := false, false
		for _, part := range parts {
			if part.Version == p.Version && next.Reads(part.Partition) {
				held, usable = true, usable || part.Usable
			}
		}
		switch {
		case !held:
		case !projection.SameCode(p, *next):
			refused = cmp.Or(refused, error(projection.OtherCode(o.Name, p.Version)))
		case !usable:
			refused = cmp.Or(refused, error(projection.SnapshotOutdated(o.Name, p.Version)))
		default:
			next.Base, next.Status = p.Version, projection.Created
			return nil
		}
	}
	return cmp.Or(refused, error(projection.SnapshotNotFound(o.Name)))
}

// SnapshotCheck is how often a node looks for snapshots that are due and for outdated parts of
// snapshots. A redacted value is never copied back, however long that takes.
const SnapshotCheck = time.Minute

// orderDue orders a snapshot of an active version that has read SnapshotEvery events since its
// newest snapshot of all legal entities. If several nodes order it, the register accepts one.
func (r *Rebuilds) orderDue(ctx context.Context, all []projection.Projection, p projection.Projection) error {
	newest := 0
	for _, s := range all {
		if s.Name != p.Name || s.Scope != 0 {
			continue
		}
		if s.Role == projection.Saving {
			return nil
		}
		if s.Role == projection.Saved && projection.SameCode(s, p) {
			newest = max(newest, s.Version)
		}
	}
	saved := map[event.PartitionID]event.Sequence{}
	if newest > 0 {
		parts, err := r.config.Snapshots.SnapshotParts(ctx, p.Name)
		if err != nil {
			return err
		}
		for _, part := range parts {
			if part.Version == newest {
				saved[part.Partition] = part.Sequence
			}
		}
	}
	checkpoints, err := r.config.Store.Checkpoints(ctx, p.Name, p.Version)
	if err != nil {
		return err
	}
	read := 0
	for _, c := range checkpoints {
		read += int(c.Sequence - min(c.Sequence, saved[c.Partition]))
	}
	if read < r.config.SnapshotEvery {
		return nil
	}
	_, err = r.TakeSnapshot(ctx, Order{Name: p.Name, Decider: Decider{By: "system"}})
	if fault.CodeOf(err) == projection.CodeSnapshotInProgress {
		return nil // another node was faster
	}
	return err
}

// CopySnapshots copies the missing parts of snapshots and of versions that start from one, and
// removes parts that may hold redacted values. It orders snapshots that are due, which the next
// call copies. It leaves the parts alone that another node copies.
func (r *Rebuilds) CopySnapshots(ctx context.Context) error {
	if r.config.Snapshots == nil {
		return nil
	}
	all, err := r.listAll(ctx)
	if err != nil {
		return err
	}
	var first error
	now := r.config.Clock.Now()
	check := absDiff(now, r.checked) >= SnapshotCheck
	if check {
		r.checked = now
	}
	for _, p := range all {
		tables, known := r.tables(p)
		if !known {
			continue
		}
		var err error
		switch {
		case p.Role == projection.Saving:
			err = r.reportOnce(ctx, "copy", p, r.copySnapshot(ctx, all, p, tables))
		case p.Role == projection.Saved && check:
			err = r.reportOnce(ctx, "redact", p, r.removeRedacted(ctx, p, tables))
		case p.Role == projection.Active && check && r.config.SnapshotEvery > 0 && len(tables) > 0:
			err = r.reportOnce(ctx, "snapshot", p, r.orderDue(ctx, all, p))
		case p.Role == projection.Building && p.Base != 0 && p.Status == projection.Created:
			err = r.reportOnce(ctx, "begin", p, r.copyBase(ctx, p, tables))
		}
		if first == nil {
			first = err
		}
	}
	return first
}

func (r *Rebuilds) partsOf(ctx context.Context, p projection.Projection, version int) ([]ports.SnapshotPart, error) {
	parts, err := r.config.Snapshots.SnapshotParts(ctx, p.Name)
	return slices.DeleteFunc(parts, func(s ports.SnapshotPart) bool { return s.Version != version || !p.Reads(s.Partition) }), err
}

// copySnapshot copies the parts of a snapshot. It drops the snapshot if another handler now builds
// the active version, since its parts would then come from two handlers.
func (r *Rebuilds) copySnapshot(ctx context.Context, all []projection.Projection, p projection.Projection, tables []ports.ProjectionTable) error {
	at := slices.IndexFunc(all, isActive(p.Name))
	if at < 0 {
		return nil
	}
	if err := r.config.Snapshots.PlanSnapshot(ctx, p.Name, p.Version, all[at].Version); err != nil {
		return err
	}
	parts, err := r.partsOf(ctx, p, p.Version)
	if err != nil {
		return err
	}
	complete := true
	for _, part := range parts {
		if !part.TakenAt.IsZero() {
			continue
		}
		authenticate, err := r.config.Proofs.Authenticate(ctx, part.Partition, p)
		if err != nil {
			return err
		}
		done, err := r.config.Snapshots.SavePart(ctx, ports.SnapshotCopy{Projection: p.Name, Version: p.Version, Partition: part.Partition, Tables: tables, Authenticate: authenticate})
		switch fault.CodeOf(err) {
		case projection.CodeOtherCode:
			r.config.Logger.WarnContext(ctx, "a snapshot is dropped, since another handler built the version that is now active", "projection", p.Name, "version", p.Version)
			return r.config.Versions.DropProjection(ctx, p.Name, p.Version, p.ChangedBy)
		case projection.CodeChanged:
			return nil // it was dropped
		}
		if err != nil {
			return err
		}
		complete = complete && done
	}
	if !complete {
		return nil
	}
	err = r.config.Snapshots.FinishSnapshot(ctx, p.Name, p.Version, KeptSnapshots, p.ChangedBy)
	if fault.CodeOf(err) == projection.CodeChanged {
		return nil // another node was faster
	}
	if err == nil {
		r.config.Logger.InfoContext(ctx, "a snapshot of a projection was taken", "projection", p.Name, "version", p.Version, "partition", uint32(p.Scope))
	}
	return err
}

// copyBase copies the parts of the snapshot that a version starts from, and then lets the
// version follow the log. It reads partitions that the snapshot lacks, or whose part is forged,
// from the beginning. While the key service is unavailable it tries again.
func (r *Rebuilds) copyBase(ctx context.Context, p projection.Projection, tables []ports.ProjectionTable) error {
	parts, err := r.partsOf(ctx, p, p.Base)
	if err != nil {
		return err
	}
	d, err := r.declaration(p)
	if err != nil {
		return err
	}
	var types []string
	if d != nil {
		types = d.EventTypes
	}
	complete := true
	for _, part := range parts {
		if !part.Usable {
			continue
		}
		authenticate, err := r.config.Proofs.Authenticate(ctx, part.Partition, p)
		if err != nil {
			return err
		}
		c := ports.SnapshotCopy{Projection: p.Name, Version: p.Base, Partition: part.Partition, Tables: tables, To: p.Version, Types: types, Authenticate: authenticate}
		done, err := r.config.Snapshots.RestorePart(ctx, c)
		switch fault.CodeOf(err) {
		case projection.CodeChanged:
			return nil // one of the two was dropped; the next round sees it
		case snapshot.CodeForged:
			r.config.Proofs.ReportForged(ctx, c)
			continue // the version reads the partition from the beginning of the log
		}
		if err != nil {
			return err
		}
		complete = complete && done
	}
	if !complete {
		return nil
	}
	p.Status = projection.Running
	_, err = r.config.Register.ChangeProjection(ctx, p)
	if fault.CodeOf(err) == projection.CodeChanged {
		return nil // another node was faster, or an operator acted
	}
	if err == nil {
		r.config.Logger.InfoContext(ctx, "a version of a projection starts from a snapshot", "projection", p.Name, "version", p.Version, "snapshot", p.Base, "partitions", len(parts))
		r.config.Wake()
	}
	return err
}

// removeRedacted removes the parts of a snapshot that may hold values redacted since.
func (r *Rebuilds) removeRedacted(ctx context.Context, p projection.Projection, tables []ports.ProjectionTable) error {
	parts, err := r.partsOf(ctx, p, p.Version)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if part.Usable || part.Rows == 0 {
			continue
		}
		if err := r.config.Snapshots.ForgetPart(ctx, ports.SnapshotCopy{Projection: p.Name, Version: p.Version, Partition: part.Partition, Tables: tables}); err != nil {
			return err
		}
		r.config.Logger.InfoContext(ctx, "a part of a snapshot was removed, since it may hold redacted values", "projection", p.Name, "version", p.Version, "partition", uint32(part.Partition))
	}
	return nil
}
