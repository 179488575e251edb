// Package pipeline is what happens to a request: an intent is validated, planned,
// approved and executed. Each step is visible in the stored intent, refusals
// included.
package pipeline

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Preparer makes drafts ready for the store.
type Preparer interface {
	Prepare(ctx context.Context, b module.Batch) ([]event.Prepared, error)
}

// Catalog finds declared intents and folds.
type Catalog interface {
	Folds
	Intent(name string) (module.IntentType, bool)
}

// Log is what planners see.
type Log interface {
	ports.EventReader
	ports.StreamReader
	ports.MatchReader
}

// Config is what a Service needs.
type Config struct {
	Catalog     Catalog
	Schemas     ports.SchemaCompiler
	Policies    ports.PolicyEngine
	Preparer    Preparer
	Appender    ports.EventAppender
	Events      Log
	Intents     ports.IntentReader
	Idempotency ports.IdempotencyReader
	Clock       ports.Clock
	IDs         ports.IDSource
	Retries     []time.Duration // waits before planning again after a conflict
	KeyTTL      time.Duration   // life of an idempotency key
	KeptStreams int             // bound of the state cache
	Logger      *slog.Logger

	// Snapshots keeps the states of long streams whose folds have a codec, taken every
	// so many events by Background; nil keeps none. They save time and decide nothing:
	// every version that a plan read is checked again under the append lock.
	Snapshots     ports.StreamSnapshots
	Background    Background
	SnapshotEvery int // 0 is 100
	// Reading names how events of earlier versions are read; what was folded when it was
	// another is folded anew. nil: they are read as they are stored.
	Reading func() string

	// Sealer and Opener keep personal values of payloads out of the store; without them
	// intents that have some are refused with pii.keys_missing. Fingerprints key what is
	// stored about requests and plans; without, they are digests, which is for tests.
	Sealer       module.Sealer
	Opener       module.Opener
	Fingerprints module.Fingerprints
}

// Service is the pipeline.
type Service struct {
	Config
	states *States

	schemaMu sync.RWMutex
	schemas  map[string]ports.Schema

	submitMu sync.RWMutex
	submits  map[string]bool // module, intent type and roles → may submit

	running sync.Map // idempotency keys under way on this node
}

