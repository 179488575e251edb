package ap

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

func settingsDeclarations() declarations {
	return declarations{
		events: []declaredEvent{{schema: contract.EventSettingsChanged, EventType: module.EventType{Registration: eventtype.Registration{
			Type: contract.EventSettingsChanged, Description: "Settings of payables changed: the sections given replace the earlier ones.",
		}}}},
		intents: []declaredIntent{{schema: "configure", IntentType: module.IntentType{
			Type: contract.IntentConfigure, Description: "Change limits, tolerances, terms, the coding table or withholding codes.",
			Emits: []string{contract.EventSettingsChanged}, Plan: module.PlanOf(planConfigure),
		}}},
	}
}

func planConfigure(ctx context.Context, in module.Input, s module.State, c contract.SettingsChanged) (module.Plan, error) {
	if err := checkSettings(&c, in.Today); err != nil {
		return module.Plan{}, err
	}
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	f := factsOf(in)
	// The first settings decide themselves whether they need a second person. From then
	// on the settings in force decide, so that no single person can turn this off.
	f.SecondPerson = settings.SecondPerson
	if !settings.Configured && c.SecondPerson != nil {
		f.SecondPerson = *c.SecondPerson
	}
	return module.Plan{
		Events: []event.Draft{{Type: contract.EventSettingsChanged, EffectiveDate: in.Date(), Stream: contract.SettingsStream(), Data: c}},
		Facts:  f,
	}, nil
}

func checkSettings(c *contract.SettingsChanged, today event.Date) error {
	amount := func(n *money.Number, field string) error {
		if n == nil {
			return nil
		}
		if err := money.CheckNonNegative(*n); err != nil {
			return fault.WithField(err, field)
		}
		if _, err := n.Rescale(maxMinorUnit); err != nil {
			return fault.WithField(err, field)
		}
		return nil
	}
	for role, limit := range c.Limits {
		if err := amount(limit, "/limits/"+role); err != nil {
			return err
		}
	}
	if err := amount(c.SecondApproverAbove, "/second_approver_above"); err != nil {
		return err
	}
	if c.Tolerances != nil {
		if err := amount(c.Tolerances.TaxAmount, "/tolerances/tax_amount"); err != nil {
			return err
		}
	}
	if m := c.Match; m != nil {
		if err := amount(m.UnitPriceAmount, "/match/unit_price_amount"); err != nil {
			return err
		}
		if err := amount(m.OrderRequiredAbove, "/match/order_required_above"); err != nil {
			return err
		}
		for _, percent := range []struct {
			field string
			value *money.Number
		}{{"unit_price_percent", m.UnitPricePercent}, {"over_ordered_percent", m.OverOrderedPercent}, {"over_received_percent", m.OverReceivedPercent}} {
			if percent.value == nil {
				continue
			}
			if err := checkPercent(*percent.value, "/match/"+percent.field); err != nil {
				return err
			}
		}
	}
	if err := checkTerms(c.DefaultTerms, "/default_terms"); err != nil {
		return err
	}
	for code, w := range c.WithholdingCodes {
		if err := checkPercent(w.Percent, "/withholding_codes/"+jsondoc.EscapeToken(code)+"/percent"); err != nil {
			return err
		}
	}
	for _, code := range slices.Sorted(maps.Keys(c.BankAccounts)) {
		a, field := c.BankAccounts[code], "/bank_accounts/"+jsondoc.EscapeToken(code)
		if domain.CheckIBAN(a.IBAN) != nil {
			return fault.New(fault.Invalid, "ap.bank_account.iban_invalid",
				"length or check digits of an account's IBAN are wrong; compare it with a statement of the bank").WithField(field + "/iban")
		}
		if _, err := money.LookupCurrency(a.Currency, today.Time()); err != nil {
			return fault.WithField(err, field+"/currency")
		}
	}
	if err := checkBuyerIdentity(c.Buyer); err != nil {
		return err
	}
	if c.Coding != nil {
		seen := map[string]bool{}
		for i, entry := range *c.Coding {
			if seen[entry.AccountingCost] {
				return fault.New(fault.Invalid, "ap.coding.entry_invalid",
					"an accounting_cost has two entries; keep one").WithField(fmt.Sprintf("/coding/%d/accounting_cost", i))
			}
			seen[entry.AccountingCost] = true
		}
	}
	return nil
}

// maxMinorUnit is the largest number of decimals of any currency.
const maxMinorUnit = 4
