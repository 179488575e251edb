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

// Heads watches the head of every partition.
type Heads interface {
	// Heads returns the known heads and a channel that is closed when one of them grows.
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
	// LastRead is when the log was last read.
	LastRead() time.Time
}

// Config configures a Runner.
type Config struct {
	Store    ports.Projections
	Log      ports.LogPositions
	Register ports.ProjectionRegister
	Versions ports.ProjectionVersions
	Leases   ports.Leases      // nil: this node works alone and without leases
	Custom   CustomProjections // nil: only projections of modules run
	Heads    Heads
	Node     string // identifies this process among the nodes
	Logger   *slog.Logger
	Clock    ports.Clock
	Observer Observer // nil: nothing is observed

	Limits
}

// Limits are settings of a Runner. All must be positive.
type Limits struct {
	Batch   int           // events of one transaction unless a projection's settings say
	Bytes   int           // of the payloads of one transaction, unless a single event has more
	Workers int           // partitions that are worked at the same time
	Refresh time.Duration // how often the register is read
	TTL     time.Duration // of leases and of a node's heartbeat
	Renew   time.Duration // how often they are renewed
	Stall   time.Duration // how long a due attempt may be missing before the health check fails
}

// Observer receives the measurements of projections. Only the node that works a partition
// reports it.
type Observer interface {
	// ProjectionLag reports a partition's lag in events, and in seconds since the oldest of
	// them was recorded.
	ProjectionLag(projection string, p event.PartitionID, events uint64, seconds float64)
	// ProjectionLeft reports that this node no longer measures the partition, for example because
	// another node now works it.
	ProjectionLeft(projection string, p event.PartitionID)
	// ProjectionAdvanced reports the events that a transaction advanced over.
	ProjectionAdvanced(projection string, events int)
	// ProjectionFailed reports an attempt that was rolled back.
	ProjectionFailed(projection string, p event.PartitionID)
	// ProjectionDeadLetter reports an event that could not be processed.
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

// Runner advances projections. Only its loop touches the fields of loop; mu guards all fields
// below it.
type Runner struct {
	config   Config
	declared []declaredProjection
	member   *sharing.Member // nil: this node works alone
	wake     chan struct{}
	working  sync.WaitGroup
	fenced   atomic.Bool // an attempt was; the loop reads the register at once, in which the version may have been dropped

	loop struct {
		refreshed  time.Time
		renewed    time.Time
		unready    map[string]int64          // revisions of custom projections that cannot be built, by lease name
		customLags map[event.PartitionID]lag // of custom projections, as last reported
	}

	mu        sync.Mutex
	running   []*running // replaced as a whole, by the loop
	queue     []*unit
	busy      int
	blocked   int // busy workers that wait for a lock of another session
	startedAt time.Time
	lastRound time.Time // when the loop last ran
}

// declaredProjection is a projection of a module with its handler.
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
	readPartitions    map[event.PartitionID]bool // that it reads, replaced as a whole; nil: all
	knownPartitions   int                        // how many the log had when readPartitions was made
	units             map[event.PartitionID]*unit
}

// New binds declared projections to their handlers. It refuses limits that are not positive.
// Fault projection.unbound for a projection without a handler.
func New(c Config, projections []module.Projection, handlers map[string]ports.ProjectionHandler) (*Runner, error) {
	if err := fault.RequirePositive("projections.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observer == nil {
		c.Observer = noObserver{}
	}
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
		r.declared = append(r.declared, declaredProjection{p, panicGuard{h, p.Name, c.Logger}})
	}
	for i := range r.declared {
		r.running = append(r.running, newRunning(&r.declared[i], builtIn(r.declared[i].Projection)))
	}
	return r, nil
}

// builtIn is the first version of a projection of a module.
func builtIn(p module.Projection) projection.Projection {
	return projection.Projection{
		Name: p.Name, Version: p.Version, Role: projection.Active, Code: p.Version, Status: projection.Running, Settings: projection.DefaultSettings(), ChangedBy: "system",
	}
}

// panicGuard turns a panic of a handler into a failure of its partition, so that a bug in one read
// model stops neither the process nor other projections.
type panicGuard struct {
	ports.ProjectionHandler
	projection string
	logger     *slog.Logger
}

// Apply implements ports.ProjectionHandler. Fault projection.panicked. It logs only the place
// of the panic, whose value may quote an event.
func (g panicGuard) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) (err error) {
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

// Run works until ctx ends; then it waits for the workers and releases the leases.
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
		case <-changed:
		case <-tick.C:
		case <-r.wake:
		case <-due.C:
		}
		if ctx.Err() != nil {
			r.working.Wait()
			if r.member != nil {
				r.member.Leave(ctx)
			}
			return
		}
		// One round is for all signals that have come.
		ports.TryReceive(tick.C)
		ports.TryReceive(r.wake)
	}
}

// Wake runs the loop at once.
func (r *Runner) Wake() {
	select {
	case r.wake <- struct{}{}:
	default: // a wake is pending
	}
}

// round does the due work of the loop, starts workers, and returns the time until the next
// work is due.
func (r *Runner) round(ctx context.Context, heads map[event.PartitionID]ports.Head) time.Duration {
	now := r.config.Clock.Now()
	r.mu.Lock()
	r.lastRound = now
	if r.startedAt.IsZero() {
		r.startedAt = now
	}
	r.mu.Unlock()
	tick := false
	if r.fenced.Swap(false) || r.loop.refreshed.IsZero() || absDiff(now, r.loop.refreshed) >= r.config.Refresh {
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
	r.startWorkers(ctx, heads)
	if tick {
		r.observe(ctx, heads)
	}
	return next
}

// absDiff is the distance of two times: it lets no work wait after a clock was set back.
func absDiff(a, b time.Time) time.Duration { return a.Sub(b).Abs() }

// Active is the version of the projection that readers see.
func (r *Runner) Active(ctx context.Context, name string) (int, error) {
	for _, d := range r.declared {
		if d.Name != name {
			continue
		}
		version, err := r.config.Versions.ActiveProjection(ctx, name)
		if err != nil && fault.KindOf(err) == fault.NotFound {
			return d.Version, nil // before any node has run
		}
		return version, err
	}
	return 0, projection.NotFound(name)
}

// Position is the sequence that a version has reached, on any node, and the generation of its
// rows.
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