// New makes a Service.
func New(c Config) *Service {
	if c.KeptStreams == 0 {
		c.KeptStreams = 100_000
	}
	if c.KeyTTL == 0 {
		c.KeyTTL = 24 * time.Hour
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	states := NewStates(c.Events, c.Intents, c.Catalog, c.KeptStreams)
	states.stored = newStoredStates(c)
	return &Service{
		Config: c, states: states,
		schemas: map[string]ports.Schema{}, submits: map[string]bool{},
	}
}

// Caller is who asks, from the verified token.
type Caller struct {
	Principal ports.Principal
	Actor     event.Actor
}

// Request is an intent as submitted.
type Request struct {
	Type           string
	LegalEntity    ports.LegalEntity
	Payload        json.RawMessage // has passed domain/jsondoc
	EffectiveDate  *event.Date
	CorrelationID  string
	CausedBy       event.ID
	Source         event.Source
	DryRun         bool
	IdempotencyKey string
}

// Outcome is what became of an intent.
type Outcome struct {
	IntentID      event.ID
	Status        intent.Status
	Events        []Result
	Rules         []event.RuleEvaluation
	CorrelationID string
	PlanHash      string
	Needs         []intent.ApprovalNeed
	Drafts        []event.Draft // of a dry run
	Replayed      bool
}

// Result is one event that an intent made.
type Result struct {
	ID            event.ID
	Type          string
	Sequence      event.Sequence
	Stream        event.StreamID
	StreamVersion event.Version
}

// Submit takes an intent through the pipeline. Faults: intent.type_unknown,
// intent.forbidden, intent.schema_invalid, those of the module's planner and
// policy, of shredding.Manifest.Resolve, module.Sealer and module.Fingerprints, intent.idempotency_mismatch, idempotency.in_progress, and conflicts that
// outlasted the retries. A fault carries the id of the stored intent that records
// it. append.identifier_invalid and pii.in_identifier for what the caller says about
// the request: that would stand in its row, so there is none.
func (s *Service) Submit(ctx context.Context, caller Caller, req Request) (Outcome, error) {
	t, ok := s.Catalog.Intent(req.Type)
	if !ok {
		return Outcome{}, fault.New(fault.NotFound, "intent.type_unknown", "no module has an intent of this type; GET /api/openapi.yaml lists them").WithField("/type")
	}
	if err := checkIdentifiers(req); err != nil {
		return Outcome{}, err
	}
	now := event.Micros(s.Clock.Now())
	run := &attempt{
		service: s, intentType: t, caller: caller, dryRun: req.DryRun,
		stored: intent.Intent{
			ID: s.IDs.NewID(now), Partition: req.LegalEntity.Partition, LegalEntity: req.LegalEntity.Code,
			Type: req.Type, Payload: nothing, Actor: caller.Actor, PersonID: caller.Principal.PersonID, Roles: caller.Principal.Roles,
			CorrelationID: req.CorrelationID, CausedBy: req.CausedBy, Source: req.Source,
			Status: intent.Received, CreatedAt: now, UpdatedAt: now,
		},
		entity: req.LegalEntity, payload: req.Payload,
	}
	if run.stored.CorrelationID == "" {
		run.stored.CorrelationID = run.stored.ID.String()
	}
	if req.EffectiveDate != nil {
		run.stored.EffectiveDate, run.stored.HasEffective = *req.EffectiveDate, true
		run.askedDate = req.EffectiveDate
	}
	if req.IdempotencyKey != "" && !req.DryRun {
		release, err := s.claim(ctx, run, req)
		if err != nil {
			return Outcome{}, err
		}
		defer release()
	}
	out, err := run.submit(ctx)
	return out, run.discreet(err, false)
}

// maxIdentifier bounds what a caller says about a request, in bytes, as that of an
// event: the correlation id is indexed.
const maxIdentifier = 512

// checkIdentifiers refuses what no store can index or what may not be kept for ever,
// before anything of the request is kept.
func checkIdentifiers(req Request) error {
	for _, r := range []struct{ field, value string }{
		{"/correlation_id", req.CorrelationID},
		{"/source/system", req.Source.System}, {"/source/channel", req.Source.Channel}, {"/source/reference", req.Source.Reference},
	} {
		if len(r.value) > maxIdentifier || !utf8.ValidString(r.value) || strings.IndexByte(r.value, 0) >= 0 {
			return fault.New(fault.Invalid, "append.identifier_invalid", "identifiers have at most %d bytes and no NUL; shorten it", maxIdentifier).WithField(r.field)
		}
		if err := shredding.CheckIdentifier(r.field, r.value); err != nil {
			return err
		}
	}
	return nil
}

// keyed makes a digest unguessable.
func (s *Service) keyed(ctx context.Context, le ports.LegalEntity, digest event.Hash) (event.Hash, error) {
	if s.Fingerprints == nil {
		return digest, nil
	}
	return s.Fingerprints.Fingerprint(ctx, le.TenantID, digest)
}

// fingerprint sets what a claim is compared by. While the tenant's secret cannot be
// had, content without personal values is tied by its plain digest.
func (s *Service) fingerprint(ctx context.Context, le ports.LegalEntity, claim *ports.IdempotencyClaim, digest event.Hash, personal bool) error {
	if !personal {
		claim.Digest = digest
	}
	print, err := s.keyed(ctx, le, digest)
	switch {
	case err == nil:
		claim.Fingerprint = print
	case personal:
		return err
	}
	return nil
}

// claim ties the request to its idempotency key and holds the key on this node
// while the request runs. Whether the key was used before is found out where it
// matters: by the append, under its lock, or before a refusal is given. So a first
// request, which is nearly every one, costs no look-up.
func (s *Service) claim(ctx context.Context, run *attempt, req Request) (release func(), err error) {
	key, err := concurrency.ScopeIdempotencyKey(caller(run).PersonID, "intents", req.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	tie := &ports.IdempotencyClaim{Key: key, ExpiresAt: run.stored.CreatedAt.Add(s.KeyTTL)}
	if err := s.fingerprint(ctx, req.LegalEntity, tie, fingerprint(req), len(run.intentType.PIIFields) > 0); err != nil {
		return nil, err
	}
	local := req.LegalEntity.Code + "|" + key
	if _, busy := s.running.LoadOrStore(local, struct{}{}); busy {
		return nil, fault.New(fault.Conflict, "idempotency.in_progress", "the first request with this key is still running; ask again in a moment").WithRetryAfter(time.Second)
	}
	run.idempotency = tie
	return func() { s.running.Delete(local) }, nil
}

// usedBefore looks a request's key up. replay is nil for a key that is new.
func (s *Service) usedBefore(ctx context.Context, p event.PartitionID, claim *ports.IdempotencyClaim) (replay *Outcome, err error) {
	outcome, found, err := s.Idempotency.IdempotencyOutcome(ctx, p, claim.Key, s.Clock.Now())
	if err != nil || !found {
		return nil, err
	}
	if f := claim.Check(outcome.Fingerprint); f != nil {
		return nil, ofIntent(f)
	}
	o, err := s.replay(ctx, p, outcome)
	if err != nil {
		return nil, err
	}
	return &o, nil
}

func caller(run *attempt) ports.Principal { return run.caller.Principal }

const codeIdempotencyMismatch = "intent.idempotency_mismatch"

// ofIntent words a refused idempotency key for intents.
func ofIntent(f *fault.Error) error {
	if f.Code == concurrency.CodeIdempotencyMismatch {
		return idempotencyMismatch()
	}
	return f
}

func idempotencyMismatch() error {
	return fault.New(fault.Conflict, codeIdempotencyMismatch, "this idempotency key was used for an intent with other content; use a new key for a new intent")
}

// replay gives a first outcome again.
func (s *Service) replay(ctx context.Context, p event.PartitionID, o ports.IdempotencyOutcome) (Outcome, error) {
	stored, err := s.Intents.Intent(ctx, p, o.IntentID)
	if err != nil {
		return Outcome{}, err
	}
	out, err := s.Outcome(ctx, stored)
	out.Replayed = true
	return out, err
}

// Outcome tells what became of a stored intent.
func (s *Service) Outcome(ctx context.Context, stored intent.Intent) (Outcome, error) {
	out := Outcome{
		IntentID: stored.ID, Status: stored.Status, CorrelationID: stored.CorrelationID,
		PlanHash: stored.PlanHash, Needs: stored.Need, Events: []Result{},
	}
	if len(stored.Rules) > 0 {
		if err := json.Unmarshal(stored.Rules, &out.Rules); err != nil {
			return Outcome{}, err
		}
	}
	if stored.EventCount > 0 {
		events, err := s.Events.Events(ctx, ports.EventQuery{
			Partition: stored.Partition, After: stored.FirstSequence - 1,
			Until: stored.FirstSequence + event.Sequence(stored.EventCount) - 1, Limit: stored.EventCount, WithoutData: true,
		})
		if err != nil {
			return Outcome{}, err
		}
		for _, e := range events {
			out.Events = append(out.Events, Result{ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream, StreamVersion: e.StreamVersion})
		}
	}
	return out, nil
}
