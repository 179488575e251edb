package projections

import (
	"context"
	"log/slog"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// TargetsConfig is what Targets need.
type TargetsConfig struct {
	Store       ports.ProjectionTargetStore
	Checkpoints ports.Projections
	Register    ports.ProjectionRegister
	Versions    ports.ProjectionVersions
	Records     ports.PersonalRecords
	Declared    []module.Projection
	Handlers    map[string]ports.ProjectionHandler // as the runner has them
	Targets     map[string][]ports.ProjectionTarget
	CustomRows  CustomRows // nil: rows of tenants' own projections are not folded anew
	Logger      *slog.Logger

	// MaxEvents is how many events of an entity are folded in one transaction, which holds
	// the checkpoint; 0 is 10,000.
	MaxEvents int
}

// Targets fold parts of read models anew while the rest stays as it is: the rows of one
// entity, or of all entities that events about a person belong to. What readers see of
// them changes in one step.
type Targets struct{ config TargetsConfig }

// NewTargets makes Targets.
func NewTargets(c TargetsConfig) *Targets {
	if c.MaxEvents <= 0 {
		c.MaxEvents = 10_000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Targets{c}
}

// TargetOrder is what is folded anew: the rows of an entity, or those of a subject.
type TargetOrder struct {
	Name       string
	Version    int // 0: all living ones that this release builds
	Partitions []event.PartitionID
	Entity     event.StreamID
	Subject    shredding.Subject // "": Entity
	DryRun     bool
	By         string
}

// TargetReport is what a rebuild of rows changed, or would change.
type TargetReport struct {
	Projection string
	DryRun     bool
	Rebuilt    []TargetResult
	// Foreign are living versions that another release built: their rows are as they were.
	Foreign []int
}

// Rows is how many rows were not as a fold of the log makes them.
func (r TargetReport) Rows() (n uint64) {
	for _, one := range r.Rebuilt {
		for _, t := range one.Tables {
			n += t.OnlyLeft + t.OnlyRight + t.Changed
		}
	}
	return n
}

// TargetResult is what changed in one version and partition.
type TargetResult struct {
	Version    int
	Partition  event.PartitionID
	Entities   int
	Sequence   event.Sequence // of the checkpoint, at the last of them
	Events     int
	PassedOver int
	Tables     []ports.TableDifference
}

func (r *TargetResult) add(c ports.TargetChange) {
	r.Entities++
	r.Sequence, r.Events, r.PassedOver = c.Sequence, r.Events+c.Events, r.PassedOver+c.PassedOver
	for _, t := range c.Tables {
		at := slices.IndexFunc(r.Tables, func(have ports.TableDifference) bool { return have.Table == t.Table })
		if at < 0 {
			r.Tables = append(r.Tables, t)
			continue
		}
		sum := &r.Tables[at]
		sum.LeftRows, sum.RightRows = sum.LeftRows+t.LeftRows, sum.RightRows+t.RightRows
		sum.OnlyLeft, sum.OnlyRight, sum.Changed = sum.OnlyLeft+t.OnlyLeft, sum.OnlyRight+t.OnlyRight, sum.Changed+t.Changed
	}
}

// Rebuild folds anew. Each entity is a transaction of its own: what ends in the middle is
// done again from the beginning, which changes nothing of what was done. Faults:
// projection.not_found, projection.target_unsupported, projection.target_too_large,
// projection.other_code, and what a handler says of an event.
func (t *Targets) Rebuild(ctx context.Context, o TargetOrder) (TargetReport, error) {
	out := TargetReport{Projection: o.Name, DryRun: o.DryRun}
	if _, _, owned := projection.SplitName(o.Name); owned && t.config.CustomRows != nil {
		return t.rebuildCustom(ctx, o)
	}
	d, targets, err := t.declared(o.Name)
	if err != nil {
		return out, err
	}
	if o.Subject == "" && !slices.ContainsFunc(targets, func(t ports.ProjectionTarget) bool { return t.Covers(o.Entity) }) {
		return out, projection.TargetUnsupported(o.Name, o.Entity.Type)
	}
	versions, foreign, err := t.liveVersions(ctx, d, o.Version)
	if err != nil {
		return out, err
	}
	for _, p := range foreign {
		out.Foreign = append(out.Foreign, p.Version)
	}
	if len(versions) == 0 {
		return out, projection.ForeignVersion(o.Name, out.Foreign[0])
	}
	for _, id := range slices.Sorted(slices.Values(o.Partitions)) {
		entities := []ports.SubjectEntity{}
		if o.Subject != "" {
			if entities, err = t.findEntities(ctx, id, o.Subject, targets); err != nil {
				return out, err
			}
		} else {
			at := slices.IndexFunc(targets, func(t ports.ProjectionTarget) bool { return t.Covers(o.Entity) })
			entities = append(entities, ports.SubjectEntity{Target: at, Entity: o.Entity.ID})
		}
		if len(entities) == 0 {
			continue
		}
		for _, p := range versions {
			if !p.Reads(id) {
				continue
			}
			result, err := t.recompute(ctx, o, d, p, id, 0, targets, entities)
			if fault.CodeOf(err) == projection.CodeFenced { // dropped meanwhile
				if o.Version == 0 {
					continue
				}
				err = projection.VersionNotFound(o.Name, o.Version)
			}
			if err != nil {
				return out, err
			}
			out.Rebuilt = append(out.Rebuilt, result)
		}
	}
	t.config.Logger.InfoContext(ctx, "rows of a projection were folded anew", "projection", o.Name, "of_subject", o.Subject != "", "entity_type", o.Entity.Type,
		"rows_differed", out.Rows(), "dry_run", o.DryRun, "by", o.By)
	return out, nil
}

// recompute folds entities of one version and partition anew.
func (t *Targets) recompute(ctx context.Context, o TargetOrder, d module.Projection, p projection.Projection, id event.PartitionID, passed event.Sequence, targets []ports.ProjectionTarget, entities []ports.SubjectEntity) (TargetResult, error) {
	result := TargetResult{Version: p.Version, Partition: id}
	h := guarded{t.config.Handlers[o.Name], o.Name, t.config.Logger}
	for _, e := range entities {
		change, err := t.config.Store.RebuildTarget(ctx, ports.TargetRebuild{
			ProjectionWork: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: id}, Target: targets[e.Target], Entity: e.Entity,
			Types: d.EventTypes, Passed: passed, Limit: t.config.MaxEvents, DryRun: o.DryRun, By: o.By,
		}, h)
		if err != nil {
			return result, err
		}
		result.add(change)
	}
	return result, nil
}

func (t *Targets) declared(name string) (module.Projection, []ports.ProjectionTarget, error) {
	if _, own, owned := projection.SplitName(name); owned {
		return module.Projection{}, nil, projection.TargetsUndeclared(own)
	}
	for _, d := range t.config.Declared {
		if d.Name != name {
			continue
		}
		if targets := t.config.Targets[name]; len(targets) > 0 {
			return d, targets, nil
		}
		return d, nil, projection.TargetsUndeclared(name)
	}
	return module.Projection{}, nil, projection.NotFound(name)
}

// liveVersions are the versions that follow the log: those that this release's handler builds,
// and the others. version 0: all.
func (t *Targets) liveVersions(ctx context.Context, d module.Projection, version int) (own, foreign []projection.Projection, err error) {
	all, err := t.config.Register.ListProjections(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		if p.Name != d.Name || !p.Role.IsLive() || version != 0 && p.Version != version {
			continue
		}
		if p.Code == d.Version {
			own = append(own, p)
		} else {
			foreign = append(foreign, p)
		}
	}
	if len(own)+len(foreign) == 0 {
		return nil, nil, projection.VersionNotFound(d.Name, version)
	}
	return own, foreign, nil
}

// personPage is how many events about a person are looked at at once.
const personPage = 200

// findEntities are the entities that events about a person belong to, and those whose rows
// say that they hold copies.
func (t *Targets) findEntities(ctx context.Context, id event.PartitionID, s shredding.Subject, targets []ports.ProjectionTarget) ([]ports.SubjectEntity, error) {
	found, err := t.config.Store.SubjectEntities(ctx, id, s, targets)
	if err != nil {
		return nil, err
	}
	known := make(map[ports.SubjectEntity]bool, len(found))
	for _, e := range found {
		known[e] = true
	}
	for after := event.Sequence(0); ; {
		events, err := t.config.Records.PersonalEvents(ctx, id, s, after, personPage)
		if err != nil {
			return nil, err
		}
		for _, e := range events {
			after = e.Sequence
			at := slices.IndexFunc(targets, func(t ports.ProjectionTarget) bool { return t.Covers(e.Stream) })
			if of := (ports.SubjectEntity{Target: at, Entity: e.Stream.ID}); at >= 0 && !known[of] {
				known[of] = true
				found = append(found, of)
			}
		}
		if len(events) < personPage {
			return found, nil
		}
	}
}

// HoldersOfCopies names the projections whose rows hold sealed copies of personal values.
func (t *Targets) HoldersOfCopies() []string {
	var out []string
	for name, targets := range t.config.Targets {
		if slices.ContainsFunc(targets, ports.ProjectionTarget.Personal) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// withCopies are a projection's targets that hold copies.
func (t *Targets) withCopies(name string) []ports.ProjectionTarget {
	return slices.DeleteFunc(slices.Clone(t.config.Targets[name]), func(t ports.ProjectionTarget) bool { return !t.Personal() })
}

// CountCopies counts the rows of a projection, of whatever version, that hold sealed
// copies of a person in a partition.
func (t *Targets) CountCopies(ctx context.Context, name string, id event.PartitionID, s shredding.Subject) (n int64, err error) {
	counts, err := t.config.Store.CountCopies(ctx, id, s, t.withCopies(name))
	for _, of := range counts {
		n += of
	}
	return n, err
}

// Forget folds the rows of a projection anew that hold copies of a person whose keys were
// destroyed, in every living version, and drops its snapshots that hold some. Every
// version must have passed the sequence: what was sealed before lies before it, so that no
// copy comes later. It may be repeated. Faults: projection.target_behind while a version
// has not passed it, projection.other_code while one of another release holds copies, which
// only a node of that release folds anew.
func (t *Targets) Forget(ctx context.Context, name string, id event.PartitionID, s shredding.Subject, passed event.Sequence) error {
	d, _, err := t.declared(name)
	if err != nil {
		return err
	}
	targets := t.withCopies(name)
	own, foreign, err := t.liveVersions(ctx, d, 0)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return nil //nolint:nilerr // no node has begun it
	}
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(own, foreign) {
		if !p.Reads(id) || p.Code != d.Version && p.Role == projection.Retained {
			continue // nobody writes it
		}
		if err := t.requirePassed(ctx, p, id, passed); err != nil {
			return err
		}
	}
	entities, err := t.findEntities(ctx, id, s, targets)
	if err != nil {
		return err
	}
	for _, p := range own {
		if !p.Reads(id) {
			continue
		}
		_, err := t.recompute(ctx, TargetOrder{Name: name, By: "erasure"}, d, p, id, passed, targets, entities)
		if err != nil && fault.CodeOf(err) != projection.CodeFenced { // dropped meanwhile
			return err
		}
	}
	if err := t.dropSnapshots(ctx, name, id, s, targets); err != nil {
		return err
	}
	// A version that was begun meanwhile with one of the snapshots is waited for, and one
	// that was given the rows of another one in the partition, which raises its revision.
	now, _, err := t.liveVersions(ctx, d, 0)
	if err != nil {
		return err
	}
	for _, p := range now {
		if !slices.ContainsFunc(own, func(known projection.Projection) bool {
			return known.Version == p.Version && known.Revision == p.Revision
		}) {
			return projection.TargetBehind(name, p.Version)
		}
	}
	return t.foreignCopies(ctx, name, id, s, targets, foreign)
}

// requirePassed wants a version to have passed a sequence.
func (t *Targets) requirePassed(ctx context.Context, p projection.Projection, id event.PartitionID, passed event.Sequence) error {
	checkpoints, err := t.config.Checkpoints.Checkpoints(ctx, p.Name, p.Version)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(checkpoints, func(c ports.Checkpoint) bool { return c.Partition == id && c.Sequence >= passed }) {
		return projection.TargetBehind(p.Name, p.Version)
	}
	return nil
}

// foreignCopies refuses while a version that this release cannot fold holds copies.
func (t *Targets) foreignCopies(ctx context.Context, name string, id event.PartitionID, s shredding.Subject, targets []ports.ProjectionTarget, foreign []projection.Projection) error {
	if len(foreign) == 0 {
		return nil
	}
	counts, err := t.config.Store.CountCopies(ctx, id, s, targets)
	if err != nil {
		return err
	}
	for _, p := range foreign {
		if counts[p.Version] > 0 {
			return projection.ForeignVersion(name, p.Version)
		}
	}
	return nil
}

// dropSnapshots drops the snapshots of a projection that hold copies of a person, or that
// are just being taken.
func (t *Targets) dropSnapshots(ctx context.Context, name string, id event.PartitionID, s shredding.Subject, targets []ports.ProjectionTarget) error {
	all, err := t.config.Register.ListProjections(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(p projection.Projection) bool {
		return p.Name != name || p.Role != projection.Saving && p.Role != projection.Saved
	})
	if len(all) == 0 {
		return nil
	}
	counts, err := t.config.Store.CountCopies(ctx, id, s, targets)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Role == projection.Saved && counts[p.Version] == 0 {
			continue
		}
		if err := t.config.Versions.DropProjection(ctx, name, p.Version, "erasure"); err != nil && fault.CodeOf(err) != projection.CodeChanged {
			return err
		}
		t.config.Logger.InfoContext(ctx, "a snapshot of a projection was dropped, since it may hold copies of an erased person", "projection", name, "version", p.Version)
	}
	return nil
}

// CustomRows folds rows of tenants' own projections anew: declarative.Service.
type CustomRows interface {
	// Recompute folds the rows of a version to which events of an entity or about a person
	// contributed, and tells how many they are. Faults: projection.fenced,
	// projection.definition_unreadable, projection.target_too_large, projection.changed.
	Recompute(ctx context.Context, p projection.Projection, o ports.RecomputeRequest) (rows int, change ports.TargetChange, err error)
}

// rebuildCustom is Rebuild for a projection of a tenant's own. All rows of an entity are one
// transaction, since their keys may join events of several entities.
func (t *Targets) rebuildCustom(ctx context.Context, o TargetOrder) (TargetReport, error) {
	out := TargetReport{Projection: o.Name, DryRun: o.DryRun}
	all, err := t.config.Register.NamedProjections(ctx, o.Name)
	if err != nil {
		return out, err
	}
	all = slices.DeleteFunc(all, func(p projection.Projection) bool {
		return !p.Role.IsLive() || o.Version != 0 && p.Version != o.Version
	})
	if len(all) == 0 {
		_, own, _ := projection.SplitName(o.Name)
		return out, projection.VersionNotFound(own, o.Version)
	}
	for _, p := range all {
		for _, id := range slices.Sorted(slices.Values(o.Partitions)) {
			rows, change, err := t.config.CustomRows.Recompute(ctx, p, ports.RecomputeRequest{Partition: id, Entity: o.Entity, Subject: o.Subject, DryRun: o.DryRun, By: o.By})
			code := fault.CodeOf(err)
			if code == projection.CodeFenced && o.Version != 0 { // dropped meanwhile
				err = projection.VersionNotFound(o.Name, o.Version)
			}
			if o.Version == 0 && code == projection.CodeUnreadable {
				out.Foreign = append(out.Foreign, p.Version)
				break
			}
			if o.Version == 0 && code == projection.CodeFenced || err == nil && rows == 0 {
				continue
			}
			if err != nil {
				return out, err
			}
			result := TargetResult{Version: p.Version, Partition: id}
			result.add(change)
			result.Entities = rows
			out.Rebuilt = append(out.Rebuilt, result)
		}
	}
	t.config.Logger.InfoContext(ctx, "rows of a projection were folded anew", "projection", o.Name, "of_subject", o.Subject != "", "entity_type", o.Entity.Type,
		"rows_differed", out.Rows(), "dry_run", o.DryRun, "by", o.By)
	return out, nil
}
