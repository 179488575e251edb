package pipeline

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// attempt is one intent on its way, over all retries.
type attempt struct {
	service     *Service
	intentType  module.IntentType
	caller      Caller
	entity      ports.LegalEntity
	askedDate   *event.Date
	dryRun      bool
	idempotency *ports.IdempotencyClaim
	stored      intent.Intent   // Payload is what the store has, or nothing before the first write
	payload     json.RawMessage // in clear, for planning; never goes to the store
	valid       bool            // the payload fits the schema and says whose its personal values are
	kept        json.RawMessage // what the planner keeps of the payload; nil: all
	sealed      *sealedPayload
	persons     []string // the payload's personal texts
	knowPersons bool
	refused     bool // what is stored needs no personal values
}

// planned is the result of one planning.
type planned struct {
	plan      module.Plan
	hash      string
	decision  decision
	view      *view
	rules     []event.RuleEvaluation
	effective event.Date
}

func (a *attempt) submit(ctx context.Context) (Outcome, error) {
	err := a.maySubmit(ctx)
	if err == nil {
		err = a.validate()
	}
	if err != nil {
		return a.refuse(ctx, intent.Denied, err)
	}
	a.valid = true
	a.stored.Status = intent.Validated
	return a.run(ctx, a.afterPlanning)
}

func (a *attempt) validate() error {
	schema, err := a.service.schemaOf(a.intentType)
	if err != nil {
		return err
	}
	violations, err := schema.Validate(a.payload)
	if err != nil {
		return err
	}
	if len(violations) == 0 {
		if a.intentType.Complete != nil {
			a.payload = a.intentType.Complete(a.stored.ID, a.payload)
		}
		_, err := a.intentType.Manifest().Resolve(a.payload, "", nil)
		return inPayload(err)
	}
	code := "intent.schema_invalid"
	for i := range violations {
		violations[i].Field = "/payload" + violations[i].Field
	}
	return fault.New(fault.Invalid, code, "the payload does not fit the schema of %s; correct the fields named in violations", a.stored.Type).
		WithField(violations[0].Field).WithViolations(violations...)
}

func (s *Service) schemaOf(t module.IntentType) (ports.Schema, error) {
	s.schemaMu.RLock()
	compiled, ok := s.schemas[t.Type]
	s.schemaMu.RUnlock()
	if ok {
		return compiled, nil
	}
	compiled, err := s.Schemas.Compile(t.Schema)
	if err != nil {
		return nil, err
	}
	s.schemaMu.Lock()
	s.schemas[t.Type] = compiled
	s.schemaMu.Unlock()
	return compiled, nil
}

// run plans and finishes, again after conflicts. The first planning may use kept
// states. Whatever it then refuses, or the store refuses as a conflict, is decided
// once more on fresh states at once; only after that do the retries wait.
func (a *attempt) run(ctx context.Context, finish func(context.Context, planned) (Outcome, error)) (Outcome, error) {
	mayBeBehind := !a.dryRun && a.stored.Revision == 0
	waits := a.service.Retries
	for {
		p, err := a.plan(ctx, mayBeBehind)
		var out Outcome
		if err == nil {
			out, err = finish(ctx, p)
		}
		if err == nil {
			return out, nil
		}
		if p.view != nil && p.view.usedKept && !isFinal(err) {
			mayBeBehind = false
			continue
		}
		if !isConflict(err) {
			if fault.CodeOf(err) == concurrency.CodeDuplicateKey {
				err = a.wordDuplicate(ctx, err)
			}
			return a.refuse(ctx, statusOf(err), err)
		}
		if len(waits) == 0 {
			return a.refuse(ctx, intent.Failed, err)
		}
		if err := wait(ctx, waits[0]); err != nil {
			return Outcome{}, err
		}
		waits, mayBeBehind = waits[1:], false
	}
}

// isConflict reports whether planning again on fresh state can help.
func isConflict(err error) bool {
	switch fault.CodeOf(err) {
	case concurrency.CodeWrongExpectedVersion, concurrency.CodeConditionFailed, concurrency.CodeConditionTooOld:
		return true
	default:
		return false
	}
}

