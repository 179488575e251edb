package entities

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// foldPageEvents and foldPageBytes bound one read of the log.
const (
	foldPageEvents = 500
	foldPageBytes  = 8 << 20
)

// entityRead is one call of Read.
type entityRead struct {
	service   *Service
	query     Query
	key       string
	fold      entityFold
	startedAt time.Time
	known     event.Sequence // later events are not read
	head      event.Sequence
	types     []string // of the events that the caller sees; nil: all

	snapshots  []ports.EntitySnapshot // usable ones, newest first
	newestAsOf event.Sequence         // AsOf of the newest that may stay, usable here or not
	epoch      ports.SnapshotEpoch
	exhausted  bool
	// readsArchive says that archived events are folded: there is no state from which they are not needed.
	readsArchive bool
}

// isLimited reports whether the caller does not see all events. Snapshots are of all events,
// so such a read neither uses nor saves one.
func (r *entityRead) isLimited() bool { return r.types != nil }

// headBound excludes events that are committed during a read of the current state, so that
// the answer is consistent with one sequence.
func (r *entityRead) headBound() event.Sequence {
	if r.query.KnownAt == "" {
		return r.known
	}
	return 0
}

// foldProgress is an intermediate state of a fold.
type foldProgress struct {
	state    any
	base     *ports.EntitySnapshot
	after    event.Sequence // everything up to here is in the state
	version  event.Sequence
	through  event.Date
	count    int
	folded   int
	archived bool // archived events had to be folded: the next read has a snapshot instead
}

func (r *entityRead) read(ctx context.Context) (State, error) {
	if err := r.findSnapshots(ctx); err != nil {
		return State{}, err
	}
	if r.query.Consistency == Verified && len(r.snapshots) > 0 {
		if err := r.dropBackDatedSnapshots(ctx); err != nil {
			return State{}, err
		}
	}
	if r.query.Consistency != Strong {
		if p := r.takeSnapshot(ctx); p.base != nil {
			return r.buildState(p, p.after, r.query.Consistency)
		}
	}
	p, err := r.foldLog(ctx)
	if err != nil {
		return State{}, err
	}
	if now := r.service.foldOf(r.query); now.name != r.fold.name {
		// A version was registered during the fold, so events before and after were upcast to
		// different versions.
		r.fold, r.snapshots, r.newestAsOf, r.exhausted, r.readsArchive = now, nil, 0, false, false
		return r.read(ctx)
	}
	asOf, reached := r.known, Strong
	if r.exhausted {
		asOf, reached = p.after, Verified
	}
	out, err := r.buildState(p, asOf, reached)
	if err == nil {
		r.saveSnapshot(p, asOf, out.State)
	}
	return out, err
}

// findSnapshots lists the snapshots that the fold may start from: not stale, of this fold, and
// without events that the query excludes.
func (r *entityRead) findSnapshots(ctx context.Context) error {
	if r.isLimited() {
		return nil
	}
	all, epoch, err := r.service.Snapshots.List(ctx, r.query.LegalEntity, r.query.Type, r.query.ID)
	if err != nil {
		return err
	}
	r.epoch = epoch
	for _, s := range all {
		if s.Stale || s.Fold != r.fold.name {
			continue
		}
		r.newestAsOf = max(r.newestAsOf, s.AsOf)
		if s.AsOf <= r.known && (r.query.AsOf == nil || s.EffectiveThrough <= *r.query.AsOf) {
			r.snapshots = append(r.snapshots, s)
		}
	}
	return nil
}

