package projections

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// versionSpec is a version that this node should work.
type versionSpec struct {
	declaration     *declaredProjection
	registered      projection.Projection
	readPartitions  map[event.PartitionID]bool // nil: all
	knownPartitions int                        // how many the log had when readPartitions was made
}

func newRunning(d *declaredProjection, known projection.Projection) *running {
	p := &running{Projection: d.Projection, handler: d.handler, registered: known, units: map[event.PartitionID]*unit{}}
	p.Version = known.Version
	p.resource = LeaseName(p.Name, p.Version)
	p.observeAs(label(known))
	return p
}

// label is the name under which the version is observed.
func (p *running) label() string { return *p.observedAs.Load() }

func (p *running) observeAs(name string) { p.observedAs.Store(&name) }

// label is the name under which a version is observed: the active one by the name of the
// projection, a custom one by customLabel, since metrics are visible to all tenants.
func label(p projection.Projection) string {
	if len(p.Definition) > 0 {
		return customLabel
	}
	if p.WithDefaults().Role == projection.Active {
		return p.Name
	}
	return fmt.Sprintf("%s/%d", p.Name, p.Version)
}

// refresh reads the register, and the checkpoints of the versions that changed in it.
func (r *Runner) refresh(ctx context.Context) {
	err := r.refreshAll(ctx)
	if err != nil && ctx.Err() == nil {
		r.config.Logger.WarnContext(ctx, "the state of the projections could not be read; it will be read again", "code", fault.CodeOf(err))
	}
}

func (r *Runner) refreshAll(ctx context.Context) error {
	all, err := r.config.Register.ListProjections(ctx)
	if err != nil {
		return err
	}
	var want []versionSpec
	for i := range r.declared {
		d := &r.declared[i]
		versions, err := r.versionsToRun(ctx, d, all)
		if err != nil {
			return err
		}
		for _, known := range versions {
			w := versionSpec{declaration: d, registered: known}
			if known.Scope != 0 {
				w.readPartitions = map[event.PartitionID]bool{known.Scope: true}
			}
			want = append(want, w)
		}
	}
	created, err := r.customVersions(ctx, all)
	if err != nil {
		return err
	}
	want = append(want, created...)
	next := make([]*running, 0, len(want))
	for _, w := range want {
		p := r.findRunning(w.registered)
		if p == nil {
			p = newRunning(w.declaration, w.registered)
		}
		r.setReadPartitions(p, w)
		next = append(next, p)
	}
	r.replaceRunning(next)
	for i, p := range next {
		if err := r.refreshVersion(ctx, p, want[i].registered); err != nil {
			return err
		}
	}
	return nil
}

// versionsToRun lists the live versions of a projection that this node's handler builds: a node
// with an older or newer handler leaves them alone, so that no two handlers write the rows of one
// version. The first node with a newer handler adds a building version for it; the first node of
// all adds the first version.
func (r *Runner) versionsToRun(ctx context.Context, d *declaredProjection, all []projection.Projection) (out []projection.Projection, err error) {
	latest, code := 0, 0
	var active projection.Projection
	for _, p := range all {
		if p.Name != d.Name {
			continue
		}
		latest = max(latest, p.Version)
		if !p.Role.IsLive() {
			continue
		}
		code = max(code, p.Code)
		if p.Role == projection.Active {
			active = p
		}
		if p.Code == d.Version {
			out = append(out, p)
		}
	}
	if code >= d.Version {
		return out, nil
	}
	p := builtIn(d.Projection)
	if active.Name != "" {
		p.Version, p.Role, p.SelfSwitching, p.Settings = latest+1, projection.Building, true, active.Settings
		r.config.Logger.InfoContext(ctx, "a newer handler builds its version of a projection beside the active one",
			"projection", p.Name, "version", p.Version, "shown", active.Version)
	} else {
		p.Version = max(p.Version, latest+1)
	}
	p, err = r.config.Register.AddProjection(ctx, p)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return out, nil //nolint:nilerr // another version is being built; the next refresh tries again
	}
	if err == nil && p.Code == d.Version && p.Role.IsLive() {
		out = append(out, p)
	}
	return out, err
}

