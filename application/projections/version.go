package projections

import (
	"context"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

func newRunning(d *declaredProjection, known projection.Projection) *running {
	p := &running{Projection: d.Projection, handler: d.handler, registered: known, units: map[event.PartitionID]*unit{}}
	p.Version = known.Version
	p.resource = LeaseName(p.Name, p.Version)
	p.observeAs(label(known))
	return p
}

// label is what the version is observed as.
func (p *running) label() string { return *p.observedAs.Load() }

func (p *running) observeAs(name string) { p.observedAs.Store(&name) }

// label is what a version is observed as: what readers are shown by the projection's
// name alone.
func label(p projection.Projection) string {
	if len(p.Definition) > 0 {
		return customLabel
	}
	if p.WithDefaults().Role == projection.Active {
		return p.Name
	}
	return fmt.Sprintf("%s/%d", p.Name, p.Version)
}

// refresh reads what operators decided, and the checkpoints of what they touched.
func (r *Runner) refresh(ctx context.Context) {
	err := r.refreshAll(ctx)
	if err != nil && ctx.Err() == nil {
		r.config.Logger.WarnContext(ctx, "the state of the projections could not be read; it will be looked for again", "code", fault.CodeOf(err))
	}
}

func (r *Runner) refreshAll(ctx context.Context) error {
	if r.config.Register == nil {
		for _, p := range r.running {
			if err := r.refreshOne(ctx, p, p.registered); err != nil {
				return err
			}
		}
		return nil
	}
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
			for _, id := range limitScope(known, nil) {
				w.only = map[event.PartitionID]bool{id: true}
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
		r.readOnly(p, w)
		next = append(next, p)
	}
	r.replaceRunning(next)
	for i, p := range next {
		if err := r.refreshOne(ctx, p, want[i].registered); err != nil {
			return err
		}
	}
	return nil
}

// versionsToRun are those of a projection that this node works: the living ones that are
// built by the handler it has. The first node with a newer handler begins a version for
// it beside the one that is shown; the first node of all makes the first version.
func (r *Runner) versionsToRun(ctx context.Context, d *declaredProjection, all []projection.Projection) (out []projection.Projection, err error) {
	latest, code := 0, 0
	var shown projection.Projection
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
			shown = p
		}
		if p.Code == d.Version {
			out = append(out, p)
		}
	}
	if code >= d.Version {
		return out, nil
	}
	p := builtIn(d.Projection)
	if shown.Name != "" {
		p.Version, p.Role, p.SelfSwitching, p.Settings = latest+1, projection.Building, true, shown.Settings
		r.config.Logger.InfoContext(ctx, "a newer handler builds its version of a projection beside the one that is shown",
			"projection", p.Name, "version", p.Version, "shown", shown.Version)
	} else {
		p.Version = max(p.Version, latest+1)
	}
	p, err = r.config.Register.AddProjection(ctx, p)
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return out, nil //nolint:nilerr // another one is being built; its turn comes
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

// replaceRunning sets what this node works. What is in the hands of a worker comes to its end.
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
	ids := make([]event.PartitionID, 0, len(p.units))
	for id := range p.units {
		ids = append(ids, id)
	}
	r.mu.Unlock()
	for _, id := range ids {
		r.config.Observer.ProjectionLeft(p.label(), id)
	}
}

// refreshOne brings a version to what is known of it.
func (r *Runner) refreshOne(ctx context.Context, p *running, known projection.Projection) error {
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
		u.recheck = true // also where it has got to by now is looked at again
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
