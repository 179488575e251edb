package entities

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/domain/snapshot"
	"github.com/erpbackbone/backbone/ports"
)

// So many events are read at a time, and of so many bytes together.
const (
	pageSize  = 500
	pageBytes = 8 << 20
)

// reading is one Read.
type reading struct {
	service *Service
	query   Query
	key     string
	fold    entityFold
	began   time.Time
	known   event.Sequence // nothing after it is looked at
	head    event.Sequence

	stored    []ports.EntitySnapshot // usable ones, newest first
	newestAt  event.Sequence         // AsOf of the newest that may stay, usable here or not
	epoch     ports.SnapshotEpoch
	exhausted bool
}

// headBound keeps what is committed during the read out of an answer about now, so
// that it is one moment's.
func (r *reading) headBound() event.Sequence {
	if r.query.KnownAt == "" {
		return r.known
	}
	return 0
}

// progress is how far a fold has come.
type progress struct {
	state   any
	base    *ports.EntitySnapshot
	after   event.Sequence // everything up to here is in the state
	version event.Sequence
	through event.Date
	count   int
	folded  int
}

func (r *reading) read(ctx context.Context) (State, error) {
	if err := r.findSnapshots(ctx); err != nil {
		return State{}, err
	}
	if r.query.Consistency == Verified && len(r.stored) > 0 {
		if err := r.lookBehind(ctx); err != nil {
			return State{}, err
		}
	}
	if r.query.Consistency != Strong {
		if p, ok := r.newestSnapshot(ctx); ok {
			return r.answer(p, p.after, r.query.Consistency)
		}
	}
	p, err := r.foldLog(ctx)
	if err != nil {
		return State{}, err
	}
	if now := r.service.foldOf(r.query.Type); now.name != r.fold.name {
		// Versions were registered meanwhile: what was folded before was read in one
		// version, and what came after in another.
		r.fold, r.stored, r.newestAt, r.exhausted = now, nil, 0, false
		return r.read(ctx)
	}
	asOf, reached := r.known, Strong
	if r.exhausted {
		asOf, reached = p.after, Verified
	}
	out, err := r.answer(p, asOf, reached)
	if err == nil {
		r.keep(p, asOf, out.State)
	}
	return out, err
}

// findSnapshots lists what may be the beginning of the answer: valid, of this fold,
// and with nothing in it that the query does not want. A store that cannot tell is
// like one without snapshots.
func (r *reading) findSnapshots(ctx context.Context) error {
	all, epoch, err := r.service.Snapshots.EntitySnapshots(ctx, r.query.LegalEntity.Partition, r.query.Type, r.query.ID)
	if err != nil {
		return err
	}
	r.epoch = epoch
	for _, s := range all {
		if s.Stale || s.Fold != r.fold.name {
			continue
		}
		r.newestAt = max(r.newestAt, s.AsOf)
		if s.AsOf <= r.known && (r.query.AsOf == nil || s.EffectiveThrough <= *r.query.AsOf) {
			r.stored = append(r.stored, s)
		}
	}
	return nil
}

// next takes the newest snapshot that is left; none is a beginning without events.
func (r *reading) next(ctx context.Context) progress {
	for len(r.stored) > 0 {
		s := r.stored[0]
		r.stored = r.stored[1:]
		state := r.fold.New(r.query.ID)
		if !isObject(s.State) || json.Unmarshal(s.State, state) != nil {
			// The cause may quote what is stored.
			r.service.Logger.WarnContext(ctx, "a snapshot of an entity cannot be read and is not used; the next one takes its place",
				"code", "snapshot.damaged", "entity_type", s.EntityType, "legal_entity", r.query.LegalEntity.Code, "as_of_sequence", uint64(s.AsOf))
			r.newestAt = 0 // a sound one is wanted in its place
			continue
		}
		return progress{state: state, base: &s, after: s.AsOf, version: s.Version, through: s.EffectiveThrough, count: s.EventCount}
	}
	return progress{state: r.fold.New(r.query.ID)}
}

func isObject(b []byte) bool { return len(b) > 0 && b[0] == '{' }

func (r *reading) newestSnapshot(ctx context.Context) (progress, bool) {
	p := r.next(ctx)
	return p, p.base != nil
}

// lookBehind drops snapshots that a later event takes effect before, with one look at
// what came after each.
func (r *reading) lookBehind(ctx context.Context) error {
	for len(r.stored) > 0 {
		s := r.stored[0]
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
		r.backDated(ctx, &found[0])
	}
	return nil
}

