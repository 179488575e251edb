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
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// RebuildsConfig configures Rebuilds.
type RebuildsConfig struct {
	Store     ports.Projections
	Log       ports.HeadReader
	Register  ports.ProjectionRegister
	Decisions ports.ProjectionDecisions // nil: nothing is recorded
	Versions  ports.ProjectionVersions
	Snapshots ports.ProjectionSnapshots // nil: there are none
	Proofs    *snapshots.Projections    // of the snapshots; required with them
	Clock     ports.Clock
	Declared  []module.Projection
	Custom    CustomProjections
	Handlers  map[string]ports.ProjectionHandler // of modules, by projection, as the runner has them
	// Tables are those that handlers write, by projection. A projection without tables is not
	// rebuilt.
	Tables map[string][]ports.ProjectionTable
	Logger *slog.Logger
	Wake   func() // wakes this node's runner

	// MaxBehind is how many events a version may lack in a legal entity when it becomes active;
	// positive.
	MaxBehind int
	// SnapshotEvery is how many events the active version of a projection reads in all legal
	// entities together until a snapshot of it is taken; 0: none is taken by itself.
	SnapshotEvery int
	// ManualSwitch leaves the switch to the version of a newer handler to operators.
	ManualSwitch bool
}

// Rebuilds builds further versions of projections while readers see the active ones. Any node may
// start, switch or cancel a rebuild; the runners of all nodes fold the events into the new
// version, as they do into the active one.
type Rebuilds struct {
	config RebuildsConfig
	catalog

	checked time.Time // when CopySnapshots last looked for due snapshots and for redacted ones
	idle    atomic.Bool
	wakes   [2]chan struct{} // of the loops of Run

	mu       sync.Mutex
	samples  map[string][]projection.Sample // by lease name of the version, oldest first
	reported map[maintenanceTask]string     // the failure that was last logged
	pruned   time.Time                      // when Maintain last removed old dropped versions
}

// maintenanceTask is one kind of work on one version.
type maintenanceTask struct{ version, task string }

const (
	// advanceInterval is how often rebuilds are advanced. New ones are looked up five times less
	// often: they take minutes, and an idle node should send few queries.
	advanceInterval = time.Second
	// sweepRows is how many rows of a table and legal entity one statement removes, so that its
	// transaction stays short.
	sweepRows = 5000
)

// NewRebuilds makes Rebuilds. It refuses a MaxBehind that is not positive.
func NewRebuilds(c RebuildsConfig) (*Rebuilds, error) {
	if err := fault.RequirePositive("projections.RebuildsConfig", struct{ MaxBehind int }{c.MaxBehind}); err != nil {
		return nil, err
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
			default: // a wake is pending
			}
		}
	}
	r.config, r.catalog = c, catalog{c.Declared, c.Handlers, c.Custom}
	return r, nil
}

// Rebuild is the status of the versions of a projection.
type Rebuild struct {
	Projection string
	Active     int
	Partition  event.PartitionID // that Retained and Building cover; 0: all
	Retained   int               // 0: no rollback is possible
	Building   int               // 0: nothing is being rebuilt
	Dropping   []int
	// Partitions are the statuses of the versions that cover one partition each, by partition.
	Partitions []Rebuild
	Snapshots  []Snapshot
	// All fields below describe the building version.
	StartedAt     time.Time
	StartedBy     string
	SelfSwitching bool
	Status        projection.Status
	Progress      projection.Progress
	PerSecond     float64
	TimeLeft      time.Duration // estimated until it has caught up, if TimeLeftKnown
	TimeLeftKnown bool
	Halted        int  // legal entities in which it is halted
	CaughtUp      bool // a switch is possible
	Base          int  // version of the snapshot that it starts from; 0: the beginning of the log
}

// Order is what an operator requests of a rebuild or snapshot.
type Order struct {
	Name string
	Decider
	Force     bool              // switch although the version lacks events
	Partition event.PartitionID // that it covers; 0: all
	// Snapshot is the version that Start starts from or DropSnapshot removes; Latest selects
	// the newest usable one.
	Snapshot int
	Latest   bool
}

