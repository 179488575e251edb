package gl

import (
	"context"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func intercompanyTypes() []module.EventType {
	initiated := declare(domain.EventIntercompanyInitiated, "A pair of journals between two legal entities was begun; this side is posted, and the counterparty is to post the other.", "")
	initiated.BusinessKeys = key("pair_id", "pair_id", "pair_id")
	initiated.Redactable = []string{"$.description", "$.lines[*].description"}
	mirrored := declare(domain.EventIntercompanyMirrored, "The counterparty posted its side of a pair.", "")
	mirrored.BusinessKeys = key("pair_id", "pair_id", "pair_id")
	return []module.EventType{initiated, mirrored, explained(domain.EventIntercompanyRefused, "A pair was refused; the counterparty posts nothing.")}
}

func intercompanyIntents() []module.IntentType {
	return []module.IntentType{
		{
			Type: "gl.post_intercompany", Description: "Post this side of a pair of journals between two legal entities.",
			Emits: []string{domain.EventJournalPosted, domain.EventIntercompanyInitiated}, Plan: module.PlanOf(planPostIntercompany),
		},
		{
			Type: "gl.mirror_intercompany", Description: "Post the counterparty's side of a pair.",
			Emits: []string{domain.EventJournalPosted, domain.EventIntercompanyMirrored}, Plan: module.PlanOf(planMirrorIntercompany),
		},
		{
			Type: "gl.refuse_intercompany", Description: "Refuse a pair: first in the counterparty, then in the legal entity that began it.",
			Emits: []string{domain.EventIntercompanyRefused}, Plan: module.PlanOf(planRefuseIntercompany),
		},
	}
}

type postIntercompany struct {
	Counterparty           string            `json:"counterparty"`
	Description            string            `json:"description"`
	PostingDate            *event.Date       `json:"posting_date"`
	Currency               string            `json:"currency"` // "" is the functional currency
	Amount                 money.Number      `json:"amount"`
	Dimensions             map[string]string `json:"dimensions"`
	Lines                  []domain.PairLine `json:"lines"`
	CounterpartyDimensions map[string]string `json:"counterparty_dimensions"`
	CounterpartyLines      []domain.PairLine `json:"counterparty_lines"`
}

// planPostIntercompany posts this side. The pair, its stream and the journal have the same
// id. Both sides' lines add up to the amount, in opposite directions, and each side's
// journal gets one line on due_from or due_to: so each complete pair nets to zero.
func planPostIntercompany(ctx context.Context, in module.Input, s module.State, p postIntercompany) (module.Plan, error) {
	date, err := postingDate(in, p.PostingDate)
	if err != nil {
		return module.Plan{}, err
	}
	if err := checkCounterparty(ctx, in, s, p.Counterparty); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	if p.Currency == "" {
		p.Currency = settings.FunctionalCurrency
	}
	if err := checkPairAmounts(p.CounterpartyLines, p.Currency, date); err != nil {
		return module.Plan{}, err
	}
	here, there := netAmount(p.Lines), netAmount(p.CounterpartyLines)
	if p.Amount.Sign() <= 0 || !here.Abs().Equal(p.Amount) || !there.Equal(here.Neg()) {
		return module.Plan{}, fault.New(fault.Invalid, "gl.intercompany.amount_mismatch",
			"the lines here add up to %s and the counterparty's to %s, debit positive, and the amount is %s; correct them so that it is above 0 and both sides have it in opposite directions", here, there, p.Amount).
			WithField("/amount").With("amount", p.Amount.String()).With("lines", here.String()).With("counterparty_lines", there.String())
	}
	id := in.DocumentID(0)
	planned, err := planPairSide(ctx, ledger, pairSide{
		journalID: id, description: p.Description, date: date, currency: p.Currency, lines: p.Lines, dimensions: p.Dimensions, causedBy: in.CausedBy,
	})
	if err != nil {
		return module.Plan{}, err
	}
	pair := id.String()
	initiated := event.Draft{
		Type: domain.EventIntercompanyInitiated, EffectiveDate: date, Stream: domain.IntercompanyStream(pair), CausedByIndex: 1,
		Data: domain.IntercompanyInitiated{
			PairID: pair, Counterparty: p.Counterparty, PostingDate: date, Description: p.Description, Currency: p.Currency, Amount: p.Amount,
			JournalID: pair, Dimensions: p.CounterpartyDimensions, Lines: p.CounterpartyLines,
		},
		Tags: slices.Clone(planned.Period.Tags), Entities: []event.EntityRef{{Type: "journal", ID: pair, Role: "posting"}},
	}
	return module.Plan{
		Events: []event.Draft{planned.Draft, initiated}, Rules: planned.Rules,
		Facts: journalFactsOf(settings, planned), Amount: journalAmount(settings, planned),
	}, nil
}

// checkCounterparty refuses a counterparty that is this legal entity, or that the caller may
// not see.
func checkCounterparty(ctx context.Context, in module.Input, s module.State, code string) error {
	_, err := module.LoadOf[*domain.LedgerState](ctx, s, code, domain.LedgerStream())
	if err == nil && code != in.LegalEntity.Code {
		return nil
	}
	if err != nil && fault.CodeOf(err) != "legal_entity.not_found" {
		return err
	}
	return fault.New(fault.FailedPrecondition, "gl.intercompany.unknown_entity",
		"there is no other legal entity with this code in which you have rights; name one as counterparty").WithField("/counterparty").WithCause(err)
}

// checkPairAmounts checks the amounts of the counterparty's lines; its ledger checks
// everything else when it posts them.
func checkPairAmounts(lines []domain.PairLine, code string, date event.Date) error {
	currency, err := money.LookupCurrency(code, date.Time())
	if err != nil {
		return fault.WithField(err, "/currency")
	}
	for i, l := range lines {
		if err := domain.CheckSideAmount(l.Amount, currency); err != nil {
			return fault.WithField(err, fmt.Sprintf("/counterparty_lines/%d/amount", i))
		}
	}
	return nil
}

// netAmount is debits less credits.
func netAmount(lines []domain.PairLine) money.Number {
	var net money.Number
	for _, l := range lines {
		if l.Side == domain.Debit {
			net = net.Add(l.Amount)
		} else {
			net = net.Sub(l.Amount)
		}
	}
	return net
}

// pairSide is one side of a pair, without its line on due_from or due_to.
type pairSide struct {
	journalID   event.ID
	description string
	date        event.Date
	currency    string
	lines       []domain.PairLine
	dimensions  map[string]string
	causedBy    event.ID
}

// planPairSide plans the side's journal. What the lines credit is due from the other legal
// entity, what they debit is due to it.
func planPairSide(ctx context.Context, ledger *contract.Ledger, p pairSide) (contract.PlannedJournal, error) {
	payload := make([]journalLine, 0, len(p.lines))
	for _, l := range p.lines {
		payload = append(payload, journalLine{
			Account: l.Account, Side: l.Side, Amount: l.Amount, Description: l.Description, TaxCode: l.TaxCode, Dimensions: l.Dimensions,
		})
	}
	lines, err := toPlan(payload, p.dimensions)
	if err != nil {
		return contract.PlannedJournal{}, err
	}
	net := netAmount(p.lines)
	role, side := contract.RoleDueTo, domain.Credit
	if net.Sign() < 0 {
		role, side = contract.RoleDueFrom, domain.Debit
	}
	account, err := ledger.ProfileAccount(ctx, role)
	if err != nil {
		return contract.PlannedJournal{}, err
	}
	lines = append(lines, contract.SubledgerLine{Account: account, Side: side, Amount: net.Abs(), Dimensions: p.dimensions})
	return contract.PlanJournal(ctx, ledger, contract.Journal{
		SubledgerJournal: contract.SubledgerJournal{
			CausedBy: p.causedBy, Description: p.description, PostingDate: p.date, Currency: p.currency,
			Dimensions: envelopeDimensions(p.dimensions, lines), Lines: lines, JournalID: p.journalID,
		},
		Type: domain.Intercompany,
	})
}

type mirrorIntercompany struct {
	PairID    string `json:"pair_id"`
	Initiator string `json:"initiator"` // code of the legal entity that began the pair
}

// planMirrorIntercompany posts the counterparty's side, in its legal entity, from what the
// other one recorded. The pair has one correlation id.
func planMirrorIntercompany(ctx context.Context, in module.Input, s module.State, p mirrorIntercompany) (module.Plan, error) {
	pair, err := loadForeignPair(ctx, in, s, p.Initiator, p.PairID)
	if err != nil {
		return module.Plan{}, err
	}
	if err := requireUndecided(ctx, s, p.PairID); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	id, was := in.DocumentID(0), pair.Initiated
	planned, err := planPairSide(ctx, ledger, pairSide{
		journalID: id, description: was.Description, date: was.PostingDate, currency: was.Currency, lines: was.Lines, dimensions: was.Dimensions, causedBy: pair.InitiatedID,
	})
	if err != nil {
		return module.Plan{}, fault.WithField(err, "")
	}
	planned.Draft.CausedByPartition = pair.Partition
	mirrored := event.Draft{
		Type: domain.EventIntercompanyMirrored, EffectiveDate: was.PostingDate, Stream: domain.IntercompanyStream(p.PairID), CausedByIndex: 1,
		Data: domain.IntercompanyMirrored{PairID: p.PairID, Initiator: p.Initiator, JournalID: id.String()},
		Tags: slices.Clone(planned.Period.Tags), Entities: []event.EntityRef{{Type: "journal", ID: id.String(), Role: "posting"}},
	}
	return module.Plan{
		Events: []event.Draft{planned.Draft, mirrored}, Rules: planned.Rules, CorrelationID: pair.CorrelationID,
		Facts: journalFactsOf(settings, planned), Amount: journalAmount(settings, planned),
	}, nil
}

// loadForeignPair returns a pair that another legal entity began with this one.
func loadForeignPair(ctx context.Context, in module.Input, s module.State, initiator, pairID string) (*domain.IntercompanyState, error) {
	pair, err := module.LoadOf[*domain.IntercompanyState](ctx, s, initiator, domain.IntercompanyStream(pairID))
	switch {
	case fault.CodeOf(err) == "legal_entity.not_found":
		return nil, fault.New(fault.FailedPrecondition, "gl.intercompany.unknown_entity",
			"there is no other legal entity with this code in which you have rights; name the one that began the pair").WithField("/initiator").WithCause(err)
	case err != nil:
		return nil, err
	case pair.Initiated == nil || pair.Initiated.Counterparty != in.LegalEntity.Code:
		return nil, fault.New(fault.NotFound, "gl.intercompany.not_found",
			"legal entity %s began no pair with this id and this counterparty; take pair_id from its event gl.intercompany.initiated", initiator).WithField("/pair_id")
	}
	return pair, nil
}

// requireUndecided refuses a pair that this legal entity, its counterparty, has mirrored or
// refused.
func requireUndecided(ctx context.Context, s module.State, pairID string) error {
	own, err := module.Load[*domain.IntercompanyState](ctx, s, domain.IntercompanyStream(pairID))
	if err != nil || !own.Mirrored && !own.Refused {
		return err
	}
	return wrongStateFault("gl.intercompany", "the pair", own.Name(), "initiated")
}

type refuseIntercompany struct {
	PairID    string `json:"pair_id"`
	Initiator string `json:"initiator"` // in the counterparty: code of the legal entity that began the pair
	Reason    string `json:"reason"`
}

// planRefuseIntercompany refuses a pair in the counterparty, where it can then not be
// mirrored, and after that in the legal entity that began it, whose journal can then be
// reversed. In this order no pair is both mirrored and refused, although the two legal
// entities share no lock.
func planRefuseIntercompany(ctx context.Context, in module.Input, s module.State, p refuseIntercompany) (module.Plan, error) {
	own, err := module.Load[*domain.IntercompanyState](ctx, s, domain.IntercompanyStream(p.PairID))
	if err != nil {
		return module.Plan{}, err
	}
	pair, plan := own, module.Plan{}
	refused := event.Draft{
		Type: domain.EventIntercompanyRefused, EffectiveDate: in.Date(), Stream: domain.IntercompanyStream(p.PairID),
		Data: domain.IntercompanyRefused{PairID: p.PairID, Reason: p.Reason},
	}
	if own.Initiated != nil {
		err = requireRefusedThere(ctx, s, own)
		refused.CausedBy = own.InitiatedID
	} else {
		if pair, err = loadForeignPair(ctx, in, s, p.Initiator, p.PairID); err != nil {
			return module.Plan{}, err
		}
		err = requireUndecided(ctx, s, p.PairID)
		refused.CausedBy, refused.CausedByPartition = pair.InitiatedID, pair.Partition
	}
	if err != nil {
		return module.Plan{}, err
	}
	plan.Events, plan.CorrelationID = []event.Draft{refused}, pair.CorrelationID
	plan.Facts, err = loadFacts(ctx, contract.NewLedger(s))
	return plan, err
}

func requireRefusedThere(ctx context.Context, s module.State, own *domain.IntercompanyState) error {
	if own.Refused {
		return wrongStateFault("gl.intercompany", "the pair", own.Name(), "initiated")
	}
	other, err := module.LoadOf[*domain.IntercompanyState](ctx, s, own.Initiated.Counterparty, domain.IntercompanyStream(own.Initiated.PairID))
	if err != nil || other.Refused {
		return err
	}
	state := "open"
	if other.Mirrored {
		state = other.Name()
	}
	return wrongStateFault("gl.intercompany", "the pair in legal entity "+own.Initiated.Counterparty, state, "refused")
}

// checkPairReversible refuses to reverse one side of a pair that was not refused, as the
// pair would no longer net to zero.
func checkPairReversible(ctx context.Context, s module.State, journal *domain.JournalState, id event.ID) error {
	if journal.Journal.JournalType != domain.Intercompany {
		return nil
	}
	pair, err := module.Load[*domain.IntercompanyState](ctx, s, domain.IntercompanyStream(id.String()))
	if err != nil || pair.Refused {
		return err
	}
	return fault.New(fault.FailedPrecondition, "gl.intercompany.wrong_state",
		"journal %s is one side of a pair that was not refused; post a pair in the opposite direction instead", journal.Journal.JournalNumber).
		With("state", pair.Name()).With("allowed_states", []string{"refused"})
}