// backDated settles an event that takes effect before something that was folded: the
// snapshots that it came after are stale, here and in the store.
func (r *reading) backDated(ctx context.Context, e *event.Recorded) {
	left := r.stored[:0:0]
	r.newestAt = 0
	for _, s := range r.stored {
		if s.AsOf >= e.Sequence || s.EffectiveThrough <= e.EffectiveDate {
			left = append(left, s)
			r.newestAt = max(r.newestAt, s.AsOf)
		}
	}
	r.stored = left
	if _, err := r.service.Snapshots.MarkEntitySnapshotsStale(ctx, r.query.LegalEntity.Partition, r.query.Type, r.query.ID, e.Sequence, e.EffectiveDate); err != nil {
		r.service.Logger.WarnContext(ctx, "stale snapshots of an entity could not be marked; the next read does it again",
			"code", fault.CodeOf(err), "entity_type", r.query.Type, "legal_entity", r.query.LegalEntity.Code)
	}
}

// foldLog folds what came after the newest usable snapshot. A back-dated event begins
// again from an older one. When the time is up the fold ends where it is; a first page
// is always folded, so that every read comes further than the one before it.
func (r *reading) foldLog(ctx context.Context) (progress, error) {
	p := r.next(ctx)
	first := true
	for p.after < min(r.known, r.head) {
		scan, inTime, err := r.page(ctx, p.after, first)
		page := scan.Events
		if err != nil {
			return p, err
		}
		if !inTime {
			r.exhausted = true
			return p, nil
		}
		first = false
		for i := range page {
			e := &page[i]
			if p.base != nil && e.EffectiveDate < p.base.EffectiveThrough {
				r.backDated(ctx, e)
				folded := p.folded
				p, first = r.next(ctx), true
				p.folded = folded
				break
			}
			if err := r.apply(&p, e); err != nil {
				return p, err
			}
		}
		if !first && len(page) < pageSize && !scan.Stopped {
			break
		}
	}
	return p, nil
}

// page reads on, unless the time is up.
func (r *reading) page(ctx context.Context, after event.Sequence, first bool) (page ports.EventScan, inTime bool, err error) {
	within := ctx
	if !first {
		left := r.service.Budget - r.service.Spent(r.began)
		if left <= 0 {
			return page, false, nil
		}
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	page, err = r.service.Log.SearchEvents(within, ports.EventQuery{
		Partition: r.query.LegalEntity.Partition, Key: r.key, After: after, Until: r.known, EffectiveTo: r.query.AsOf, Limit: pageSize, Bytes: pageBytes,
	}, 0)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return page, false, nil
	}
	return page, true, err
}

func (r *reading) apply(p *progress, e *event.Recorded) error {
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
	return nil
}

func (r *reading) answer(p progress, asOf event.Sequence, reached Consistency) (State, error) {
	state, err := json.Marshal(p.state)
	if err != nil {
		return State{}, fmt.Errorf("state of the %s: %w", r.query.Type, err)
	}
	return State{
		State: state, Version: p.version, AsOf: asOf, EventCount: p.count, Folded: p.folded, Reached: reached, Snapshot: p.base,
	}, nil
}

// keep takes a snapshot after the answer, if enough was folded beyond the newest one.
// What a day left out is no beginning of anything.
func (r *reading) keep(p progress, asOf event.Sequence, state json.RawMessage) {
	if r.query.AsOf != nil || p.folded <= r.service.Every || asOf <= r.newestAt {
		return
	}
	s, le := r.service, r.query.LegalEntity
	if len(state) > snapshot.MaxBytes {
		s.Logger.Warn("an entity's state is too large for a snapshot; every read folds all of it",
			"entity_type", r.query.Type, "legal_entity", le.Code, "bytes", len(state), "limit", snapshot.MaxBytes)
		return
	}
	taken := ports.EntitySnapshot{
		Partition: le.Partition, EntityType: r.query.Type, EntityID: r.query.ID, AsOf: asOf, Version: p.version, Fold: r.fold.name,
		EffectiveThrough: p.through, EventCount: p.count, CreatedAt: s.Clock.Now(), State: state,
	}
	epoch := r.epoch
	s.Background.Do(fmt.Sprintf("entity %d %s", le.Partition, r.key), func(ctx context.Context) {
		if _, err := s.Snapshots.SaveEntitySnapshot(ctx, taken, epoch); err != nil {
			s.Logger.WarnContext(ctx, "a snapshot of an entity could not be saved; a later read takes it",
				"code", fault.CodeOf(err), "entity_type", taken.EntityType, "legal_entity", le.Code)
		}
	})
}
