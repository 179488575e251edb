package gl

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// registerEntities declares what GET /api/entities shows of accounts, periods and
// journals. Amounts are decimal strings in the currency of their row.
func registerEntities(r *module.Registrar) {
	r.EntityFold(module.EntityFold{
		EntityType: "account", Version: 2,
		New:   func(id string) any { return &accountEntity{Account: domain.Account{Code: id}} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*accountEntity).apply(e.Type, data) },
	})
	r.EntityFold(module.EntityFold{
		EntityType: "period", Version: 1,
		New: func(id string) any { return &periodEntity{Period: id, Status: domain.PeriodNotOpen} },
		Apply: func(s any, e event.Recorded, data []byte) error {
			p := domain.ModulePeriod{State: s.(*periodEntity).Status}
			err := p.Apply(e, data)
			s.(*periodEntity).Status = p.State
			return err
		},
	})
	r.EntityFold(module.EntityFold{
		EntityType: "journal", Version: 1,
		New:   func(id string) any { return &journalEntity{JournalID: id} },
		Apply: func(s any, e event.Recorded, data []byte) error { return s.(*journalEntity).apply(e, data) },
	})
}

// accountEntity is an account of the chart.
type accountEntity struct {
	domain.Account
	Status string `json:"status,omitempty"` // active, blocked
}

func (a *accountEntity) apply(eventType string, data []byte) error {
	switch eventType {
	case domain.EventAccountDefined:
		a.Status = "active"
		return json.Unmarshal(data, &a.Account)
	case domain.EventAccountChanged:
		a.Account = domain.Account{} // members that the change removed are absent
		return json.Unmarshal(data, &a.Account)
	case domain.EventAccountBlocked:
		a.Status = "blocked"
	case domain.EventAccountUnblocked:
		a.Status = "active"
	}
	return nil
}

// periodEntity is a period of a module.
type periodEntity struct {
	Period string             `json:"period"` // "gl:2026-03"
	Status domain.PeriodState `json:"status"`
}

// journalEntity is a posted journal.
type journalEntity struct {
	JournalID   string             `json:"journal_id"`
	Status      string             `json:"status,omitempty"` // posted, reversed
	Number      string             `json:"journal_number,omitempty"`
	Type        domain.JournalType `json:"journal_type,omitempty"`
	PostingDate *event.Date        `json:"posting_date,omitempty"`
	FiscalYear  string             `json:"fiscal_year,omitempty"`
	Period      string             `json:"period,omitempty"`
	Currency    string             `json:"functional_currency,omitempty"`
	TotalDebit  string             `json:"total_debit,omitempty"`
	TotalCredit string             `json:"total_credit,omitempty"`
	Lines       int                `json:"line_count"`
	Reverses    string             `json:"reverses_journal_id,omitempty"`
	ReversedBy  string             `json:"reversed_by_journal_id,omitempty"`
}

func (j *journalEntity) apply(e event.Recorded, data []byte) error {
	if e.Stream != domain.JournalStream(j.JournalID) {
		return nil // an event of another stream that refers to the journal
	}
	switch e.Type {
	case domain.EventJournalPosted:
		posted, err := domain.DecodeJournal(data)
		if err != nil {
			return err
		}
		date := e.EffectiveDate
		j.Status, j.Number, j.Type, j.PostingDate = "posted", posted.JournalNumber, posted.JournalType, &date
		j.FiscalYear, j.Period, j.Currency, j.Lines = posted.FiscalYear, posted.Period, posted.FunctionalCurrency, len(posted.Lines)
		j.TotalDebit, j.TotalCredit, j.Reverses = posted.TotalDebit.String(), posted.TotalCredit.String(), posted.ReversesJournalID
	case domain.EventJournalReversed:
		var r domain.JournalReversed
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		j.Status, j.ReversedBy = "reversed", r.ReversedByJournalID
	}
	return nil
}
