package domain

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// EventRevaluationCompleted is the event of a revaluation, on the stream
// gl.revaluation/<period>.
const EventRevaluationCompleted = "gl.revaluation.completed"

// StreamRevaluation is the type of streams that hold the revaluations of a period.
const StreamRevaluation = "gl.revaluation"

// RevaluationStream holds the revaluations of a period.
func RevaluationStream(period string) event.StreamID {
	return event.StreamID{Type: StreamRevaluation, ID: period}
}

// RevaluedBalance is a row of the worksheet of a revaluation. Positive is a debit balance.
type RevaluedBalance struct {
	Account  string       `json:"account"`
	Currency string       `json:"currency"`
	PostedTo string       `json:"posted_to,omitempty"` // account that takes the difference instead of a control account
	Balance  money.Number `json:"balance"`             // in Currency
	Rate     money.Number `json:"rate,omitzero"`       // absent for a balance of 0
	RateDate *event.Date  `json:"rate_date,omitempty"`
	Old      money.Number `json:"old"` // functional, with earlier revaluations that are in effect
	New      money.Number `json:"new"` // functional, at the rate
	Delta    money.Number `json:"delta"`
}

// RevaluationCompleted is the data of gl.revaluation.completed.
type RevaluationCompleted struct {
	Period             string            `json:"period"`
	Date               event.Date        `json:"date"`
	FunctionalCurrency string            `json:"functional_currency"`
	JournalIDs         []string          `json:"journal_ids"` // none if no balance changed its value
	Worksheet          []RevaluedBalance `json:"worksheet"`
	Total              money.Number      `json:"total"` // sum of the deltas; negative is a loss
}

// RevaluationState is the state of the stream gl.revaluation/<period>.
type RevaluationState struct {
	Journals []string // of all runs
}

// Clone copies the state.
func (s *RevaluationState) Clone() *RevaluationState {
	return &RevaluationState{Journals: append([]string(nil), s.Journals...)}
}

// Apply folds an event.
func (s *RevaluationState) Apply(e event.Recorded, data []byte) error {
	if e.Type != EventRevaluationCompleted {
		return nil
	}
	var r RevaluationCompleted
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("revaluation: %w", err)
	}
	s.Journals = append(s.Journals, r.JournalIDs...)
	return nil
}
