package gl

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func openingIntents() []module.IntentType {
	return []module.IntentType{{
		Type: "gl.load_opening_balances", Description: "Post the balances of earlier books.",
		Emits: []string{domain.EventJournalPosted}, Plan: module.PlanOf(planLoadOpeningBalances),
	}}
}

type openingBalances struct {
	Description string            `json:"description"` // "" is "Opening balances"
	Date        *event.Date       `json:"date"`
	Currency    string            `json:"currency"` // of lines that name none; "" is the functional currency
	Dimensions  map[string]string `json:"dimensions"`
	Lines       []journalLine     `json:"lines"`
}

func planLoadOpeningBalances(ctx context.Context, in module.Input, s module.State, p openingBalances) (module.Plan, error) {
	date, err := postingDate(in, p.Date)
	if err != nil {
		return module.Plan{}, fault.WithField(err, "/date")
	}
	if err := checkNoOpening(ctx, s); err != nil {
		return module.Plan{}, err
	}
	if p.Description == "" {
		p.Description = "Opening balances"
	}
	return planJournal(ctx, in, s, date, domain.Opening, postJournal{
		Description: p.Description, Currency: p.Currency, Dimensions: p.Dimensions, Lines: p.Lines,
	})
}

// checkNoOpening refuses opening balances while the ledger has some that were not reversed.
// The search becomes an append condition, so two of them cannot both be appended.
func checkNoOpening(ctx context.Context, s module.State) error {
	open, err := standingJournals(ctx, s, contract.TagOpeningBalances)
	if err != nil || len(open) == 0 {
		return err
	}
	number := open[0].data.JournalNumber
	return fault.New(fault.FailedPrecondition, "gl.journal.duplicate_opening",
		"journal %s has the opening balances; reverse it with gl.reverse_journal before loading others", number).
		With("journal_number", number)
}
