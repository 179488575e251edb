package projections

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// RebuildsConfig is what Rebuilds need.
type RebuildsConfig struct {
	Store    ports.Projections
	Register ports.ProjectionRegister
	Versions ports.ProjectionVersions
	// Snapshots keeps snapshots; nil: there are none.
	Snapshots ports.ProjectionSnapshots
	Clock     ports.Clock
	Declared  []module.Projection
	Custom    CustomProjections                  // nil: there are only those that are declared
	Handlers  map[string]ports.ProjectionHandler // as the runner has them
	// Tables are those that handlers write. A projection without is not rebuilt.
	Tables map[string][]ports.ProjectionTable
	Logger *slog.Logger
	Wake   func() // lets this node's runner look

	// MaxBehind is how many events a version may lack in a legal entity to be shown; 0 is
	// 1000.
	MaxBehind uint64
	Every     time.Duration // how often rebuilds are advanced, and five times as long between looks for new ones; 0 is 1 s
	Sweep     int           // rows that are removed at once of a table and legal entity; 0 is 5000
	// ManualSwitch leaves also the version of a newer handler to operators to be switched to.
	ManualSwitch bool
}

// Rebuilds build versions of projections beside those that readers are shown. Any node
// may start, switch or cancel one; the runners of all nodes share the work.
type Rebuilds struct {
	config RebuildsConfig

	checked time.Time // when CopyRound last looked for what was redacted
	idle    atomic.Bool
	wakes   [2]chan struct{} // of the loops of Run

	mu       sync.Mutex
	samples  map[string][]projection.Sample // by lease name of the version, oldest first
	reported map[maintenanceTask]string     // what was last logged
	pruned   time.Time                      // when Round last forgot what was dropped long ago
}

// maintenanceTask is what keeps a version from being looked after, in one of the rounds.
type maintenanceTask struct{ version, round string }