// takeSnapshot removes the newest remaining snapshot and starts from it; without one it starts
// from an empty state.
func (r *entityRead) takeSnapshot(ctx context.Context) foldProgress {
	for len(r.snapshots) > 0 {
		s := r.snapshots[0]
		r.snapshots = r.snapshots[1:]
		state := r.fold.New(r.query.ID)
		if !isObject(s.State) || json.Unmarshal(s.State, state) != nil {
			// The cause is not logged, because it may quote the stored state.
			r.service.Logger.WarnContext(ctx, "entity snapshot cannot be decoded and is not used; the next one replaces it",
				"code", "snapshot.damaged", "entity_type", s.EntityType, "legal_entity", r.query.LegalEntity.Code, "as_of_sequence", uint64(s.AsOf))
			r.newestAsOf = 0 // so that this read saves a new one
			continue
		}
		return foldProgress{state: state, base: &s, after: s.AsOf, version: s.Version, through: s.EffectiveThrough, count: s.EventCount}
	}
	return foldProgress{state: r.fold.New(r.query.ID)}
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' }

// dropBackDatedSnapshots drops snapshots that a later event is back-dated before, with one
// query per snapshot.
func (r *entityRead) dropBackDatedSnapshots(ctx context.Context) error {
	for len(r.snapshots) > 0 {
		s := r.snapshots[0]
		if s.AsOf >= r.known {
			return nil
		}
		before := s.EffectiveThrough.AddDays(-1)
		found, err := r.service.Log.Events(ctx, ports.EventQuery{
			Partition: r.query.LegalEntity.Partition, Key: r.key, After: s.AsOf, Until: r.known, EffectiveTo: &before, Limit: 1, WithoutData: true,
		})
		if err != nil || len(found) == 0 {
			return err
		}
		r.markSnapshotsStale(ctx, &found[0])
	}
	return nil
}

// markSnapshotsStale handles a back-dated event: it drops the snapshots that lack the event
// and include later effective dates, and marks them as stale in the store.
func (r *entityRead) markSnapshotsStale(ctx context.Context, e *event.Recorded) {
	kept := r.snapshots[:0:0]
	r.newestAsOf = 0
	for _, s := range r.snapshots {
		if s.AsOf >= e.Sequence || s.EffectiveThrough <= e.EffectiveDate {
			kept = append(kept, s)
			r.newestAsOf = max(r.newestAsOf, s.AsOf)
		}
	}
	r.snapshots = kept
	if err := r.service.Snapshots.MarkStale(ctx, r.query.LegalEntity.Partition, r.query.Type, r.query.ID, e); err != nil {
		r.service.Logger.WarnContext(ctx, "stale entity snapshots could not be marked; the next read tries again",
			"code", fault.CodeOf(err), "entity_type", r.query.Type, "legal_entity", r.query.LegalEntity.Code)
	}
}

// foldLog folds the events after the newest usable snapshot. A back-dated event restarts the
// fold from an older snapshot. The time limit ends the fold early, but the first page is
// always folded, so that every read makes progress.
func (r *entityRead) foldLog(ctx context.Context) (foldProgress, error) {
	p := r.takeSnapshot(ctx)
	first := true
	for p.after < min(r.known, r.head) {
		scan, inTime, err := r.readPage(ctx, p.after, first)
		page := scan.Events
		if err != nil {
			return p, err
		}
		if !inTime {
			r.exhausted = true
			return p, nil
		}
		if !r.readsArchive && slices.ContainsFunc(page, func(e event.Recorded) bool { return e.Payload == nil }) {
			next, found, err := r.takeArchived(ctx, p)
			if err != nil {
				return p, err
			}
			if r.readsArchive = !found; found {
				p = next
			}
			first = true
			continue
		}
		first = false
		for i := range page {
			e := &page[i]
			if p.base != nil && e.EffectiveDate < p.base.EffectiveThrough {
				r.markSnapshotsStale(ctx, e)
				folded := p.folded
				p, first = r.takeSnapshot(ctx), true
				p.folded = folded
				break
			}
			if err := r.apply(&p, e); err != nil {
				return p, err
			}
		}
		if !first && len(page) < foldPageEvents && !scan.Stopped {
			break
		}
	}
	return p, nil
}

// readPage reads the next page; inTime is false if the time limit is reached.
func (r *entityRead) readPage(ctx context.Context, after event.Sequence, first bool) (page ports.EventScan, inTime bool, err error) {
	readCtx := ctx
	if !first {
		left := r.service.FoldTimeout - r.service.Elapsed(r.startedAt)
		if left <= 0 {
			return page, false, nil
		}
		var cancel context.CancelFunc
		readCtx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	page, err = r.service.Log.SearchEvents(readCtx, ports.EventQuery{
		Partition: r.query.LegalEntity.Partition, Key: r.key, Types: r.types, After: after, Until: r.known, EffectiveTo: r.query.AsOf, Limit: foldPageEvents, Bytes: foldPageBytes,
		OnlineOnly: !r.readsArchive,
	}, 0)
	if err != nil && readCtx.Err() != nil && ctx.Err() == nil {
		return page, false, nil
	}
	return page, true, err
}

func (r *entityRead) apply(p *foldProgress, e *event.Recorded) error {
	var body struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(e.Payload, &body); err != nil {
		return fmt.Errorf("payload of event %s: %w", e.ID, err)
	}
	data, err := shredding.CopySealed(body.Data, shredding.Location{
		Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Pointer: "/data",
	})
	if err != nil {
		return err
	}
	if err := r.fold.Apply(p.state, *e, data); err != nil {
		return fmt.Errorf("fold event %s into the %s: %w", e.ID, r.query.Type, err)
	}
	p.after, p.version, p.through = e.Sequence, e.Sequence, max(p.through, e.EffectiveDate)
	if p.count == 0 {
		p.through = e.EffectiveDate // days before 1970 are negative
	}
	p.count++
	p.folded++
	p.archived = p.archived || e.Archived
	return nil
}

func (r *entityRead) buildState(p foldProgress, asOf event.Sequence, reached Consistency) (State, error) {
	state, err := json.Marshal(p.state)
	if err != nil {
		return State{}, fmt.Errorf("state of the %s: %w", r.query.Type, err)
	}
	return State{
		State: state, Version: p.version, AsOf: asOf, EventCount: p.count, Folded: p.folded, Reached: reached, Snapshot: p.base,
	}, nil
}

// saveSnapshot saves a snapshot in the background if enough events were folded since the
// newest one, or archived ones had to be. A read with as_of is not saved, because its state lacks events.
func (r *entityRead) saveSnapshot(p foldProgress, asOf event.Sequence, state json.RawMessage) {
	isDue := p.folded > r.service.SnapshotEvery || p.archived
	if r.isLimited() || r.query.AsOf != nil || !isDue || asOf <= r.newestAsOf {
		return
	}
	s, le := r.service, r.query.LegalEntity
	if len(state) > snapshot.MaxBytes {
		s.Logger.Warn("entity state exceeds the limit of snapshots; every read folds all events",
			"entity_type", r.query.Type, "legal_entity", le.Code, "bytes", len(state), "limit", snapshot.MaxBytes)
		return
	}
	taken := ports.EntitySnapshot{
		Partition: le.Partition, EntityType: r.query.Type, EntityID: r.query.ID, AsOf: asOf, Version: p.version, Fold: r.fold.name,
		EffectiveThrough: p.through, EventCount: p.count, CreatedAt: s.Clock.Now(), State: state,
	}
	epoch := r.epoch
	s.Background.Do(fmt.Sprintf("entity %d %s", le.Partition, r.key), func(ctx context.Context) {
		if _, err := s.Snapshots.Save(ctx, le.TenantID, taken, epoch); err != nil {
			s.Logger.WarnContext(ctx, "entity snapshot could not be saved; a later read tries again",
				"code", fault.CodeOf(err), "entity_type", taken.EntityType, "legal_entity", le.Code)
		}
	})
}
