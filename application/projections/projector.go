package projections

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/sharing"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// Heads knows how far the log is.
type Heads interface {
	// Heads gives what is known and a channel that is closed when there is more.
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
	// LastRead is when the log last answered.
	LastRead() time.Time
}

// Config is what a Runner needs.
type Config struct {
	Store    ports.Projections
	Register ports.ProjectionRegister // nil: all that is declared runs, with default settings
	Versions ports.ProjectionVersions // nil: the declared version is shown
	Leases   ports.Leases             // nil: this node works alone and without leases
	Custom   CustomProjections        // nil: only what is declared runs
	Heads    Heads
	Node     string // names this process among those that share the work
	Logger   *slog.Logger
	Clock    ports.Clock
	Observer Observer // nil: nobody watches

	Batch   int           // events of one transaction unless a projection's settings say; 0 is 500
	Bytes   int           // of the payloads of one transaction, unless one event alone has more; 0 is 16 MiB
	Workers int           // partitions that are worked at a time; 0 is 4
	Refresh time.Duration // how often operators' decisions are looked for; 0 is 1 s
	TTL     time.Duration // of leases and of a node's sign of life; 0 is 10 s
	Renew   time.Duration // how often they are renewed; 0 is 3 s
	Stall   time.Duration // without an attempt where one is due: something stopped; 0 is 30 s
}

func (c Config) withDefaults() Config {
	orElse := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	orElse(&c.Refresh, time.Second)
	orElse(&c.TTL, 10*time.Second)
	orElse(&c.Renew, 3*time.Second)
	orElse(&c.Stall, 30*time.Second)
	if c.Batch <= 0 {
		c.Batch = 500
	}
	if c.Bytes <= 0 {
		c.Bytes = 16 << 20
	}
	if c.Workers <= 0 {
		c.Workers = 4
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
	return c
}

// Observer sees how projections fare. Partitions are only reported by the node that
// works them.
type Observer interface {
	// ProjectionLag reports a partition's lag in events, and for how many seconds the oldest
	// of them has waited since it was recorded.
	ProjectionLag(projection string, p event.PartitionID, events uint64, seconds float64)
	// ProjectionLeft reports that another node works the partition from now on.
	ProjectionLeft(projection string, p event.PartitionID)
	// ProjectionAdvanced reports events that a transaction passed.
	ProjectionAdvanced(projection string, events int)
	// ProjectionFailed reports an attempt that was rolled back.
	ProjectionFailed(projection string, p event.PartitionID)
	// ProjectionDeadLetter reports an event that could not be digested.
	ProjectionDeadLetter(projection string, p event.PartitionID)
	// ProjectionLease reports a lease that was "taken", "lost", or "released".
	ProjectionLease(projection, change string)
}

type noObserver struct{}

func (noObserver) ProjectionLag(string, event.PartitionID, uint64, float64) {}
func (noObserver) ProjectionLeft(string, event.PartitionID)                 {}
func (noObserver) ProjectionAdvanced(string, int)                           {}
func (noObserver) ProjectionFailed(string, event.PartitionID)               {}
func (noObserver) ProjectionDeadLetter(string, event.PartitionID)           {}
func (noObserver) ProjectionLease(string, string)                           {}

// Runner drives projections. What its loop alone touches is loop's; the rest is
// guarded by mu.
type Runner struct {
	config   Config
	declared []declaredProjection
	member   *sharing.Member // nil: this node works alone
	wake     chan struct{}
	working  sync.WaitGroup

	loop struct {
		refreshed time.Time
		renewed   time.Time
		unready   map[string]int64          // revisions of created projections that cannot be built, by lease name
		own       map[event.PartitionID]lag // of tenants' projections, as it was reported
	}

	mu        sync.Mutex
	running   []*running // replaced as a whole, by the loop
	queue     []*unit
	busy      int
	blocked   int // of these, those that wait for a lock of somebody else
	startedAt time.Time
	lastRound time.Time // when the loop last went round
}

// declaredProjection is a projection of the code with its handler.
type declaredProjection struct {
	module.Projection
	handler ports.ProjectionHandler
}

// running is one version of a projection on this node.
type running struct {
	module.Projection // its Version is that of the read model
	handler           ports.ProjectionHandler
	registered        projection.Projection
	observedAs        atomic.Pointer[string]
	resource          string                     // of its leases
	loaded            bool                       // its checkpoints have been read
	only              map[event.PartitionID]bool // that it reads; nil: all. It is replaced as a whole
	partitions        int                        // that there were when only was made
	units             map[event.PartitionID]*unit
}

// New binds declared projections to their handlers. Fault projection.unbound for
// one without a handler.
func New(c Config, projections []module.Projection, handlers map[string]ports.ProjectionHandler) (*Runner, error) {
	c = c.withDefaults()
	r := &Runner{config: c, wake: make(chan struct{}, 1)}
	if c.Leases != nil {
		r.member = sharing.New(sharing.Config{
			Leases: c.Leases, Holder: c.Node, TTL: c.TTL, Now: c.Clock.Now, Logger: c.Logger.With("work", "projections"),
		})
	}
	for _, p := range projections {
		h := handlers[p.Name]
		if h == nil {
			return nil, fault.New(fault.Internal, "projection.unbound", "projection %s has no handler; bind one in the composition root", p.Name)
		}
		r.declared = append(r.declared, declaredProjection{p, guarded{h, p.Name, c.Logger}})
	}
	for i := range r.declared {
		r.running = append(r.running, newRunning(&r.declared[i], builtIn(r.declared[i].Projection)))
	}
	return r, nil
}

// builtIn is a declared projection before anybody decided anything about it.
func builtIn(p module.Projection) projection.Projection {
	return projection.Projection{
		Name: p.Name, Version: p.Version, Role: projection.Active, Code: p.Version, Status: projection.Running, Settings: projection.DefaultSettings(), ChangedBy: "system",
	}
}

// guarded turns a handler's panic into a failure of the partition at hand, so that
// a bug in one read model stops neither the process nor the others.
type guarded struct {
	ports.ProjectionHandler
	projection string
	logger     *slog.Logger
}

// Apply implements ports.ProjectionHandler. Fault projection.panicked; the panic's
// value may quote an event, so only the place is logged.
func (g guarded) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) (err error) {
	defer func() {
		if recover() != nil {
			g.logger.ErrorContext(ctx, "projection panicked", "projection", g.projection, "stack", string(debug.Stack()))
			err = fault.New(fault.Internal, "projection.panicked", "projection %s stopped on a bug; look for its place in the log", g.projection)
		}
	}()
	return g.ProjectionHandler.Apply(ctx, tx, b)
}

