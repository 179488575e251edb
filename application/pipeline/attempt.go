package pipeline

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
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

// attempt is one submission of an intent, or one decision on it, over all retries.
type attempt struct {
	service           *Service
	intentType        module.IntentType
	caller            Caller
	entity            ports.LegalEntity
	inputDate         *event.Date // for Input.EffectiveDate: the requested date, in a decision that of the parked plan
	dryRun            bool
	beginsProcess     bool // the caller named no correlation id, so the plan may
	idempotency       *ports.IdempotencyClaim
	storedApprovals   int             // how many the row has in the store
	stored            intent.Intent   // the row as it was loaded or, with Revision 0, as it will be inserted; Approve adds its approval
	payload           json.RawMessage // in clear, for planning; storedPayload seals its personal values
	payloadValid      bool            // the payload fits the schema and names the subjects of its personal values
	keptPayload       json.RawMessage // Plan.Kept; nil: the row holds the payload
	sealed            *sealedPayload
	personalTexts     []string               // texts of the payload's personal values
	personalTextsRead bool                   // personalTexts is filled in
	openedTexts       []string               // texts of personal values that the planner was given, see open
	fileReader        *fileReader            // of a file, whose caller gets what is opened; nil for intents
	recordingRefusal  bool                   // the row is a refusal, which is stored without personal values
	rules             []event.RuleEvaluation // of the last planning, as far as it came
}

// planned is the result of planning once.
type planned struct {
	plan      module.Plan
	hash      string // "" until setPlanHash
	answer    policyAnswer
	view      *planView
	rules     []event.RuleEvaluation // of the planner, then of the policy
	effective event.Date             // of the plan's first event
}

func (a *attempt) submit(ctx context.Context) (Outcome, error) {
	forbidden, invalid := a.checkMaySubmit(ctx), a.validate()
	a.payloadValid = invalid == nil // a refusal by role keeps a valid payload too
	if err := cmp.Or(forbidden, invalid); err != nil {
		// Before planning an internal error is stored as denied too; Refusal.Kind
		// distinguishes it. After planning it would be failed, see refusalStatus.
		return a.refuse(ctx, intent.Denied, err)
	}
	return a.planAndApply(ctx, a.parkOrExecute)
}

func (a *attempt) validate() error {
	violations, err := a.intentType.Validate(a.payload)
	if err != nil {
		return err
	}
	if len(violations) == 0 {
		if a.intentType.Complete != nil {
			a.payload = a.intentType.Complete(a.stored.ID, a.payload)
		}
		_, err := a.intentType.Manifest().Resolve(a.payload, "", nil)
		return prependPayloadPointer(err)
	}
	for i := range violations {
		violations[i].Field = "/payload" + violations[i].Field
	}
	return fault.New(fault.Invalid, "intent.schema_invalid", "the payload does not fit the schema of %s; correct the fields named in violations", a.stored.Type).
		WithField(violations[0].Field).WithViolations(violations...)
}

// planAndApply plans and applies the plan: apply writes it. The first planning of a
// submission may use cached states. If it did, and planning or apply was refused for a
// reason that fresh state could change, planAndApply plans again at once on fresh state,
// which counts as no retry. A stale plan is planned again after the next pause of
// Config.Retries. So apply is called once for each plan and must not depend on its earlier
// calls.
func (a *attempt) planAndApply(ctx context.Context, apply func(context.Context, planned) (Outcome, error)) (Outcome, error) {
	useCache := !a.dryRun && a.stored.Revision == 0
	waits := a.service.Retries
	for {
		p, err := a.plan(ctx, useCache)
		var out Outcome
		if err == nil {
			out, err = apply(ctx, p)
		}
		if err == nil {
			return out, nil
		}
		if p.view != nil && p.view.usedCache && freshStateCouldChange(err) {
			useCache = false
			continue
		}
		if !isStalePlan(err) {
			if fault.CodeOf(err) == concurrency.CodeDuplicateKey {
				err = a.rewordDuplicateKey(ctx, err)
			}
			return a.refuse(ctx, refusalStatus(err), err)
		}
		if len(waits) == 0 {
			return a.refuse(ctx, intent.Failed, err)
		}
		if err := ports.Sleep(ctx, waits[0]); err != nil {
			return Outcome{}, err
		}
		waits, useCache = waits[1:], false
	}
}

