package gl

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// registerFigures declares the figures that lead to journals: the balance of an account, what
// a tax group took, a journal.
func registerFigures(r *module.Registrar) {
	ofLines := func(value func(l domain.Line) string) func(event.Recorded, json.RawMessage) []string {
		return func(_ event.Recorded, data json.RawMessage) []string {
			j, err := domain.DecodeJournal(data)
			if err != nil {
				return nil
			}
			var out []string
			for _, l := range j.Lines {
				out = append(out, value(l))
			}
			return out
		}
	}
	posted := []string{domain.EventJournalPosted}
	r.Figure(module.Figure{
		Name: "account", Description: "balance of an account, by its code", ReadModel: module.ReadModelPath("gl", ReadModelAccountLedger), Param: "account",
		EventTypes: posted, Values: ofLines(func(l domain.Line) string { return l.Account }),
	})
	r.Figure(module.Figure{
		Name: "tax", Description: "lines of a tax group, by its code", ReadModel: module.ReadModelPath("gl", ReadModelJournalLines), Param: "tax_code",
		EventTypes: posted, Values: ofLines(func(l domain.Line) string { return l.TaxCode }),
	})
	r.Figure(module.Figure{
		Name: "journal", Description: "a journal, by number or id", ReadModel: module.ReadModelPath("gl", ReadModelJournal), Param: "number",
		EventTypes: posted, Values: func(_ event.Recorded, data json.RawMessage) []string {
			j, err := domain.DecodeJournal(data)
			if err != nil {
				return nil
			}
			return []string{j.JournalNumber}
		},
	})
}