// Start adds a building version to the active one. Faults: projection.not_found,
// projection.rebuilding, projection.rebuild_unsupported; of the snapshot
// projection.snapshot_not_found and projection.snapshot_outdated; projection.other_code for a
// snapshot or an active version that another handler built; projection.not_read for a
// partition that the definition leaves out.
func (r *Rebuilds) Start(ctx context.Context, o Order, selfSwitching bool) (Rebuild, error) {
	all, err := r.list(ctx, o.Name)
	if err != nil {
		return Rebuild{}, err
	}
	p, err := projection.NextVersion(all, o.Name, o.Partition)
	if err != nil {
		return Rebuild{}, err
	}
	if err := numberAfter(ctx, r.config.Decisions, &p); err != nil {
		return Rebuild{}, err
	}
	if tables, _ := r.tables(p); len(tables) == 0 {
		return Rebuild{}, fault.New(fault.FailedPrecondition, "projection.rebuild_unsupported", "projection %s does not say which tables it writes; reset it instead", o.Name)
	}
	if d := r.declared(o.Name); d != nil {
		p.Code = d.Version
	}
	if i := slices.IndexFunc(all, isActive(o.Name)); p.Scope != 0 && !projection.SameCode(all[i], p) {
		// A switch would mix its rows with those of the active version's other partitions.
		return Rebuild{}, projection.OtherCode(p.Name, all[i].Version)
	}
	if err := r.requireCovered(ctx, p); err != nil {
		return Rebuild{}, err
	}
	if err := r.chooseBase(ctx, all, o, &p); err != nil {
		return Rebuild{}, err
	}
	p.SelfSwitching, p.ChangedBy = selfSwitching, o.By
	if err := r.decide(ctx, o, ports.ProjectionRebuildStarted, p.Version, func(v projection.DecidedVersions) projection.DecidedVersions { return v.With(p.Decided()) }); err != nil {
		return Rebuild{}, err
	}
	if err := r.addVersion(ctx, p, projection.Rebuilding(o.Name)); err != nil {
		return Rebuild{}, err
	}
	r.config.Wake()
	return r.Show(ctx, o.Name)
}

// decide records a decision of an order, see decide.
func (r *Rebuilds) decide(ctx context.Context, o Order, action ports.ProjectionAction, version int, change func(projection.DecidedVersions) projection.DecidedVersions) error {
	return decide(ctx, r.config.Decisions, o.Decider, o.Name, ports.ProjectionDecision{Action: action, Version: version, Partition: o.Partition, Force: o.Force}, change)
}

// addVersion registers a version. It returns conflict if another caller was faster.
func (r *Rebuilds) addVersion(ctx context.Context, p projection.Projection, conflict error) error {
	added, err := r.config.Register.AddProjection(ctx, p)
	if err != nil && fault.KindOf(err) == fault.NotFound || err == nil && (added.Role != p.Role || added.Scope != p.Scope || !bytes.Equal(added.Definition, p.Definition)) {
		return conflict
	}
	return err
}

// Show returns the status of the versions. Fault projection.not_found.
func (r *Rebuilds) Show(ctx context.Context, name string) (Rebuild, error) {
	all, err := r.list(ctx, name)
	if err != nil {
		return Rebuild{}, err
	}
	out, err := r.statusOf(ctx, all, name, 0)
	if err != nil {
		return out, err
	}
	return out, r.addPartitions(ctx, all, &out)
}

