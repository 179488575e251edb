package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// vendorPolicy is the Rego package that decides on changes of registered vendors.
const vendorPolicy = "backbone.rules.ap_vendors"

// vendorChangeDeclarations are the event types and intents that change and block vendors.
func vendorChangeDeclarations() declarations {
	refs := []eventtype.RequiredRef{vendorRefRule()}
	d := declarations{
		events: []declaredEvent{{schema: contract.EventVendorChanged, EventType: module.EventType{
			Registration: eventtype.Registration{
				Type: contract.EventVendorChanged, Description: "Vendor changed. A member that is given replaces the earlier one. The person of a natural person is sealed under the vendor's id.",
				RequiredEntityRefs: refs, PIIFields: personFields(), RetentionClass: eventtype.PIISubject,
			},
			Redactable: []string{"$.name", "$.reason"},
		}}},
		intents: []declaredIntent{{schema: "change_vendor", IntentType: module.IntentType{
			Type: contract.IntentChangeVendor, Description: "Change a vendor, except its id and VAT id.", Emits: []string{contract.EventVendorChanged},
			PIIFields: personFields(), RetentionClass: eventtype.PIISubject, Policy: vendorPolicy, Plan: planChangeVendor,
		}}},
	}
	for _, b := range []struct {
		intent, event, verb, description string
		blocks                           bool
	}{
		{contract.IntentBlockVendor, contract.EventVendorBlocked, "Block a vendor for payments, or for documents and payments.", "Vendor blocked.", true},
		{contract.IntentUnblockVendor, contract.EventVendorUnblocked, "Lift a block of a vendor.", "A block of the vendor was lifted.", false},
	} {
		d.events = append(d.events, declaredEvent{schema: b.event, EventType: module.EventType{
			Registration: eventtype.Registration{Type: b.event, Description: b.description, RequiredEntityRefs: refs}, Redactable: []string{"$.reason"},
		}})
		d.intents = append(d.intents, declaredIntent{schema: "block_vendor", IntentType: module.IntentType{
			Type: b.intent, Description: b.verb, Emits: []string{b.event}, Policy: vendorPolicy, Plan: planBlockVendor(b.event, b.blocks),
		}})
	}
	return d
}

// planChangeVendor plans a change. When it refuses one, the stored intent keeps no name, in
// whichever member it was sent.
func planChangeVendor(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	plan, err := changeVendor(ctx, in, s)
	if err != nil {
		plan.Kept = editPayload(in.Payload, func(p members) { delete(p, "name"); delete(p, "person") })
	}
	return plan, err
}

func changeVendor(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var c contract.VendorChange
	if err := module.DecodePayload(in.Payload, &c); err != nil {
		return module.Plan{}, err
	}
	vendor, err := loadVendor(ctx, s, c.VendorID)
	if err != nil {
		return module.Plan{}, err
	}
	switch {
	case c.Person != nil && !vendor.Master.NaturalPerson:
		return module.Plan{}, fault.New(fault.FailedPrecondition, "ap.vendor.person_unexpected",
			"only a natural person has a person; send the name of the company").WithField("/person")
	case c.Name != "" && vendor.Master.NaturalPerson:
		return module.Plan{}, personInClearFault("/name")
	}
	if c.Person != nil {
		if err := checkVATID(c.Person.VATID, c.VATIDUnverified, "/person/vat_id"); err != nil {
			return module.Plan{}, err
		}
	}
	if c.Country != "" {
		if err := checkCountry(c.Country); err != nil {
			return module.Plan{}, err
		}
	}
	if c.Currency != "" {
		if _, err := money.LookupCurrency(c.Currency, in.Today.Time()); err != nil {
			return module.Plan{}, fault.WithField(err, "/currency")
		}
	}
	if err := checkTerms(c.Terms, "/terms"); err != nil {
		return module.Plan{}, err
	}
	if c.WithholdingCode != "" {
		settings, err := loadSettings(ctx, s)
		if err != nil {
			return module.Plan{}, err
		}
		if err := checkWithholdingCode(c.WithholdingCode, settings, "/withholding_code"); err != nil {
			return module.Plan{}, err
		}
	}
	return vendorPlan(in, c.VendorID, contract.EventVendorChanged, c), nil
}

func planBlockVendor(eventType string, blocks bool) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return module.PlanOf(func(ctx context.Context, in module.Input, s module.State, b contract.VendorBlock) (module.Plan, error) {
		vendor, err := loadVendor(ctx, s, b.VendorID)
		if err != nil {
			return module.Plan{}, err
		}
		if slices.Contains(vendor.Blocks, b.Scope) == blocks {
			return module.Plan{}, blockStateFault(b.Scope, vendor.Blocks, blocks)
		}
		scopes := slices.DeleteFunc(slices.Clone(vendor.Blocks), func(have string) bool { return have == b.Scope })
		if blocks {
			scopes = append(scopes, b.Scope)
		}
		b.Status = domain.Status(scopes)
		return vendorPlan(in, b.VendorID, eventType, b), nil
	})
}

func blockStateFault(scope string, have []string, blocks bool) error {
	allowed := []string{contract.VendorPaymentBlocked, contract.VendorBlocked}
	detail := "the vendor has no block of scope %s; look its status up (GET /api/ap/vendors)"
	if blocks {
		allowed, detail = []string{contract.VendorActive, contract.VendorPaymentBlocked}, "the vendor has a block of scope %s already; look its status up (GET /api/ap/vendors)"
	}
	return fault.New(fault.FailedPrecondition, "ap.vendor.wrong_state", detail, scope).WithField("/scope").
		With("state", domain.Status(have)).With("allowed_states", allowed)
}

// vendorPlan plans one event on a vendor's stream.
func vendorPlan(in module.Input, vendorID, eventType string, data any) module.Plan {
	return module.Plan{
		Events: []event.Draft{{
			Type: eventType, EffectiveDate: in.Date(), Stream: contract.VendorStream(vendorID), Data: data,
			Entities: []event.EntityRef{contract.VendorRef(vendorID)},
		}},
		Facts: factsOf(in),
	}
}
