// Package globallog keeps the global log: [Sequencer] takes the events of all partitions into it, in the order in
// which it finds them. Appends do not wait for it.
//
// One node works at a time, settled by a lease. The lease saves work and does not protect the global log: the
// store accepts only what continues it, so a node that was paused past its lease changes nothing.
package globallog

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
)

// Heads returns the heads of all partitions and a channel that is closed when any has grown.
type Heads interface {
	Heads() (map[event.PartitionID]ports.Head, <-chan struct{})
}

// Log is the global log.
type Log interface {
	ports.GlobalLogWriter
	GlobalSize(ctx context.Context) (uint64, error)
}

// Observer is notified of the global log's growth.
type Observer interface {
	// GlobalLogExtended reports events that this node has taken into the global log.
	GlobalLogExtended(events int)
	// GlobalLogWindow reports how many events are not in the global log, and for how long the first of them
	// has been known to this node.
	GlobalLogWindow(events uint64, age time.Duration)
}

// Config is what a Sequencer needs; all but Grown is required.
type Config struct {
	Log      Log
	Leases   ports.Leases
	Heads    Heads
	Node     string // unique among the nodes
	Logger   *slog.Logger
	Observer Observer
	Grown    func(size uint64) // is called with the size of the global log while this node extends it; nil: it is not
}

const (
	leaseName = "global-log"
	leaseTTL  = 10 * time.Second
	renewal   = leaseTTL / 3
	// interval is the shortest time between two extensions. A longer one makes fewer and longer ranges.
	interval = 200 * time.Millisecond
	// retry is the pause after a failure.
	retry = time.Second
	// maxPartitions and maxEvents bound one extension, and so the time of its transaction.
	maxPartitions = 256
	maxEvents     = 8192
	// leaving bounds what is done at the end: the release of the lease, the last export.
	leaving = 2 * time.Second
)

// Sequencer extends the global log while its node holds the lease.
type Sequencer struct {
	Config
	holder string

	renewAt   time.Time
	heldUntil time.Time                            // by this process's own monotonic clock
	ends      map[event.PartitionID]event.Sequence // of the global log; nil: to be read
	last      event.PartitionID                    // the last partition of the newest extension
	size      uint64                               // of the global log, when it was last read
	marked    uint64                               // events in all partitions at markedAt, not all of them in the global log
	markedAt  time.Time
}

// New makes a Sequencer. It does nothing until it runs.
func New(c Config) *Sequencer {
	return &Sequencer{Config: c, holder: c.Node + "/" + rand.Text()[:8]} // a restarted process is another holder
}

// Run extends the global log until ctx ends; then it releases its lease.
func (s *Sequencer) Run(ctx context.Context) {
	defer s.release(ctx)
	for ports.Sleep(ctx, s.turn(ctx)) == nil {
	}
}

// turn renews the lease if that is due, extends the global log if this node holds the lease, and waits until
// there is more. It returns how long to rest before the next turn.
func (s *Sequencer) turn(ctx context.Context) (rest time.Duration) {
	heads, changed := s.Heads.Heads()
	if !time.Now().Before(s.renewAt) {
		s.renewAt = time.Now().Add(renewal)
		s.renew(ctx)
		s.observe(ctx, heads)
	}
	if !time.Now().Before(s.heldUntil) {
		return time.Until(s.renewAt)
	}
	isMore, err := s.extend(ctx, heads)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "the global log was not extended; it will be tried again", "code", fault.CodeOf(err))
		}
		return retry
	case isMore:
		return 0
	}
	renew := time.NewTimer(time.Until(s.renewAt))
	defer renew.Stop()
	select {
	case <-ctx.Done():
	case <-renew.C:
	case <-changed:
	}
	return interval
}

// renew takes or renews the lease.
func (s *Sequencer) renew(ctx context.Context) {
	asked := time.Now()
	leases, err := s.Leases.Hold(ctx, s.holder, leaseTTL, resource())
	switch {
	case err != nil:
		if ctx.Err() == nil {
			s.Logger.WarnContext(ctx, "the lease on the global log could not be renewed; it will be tried again", "code", fault.CodeOf(err))
		}
	case len(leases) == 0:
		s.heldUntil = time.Time{}
	default:
		if asked.After(s.heldUntil) {
			s.ends = nil // another node may have extended it
		}
		s.heldUntil = asked.Add(leaseTTL)
	}
}

func resource() []ports.LeaseResource { return []ports.LeaseResource{{Name: leaseName}} }

// extend takes events into the global log once. isMore says that more wait than one extension takes.
func (s *Sequencer) extend(ctx context.Context, heads map[event.PartitionID]ports.Head) (isMore bool, err error) {
	if s.ends == nil {
		if s.ends, err = s.Log.GlobalEnds(ctx, globallog.End); err != nil {
			return false, err
		}
		if err := s.reportSize(ctx); err != nil {
			return false, err
		}
	}
	var grown []event.PartitionID
	for p, h := range heads {
		if h.Sequence > s.ends[p] {
			grown = append(grown, p)
		}
	}
	if len(grown) == 0 {
		return false, nil
	}
	slices.Sort(grown)
	// Partitions take turns if there are too many for one extension.
	next, _ := slices.BinarySearch(grown, s.last+1)
	grown = slices.Concat(grown[next:], grown[:next])
	grown, isMore = grown[:min(len(grown), maxPartitions)], len(grown) > maxPartitions
	ranges, err := s.Log.ExtendGlobalLog(ctx, grown, maxEvents/len(grown))
	if err != nil {
		s.ends = nil // the answer may be lost, or another node extended it
		return false, err
	}
	events := 0
	for _, r := range ranges {
		s.ends[r.Partition] = r.NextSequence() - 1
		events += int(r.Count)
		isMore = isMore || s.ends[r.Partition] < heads[r.Partition].Sequence
	}
	s.last = grown[len(grown)-1]
	s.Observer.GlobalLogExtended(events)
	if s.Grown != nil && len(ranges) > 0 {
		s.Grown(uint64(ranges[len(ranges)-1].End()))
	}
	return isMore, nil
}

// reportSize reports what another node may have taken into the global log.
func (s *Sequencer) reportSize(ctx context.Context) error {
	if s.Grown == nil {
		return nil
	}
	size, err := s.Log.GlobalSize(ctx)
	if err == nil && size > 0 {
		s.Grown(size)
	}
	return err
}

// observe reports what is not in the global log. Every node does, so that it is seen when none extends it.
func (s *Sequencer) observe(ctx context.Context, heads map[event.PartitionID]ports.Head) {
	var total uint64
	for _, h := range heads {
		total += uint64(h.Sequence)
	}
	if total > s.size {
		size, err := s.Log.GlobalSize(ctx)
		if err != nil {
			return // extend or renew says so
		}
		s.size = size
	}
	if s.size >= s.marked {
		s.marked, s.markedAt = total, time.Now()
	}
	if total <= s.size {
		s.Observer.GlobalLogWindow(0, 0)
		return
	}
	s.Observer.GlobalLogWindow(total-s.size, time.Since(s.markedAt))
}

func (s *Sequencer) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaving)
	defer cancel()
	if err := s.Leases.Release(ctx, s.holder, resource()); err != nil {
		s.Logger.WarnContext(ctx, "the lease on the global log was not released and ends by itself", "code", fault.CodeOf(err))
	}
}
