// Package sharing divides resources, such as the partitions of a projection, among the
// nodes of an installation, so that one node at a time does the work of each.
//
// A [Member] is one node that shares the work. It sends heartbeats, computes from the living
// nodes which resources it should hold (rendezvous hashing, [ports.Preferred]), and
// takes, renews and releases the leases. The projector, the publisher and the webhook
// dispatcher each own one and call Renew at their own interval.
//
// A Member starts no goroutine and does none of the work. It does not protect the work
// either: a node that was paused past its lease believes that it still holds it, so
// transactions check the lease's term ([ports.Lease]).
package sharing

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// retryRemote is the pause before a node asks again for a resource that another node holds.
// Without it each new event would cause a query while a lease changes its holder.
const retryRemote = 100 * time.Millisecond

// leaveTimeout bounds Leave. What is not released by then expires.
const leaveTimeout = 2 * time.Second

// Config is what a Member needs; all of it is required.
type Config struct {
	Leases ports.Leases
	Work   string           // whose nodes share the resources, see [ports.Leases].Beat
	Holder string           // this node's name, unique among the nodes
	TTL    time.Duration    // of a lease and of a heartbeat
	Now    func() time.Time // decides locally whether a lease has ended; the store goes by its own clock
	Logger *slog.Logger
}

// What happened to a lease.
const (
	Taken    = "taken"    // from no node or from another one
	Released = "released" // for the node that should hold it
	Lost     = "lost"     // another node has it
)

// Change is a lease that was taken, released or lost.
type Change struct {
	Resource ports.LeaseResource
	Kind     string
}

// lease is a held lease as this node remembers it.
type lease struct {
	ports.Lease
	until time.Time // by Config.Now, counted from before the store was asked: never later than the store's
	used  time.Time
}

// Member is one node among those that share resources. Its methods may be called
// concurrently, Renew and Leave by one goroutine at a time.
type Member struct {
	config Config

	mu     sync.Mutex
	nodes  []string
	held   map[ports.LeaseResource]lease
	remote map[ports.LeaseResource]time.Time // resources that another node held, and when that was seen
}

// New makes a Member, which holds nothing until Renew or Acquire is called.
func New(c Config) *Member {
	return &Member{config: c, held: map[ports.LeaseResource]lease{}, remote: map[ports.LeaseResource]time.Time{}}
}

// Renew sends a heartbeat, releases what another node should have, and takes or renews
// these: wanted resources that this node should hold, those in use, and those that were used
// during the last TTL. It does not release a lease in use, so that no work is done twice when
// the holder changes. A held lease that is neither wanted nor used is dropped when it ends.
//
// On an error the held leases stay held until they end; the changes up to then are returned.
func (m *Member) Renew(ctx context.Context, wanted, inUse []ports.LeaseResource) ([]Change, error) {
	nodes, err := m.config.Leases.Beat(ctx, m.config.Work, m.config.Holder, m.config.TTL)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	if len(nodes) != len(m.nodes) {
		m.config.Logger.InfoContext(ctx, "number of nodes that share work changed", "node", m.config.Holder, "alive", len(nodes))
	}
	m.nodes = nodes
	m.mu.Unlock()
	renew, release := m.plan(wanted, inUse)
	changes, err := m.release(ctx, release)
	if len(renew) > 0 {
		taken, failed := m.Acquire(ctx, renew)
		changes = append(changes, taken...)
		if err == nil {
			err = failed
		}
	}
	return changes, err
}

// plan decides which leases to take or renew and which to release, and forgets leases
// that have ended unused.
func (m *Member) plan(wanted, inUse []ports.LeaseResource) (renew, release []ports.LeaseResource) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := make(map[ports.LeaseResource]bool, len(wanted)+len(inUse))
	for _, r := range inUse {
		keep[r] = true
	}
	for _, r := range wanted {
		if !keep[r] && m.isPreferred(r) {
			keep[r] = true
		}
	}
	now := m.config.Now()
	for r, l := range m.held {
		switch {
		case keep[r]:
		case !m.isPreferred(r):
			release = append(release, r)
		case now.Sub(l.used).Abs() < m.config.TTL:
			keep[r] = true
		case !m.isValid(l, now):
			delete(m.held, r)
		}
	}
	return slices.Collect(maps.Keys(keep)), slices.SortedFunc(slices.Values(release), compare)
}

