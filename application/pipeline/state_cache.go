package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// StateCache keeps folded streams in memory, bounded, in two generations: when the young
// generation is full it becomes the old one, and old entries that were not used since are
// dropped. A cached state may lag behind the log. That is safe, because every version
// that a plan read is checked again under the append lock.
type StateCache struct {
	reader    Log
	intents   ports.IntentReader
	folds     Folds
	reports   Reports // nil: planners read no read models
	limit     int
	snapshots *snapshotStore // nil: states are always folded from the first event

	mu         sync.Mutex
	young, old map[stateKey]foldedState
}

// Folds finds the fold of a stream type.
type Folds interface {
	Fold(streamType string) (module.Fold, bool)
}

type stateKey struct {
	tenantID  string // of the partition
	partition event.PartitionID
	stream    event.StreamID
}

type foldedState struct {
	state           any
	version         event.Version
	hasNewerAppend  bool          // this node has appended to the stream after version; other nodes' appends are not noticed
	snapshotVersion event.Version // of the newest snapshot, stored or being stored
	archived        bool          // archived events were folded since
}

// foldPageEvents and foldPageBytes bound one read of a stream.
const (
	foldPageEvents = 500
	foldPageBytes  = 8 << 20
)

// NewStateCache makes a cache of up to limit streams.
func NewStateCache(reader Log, intents ports.IntentReader, folds Folds, limit int) *StateCache {
	return &StateCache{reader: reader, intents: intents, folds: folds, limit: limit, young: map[stateKey]foldedState{}, old: map[stateKey]foldedState{}}
}

func (s *StateCache) get(k stateKey) (foldedState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.young[k]
	if !ok {
		if f, ok = s.old[k]; ok {
			s.insert(k, f)
		}
	}
	return f, ok
}

func (s *StateCache) put(k stateKey, f foldedState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if present, ok := s.young[k]; ok && present.version > f.version {
		return // another request has folded further
	}
	s.insert(k, f)
}

func (s *StateCache) insert(k stateKey, f foldedState) {
	if len(s.young) >= s.limit/2 {
		s.old, s.young = s.young, make(map[stateKey]foldedState, s.limit/2)
	}
	s.young[k] = f
}

// load returns a stream's state and whether it is a cached one that may be behind the log.
// With useCache a cached state is returned as it is, unless this node has appended to the
// stream since; otherwise the newest committed events are folded onto it.
func (s *StateCache) load(ctx context.Context, k stateKey, useCache bool) (foldedState, bool, error) {
	cached, found := s.get(k)
	if found && useCache && !cached.hasNewerAppend {
		return cached, true, nil
	}
	fold, ok := s.folds.Fold(k.stream.Type)
	if !ok {
		return foldedState{}, false, fmt.Errorf("no module declares a fold of stream type %q", k.stream.Type)
	}
	switch {
	case found:
	case fold.IsLong:
		cached = s.snapshots.load(ctx, k, fold)
	default:
		cached.state = fold.New()
	}
	cached, err := s.advance(ctx, k, fold, cached, found, 0)
	if err != nil {
		return foldedState{}, false, err
	}
	cached.hasNewerAppend = false
	if s.snapshots.isDue(fold, cached) && s.snapshots.saveInBackground(s, k, fold) {
		cached.snapshotVersion, cached.archived = cached.version, false
	}
	s.put(k, cached)
	return cached, false, nil
}

