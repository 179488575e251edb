package redaction

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	maxWork = 1000             // requests per poll, the oldest first
	maxWait = 30 * time.Second // for a projection that is behind, until the attempt counts as failed
)

// Worker executes approved requests. Several workers, on several nodes, may work on one store:
// a request moves from a revision only once. A step that fails is repeated for ever, after pauses
// that grow from a second to a minute.
type Worker struct {
	requests.Signal
	config   Config
	swept    time.Time        // when it last looked for calls that died
	recorded map[event.ID]int // revisions of requests with a step to run whose event is in the log
}

// NewWorker makes a Worker. It refuses periods that are not positive.
func NewWorker(c Config) (*Worker, error) {
	return &Worker{Signal: requests.NewSignal(), config: c}, c.check()
}

// Run executes requests until ctx ends.
func (w *Worker) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.Signal:
		}
		if ctx.Err() != nil {
			return
		}
		w.Work(ctx)
		timer.Reset(w.config.Poll)
	}
}

// Work advances every request that has a step to run now, the oldest first.
func (w *Worker) Work(ctx context.Context) {
	if now := w.config.Clock.Now(); now.Sub(w.swept) >= sweepEvery {
		w.swept = now
		if err := w.config.recordLeft(ctx); err != nil && ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "moves of redactions could not be recorded", "code", fault.CodeOf(err))
		}
	}
	work, err := w.config.Redactions.RedactionWork(ctx, maxWork)
	if err != nil {
		if ctx.Err() == nil {
			w.config.Logger.WarnContext(ctx, "redaction requests could not be read", "code", fault.CodeOf(err))
		}
		return
	}
	recorded := make(map[event.ID]int, len(work))
	for _, r := range work {
		recorded[r.ID] = w.recorded[r.ID]
	}
	w.recorded = recorded
	for _, r := range work {
		if ctx.Err() != nil {
			return
		}
		if r.Attempts == 0 || !w.config.Clock.Now().Before(r.UpdatedAt.Add(requests.Backoff(r.Attempts))) {
			w.advance(ctx, r)
		}
	}
}

// advance runs step after step until the request has ended, waits or fails.
func (w *Worker) advance(ctx context.Context, r ports.RedactionRequest) {
	for r.State == shredding.RedactionApproved || r.State.CarriedOut() && !r.State.Final() {
		next, err := w.runStep(ctx, r)
		switch code := fault.CodeOf(err); {
		case ctx.Err() != nil, code == shredding.CodeRedactionChanged: // another worker, or a person, moved it first
			return
		case code == projection.CodeTargetBehind || code == projection.CodeBusy:
			if w.config.Clock.Now().Sub(r.UpdatedAt) >= maxWait { // such as one that is halted
				w.noteFailure(ctx, r, code)
			}
			return // the next poll tries again
		case err != nil:
			w.noteFailure(ctx, r, code)
			return
		}
		kind.LogMove(ctx, w.config.Logger, r.ID, string(r.State), string(next.State))
		r = next
	}
}

func (w *Worker) noteFailure(ctx context.Context, r ports.RedactionRequest, code string) {
	attempts, err := w.config.Redactions.NoteRedactionFailure(ctx, r.Partition, r.ID, code)
	if err != nil { // the store is unavailable too
		attempts = r.Attempts + 1
	}
	kind.LogFailure(ctx, w.config.Logger, r.ID, string(r.State), code, attempts)
}

// runStep runs one step and turns a panic into a failure of the request.
func (w *Worker) runStep(ctx context.Context, r ports.RedactionRequest) (next ports.RedactionRequest, err error) {
	panicked := fault.New(fault.Internal, "redaction.panicked", "the step panicked; look for the stack in the server's log, then report this defect")
	defer kind.RecoverStep(ctx, w.config.Logger, r.ID, string(r.State), panicked, &err)
	return w.config.step(ctx, r, w.recorded)
}

// step runs the step that follows a request's state, and records the state that it reaches. If
// the process dies in between, the next step records it first. recorded has the revisions that this
// process has recorded, which step raises.
func (c Config) step(ctx context.Context, r ports.RedactionRequest, recorded map[event.ID]int) (ports.RedactionRequest, error) {
	all, err := c.entities(ctx, r.TenantID)
	if err != nil {
		return r, err
	}
	if err := c.recordOnce(ctx, all, r, recorded); err != nil {
		return r, err
	}
	next, err := c.takeStep(ctx, all, r)
	if err != nil {
		return next, err
	}
	return next, c.recordOnce(ctx, all, next, recorded)
}

