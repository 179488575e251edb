package domain

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
)

// Event types of allocations, on the stream gl.allocation/<id>.
const (
	EventAllocationDefined   = "gl.allocation.defined"
	EventAllocationCompleted = "gl.allocation.completed"
)

// StreamAllocation is the type of streams that hold an allocation and its runs.
const StreamAllocation = "gl.allocation"

// AllocationStream holds an allocation and its runs.
func AllocationStream(id string) event.StreamID {
	return event.StreamID{Type: StreamAllocation, ID: id}
}

// AllocationSource selects the balance that an allocation divides.
type AllocationSource struct {
	Account    string            `json:"account"`
	Dimensions map[string]string `json:"dimensions,omitempty"` // that lines must have; more do not matter
}

// Selects reports whether a balance on the account is part of the source.
func (s AllocationSource) Selects(b Balance) bool {
	for name, value := range s.Dimensions {
		if b.Dimensions[name] != value {
			return false
		}
	}
	return b.Account == s.Account
}

// AllocationTarget takes a share.
type AllocationTarget struct {
	Account    string            `json:"account,omitempty"` // "" is the source's
	Dimensions map[string]string `json:"dimensions,omitempty"`
	Percent    money.Number      `json:"percent"`
}

// AllocationRule divides the balance of a period among targets. It is the data of
// gl.allocation.defined; a later event replaces an earlier one.
type AllocationRule struct {
	AllocationID string             `json:"allocation_id"`
	Description  string             `json:"description"`
	Source       AllocationSource   `json:"source"`
	Targets      []AllocationTarget `json:"targets"`
	ValidFrom    *event.Date        `json:"valid_from,omitempty"`
	ValidTo      *event.Date        `json:"valid_to,omitempty"` // last day
}

// Check tests what a schema cannot: percents are positive and sum to exactly 100. Faults:
// gl.allocation.percent_mismatch, gl.allocation.validity_invalid, money.*.
func (a AllocationRule) Check() error {
	sum := money.Number{}
	for i, t := range a.Targets {
		field := fmt.Sprintf("/targets/%d/percent", i)
		if err := money.CheckPercent(t.Percent); err != nil {
			return fault.WithField(err, field)
		}
		if t.Percent.Sign() <= 0 {
			return fault.New(fault.Invalid, "gl.allocation.percent_mismatch", "a percent is greater than 0; leave the target out").WithField(field)
		}
		sum = sum.Add(t.Percent)
	}
	if hundred := money.FromInt(100); !sum.Equal(hundred) {
		return fault.New(fault.Invalid, "gl.allocation.percent_mismatch", "the percents sum to %s; correct them so that they sum to 100", sum).
			WithField("/targets").WithNumbers(hundred.String(), sum.String())
	}
	if a.ValidFrom != nil && a.ValidTo != nil && *a.ValidTo < *a.ValidFrom {
		return fault.New(fault.Invalid, "gl.allocation.validity_invalid", "the allocation ends on %s, before it begins on %s; correct the dates", *a.ValidTo, *a.ValidFrom).
			WithField("/valid_to")
	}
	return nil
}

// ValidOn reports whether the allocation may run for a period that ends on the day.
func (a AllocationRule) ValidOn(d event.Date) bool {
	return (a.ValidFrom == nil || d >= *a.ValidFrom) && (a.ValidTo == nil || d <= *a.ValidTo)
}

// Lines divides balances of the source: lines that bring each of them to 0, and the shares of
// the targets per currency. Both amounts of a currency are divided exactly.
func (a AllocationRule) Lines(balances []Balance, functional money.Currency) ([]Line, error) {
	var lines []Line
	var currencies []string
	totals := map[string]Balance{}
	for _, b := range balances {
		lines = append(lines, b.Offset()...)
		total, seen := totals[b.Currency]
		if !seen {
			currencies = append(currencies, b.Currency)
		}
		total.Amount, total.Functional = total.Amount.Add(b.Amount), total.Functional.Add(b.Functional)
		totals[b.Currency] = total
	}
	weights := make([]money.Number, len(a.Targets))
	for i, t := range a.Targets {
		weights[i] = t.Percent
	}
	for _, code := range currencies {
		currency, err := money.LookupCurrency(code, event.Date(0).Time())
		if err != nil {
			return nil, err
		}
		amounts, err := money.Allocate(totals[code].Amount, weights, currency)
		if err != nil {
			return nil, err
		}
		functionals, err := money.Allocate(totals[code].Functional, weights, functional)
		if err != nil {
			return nil, err
		}
		for i, t := range a.Targets {
			account := t.Account
			if account == "" {
				account = a.Source.Account
			}
			// Offsetting the negative share posts the share.
			share := Balance{Account: account, Currency: code, Dimensions: t.Dimensions, Amount: amounts[i].Neg(), Functional: functionals[i].Neg()}
			lines = append(lines, share.Offset()...)
		}
	}
	return lines, nil
}

// AllocationCompleted is the data of gl.allocation.completed.
type AllocationCompleted struct {
	AllocationID string     `json:"allocation_id"`
	Period       string     `json:"period"`
	Date         event.Date `json:"date"`
	JournalID    string     `json:"journal_id"`
}

// AllocationState is the state of the stream gl.allocation/<id>.
type AllocationState struct {
	Defined bool
	Rule    AllocationRule
	Runs    map[string]string // journal of the last run, by period
}

// Clone copies the state. The rule is replaced as a whole, so clones share it.
func (s *AllocationState) Clone() *AllocationState {
	c := *s
	c.Runs = maps.Clone(s.Runs)
	return &c
}

// Apply folds an event.
func (s *AllocationState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventAllocationDefined:
		var a AllocationRule
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("allocation: %w", err)
		}
		s.Defined, s.Rule = true, a
	case EventAllocationCompleted:
		var c AllocationCompleted
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("allocation: %w", err)
		}
		if s.Runs == nil {
			s.Runs = map[string]string{}
		}
		s.Runs[c.Period] = c.JournalID
	}
	return nil
}