// NewRebuilds makes Rebuilds.
func NewRebuilds(c RebuildsConfig) *Rebuilds {
	if c.MaxBehind == 0 {
		c.MaxBehind = 1000
	}
	if c.Every <= 0 {
		c.Every = time.Second
	}
	if c.Sweep <= 0 {
		c.Sweep = 5000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Wake == nil {
		c.Wake = func() {}
	}
	r := &Rebuilds{samples: map[string][]projection.Sample{}, reported: map[maintenanceTask]string{}}
	for i := range r.wakes {
		r.wakes[i] = make(chan struct{}, 1)
	}
	wake := c.Wake
	c.Wake = func() {
		wake()
		for _, kick := range r.wakes {
			select {
			case kick <- struct{}{}:
			default: // that loop will look already
			}
		}
	}
	r.config = c
	return r
}

// Rebuild is how the versions of a projection stand to each other.
type Rebuild struct {
	Projection string
	Active     int
	Partition  event.PartitionID // that Retained and Building are about; 0: all
	Retained   int               // 0: there is none to go back to
	Building   int               // 0: nothing is being rebuilt
	Dropping   []int
	// Parts are about one partition each, those in which there is something.
	Parts     []Rebuild
	Snapshots []Snapshot
	// The rest is about the version that is building.
	StartedAt     time.Time
	StartedBy     string
	SelfSwitching bool
	Status        projection.Status
	Progress      projection.Progress
	PerSecond     float64
	Left          time.Duration // to go, if LeftKnown
	LeftKnown     bool
	Halted        int  // legal entities in which it stands still
	CaughtUp      bool // a switch is possible
	Base          int  // version of the snapshot that it begins with; 0: the beginning of the log
}

// Order is what an operator wants of a rebuild.
type Order struct {
	Name  string
	By    string
	Force bool // switch: whatever the version lacks
	// Partition is the one that it is about; 0: all.
	Partition event.PartitionID
	// Snapshot is the version of one that Start begins with or DropSnapshot removes; Latest
	// is the newest one that Start may begin with.
	Snapshot int
	Latest   bool
}

// Start begins to build a version beside the one that is shown. Faults:
// projection.not_found, projection.rebuilding, projection.rebuild_unsupported, those of
// a snapshot to begin with (projection.snapshot_not_found, projection.snapshot_outdated,
// projection.other_code); projection.other_code for a partition of a version that
// another handler built than this release has, projection.not_read for one that the
// definition leaves out.
func (r *Rebuilds) Start(ctx context.Context, o Order, selfSwitching bool) (Rebuild, error) {
	all, err := r.list(ctx, o.Name)
	if err != nil {
		return Rebuild{}, err
	}
	p, err := projection.NextVersion(all, o.Name, o.Partition)
	if err != nil {
		return Rebuild{}, err
	}
	if tables, _ := r.tables(p); len(tables) == 0 {
		return Rebuild{}, fault.New(fault.FailedPrecondition, "projection.rebuild_unsupported", "projection %s does not say which tables it writes; reset it instead", o.Name)
	}
	if d := r.declared(o.Name); d != nil {
		p.Code = d.Version
	}
	if err := r.checkScopes(all, p); err != nil {
		return Rebuild{}, err
	}
	if err := r.requireCovered(ctx, p); err != nil {
		return Rebuild{}, err
	}
	if err := r.chooseBase(ctx, all, o, &p); err != nil {
		return Rebuild{}, err
	}
	p.SelfSwitching, p.ChangedBy = selfSwitching, o.By
	added, err := r.config.Register.AddProjection(ctx, p)
	if fault.KindOf(err) == fault.NotFound && err != nil || err == nil && (added.Role != projection.Building || added.Scope != p.Scope || !bytes.Equal(added.Definition, p.Definition)) {
		err = projection.Rebuilding(o.Name) // somebody was faster
	}
	if err != nil {
		return Rebuild{}, err
	}
	r.config.Wake()
	return r.Show(ctx, o.Name)
}

// Show tells how the versions stand. Fault projection.not_found.
func (r *Rebuilds) Show(ctx context.Context, name string) (Rebuild, error) {
	all, err := r.list(ctx, name)
	if err != nil {
		return Rebuild{}, err
	}
	out, err := r.status(ctx, all, name, 0)
	if err != nil {
		return out, err
	}
	return out, r.addParts(ctx, all, &out)
}

// status tells how the versions stand that are about a partition; 0: about all.
func (r *Rebuilds) status(ctx context.Context, all []projection.Projection, name string, scope event.PartitionID) (Rebuild, error) {
	out := Rebuild{Projection: name, Partition: scope}
	for _, p := range all {
		if p.Name != name || p.Scope != scope && p.Role != projection.Active && p.Role != projection.Dropping {
			continue
		}
		switch p.Role {
		case projection.Active:
			out.Active = p.Version
		case projection.Retained:
			out.Retained = p.Version
		case projection.Dropping:
			out.Dropping = append(out.Dropping, p.Version)
		case projection.Building:
			out.Building, out.StartedAt, out.StartedBy = p.Version, p.CreatedAt, p.ChangedBy
			out.SelfSwitching, out.Status, out.Base = p.SelfSwitching, p.Status, p.Base
			if err := r.measure(ctx, p, &out); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// measure adds how far the version that is building has come.
func (r *Rebuilds) measure(ctx context.Context, p projection.Projection, out *Rebuild) error {
	heads, err := r.config.Store.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	checkpoints, err := r.config.Store.Checkpoints(ctx, p.Name, p.Version)
	if err != nil {
		return err
	}
	at := make(map[event.PartitionID]event.Sequence, len(checkpoints))
	for _, c := range checkpoints {
		at[c.Partition] = c.Sequence
		if c.Status == projection.Halted {
			out.Halted++
		}
	}
	read, err := r.reads(ctx, p)
	if err != nil {
		return err
	}
	out.CaughtUp = p.Status != projection.Created // else it is still being copied
	for id, head := range heads {
		if read != nil && !slices.Contains(read, id) {
			continue
		}
		reached := min(at[id], head.Sequence)
		out.Progress.Total += uint64(head.Sequence)
		out.Progress.Done += uint64(reached)
		if uint64(head.Sequence-reached) > r.config.MaxBehind {
			out.CaughtUp = false
		}
	}
	from, to := r.sample(p, out.Progress.Done)
	out.PerSecond, out.Left, out.LeftKnown = out.Progress.Pace(from, to)
	return nil
}

// window is how far back the pace of a rebuild is looked at.
const window = 15 * time.Second

// sample remembers how far a version has come and gives the oldest and the newest
// sample. A node that has just begun to look takes the start of the rebuild for the
// oldest.
func (r *Rebuilds) sample(p projection.Projection, done uint64) (from, to projection.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := LeaseName(p.Name, p.Version), r.config.Clock.Now()
	list := append(r.samples[key], projection.Sample{At: now, Done: done})
	for len(list) > 2 && (now.Sub(list[1].At) > window || len(list) > maxSamples) {
		list = list[1:]
	}
	r.samples[key] = list
	from, to = list[0], list[len(list)-1]
	if to.At.Sub(from.At) < r.config.Every {
		from = projection.Sample{At: p.CreatedAt}
	}
	return from, to
}

const maxSamples = 100

// Switch shows the version that was built to readers and retains the other. Faults:
// projection.not_building, projection.version_behind, projection.version_halted,
// projection.changed.
func (r *Rebuilds) Switch(ctx context.Context, o Order) (Rebuild, error) {
	return r.swap(ctx, o, func(b Rebuild) (int, error) {
		if b.Building == 0 {
			return 0, projection.NotBuilding(o.Name)
		}
		return b.Building, nil
	})
}

// Rollback shows the version before again and retains the other. Faults:
// projection.not_retained and those of Switch.
func (r *Rebuilds) Rollback(ctx context.Context, o Order) (Rebuild, error) {
	return r.swap(ctx, o, func(b Rebuild) (int, error) {
		if b.Retained == 0 {
			return 0, projection.NotRetained(o.Name)
		}
		return b.Retained, nil
	})
}

func (r *Rebuilds) swap(ctx context.Context, o Order, choose func(Rebuild) (int, error)) (Rebuild, error) {
	b, err := r.statusFor(ctx, o)
	if err != nil {
		return b, err
	}
	to, err := choose(b)
	if err != nil {
		return b, err
	}
	build, err := r.find(ctx, o.Name, to)
	if err != nil {
		return b, err
	}
	err = r.activate(ctx, o, ports.ProjectionSwitch{
		Projection: o.Name, From: b.Active, To: to, MaxBehind: r.config.MaxBehind, Force: o.Force,
		Types: build.EventTypes, Handler: build.handler, Partitions: build.only, By: o.By,
	})
	if err != nil {
		return b, err
	}
	r.config.Logger.InfoContext(ctx, "readers are shown another version of a projection", "projection", o.Name, "from", b.Active, "to", to, "partition", uint32(o.Partition), "by", o.By, "forced", o.Force)
	r.config.Wake()
	return r.Show(ctx, o.Name)
}

// Cancel ends a rebuild and removes what it wrote, little by little. Fault
// projection.not_building.
func (r *Rebuilds) Cancel(ctx context.Context, o Order) (Rebuild, error) {
	return r.drop(ctx, o, func(b Rebuild) int { return b.Building }, projection.NotBuilding)
}

// Drop removes the version that is retained, little by little. Fault
// projection.not_retained.
func (r *Rebuilds) Drop(ctx context.Context, o Order) (Rebuild, error) {
	return r.drop(ctx, o, func(b Rebuild) int { return b.Retained }, projection.NotRetained)
}

func (r *Rebuilds) drop(ctx context.Context, o Order, choose func(Rebuild) int, none func(string) *fault.Error) (Rebuild, error) {
	b, err := r.statusFor(ctx, o)
	if err != nil {
		return b, err
	}
	version := choose(b)
	if version == 0 {
		return b, none(o.Name)
	}
	if err := r.config.Versions.DropProjection(ctx, o.Name, version, o.By); err != nil {
		return b, err
	}
	r.config.Logger.InfoContext(ctx, "a version of a projection is removed", "projection", o.Name, "version", version, "by", o.By)
	r.config.Wake()
	return r.Show(ctx, o.Name)
}

// Run looks after rebuilds until ctx ends: it takes samples of their pace, switches to
// those that switch by themselves, removes what is dropped, and beside that copies
// snapshots.
func (r *Rebuilds) Run(ctx context.Context) {
	var copying sync.WaitGroup
	copying.Go(func() { r.repeat(ctx, r.wakes[0], r.CopyRound) })
	r.repeat(ctx, r.wakes[1], r.Round)
	copying.Wait()
}

// idlePauses is how many times Every the loops rest while no version is being built,
// copied, or removed. Orders on this node end the rest; those of other nodes, which work
// on them as well, wait for its end.
const idlePauses = 5

func (r *Rebuilds) repeat(ctx context.Context, kicked <-chan struct{}, round func(context.Context) error) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		err := round(ctx)
		if err != nil && !errors.As(err, new(loggedError)) && ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "rebuilds of projections could not be looked after; it will be tried again", "code", fault.CodeOf(err))
		}
		if err == nil && r.idle.Load() {
			pause.Reset(idlePauses * r.config.Every)
		} else {
			pause.Reset(r.config.Every)
		}
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		case <-kicked:
		}
	}
}