// statusOf describes the versions that cover one partition; scope 0: those that cover all.
func (r *Rebuilds) statusOf(ctx context.Context, all []projection.Projection, name string, scope event.PartitionID) (Rebuild, error) {
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

// measure adds the progress of the building version.
func (r *Rebuilds) measure(ctx context.Context, p projection.Projection, out *Rebuild) error {
	heads, err := r.config.Log.PartitionHeads(ctx)
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
	read, err := r.partitions(ctx, p)
	if err != nil {
		return err
	}
	out.CaughtUp = p.Status != projection.Created // else its base is still being copied
	for id, head := range heads {
		if read != nil && !slices.Contains(read, id) {
			continue
		}
		reached := min(at[id], head.Sequence)
		out.Progress.Total += uint64(head.Sequence)
		out.Progress.Done += uint64(reached)
		if uint64(head.Sequence-reached) > uint64(r.config.MaxBehind) {
			out.CaughtUp = false
		}
	}
	from, to := r.sample(p, out.Progress.Done)
	out.PerSecond, out.TimeLeft, out.TimeLeftKnown = out.Progress.Pace(from, to)
	return nil
}

// The pace of a rebuild is measured over a window of samples.
const (
	paceWindow     = 15 * time.Second
	maxPaceSamples = 100
)

// sample records the progress of a version and returns the oldest and the newest sample. On a
// node that has just started the oldest is the start of the rebuild.
func (r *Rebuilds) sample(p projection.Projection, done uint64) (from, to projection.Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, now := LeaseName(p.Name, p.Version), r.config.Clock.Now()
	list := append(r.samples[key], projection.Sample{At: now, Done: done})
	for len(list) > 2 && (now.Sub(list[1].At) > paceWindow || len(list) > maxPaceSamples) {
		list = list[1:]
	}
	r.samples[key] = list
	from, to = list[0], list[len(list)-1]
	if to.At.Sub(from.At) < advanceInterval {
		from = projection.Sample{At: p.CreatedAt}
	}
	return from, to
}

// Switch activates the building version, retains the active one, and drops the version that was
// retained before. It checks positions and not rows: Compare does that. Faults:
// projection.not_building, projection.version_behind, projection.version_halted,
// projection.changed; for a single partition also projection.other_code.
func (r *Rebuilds) Switch(ctx context.Context, o Order) (Rebuild, error) {
	return r.switchTo(ctx, o, func(b Rebuild) int { return b.Building }, projection.NotBuilding)
}

// Rollback activates the retained version and retains the active one. Faults:
// projection.not_retained and those of Switch.
func (r *Rebuilds) Rollback(ctx context.Context, o Order) (Rebuild, error) {
	return r.switchTo(ctx, o, func(b Rebuild) int { return b.Retained }, projection.NotRetained)
}

func (r *Rebuilds) switchTo(ctx context.Context, o Order, choose func(Rebuild) int, none func(string) *fault.Error) (Rebuild, error) {
	b, to, err := r.chooseVersion(ctx, o, choose, none)
	if err != nil {
		return b, err
	}
	p, err := r.findVersion(ctx, o.Name, to)
	if err != nil {
		return b, err
	}
	code, err := r.builderOf(ctx, p)
	if err != nil {
		return b, err
	}
	recorded := false // the transaction of the switch may run again
	var before projection.DecidedVersions
	err = r.activate(ctx, o, ports.ProjectionSwitch{
		Projection: o.Name, From: b.Active, To: to, MaxBehind: uint64(r.config.MaxBehind), Force: o.Force,
		Types: code.EventTypes, Handler: code.handler, Partitions: code.readPartitions, By: o.By,
		Record: func(ctx context.Context) error {
			if recorded {
				return nil
			}
			err := r.decide(ctx, o, ports.ProjectionActivated, to, func(v projection.DecidedVersions) projection.DecidedVersions {
				before = v
				if o.Partition != 0 {
					return v.ActivatePartition(to, o.Partition)
				}
				return v.Activate(decided(v, p))
			})
			recorded = err == nil
			return err
		},
	})
	if err != nil {
		if recorded {
			r.reverse(ctx, o, b.Active, to, before)
		}
		return b, err
	}
	r.config.Logger.InfoContext(ctx, "readers are shown another version of a projection", "projection", o.Name, "from", b.Active, "to", to, "partition", uint32(o.Partition), "by", o.By, "forced", o.Force)
	r.config.Wake()
	return r.Show(ctx, o.Name)
}

// reverseTimeout is how long a failed switch waits until its reversal is recorded.
const reverseTimeout = 10 * time.Second

// reverse records that readers still see a version, after the event of a switch was recorded and the
// transaction failed; before are the versions before that event. If it is not recorded, the next start
// carries the switch out.
func (r *Rebuilds) reverse(ctx context.Context, o Order, active, to int, before projection.DecidedVersions) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reverseTimeout) // the caller may be gone
	defer cancel()
	p, err := r.findVersion(ctx, o.Name, to)
	if err == nil && p.Role != projection.Building && p.Role != projection.Retained {
		return // the transaction was committed, and only its answer was lost
	}
	if err == nil {
		err = r.decide(ctx, o, ports.ProjectionActivated, active, func(v projection.DecidedVersions) projection.DecidedVersions { return v.Deactivate(before) })
	}
	if err != nil {
		r.config.Logger.WarnContext(ctx, "a switch to another version of a projection failed after it was recorded, and that could not be taken back; switch again, or start a node again, which switches",
			"projection", o.Name, "version", to, "partition", uint32(o.Partition), "code", fault.CodeOf(err))
	}
}

