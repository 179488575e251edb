package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// States keeps folded streams in memory, bounded, in two generations: when the
// young one is full it becomes the old one, and what was old and not used since
// is dropped. A kept state may be behind; that is safe, because every stream a
// plan read is checked again under the append lock.
type States struct {
	reader  Log
	intents ports.IntentReader
	folds   Folds
	limit   int
	stored  *storedStates // nil: states are always folded from the first event

	mu         sync.Mutex
	young, old map[stateKey]folded
}

// Folds finds the fold of a stream type.
type Folds interface {
	Fold(streamType string) (module.Fold, bool)
}

type stateKey struct {
	partition event.PartitionID
	stream    event.StreamID
}

type folded struct {
	state   any
	version event.Version
	behind  bool          // this node itself has written to the stream since
	kept    event.Version // up to which the store has the state, or is about to get it
}

// So many events of a stream are read at a time, and of so many bytes together.
const (
	foldPage  = 500
	foldBytes = 8 << 20
)

// NewStates makes a cache of up to limit streams.
func NewStates(reader Log, intents ports.IntentReader, folds Folds, limit int) *States {
	return &States{reader: reader, intents: intents, folds: folds, limit: limit, young: map[stateKey]folded{}, old: map[stateKey]folded{}}
}

func (s *States) get(k stateKey) (folded, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f, ok := s.young[k]
	if !ok {
		if f, ok = s.old[k]; ok {
			s.keep(k, f)
		}
	}
	return f, ok
}

func (s *States) put(k stateKey, f folded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have, ok := s.young[k]; ok && have.version > f.version {
		return // another reader was further ahead
	}
	s.keep(k, f)
}

func (s *States) keep(k stateKey, f folded) {
	if len(s.young) >= s.limit/2 {
		s.old, s.young = s.young, make(map[stateKey]folded, s.limit/2)
	}
	s.young[k] = f
}

// load gives a stream's state: the kept one if it may be behind, else the kept
// one brought up to the newest committed event.
func (s *States) load(ctx context.Context, k stateKey, mayBeBehind bool) (folded, bool, error) {
	kept, have := s.get(k)
	if have && mayBeBehind && !kept.behind {
		return kept, true, nil
	}
	fold, ok := s.folds.Fold(k.stream.Type)
	if !ok {
		return folded{}, false, fmt.Errorf("no module declares a fold of stream type %q", k.stream.Type)
	}
	if !have {
		kept = s.stored.load(ctx, k, fold)
	}
	kept, err := s.advance(ctx, k, fold, kept, have)
	if err != nil {
		return folded{}, false, err
	}
	kept.behind = false
	if s.stored.wants(fold, kept) && s.stored.save(s, k, fold) {
		kept.kept = kept.version
	}
	s.put(k, kept)
	return kept, false, nil
}

// advance folds what came after a state, a copy of it if others have it too.
func (s *States) advance(ctx context.Context, k stateKey, fold module.Fold, f folded, shared bool) (folded, error) {
	for {
		page, more, err := s.reader.ReadStream(ctx, ports.StreamQuery{
			Partition: k.partition, Stream: k.stream, From: f.version + 1, Limit: foldPage, Bytes: foldBytes,
		})
		if err != nil {
			return folded{}, err
		}
		if len(page) > 0 && shared {
			f.state, shared = fold.Clone(f.state), false
		}
		for _, e := range page {
			var body struct {
				Data json.RawMessage `json:"data"`
			}
			if err := json.Unmarshal(e.Payload, &body); err != nil {
				return folded{}, fmt.Errorf("payload of event %s: %w", e.ID, err)
			}
			if err := fold.Apply(f.state, e, body.Data); err != nil {
				return folded{}, fmt.Errorf("fold event %s: %w", e.ID, err)
			}
			f.version = e.StreamVersion
		}
		if len(page) < foldPage && !more {
			return f, nil
		}
	}
}

// wrote marks streams that this node has just appended to.
func (s *States) wrote(p event.PartitionID, events []ports.AppendedEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range events {
		k := stateKey{p, e.Stream}
		if f, ok := s.young[k]; ok && f.version < e.StreamVersion {
			f.behind = true
			s.young[k] = f
		} else if f, ok := s.old[k]; ok && f.version < e.StreamVersion {
			delete(s.old, k)
		}
	}
}

// view is one planning's window on the log. It remembers what it showed.
type view struct {
	states      *States
	partition   event.PartitionID
	mayBeBehind bool // kept states are good enough
	usedKept    bool // and one was used
	seen        map[event.StreamID]event.Version
	order       []event.StreamID
	conditions  []concurrency.AppendCondition
}

func (s *States) view(p event.PartitionID, mayBeBehind bool) *view {
	return &view{states: s, partition: p, mayBeBehind: mayBeBehind, seen: map[event.StreamID]event.Version{}}
}

// Stream implements module.State.
func (v *view) Stream(ctx context.Context, id event.StreamID) (any, event.Version, error) {
	// Within one planning a stream is read once: two looks must not differ.
	_, again := v.seen[id]
	f, wasKept, err := v.states.load(ctx, stateKey{v.partition, id}, v.mayBeBehind || again)
	if err != nil {
		return nil, 0, err
	}
	if again {
		return f.state, v.seen[id], nil // if it moved between two looks, the append will notice
	}
	v.usedKept = v.usedKept || wasKept
	v.seen[id] = f.version
	v.order = append(v.order, id)
	return f.state, f.version, nil
}

// Tagged implements module.State.
func (v *view) Tagged(ctx context.Context, tags ...string) ([]event.Recorded, error) {
	var found []event.Recorded
	for _, tag := range tags {
		if v.mayBeBehind {
			v.usedKept = true
		} else {
			events, err := v.states.reader.Events(ctx, ports.EventQuery{
				Partition: v.partition, Key: event.TagKey(tag), Limit: module.TaggedLimit, WithoutData: true,
			})
			if err != nil {
				return nil, err
			}
			if len(events) > 0 {
				found = append(found, events...)
				continue // what is there stays there; one more would not change the answer
			}
		}
		v.conditions = append(v.conditions, concurrency.AppendCondition{Items: []concurrency.Item{{Tags: []string{tag}}}})
	}
	return found, nil
}

// Decide implements module.State.
func (v *view) Decide(ctx context.Context, projectors ...module.Projector) error {
	condition, err := module.Decide(ctx, v.states.reader, v.partition, projectors...)
	if err == nil {
		v.conditions = append(v.conditions, condition)
	}
	return err
}

// Waiting implements module.State.
func (v *view) Waiting(ctx context.Context, types []string, from, to event.Date) (int, error) {
	waiting, err := v.states.intents.WaitingIntents(ctx, v.partition, 1000)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, w := range waiting {
		if w.Status == intent.PendingApproval && w.HasEffective && w.EffectiveDate >= from && w.EffectiveDate <= to && matches(types, w.Type) {
			n++
		}
	}
	return n, nil
}

func matches(types []string, name string) bool {
	if len(types) == 0 {
		return true
	}
	for _, t := range types {
		if t == name {
			return true
		}
	}
	return false
}

// expectations turns what was seen into what must still hold.
func (v *view) expectations() []concurrency.StreamExpectation {
	out := make([]concurrency.StreamExpectation, 0, len(v.order))
	for _, id := range v.order {
		out = append(out, concurrency.StreamExpectation{Stream: id, Expected: concurrency.Exactly(v.seen[id])})
	}
	return out
}
