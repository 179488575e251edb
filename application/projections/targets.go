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

// TargetsConfig configures Targets.
type TargetsConfig struct {
	Store       ports.ProjectionTargetStore
	Checkpoints ports.Projections
	Register    ports.ProjectionRegister
	Versions    ports.ProjectionVersions
	Records     ports.PersonalRecords
	Declared    []module.Projection
	Handlers    map[string]ports.ProjectionHandler // those of the runner
	Targets     map[string][]ports.ProjectionTarget
	CustomRows  CustomRows
	Logger      *slog.Logger

	// MaxEvents bounds the events of an entity, which one transaction applies while it holds
	// the checkpoint; positive.
	MaxEvents int
}

// Targets recomputes parts of read models: the rows of one entity, or of all entities that
// events about a person belong to. Readers see the change of an entity in one step.
type Targets struct {
	config TargetsConfig
	catalog
}

// NewTargets makes Targets. It refuses MaxEvents that are not positive.
func NewTargets(c TargetsConfig) (*Targets, error) {
	if err := fault.RequirePositive("projections.TargetsConfig", struct{ MaxEvents int }{c.MaxEvents}); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return &Targets{c, catalog{modules: c.Declared, handlers: c.Handlers}}, nil
}

// TargetOrder selects the rows to recompute: those of an entity, or those of a subject.
type TargetOrder struct {
	Name       string
	Version    int // 0: all live ones that this release builds
	Partitions []event.PartitionID
	Entity     event.StreamID
	Subject    shredding.Subject // "": Entity
	DryRun     bool
	By         string
}

// TargetReport counts the changes of a recomputation, or of its dry run.
type TargetReport struct {
	Projection string
	DryRun     bool
	Rebuilt    []TargetResult
	Foreign    []int // live versions of another release, whose rows are unchanged
}

// Rows is the number of rows that the recomputation changed.
func (r TargetReport) Rows() (n uint64) {
	for _, result := range r.Rebuilt {
		n += result.Rows()
	}
	return n
}

// TargetResult counts the changes in one version and partition.
type TargetResult struct {
	Version            int
	Partition          event.PartitionID
	Entities           int
	ports.TargetChange // Sequence is that of the checkpoint at the last entity
}

func (r *TargetResult) add(c ports.TargetChange) {
	r.Entities++
	r.Sequence, r.Events, r.PassedOver = c.Sequence, r.Events+c.Events, r.PassedOver+c.PassedOver
	for _, t := range c.Tables {
		at := slices.IndexFunc(r.Tables, func(known ports.TableDifference) bool { return known.Table == t.Table })
		if at < 0 {
			r.Tables = append(r.Tables, t)
			continue
		}
		sum := &r.Tables[at]
		sum.LeftRows, sum.RightRows = sum.LeftRows+t.LeftRows, sum.RightRows+t.RightRows
		sum.OnlyLeft, sum.OnlyRight, sum.Changed = sum.OnlyLeft+t.OnlyLeft, sum.OnlyRight+t.OnlyRight, sum.Changed+t.Changed
	}
}