// Cancel drops the building version; its rows are removed in steps. Fault
// projection.not_building.
func (r *Rebuilds) Cancel(ctx context.Context, o Order) (Rebuild, error) {
	return r.drop(ctx, o, func(b Rebuild) int { return b.Building }, projection.NotBuilding)
}

// Drop drops the retained version; its rows are removed in steps. Fault
// projection.not_retained.
func (r *Rebuilds) Drop(ctx context.Context, o Order) (Rebuild, error) {
	return r.drop(ctx, o, func(b Rebuild) int { return b.Retained }, projection.NotRetained)
}

func (r *Rebuilds) drop(ctx context.Context, o Order, choose func(Rebuild) int, none func(string) *fault.Error) (Rebuild, error) {
	b, version, err := r.chooseVersion(ctx, o, choose, none)
	if err != nil {
		return b, err
	}
	if err := r.decide(ctx, o, ports.ProjectionVersionDropped, version, func(v projection.DecidedVersions) projection.DecidedVersions { return v.Without(version) }); err != nil {
		return b, err
	}
	if err := r.config.Versions.DropProjection(ctx, o.Name, version, o.By); err != nil {
		return b, err
	}
	r.config.Logger.InfoContext(ctx, "a version of a projection is removed", "projection", o.Name, "version", version, "by", o.By)
	r.config.Wake()
	return r.Show(ctx, o.Name)
}

// Run maintains rebuilds until ctx ends: it measures their pace, switches to self-switching
// versions and removes dropped rows, and in a second loop copies snapshots.
func (r *Rebuilds) Run(ctx context.Context) {
	var copying sync.WaitGroup
	copying.Go(func() { r.runEvery(ctx, r.wakes[0], r.CopySnapshots) })
	r.runEvery(ctx, r.wakes[1], r.Maintain)
	copying.Wait()
}

// idlePauses is how many intervals the loops pause while no version is being built, copied, or
// removed. An order on this node ends the pause; other nodes notice it after theirs.
const idlePauses = 5

func (r *Rebuilds) runEvery(ctx context.Context, wake <-chan struct{}, round func(context.Context) error) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for ctx.Err() == nil {
		err := round(ctx)
		if err != nil && !errors.As(err, new(loggedError)) && ctx.Err() == nil {
			r.config.Logger.WarnContext(ctx, "rebuilds of projections could not be maintained; it will be tried again", "code", fault.CodeOf(err))
		}
		if err == nil && r.idle.Load() {
			pause.Reset(idlePauses * advanceInterval)
		} else {
			pause.Reset(advanceInterval)
		}
		select {
		case <-ctx.Done():
		case <-pause.C:
		case <-wake:
		}
	}
}

// listAll lists all versions of all projections, and records whether one needs work.
func (r *Rebuilds) listAll(ctx context.Context) ([]projection.Projection, error) {
	all, err := r.config.Register.ListProjections(ctx)
	r.idle.Store(err == nil && !slices.ContainsFunc(all, func(p projection.Projection) bool {
		return p.Role == projection.Building || p.Role == projection.Dropping || p.Role == projection.Saving
	}))
	return all, err
}

// loggedError is an error that was already logged.
type loggedError struct{ error }

func (l loggedError) Unwrap() error { return l.error }

// reportOnce logs why a task on a version fails: once, until the task succeeds, fails
// differently, or the version is changed.
func (r *Rebuilds) reportOnce(ctx context.Context, task string, p projection.Projection, err error) error {
	key, now := maintenanceTask{LeaseName(p.Name, p.Version), task}, ""
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
		r.config.Logger.WarnContext(ctx, "a version of a projection could not be maintained; it is tried again, and logged once; if it stays so, cancel the rebuild",
			"projection", p.Name, "version", p.Version, "partition", uint32(p.Scope), "to", task, "code", fault.CodeOf(err))
	}
	return loggedError{err}
}