// isFinal reports whether fresher state cannot change the refusal: the store has
// spoken under its lock, or there is no answer at all.
func isFinal(err error) bool {
	switch fault.KindOf(err) {
	case fault.Internal, fault.Unavailable, fault.Timeout:
		return true
	}
	switch fault.CodeOf(err) {
	case concurrency.CodeDuplicateKey, concurrency.CodeIdempotencyMismatch, concurrency.CodeIntentChanged, "policy.undecided",
		shredding.CodeKeyMoved, shredding.CodeSubjectErased:
		return true
	default:
		return false
	}
}

func statusOf(err error) intent.Status {
	switch fault.KindOf(err) {
	case fault.Internal, fault.Unavailable, fault.Timeout:
		return intent.Failed
	}
	if fault.CodeOf(err) == shredding.CodeKeyMoved {
		return intent.Failed
	}
	return intent.Denied
}

func (a *attempt) input(now time.Time) module.Input {
	in := module.Input{
		IntentID: a.stored.ID, Type: a.stored.Type, Payload: a.payload, Actor: a.stored.Actor, PersonID: a.stored.PersonID,
		Roles: a.stored.Roles, LegalEntity: a.entity, EffectiveDate: a.askedDate, CorrelationID: a.stored.CorrelationID,
		CausedBy: a.stored.CausedBy, Source: a.stored.Source, Now: now, Today: a.entity.Today(now), Approvals: a.stored.Approvals,
	}
	return in
}

func (a *attempt) plan(ctx context.Context, mayBeBehind bool) (planned, error) {
	p := planned{view: a.service.states.view(a.entity.Partition, mayBeBehind)}
	now := event.Micros(a.service.Clock.Now())
	started := time.Now()
	in := a.input(now)
	plan, err := a.intentType.Plan(ctx, in, p.view)
	a.kept = plan.Kept
	if err != nil {
		return p, inPayload(err)
	}
	millis := time.Since(started).Milliseconds()
	p.plan = plan
	p.effective = in.Today
	for i := range plan.Events {
		if plan.Events[i].EffectiveDate == 0 {
			plan.Events[i].EffectiveDate = in.Today
		}
		if plan.Events[i].CausedBy == (event.ID{}) && plan.Events[i].CausedByIndex == 0 {
			plan.Events[i].CausedBy = a.stored.CausedBy
		}
	}
	if len(plan.Events) > 0 {
		p.effective = plan.Events[0].EffectiveDate
	}
	for i := range plan.Rules {
		if plan.Rules[i].EvaluationMillis == 0 {
			plan.Rules[i].EvaluationMillis = millis
		}
	}
	started = time.Now()
	p.decision, err = a.decide(ctx, plan.Facts, p.effective)
	if err != nil {
		return p, err
	}
	millis = time.Since(started).Milliseconds()
	for i := range p.decision.Rules {
		p.decision.Rules[i].EvaluationMillis = millis
	}
	p.rules = append(append([]event.RuleEvaluation{}, plan.Rules...), p.decision.Rules...)
	return p, a.withoutPersons(plan.Rules, "the rule trace")
}

// withoutEvents takes pointers into planned events out of a refusal: the caller
// has sent a payload and never saw the events.
func withoutEvents(err error) error {
	f, ok := fault.As(err)
	if !ok || !strings.HasPrefix(f.Field, "/events/") {
		return err
	}
	return f.WithField("")
}

// inPayload turns a planner's pointer into its payload into one into the request.
func inPayload(err error) error {
	f, ok := fault.As(err)
	if !ok || !strings.HasPrefix(f.Field, "/") || strings.HasPrefix(f.Field, "/payload/") {
		return err
	}
	return f.WithField("/payload" + f.Field)
}

// hashPlan identifies the plan; keyed if the intent holds personal values, so that
// nobody finds them by trying. Without, nothing personal can be in the plan: folds
// show sealed values only.
func (a *attempt) hashPlan(ctx context.Context, p *planned) error {
	if p.hash != "" {
		return nil
	}
	digest, err := planHash(p.plan.Events, a.service.Policies.Digest())
	if err != nil {
		return err
	}
	if len(a.intentType.PIIFields) > 0 {
		if digest, err = a.service.keyed(ctx, a.entity, digest); err != nil {
			return err
		}
	}
	p.hash = hex.EncodeToString(digest[:])
	return nil
}

