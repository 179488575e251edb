package gl

import (
	"context"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// facts are what the policy decides on.
type facts struct {
	SecondPerson bool                     `json:"second_person"`
	Limits       map[string]*money.Number `json:"limits"` // by role, functional currency; null is none
	Journal      *journalFacts            `json:"journal,omitempty"`
	CloseLevel   string                   `json:"close_level,omitempty"`
	Rate         *rateFacts               `json:"rate,omitempty"`
}

type journalFacts struct {
	Amount   money.Number    `json:"amount"` // total debit in functional currency
	Currency string          `json:"currency"`
	Period   contract.Period `json:"period"`
}

// loadFacts makes the facts that come from the settings, or from their defaults before the
// ledger is configured.
func loadFacts(ctx context.Context, l *contract.Ledger) (facts, error) {
	s, err := l.Settings(ctx)
	switch {
	case fault.CodeOf(err) == "gl.ledger.not_configured":
		return facts{SecondPerson: true, Limits: domain.DefaultLimits()}, nil
	case err != nil:
		return facts{}, err
	}
	return facts{SecondPerson: s.SecondPerson, Limits: s.EffectiveLimits()}, nil
}

// postingDate chooses the date that decides the period: the payload's, else the intent's
// effective date, else today. It refuses two dates that differ.
func postingDate(in module.Input, given *event.Date) (event.Date, error) {
	if given == nil {
		return in.Date(), nil
	}
	if in.EffectiveDate != nil && *in.EffectiveDate != *given {
		return 0, fault.New(fault.Invalid, "gl.journal.posting_date_mismatch",
			"the intent's effective date %s and the posting date %s differ; send one of them", *in.EffectiveDate, *given).
			WithField("/posting_date")
	}
	return *given, nil
}

// duplicates has the code and subject of the fault for a taken business key, by event type.
var duplicates = map[string]struct{ code, what string }{
	domain.EventAccountDefined:        {"gl.account.duplicate", "an account with this code"},
	domain.EventDimensionValueDefined: {"gl.dimension_value.duplicate", "this value of the dimension"},
	domain.EventFiscalYearDefined:     {"gl.fiscal_year.duplicate", "a fiscal year with this label"},
	domain.EventBankStatementImported: {"gl.bank_statement.duplicate", "a statement of this account with this id and part"},
}

func onDuplicate(ctx context.Context, in module.Input, s module.State, eventType string, h fault.Holder) error {
	d, ok := duplicates[eventType]
	if !ok {
		return nil
	}
	if eventType == domain.EventBankStatementImported {
		return onDuplicateStatement(ctx, in, s, h)
	}
	return duplicateFault(eventType, d.what).WithHolder(h)
}

func duplicateFault(eventType, what string) *fault.Error {
	return fault.New(fault.Conflict, duplicates[eventType].code, "%s exists already; use it or choose another", what)
}

// entity makes the reference to the subject of an event.
func entity(kind, id string) []event.EntityRef {
	return []event.EntityRef{{Type: kind, ID: id, Role: "subject"}}
}