// Maintain advances all rebuilds and removes dropped rows, once. A failing one does not hold back
// the other ones. It returns the first error that is not yet logged, else the first one.
func (r *Rebuilds) Maintain(ctx context.Context) error {
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
	registered := map[string]bool{}
	for _, p := range all {
		registered[LeaseName(p.Name, p.Version)] = p.Role != projection.Dropped
		tables, known := r.tables(p)
		switch {
		case p.Role == projection.Building:
			keep(r.reportOnce(ctx, "follow", p, r.advance(ctx, p)))
		case p.Role == projection.Dropping && known:
			_, err := r.config.Versions.SweepProjection(ctx, p.Name, p.Version, tables, sweepRows)
			keep(r.reportOnce(ctx, "remove", p, err))
		}
	}
	keep(r.prune(ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.samples, func(version string, _ []projection.Sample) bool { return !registered[version] })
	maps.DeleteFunc(r.reported, func(of maintenanceTask, _ string) bool { return !registered[of.version] })
	return first
}

// KeptDropped is how long a dropped version stays registered, so that operators can look up who
// dropped it and when. The newest version of a projection always stays, so that its number is
// not assigned again.
const KeptDropped = 30 * 24 * time.Hour

const pruneEvery = time.Hour

// prune removes versions from the register that were dropped long ago.
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
		r.config.Logger.InfoContext(ctx, "versions of projections that were dropped long ago were removed from the register", "versions", forgotten)
	}
	return nil
}

// advance samples the pace of a rebuild and switches to a self-switching version that has
// caught up.
func (r *Rebuilds) advance(ctx context.Context, p projection.Projection) error {
	var b Rebuild
	if err := r.measure(ctx, p, &b); err != nil {
		return err
	}
	if !p.SelfSwitching || !b.CaughtUp || b.Halted > 0 || !r.maySwitch(p) {
		return nil
	}
	_, err := r.Switch(ctx, Order{Name: p.Name, Decider: Decider{By: p.ChangedBy}, Partition: p.Scope})
	switch fault.CodeOf(err) {
	case projection.CodeVersionBehind, projection.CodeChanged, projection.CodeNotBuilding, projection.CodeVersionHalted, projection.CodeUnreadable:
		return nil // the next round tries again, or another node has switched or has a newer release
	}
	return err
}

// isActive selects the active version of a projection.
func isActive(name string) func(projection.Projection) bool {
	return func(p projection.Projection) bool { return p.Name == name && p.Role == projection.Active }
}

// requireCovered refuses a partition that a version does not read, since it would stay empty.
func (r *Rebuilds) requireCovered(ctx context.Context, p projection.Projection) error {
	if p.Scope == 0 {
		return nil
	}
	read, err := r.partitions(ctx, p)
	if err == nil && !slices.Contains(read, p.Scope) {
		err = projection.NotRead(p.Name)
	}
	return err
}

// chooseVersion returns the status of the versions that an order is about, and one of them.
func (r *Rebuilds) chooseVersion(ctx context.Context, o Order, choose func(Rebuild) int, none func(string) *fault.Error) (b Rebuild, version int, err error) {
	all, err := r.list(ctx, o.Name)
	if err != nil {
		return b, 0, err
	}
	if b, err = r.statusOf(ctx, all, o.Name, o.Partition); err != nil {
		return b, 0, err
	}
	if version = choose(b); version == 0 {
		return b, 0, none(o.Name)
	}
	return b, version, nil
}

// activate activates another version, or replaces the rows of one partition in the active one.
func (r *Rebuilds) activate(ctx context.Context, o Order, s ports.ProjectionSwitch) error {
	if o.Partition == 0 {
		return r.config.Versions.SwitchProjection(ctx, s)
	}
	all, err := r.config.Register.NamedProjections(ctx, o.Name)
	if err != nil {
		return err
	}
	for _, p := range all {
		if p.Version != s.To {
			continue
		}
		// The active version may have changed since the building one was started.
		if i := slices.IndexFunc(all, func(from projection.Projection) bool { return from.Version == s.From }); i < 0 || !projection.SameCode(all[i], p) {
			return projection.OtherCode(o.Name, p.Version)
		}
		s.Partitions = []event.PartitionID{o.Partition}
		tables, _ := r.tables(p)
		_, err := r.config.Versions.SwitchPartition(ctx, ports.PartitionSwitch{ProjectionSwitch: s, Partition: o.Partition, Tables: tables})
		return err
	}
	return projection.Changed()
}

