package conformance_test

import (
	"context"
	"runtime"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// statusBroken breaks reads of the status of a stream.
type statusBroken struct {
	*wrapper
	status func(id event.StreamID, s *ports.StreamStatus)
}

func (s *statusBroken) StreamStatus(ctx context.Context, p event.PartitionID, id event.StreamID) (ports.StreamStatus, error) {
	status, err := s.wrapper.StreamStatus(ctx, p, id)
	if err == nil {
		s.status(id, &status)
	}
	return status, err
}

// withoutChanges makes ordinary events of those that change a stream.
func withoutChanges(r *ports.AppendRequest) {
	r.Events = slices.Clone(r.Events)
	for i := range r.Events {
		r.Events[i].Change = nil
	}
}

func ignoreStates(w *wrapper) conformance.Store { return changed(w, withoutChanges) }

// tooEarly decides what is possible before the lock.
type tooEarly struct {
	*wrapper
	mu     sync.Mutex
	states map[event.StreamID]event.StreamState
}

func checkStateTooEarly(w *wrapper) conformance.Store {
	return &tooEarly{wrapper: w, states: map[event.StreamID]event.StreamState{}}
}

func (s *tooEarly) stateOf(id event.StreamID) event.StreamState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[id]
}

func (s *tooEarly) StreamStatus(ctx context.Context, p event.PartitionID, id event.StreamID) (ports.StreamStatus, error) {
	status, err := s.wrapper.StreamStatus(ctx, p, id)
	status.State = s.stateOf(id)
	return status, err
}

func (s *tooEarly) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	next := map[event.StreamID]event.StreamState{}
	for i := range r.Events {
		e := &r.Events[i]
		state, own := next[e.Stream]
		if !own {
			state = s.stateOf(e.Stream)
		}
		to, possible := state.After(e.Action())
		if !possible {
			return ports.AppendResult{}, concurrency.ActionRefused(e.Stream, state, e.Action())
		}
		next[e.Stream] = to
	}
	for range 8 {
		runtime.Gosched() // an append in between is not seen
	}
	withoutChanges(&r)
	result, err := s.wrapper.Append(ctx, r)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		for id, state := range next {
			s.states[id] = state
		}
	}
	return result, err
}

func ignoreAccess(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) { r.Roles = nil })
}

func forgetMetadata(w *wrapper) conformance.Store {
	return &statusBroken{w, func(_ event.StreamID, s *ports.StreamStatus) {
		if s.State == event.StreamDeleted {
			s.Settings, s.MetadataVersion = nil, 0
		}
	}}
}

func showDeleted(w *wrapper) conformance.Store {
	return &statusBroken{w, func(_ event.StreamID, s *ports.StreamStatus) { s.ReadableFrom = 0 }}
}

func deleteEverywhere(w *wrapper) conformance.Store {
	var mu sync.Mutex
	tombstoned := map[event.StreamID]bool{}
	return &statusBroken{w, func(id event.StreamID, s *ports.StreamStatus) {
		mu.Lock()
		defer mu.Unlock()
		if tombstoned[id] = tombstoned[id] || s.State == event.StreamTombstoned; tombstoned[id] {
			s.State = event.StreamTombstoned
		}
	}}
}