func (r *Runner) findRunning(known projection.Projection) *running {
	for _, p := range r.running {
		if p.Name == known.Name && p.Version == known.Version {
			return p
		}
	}
	return nil
}

// replaceRunning sets the versions that this node works. Running workers finish their turn.
func (r *Runner) replaceRunning(next []*running) {
	r.mu.Lock()
	before := r.running
	r.running = next
	r.mu.Unlock()
	for _, p := range before {
		if r.findRunning(p.registered) != p {
			r.unobserve(p)
		}
	}
}

func (r *Runner) unobserve(p *running) {
	r.mu.Lock()
	ids := slices.Collect(maps.Keys(p.units))
	r.mu.Unlock()
	for _, id := range ids {
		r.config.Observer.ProjectionLeft(p.label(), id)
	}
}

// refreshVersion applies a changed revision of a version and reads its checkpoints.
func (r *Runner) refreshVersion(ctx context.Context, p *running, known projection.Projection) error {
	if p.loaded && known.Revision == p.registered.Revision {
		return nil
	}
	checkpoints, err := r.config.Store.Checkpoints(ctx, p.Name, p.Version)
	if err != nil {
		return err
	}
	if l := label(known); l != p.label() {
		r.unobserve(p)
		p.observeAs(l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.registered, p.loaded = known, true
	for _, u := range p.units {
		u.recheck = true // its position is read again too
		u.halted, u.notBefore, u.outages, u.attempts, u.isolating = false, time.Time{}, 0, 0, false
	}
	for _, c := range checkpoints {
		u := p.unit(c.Partition)
		if !u.busy {
			u.position = c.Sequence
		}
		u.halted = c.Status == projection.Halted
		u.recheck = u.recheck || c.IsFailing()
	}
	return nil
}

// customVersions lists the versions of custom projections. One that cannot be built does not keep
// the other ones from running; the runner tries it again after it was changed.
func (r *Runner) customVersions(ctx context.Context, all []projection.Projection) (out []versionSpec, err error) {
	if r.config.Custom == nil {
		return nil, nil
	}
	heads, _ := r.config.Heads.Heads()
	for _, known := range all {
		if len(known.Definition) == 0 || !known.Role.IsLive() {
			continue
		}
		w := versionSpec{registered: known, knownPartitions: len(heads)}
		p := r.findRunning(known)
		if p == nil {
			resource := LeaseName(known.Name, known.Version)
			if r.loop.unready[resource] == known.Revision {
				continue
			}
			declared, handler, _, err := r.config.Custom.Prepare(known)
			if err != nil {
				if r.loop.unready == nil {
					r.loop.unready = map[string]int64{}
				}
				r.loop.unready[resource] = known.Revision
				r.config.Logger.ErrorContext(ctx, "a version of a custom projection cannot be run by this node; change the projection, or delete it and create it again", "projection", known.Name, "version", known.Version, "code", fault.CodeOf(err))
				continue
			}
			w.declaration = &declaredProjection{declared, panicGuard{handler, known.Name, r.config.Logger}}
		}
		if p != nil && p.knownPartitions == len(heads) {
			w.readPartitions, w.knownPartitions = p.readPartitions, p.knownPartitions
		} else {
			read, err := r.config.Custom.Partitions(ctx, known)
			if err != nil {
				return out, err
			}
			w.readPartitions = map[event.PartitionID]bool{}
			for _, id := range read {
				w.readPartitions[id] = known.Reads(id)
			}
		}
		out = append(out, w)
	}
	return out, nil
}

// customLabel is the name under which all custom projections are observed together, because
// their names must not show in metrics.
const customLabel = "own"

// isCustom reports whether a tenant created the projection. It reads the name, which workers may
// read without mu.
func (p *running) isCustom() bool {
	_, _, isCustom := projection.SplitName(p.Name)
	return isCustom
}

// reads reports whether a version reads a partition.
func (p *running) reads(id event.PartitionID) bool {
	return p.readPartitions == nil || p.readPartitions[id]
}

// setReadPartitions sets which partitions a version reads.
func (r *Runner) setReadPartitions(p *running, w versionSpec) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p.readPartitions, p.knownPartitions = w.readPartitions, w.knownPartitions
}
