package conformance_test

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// appendBroken breaks what an append does.
type appendBroken struct {
	*wrapper
	append func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error)
}

func (s *appendBroken) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	return s.append(ctx, r)
}

// changed passes a changed request on to the sound store.
func changed(w *wrapper, change func(r *ports.AppendRequest)) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		change(&r)
		return w.Append(ctx, r)
	}}
}

// afterRefusal calls leak when the sound store refused a request.
func afterRefusal(w *wrapper, leak func(ctx context.Context, r ports.AppendRequest)) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		result, err := w.Append(ctx, r)
		if err != nil {
			leak(ctx, r)
		}
		return result, err
	}}
}

func ignoreVersion(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) { r.Streams = nil })
}

func ignoreEntity(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) { r.Entities = nil })
}

func ignoreConditions(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) { r.Conditions = nil })
}

func forgetIdempotency(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) { r.Idempotency = nil })
}

func neverExpire(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) {
		if r.Idempotency != nil {
			c := *r.Idempotency
			c.ExpiresAt = c.ExpiresAt.AddDate(100, 0, 0)
			r.Idempotency = &c
		}
	})
}

func reorder(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) {
		r.Events = slices.Clone(r.Events)
		slices.Reverse(r.Events)
	})
}

func ignoreBusinessKeys(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) {
		r.Events = slices.Clone(r.Events)
		for i := range r.Events {
			r.Events[i].BusinessKeys = nil
		}
	})
}

func leakEvent(w *wrapper) conformance.Store {
	return afterRefusal(w, func(ctx context.Context, r ports.AppendRequest) {
		if len(r.Events) > 1 {
			_, _ = w.Append(ctx, ports.AppendRequest{Partition: r.Partition, Events: r.Events[:1]})
		}
	})
}

// leakKey remembers the business keys of refused requests.
func leakKey(w *wrapper) conformance.Store {
	type held struct {
		partition event.PartitionID
		key       event.BusinessKey
	}
	var mu sync.Mutex
	leaked := map[held]bool{}
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range r.Events {
			for _, k := range e.BusinessKeys {
				if leaked[held{r.Partition, k}] {
					return ports.AppendResult{}, concurrency.DuplicateBusinessKey(k.EventType, fault.Holder{})
				}
			}
		}
		result, err := w.Append(ctx, r)
		if err != nil && len(r.Events) > 0 {
			for _, k := range r.Events[0].BusinessKeys {
				leaked[held{r.Partition, k}] = true
			}
		}
		return result, err
	}}
}

// checkTooEarly looks for the condition's events before it appends, as a store
// does that relies on READ COMMITTED without a lock.
func checkTooEarly(w *wrapper) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		probe := ports.AppendRequest{Partition: r.Partition, Conditions: r.Conditions}
		if _, err := w.Append(ctx, probe); err != nil {
			return ports.AppendResult{}, err
		}
		runtime.Gosched()
		r.Conditions = nil
		return w.Append(ctx, r)
	}}
}

func neverTooOld(w *wrapper) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		result, err := w.Append(ctx, r)
		if fault.CodeOf(err) == concurrency.CodeConditionTooOld {
			r.Conditions = nil
			return w.Append(ctx, r)
		}
		return result, err
	}}
}

func forgetFingerprint(w *wrapper) conformance.Store {
	return changed(w, func(r *ports.AppendRequest) {
		if r.Idempotency != nil {
			c := *r.Idempotency
			c.Fingerprint = event.Hash{}
			r.Idempotency = &c
		}
	})
}

func lastWriterWins(w *wrapper) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		for {
			result, err := w.Append(ctx, r)
			if fault.CodeOf(err) != concurrency.CodeIntentChanged {
				return result, err
			}
			stored, err := w.Intent(ctx, r.Partition, r.Intent.Intent.ID)
			if err != nil {
				return result, concurrency.IntentChanged(r.Intent.Intent.ID)
			}
			write := *r.Intent
			write.ExpectedRevision = stored.Revision
			r.Intent = &write
		}
	}}
}

