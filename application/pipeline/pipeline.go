package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/snapshots"
	"github.com/erpbackbone/backbone/domain/archive"
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
	Files() map[string]module.File // by path
}

// Log reads events for planners. It is the event log; Logger is that of the program.
type Log interface {
	ports.EventReader
	ports.EventSearcher
	ports.StreamReader
	ports.MatchReader
}

// Reports reads read models for planners: query.Reports.
type Reports interface {
	// ReadForPlan reads all rows as of the newest committed event, whose sequence is known.
	ReadForPlan(ctx context.Context, le ports.LegalEntity, r module.ReportRead) (rows []any, known event.Sequence, err error)
}

// Config is what a Service needs.
type Config struct {
	Catalog     Catalog
	Policies    ports.PolicyEngine
	Preparer    Preparer
	Appender    ports.EventAppender
	Events      Log
	Intents     ports.IntentReader
	Idempotency ports.IdempotencyReader
	Reports     Reports // nil: a plan that reads a read model fails
	Clock       ports.Clock
	IDs         ports.IDSource
	Retries     []time.Duration // pauses before planning again after a conflict; their number is that of the retries
	Limits
	Logger *slog.Logger

	// Snapshots stores the folded states of streams whose folds have a codec, every
	// SnapshotEvery events, so that a long stream is not folded from its first event. The work
	// runs in Background. If either is nil, none are stored. A snapshot saves time only:
	// every version that a plan read is checked under the append lock.
	Snapshots  *snapshots.Streams
	Archived   *snapshots.Archived // states from which archived events are not needed; nil: there are none
	Background Background
	// ReadingID identifies the upcasters that stored events are read through; it changes with
	// every further one. A snapshot that was folded under another id is not used. nil: events
	// are not upcast.
	ReadingID func(tenantID string) string

	Cursors Cursors // seals the pages of List

	// LegalEntities finds those that planners read beside the intent's own; nil: planners know
	// no other.
	LegalEntities LegalEntities

	// Sealer and Opener keep personal values of payloads out of the store; without them
	// intents with personal values are refused with pii.keys_missing. Fingerprints keys the
	// digests that are stored about requests and plans; nil stores plain digests, which is
	// for tests.
	Sealer       module.Sealer
	Opener       module.Opener
	Fingerprints module.Fingerprints
}

// LegalEntities lists the legal entities of a tenant. ports.LegalEntities implements it.
type LegalEntities interface {
	LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
}

// Limits bound a Service; all are required.
type Limits struct {
	KeyTTL        time.Duration // lifetime of an idempotency key
	CachedStreams int           // bound of the state cache
	SnapshotEvery int           // events between two snapshots of a stream
}

// Service submits intents and decides on those that wait for approval.
type Service struct {
	Config
	states *StateCache

	maySubmitMu sync.RWMutex
	maySubmit   map[string]bool // see checkMaySubmit

	runningKeys sync.Map // by runningKey, the requests that run on this node

	files chan struct{} // has an entry for each file that is being built
}