// afterPlanning shows, parks or executes a fresh plan.
func (a *attempt) afterPlanning(ctx context.Context, p planned) (Outcome, error) {
	if a.dryRun {
		if err := a.hashPlan(ctx, &p); err != nil {
			return Outcome{}, err
		}
		return Outcome{
			IntentID: a.stored.ID, Status: intent.Planned, CorrelationID: a.stored.CorrelationID, PlanHash: p.hash,
			Needs: unmet(p.decision.Needs, a.stored.Approvals), Rules: p.rules, Drafts: p.plan.Events, Events: []Result{},
		}, nil
	}
	if needs := unmet(p.decision.Needs, a.stored.Approvals); p.decision.Outcome == "needs_approval" && len(needs) > 0 {
		return a.park(ctx, p, p.decision.Needs)
	}
	return a.execute(ctx, p)
}

// unmet lists the needs that no approval answers yet.
func unmet(needs []intent.ApprovalNeed, approvals []intent.Approval) []intent.ApprovalNeed {
	var out []intent.ApprovalNeed
	for _, n := range needs {
		met := false
		for _, ap := range approvals {
			met = met || (ap.Decision == "approved" && matches(n.Roles, ap.Role))
		}
		if !met {
			out = append(out, n)
		}
	}
	return out
}

// park stores the intent as waiting for approval, bound to its plan.
func (a *attempt) park(ctx context.Context, p planned, needs []intent.ApprovalNeed) (Outcome, error) {
	if err := a.hashPlan(ctx, &p); err != nil {
		return Outcome{}, err
	}
	row := a.stored
	row.Status, row.PlanHash, row.Need = intent.PendingApproval, p.hash, needs
	row.EffectiveDate, row.HasEffective = p.effective, true
	if err := setRules(&row, p.rules); err != nil {
		return Outcome{}, err
	}
	res, err := a.write(ctx, row, ports.AppendRequest{Streams: p.view.expectations(), Conditions: p.view.conditions})
	if err != nil {
		return Outcome{}, err
	}
	if res.Replayed {
		return a.service.replay(ctx, row.Partition, res.Outcome)
	}
	return Outcome{
		IntentID: row.ID, Status: row.Status, CorrelationID: row.CorrelationID, PlanHash: row.PlanHash,
		Needs: unmet(needs, row.Approvals), Rules: p.rules, Events: []Result{},
	}, nil
}

func setRules(row *intent.Intent, rules []event.RuleEvaluation) error {
	if len(rules) == 0 {
		return nil
	}
	b, err := json.Marshal(rules)
	row.Rules = b
	return err
}

// execute appends the plan's events with everything the plan relied on as
// expectations, and the intent's row in the same transaction.
func (a *attempt) execute(ctx context.Context, p planned) (Outcome, error) {
	rules := p.rules
	for _, need := range p.decision.Needs {
		for _, ap := range a.stored.Approvals {
			if ap.Decision == "approved" && matches(need.Roles, ap.Role) {
				rules = append(rules, event.RuleEvaluation{
					RuleID: need.RuleID + ".approval", RuleName: "approval by another person", Result: event.RuleFired,
					ActionsTaken: []string{"approved by " + ap.ActorID + " as " + ap.Role + ": " + need.Reason},
				})
				break
			}
		}
	}
	ids := make([]event.ID, len(p.plan.Events))
	for i := range ids {
		ids[i] = module.EventID(a.stored.ID, i)
	}
	row := a.stored
	row.Status = intent.Executed
	row.EffectiveDate, row.HasEffective = p.effective, true
	if err := setRules(&row, rules); err != nil {
		return Outcome{}, err
	}
	batch := module.Batch{
		Drafts: p.plan.Events, LegalEntity: a.entity, Actor: a.stored.Actor, CorrelationID: a.stored.CorrelationID,
		IntentID: a.stored.ID, Source: a.stored.Source, Rules: rules, Now: event.Micros(a.service.Clock.Now()), EventIDs: ids,
	}
	res, err := whileKeysMove(ctx, func() (ports.AppendResult, error) {
		prepared, err := a.service.Preparer.Prepare(ctx, batch)
		if err != nil {
			return ports.AppendResult{}, err
		}
		return a.writeOnce(ctx, row, ports.AppendRequest{
			Events: prepared, Streams: append(p.view.expectations(), p.plan.Streams...), Conditions: append(p.view.conditions, p.plan.Conditions...),
		})
	})
	if err != nil {
		return Outcome{}, withoutEvents(err)
	}
	if res.Replayed {
		return a.service.replay(ctx, row.Partition, res.Outcome)
	}
	out := Outcome{
		IntentID: row.ID, Status: row.Status, CorrelationID: row.CorrelationID, Rules: rules,
		PlanHash: row.PlanHash, Events: make([]Result, len(res.Events)),
	}
	for i, e := range res.Events {
		out.Events[i] = Result{ID: e.ID, Type: e.Type, Sequence: e.Sequence, Stream: e.Stream, StreamVersion: e.StreamVersion}
	}
	return out, nil
}