// burnNumbers counts series by itself, refused requests included.
func burnNumbers(w *wrapper) conformance.Store {
	type series struct {
		partition event.PartitionID
		name      string
	}
	var mu sync.Mutex
	last := map[series]uint64{}
	return changed(w, func(r *ports.AppendRequest) {
		mu.Lock()
		defer mu.Unlock()
		r.Events = slices.Clone(r.Events)
		for i := range r.Events {
			e := &r.Events[i]
			for _, n := range e.Series {
				key := series{r.Partition, n.Series}
				last[key]++
				e.ReplaceToken(n.Token, n.Format(last[key]))
			}
			e.Series, e.PayloadHashDone = nil, false
		}
	})
}

func ignoreCancellation(w *wrapper) conformance.Store {
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		result, err := w.Append(context.WithoutCancel(ctx), r)
		if ctx.Err() != nil {
			return ports.AppendResult{}, ctx.Err()
		}
		return result, err
	}}
}

// mixPartitions counts the versions of a stream over all partitions together.
func mixPartitions(w *wrapper) conformance.Store {
	var mu sync.Mutex
	versions := map[event.StreamID]event.Version{}
	return &appendBroken{w, func(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, want := range r.Streams {
			if actual := versions[want.Stream]; !want.Expected.Allows(actual) {
				return ports.AppendResult{}, concurrency.WrongExpectedVersion(want.Stream, want.Expected, actual, nil)
			}
		}
		r.Streams = nil
		result, err := w.Append(ctx, r)
		for _, e := range result.Events {
			versions[e.Stream]++
		}
		return result, err
	}}
}

// readBroken breaks reads: every page of events goes through page.
type readBroken struct {
	*wrapper
	page   func(events []event.Recorded, backward bool) []event.Recorded
	before func(q *ports.EventQuery)
	append func(r ports.AppendResult) ports.AppendResult
}

func (s *readBroken) through(events []event.Recorded, backward bool, err error) ([]event.Recorded, error) {
	if err != nil || s.page == nil {
		return events, err
	}
	return s.page(events, backward), nil
}

func (s *readBroken) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	result, err := s.wrapper.Append(ctx, r)
	if err == nil && s.append != nil {
		result = s.append(result)
	}
	return result, err
}

func (s *readBroken) Events(ctx context.Context, q ports.EventQuery) ([]event.Recorded, error) {
	if s.before != nil {
		s.before(&q)
	}
	events, err := s.wrapper.Events(ctx, q)
	return s.through(events, q.Direction == ports.Backward, err)
}

func (s *readBroken) EventsOfStream(ctx context.Context, p event.PartitionID, id event.StreamID, from event.Version, limit int) ([]event.Recorded, error) {
	events, err := s.wrapper.EventsOfStream(ctx, p, id, from, limit)
	return s.through(events, false, err)
}

func (s *readBroken) ChainPage(ctx context.Context, p event.PartitionID, after event.Sequence, limit int) ([]event.Recorded, error) {
	events, err := s.wrapper.ChainPage(ctx, p, after, limit)
	return s.through(events, false, err)
}

func (s *readBroken) EventByID(ctx context.Context, p event.PartitionID, id event.ID) (event.Recorded, error) {
	e, err := s.wrapper.EventByID(ctx, p, id)
	if err != nil {
		return e, err
	}
	events, err := s.through([]event.Recorded{e}, false, nil)
	return events[0], err
}

// each changes every event that is read.
func each(w *wrapper, change func(e *event.Recorded)) *readBroken {
	return &readBroken{wrapper: w, page: func(events []event.Recorded, _ bool) []event.Recorded {
		for i := range events {
			change(&events[i])
		}
		return events
	}}
}

func reorderPage(w *wrapper) conformance.Store {
	return &readBroken{wrapper: w, page: func(events []event.Recorded, _ bool) []event.Recorded {
		if n := len(events); n > 2 {
			events[n-1], events[n-2] = events[n-2], events[n-1]
		}
		return events
	}}
}

func nilResults(w *wrapper) conformance.Store {
	return &readBroken{wrapper: w, page: func(events []event.Recorded, _ bool) []event.Recorded {
		if len(events) == 0 {
			return nil
		}
		return events
	}}
}

func overlapPages(w *wrapper) conformance.Store {
	return &readBroken{wrapper: w, before: func(q *ports.EventQuery) {
		if q.After > 0 && q.Direction == ports.Forward {
			q.After--
		}
	}}
}