// listAll gives all versions of all projections, and notes whether there is anything to do.
func (r *Rebuilds) listAll(ctx context.Context) ([]projection.Projection, error) {
	all, err := r.config.Register.ListProjections(ctx)
	r.idle.Store(err == nil && !slices.ContainsFunc(all, func(p projection.Projection) bool {
		return p.Role == projection.Building || p.Role == projection.Dropping || p.Role == projection.Saving
	}))
	return all, err
}

// loggedError is an error that the log has.
type loggedError struct{ error }

func (l loggedError) Unwrap() error { return l.error }

// reportOnce logs what keeps a version from being looked after, once until it is over or
// something else, or somebody has treated the version.
func (r *Rebuilds) reportOnce(ctx context.Context, round string, p projection.Projection, err error) error {
	key, now := maintenanceTask{LeaseName(p.Name, p.Version), round}, ""
	if err != nil {
		now = fmt.Sprintf("%s %d", fault.CodeOf(err), p.Revision)
	}
	if ctx.Err() != nil {
		return err
	}
	r.mu.Lock()
	before := r.reported[key]
	if r.reported[key] = now; err == nil {
		delete(r.reported, key)
	}
	r.mu.Unlock()
	if err == nil {
		return nil
	}
	if before != now {
		r.config.Logger.WarnContext(ctx, "a version of a projection could not be looked after; it is tried again and again, and said once; where it stays so, cancel it",
			"projection", p.Name, "version", p.Version, "partition", uint32(p.Scope), "to", round, "code", fault.CodeOf(err))
	}
	return loggedError{err}
}

