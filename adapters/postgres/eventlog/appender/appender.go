package appender

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// Append implements ports.EventAppender. The request waits in the queue of its
// partition's appender and shares a transaction with other requests; a refusal, or a value
// that PostgreSQL rejects, fails this request only.
//
// If ctx ends while the request waits in the queue or in a stalled partition, nothing is
// written and Append returns ctx's error. If ctx ends while a group runs the request, which
// includes the group's own short wait for a lock, Append returns append.outcome_unknown: all of
// the request or nothing may have been written. The metrics count every request that was queued,
// or refused by a full queue.
//
// store.unavailable is also the fault of a request whose partition's lock another session held
// for Limits.LockTimeout, or for a shorter time when too many requests wait for such locks
// already.
func (s *Engine) Append(ctx context.Context, r ports.AppendRequest) (result ports.AppendResult, err error) {
	if err := ctx.Err(); err != nil {
		return ports.AppendResult{}, err
	}
	if f := r.CheckIntent(); f != nil {
		return ports.AppendResult{}, f
	}
	started := time.Now()
	defer func() {
		code := fault.CodeOf(err)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			code = codeOutcomeUnknown // the caller left, so it has no answer
		}
		s.metrics.ObserveAppend(time.Since(started), len(r.Events), code)
	}()
	w := &queuedRequest{request: &r, queuedAt: started, answer: make(chan answer, 1)}
	for i := range r.Events {
		w.bytes += r.Events[i].Size()
	}
	if r.Intent != nil {
		encoded, err := encodeIntent(&r.Intent.Intent)
		if err != nil {
			return ports.AppendResult{}, err
		}
		w.intent = encoded
		w.bytes += encoded.size()
	}
	a := s.appenders[hashPartition(r.Partition)%uint32(len(s.appenders))]
	if err := a.queue.push(w); err != nil {
		return ports.AppendResult{}, err
	}
	select {
	case got := <-w.answer:
		return got.result, got.err
	case <-ctx.Done():
	}
	for !w.state.CompareAndSwap(stateTaken, stateCallerGone) {
		if w.state.CompareAndSwap(stateQueued, stateAbandoned) {
			return ports.AppendResult{}, ctx.Err()
		}
	}
	select { // the appender may have answered at the same moment
	case got := <-w.answer:
		return got.result, got.err
	default:
		return ports.AppendResult{}, outcomeUnknownFault(&r).WithCause(ctx.Err())
	}
}

// Codes of the engine's own faults. Those of unmet expectations are in package concurrency.
const (
	codeQueueFull      = "append.queue_full"
	codeOutcomeUnknown = "append.outcome_unknown"
	codeRejected       = "append.rejected_by_store"
	codeClockSkew      = "append.clock_skew"
	codeShuttingDown   = "append.shutting_down"
)

func outcomeUnknownFault(r *ports.AppendRequest) *fault.Error {
	f := fault.New(fault.Timeout, codeOutcomeUnknown,
		"it is not known whether the events were written; send the same request with the same idempotency key again to find out")
	if r.Idempotency != nil {
		f = f.With("idempotency_key", r.Idempotency.Key)
	}
	return f
}

// hashPartition spreads partition ids, whose upper bits are all the same, evenly
// over the appenders (the finaliser of MurmurHash3).
func hashPartition(p event.PartitionID) uint32 {
	h := uint32(p)
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// appender gathers requests into groups and runs one group at a time, in a goroutine. Groups of
// its stalled partitions run beside it, in slots.
type appender struct {
	engine *Engine
	number int
	queue  *queue
	done   chan struct{}
	group  group
}

func startAppender(s *Engine, number int) *appender {
	a := &appender{
		engine: s, number: number, done: make(chan struct{}),
		queue: newQueue(&s.limits),
	}
	a.queue.startServing = func(d *stalledPartition) { go a.serveStalled(d) }
	a.group.init(s)
	go a.run()
	return a
}

func (a *appender) run() {
	defer close(a.done)
	var taken []*queuedRequest
	for {
		taken = a.queue.waitForGroup(taken)
		if taken == nil {
			return
		}
		deadline := time.Now().Add(a.engine.limits.LockTimeout)
		for _, w := range a.queue.stall(a.group.run(taken, true), deadline) {
			w.answer <- answer{err: lockedFault(a.engine.lockWait())}
		}
		clear(taken)
		requests, bytes := a.queue.depth()
		a.engine.metrics.ObserveQueue(a.number, requests, bytes)
	}
}

// encodedIntent holds the JSON columns of an intent, encoded on the caller's
// goroutine.
type encodedIntent struct {
	actorDetails, need, approvals, refusal []byte
	payload, rules                         []byte
}

// size estimates the intent's share of the queue's bytes: 512 for its short columns.
func (e *encodedIntent) size() int {
	return 512 + len(e.actorDetails) + len(e.need) + len(e.approvals) + len(e.refusal) + len(e.payload) + len(e.rules)
}

func encodeIntent(i *intent.Intent) (*encodedIntent, error) {
	e := &encodedIntent{payload: i.Payload, rules: i.Rules}
	var err error
	encode := func(dst *[]byte, present bool, v any) {
		if present && err == nil {
			*dst, err = json.Marshal(v)
		}
	}
	encode(&e.actorDetails, !i.Actor.Details.IsZero(), i.Actor.Details)
	encode(&e.need, len(i.Needs) > 0, i.Needs)
	encode(&e.approvals, len(i.Approvals) > 0, i.Approvals)
	encode(&e.refusal, i.Refusal != nil, i.Refusal)
	if err != nil {
		return nil, fault.New(fault.Internal, codeRejected, "the intent cannot be encoded; report this").WithCause(err)
	}
	return e, nil
}