// addPartitions adds the statuses of single partitions, and the snapshots.
func (r *Rebuilds) addPartitions(ctx context.Context, all []projection.Projection, out *Rebuild) error {
	var scopes []event.PartitionID
	for _, p := range all {
		if p.Name == out.Projection && p.Scope != 0 && p.Role.IsLive() && !slices.Contains(scopes, p.Scope) {
			scopes = append(scopes, p.Scope)
		}
	}
	slices.Sort(scopes)
	for _, scope := range scopes {
		part, err := r.statusOf(ctx, all, out.Projection, scope)
		if err != nil {
			return err
		}
		part.Dropping = nil
		out.Partitions = append(out.Partitions, part)
	}
	return r.addSnapshots(ctx, all, out)
}

// list returns all versions of all projections. Fault projection.not_found when the named one
// does not exist.
func (r *Rebuilds) list(ctx context.Context, name string) ([]projection.Projection, error) {
	all, err := r.config.Register.ListProjections(ctx)
	if err != nil || r.declared(name) != nil {
		return all, err
	}
	if !slices.ContainsFunc(all, func(p projection.Projection) bool { return p.Name == name && len(p.Definition) > 0 && p.Role.IsLive() }) {
		_, short, _ := projection.SplitName(name)
		return nil, projection.NotFound(short)
	}
	return all, nil
}

// builder is the code that builds a version.
type builder struct {
	module.Projection
	handler        ports.ProjectionHandler // nil: another release has it
	readPartitions []event.PartitionID     // nil: all
}

func (b builder) reads(id event.PartitionID) bool {
	return b.readPartitions == nil || slices.Contains(b.readPartitions, id)
}

// builderOf finds the code that builds a version: its definition, or the module's handler if the
// version was built by this version of the handler.
func (r *Rebuilds) builderOf(ctx context.Context, p projection.Projection) (b builder, err error) {
	if b.readPartitions, err = r.partitions(ctx, p); err != nil {
		return b, err
	}
	if len(p.Definition) > 0 {
		b.Projection, b.handler, _, err = r.custom.Prepare(p)
	} else if d := r.declared(p.Name); d != nil {
		if b.Projection = *d; p.Code == d.Version {
			b.handler = r.handlers[p.Name]
		}
	}
	if b.handler != nil {
		b.handler = panicGuard{b.handler, p.Name, r.config.Logger} // like the runner's
	}
	return b, err
}

// findVersion returns a version by its number. Fault projection.changed.
func (r *Rebuilds) findVersion(ctx context.Context, name string, version int) (projection.Projection, error) {
	all, err := r.config.Register.NamedProjections(ctx, name)
	if err != nil {
		return projection.Projection{}, err
	}
	if i := slices.IndexFunc(all, func(p projection.Projection) bool { return p.Version == version }); i >= 0 {
		return all[i], nil
	}
	return projection.Projection{}, projection.Changed()
}

// maySwitch reports whether this node may switch to a self-switching version: it has the handler
// of the version, and ManualSwitch does not leave the switch to operators.
func (r *Rebuilds) maySwitch(p projection.Projection) bool {
	if len(p.Definition) > 0 {
		return true
	}
	d := r.declared(p.Name)
	return d != nil && p.Code == d.Version && (!r.config.ManualSwitch || p.ChangedBy != builtIn(*d).ChangedBy)
}

// tables lists the tables that hold a version's rows; known is false for a projection that only
// another release declares.
func (r *Rebuilds) tables(p projection.Projection) (tables []ports.ProjectionTable, known bool) {
	if len(p.Definition) > 0 {
		return []ports.ProjectionTable{ports.ProjectionRowTable}, true
	}
	tables, known = r.config.Tables[p.Name]
	return tables, known
}