func (c Config) recordOnce(ctx context.Context, all entities, r ports.RedactionRequest, recorded map[event.ID]int) error {
	if r.Revision == recorded[r.ID] {
		return nil
	}
	if _, err := c.adopt(ctx, r.TenantID); err != nil {
		return err
	}
	if err := c.record(ctx, event.Actor{}, all, r); err != nil {
		return err
	}
	recorded[r.ID] = r.Revision
	return nil
}

// takeStep moves a request on. Each case is one transaction, or repeatable calls and then one: if
// the process dies, any worker runs the step again.
func (c Config) takeStep(ctx context.Context, all entities, r ports.RedactionRequest) (_ ports.RedactionRequest, err error) {
	le, found := all.byPartition(r.Partition)
	if !found {
		return r, fault.New(fault.Internal, "legal_entity.not_found", "partition %d has no legal entity any more; compare the directory with its backup", r.Partition)
	}
	switch r.State {
	case shredding.RedactionApproved:
		if c.Archive != nil {
			if err := c.Archive.Forget(ctx, le, r.Sequence); err != nil {
				return r, err
			}
		}
		return c.carryOut(ctx, r)
	case shredding.RedactionRedacted:
		if err := c.announce(ctx, le, r); err != nil {
			return r, err
		}
		r.State = shredding.RedactionAnnounced
	case shredding.RedactionAnnounced:
		if r.Results, err = c.recompute(ctx, le, r); err != nil {
			return r, err
		}
		r.State = shredding.RedactionRebuilt
	case shredding.RedactionRebuilt:
		if err := c.certify(ctx, le, r); err != nil {
			return r, err
		}
		r.State = shredding.RedactionCompleted
	default:
		return r, nil
	}
	return c.Redactions.MoveRedaction(ctx, r)
}

// carryOut checks the rules again and replaces the payload. If the event has changed since the
// preview, the request goes back to previewed without its approval; if the rules refuse it now,
// it ends as refused; if the approval is too old, as expired.
func (c Config) carryOut(ctx context.Context, r ports.RedactionRequest) (ports.RedactionRequest, error) {
	e, err := c.Events.EventByID(ctx, r.Partition, r.EventID)
	if err != nil {
		return r, err
	}
	if err := c.checkVouched(ctx, e); err != nil {
		return r, err
	}
	to := ports.RedactedPayload{OldHash: event.HashPayload(e.Salt, e.Payload), Salt: c.IDs.NewSalt()}
	if to.Payload, err = c.Rules.redact(ctx, e, r.Pointers); err != nil {
		if isRefusal(err) {
			r.State, r.EndReason = shredding.RedactionRefused, fault.CodeOf(err)
			return c.Redactions.MoveRedaction(ctx, r)
		}
		return r, err
	}
	if to.OldHash != r.Scope {
		if r, err = c.preview(ctx, r); err != nil {
			return r, err
		}
		r.State = shredding.RedactionPreviewed
		return c.Redactions.MoveRedaction(ctx, r)
	}
	if c.Clock.Now().Sub(r.ApprovedAt) >= shredding.ApprovalValidity {
		return c.expire(ctx, r)
	}
	if err := c.requireApproval(ctx, r); err != nil {
		return r, err
	}
	to.NewHash = event.HashPayload(to.Salt, to.Payload)
	switch _, err := c.Redactions.RedactPayload(ctx, r, to); fault.CodeOf(err) {
	case "":
	case shredding.CodeApprovalExpired: // by the store's clock
		return c.expire(ctx, r)
	case shredding.CodeNotApproved: // it was withdrawn
		return r, shredding.RedactionChanged()
	default:
		return r, err
	}
	return c.Redactions.RedactionRequest(ctx, r.TenantID, r.ID)
}

func (c Config) expire(ctx context.Context, r ports.RedactionRequest) (ports.RedactionRequest, error) {
	r.State, r.EndReason = shredding.RedactionExpired, shredding.CodeApprovalExpired
	return c.Redactions.MoveRedaction(ctx, r)
}

