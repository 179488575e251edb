package domain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
)

// ControlNone is the control member of an account that no subledger owns.
const ControlNone = "none"

// Types of accounts whose balances a year end takes to retained earnings.
const (
	AccountIncome  = "income"
	AccountExpense = "expense"
)

// Account is an account of the chart, as gl.account.defined carries it.
type Account struct {
	Code               string      `json:"code"`
	Name               string      `json:"name"`
	Type               string      `json:"type"`        // asset, liability, equity, income, expense
	NormalSide         Side        `json:"normal_side"` // the side that increases it
	Parent             string      `json:"parent,omitempty"`
	Postable           bool        `json:"postable"`
	ActiveFrom         *event.Date `json:"active_from,omitempty"`
	ActiveTo           *event.Date `json:"active_to,omitempty"` // last active day
	Currencies         []string    `json:"currencies,omitempty"`
	RequiredDimensions []string    `json:"required_dimensions,omitempty"`
	Control            string      `json:"control"` // module that owns it, or "none"
	Revalue            bool        `json:"revalue"`
}

// IsControl reports whether only a subledger posts to the account.
func (a Account) IsControl() bool { return a.Control != "" && a.Control != ControlNone }

// ActiveOn reports whether the account may be posted to on the day.
func (a Account) ActiveOn(d event.Date) bool {
	return (a.ActiveFrom == nil || d >= *a.ActiveFrom) && (a.ActiveTo == nil || d <= *a.ActiveTo)
}

// AcceptsCurrency reports whether the account may hold amounts of the currency.
func (a Account) AcceptsCurrency(currency string) bool {
	return len(a.Currencies) == 0 || slices.Contains(a.Currencies, currency)
}

// Clone copies the account with everything it points to.
func (a Account) Clone() Account {
	a.ActiveFrom, a.ActiveTo = cloneDate(a.ActiveFrom), cloneDate(a.ActiveTo)
	a.Currencies, a.RequiredDimensions = slices.Clone(a.Currencies), slices.Clone(a.RequiredDimensions)
	return a
}

func cloneDate(d *event.Date) *event.Date {
	if d == nil {
		return nil
	}
	c := *d
	return &c
}

// AccountState is the state of an account's stream.
type AccountState struct {
	Defined bool
	Blocked bool
	Account Account
}

// Clone copies the state. The account is replaced as a whole, so clones share it.
func (s *AccountState) Clone() *AccountState { c := *s; return &c }

// Apply folds an event.
func (s *AccountState) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case EventAccountDefined, EventAccountChanged:
		var a Account
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("account: %w", err)
		}
		s.Defined, s.Account = true, a
	case EventAccountBlocked:
		s.Blocked = true
	case EventAccountUnblocked:
		s.Blocked = false
	}
	return nil
}

// DimensionValue is a value of a dimension, as gl.dimension_value.defined carries
// it.
type DimensionValue struct {
	Dimension  string      `json:"dimension"`
	Value      string      `json:"value"`
	Name       string      `json:"name"`
	ActiveFrom *event.Date `json:"active_from,omitempty"`
	ActiveTo   *event.Date `json:"active_to,omitempty"` // last active day
}

// ActiveOn reports whether the value may be used on the day.
func (v DimensionValue) ActiveOn(d event.Date) bool {
	return (v.ActiveFrom == nil || d >= *v.ActiveFrom) && (v.ActiveTo == nil || d <= *v.ActiveTo)
}

// DimensionState is the state of a dimension's stream: its values.
type DimensionState struct {
	values map[string]DimensionValue
}

// NewDimensionState is a dimension without values.
func NewDimensionState() *DimensionState {
	return &DimensionState{values: map[string]DimensionValue{}}
}

// Clone copies the state.
func (s *DimensionState) Clone() *DimensionState {
	c := make(map[string]DimensionValue, len(s.values)+1)
	for k, v := range s.values {
		c[k] = v
	}
	return &DimensionState{values: c}
}

// MarshalJSON encodes the state for module.JSONCodec.
func (s *DimensionState) MarshalJSON() ([]byte, error) { return json.Marshal(s.values) }

// UnmarshalJSON decodes the form of MarshalJSON.
func (s *DimensionState) UnmarshalJSON(b []byte) error {
	s.values = map[string]DimensionValue{}
	return json.Unmarshal(b, &s.values)
}

// Value finds a value.
func (s *DimensionState) Value(value string) (DimensionValue, bool) {
	v, ok := s.values[value]
	return v, ok
}

// Apply folds an event.
func (s *DimensionState) Apply(e event.Recorded, data []byte) error {
	if e.Type != EventDimensionValueDefined {
		return nil
	}
	var v DimensionValue
	if err := json.Unmarshal(data, &v); err != nil {
		return fmt.Errorf("dimension value: %w", err)
	}
	s.values[v.Value] = v
	return nil
}