// Round looks after all rebuilds once. One that fails holds back no other; the first
// error is returned, and before those that the log has the first that it has not.
func (r *Rebuilds) Round(ctx context.Context) error {
	all, err := r.listAll(ctx)
	if err != nil {
		return err
	}
	var first error
	keep := func(err error) {
		if first == nil || err != nil && errors.As(first, new(loggedError)) && !errors.As(err, new(loggedError)) {
			first = err
		}
	}
	living := map[string]bool{}
	for _, p := range all {
		living[LeaseName(p.Name, p.Version)] = p.Role != projection.Dropped
		tables, ours := r.tables(p)
		switch {
		case p.Role == projection.Building:
			keep(r.reportOnce(ctx, "follow", p, r.advance(ctx, p)))
		case p.Role == projection.Dropping && ours:
			_, err := r.config.Versions.SweepProjection(ctx, p.Name, p.Version, tables, r.config.Sweep)
			keep(r.reportOnce(ctx, "remove", p, err))
		}
	}
	keep(r.prune(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.samples, func(version string, _ []projection.Sample) bool { return !living[version] })
	maps.DeleteFunc(r.reported, func(of maintenanceTask, _ string) bool { return !living[of.version] })
	return first
}

// KeptDropped is how long a version stays known after nothing was left of it: who dropped
// what, and when, can be looked up that long. The newest of a projection always stays, so
// that its number is not given again.
const KeptDropped = 30 * 24 * time.Hour

const pruneEvery = time.Hour

// prune forgets versions that were dropped long ago.
func (r *Rebuilds) prune(ctx context.Context) error {
	now := r.config.Clock.Now()
	if !r.pruned.IsZero() && absDiff(now, r.pruned) < pruneEvery {
		return nil
	}
	forgotten, err := r.config.Versions.ForgetDropped(ctx, now.Add(-KeptDropped))
	if err != nil {
		return err
	}
	r.pruned = now
	if forgotten > 0 {
		r.config.Logger.InfoContext(ctx, "versions of projections were forgotten that were dropped long ago", "versions", forgotten)
	}
	return nil
}

// advance takes a sample of a rebuild and switches to it when it is time.
func (r *Rebuilds) advance(ctx context.Context, p projection.Projection) error {
	var b Rebuild
	if err := r.measure(ctx, p, &b); err != nil {
		return err
	}
	if !p.SelfSwitching || !b.CaughtUp || b.Halted > 0 || !r.isBuiltHere(p) {
		return nil
	}
	_, err := r.Switch(ctx, Order{Name: p.Name, By: p.ChangedBy, Partition: p.Scope})
	switch fault.CodeOf(err) {
	case projection.CodeVersionBehind, projection.CodeChanged, projection.CodeNotBuilding, projection.CodeVersionHalted, projection.CodeUnreadable:
		return nil // the next round tries again, or another node was faster or is newer
	}
	return err
}