// compare orders resources, so that nodes ask for them in one order.
func compare(a, b ports.LeaseResource) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Partition, b.Partition))
}

func (m *Member) release(ctx context.Context, resources []ports.LeaseResource) ([]Change, error) {
	if len(resources) == 0 {
		return nil, nil
	}
	if err := m.config.Leases.Release(ctx, m.config.Holder, resources); err != nil {
		return nil, err
	}
	changes := make([]Change, len(resources))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, r := range resources {
		delete(m.held, r)
		changes[i] = Change{r, Released}
	}
	return changes, nil
}

// Acquire takes or renews leases, and drops those that another node holds now.
func (m *Member) Acquire(ctx context.Context, resources []ports.LeaseResource) ([]Change, error) {
	resources = slices.SortedFunc(slices.Values(resources), compare)
	asked := m.config.Now()
	leases, err := m.config.Leases.Hold(ctx, m.config.Holder, m.config.TTL, resources)
	if err != nil {
		return nil, err
	}
	acquired := make(map[ports.LeaseResource]ports.Lease, len(leases))
	for _, l := range leases {
		acquired[l.LeaseResource] = l
	}
	var changes []Change
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range resources {
		before, wasHeld := m.held[r]
		l, isHeld := acquired[r]
		switch {
		case isHeld:
			delete(m.remote, r)
			if before.Term != l.Term { // taken, or lost and taken again in between
				changes = append(changes, Change{r, Taken})
				before.used = asked
			}
			m.held[r] = lease{Lease: l, until: asked.Add(m.config.TTL), used: before.used}
		default:
			m.remote[r] = asked
			if wasHeld {
				changes = append(changes, Change{r, Lost})
				delete(m.held, r)
			}
		}
	}
	return changes, nil
}

// IsPreferred reports whether this node should hold a resource: whether it is the preferred one
// of the living nodes. It is false before the first heartbeat.
func (m *Member) IsPreferred(r ports.LeaseResource) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isPreferred(r)
}

func (m *Member) isPreferred(r ports.LeaseResource) bool {
	return ports.Preferred(m.nodes, r) == m.config.Holder
}

// Nodes returns how many nodes share the work, this one included, as of the last heartbeat.
func (m *Member) Nodes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.nodes)
}

// Lease returns a held lease and when it ends by Config.Now; it may have ended already.
func (m *Member) Lease(r ports.LeaseResource) (l ports.Lease, until time.Time, isHeld bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	h, isHeld := m.held[r]
	return h.Lease, h.until, isHeld
}

// Use reports whether this node holds a valid lease of a resource, and makes Renew keep that
// lease for another TTL.
func (m *Member) Use(r ports.LeaseResource) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.config.Now()
	l, isHeld := m.held[r]
	if !isHeld || !m.isValid(l, now) {
		return false
	}
	l.used = now
	m.held[r] = l
	return true
}

// RetryIn returns how long to wait before Acquire of a resource: zero, unless another node held
// it within the last retryRemote.
func (m *Member) RetryIn(r ports.LeaseResource) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen, isRemote := m.remote[r]; isRemote && m.config.Now().Sub(seen).Abs() < retryRemote {
		return retryRemote
	}
	return 0
}

// isValid reports whether a lease has not ended. A clock that was set back since it was
// taken makes the lease invalid instead of longer.
func (m *Member) isValid(l lease, now time.Time) bool {
	rest := l.until.Sub(now)
	return rest > 0 && rest <= m.config.TTL
}

// Forget drops a lease after a transaction failed the check of its term, unless it has been
// taken again since then.
func (m *Member) Forget(r ports.LeaseResource, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.held[r].Term == term {
		delete(m.held, r)
	}
}

// Leave releases everything and ends the heartbeats, so that other nodes take over at
// once instead of when the leases expire. It works after ctx has ended, for
// leaveTimeout at most. A failure is logged; the other nodes then wait until the leases expire.
func (m *Member) Leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	m.mu.Lock()
	all := slices.SortedFunc(maps.Keys(m.held), compare)
	clear(m.held)
	m.mu.Unlock()
	err := m.config.Leases.Release(ctx, m.config.Holder, all)
	if failed := m.config.Leases.Leave(ctx, m.config.Work, m.config.Holder); err == nil {
		err = failed
	}
	if err != nil {
		m.config.Logger.WarnContext(ctx, "leases could not be released; other nodes take over when they expire", "node", m.config.Holder, "code", fault.CodeOf(err))
	}
}