// New makes a Service.
func New(c Config) (*Service, error) {
	if err := fault.RequirePositive("pipeline.Config", c.Limits); err != nil {
		return nil, err
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	states := NewStateCache(c.Events, c.Intents, c.Catalog, c.CachedStreams)
	states.snapshots, states.reports = newSnapshotStore(c), c.Reports
	return &Service{
		Config: c, states: states,
		maySubmit: map[string]bool{}, files: make(chan struct{}, maxFilesAtOnce),
	}, nil
}

// ArchivedState folds the state of a stream for the archive, see StateCache.ArchivedState.
func (s *Service) ArchivedState(ctx context.Context, le ports.LegalEntity, stream event.StreamID, through event.Sequence) (state archive.State, needed, found bool, err error) {
	return s.states.ArchivedState(ctx, le, stream, through)
}

// Caller is the authenticated person or system, from the verified token.
type Caller struct {
	Principal ports.Principal
	Actor     event.Actor
}

// Request is an intent as submitted.
type Request struct {
	Type          string
	LegalEntity   ports.LegalEntity
	Payload       json.RawMessage // checked by domain/jsondoc
	EffectiveDate *event.Date
	CorrelationID string
	CausedBy      event.ID
	// CausedByPartition is that of the cause; 0 is the legal entity's own.
	CausedByPartition event.PartitionID
	AllowUnknownCause bool // for imports, whose causes may be in no log
	Source            event.Source
	DryRun            bool
	IdempotencyKey    string
}

// Outcome is the present result of an intent: of a replay too, which therefore may differ
// from the answer to the first request.
type Outcome struct {
	IntentID      event.ID
	Status        intent.Status
	Events        []ports.AppendedEvent
	Rules         []event.RuleEvaluation
	CorrelationID string
	PlanHash      string
	Needs         []intent.ApprovalNeed // of an intent that waits, and of a dry run: those that no approval meets
	Drafts        []event.Draft         // the planned events, of a dry run only
	Replayed      bool                  // the idempotency key was used before; this is the outcome of the intent that used it
	Redacted      bool                  // values of its events were redacted since; Get alone tells
}

// Submit takes an intent through the pipeline. Faults: intent.type_unknown,
// request.cause_unknown, intent.forbidden, intent.schema_invalid, those of the module's planner and
// policy, of shredding.Manifest.Resolve, module.Sealer and module.Fingerprints,
// intent.idempotency_mismatch, idempotency.in_progress, those of ports.EventAppender, and
// conflicts that outlasted the retries.
//
// A fault with an intent id is recorded in that intent's row. A fault without one is not:
// intent.type_unknown, request.cause_unknown, idempotency.in_progress, intent.idempotency_mismatch,
// append.identifier_invalid and pii.in_identifier (of a correlation id or source that the row
// would hold), every fault of kind Unavailable, read.not_caught_up, and a refusal whose row could
// not be written.
// After append.outcome_unknown the intent may have been executed; only a request with an
// idempotency key can be sent again to find out.
//
// policy.undecided has two kinds. Unavailable means that the policy engine timed out: nothing
// was decided or stored, and the request can be sent again. Forbidden means that the policy
// failed or gave no valid answer, which is stored as denied.
//
// A dry run checks, plans and asks the policy, but ignores the idempotency key and neither
// parks, appends nor stores a refusal.
func (s *Service) Submit(ctx context.Context, caller Caller, req Request) (Outcome, error) {
	t, ok := s.Catalog.Intent(req.Type)
	if !ok {
		return Outcome{}, fault.New(fault.NotFound, "intent.type_unknown", "no module has an intent of this type; GET /api/openapi.yaml lists them").WithField("/type")
	}
	if err := checkIdentifiers(req); err != nil {
		return Outcome{}, err
	}
	if req.CausedBy != (event.ID{}) && !req.AllowUnknownCause {
		cause := ports.Cause{Partition: cmp.Or(req.CausedByPartition, req.LegalEntity.Partition), ID: req.CausedBy}
		if _, err := module.CheckCauses(ctx, s.Events, cause); err != nil {
			return Outcome{}, err
		}
	}
	if req.CausedByPartition == req.LegalEntity.Partition {
		req.CausedByPartition = 0
	}
	now := event.Micros(s.Clock.Now())
	run := &attempt{
		service: s, intentType: t, caller: caller, dryRun: req.DryRun,
		stored: intent.Intent{
			ID: s.IDs.NewID(now), Partition: req.LegalEntity.Partition, LegalEntity: req.LegalEntity.Code,
			Type: req.Type, Payload: emptyPayload, Actor: caller.Actor, PersonID: caller.Principal.PersonID, Roles: caller.Principal.Roles,
			CorrelationID: req.CorrelationID, CausedBy: req.CausedBy, CausedByPartition: req.CausedByPartition, Source: req.Source,
			CreatedAt: now, UpdatedAt: now,
		},
		entity: req.LegalEntity, payload: req.Payload,
	}
	if run.stored.CorrelationID == "" {
		run.stored.CorrelationID, run.beginsProcess = run.stored.ID.String(), true
	}
	if req.EffectiveDate != nil {
		run.stored.EffectiveDate, run.stored.HasEffectiveDate = *req.EffectiveDate, true
		run.inputDate = req.EffectiveDate
	}
	if req.IdempotencyKey != "" && !req.DryRun {
		release, err := s.reserveKey(ctx, run, req)
		if err != nil {
			return Outcome{}, err
		}
		defer release()
	}
	out, err := run.submit(ctx)
	return out, run.redactError(err, false)
}

// maxIdentifier bounds a request's correlation id and source texts, in bytes. It equals
// the bound of an event's identifiers, because events inherit them.
const maxIdentifier = 512

// checkIdentifiers refuses texts that a store cannot index, and texts that look like
// personal data: the intent's row keeps them and is never erased.
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

// reserveKey ties the request to its idempotency key and reserves the key on this node
// until release is called. Two nodes may run the same request at once: the later append
// writes nothing and answers with the first one's intent.
//
// The key is not looked up here: the append finds a used key under its lock, and refuse
// looks it up before it answers. A first request, which nearly every request is, therefore
// costs no look-up.
func (s *Service) reserveKey(ctx context.Context, run *attempt, req Request) (release func(), err error) {
	key, err := concurrency.ScopeIdempotencyKey(run.caller.Principal.PersonID, "intents", req.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	claim := &ports.IdempotencyClaim{Key: key, ExpiresAt: run.stored.CreatedAt.Add(s.KeyTTL)}
	if err := module.SetFingerprint(ctx, s.Fingerprints, req.LegalEntity.TenantID, claim, requestDigest(req), len(run.intentType.PIIFields) > 0); err != nil {
		return nil, err
	}
	// Codes of legal entities and ids of persons repeat between tenants; a partition belongs to one.
	running := runningKey{req.LegalEntity.Partition, key}
	if _, busy := s.runningKeys.LoadOrStore(running, struct{}{}); busy {
		return nil, fault.New(fault.Conflict, "idempotency.in_progress", "the first request with this key is still running; ask again in a moment").WithRetryAfter(time.Second)
	}
	run.idempotency = claim
	return func() { s.runningKeys.Delete(running) }, nil
}

// runningKey is an idempotency key, which is scoped by person and route, in a legal entity.
type runningKey struct {
	partition event.PartitionID
	key       string
}

// lookUpReplay returns the outcome of the intent that used a key; nil if the key is free.
func (s *Service) lookUpReplay(ctx context.Context, p event.PartitionID, claim *ports.IdempotencyClaim) (replay *Outcome, err error) {
	outcome, found, err := s.Idempotency.IdempotencyOutcome(ctx, p, claim.Key, s.Clock.Now())
	if err != nil || !found {
		return nil, err
	}
	if f := claim.Check(outcome.StoredHash); f != nil {
		if f.Code == concurrency.CodeIdempotencyMismatch {
			return nil, idempotencyMismatchFault()
		}
		return nil, f
	}
	o, err := s.replay(ctx, p, outcome)
	return &o, err
}

// codeIdempotencyMismatch replaces concurrency.CodeIdempotencyMismatch in answers about
// intents, whose callers know no append.
const codeIdempotencyMismatch = "intent.idempotency_mismatch"

func idempotencyMismatchFault() error {
	return fault.New(fault.Conflict, codeIdempotencyMismatch, "this idempotency key was used for an intent with other content; use a new key for a new intent")
}

// replay loads the outcome of the intent that used a key.
func (s *Service) replay(ctx context.Context, p event.PartitionID, o ports.IdempotencyOutcome) (Outcome, error) {
	stored, err := s.Intents.Intent(ctx, p, o.IntentID)
	if err != nil {
		return Outcome{}, err
	}
	out, err := s.LoadOutcome(ctx, stored)
	out.Replayed = true
	return out, err
}

// LoadOutcome reads the outcome of a stored intent, with its events.
func (s *Service) LoadOutcome(ctx context.Context, stored intent.Intent) (Outcome, error) {
	out := Outcome{
		IntentID: stored.ID, Status: stored.Status, CorrelationID: stored.CorrelationID,
		PlanHash: stored.PlanHash, Events: []ports.AppendedEvent{},
	}
	if stored.Status == intent.PendingApproval {
		out.Needs = unmetNeeds(stored.Needs, stored.Approvals)
	}
	var err error
	if out.Rules, err = rulesOf(&stored); err != nil {
		return Outcome{}, err
	}
	if stored.EventCount > 0 {
		receipts, err := module.ReadReceipts(ctx, s.Events, stored.Partition, stored.FirstSequence, stored.EventCount)
		if err != nil {
			return Outcome{}, err
		}
		out.Events = receipts
	}
	return out, nil
}

// rulesOf is the rule trace of a stored intent.
func rulesOf(stored *intent.Intent) (rules []event.RuleEvaluation, err error) {
	if len(stored.Rules) > 0 {
		err = json.Unmarshal(stored.Rules, &rules)
	}
	return rules, err
}