// isStalePlan reports whether the append found that something the plan relied on has
// changed.
func isStalePlan(err error) bool {
	switch fault.CodeOf(err) {
	case concurrency.CodeWrongExpectedVersion, concurrency.CodeConditionFailed, concurrency.CodeConditionTooOld:
		return true
	default:
		return false
	}
}

// freshStateCouldChange reports whether planning on fresh state could change a refusal that
// was planned on cached states: a stale plan, and what planner and policy refused by such
// states. It could not if the store refused under its lock or if nothing was decided.
func freshStateCouldChange(err error) bool {
	switch fault.KindOf(err) {
	case fault.Internal, fault.Unavailable, fault.Timeout:
		return false
	}
	switch fault.CodeOf(err) {
	case concurrency.CodeDuplicateKey, concurrency.CodeIdempotencyMismatch, concurrency.CodeIntentChanged, "policy.undecided",
		shredding.CodeKeyMoved, shredding.CodeSubjectErased:
		return false
	default:
		return true
	}
}

// refusalStatus is the status of an intent that was refused after planning began: denied by
// a decision, failed by an error. refuse stores nothing for Unavailable.
func refusalStatus(err error) intent.Status {
	switch fault.KindOf(err) {
	case fault.Internal, fault.Unavailable, fault.Timeout:
		return intent.Failed
	}
	if fault.CodeOf(err) == shredding.CodeKeyMoved {
		return intent.Failed
	}
	return intent.Denied
}

func (a *attempt) plannerInput(now time.Time) module.Input {
	return module.Input{
		IntentID: a.stored.ID, Type: a.stored.Type, Payload: a.payload, Actor: a.stored.Actor, PersonID: a.stored.PersonID,
		Roles: a.stored.Roles, LegalEntity: a.entity, EffectiveDate: a.inputDate, CorrelationID: a.stored.CorrelationID,
		CausedBy: a.stored.CausedBy, Source: a.stored.Source, Now: now, Today: a.entity.Today(now), Approvals: a.stored.Approvals,
	}
}

