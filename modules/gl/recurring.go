package gl

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func recurringTypes() []module.EventType {
	defined := declare(domain.EventRecurringDefined, "A recurring journal was defined; a later definition replaces it. The data has template, schedule and dates.", `{
		"recurring_id": "RENT", "description": "Rent", "schedule": {"every": "month", "on": "day", "day": 1}, "from": "2026-01-01",
		"lines": [
			{"account": "6000", "debit_credit": "debit", "amount": 1200.00},
			{"account": "1000", "debit_credit": "credit", "amount": 1200.00}
		]}`)
	defined.Redactable = []string{"$.description", "$.lines[*].description"}
	return []module.EventType{defined}
}

func recurringIntents() []module.IntentType {
	return []module.IntentType{
		{
			Type: "gl.define_recurring_journal", Description: "Define a recurring journal; a later definition replaces it.",
			Emits: []string{domain.EventRecurringDefined}, Plan: module.PlanOf(planDefineRecurring),
		},
		{
			Type: "gl.run_recurring", Description: "Post the recurring journals that are due.",
			Emits: []string{domain.EventJournalPosted}, Plan: module.PlanOf(planRunRecurring),
		},
	}
}

// reverseNextPeriod reverses each journal on the first day of the period after its own.
const reverseNextPeriod = "next_period"

// recurringJournal is the data of gl.recurring.defined.
type recurringJournal struct {
	RecurringID string            `json:"recurring_id"`
	Description string            `json:"description"`
	Schedule    domain.Schedule   `json:"schedule"`
	From        event.Date        `json:"from"`
	Until       *event.Date       `json:"until,omitempty"`
	Reverse     string            `json:"reverse,omitempty"`
	Currency    string            `json:"currency,omitempty"` // of lines that name none; "" is the functional currency
	Dimensions  map[string]string `json:"dimensions,omitempty"`
	Lines       []journalLine     `json:"lines"`
}

// planDefineRecurring checks what holds on every due date: accounts, amounts and balance.
// Periods, rates and dimension values are checked when a journal is posted. The amount
// counts against the preparer's limit here, as a service that has none may post it later.
func planDefineRecurring(ctx context.Context, in module.Input, s module.State, r recurringJournal) (module.Plan, error) {
	if (r.Schedule.On == domain.OnDay) != (r.Schedule.Day > 0) {
		return module.Plan{}, fault.New(fault.Invalid, "intent.schema_invalid",
			"a schedule on a day names the day, and one on period ends names none; correct the schedule").WithField("/schedule/day")
	}
	if r.Until != nil && *r.Until < r.From {
		return module.Plan{}, fault.New(fault.Invalid, "intent.schema_invalid", "until %s is before from %s; correct the dates", *r.Until, r.From).
			WithField("/until")
	}
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	amount, err := checkTemplate(ctx, in, ledger, settings, r)
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventRecurringDefined, EffectiveDate: in.Date(), Stream: domain.RecurringStream(r.RecurringID), Data: r,
			Tags: []string{contract.TagRecurring},
		}},
		Facts: facts{
			SecondPerson: settings.SecondPerson, Limits: settings.EffectiveLimits(),
			Journal: &journalFacts{Amount: amount, Currency: settings.FunctionalCurrency},
		},
		Amount: &module.Amount{Value: amount, Currency: settings.FunctionalCurrency},
	}, nil
}

// checkTemplate returns the sum of the debits in functional currency at today's rates.
func checkTemplate(ctx context.Context, in module.Input, ledger *contract.Ledger, settings domain.Settings, r recurringJournal) (money.Number, error) {
	var amount money.Number
	if n := len(r.Lines); n < domain.MinLines {
		return amount, domain.LineCountFault(n)
	}
	lines, moves := make([]domain.Line, 0, len(r.Lines)), false
	for i, l := range r.Lines {
		at := fmt.Sprintf("/lines/%d", i)
		account, err := ledger.Account(ctx, l.Account)
		if err != nil {
			return amount, fault.WithField(err, at+"/account")
		}
		if account.IsControl() {
			return amount, fault.New(fault.FailedPrecondition, "gl.account.control_account",
				"account %s belongs to the subledger %s and takes no other line; post there", l.Account, account.Control).
				WithField(at+"/account").With("account", l.Account)
		}
		code := cmp.Or(l.Currency, r.Currency, settings.FunctionalCurrency)
		currency, err := money.LookupCurrency(code, in.Today.Time())
		if err != nil {
			return amount, fault.WithField(err, at+"/currency")
		}
		if err := domain.CheckSideAmount(l.Amount, currency); err != nil {
			return amount, fault.WithField(err, at+"/amount")
		}
		moves = moves || !l.Amount.IsZero()
		lines = append(lines, domain.Line{Side: l.Side, Amount: l.Amount, Currency: code})
		if l.Side != domain.Debit {
			continue
		}
		functional, _, _, err := ledger.FunctionalAmount(ctx, l.Amount, code, in.Today)
		if err != nil {
			return amount, fault.WithField(err, at+"/currency")
		}
		amount = amount.Add(functional)
	}
	if !moves {
		return amount, domain.ZeroJournalFault(len(lines))
	}
	return amount, domain.CheckBalance(lines)
}