// write appends the intent's row and what rides along and needs no preparing.
func (a *attempt) write(ctx context.Context, row intent.Intent, r ports.AppendRequest) (ports.AppendResult, error) {
	return whileKeysMove(ctx, func() (ports.AppendResult, error) { return a.writeOnce(ctx, row, r) })
}

// writeOnce appends with the intent's row riding along. Keys that turn out to have
// moved are forgotten.
func (a *attempt) writeOnce(ctx context.Context, row intent.Intent, r ports.AppendRequest) (ports.AppendResult, error) {
	row.UpdatedAt = event.Micros(a.service.Clock.Now())
	r.Partition = a.entity.Partition
	payload, sealed, err := a.storedPayload(ctx)
	if err != nil {
		return ports.AppendResult{}, err
	}
	row.Payload = payload
	r.Intent = &ports.IntentWrite{Intent: row, ExpectedRevision: a.stored.Revision, Sealed: sealed}
	r.Intent.Intent.Revision = a.stored.Revision + 1
	r.Idempotency = a.idempotency
	res, err := a.service.Appender.Append(ctx, r)
	if fault.CodeOf(err) == concurrency.CodeIdempotencyMismatch {
		return res, idempotencyMismatch()
	}
	if err == nil && !res.Replayed {
		a.service.states.wrote(r.Partition, res.Events)
	}
	if fault.CodeOf(err) == shredding.CodeKeyMoved {
		a.forgetKeys(r)
	}
	return res, err
}

// refuse records a refusal and gives it back with the intent's id; if it cannot be
// recorded the refusal still stands. A repeated request, which state that moved on
// would now refuse, gets its first outcome instead.
func (a *attempt) refuse(ctx context.Context, status intent.Status, cause error) (Outcome, error) {
	f, ok := fault.As(cause)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return Outcome{}, cause
	}
	if fault.CodeOf(cause) == codeIdempotencyMismatch || fault.CodeOf(cause) == concurrency.CodeIntentChanged || fault.KindOf(cause) == fault.Unavailable {
		return Outcome{}, cause // nothing happened that this intent should keep
	}
	if a.idempotency != nil {
		replay, err := a.service.usedBefore(ctx, a.entity.Partition, a.idempotency)
		if err != nil {
			return Outcome{}, err
		}
		if replay != nil {
			return *replay, nil
		}
	}
	if a.dryRun || a.stored.Revision > 0 {
		// A waiting intent keeps waiting: the approver is told and may try again.
		return Outcome{}, cause
	}
	row := a.stored
	row.Status = status
	row.Refusal = &intent.Refusal{Code: fault.CodeOf(cause), Kind: fault.KindOf(cause).String()}
	if ok && a.withoutPersons(f.Detail, "the refusal") == nil {
		row.Refusal.Detail = f.Detail
	}
	claim := a.idempotency
	a.idempotency = nil // a refusal does not use the key up: the caller may correct the state and try again
	a.refused = true
	defer func() { a.idempotency, a.refused = claim, false }()
	if err := a.record(ctx, row); err != nil {
		a.service.Logger.WarnContext(ctx, "refused intent could not be recorded", "intent_id", row.ID.String(), "code", fault.CodeOf(err))
		return Outcome{}, cause
	}
	if ok {
		return Outcome{}, f.WithIntent(row.ID.String())
	}
	return Outcome{}, cause
}

// wordDuplicate lets the module say what a taken business key means.
func (a *attempt) wordDuplicate(ctx context.Context, err error) error {
	f, ok := fault.As(err)
	if !ok || a.intentType.OnDuplicate == nil || f.Holder == nil {
		return err
	}
	eventType, _ := f.Attributes["event_type"].(string)
	fresh := a.service.states.view(a.entity.Partition, false)
	if worded := a.intentType.OnDuplicate(ctx, a.input(a.service.Clock.Now()), fresh, eventType, *f.Holder); worded != nil {
		return worded
	}
	return err
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
