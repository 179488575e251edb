package keyrotation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// recordInterval is how long a change of an epoch waits for its event at most. Rotations run on
// any node and on the command line, which has no log to append to.
const recordInterval = 2 * time.Second

// recordedState is a state of a KEK and the type of the event that records it.
type recordedState struct {
	state     ports.KEKState
	eventType string
}

// states are those of a KEK, in order.
var states = []recordedState{
	{ports.KEKPending, shredding.EpochStream + ".created"},
	{ports.KEKActive, shredding.EpochStream + ".began"},
	{ports.KEKDraining, shredding.EpochStream + ".drained"},
	{ports.KEKDeleting, shredding.EpochStream + ".ended"},
	{ports.KEKDeleted, shredding.EpochStream + ".deleted"},
}

// revisionOf numbers the states of an epoch from 1 in the order in which it reaches them.
func revisionOf(s ports.KEKState) int {
	for i, known := range states {
		if known.state == s {
			return i + 1
		}
	}
	return 0
}

// Recorder records the states of epochs in the administrative logs of their tenants. A state
// before the recorded one is never recorded: no epoch goes back, so the row was changed by hand,
// and verification finds it.
type Recorder struct {
	service *Service
	journal ports.AdministrativeLog
	known   map[epochID]ports.KEKState // recorded, or not to be recorded
}

type epochID struct {
	tenantID string
	epoch    uint32
}

// NewRecorder makes a Recorder of the epochs that a Service rotates. One goroutine uses it.
func NewRecorder(s *Service, journal ports.AdministrativeLog) *Recorder {
	return &Recorder{service: s, journal: journal, known: map[epochID]ports.KEKState{}}
}

// Run records until ctx ends. It passes failures to onError and tries again in the next interval.
func (r *Recorder) Run(ctx context.Context, onError func(error)) {
	tick := time.NewTicker(recordInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if err := r.Record(ctx); err != nil && ctx.Err() == nil {
			onError(err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// Record records what has changed since the last call. Several nodes may run it: the log settles
// who records a change.
func (r *Recorder) Record(ctx context.Context) error {
	keks, err := r.service.c.Keys.KEKs(ctx, "")
	if err != nil {
		return err
	}
	var failures []error // of one tenant, which are no reason to leave out others
	adopted := map[string]bool{}
	for _, tenantID := range tenantsOf(keks) {
		if err := r.adopt(ctx, tenantID, keks); err != nil {
			failures = append(failures, err)
			continue
		}
		adopted[tenantID] = true
	}
	for _, k := range keks {
		id := epochID{k.TenantID, k.Epoch}
		if !adopted[k.TenantID] || r.known[id] == k.State {
			continue
		}
		if err := r.record(ctx, k); err != nil {
			failures = append(failures, err)
			continue
		}
		r.known[id] = k.State
	}
	return errors.Join(failures...)
}

// adopt records the epochs that an earlier release made.
func (r *Recorder) adopt(ctx context.Context, tenantID string, keks []ports.KEK) error {
	_, err := r.journal.AdoptRevisions(ctx, tenantID, "key_epochs", func(ctx context.Context) (out []ports.Revision, err error) {
		for _, k := range keks {
			if k.TenantID != tenantID {
				continue
			}
			revision, err := r.revision(ctx, k)
			if err != nil {
				return nil, err
			}
			out = append(out, revision)
		}
		return out, nil
	})
	return err
}

func (r *Recorder) record(ctx context.Context, k ports.KEK) error {
	revision, err := r.revision(ctx, k)
	if err != nil {
		return err
	}
	recorded, err := r.journal.Revisions(ctx, k.TenantID, revision.Stream)
	if err != nil {
		return err
	}
	later := slices.ContainsFunc(recorded, func(e event.Recorded) bool {
		return slices.ContainsFunc(states[revision.Number:], func(s recordedState) bool { return e.Type == s.eventType })
	})
	if later {
		r.service.c.Logger.LogAttrs(ctx, slog.LevelError, "an epoch of keys went back; run `backbone verify`",
			slog.String("tenant", k.TenantID), slog.Uint64("epoch", uint64(k.Epoch)), slog.String("state", string(k.State)))
		return nil
	}
	if k.State == ports.KEKDeleting || k.State == ports.KEKDeleted {
		if err := r.service.requireUnused(ctx, k); err != nil {
			return err
		}
	}
	return r.journal.RecordRevision(ctx, k.TenantID, event.Actor{}, revision)
}

// revision returns the event of an epoch's present state.
func (r *Recorder) revision(ctx context.Context, k ports.KEK) (ports.Revision, error) {
	n := revisionOf(k.State)
	if n == 0 {
		return ports.Revision{}, fault.New(fault.Internal, "keys.state_unknown", "epoch %d has a state that no release knows; run `backbone verify`", k.Epoch)
	}
	data := shredding.EpochRecord{Epoch: k.Epoch, Revision: n, State: string(k.State), KeyID: k.KeyID}
	if k.State != ports.KEKPending {
		covers, err := r.service.readCoverage(ctx, k.TenantID, k.Epoch)
		if err != nil {
			return ports.Revision{}, err
		}
		data.Covers = &covers
	}
	stream := event.StreamID{Type: shredding.EpochStream, ID: strconv.FormatUint(uint64(k.Epoch), 10)}
	return ports.Revision{Stream: stream, Number: n, Type: states[n-1].eventType, Data: data}, nil
}

// requireUnused requires that no key is wrapped with an epoch that ends. A row that was set to
// deleting by hand would otherwise have its key deleted, and every person's data with it.
func (s *Service) requireUnused(ctx context.Context, k ports.KEK) error {
	left, err := s.c.Keys.CountWrappedWith(ctx, k.TenantID, k.Epoch)
	if err == nil && left > 0 {
		err = fault.New(fault.FailedPrecondition, "keys.epoch_in_use", "%d keys are wrapped with epoch %d, which is to be deleted; run `backbone verify`, and find out who ended it", left, k.Epoch)
	}
	return err
}