// dueRecurring is a recurring journal on one of its due dates.
type dueRecurring struct {
	recurringJournal
	definition event.ID
	date       event.Date
}

// loadDueRecurring returns the recurring journals that are due through the date and were not
// posted for it, by date and id. It reads all definitions and all journals posted from them.
// That there are no more of them becomes an append condition, so each date is posted once.
func loadDueRecurring(ctx context.Context, s module.State, p runRecurring) ([]dueRecurring, error) {
	type occurrence struct {
		id   string
		date event.Date
	}
	definitions, posted := map[string]dueRecurring{}, map[occurrence]bool{}
	err := s.Decide(ctx, module.Projector{
		Items: []concurrency.Item{{
			Types: []string{domain.EventRecurringDefined, domain.EventJournalPosted}, Tags: []string{contract.TagRecurring},
		}},
		Apply: func(e event.Recorded, data []byte) error {
			var r recurringJournal
			if e.Type == domain.EventJournalPosted {
				var j struct {
					RecurringID string `json:"recurring_id"`
				}
				err := json.Unmarshal(data, &j)
				posted[occurrence{j.RecurringID, e.EffectiveDate}] = true
				return err
			}
			err := json.Unmarshal(data, &r)
			definitions[r.RecurringID] = dueRecurring{recurringJournal: r, definition: e.ID}
			return err
		},
	})
	if err != nil {
		return nil, err
	}
	if _, found := definitions[p.RecurringID]; p.RecurringID != "" && !found {
		return nil, fault.New(fault.NotFound, "gl.recurring.not_found",
			"there is no recurring journal %q; define it with gl.define_recurring_journal", p.RecurringID).WithField("/recurring_id")
	}
	calendar, err := loadCalendar(ctx, s)
	if err != nil {
		return nil, err
	}
	var due []dueRecurring
	for id, r := range definitions {
		if p.RecurringID != "" && p.RecurringID != id {
			continue
		}
		through := p.Through
		if r.Until != nil {
			through = min(through, *r.Until)
		}
		for _, r.date = range r.Schedule.Dates(calendar, r.From, through) {
			if !posted[occurrence{id, r.date}] {
				due = append(due, r)
			}
		}
	}
	slices.SortFunc(due, func(a, b dueRecurring) int {
		return cmp.Or(cmp.Compare(a.date, b.date), strings.Compare(a.RecurringID, b.RecurringID))
	})
	return due, nil
}

type runRecurring struct {
	Through     event.Date `json:"through"`
	RecurringID string     `json:"recurring_id"` // "" is every one
}

// planRunRecurring posts each recurring journal that is due on its due date. What is more
// than one batch holds stays for the next run; the rule trace says how many.
func planRunRecurring(ctx context.Context, in module.Input, s module.State, p runRecurring) (module.Plan, error) {
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	due, err := loadDueRecurring(ctx, s, p)
	if err != nil {
		return module.Plan{}, err
	}
	now := due[:min(len(due), maxJournalsPerRun)]
	plan := module.Plan{Rules: []event.RuleEvaluation{runRule("gl.recurring.due", "Recurring journals to post through "+p.Through.String(), len(now), len(due)-len(now))}}
	journals := make([]contract.PlannedJournal, 0, len(now))
	for i, r := range now {
		planned, err := r.plan(ctx, s, ledger, settings, in.DocumentID(i))
		if err != nil {
			if f, ok := fault.As(err); ok {
				err = f.WithField("").With("recurring_id", r.RecurringID).With("date", r.date.String())
			}
			return module.Plan{}, err
		}
		plan.Events = append(plan.Events, planned.Draft)
		journals = append(journals, planned)
	}
	plan.Facts, plan.Amount = runFacts(settings, journals)
	return plan, nil
}

// plan plans the journal of the due date.
func (r dueRecurring) plan(ctx context.Context, s module.State, ledger *contract.Ledger, settings domain.Settings, id event.ID) (contract.PlannedJournal, error) {
	lines, err := toPlan(r.Lines, r.Dimensions)
	if err != nil {
		return contract.PlannedJournal{}, err
	}
	journal := contract.Journal{
		SubledgerJournal: contract.SubledgerJournal{
			CausedBy: r.definition, Description: r.Description, PostingDate: r.date, Currency: cmp.Or(r.Currency, settings.FunctionalCurrency),
			Dimensions: envelopeDimensions(r.Dimensions, lines), Lines: lines, JournalID: id,
		},
		Type: domain.General, RecurringID: r.RecurringID,
	}
	if r.Reverse == reverseNextPeriod {
		calendar, err := loadCalendar(ctx, s)
		if err != nil {
			return contract.PlannedJournal{}, err
		}
		if _, span, found := calendar.Find(r.date); found { // else the journal is refused for its date
			next := span.End + 1
			journal.ReversalDate = &next
		}
	}
	return contract.PlanJournal(ctx, ledger, journal)
}