// checkVouched requires that the stored payload is the one that the log vouches for: that which was
// appended, or which the last redaction left. Fault redaction.event_changed.
func (c Config) checkVouched(ctx context.Context, e event.Recorded) error {
	vouched := e.PayloadHash
	if len(e.Redactions) > 0 {
		all, err := c.Redactions.Redactions(ctx, e.Partition)
		if err != nil {
			return err
		}
		for _, x := range all { // the oldest first
			if x.Sequence == e.Sequence {
				vouched = x.NewPayloadHash
			}
		}
	}
	if event.HashPayload(e.Salt, e.Payload) != vouched {
		return shredding.RedactionEventChanged()
	}
	return nil
}

// isRefusal reports whether a fault is a decision of the rules, and no failure.
func isRefusal(err error) bool {
	return slices.Contains([]string{
		codeNotRedactable, "redaction.schema_violated", "redaction.sealed", "redaction.repeated", "redaction.pointer_invalid",
		"redaction.pointer_personal", "redaction.event_not_found",
	}, fault.CodeOf(err))
}

// redactionOf returns the record of a request that was carried out.
func (c Config) redactionOf(ctx context.Context, r ports.RedactionRequest) (ports.Redaction, error) {
	all, err := c.Redactions.Redactions(ctx, r.Partition)
	if err != nil {
		return ports.Redaction{}, err
	}
	i := slices.IndexFunc(all, func(x ports.Redaction) bool { return x.ID == r.ID })
	if i < 0 {
		return ports.Redaction{}, fault.New(fault.Internal, "redaction.record_missing", "the request is carried out, but its redaction has no record; run `backbone verify`")
	}
	return all[i], nil
}

// announcedAt returns the sequence of the event of a redaction, 0 if there is none yet.
func (c Config) announcedAt(ctx context.Context, r ports.RedactionRequest) (event.Sequence, error) {
	found, err := c.Events.EventsOfStream(ctx, r.Partition, streamOf(r.ID), 1, 1)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0].Sequence, nil
}

// redacted is the data of EventType.
type redacted struct {
	ID          event.ID       `json:"redaction_id"`
	EventID     event.ID       `json:"event_id"`
	Sequence    event.Sequence `json:"sequence"`
	Pointers    []string       `json:"pointers"`
	Reason      string         `json:"reason"`
	Old         string         `json:"old_payload_hash"`
	New         string         `json:"new_payload_hash"`
	RequestedBy string         `json:"requested_by"`
	ApprovedBy  string         `json:"approved_by"`
}

// announce appends the event unless the log has it. Its stream must not exist, so the log
// never has it twice, even after the idempotency key has expired.
func (c Config) announce(ctx context.Context, le ports.LegalEntity, r ports.RedactionRequest) error {
	if at, err := c.announcedAt(ctx, r); err != nil || at > 0 {
		return err
	}
	x, err := c.redactionOf(ctx, r)
	if err != nil {
		return err
	}
	data, err := json.Marshal(redacted{
		x.ID, x.EventID, x.Sequence, x.Pointers, x.Reason, hex.EncodeToString(x.OldPayloadHash[:]), hex.EncodeToString(x.NewPayloadHash[:]),
		x.RequestedBy, x.ApprovedBy,
	})
	if err != nil {
		return err
	}
	return c.Announcer.Announce(ctx, ports.Announcement{
		LegalEntity: le,
		Draft: event.Draft{
			Type: EventType, SchemaVersion: 1, OccurredAt: event.Micros(x.RedactedAt), EffectiveDate: le.Today(x.RedactedAt), Stream: streamOf(x.ID),
			CorrelationID: x.ID.String(), CausedBy: x.EventID, Data: json.RawMessage(data), Source: event.Source{System: "backbone", Channel: "redaction"},
		},
		IdempotencyKey: "redaction:" + x.ID.String(),
		Fingerprint:    event.HashPayload(event.Salt(x.ID), data),
	})
}

// recompute recomputes the rows of the event's entity in the read models. Every version must
// have passed the announcement: an earlier one may still write rows of the old payload.
func (c Config) recompute(ctx context.Context, le ports.LegalEntity, r ports.RedactionRequest) (json.RawMessage, error) {
	e, err := c.Events.EventByID(ctx, r.Partition, r.EventID)
	if err != nil {
		return nil, err
	}
	passed, err := c.announcedAt(ctx, r)
	if err != nil {
		return nil, err
	}
	out := results{ToRebuild: []string{}}
	left, err := c.ReadModels.RecomputeReaders(ctx, e.Type, le, e.Stream, passed)
	if err != nil {
		return nil, err
	}
	out.ToRebuild = append(out.ToRebuild, left...)
	return json.Marshal(out)
}