// skipSequence leaves the fourth sequence of every partition out.
func skipSequence(w *wrapper) conformance.Store {
	shift := func(n event.Sequence) event.Sequence {
		if n > 3 {
			return n + 1
		}
		return n
	}
	s := each(w, func(e *event.Recorded) { e.Sequence = shift(e.Sequence) })
	s.append = func(r ports.AppendResult) ports.AppendResult {
		r.Head = shift(r.Head)
		for i := range r.Events {
			r.Events[i].Sequence = shift(r.Events[i].Sequence)
		}
		return r
	}
	return s
}

// backInTime records the time of the clock even when earlier events are later.
func backInTime(w *wrapper) conformance.Store {
	var mu sync.Mutex
	clock := map[event.ID]time.Time{}
	s := each(w, func(e *event.Recorded) {
		mu.Lock()
		defer mu.Unlock()
		e.RecordedAt = clock[e.ID]
	})
	s.append = func(r ports.AppendResult) ports.AppendResult {
		mu.Lock()
		defer mu.Unlock()
		for i := range r.Events {
			clock[r.Events[i].ID] = event.Micros(w.clock.Now())
			r.Events[i].RecordedAt = clock[r.Events[i].ID]
		}
		return r
	}
	return s
}

func breakChain(w *wrapper) conformance.Store {
	return each(w, func(e *event.Recorded) {
		if e.Sequence == 2 {
			e.ActorID += "x"
		}
	})
}

func changePayload(w *wrapper) conformance.Store {
	return each(w, func(e *event.Recorded) {
		e.Payload = bytes.ReplaceAll(e.Payload, []byte(`"data":`), []byte(`"data" :`))
	})
}

// shareSlices gives readers the payload slice of the writer.
func shareSlices(w *wrapper) conformance.Store {
	var mu sync.Mutex
	given := map[event.ID][]byte{}
	return &sharing{readBroken: each(w, func(e *event.Recorded) {
		mu.Lock()
		defer mu.Unlock()
		if b, ok := given[e.ID]; ok && e.Payload != nil {
			e.Payload = b
		}
	}), keep: func(r ports.AppendRequest) {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range r.Events {
			if len(e.Series) == 0 {
				given[e.ID] = e.Payload
			}
		}
	}}
}

type sharing struct {
	*readBroken
	keep func(r ports.AppendRequest)
}

func (s *sharing) Append(ctx context.Context, r ports.AppendRequest) (ports.AppendResult, error) {
	s.keep(r)
	return s.readBroken.Append(ctx, r)
}

// projectionBroken changes the handler on its way to the sound store.
type projectionBroken struct {
	*wrapper
	handler func(ports.ProjectionHandler) ports.ProjectionHandler
}

func (s *projectionBroken) Advance(ctx context.Context, a ports.ProjectionAdvance, h ports.ProjectionHandler) (ports.Checkpoint, int, error) {
	kept := &keptError{ProjectionHandler: h}
	c, passed, err := s.wrapper.Advance(ctx, a, s.handler(kept))
	return c, passed, errors.Join(err, kept.err)
}

// keptError remembers what the handler returned.
type keptError struct {
	ports.ProjectionHandler
	err error
}

func (k *keptError) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	k.err = k.ProjectionHandler.Apply(ctx, tx, b)
	return k.err
}

type handlerFunc func(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error

func (f handlerFunc) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return f(ctx, tx, b)
}

// swallowHandlerError reports the handler's error but commits all the same.
func swallowHandlerError(w *wrapper) conformance.Store {
	return &projectionBroken{w, func(h ports.ProjectionHandler) ports.ProjectionHandler {
		return handlerFunc(func(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
			_ = h.Apply(ctx, tx, b)
			return nil
		})
	}}
}

func applyTwice(w *wrapper) conformance.Store {
	return &projectionBroken{w, func(h ports.ProjectionHandler) ports.ProjectionHandler {
		return handlerFunc(func(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
			if err := h.Apply(ctx, tx, b); err != nil {
				return err
			}
			return h.Apply(ctx, tx, b)
		})
	}}
}
