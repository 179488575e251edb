package append

import (
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Service is the raw door to the log, for services with their own event types and
// for migrations. Business changes go through intents.
type Service struct {
	preparer    *Preparer
	appender    ports.EventAppender
	events      ports.EventReader
	idempotency ports.IdempotencyReader
	clock       ports.Clock
	ids         ports.IDSource
	keyTTL      time.Duration

	fingerprints module.Fingerprints
}

// ServiceOption is an optional part of a Service.
type ServiceOption func(*Service)

// WithFingerprints stores fingerprints of requests under a secret of the tenant.
// Without, they are stored as they come, which is for tests.
func WithFingerprints(f module.Fingerprints) ServiceOption {
	return func(s *Service) { s.fingerprints = f }
}

// NewService makes a Service. keyTTL is how long an idempotency key is remembered.
func NewService(
	p *Preparer, a ports.EventAppender, e ports.EventReader, i ports.IdempotencyReader, c ports.Clock, ids ports.IDSource, keyTTL time.Duration,
	options ...ServiceOption,
) *Service {
	s := &Service{preparer: p, appender: a, events: e, idempotency: i, clock: c, ids: ids, keyTTL: keyTTL}
	for _, o := range options {
		o(s)
	}
	return s
}

// reseals is how often values are sealed again because a key had moved.
const reseals = 3

// Request is a batch as asked for.
type Request struct {
	LegalEntity    ports.LegalEntity
	Actor          event.Actor
	PersonID       string
	Drafts         []event.Draft
	Streams        []concurrency.StreamExpectation
	Entities       []concurrency.EntityExpectation
	Conditions     []concurrency.AppendCondition
	Roles          []string // of the caller, for access lists of streams; nil: the log itself
	IdempotencyKey string
	Fingerprint    event.Hash // of the content, when a key is given
}

// Append validates the batch and writes it, all or nothing. replayed says that
// the idempotency key was known and the first receipts are given again. A deleted
// stream that the batch writes to is recreated, unless the batch demands that it
// exists; the receipts are those of the drafts. Faults:
// those of Preparer.Prepare, ports.EventAppender, module.Fingerprints,
// append.batch_empty, idempotency.key_invalid.
func (s *Service) Append(ctx context.Context, r Request) (receipts []ports.AppendedEvent, replayed bool, err error) {
	if len(r.Drafts) == 0 {
		return nil, false, fault.New(fault.Invalid, "append.batch_empty", "a batch needs at least one event; add it").WithField("/events")
	}
	now := event.Micros(s.clock.Now())
	req := ports.AppendRequest{Partition: r.LegalEntity.Partition, Streams: r.Streams, Entities: r.Entities, Conditions: r.Conditions, Roles: r.Roles}
	if r.IdempotencyKey != "" {
		req.Idempotency, err = s.claim(ctx, r, now)
		if err != nil {
			return nil, false, err
		}
		first, found, err := s.idempotency.IdempotencyOutcome(ctx, req.Partition, req.Idempotency.Key, now)
		if err != nil {
			return nil, false, err
		}
		if found {
			if f := req.Idempotency.Check(first.Fingerprint); f != nil {
				return nil, false, f
			}
			receipts, err := s.receipts(ctx, req.Partition, first)
			return receipts, true, err
		}
	}
	today := r.LegalEntity.Today(now)
	correlation := s.ids.NewID(now).String()
	drafts := slices.Clone(r.Drafts)
	for i := range drafts {
		if drafts[i].EffectiveDate == 0 {
			drafts[i].EffectiveDate = today
		}
	}
	res, err := s.write(ctx, req, module.Batch{
		Drafts: drafts, LegalEntity: r.LegalEntity, Actor: r.Actor, CorrelationID: correlation,
		Source: event.Source{System: "backbone", Channel: "api"}, Now: now,
	})
	if err != nil {
		return nil, false, err
	}
	if res.Replayed {
		receipts, err := s.receipts(ctx, req.Partition, res.Outcome)
		return receipts, true, err
	}
	return withoutRecreations(res.Events), false, nil
}

// write prepares a batch and appends it: again with fresh keys if one had moved, and
// again with the recreation of a stream that turned out to be deleted, or without it
// if somebody else was faster.
func (s *Service) write(ctx context.Context, req ports.AppendRequest, b module.Batch) (res ports.AppendResult, err error) {
	anew := newRecreations(b, req.Streams)
	for try := 0; ; {
		if req.Events, err = s.preparer.Prepare(ctx, b); err != nil {
			return res, err
		}
		if req.Events, err = anew.before(ctx, s.preparer, req.Events); err != nil {
			return res, err
		}
		res, err = s.appender.Append(ctx, req)
		if anew.learn(err) {
			continue
		}
		if fault.CodeOf(err) != shredding.CodeKeyMoved || try == reseals {
			return res, err
		}
		try++
		s.preparer.forget(req.Partition, req.Events)
		if moved, ok := fault.As(err); ok && !pause(ctx, moved.RetryAfter) {
			return res, err
		}
	}
}

// pause waits for the time that the store asks for; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *Service) claim(ctx context.Context, r Request, now time.Time) (*ports.IdempotencyClaim, error) {
	key, err := concurrency.ScopeIdempotencyKey(r.PersonID, "events", r.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	claim := &ports.IdempotencyClaim{Key: key, ExpiresAt: now.Add(s.keyTTL)}
	if !s.preparer.personal(ctx, r.Drafts) {
		claim.Digest = r.Fingerprint
	}
	if s.fingerprints == nil {
		claim.Fingerprint = r.Fingerprint
		return claim, nil
	}
	fingerprint, err := s.fingerprints.Fingerprint(ctx, r.LegalEntity.TenantID, r.Fingerprint)
	switch {
	case err == nil:
		claim.Fingerprint = fingerprint
	case claim.Digest == (event.Hash{}):
		return nil, err
	}
	return claim, nil // without the secret, what holds no personal data goes on
}

// receipts gives the first request's answer again.
func (s *Service) receipts(ctx context.Context, p event.PartitionID, o ports.IdempotencyOutcome) ([]ports.AppendedEvent, error) {
	events, err := s.events.Events(ctx, ports.EventQuery{
		Partition: p, After: o.FirstSequence - 1, Until: o.FirstSequence + event.Sequence(o.EventCount) - 1, Limit: o.EventCount, WithoutData: true,
	})
	if err != nil {
		return nil, err
	}
	out := make([]ports.AppendedEvent, len(events))
	for i, e := range events {
		out[i] = ports.AppendedEvent{
			ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream, StreamVersion: e.StreamVersion, RecordedAt: e.RecordedAt, Checksum: e.Checksum,
		}
	}
	return withoutRecreations(out), nil
}