// Rebuild recomputes rows. Each entity is a transaction of its own; an interrupted rebuild can
// be repeated, which changes nothing in the entities that are done. Faults:
// projection.not_found, projection.target_unsupported, projection.target_too_large,
// projection.other_code, and those of a handler.
func (t *Targets) Rebuild(ctx context.Context, o TargetOrder) (TargetReport, error) {
	out := TargetReport{Projection: o.Name, DryRun: o.DryRun}
	if _, _, isCustom := projection.SplitName(o.Name); isCustom && t.config.CustomRows != nil {
		return t.rebuildCustom(ctx, o)
	}
	d, targets, err := t.declaredTargets(o.Name)
	if err != nil {
		return out, err
	}
	entities := []ports.SubjectEntity{{Target: coveringTarget(targets, o.Entity), Entity: o.Entity.ID}}
	if o.Subject == "" && entities[0].Target < 0 {
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
		if o.Subject != "" {
			if entities, err = t.findEntities(ctx, id, o.Subject, targets); err != nil {
				return out, err
			}
		}
		for _, p := range versions {
			if len(entities) == 0 || !p.Reads(id) {
				continue
			}
			result, err := t.recompute(ctx, o, d, p, id, 0, targets, entities)
			if fault.CodeOf(err) == projection.CodeFenced { // it was dropped
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
	t.logRebuild(ctx, o, out)
	return out, nil
}

func (t *Targets) logRebuild(ctx context.Context, o TargetOrder, r TargetReport) {
	t.config.Logger.InfoContext(ctx, "rows of a projection were recomputed", "projection", o.Name, "of_subject", o.Subject != "", "entity_type", o.Entity.Type,
		"rows_differed", r.Rows(), "dry_run", o.DryRun, "by", o.By)
}

// recompute rebuilds the rows of entities in one version and partition.
func (t *Targets) recompute(ctx context.Context, o TargetOrder, d module.Projection, p projection.Projection, id event.PartitionID, minCheckpoint event.Sequence, targets []ports.ProjectionTarget, entities []ports.SubjectEntity) (TargetResult, error) {
	result := TargetResult{Version: p.Version, Partition: id}
	h := panicGuard{t.config.Handlers[o.Name], o.Name, t.config.Logger}
	for _, e := range entities {
		change, err := t.config.Store.RebuildTarget(ctx, ports.TargetRebuild{
			ProjectionWork: ports.ProjectionWork{Projection: p.Name, Version: p.Version, Partition: id}, Target: targets[e.Target], Entity: e.Entity,
			Types: d.EventTypes, MinCheckpoint: minCheckpoint, Limit: t.config.MaxEvents, DryRun: o.DryRun, By: o.By,
		}, h)
		if err != nil {
			return result, err
		}
		result.add(change)
	}
	return result, nil
}

// coveringTarget is the index of the target whose rows belong to an entity; -1: none.
func coveringTarget(targets []ports.ProjectionTarget, entity event.StreamID) int {
	return slices.IndexFunc(targets, func(t ports.ProjectionTarget) bool { return t.Covers(entity) })
}

func (t *Targets) declaredTargets(name string) (module.Projection, []ports.ProjectionTarget, error) {
	d, targets := t.declared(name), t.config.Targets[name]
	_, short, isCustom := projection.SplitName(name)
	switch {
	case isCustom || d != nil && len(targets) == 0:
		return module.Projection{}, nil, projection.TargetsUndeclared(short)
	case d == nil:
		return module.Projection{}, nil, projection.NotFound(name)
	}
	return *d, targets, nil
}

// liveVersions are the versions that follow the log: those that this release's handler builds,
// and foreign ones, which another release builds. version 0: all.
func (t *Targets) liveVersions(ctx context.Context, d module.Projection, version int) (buildable, foreign []projection.Projection, err error) {
	all, err := t.config.Register.ListProjections(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, p := range all {
		if p.Name != d.Name || !p.Role.IsLive() || version != 0 && p.Version != version {
			continue
		}
		if p.Code == d.Version {
			buildable = append(buildable, p)
		} else {
			foreign = append(foreign, p)
		}
	}
	if len(buildable)+len(foreign) == 0 {
		return nil, nil, projection.VersionNotFound(d.Name, version)
	}
	return buildable, foreign, nil
}

// personPage is how many events about a person are read at once.
const personPage = 200

// findEntities lists the entities that events about a person belong to, and those whose rows
// hold sealed copies of the person's values.
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
			at := coveringTarget(targets, e.Stream)
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

// withCopies are a projection's targets whose rows hold copies.
func (t *Targets) withCopies(name string) []ports.ProjectionTarget {
	return slices.DeleteFunc(slices.Clone(t.config.Targets[name]), func(t ports.ProjectionTarget) bool { return !t.Personal() })
}

// CountCopies counts the rows of all versions of a projection that hold sealed copies of a
// person in a partition.
func (t *Targets) CountCopies(ctx context.Context, name string, id event.PartitionID, s shredding.Subject) (n int64, err error) {
	counts, err := t.config.Store.CountCopies(ctx, id, s, t.withCopies(name))
	for _, of := range counts {
		n += of
	}
	return n, err
}

// Forget recomputes the rows that hold copies of a person whose keys were destroyed, in every
// live version, and drops snapshots that hold copies. Every version must have passed the
// sequence: all values of the person were sealed before it, so that no copy is added later. It
// may be repeated. Faults: projection.target_behind while a version has not passed the
// sequence, projection.other_code while a version of another release holds copies, which only
// a node of that release recomputes.
func (t *Targets) Forget(ctx context.Context, name string, id event.PartitionID, s shredding.Subject, passed event.Sequence) error {
	d, _, err := t.declaredTargets(name)
	if err != nil {
		return err
	}
	targets := t.withCopies(name)
	buildable, foreign, err := t.liveVersions(ctx, d, 0)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return nil //nolint:nilerr // no node has started it
	}
	if err != nil {
		return err
	}
	for _, p := range slices.Concat(buildable, foreign) {
		if !p.Reads(id) || p.Code != d.Version && p.Role == projection.Retained {
			continue // no node writes it
		}
		if err := t.requirePassed(ctx, p, id, passed); err != nil {
			return err
		}
	}
	entities, err := t.findEntities(ctx, id, s, targets)
	if err != nil {
		return err
	}
	for _, p := range buildable {
		if !p.Reads(id) {
			continue
		}
		_, err := t.recompute(ctx, TargetOrder{Name: name, By: "erasure"}, d, p, id, passed, targets, entities)
		if err != nil && fault.CodeOf(err) != projection.CodeFenced { // it was dropped
			return err
		}
	}
	if err := t.dropSnapshots(ctx, name, id, s, targets); err != nil {
		return err
	}
	// A version that was added since may have started from one of the snapshots, and one whose
	// revision was raised may have the rows of another version: the next call checks them.
	now, _, err := t.liveVersions(ctx, d, 0)
	if err != nil {
		return err
	}
	for _, p := range now {
		if !slices.ContainsFunc(buildable, func(known projection.Projection) bool {
			return known.Version == p.Version && known.Revision == p.Revision
		}) {
			return projection.TargetBehind(name, p.Version)
		}
	}
	counts, err := t.config.Store.CountCopies(ctx, id, s, targets)
	for _, p := range foreign {
		if counts[p.Version] > 0 {
			return projection.ForeignVersion(name, p.Version)
		}
	}
	return err
}

// RecomputeReaders recomputes the rows of an entity in every projection that reads a type of event,
// and returns the names of those whose rows of the entity cannot be recomputed alone, or whose
// program fails on an event: a tenant's program keeps no other row from being recomputed. Every
// version must have passed the sequence. It may be repeated. Faults: projection.target_behind,
// projection.other_code while a version of another release is live.
func (t *Targets) RecomputeReaders(ctx context.Context, eventType string, le ports.LegalEntity, entity event.StreamID, passed event.Sequence) (left []string, err error) {
	for i := range t.config.Declared {
		d := t.config.Declared[i]
		if !slices.Contains(d.EventTypes, eventType) {
			continue
		}
		err := t.recomputeEntity(ctx, d, le.Partition, entity, passed)
		if code := fault.CodeOf(err); code == projection.CodeTargetUnsupported || code == projection.CodeTargetTooLarge {
			left = append(left, d.Name)
		} else if err != nil {
			return nil, err
		}
	}
	all, err := t.config.Register.ListProjections(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		tenant, _, isCustom := projection.SplitName(p.Name)
		if !isCustom || tenant != le.TenantID || !p.Role.IsLive() || !p.Reads(le.Partition) {
			continue
		}
		if err := t.requirePassed(ctx, p, le.Partition, passed); err != nil {
			return nil, err
		}
		_, err := t.Rebuild(ctx, TargetOrder{Name: p.Name, Version: p.Version, Partitions: []event.PartitionID{le.Partition}, Entity: entity, By: "redaction"})
		switch {
		case err == nil, fault.KindOf(err) == fault.NotFound: // it was dropped
		case fault.KindOf(err) == fault.FailedPrecondition, fault.KindOf(err) == fault.Invalid: // also of its program
			left = append(left, p.Name)
		default:
			return nil, err
		}
	}
	return left, nil
}

func (t *Targets) recomputeEntity(ctx context.Context, d module.Projection, id event.PartitionID, entity event.StreamID, passed event.Sequence) error {
	_, targets, err := t.declaredTargets(d.Name)
	if err != nil {
		return err
	}
	target := coveringTarget(targets, entity)
	if target < 0 {
		return projection.TargetUnsupported(d.Name, entity.Type)
	}
	buildable, foreign, err := t.liveVersions(ctx, d, 0)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return nil //nolint:nilerr // no node has started it
	}
	if err != nil {
		return err
	}
	for _, p := range foreign {
		if p.Reads(id) {
			return projection.ForeignVersion(d.Name, p.Version)
		}
	}
	for _, p := range buildable {
		if !p.Reads(id) {
			continue
		}
		_, err := t.recompute(ctx, TargetOrder{Name: d.Name, By: "redaction"}, d, p, id, passed, targets, []ports.SubjectEntity{{Target: target, Entity: entity.ID}})
		if err != nil && fault.CodeOf(err) != projection.CodeFenced { // it was dropped
			return err
		}
	}
	return nil
}

// requirePassed refuses a version that has not passed a sequence.
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

// dropSnapshots drops the snapshots of a projection that hold copies, or that are being taken. It
// lists them before it counts, so that a snapshot completed in between is dropped too.
func (t *Targets) dropSnapshots(ctx context.Context, name string, id event.PartitionID, s shredding.Subject, targets []ports.ProjectionTarget) error {
	all, err := t.config.Register.ListProjections(ctx)
	if err != nil {
		return err
	}
	counts, err := t.config.Store.CountCopies(ctx, id, s, targets)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Name != name || p.Role != projection.Saving && (p.Role != projection.Saved || counts[p.Version] == 0) {
			continue
		}
		if err := t.config.Versions.DropProjection(ctx, name, p.Version, "erasure"); err != nil && fault.CodeOf(err) != projection.CodeChanged {
			return err
		}
		t.config.Logger.InfoContext(ctx, "a snapshot of a projection was dropped, since it may hold copies of an erased person", "projection", name, "version", p.Version)
	}
	return nil
}

// CustomRows recomputes rows of custom projections: custom.Service.
type CustomRows interface {
	// Recompute rebuilds the rows of a version to which events of an entity or about a person
	// contributed, and returns their number. Faults: projection.fenced,
	// projection.definition_unreadable, projection.target_too_large, projection.changed.
	Recompute(ctx context.Context, p projection.Projection, o ports.RecomputeRequest) (rows int, change ports.TargetChange, err error)
}

// rebuildCustom is Rebuild for a custom projection. One transaction replaces all rows of an
// entity, since their keys may join events of several entities.
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
		_, short, _ := projection.SplitName(o.Name)
		return out, projection.VersionNotFound(short, o.Version)
	}
	for _, p := range all {
		for _, id := range slices.Sorted(slices.Values(o.Partitions)) {
			rows, change, err := t.config.CustomRows.Recompute(ctx, p, ports.RecomputeRequest{Partition: id, Entity: o.Entity, Subject: o.Subject, DryRun: o.DryRun, By: o.By})
			code := fault.CodeOf(err)
			if code == projection.CodeFenced && o.Version != 0 { // it was dropped
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
	t.logRebuild(ctx, o, out)
	return out, nil
}
