package domain

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// defaultRateAgeDays is how old a spot rate may be if the configuration does not set it.
const defaultRateAgeDays = 31

// DefaultRateTolerance is Settings.RateTolerance if the configuration does not set it. Rates
// of a month differ by a few percent; a slipped decimal point or an inverse rate by more.
func DefaultRateTolerance() money.Number { return money.FromInt(10) }

// TaxGroup has the rate of one kind of tax and the accounts to which it is posted.
type TaxGroup struct {
	Rate               money.Number `json:"rate"`                      // percent of the taxable amount
	Account            string       `json:"account,omitempty"`         // recoverable input tax; "" is the profile's input_tax
	OutputAccount      string       `json:"output_account,omitempty"`  // reverse charge's other side; "" is the profile's output_tax
	RecoverablePercent money.Number `json:"recoverable_percent"`       // 0 to 100; the rest is an expense
	ReverseCharge      bool         `json:"reverse_charge,omitempty"`  // the buyer owes the tax
	ExpenseAccount     string       `json:"expense_account,omitempty"` // for the part that is not recoverable; "" is the line's own account
	Description        string       `json:"description,omitempty"`
}

// UnmarshalJSON fills in the default of an absent recoverable_percent: 100.
func (g *TaxGroup) UnmarshalJSON(b []byte) error {
	type plain TaxGroup
	p := plain{RecoverablePercent: money.FromInt(100)}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	*g = TaxGroup(p)
	return nil
}

// Settings are the ledger's configuration and the data of gl.ledger.configured. Each event
// has all settings and replaces the earlier ones.
type Settings struct {
	FunctionalCurrency string            `json:"functional_currency"`
	DefaultDimensions  map[string]string `json:"default_dimensions"`
	RateAgeDays        int               `json:"rate_age_days"`
	// RateTolerance is how far a rate may be from the latest one, in percent of it, before a
	// second person agrees.
	RateTolerance  money.Number             `json:"rate_tolerance_percent"`
	TaxGroups      map[string]TaxGroup      `json:"tax_groups"`
	PostingProfile map[string]string        `json:"posting_profile"` // role → account
	Limits         map[string]*money.Number `json:"limits"`          // role → largest journal without an approval, functional currency; null is no limit
	SecondPerson   bool                     `json:"second_person"`
	OrderlyClose   bool                     `json:"orderly_close"`
}

// DefaultLimits are the limits of roles that the settings do not name.
func DefaultLimits() map[string]*money.Number {
	accountant, controller := money.FromInt(10_000), money.FromInt(1_000_000)
	return map[string]*money.Number{
		"gl_accountant": &accountant, "controller": &controller, "cfo": nil, "module": nil,
	}
}

// EffectiveLimits returns the default limits, replaced by those that the settings name.
func (s Settings) EffectiveLimits() map[string]*money.Number {
	out := DefaultLimits()
	for role, limit := range s.Limits {
		out[role] = limit
	}
	return out
}

// UnmarshalJSON fills in the defaults of absent members, so that no map is nil.
func (s *Settings) UnmarshalJSON(b []byte) error {
	type plain Settings
	p := plain{RateAgeDays: defaultRateAgeDays, RateTolerance: DefaultRateTolerance(), SecondPerson: true, OrderlyClose: true}
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	if p.DefaultDimensions == nil {
		p.DefaultDimensions = map[string]string{}
	}
	if p.TaxGroups == nil {
		p.TaxGroups = map[string]TaxGroup{}
	}
	if p.PostingProfile == nil {
		p.PostingProfile = map[string]string{}
	}
	if p.Limits == nil {
		p.Limits = map[string]*money.Number{}
	}
	*s = Settings(p)
	return nil
}

// LedgerState is the state of the stream gl.ledger/main.
type LedgerState struct {
	Configured bool
	Settings   Settings
}

// Clone copies the state. Settings are replaced as a whole, so clones share them.
func (s *LedgerState) Clone() *LedgerState { c := *s; return &c }

// Apply folds an event.
func (s *LedgerState) Apply(e event.Recorded, data []byte) error {
	if e.Type != EventLedgerConfigured {
		return nil
	}
	var settings Settings
	if err := json.Unmarshal(data, &settings); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	s.Configured, s.Settings = true, settings
	return nil
}
