package ap

import (
	"context"
	"regexp"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/country"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/vatid"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// vendorDeclarations are the event types and intents of the vendor master. Those with personal
// data have the retention class PIISubject: their sealed values can be erased on request, while
// figures and ids are kept as long as tax law requires.
func vendorDeclarations() declarations {
	vendorRef := vendorRefRule()
	registered := eventtype.Registration{
		Type: contract.EventVendorRegistered, SchemaVersion: 1,
		Description:        "Vendor registered. Of a natural person neither name nor VAT id is kept.",
		RequiredEntityRefs: []eventtype.RequiredRef{vendorRef},
		BusinessKeys: []eventtype.BusinessKeyRule{
			{Name: "vendor_id", Fields: []string{"vendor_id"}, Document: "vendor_id"},
			{Name: "vat_id", Fields: []string{"vat_id"}, Normalise: eventtype.NormaliseTaxID, Document: "vendor_id"},
			{Name: "identity", Fields: []string{"identity"}, Normalise: eventtype.NormaliseTaxID, Document: "vendor_id"},
		},
	}
	sealed := registered
	sealed.SchemaVersion, sealed.PIIFields, sealed.RetentionClass = 2, personFields(), eventtype.PIISubject
	sealed.Description = "Vendor registered. Name, address and VAT id of a natural person are sealed under the vendor's id."
	contactRefs := []eventtype.RequiredRef{
		vendorRef, {EntityType: contract.EntityContact, Role: contract.RoleContact, Cardinality: eventtype.One},
	}
	return declarations{
		events: []declaredEvent{
			{schema: contract.EventVendorRegistered, EventType: module.EventType{
				Registration: registered, Checks: []module.Check{checkPersonSealed}, Redactable: []string{"$.name"},
			}},
			{schema: contract.EventVendorRegistered + ".v2", EventType: module.EventType{Registration: sealed, Redactable: []string{"$.name"}}},
			{schema: contract.EventContactRecorded, EventType: module.EventType{Registration: eventtype.Registration{
				Type: contract.EventContactRecorded, Description: "Contact of a vendor recorded, new or changed. All but the ids is sealed under the contact's id.",
				RequiredEntityRefs: contactRefs, PIIFields: contactFields(), RetentionClass: eventtype.PIISubject,
			}}},
			{schema: contract.EventContactRemoved, EventType: module.EventType{Registration: eventtype.Registration{
				Type: contract.EventContactRemoved, Description: "Contact of a vendor removed.",
				RequiredEntityRefs: contactRefs, RetentionClass: eventtype.PIISubject,
			}}},
		},
		intents: []declaredIntent{
			{schema: "register_vendor", IntentType: module.IntentType{
				Type: contract.IntentRegisterVendor, Description: "Register a vendor.", Emits: []string{contract.EventVendorRegistered},
				PIIFields: personFields(), RetentionClass: eventtype.PIISubject, Complete: withVendorID,
				Plan: planRegisterVendor, OnDuplicate: onDuplicateVendor,
			}},
			{schema: "set_vendor_contact", IntentType: module.IntentType{
				Type: contract.IntentSetVendorContact, Description: "Record a contact of a vendor, new or changed.", Emits: []string{contract.EventContactRecorded},
				PIIFields: contactFields(), RetentionClass: eventtype.PIISubject, Plan: planSetVendorContact,
			}},
			{schema: "remove_vendor_contact", IntentType: module.IntentType{
				Type: contract.IntentRemoveVendorContact, Description: "Remove a contact of a vendor.", Emits: []string{contract.EventContactRemoved},
				Plan: module.PlanOf(planRemoveVendorContact),
			}},
		},
	}
}

// vendorRefRule demands the reference to the vendor that an event is about.
func vendorRefRule() eventtype.RequiredRef {
	return eventtype.RequiredRef{EntityType: contract.EntityVendor, Role: contract.RoleSubject, Cardinality: eventtype.One}
}

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
	if err := checkWithholdingCode(v.WithholdingCode, settings, "/withholding_code"); err != nil {
		return module.Plan{}, err
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
	if err := checkCountry(v.Country); err != nil {
		return err
	}
	if err := checkVATID(v.VATID, v.VATIDUnverified, "/vat_id"); err != nil {
		return err
	}
	if v.Person != nil {
		if err := checkVATID(v.Person.VATID, v.VATIDUnverified, "/person/vat_id"); err != nil {
			return err
		}
	}
	if v.Currency != "" {
		if _, err := money.LookupCurrency(v.Currency, today.Time()); err != nil {
			return fault.WithField(err, "/currency")
		}
	}
	return checkTerms(v.Terms, "/terms")
}

func checkCountry(code string) error {
	if country.Known(code) {
		return nil
	}
	return fault.New(fault.Invalid, "ap.vendor.country_unknown",
		"the country is no code of ISO 3166-1; send the two letters of the vendor's country, as in DE").WithField("/country")
}

// checkWithholdingCode accepts a code of the settings, and none.
func checkWithholdingCode(code string, settings *domain.Settings, field string) error {
	if _, known := settings.WithholdingCodes[code]; code != "" && !known {
		return fault.New(fault.NotFound, "ap.withholding_code.not_found",
			"the settings have no such withholding code; add it with ap.configure or leave it out").WithField(field)
	}
	return nil
}

// checkVATID refuses a VAT id whose form or check digits are wrong, of companies and of natural
// persons, unless the caller says that it is taken from a paper as it is printed there.
func checkVATID(id string, unverified bool, field string) error {
	verdict := vatid.Check(id)
	if id == "" || unverified || verdict == vatid.Valid || verdict == vatid.Unknown {
		return nil
	}
	return fault.New(fault.Invalid, "ap.vendor.vat_id_invalid",
		"the VAT id is invalid: %s; compare it with the vendor's papers, or send vat_id_unverified: true to register it as it is printed", wrongVATID(verdict)).
		WithField(field).With("verdict", string(verdict))
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