// advance folds the events after a state, up to a sequence; 0 is the end. A shared state is cloned first. Where events are
// archived, it begins with the newest state that is stored.
func (s *StateCache) advance(ctx context.Context, k stateKey, fold module.Fold, f foldedState, shared bool, until event.Sequence) (foldedState, error) {
	onlineOnly := fold.Codec != nil && !shared
	for {
		page, more, err := s.reader.ReadStream(ctx, ports.StreamQuery{
			Partition: k.partition, Stream: k.stream, From: f.version + 1, Until: until, Limit: foldPageEvents, Bytes: foldPageBytes, OnlineOnly: onlineOnly,
		})
		if err != nil {
			return foldedState{}, err
		}
		if onlineOnly && slices.ContainsFunc(page, func(e event.Recorded) bool { return e.Payload == nil }) {
			onlineOnly, shared = false, false
			if f, err = s.loadBefore(ctx, k, fold, f, until); err != nil {
				return foldedState{}, err
			}
			continue
		}
		if len(page) > 0 && shared {
			f.state, shared = fold.Clone(f.state), false
		}
		for _, e := range page {
			var body struct {
				Data json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(e.Payload, &body); err != nil {
				return foldedState{}, fmt.Errorf("payload of event %s: %w", e.ID, err)
			}
			data, err := shredding.CopySealed(body.Data, shredding.Location{
				Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion, Pointer: "/data",
			})
			if err != nil {
				return foldedState{}, err
			}
			if err := fold.Apply(f.state, e, data); err != nil {
				return foldedState{}, fmt.Errorf("fold event %s: %w", e.ID, err)
			}
			f.version, f.archived = e.StreamVersion, f.archived || e.Archived
		}
		if len(page) < foldPageEvents && !more {
			return f, nil
		}
	}
}

// loadBefore returns the newest stored state that is not after a sequence, or f; 0 is the end.
func (s *StateCache) loadBefore(ctx context.Context, k stateKey, fold module.Fold, f foldedState, until event.Sequence) (foldedState, error) {
	if until == 0 {
		return s.snapshots.loadStored(ctx, k, fold)
	}
	archived, found, err := s.snapshots.loadArchived(ctx, k, fold, until)
	if err != nil || !found {
		return f, err
	}
	return archived, nil
}

// markAppended marks the cached states of streams that this node has just appended to, so
// that the next load reads on from them.
func (s *StateCache) markAppended(le ports.LegalEntity, events []ports.AppendedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		k := stateKey{le.TenantID, le.Partition, e.Stream}
		if f, ok := s.young[k]; ok && f.version < e.StreamVersion {
			f.hasNewerAppend = true
			s.young[k] = f
		} else if f, ok := s.old[k]; ok && f.version < e.StreamVersion {
			delete(s.old, k)
		}
	}
}

// planView implements module.State for one planning. It records every version and
// condition that the planner relied on, which become the expectations of the append.
type planView struct {
	states     *StateCache
	entity     ports.LegalEntity
	useCache   bool // cached states and untested assumptions are good enough, see Tagged
	usedCache  bool // and one of them was used, so a refusal may be wrong
	seen       map[event.StreamID]event.Version
	order      []event.StreamID
	conditions []concurrency.AppendCondition
	open       func(ctx context.Context, document json.RawMessage) (json.RawMessage, error)
	findEntity func(ctx context.Context, code string) (ports.LegalEntity, error) // that the caller may see; nil: there is no other
}

func (s *StateCache) newView(le ports.LegalEntity, useCache bool) *planView {
	return &planView{states: s, entity: le, useCache: useCache, seen: map[event.StreamID]event.Version{}}
}

// Stream implements module.State.
func (v *planView) Stream(ctx context.Context, id event.StreamID) (any, event.Version, error) {
	// One planning sees one version of a stream, so a second read does not refresh it.
	_, alreadyRead := v.seen[id]
	f, fromCache, err := v.states.load(ctx, stateKey{v.entity.TenantID, v.entity.Partition, id}, v.useCache || alreadyRead)
	if err != nil {
		return nil, 0, err
	}
	if alreadyRead {
		return f.state, v.seen[id], nil // if the stream has changed between the reads, the append refuses the plan
	}
	v.usedCache = v.usedCache || fromCache
	v.seen[id] = f.version
	v.order = append(v.order, id)
	return f.state, f.version, nil
}

// StreamOf implements module.State. It never uses cached states.
func (v *planView) StreamOf(ctx context.Context, legalEntity string, id event.StreamID) (any, event.Version, error) {
	le, err := v.findEntity(ctx, legalEntity)
	if err != nil {
		return nil, 0, err
	}
	f, _, err := v.states.load(ctx, stateKey{v.entity.TenantID, le.Partition, id}, false)
	return f.state, f.version, err
}

