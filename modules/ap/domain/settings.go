// Package domain holds the rules of accounts payable as pure functions and types: the
// checks of a document, the findings that hold one, and the states that streams of
// vendors, documents and settings fold into.
package domain

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// defaultNetDays is when a document is due if neither it nor its vendor has terms.
const defaultNetDays = 30

// Settings are a legal entity's limits, tolerances and defaults for payables. Readers
// share them; only Apply changes them, on a clone.
type Settings struct {
	Configured          bool
	Limits              map[string]*money.Number // role → largest document; nil is no limit
	SecondApproverAbove money.Number
	TaxTolerance        money.Number
	DuplicateWindowDays int
	DefaultTerms        contract.Terms
	WithholdingCodes    map[string]contract.WithholdingCode
	SecondPerson        bool
	HoldWarnings        bool
	BankAccounts        map[string]contract.PayingAccount
	Buyer               contract.BuyerIdentity
	Match               MatchSettings
	KeepDiscountTax     bool

	coding map[string]contract.Coding
}

// NewSettings gives the defaults.
func NewSettings() *Settings {
	accountant, approver, controller := money.FromInt(10_000), money.FromInt(50_000), money.FromInt(1_000_000)
	return &Settings{
		Limits: map[string]*money.Number{
			"gl_accountant": &accountant, "approver": &approver, "controller": &controller, "cfo": nil,
		},
		SecondApproverAbove: money.FromInt(250_000),
		TaxTolerance:        money.MustNumber("0.05"),
		DefaultTerms:        contract.Terms{NetDays: defaultNetDays},
		SecondPerson:        true,
		Match:               defaultMatch(),
	}
}

// Clone copies the settings. Sections are replaced as a whole, so clones share them.
func (s *Settings) Clone() *Settings { c := *s; return &c }

// Coding finds the coding of an accounting reference.
func (s *Settings) Coding(accountingCost string) (contract.Coding, bool) {
	c, ok := s.coding[accountingCost]
	return c, ok
}

// Apply folds an event.
func (s *Settings) Apply(e event.Recorded, data []byte) error {
	if e.Type != contract.EventSettingsChanged {
		return nil
	}
	var c contract.SettingsChanged
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("settings: %w", err)
	}
	s.Change(c)
	return nil
}

// Change replaces the sections that c has. Only limits are merged, role by role.
func (s *Settings) Change(c contract.SettingsChanged) {
	s.Configured = true
	if c.Limits != nil {
		limits := maps.Clone(s.Limits)
		maps.Copy(limits, c.Limits)
		s.Limits = limits
	}
	if c.SecondApproverAbove != nil {
		s.SecondApproverAbove = *c.SecondApproverAbove
	}
	if c.Tolerances != nil && c.Tolerances.TaxAmount != nil {
		s.TaxTolerance = *c.Tolerances.TaxAmount
	}
	if c.DuplicateWindowDays != nil {
		s.DuplicateWindowDays = *c.DuplicateWindowDays
	}
	if c.DefaultTerms != nil {
		s.DefaultTerms = *c.DefaultTerms
	}
	if c.Coding != nil {
		s.coding = make(map[string]contract.Coding, len(*c.Coding))
		for _, entry := range *c.Coding {
			s.coding[entry.AccountingCost] = entry
		}
	}
	if c.WithholdingCodes != nil {
		s.WithholdingCodes = c.WithholdingCodes
	}
	if c.BankAccounts != nil {
		s.BankAccounts = c.BankAccounts
	}
	if c.Buyer != nil {
		s.Buyer = *c.Buyer
	}
	if c.SecondPerson != nil {
		s.SecondPerson = *c.SecondPerson
	}
	if c.HoldWarnings != nil {
		s.HoldWarnings = *c.HoldWarnings
	}
	if c.Match != nil {
		s.Match.change(*c.Match)
	}
	if c.DiscountTax != "" {
		s.KeepDiscountTax = c.DiscountTax == contract.DiscountTaxKeep
	}
}