func (a *attempt) plan(ctx context.Context, useCache bool) (planned, error) {
	p := planned{view: a.newView(useCache)}
	now := event.Micros(a.service.Clock.Now())
	started := time.Now()
	a.rules = nil
	in := a.plannerInput(now)
	plan, err := a.intentType.Plan(ctx, in, p.view)
	a.keptPayload = plan.Kept
	if a.beginsProcess {
		a.stored.CorrelationID = cmp.Or(plan.CorrelationID, a.stored.ID.String())
	}
	if err != nil {
		return p, prependPayloadPointer(err)
	}
	millis := time.Since(started).Milliseconds()
	p.plan = plan
	a.stored.Documents = documentsOf(plan.Events)
	p.effective = in.Today
	for i := range plan.Events {
		plan.Events[i].CorrelationID = a.stored.CorrelationID
		if plan.Events[i].EffectiveDate == 0 {
			plan.Events[i].EffectiveDate = in.Today
		}
		if plan.Events[i].CausedBy == (event.ID{}) && plan.Events[i].CausedByIndex == 0 {
			plan.Events[i].CausedBy = a.stored.CausedBy
		}
		if d := &plan.Events[i]; d.CausedBy == a.stored.CausedBy && d.CausedByPartition == 0 {
			d.CausedByPartition = a.stored.CausedByPartition
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
	p.answer, err = a.askPolicy(ctx, plan.Facts, p.effective)
	millis = time.Since(started).Milliseconds()
	if leak := a.checkNoPersonalText(plan.Rules, "the rule trace"); leak != nil {
		return p, cmp.Or(err, leak)
	}
	p.rules = append(append([]event.RuleEvaluation{}, plan.Rules...), p.answer.Rules...)
	for i := len(plan.Rules); i < len(p.rules); i++ {
		p.rules[i].EvaluationMillis = millis
	}
	a.rules = p.rules
	return p, err
}

// findEntity finds a legal entity of the tenant that the caller may see: legal_entity.not_found.
func (a *attempt) findEntity(ctx context.Context, code string) (ports.LegalEntity, error) {
	if of := a.caller.Principal.LegalEntities; a.service.LegalEntities != nil && (len(of) == 0 || slices.Contains(of, code)) {
		all, err := a.service.LegalEntities.LegalEntities(ctx, a.entity.TenantID)
		if err != nil {
			return ports.LegalEntity{}, err
		}
		if i := slices.IndexFunc(all, func(le ports.LegalEntity) bool { return le.Code == code }); i >= 0 {
			return all[i], nil
		}
	}
	return ports.LegalEntity{}, fault.New(fault.NotFound, "legal_entity.not_found",
		"there is no such legal entity that you may see; use a code from GET /api/admin/legal-entities")
}

// documentsOf lists the streams that a plan writes. It leaves out those whose number is not
// known yet, and names that look like personal data, which the append will refuse.
func documentsOf(drafts []event.Draft) (documents []string) {
	for i := range drafts {
		d := &drafts[i]
		name := d.Stream.String()
		if slices.Contains(documents, name) || shredding.CheckIdentifier("", name) != nil ||
			slices.ContainsFunc(d.Series, func(n event.SeriesNumber) bool { return strings.Contains(d.Stream.ID, n.Token) }) {
			continue
		}
		if len(documents) == intent.MaxDocuments {
			return nil
		}
		documents = append(documents, name)
	}
	return documents
}

// dropEventPointer removes a pointer into planned events from a fault: the caller sent a
// payload and does not know the events.
func dropEventPointer(err error) error {
	f, ok := fault.As(err)
	if !ok || !strings.HasPrefix(f.Field, "/events/") {
		return err
	}
	return f.WithField("")
}

// prependPayloadPointer makes a pointer into the payload relative to the request. A pointer
// that begins with /payload/ counts as relative to the request already.
func prependPayloadPointer(err error) error {
	f, ok := fault.As(err)
	if !ok || !strings.HasPrefix(f.Field, "/") || strings.HasPrefix(f.Field, "/payload/") {
		return err
	}
	return f.WithField("/payload" + f.Field)
}

// setPlanHash sets the hash that approvals are bound to. The hash is keyed if the intent's
// type has personal fields or opens personal values, so that values cannot be found by trying
// candidates. Of other types no personal value can be in the plan: folds see sealed values only.
func (a *attempt) setPlanHash(ctx context.Context, p *planned) error {
	if p.hash != "" {
		return nil
	}
	digest, err := planDigest(p.plan.Events, a.service.Policies.Digest())
	if err != nil {
		return err
	}
	if len(a.intentType.PIIFields) > 0 || len(a.intentType.Opens) > 0 {
		if digest, err = module.KeyDigest(ctx, a.service.Fingerprints, a.entity.TenantID, digest); err != nil {
			return err
		}
	}
	p.hash = hex.EncodeToString(digest[:])
	return nil
}

// parkOrExecute applies a plan, or shows that of a dry run. It parks while the plan has a need
// without an approval.
func (a *attempt) parkOrExecute(ctx context.Context, p planned) (Outcome, error) {
	if a.dryRun {
		if err := a.setPlanHash(ctx, &p); err != nil {
			return Outcome{}, err
		}
		drafts, err := a.maskOpened(p.plan.Events)
		if err != nil {
			return Outcome{}, err
		}
		return Outcome{
			IntentID: a.stored.ID, Status: intent.Planned, CorrelationID: a.stored.CorrelationID, PlanHash: p.hash,
			Needs: unmetNeeds(p.answer.Needs, a.stored.Approvals), Rules: p.rules, Drafts: drafts, Events: []ports.AppendedEvent{},
		}, nil
	}
	if len(unmetNeeds(p.answer.Needs, a.stored.Approvals)) > 0 {
		return a.parkForApproval(ctx, p)
	}
	return a.execute(ctx, p)
}

// unmetNeeds lists the needs without an approval. An approval meets every need that lists
// its role or lists none, so two needs with the same role do not ask for two persons. It does
// not compare plan hashes: approvals of an earlier plan count.
func unmetNeeds(needs []intent.ApprovalNeed, approvals []intent.Approval) []intent.ApprovalNeed {
	var out []intent.ApprovalNeed
	for _, n := range needs {
		met := false
		for _, ap := range approvals {
			met = met || (ap.Decision == "approved" && containsOrEmpty(n.Roles, ap.Role))
		}
		if !met {
			out = append(out, n)
		}
	}
	return out
}

// parkForApproval stores the intent as pending_approval, with the hash and the needs of its
// plan. The append checks what the plan has read; Plan.Streams and Plan.Conditions are
// checked when the events are appended.
func (a *attempt) parkForApproval(ctx context.Context, p planned) (Outcome, error) {
	if err := a.setPlanHash(ctx, &p); err != nil {
		return Outcome{}, err
	}
	row := a.stored
	row.Status, row.PlanHash, row.Needs = intent.PendingApproval, p.hash, p.answer.Needs
	row.EffectiveDate, row.HasEffectiveDate = p.effective, true
	if err := setRules(&row, p.rules); err != nil {
		return Outcome{}, err
	}
	eventType := intent.Waiting
	if len(row.Approvals) > a.storedApprovals {
		eventType = intent.ApprovalRecorded
	}
	res, err := a.write(ctx, row, outcomeWrite{about: eventType, amount: p.plan.Amount, streams: p.view.expectations(), conditions: p.view.conditions})
	if err != nil {
		return Outcome{}, err
	}
	if res.Replayed {
		return a.service.replay(ctx, row.Partition, res.Outcome)
	}
	return Outcome{
		IntentID: row.ID, Status: row.Status, CorrelationID: row.CorrelationID, PlanHash: row.PlanHash,
		Needs: unmetNeeds(p.answer.Needs, row.Approvals), Rules: p.rules, Events: []ports.AppendedEvent{},
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

// execute appends the plan's events and the intent's row in one transaction. Every version
// and condition of the plan is an expectation of this append.
func (a *attempt) execute(ctx context.Context, p planned) (Outcome, error) {
	rules := p.rules
	for _, need := range p.answer.Needs {
		for _, ap := range a.stored.Approvals {
			if ap.Decision == "approved" && containsOrEmpty(need.Roles, ap.Role) {
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
	row.EffectiveDate, row.HasEffectiveDate = p.effective, true
	if err := setRules(&row, rules); err != nil {
		return Outcome{}, err
	}
	w := outcomeWrite{
		streams: append(p.view.expectations(), p.plan.Streams...), conditions: append(p.view.conditions, p.plan.Conditions...),
		made: module.Batch{
			Drafts: p.plan.Events, LegalEntity: a.entity, Actor: a.stored.Actor, CorrelationID: a.stored.CorrelationID,
			IntentID: a.stored.ID, Source: a.stored.Source, Rules: row.Rules, Now: event.Micros(a.service.Clock.Now()), EventIDs: ids,
		},
	}
	switch {
	case len(row.Approvals) > a.storedApprovals:
		w.about = intent.Approved
	case len(p.plan.Events) == 0:
		w.about = intent.ExecutedEmpty
	}
	res, err := a.write(ctx, row, w)
	if err != nil {
		return Outcome{}, dropEventPointer(err)
	}
	if res.Replayed {
		return a.service.replay(ctx, row.Partition, res.Outcome)
	}
	return Outcome{
		IntentID: row.ID, Status: row.Status, CorrelationID: row.CorrelationID, Rules: rules, PlanHash: row.PlanHash, Events: res.Events[:len(p.plan.Events)],
	}, nil
}

// outcomeWrite is what a write of an intent's row appends with it.
type outcomeWrite struct {
	made       module.Batch   // events that the intent makes
	about      string         // type of the event about the intent; "" for plain execution
	amount     *module.Amount // of an intent that waits
	streams    []concurrency.StreamExpectation
	conditions []concurrency.AppendCondition
}

// write stores the intent's row, its events and the event about it in one transaction. It
// seals again while keys move.
func (a *attempt) write(ctx context.Context, row intent.Intent, w outcomeWrite) (ports.AppendResult, error) {
	return module.RetryWhileKeysMove(ctx, func() (ports.AppendResult, error) { return a.writeOnce(ctx, row, w) })
}

// writeOnce appends by compare-and-set from the revision that was loaded. The last event of
// the append binds the row: its payload holds the row's digest. After
// shredding.CodeKeyMoved it drops the cached keys, so that the next try fetches them.
func (a *attempt) writeOnce(ctx context.Context, row intent.Intent, w outcomeWrite) (ports.AppendResult, error) {
	payload, sealed, err := a.storedPayload(ctx)
	if err != nil {
		return ports.AppendResult{}, err
	}
	row.Payload = payload
	row.UpdatedAt = event.Micros(a.service.Clock.Now())
	row.Revision = a.stored.Revision + 1
	row.EventCount = len(w.made.Drafts)
	r := ports.AppendRequest{
		Partition: a.entity.Partition, Streams: w.streams, Conditions: w.conditions, Idempotency: a.idempotency,
		Intent: &ports.IntentWrite{Intent: row, ExpectedRevision: a.stored.Revision, Sealed: sealed},
	}
	binding, err := row.Bind()
	if err != nil {
		return ports.AppendResult{}, err
	}
	if w.about == "" {
		w.made.Binding = &binding
	}
	if r.Events, err = a.service.Preparer.Prepare(ctx, w.made); err != nil {
		return ports.AppendResult{}, err
	}
	if err := a.checkEvents(r.Events); err != nil {
		return ports.AppendResult{}, err
	}
	if w.about != "" {
		events, err := a.service.Preparer.Prepare(ctx, a.eventAbout(&row, w, binding))
		if err != nil {
			return ports.AppendResult{}, err
		}
		r.Events, r.Intent.EventsAbout = append(r.Events, events...), len(events)
	}
	if err := module.BindRequest(&r); err != nil {
		return ports.AppendResult{}, err
	}
	res, err := a.service.Appender.Append(ctx, r)
	if fault.CodeOf(err) == concurrency.CodeIdempotencyMismatch {
		return res, idempotencyMismatchFault()
	}
	if err == nil && !res.Replayed {
		a.service.states.markAppended(a.entity, res.Events)
	}
	if fault.CodeOf(err) == shredding.CodeKeyMoved {
		a.forgetKeys(r)
	}
	return res, err
}

// refuse ends an attempt without events. If the idempotency key was used before, it returns
// the outcome of the intent that used it: a repeated request must not be refused because its
// first run changed the state. Otherwise it returns cause. For a submission it first stores
// the refusal in a new row and adds that row's id to cause; a row that cannot be written is
// logged, and cause has no id. That also happens after append.outcome_unknown if the append
// was committed: the row exists. Nothing is stored when there was no decision (unavailable,
// a read model that has not caught up, cancelled), in a dry run, and for a decision, whose intent stays parked.
func (a *attempt) refuse(ctx context.Context, status intent.Status, cause error) (Outcome, error) {
	f, ok := fault.As(cause)
	if errors.Is(cause, context.Canceled) || errors.Is(cause, context.DeadlineExceeded) {
		return Outcome{}, cause
	}
	if fault.CodeOf(cause) == codeIdempotencyMismatch || fault.CodeOf(cause) == concurrency.CodeIntentChanged || fault.CodeOf(cause) == module.CodeNotCaughtUp || fault.KindOf(cause) == fault.Unavailable {
		return Outcome{}, cause // no decision was made, so there is nothing to store
	}
	if a.idempotency != nil {
		replay, err := a.service.lookUpReplay(ctx, a.entity.Partition, a.idempotency)
		if err != nil {
			return Outcome{}, err
		}
		if replay != nil {
			return *replay, nil
		}
	}
	if a.dryRun || a.stored.Revision > 0 {
		// The approver of a parked intent may try again.
		return Outcome{}, cause
	}
	row := a.stored
	row.Status = status
	if err := setRules(&row, a.rules); err != nil {
		return Outcome{}, err
	}
	row.Refusal = &intent.Refusal{Code: fault.CodeOf(cause), Kind: fault.KindOf(cause).String(), Rule: ruleOf(cause)}
	if ok && a.checkNoPersonalText(f.Detail, "the refusal") == nil {
		row.Refusal.Detail = f.Detail
	}
	claim := a.idempotency
	a.idempotency = nil // a refusal leaves the key free: the caller may correct the cause and send the request again
	a.recordingRefusal = true
	defer func() { a.idempotency, a.recordingRefusal = claim, false }()
	// A caller who leaves cannot keep the refusal from being recorded.
	if err := a.recordRefusal(context.WithoutCancel(ctx), row); err != nil {
		a.service.Logger.WarnContext(ctx, "refused intent could not be stored", "intent_id", row.ID.String(), "code", fault.CodeOf(err))
		return Outcome{}, cause
	}
	if ok {
		return Outcome{}, f.WithIntent(row.ID.String())
	}
	return Outcome{}, cause
}

// rewordDuplicateKey lets the module replace the log's fault about a duplicate business
// key by one in terms of its documents.
func (a *attempt) rewordDuplicateKey(ctx context.Context, err error) error {
	f, ok := fault.As(err)
	if !ok || a.intentType.OnDuplicate == nil || f.Holder == nil {
		return err
	}
	eventType, _ := f.Attributes["event_type"].(string)
	fresh := a.newView(false)
	if reworded := a.intentType.OnDuplicate(ctx, a.plannerInput(a.service.Clock.Now()), fresh, eventType, *f.Holder); reworded != nil {
		return reworded
	}
	return err
}