// Tagged implements module.State. With useCache it assumes, without a search, that no event
// has the tag, which is mostly so; the condition makes the append test it.
func (v *planView) Tagged(ctx context.Context, tags ...string) ([]event.Recorded, error) {
	var found []event.Recorded
	for _, tag := range tags {
		if v.useCache {
			v.usedCache = true
		} else {
			events, err := v.states.reader.Events(ctx, ports.EventQuery{
				Partition: v.entity.Partition, Key: event.TagKey(tag), Limit: module.TaggedLimit, WithoutData: true,
			})
			if err != nil {
				return nil, err
			}
			if len(events) > 0 {
				found = append(found, events...)
				continue // the log only grows, so the tag stays taken and needs no condition
			}
		}
		v.conditions = append(v.conditions, concurrency.AppendCondition{Items: []concurrency.Item{{Tags: []string{tag}}}})
	}
	return found, nil
}

// Decide implements module.State.
func (v *planView) Decide(ctx context.Context, projectors ...module.Projector) error {
	condition, err := module.Decide(ctx, v.states.reader, v.entity.Partition, projectors...)
	if err == nil {
		v.conditions = append(v.conditions, condition)
	}
	return err
}

// Report implements module.State.
func (v *planView) Report(ctx context.Context, r module.ReportRead) ([]any, error) {
	switch {
	case v.states.reports == nil:
		return nil, fault.New(fault.Internal, module.CodeReportUnbound, "a planner reads read model %s, and this pipeline has no read models; give it pipeline.Config.Reports", r.Path)
	case len(r.Items) == 0:
		return nil, fmt.Errorf("a planner reads read model %s without items; name the events that its rows are computed from", r.Path)
	}
	rows, known, err := v.states.reports.ReadForPlan(ctx, v.entity, r)
	if err != nil {
		return nil, err
	}
	v.conditions = append(v.conditions, concurrency.AppendCondition{Items: r.Items, After: known})
	return rows, nil
}

// Open implements module.State.
func (v *planView) Open(ctx context.Context, document json.RawMessage) (json.RawMessage, error) {
	return v.open(ctx, document)
}

// Waiting implements module.State. It reads the head before the rows, so the rows have every
// intent that waited then; the condition refuses the append if one began to wait in these months
// since, or waits on with another plan and so perhaps another date. An intent that is decided while the
// planner runs needs no condition: with fewer of them the planner refuses less.
func (v *planView) Waiting(ctx context.Context, types []string, from, to event.Date) (module.WaitingIntents, error) {
	var found module.WaitingIntents
	head, err := v.states.reader.Head(ctx, v.entity.Partition)
	if err != nil {
		return found, err
	}
	q := ports.IntentQuery{Partition: v.entity.Partition, Status: intent.PendingApproval, Limit: listPage}
	for more := true; more; {
		page, err := v.states.intents.ListIntents(ctx, q)
		if err != nil {
			return found, err
		}
		for _, w := range page {
			if !w.HasEffectiveDate || w.EffectiveDate < from || w.EffectiveDate > to || !containsOrEmpty(types, w.Type) {
				continue
			}
			if found.Count++; len(found.IDs) < module.WaitingLimit {
				found.IDs = append(found.IDs, w.ID)
			}
		}
		if more = len(page) == listPage; more {
			q.After = page[len(page)-1].ID
		}
	}
	v.conditions = append(v.conditions, concurrency.AppendCondition{Items: waitingItems(from, to), After: head.Sequence})
	return found, nil
}

// waitingItems select the events of intents that wait with an effective date in the months of the range.
func waitingItems(from, to event.Date) []concurrency.Item {
	var items []concurrency.Item
	first := from.Time()
	for month := time.Date(first.Year(), first.Month(), 1, 0, 0, 0, 0, time.UTC); !month.After(to.Time()); month = month.AddDate(0, 1, 0) {
		items = append(items, concurrency.Item{Types: []string{intent.Waiting, intent.ApprovalRecorded}, Tags: []string{intent.WaitingTag(event.DateOf(month))}})
	}
	return items
}

// containsOrEmpty reports whether a list of names has a name; an empty list has every name.
func containsOrEmpty(names []string, name string) bool {
	return len(names) == 0 || slices.Contains(names, name)
}

// expectations lists the versions read, for the append to check.
func (v *planView) expectations() []concurrency.StreamExpectation {
	out := make([]concurrency.StreamExpectation, 0, len(v.order))
	for _, id := range v.order {
		out = append(out, concurrency.StreamExpectation{Stream: id, Expected: concurrency.Exactly(v.seen[id])})
	}
	return out
}
