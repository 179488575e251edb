package ap

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// personFields declares the member person of a vendor as personal data of the subject
// vendor:<vendor id>.
func personFields() []eventtype.PIIField {
	return []eventtype.PIIField{{
		Path: "$.person", Class: string(shredding.Identity), Subject: json.RawMessage(`{"path":"$.vendor_id","type":"vendor"}`),
	}}
}

// contactFields declares the members of a contact as personal data of the subject
// contact:<contact id>.
func contactFields() []eventtype.PIIField {
	var fields []eventtype.PIIField
	for _, name := range contactMembers {
		fields = append(fields, eventtype.PIIField{
			Path: "$." + name, Class: string(shredding.Contact), Subject: json.RawMessage(`{"path":"$.contact_id","type":"contact"}`),
		})
	}
	return fields
}

// contactMembers are the members of a contact that are personal data.
var contactMembers = []string{"name", "email", "phone", "function"}

func personInClearFault(field string) error {
	return fault.New(fault.FailedPrecondition, "ap.vendor.person_in_clear",
		"here it would be kept in clear for ever; send name, address and VAT id of a natural person inside person, where they are sealed").WithField(field)
}

// checkPersonSealed refuses the name and VAT id of a natural person in version 1 of
// ap.vendor.registered, which declares no sealed fields.
func checkPersonSealed(data json.RawMessage, _ map[string]string) error {
	var v contract.VendorRegistered
	if err := module.DecodePayload(data, &v); err != nil {
		return err
	}
	switch {
	case v.NaturalPerson && v.Name != "":
		return personInClearFault("/data/name")
	case v.NaturalPerson && v.VATID != "":
		return personInClearFault("/data/vat_id")
	}
	return nil
}

// mentionsPerson reports whether a registration may be about a natural person. A payload
// that cannot be decoded counts as one.
func mentionsPerson(payload json.RawMessage) bool {
	var p struct {
		NaturalPerson bool            `json:"natural_person"`
		Person        json.RawMessage `json:"person"`
	}
	return json.Unmarshal(payload, &p) != nil || p.NaturalPerson || p.Person != nil
}

// personID makes the vendor id of a natural person whose registration gives none.
func personID(intentID event.ID) string { return vendorPrefix + module.DeriveID(intentID, 0).String() }

// withVendorID fills in the vendor id of a natural person, because the person's data is
// sealed under that id.
func withVendorID(intentID event.ID, payload json.RawMessage) json.RawMessage {
	var p struct {
		VendorID string          `json:"vendor_id"`
		Person   json.RawMessage `json:"person"`
	}
	if json.Unmarshal(payload, &p) != nil || p.Person == nil || p.VendorID != "" {
		return payload
	}
	return editPayload(payload, func(p members) { p.set("vendor_id", personID(intentID)) })
}

// planSetVendorContact plans to record a new or changed contact. The stored intent of a
// refused request keeps the ids only.
func planSetVendorContact(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var c contract.VendorContact
	if err := module.DecodePayload(in.Payload, &c); err != nil {
		return refusedContactPlan(in), err
	}
	if _, err := loadVendor(ctx, s, c.VendorID); err != nil {
		return refusedContactPlan(in), err
	}
	plan, err := contactPlan(in, c.VendorContactRef, contract.EventContactRecorded, c)
	if err != nil {
		return refusedContactPlan(in), err
	}
	return plan, nil
}

// refusedContactPlan stores the intent of a refused contact without the contact's data.
func refusedContactPlan(in module.Input) module.Plan {
	return module.Plan{Kept: editPayload(in.Payload, func(p members) {
		for _, name := range contactMembers {
			delete(p, name)
		}
	})}
}

func planRemoveVendorContact(ctx context.Context, in module.Input, s module.State, c contract.VendorContactRef) (module.Plan, error) {
	vendor, err := loadVendor(ctx, s, c.VendorID)
	if err != nil {
		return module.Plan{}, err
	}
	if !vendor.Contacts[c.ContactID] {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "ap.vendor.contact_unknown",
			"the vendor has no such contact; look the vendor up (GET /api/ap/vendors) and correct contact_id").WithField("/contact_id")
	}
	return contactPlan(in, c, contract.EventContactRemoved, c)
}

func contactPlan(in module.Input, c contract.VendorContactRef, eventType string, data any) (module.Plan, error) {
	return module.Plan{
		Events: []event.Draft{{
			Type: eventType, EffectiveDate: in.Date(), Stream: contract.VendorStream(c.VendorID), Data: data,
			Entities: []event.EntityRef{contract.VendorRef(c.VendorID), contract.ContactRef(c.ContactID)},
		}},
		Facts: factsOf(in),
	}, nil
}

// keptSubmission returns the payload without what may name a person: vendor_name if the vendor
// is a natural person, and the buyer and the seller's name, in whose place the outcomes of their
// comparisons are kept. It returns nil, which stores the payload as it was sent, if there is none.
func keptSubmission(payload json.RawMessage, p *contract.Submission, d *contract.Document, vendor *domain.Vendor) json.RawMessage {
	named := d.VendorName != "" && vendor.Master.NaturalPerson
	if !named && p.Buyer == nil && p.SellerName == "" {
		return nil
	}
	return editPayload(payload, func(m members) {
		if named {
			delete(m, "vendor_name")
		}
		if delete(m, buyerMember); p.Buyer != nil {
			m.set("buyer_match", d.BuyerMatch)
		}
		if delete(m, sellerMember); p.SellerName != "" {
			m.set("seller_match", string(d.SellerMatch))
		}
	})
}

// members are the members of a payload by name, with their values as sent.
type members map[string]json.RawMessage

func (m members) set(name, value string) {
	m[name], _ = json.Marshal(value) // texts encode
}

// editPayload applies edit to the members of a payload. A payload that is no object
// becomes {}.
func editPayload(payload json.RawMessage, edit func(members)) json.RawMessage {
	p := members{}
	if json.Unmarshal(payload, &p) != nil {
		return json.RawMessage(`{}`)
	}
	edit(p)
	out, err := json.Marshal(p)
	if err != nil {
		return json.RawMessage(`{}`)
	}
	return out
}
