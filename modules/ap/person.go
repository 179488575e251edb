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

// personFields declares the person of a vendor, whose data belongs to the vendor's
// own id.
func personFields() []eventtype.PIIField {
	return []eventtype.PIIField{{
		Path: "$.person", Class: string(shredding.Identity), Subject: json.RawMessage(`{"path":"$.vendor_id","type":"vendor"}`),
	}}
}

// contactFields declares the data of a contact, which belongs to the contact's id.
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

func personInClear(field string) error {
	return fault.New(fault.FailedPrecondition, "ap.vendor.person_in_clear",
		"here it would be kept in clear for ever; send name, address and VAT id of a natural person inside person, where they are sealed").WithField(field)
}

// checkPersonSealed keeps the first version of the type, which cannot seal
// anything, free of a person's name and VAT id.
func checkPersonSealed(data json.RawMessage, _ map[string]string) error {
	var v contract.VendorRegistered
	if err := module.DecodePayload(data, &v); err != nil {
		return err
	}
	switch {
	case v.NaturalPerson && v.Name != "":
		return personInClear("/data/name")
	case v.NaturalPerson && v.VATID != "":
		return personInClear("/data/vat_id")
	}
	return nil
}

// mentionsPerson reports whether a registration is about a natural person.
func mentionsPerson(payload json.RawMessage) bool {
	var p struct {
		NaturalPerson bool            `json:"natural_person"`
		Person        json.RawMessage `json:"person"`
	}
	return json.Unmarshal(payload, &p) != nil || p.NaturalPerson || p.Person != nil
}

// personID is the vendor id of a natural person whose registration gives none.
func personID(intentID event.ID) string { return vendorPrefix + module.DeriveID(intentID, 0).String() }

// withVendorID gives a person the id that the person's data is sealed under.
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

// planSetVendorContact records a contact, new or changed.
func planSetVendorContact(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var c contract.VendorContact
	if err := module.DecodePayload(in.Payload, &c); err != nil {
		return withoutContact(in), err
	}
	if _, err := loadVendor(ctx, s, c.VendorID); err != nil {
		return withoutContact(in), err
	}
	plan, err := contactPlan(in, c.VendorContactRef, contract.EventContactRecorded, c)
	if err != nil {
		return withoutContact(in), err
	}
	return plan, nil
}

// withoutContact keeps the ids alone of a contact that is refused.
func withoutContact(in module.Input) module.Plan {
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
	date, err := postingDate(in, nil, in.Today)
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: eventType, EffectiveDate: date, Stream: contract.VendorStream(c.VendorID), Data: data,
			Entities: []event.EntityRef{contract.VendorRef(c.VendorID), contract.ContactRef(c.ContactID)},
		}},
		Facts: factsOf(in),
	}, nil
}

// keptSubmission is the payload of a document without the name of a vendor who is
// a natural person; nil if there is none.
func keptSubmission(payload json.RawMessage, d *contract.Document, vendor *domain.Vendor) json.RawMessage {
	if d.VendorName == "" || !vendor.Master.NaturalPerson {
		return nil
	}
	return editPayload(payload, func(p members) { delete(p, "vendor_name") })
}

// members are the members of a payload, their values as they were sent.
type members map[string]json.RawMessage

func (m members) set(name, value string) {
	m[name], _ = json.Marshal(value) // texts encode
}

// editPayload changes members of a payload, which is an object.
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
