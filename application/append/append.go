// Package append writes batches of events to the log without an intent, a caller's request that a
// module plans: for services that own their event types, for importers, and for the log's own
// events. What the built-in modules decide goes through application/pipeline.
//
// Preparer checks drafts against the registered types and encodes them: it builds business keys
// and the keys of the key index, seals personal values and hashes each payload once. Service adds
// idempotency, retries and the recreation of streams. The HTTP API calls Service, and so do
// application/streams and application/erasure; application/pipeline uses Preparer only. The package
// never decides what depends on committed state (expected versions, duplicate keys, deletions):
// ports.EventAppender does, under its lock.
//
// Two refusals by ports.EventAppender are tried again here. After pii.key_moved, when a subject
// key has a newer version or was busy, Service seals again, a few times (module.RetryWhileKeysMove);
// then the caller gets that fault. A deleted stream, unlike a tombstoned one, which has ended for
// good, takes events again after a recreation event, which Service adds. Of two writers that
// recreate one stream at once, both batches are written, and one recreation. All other refusals go
// to the caller; a refused batch does not use up its idempotency key.
package append

import (
	"cmp"
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

// Service appends batches of events that no intent has planned. Business changes go
// through application/pipeline.
type Service struct{ config Config }

// Config is what a Service needs.
type Config struct {
	Preparer     *Preparer
	Appender     ports.EventAppender
	Events       ports.EventReader
	Idempotency  ports.IdempotencyReader
	Clock        ports.Clock
	IDs          ports.IDSource
	KeyTTL       time.Duration       // how long an idempotency key is remembered
	Fingerprints module.Fingerprints // of requests; nil, in tests: their plain digests
}

// NewService makes a Service.
func NewService(c Config) *Service { return &Service{c} }

// Request is one batch with its preconditions.
type Request struct {
	LegalEntity ports.LegalEntity
	Actor       event.Actor
	PersonID    string // the principal that scopes IdempotencyKey
	Drafts      []event.Draft
	Streams     []concurrency.StreamExpectation
	Entities    []concurrency.EntityExpectation
	Conditions  []concurrency.AppendCondition
	Roles       []string // of the caller, checked against access lists of streams; nil: the log itself, which passes every list
	// AllowUnknownCause takes causes that may be in no log, of imports.
	AllowUnknownCause bool
	IdempotencyKey    string
	Digest            event.Hash // of the content, plain; needed only with a key
}

// Append validates the batch and writes all of it or nothing. replayed is true if the
// idempotency key was used before: the receipts are then those of the first request. A
// deleted stream that the batch writes to is recreated, unless the batch expects the
// stream to exist; the receipts list the caller's events only. Faults:
// those of Preparer.Prepare, ports.EventAppender, module.Fingerprints, module.CheckCauses,
// append.batch_empty, idempotency.key_invalid, pii.in_identifier (in the key).
func (s *Service) Append(ctx context.Context, r Request) (receipts []ports.AppendedEvent, replayed bool, err error) {
	if len(r.Drafts) == 0 {
		return nil, false, fault.New(fault.Invalid, "append.batch_empty", "a batch needs at least one event; add it").WithField("/events")
	}
	now := event.Micros(s.config.Clock.Now())
	req := ports.AppendRequest{Partition: r.LegalEntity.Partition, Streams: r.Streams, Entities: r.Entities, Conditions: r.Conditions, Roles: r.Roles}
	if r.IdempotencyKey != "" {
		req.Idempotency, err = s.makeIdempotencyClaim(ctx, r, now)
		if err != nil {
			return nil, false, err
		}
		first, found, err := s.config.Idempotency.IdempotencyOutcome(ctx, req.Partition, req.Idempotency.Key, now)
		if err != nil {
			return nil, false, err
		}
		if found {
			if f := req.Idempotency.Check(first.StoredHash); f != nil {
				return nil, false, f
			}
			receipts, err := s.readReceipts(ctx, req.Partition, first)
			return receipts, true, err
		}
	}
	if err := s.checkCauses(ctx, r); err != nil {
		return nil, false, err
	}
	today := r.LegalEntity.Today(now)
	correlation := s.config.IDs.NewID(now).String()
	drafts := slices.Clone(r.Drafts)
	for i := range drafts {
		if drafts[i].EffectiveDate == 0 {
			drafts[i].EffectiveDate = today
		}
	}
	res, err := s.prepareAndAppend(ctx, req, module.Batch{
		Drafts: drafts, LegalEntity: r.LegalEntity, Actor: r.Actor, CorrelationID: correlation,
		Source: event.Source{System: "backbone", Channel: "api"}, Now: now,
	})
	if err != nil {
		return nil, false, err
	}
	if res.Replayed {
		receipts, err := s.readReceipts(ctx, req.Partition, res.Outcome)
		return receipts, true, err
	}
	return dropRecreations(res.Events), false, nil
}

// checkCauses refuses unknown causes. Events are never removed from the log, so what it finds still
// holds when the batch is written.
func (s *Service) checkCauses(ctx context.Context, r Request) error {
	if r.AllowUnknownCause {
		return nil
	}
	var causes []ports.Cause
	var drafts []int
	for i := range r.Drafts {
		if d := &r.Drafts[i]; d.CausedBy != (event.ID{}) {
			causes = append(causes, ports.Cause{Partition: cmp.Or(d.CausedByPartition, r.LegalEntity.Partition), ID: d.CausedBy})
			drafts = append(drafts, i)
		}
	}
	if unknown, err := module.CheckCauses(ctx, s.config.Events, causes...); err != nil {
		return prependListIndex(err, "/events/", drafts[unknown])
	}
	return nil
}

// prepareAndAppend prepares a batch and appends it. It retries with fresh subject keys after
// shredding.CodeKeyMoved, with a recreation when a stream proves to be deleted, and
// without that recreation when another writer recreated the stream first.
func (s *Service) prepareAndAppend(ctx context.Context, req ports.AppendRequest, b module.Batch) (ports.AppendResult, error) {
	recreations := newStreamRecreator(b, req.Streams)
	return module.RetryWhileKeysMove(ctx, func() (res ports.AppendResult, err error) {
		for {
			if req.Events, err = s.config.Preparer.Prepare(ctx, b); err != nil {
				return res, err
			}
			if req.Events, err = recreations.prepend(ctx, s.config.Preparer, req.Events); err != nil {
				return res, err
			}
			if err = module.BindRequest(&req); err != nil {
				return res, err
			}
			if res, err = s.config.Appender.Append(ctx, req); recreations.learnFrom(err) {
				continue
			}
			if fault.CodeOf(err) == shredding.CodeKeyMoved {
				s.config.Preparer.forgetSubjectKeys(req.Partition, req.Events)
			}
			return res, err
		}
	})
}

// makeIdempotencyClaim ties the request's content to its key.
func (s *Service) makeIdempotencyClaim(ctx context.Context, r Request, now time.Time) (*ports.IdempotencyClaim, error) {
	key, err := concurrency.ScopeIdempotencyKey(r.PersonID, "events", r.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	claim := &ports.IdempotencyClaim{Key: key, ExpiresAt: now.Add(s.config.KeyTTL)}
	return claim, module.SetFingerprint(ctx, s.config.Fingerprints, r.LegalEntity.TenantID, claim, r.Digest, s.config.Preparer.mayHoldPersonalData(ctx, r.LegalEntity.TenantID, r.Drafts))
}

// readReceipts rebuilds the receipts of the first request from the log. A batch has events, so
// o.FirstSequence is not 0.
func (s *Service) readReceipts(ctx context.Context, p event.PartitionID, o ports.IdempotencyOutcome) ([]ports.AppendedEvent, error) {
	receipts, err := module.ReadReceipts(ctx, s.config.Events, p, o.FirstSequence, o.EventCount)
	return dropRecreations(receipts), err
}
