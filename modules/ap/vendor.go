package ap

import (
	"context"
	"fmt"
	"regexp"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// The number series of vendors without an id of their own: V-000001 and up.
const (
	vendorSeries = "ap.vendor"
	vendorPrefix = "V-"
	vendorWidth  = 6
)

// seriesVendorID matches the ids that only the series assigns. If a caller could choose
// one, the series would fail when it reaches that number.
var seriesVendorID = regexp.MustCompile(`^V-[0-9]{6,}$`)

// planRegisterVendor plans a registration. When it refuses a natural person, the stored
// intent keeps neither name nor VAT id, in whichever member they were sent.
func planRegisterVendor(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	plan, err := registerVendor(ctx, in, s)
	if err != nil && mentionsPerson(in.Payload) {
		plan.Kept = editPayload(in.Payload, func(p members) { delete(p, "name"); delete(p, "vat_id"); delete(p, "person") })
	}
	return plan, err
}

func registerVendor(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var v contract.VendorRegistration
	if err := module.DecodePayload(in.Payload, &v); err != nil {
		return module.Plan{}, err
	}
	if err := checkVendor(&v, in.Today); err != nil {
		return module.Plan{}, err
	}
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	if _, known := settings.WithholdingCodes[v.WithholdingCode]; v.WithholdingCode != "" && !known {
		return module.Plan{}, fault.New(fault.NotFound, "ap.withholding_code.not_found",
			"the settings have no such withholding code; add it with ap.configure or leave it out").WithField("/withholding_code")
	}
	v.Identity = domain.Identity(v.VATID, v.RegistrationID, v.PartyID)

	var series []event.SeriesNumber
	switch {
	case v.VendorID != "":
		have, err := module.Load[*domain.Vendor](ctx, s, contract.VendorStream(v.VendorID))
		if err != nil {
			return module.Plan{}, err
		}
		if have.Registered {
			return module.Plan{}, duplicateVendorFault(have.Holder())
		}
	case v.NaturalPerson:
		// A number of the series is known only under the store's lock, too late to seal
		// anything under it.
		v.VendorID = personID(in.IntentID)
	default:
		v.VendorID = "series:" + in.DocumentID(0).String()
		series = []event.SeriesNumber{{Series: vendorSeries, Prefix: vendorPrefix, Width: vendorWidth, Token: v.VendorID}}
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: contract.EventVendorRegistered, EffectiveDate: in.Date(), Stream: contract.VendorStream(v.VendorID), Data: v,
			Entities: []event.EntityRef{contract.VendorRef(v.VendorID)}, Series: series,
		}},
		Facts: factsOf(in),
	}, nil
}

// checkVendor checks rules that the schema cannot express: personal data only in the
// sealed member, a known currency, valid terms, and no id of the number series.
func checkVendor(v *contract.VendorRegistration, today event.Date) error {
	switch {
	case v.Person != nil && !v.NaturalPerson:
		return fault.New(fault.FailedPrecondition, "ap.vendor.person_unexpected",
			"only a natural person has a person; send natural_person: true, or name and vat_id of the company").WithField("/person")
	case v.NaturalPerson && v.Name != "":
		return personInClearFault("/name")
	case v.NaturalPerson && v.VATID != "":
		return personInClearFault("/vat_id")
	case v.NaturalPerson && v.Person == nil && v.PartyID == "" && v.RegistrationID == "" && v.VendorID == "":
		return fault.New(fault.FailedPrecondition, "ap.vendor.identity_required",
			"no member identifies the vendor; send person, party_id, registration_id or vendor_id").WithField("/person")
	case seriesVendorID.MatchString(v.VendorID):
		return fault.New(fault.FailedPrecondition, "ap.vendor.id_reserved",
			"ids of V- and six or more digits are given out by the number series; leave vendor_id out or choose another form").WithField("/vendor_id")
	}
	if v.Currency != "" {
		if _, err := money.LookupCurrency(v.Currency, today.Time()); err != nil {
			return fault.WithField(err, "/currency")
		}
	}
	return checkTerms(v.Terms, "/terms")
}

func checkTerms(t *contract.Terms, field string) error {
	if t == nil || t.DiscountPercent == nil {
		return nil
	}
	return checkPercent(*t.DiscountPercent, field+"/discount_percent")
}

// checkPercent accepts a number from 0 to 100 with up to 6 decimals.
func checkPercent(n money.Number, field string) error {
	for _, check := range []func(money.Number) error{money.CheckPercent, money.CheckNonNegative} {
		if err := check(n); err != nil {
			return fault.WithField(err, field)
		}
	}
	if n.Cmp(money.FromInt(100)) > 0 {
		return fault.New(fault.Invalid, "money.too_large", "a percent is at most 100; correct it").WithField(field).WithNumbers("100", n.String())
	}
	return nil
}

func duplicateVendorFault(h fault.Holder) *fault.Error {
	return fault.New(fault.Conflict, "ap.vendor.duplicate",
		"this vendor is registered already; use the id of the holder").WithHolder(h)
}

func onDuplicateVendor(_ context.Context, _ module.Input, _ module.State, _ string, h fault.Holder) error {
	return duplicateVendorFault(h)
}

func planConfigure(ctx context.Context, in module.Input, s module.State, c contract.SettingsChanged) (module.Plan, error) {
	if err := checkSettings(&c); err != nil {
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

func checkSettings(c *contract.SettingsChanged) error {
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
	if err := checkTerms(c.DefaultTerms, "/default_terms"); err != nil {
		return err
	}
	for code, w := range c.WithholdingCodes {
		if err := checkPercent(w.Percent, "/withholding_codes/"+jsondoc.EscapeToken(code)+"/percent"); err != nil {
			return err
		}
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
