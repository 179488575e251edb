package ap_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// TestPersonalData_Declared checks that every member that is named like a person's datum is
// declared or has a reason why it is none, in every version and every intent.
func TestPersonalData_Declared(t *testing.T) {
	t.Parallel()
	newBooks(t)
	declared := map[string]int{}
	for _, e := range catalog.EventTypes {
		require.Empty(t, e.CheckPersonal(), "%s version %d", e.Type, e.SchemaVersion)
		declared[fmt.Sprint(e.Type, " ", e.SchemaVersion)] = len(e.PIIFields)
		require.Equal(t, len(e.PIIFields) > 0, e.RetentionClass == eventtype.PIISubject && e.Type != "ap.vendor.contact_removed", "%s: under the key of persons' data", e.Type)
	}
	require.Equal(t, 0, declared["ap.vendor.registered 1"])
	require.Equal(t, 1, declared["ap.vendor.registered 2"])
	require.Equal(t, 4, declared["ap.vendor.contact_recorded 1"])
	for _, i := range catalog.IntentTypes() {
		for _, f := range i.Manifest().Check(shredding.EventType{Schema: i.Schema}) {
			// The id that a registration may leave out is filled in before it is sealed.
			require.Equal(t, "ap.register_vendor pii.subject_not_required", i.Type+" "+f.Code, f.Field)
			require.NotNil(t, i.Complete)
		}
	}
}

// The personal values that the tests send.
const (
	personName  = "Mira Sandvik"
	contactName = "Olaf Petersen"
	contactMail = "olaf.petersen@supplier.example"
)

var mira = object{"name": personName, "address": "Birkenweg 9, 22100 Lund", "vat_id": "SE 123456-7897 01"}

// naturalPerson registers a vendor who is a natural person.
func (b *books) naturalPerson(more object) recorded {
	b.tb.Helper()
	p := object{"natural_person": true, "country": "SE", "person": mira}
	for k, v := range more {
		if p[k] = v; v == nil {
			delete(p, k)
		}
	}
	return b.events(b.execute("ap_clerk", "ap.register_vendor", p))[0]
}

// stored is the payload that is kept of an intent.
func (b *books) stored(id string) string {
	b.tb.Helper()
	parsed, err := event.ParseID(id)
	require.NoError(b.tb, err)
	kept, _, err := b.pipeline.Get(b.tb.Context(), b.entity, parsed)
	require.NoError(b.tb, err)
	return string(kept.Payload)
}

func TestNaturalPerson(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	e := b.naturalPerson(nil)
	require.EqualValues(t, 2, e.SchemaVersion)
	require.Regexp(t, `^V-[0-9A-HJKMNP-TV-Z]{26}$`, e.Stream.ID)
	require.Equal(t, e.Stream.ID, e.data["vendor_id"])
	require.Equal(t, "V-"+e.IntentID.String(), e.Stream.ID)
	require.Equal(t, "vendor:"+e.Stream.ID, e.data["person"].(object)["sub"])
	require.NotContains(t, string(e.Payload), "Mira")
	require.JSONEq(t, `{"vendor_id": "`+e.Stream.ID+`", "country": "SE", "natural_person": true, "person": {"name": "Mira Sandvik", "address": "Birkenweg 9, 22100 Lund", "vat_id": "SE 123456-7897 01"}}`,
		b.keys.openEvent(t, e.Recorded))
	kept := b.stored(e.IntentID.String())
	require.Contains(t, kept, `"sub":"vendor:`+e.Stream.ID+`"`, "the intent is sealed for the same person")
	require.Contains(t, kept, `"vendor_id":"`+e.Stream.ID+`"`)
	require.NotContains(t, kept, "Mira")

	require.Equal(t, "SOLE-7", b.naturalPerson(object{"vendor_id": "SOLE-7", "party_id": "P7"}).Stream.ID)
	// Who is known already is not kept once more, under an id that no erasure names.
	for _, again := range []object{
		{"natural_person": true, "country": "SE", "person": mira, "party_id": "P7"},
		{"natural_person": true, "country": "SE", "person": mira, "vendor_id": "SOLE-7"},
	} {
		f := b.refuse("ap.vendor.duplicate", "ap_clerk", "ap.register_vendor", again)
		require.Equal(t, "SOLE-7", f.Holder.DocumentID)
		require.NotContains(t, b.stored(f.IntentID), "$pii")
		require.NotContains(t, b.stored(f.IntentID), "Mira")
	}
	known := b.naturalPerson(object{"person": nil, "party_id": "P8"})
	require.Equal(t, "party:P8", known.data["identity"])
	require.NotContains(t, known.data, "person")
	company := b.events(b.execute("ap_clerk", "ap.register_vendor", object{"name": "Firm", "country": "SE", "vat_id": "SE123456789701", "natural_person": false}))[0]
	require.Equal(t, "V-000001", company.Stream.ID, "the series is the companies'")
	require.EqualValues(t, 2, company.SchemaVersion)

	submitted := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload(e.Stream.ID, "1", "10", object{"vendor_name": personName})))[0]
	require.NotContains(t, submitted.data, "vendor_name", "the name of a person is not kept")
	require.NotContains(t, b.stored(submitted.IntentID.String()), "Mira")
	require.Contains(t, b.stored(submitted.IntentID.String()), `"total_amount":10`)
	posted := b.events(b.execute("approver", "ap.approve_invoice", object{"invoice_id": submitted.Stream.ID}))
	for _, p := range posted {
		require.NotContains(t, string(p.Payload), "Mira")
	}
	f := b.refuse("ap.invoice.duplicate", "ap_clerk", "ap.submit_invoice", documentPayload(e.Stream.ID, "1", "10", object{"vendor_name": personName}))
	require.NotContains(t, b.stored(f.IntentID), "Mira", "nor in what is refused")
}