// maxTick is how late a refresh or a renewal may be.
const maxTick = 500 * time.Millisecond

// Run works until ctx ends; then it waits for the workers, gives its leases back and
// leaves.
func (r *Runner) Run(ctx context.Context) {
	tick := time.NewTicker(min(r.config.Refresh, r.config.Renew, maxTick))
	defer tick.Stop()
	due := time.NewTimer(time.Hour)
	defer due.Stop()
	for {
		heads, changed := r.config.Heads.Heads()
		next := r.round(ctx, heads)
		due.Reset(next)
		select {
		case <-ctx.Done():
			r.working.Wait()
			if r.member != nil {
				r.member.Leave(ctx)
			}
			return
		case <-changed:
		case <-tick.C:
		case <-r.wake:
		case <-due.C:
		}
	}
}

// Wake makes the loop go round at once.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // already told
	}
}

// round does what is due, starts workers, and returns how long there is nothing more
// to do unless something happens.
func (r *Runner) round(ctx context.Context, heads map[event.PartitionID]ports.Head) time.Duration {
	now := r.config.Clock.Now()
	r.mu.Lock()
	r.lastRound = now
	if r.startedAt.IsZero() {
		r.startedAt = now
	}
	r.mu.Unlock()
	tick := false
	if r.loop.refreshed.IsZero() || absDiff(now, r.loop.refreshed) >= r.config.Refresh {
		r.loop.refreshed, tick = now, true
		r.refresh(ctx)
	}
	if r.member != nil && (r.loop.renewed.IsZero() || absDiff(now, r.loop.renewed) >= r.config.Renew) {
		r.loop.renewed = now
		r.renew(ctx)
	}
	missing, next := r.queueDue(heads, now)
	if len(missing) > 0 && ctx.Err() == nil {
		changes, err := r.member.Acquire(ctx, missing)
		r.reportLeases(ctx, changes, err)
		_, next = r.queueDue(heads, r.config.Clock.Now())
	}
	r.start(ctx, heads)
	if tick {
		r.observe(ctx, heads)
	}
	return next
}

// absDiff is how far two times are from each other: a clock that is set back makes
// nothing wait.
func absDiff(a, b time.Time) time.Duration { return a.Sub(b).Abs() }

// Active is the version of the projection that readers are shown.
func (r *Runner) Active(ctx context.Context, name string) (int, error) {
	for _, d := range r.declared {
		if d.Name != name {
			continue
		}
		if r.config.Versions != nil {
			version, err := r.config.Versions.ActiveProjection(ctx, name)
			if err == nil || fault.KindOf(err) != fault.NotFound {
				return version, err
			}
		}
		return d.Version, nil // before any node has run
	}
	return 0, projection.NotFound(name)
}

// Position is how far a version of the projection has got, on whatever node, and of
// which generation its rows are.
func (r *Runner) Position(ctx context.Context, name string, version int, p event.PartitionID) (reached event.Sequence, generation uint64, err error) {
	checkpoints, err := r.config.Store.Checkpoints(ctx, name, version)
	if err != nil {
		return 0, 0, err
	}
	for _, c := range checkpoints {
		if c.Partition == p {
			return c.Sequence, c.Generation, nil
		}
	}
	return 0, 0, nil
}

// Reached is how far a version of the projection has got, on whatever node.
func (r *Runner) Reached(ctx context.Context, name string, version int, p event.PartitionID) (event.Sequence, error) {
	reached, _, err := r.Position(ctx, name, version, p)
	return reached, err
}