func TestPersonalData_WrongMember(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	sole := func(more object) object {
		p := object{"natural_person": true, "country": "DK", "party_id": "P7"}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	for _, c := range []struct {
		code, field string
		payload     object
	}{
		{"ap.vendor.person_in_clear", "/name", sole(object{"name": personName})},
		{"ap.vendor.person_in_clear", "/vat_id", sole(object{"vat_id": "SE 123456-7897 01", "person": mira})},
		{"ap.vendor.person_unexpected", "/person", object{"name": personName, "country": "DK", "person": mira}},
		{"ap.vendor.identity_required", "/person", object{"natural_person": true, "country": "DK"}},
		{"money.currency_unsupported", "/currency", sole(object{"person": mira, "currency": "XAU"})},
		{"ap.vendor.id_reserved", "/vendor_id", sole(object{"person": mira, "vendor_id": "V-000017"})},
	} {
		f := b.refuse(c.code, "ap_clerk", "ap.register_vendor", c.payload)
		require.Equal(t, inPayload(c.field), f.Field)
		require.NotContains(t, f.Detail, "Mira")
		kept := b.stored(f.IntentID)
		require.NotContains(t, kept, "Mira", c.code)
		require.NotContains(t, kept, "556677", c.code)
		require.Contains(t, kept, `"country":"DK"`, c.code)
	}
	for _, bad := range []object{{}, {"name": ""}, {"name": personName, "birth": "1990-01-01"}} {
		f := b.refuse("intent.schema_invalid", "ap_clerk", "ap.register_vendor", sole(object{"person": bad}))
		require.Equal(t, "{}", b.stored(f.IntentID))
	}
	// An id that is a person's datum cannot be the subject of anything.
	b.refuse("pii.in_identifier", "ap_clerk", "ap.register_vendor", sole(object{"person": mira, "vendor_id": "4111111111111111"}))
}

func TestContacts(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("V2", nil)
	contact := func(more object) object {
		p := object{"vendor_id": "V1", "contact_id": "C-1", "name": contactName}
		for k, v := range more {
			p[k] = v
		}
		return p
	}
	first := b.events(b.execute("vendor_admin", "ap.set_vendor_contact", contact(object{"email": contactMail, "phone": "+45 70 10 20 30", "function": "bookkeeping"})))[0]
	require.Equal(t, "ap.vendor.contact_recorded", first.Type)
	require.Equal(t, event.StreamID{Type: "ap.vendor", ID: "V1"}, first.Stream)
	require.Equal(t, []event.EntityRef{{Type: "vendor", ID: "V1", Role: "subject"}, {Type: "contact", ID: "C-1", Role: "contact"}}, first.body.EntityRefs)
	for _, member := range []string{"name", "email", "phone", "function"} {
		require.Equal(t, "contact:C-1", first.data[member].(object)["sub"], member)
	}
	require.JSONEq(t, `{"vendor_id":"V1","contact_id":"C-1","name":"Olaf Petersen","email":"olaf.petersen@supplier.example","phone":"+45 70 10 20 30","function":"bookkeeping"}`, b.keys.openEvent(t, first.Recorded))

	// The same once more is the new state, whole.
	again := b.events(b.execute("ap_clerk", "ap.set_vendor_contact", contact(nil)))[0]
	require.JSONEq(t, `{"vendor_id":"V1","contact_id":"C-1","name":"Olaf Petersen"}`, b.keys.openEvent(t, again.Recorded))
	b.execute("ap_clerk", "ap.set_vendor_contact", contact(object{"vendor_id": "V2"}))
	b.execute("ap_clerk", "ap.set_vendor_contact", contact(object{"function": "service", "name": "acting"})) // as members of the facts are named

	removed := b.events(b.execute("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "V1", "contact_id": "C-1"}))[0]
	require.Equal(t, object{"vendor_id": "V1", "contact_id": "C-1"}, removed.data)
	for _, id := range []string{"C-1", "C-2"} {
		f := b.refuse("ap.vendor.contact_unknown", "ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "V1", "contact_id": id})
		require.Equal(t, "/payload/contact_id", f.Field)
		require.Equal(t, fault.FailedPrecondition, f.Kind)
	}
	b.execute("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "V2", "contact_id": "C-1"})
	b.execute("ap_clerk", "ap.set_vendor_contact", contact(nil))

	for code, p := range map[string]object{
		"ap.vendor.not_found":   contact(object{"vendor_id": "V9", "email": contactMail}),
		"intent.schema_invalid": contact(object{"contact_id": contactMail}),
		"pii.in_identifier":     contact(object{"contact_id": "4111111111111111"}),
	} {
		f := b.refuse(code, "ap_clerk", "ap.set_vendor_contact", p)
		require.NotContains(t, f.Detail, "Olaf", code)
		if code == "ap.vendor.not_found" {
			require.JSONEq(t, `{"vendor_id":"V9","contact_id":"C-1"}`, b.stored(f.IntentID), "a refusal keeps the ids alone")
		}
	}
	for _, bad := range []object{{"name": " "}, {"email": "olaf"}, {"birth": "1990-01-01"}} {
		b.refuse("intent.schema_invalid", "ap_clerk", "ap.set_vendor_contact", contact(bad))
	}
	b.refuse("ap.vendor.not_found", "ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "V9", "contact_id": "C-1"})
	for _, role := range []string{"approver", "controller", "importer", "module", "auditor", "admin"} {
		b.refuse("intent.forbidden", role, "ap.set_vendor_contact", contact(nil))
		b.refuse("intent.forbidden", role, "ap.remove_vendor_contact", object{"vendor_id": "V1", "contact_id": "C-1"})
	}
	for _, e := range b.all() {
		require.NotContains(t, string(e.Payload), "Olaf")
		require.NotContains(t, string(e.Payload), contactMail)
	}

	b.keys.erase("contact:C-1")
	b.refuse("pii.subject_erased", "ap_clerk", "ap.set_vendor_contact", contact(nil))
	b.execute("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "V1", "contact_id": "C-1"})
}

// TestVendors_Version1 checks that vendors of the first version are unchanged, and that raw
// appends of a person in clear are refused.
func TestVendors_Version1(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	raw := func(id, data string) error {
		prepared, err := b.preparer.Prepare(t.Context(), module.Batch{
			LegalEntity: b.entity, Actor: caller("module").Actor, Now: b.clock.Now(), CorrelationID: "c",
			Drafts: []event.Draft{{
				Type: "ap.vendor.registered", SchemaVersion: 1, Stream: event.StreamID{Type: "ap.vendor", ID: id}, EffectiveDate: event.MustDate("2024-03-15"),
				Data: json.RawMessage(data), Entities: []event.EntityRef{{Type: "vendor", ID: id, Role: "subject"}},
			}},
		})
		if err == nil {
			_, err = b.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: prepared})
		}
		return err
	}
	require.NoError(t, raw("OLD-1", `{"vendor_id":"OLD-1","name":"Old Ltd","country":"DK","vat_id":"DK13585628","natural_person":false,"identity":"vat:DK13585628","terms":{"net_days":14}}`))
	require.NoError(t, raw("OLD-2", `{"vendor_id":"OLD-2","country":"DK","party_id":"P1","natural_person":true,"identity":"party:P1"}`))
	for _, member := range []string{"name", "vat_id"} {
		err := raw("OLD-3", `{"vendor_id":"OLD-3","`+member+`":"Mira","country":"DK","natural_person":true}`)
		f, _ := fault.As(err)
		require.Equal(t, "ap.vendor.person_in_clear", f.Code)
		require.Equal(t, "/events/0/data/"+member, f.Field)
	}
	due := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("OLD-1", "1", "10", nil)))[0]
	require.Equal(t, "2025-03-29", due.data["due_date"], "the terms of the first version")
	named := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("OLD-2", "1", "10", object{"vendor_name": personName})))[0]
	require.NotContains(t, named.data, "vendor_name")
	b.execute("ap_clerk", "ap.set_vendor_contact", object{"vendor_id": "OLD-1", "contact_id": "C-1", "name": contactName})
	require.Equal(t, "OLD-1", b.refuse("ap.vendor.duplicate", "ap_clerk", "ap.register_vendor", object{"name": "Other", "country": "DK", "vat_id": "dk 1358 5628"}).Holder.DocumentID)
}

// TestFolds_NoPersonalValue checks that a fold gives the same state whether personal values are
// sealed, redacted or, as in events from before key management, in clear, but for the sealed copy of
// the person.
func TestFolds_NoPersonalValue(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	e := b.naturalPerson(object{"vendor_id": "SOLE-1", "party_id": "P7", "terms": object{"net_days": 10}})
	b.execute("ap_clerk", "ap.set_vendor_contact", object{"vendor_id": "SOLE-1", "contact_id": "C-1", "name": contactName, "email": contactMail, "phone": "1", "function": "x"})
	b.execute("ap_clerk", "ap.set_vendor_contact", object{"vendor_id": "SOLE-1", "contact_id": "C-2", "name": contactName})
	b.execute("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "SOLE-1", "contact_id": "C-2"})
	b.invoice(documentPayload("SOLE-1", "1", "10", nil))
	b.vendor("V1", nil)
	b.invoice(documentPayload("V1", "1", "10", nil))

	folded := func(data func(event.Recorded) []byte) (person string, others []any) {
		states := map[event.StreamID]any{}
		for _, e := range b.all() {
			fold, known := catalog.Fold(e.Stream.Type)
			if !known {
				continue
			}
			state := fold.New()
			if s, ok := states[e.Stream]; ok {
				state = fold.Clone(s)
			}
			require.NoError(t, fold.Apply(state, e, data(e)), e.Type)
			states[e.Stream] = state
		}
		vendor, ok := states[e.Stream].(*domain.Vendor)
		require.True(t, ok)
		require.Equal(t, map[string]bool{"C-1": true}, vendor.Contacts)
		require.True(t, vendor.Registered)
		require.Equal(t, 10, vendor.Master.Terms.NetDays)
		person = string(vendor.Person)
		vendor.Person = nil
		return person, []any{vendor, states[event.StreamID{Type: "ap.vendor", ID: "V1"}]}
	}
	person, sealed := folded(func(e event.Recorded) []byte { body, _ := e.Body(); return body.Data })
	inClear, clear := folded(func(e event.Recorded) []byte { return []byte(b.keys.openEvent(t, e)) })
	b.keys.erase("vendor:SOLE-1", "contact:C-1", "contact:C-2")
	erased, redacted := folded(func(e event.Recorded) []byte { return []byte(b.keys.openEvent(t, e)) })
	require.Contains(t, person, "$pii", "a sealed copy, which a planner opens")
	require.Equal(t, []string{"", shredding.Redacted}, []string{inClear, erased})
	require.Equal(t, sealed, clear)
	require.Equal(t, sealed, redacted)
	text, err := json.Marshal(sealed)
	require.NoError(t, err)
	require.Contains(t, string(text), "SOLE-1")
	for _, secret := range []string{"Mira", "Olaf", contactMail, "$pii", "REDACTED"} {
		require.NotContains(t, string(text), secret)
	}
}
