package e2e

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// canaryScenario sends every kind of request with personal data to one server, in one legal
// entity.
type canaryScenario struct {
	*canaryServer
	entity string
	suffix string // of ids, different in each scenario
	as     func(persona string) client

	person, relative, other string // ids; other is another relative
	vendor, contact         string
	events                  []string // about person
	vendorIntent            string
	contactIntent           string
}

func (c *canaryServer) newScenario(t *testing.T, entity, suffix string, as func(string) client) *canaryScenario {
	t.Helper()
	return &canaryScenario{
		canaryServer: c, entity: entity, suffix: suffix, as: as,
		person: "E-" + suffix, relative: "R-" + suffix, other: "Q-" + suffix, vendor: "SOLE-" + suffix, contact: "C-" + suffix,
	}
}

// completePerson is the data of an event with every canary in its field.
func (m *canaryScenario) completePerson(code string) object {
	return object{
		"name": m.name, "birth_name": m.birthName, "email": m.email, "phone": m.phone, "iban": m.iban, "tax_id": m.taxID, "note": m.note, "letter": m.letter,
		"address": object{"street": m.street, "city": m.city, "geo": object{"hint": m.hint}}, "diagnoses": m.diagnoses,
		"relatives": []object{
			{"person_id": m.relative, "name": m.relativeName, "email": m.relativeEmail}, {"person_id": m.other, "phone": m.relativePhone},
		},
		"code": code + "-" + m.suffix, "remark": m.control, "grade": 1.5,
	}
}

// with is completePerson with a change; nil removes a member.
func (m *canaryScenario) with(change object) object {
	data := m.completePerson("bad")
	data["person_id"] = m.person
	for k, v := range change {
		if data[k] = v; v == nil {
			delete(data, k)
		}
	}
	return data
}

// send sends a request of a caller who may not read the values, and saves the answer for the
// scan.
func (m *canaryScenario) send(t *testing.T, persona, method, path, body string, header ...string) answer {
	t.Helper()
	a := m.sendAsEntitled(t, persona, method, path, body, header...)
	text := []byte(a.String())
	for name, values := range a.header {
		text = fmt.Appendf(text, "\n%s: %s", name, values)
	}
	m.saveFile(t, "answers", persona+" "+method, text)
	return a
}

// sendAsEntitled sends a request of a caller who may read the values of the answer.
func (m *canaryScenario) sendAsEntitled(t *testing.T, persona, method, path, body string, header ...string) answer {
	t.Helper()
	caller := m.second
	if persona != "" {
		caller = m.as(persona)
	}
	a, err := caller.do(method, path, body, header...)
	require.NoError(t, err)
	require.Equal(t, "no-store", a.header.Get("Cache-Control"))
	return a
}

func (m *canaryScenario) expect(t *testing.T, status int, code string, a answer) {
	t.Helper()
	if a.status != status || a.code() != code {
		t.Errorf("%d %s wanted: %s", status, code, a)
	}
}

// escapeAll writes every character of the texts of a document as an escape.
func escapeAll(document string) string {
	var out strings.Builder
	inside, value := false, false
	for i, r := range document {
		switch {
		case r == '"' && (i == 0 || document[i-1] != '\\'):
			inside = !inside
			value = inside && i > 0 && document[i-1] == ':'
			out.WriteRune(r)
		case value && r < 0x80 && r != '\\' && document[i-1] != '\\':
			fmt.Fprintf(&out, `\u%04x`, r)
		default:
			out.WriteRune(r)
		}
	}
	return out.String()
}

// appendEvents sends raw appends that are accepted.
func (m *canaryScenario) appendEvents(t *testing.T) {
	t.Helper()
	var out receipts
	take := func(a answer, status int) {
		t.Helper()
		require.Equal(t, status, a.status, a)
		require.NoError(t, a.decode(&out))
		for _, e := range out.Events {
			m.events = append(m.events, e.ID)
		}
	}
	single := batch(person(m.entity, m.person, m.completePerson("first")))
	take(m.send(t, "module", "POST", "/api/events", single, "Idempotency-Key", "canary-"+m.suffix), 201)
	again := m.send(t, "module", "POST", "/api/events", single, "Idempotency-Key", "canary-"+m.suffix)
	require.Equal(t, "true", again.header.Get("Idempotency-Replayed"), again)
	m.expect(t, 409, "idempotency.mismatch", m.send(t, "module", "POST", "/api/events",
		batch(person(m.entity, m.person, object{"name": m.contactName, "note": m.letter})), "Idempotency-Key", "canary-"+m.suffix))
	take(m.send(t, "module", "POST", "/api/events", batch(
		person(m.entity, m.person, m.completePerson("second")), person(m.entity, m.relative, object{"name": m.relativeName, "email": m.relativeEmail}),
		person(m.entity, m.person, object{"diagnoses": m.diagnoses}), person(m.entity, m.other, object{"letter": m.letter, "phone": m.relativePhone}))), 201)
	escaped := escapeAll(batch(person(m.entity, m.person, object{"name": m.name, "iban": m.iban, "phone": m.phone})))
	require.NotContains(t, escaped, m.name)
	take(m.send(t, "module", "POST", "/api/events", escaped), 201)
	var many []string
	for i := range 60 {
		many = append(many, person(m.entity, m.person, object{"name": m.name, "note": m.note, "email": m.email, "grade": i, "remark": m.control}))
	}
	take(m.send(t, "module", "POST", "/api/events", batch(many...)), 201)
}

// appendRefused sends raw appends that are refused at every stage; none of their values may be
// stored.
func (m *canaryScenario) appendRefused(t *testing.T) {
	t.Helper()
	post := func(status int, code, body string, header ...string) {
		t.Helper()
		m.expect(t, status, code, m.send(t, "module", "POST", "/api/events", body, header...))
	}
	bad := func(change object) string { return batch(personEvent(m.entity, m.person, m.with(change))) }
	sound := personEvent(m.entity, m.person, m.with(nil))
	for _, change := range []object{
		{"email": m.name}, {"name": strings.Repeat(m.name, 10)}, {"name": []string{m.name}}, {"diagnoses": m.note}, {"diagnoses": object{m.name: m.note}}, // in a personal field
		{"address": object{"street": m.street, "district": m.city}}, {"relatives": []object{{"person_id": m.relative, "email": []string{m.relativeName}}}},
		{"nickname": m.name}, {"grade": m.iban}, {"remark": []string{m.name}}, // in another field
		{"person_id": nil}, {"person_id": 7}, {"relatives": []object{{"name": m.relativeName}}},
	} {
		post(400, "append.schema_violation", bad(change))
	}
	// The pointer of an answer has the member names of the request, so only the caller gets them.
	for _, change := range []object{{m.email: 1}, {"address": object{"street": m.street, m.city: m.hint}}} {
		m.expect(t, 400, "append.schema_violation", m.sendAsEntitled(t, "module", "POST", "/api/events", bad(change)))
	}
	post(400, "pii.subject_invalid", bad(object{"person_id": "no good " + m.suffix}))
	post(400, "pii.subject_invalid", bad(object{"person_id": m.name}))
	post(400, "pii.subject_invalid", bad(object{"person_id": m.email}))
	post(400, "pii.in_identifier", bad(object{"person_id": m.iban}))
	post(400, "pii.in_identifier", bad(object{"code": m.email}))
	post(400, "append.schema_violation", bad(object{"name": object{"$pii": m.name, "sub": "employee:" + m.person}}))
	post(400, "pii.reserved_name", bad(object{"letter": object{"$pii": m.name, "sub": "employee:" + m.person}}))
	post(404, "event_type.not_found", strings.Replace(batch(sound), personType, "crm.person.sold", 1))
	post(404, "legal_entity.not_found", strings.Replace(batch(sound), `"legal_entity":"`+m.entity, `"legal_entity":"XXXX`, 1))
	post(400, "append.mixed_legal_entities", batch(sound, person("NOPE", m.person, m.completePerson("x"))))
	post(409, "append.wrong_expected_version", batch(with(sound, `"expected_version":4711`)))
	post(409, "append.condition_failed", strings.TrimSuffix(batch(personEvent(m.entity, m.person, m.with(object{"code": nil}))), "}")+`,"append_condition":{"items":[{"types":["`+personType+`"]}],"after":"0"}}`)
	post(409, "append.duplicate_business_key", bad(object{"code": "first-" + m.suffix}))
	post(409, "append.wrong_expected_version", batch(person(m.entity, m.other, object{"phone": m.phone}), with(person(m.entity, m.relative, object{"name": m.name}), `"expected_version":"no_stream"`)))
	post(413, "append.event_too_large", bad(object{"note": m.note, "diagnoses": strings.Split(strings.Repeat(m.note+"|", 9000), "|")}))
	post(413, "http.body_too_large", bad(object{"diagnoses": strings.Split(strings.Repeat(m.note+"|", 40_000), "|")}))
	post(413, "json.string_too_long", bad(object{"note": strings.Repeat(m.note, 800)}))
	post(413, "pii.too_many_fields", bad(object{"relatives": relatives(m, 70)}))
	whole := batch(sound)
	cut := strings.Index(whole, m.email) + len(m.email)
	for code, body := range map[string]string{
		"json.malformed":           whole[:cut],
		"json.duplicate_name":      strings.Replace(whole, `"email":`, `"email":"`+m.relativeEmail+`","email":`, 1),
		"json.invalid_utf8":        whole[:cut] + "\xff" + whole[cut:],
		"json.lone_surrogate":      whole[:cut] + `\ud83d` + whole[cut:],
		"json.nul_character":       whole[:cut] + `\u0000` + whole[cut:],
		"json.number_out_of_range": strings.Replace(whole, `"grade":1.5`, `"grade":1234567890.123456`, 1),
	} {
		post(400, code, body)
	}
	post(413, "json.too_deep", bad(object{"note": json.RawMessage(strings.Repeat(`[`, 60) + `"` + m.email + `"` + strings.Repeat(`]`, 60))}))

	// Personal data in place of ids.
	for place, members := range map[string]string{
		"tag": `"tags":["` + m.email + `"]`, "correlation": `"correlation_id":"` + m.iban + `"`, "source": `"source":{"system":"x","channel":"api","reference":"` + m.email + `"}`,
	} {
		a := m.send(t, "module", "POST", "/api/events", batch(with(sound, members)))
		require.Equal(t, http.StatusBadRequest, a.status, "%s: %s", place, a)
		require.Equal(t, "pii.in_identifier", a.code(), place)
	}
	post(400, "pii.in_identifier", batch(personEvent(m.entity, m.email, m.with(nil))))
	post(400, "pii.in_identifier", whole, "Idempotency-Key", m.email)

	// Callers without the right to append, and without a token.
	for _, persona := range []string{"auditor", "ap_clerk", "admin", "compliance"} {
		require.Equal(t, http.StatusForbidden, m.send(t, persona, "POST", "/api/events", whole).status)
	}
	m.expect(t, 401, "auth.token_missing", m.send(t, "", "POST", "/api/events", whole))

	// Values in paths and queries, which are neither logged nor traced.
	for _, path := range []string{
		"/api/events/" + url.PathEscape(m.email), "/api/events?" + url.Values{"stream": {m.iban}}.Encode(), "/api/nothing/" + url.PathEscape(m.name),
		"/api/events?" + url.Values{"stream_type": {m.note}, "stream_id": {m.name}, "legal_entity": {m.entity}}.Encode(),
		"/api/event-types/" + url.PathEscape(m.name), "/api/intents/" + url.PathEscape(m.birthName), "/api/erasure-requests/" + url.PathEscape(m.phone),
		"/api/ap/vendors?legal_entity=" + m.entity + "&" + url.Values{"cursor": {m.name}}.Encode(),
		"/api/ap/vendors?" + url.Values{"legal_entity": {m.name}}.Encode(), "/api/ap/vendors?" + url.Values{"legal_entity": {m.iban}}.Encode(), "/api/ap/vendors?legal_entity=" + m.entity + "&" + url.Values{"as_of": {m.name}}.Encode(),
	} {
		a := m.send(t, "module", "GET", path, "")
		require.GreaterOrEqual(t, a.status, 400, a)
	}
	for _, path := range []string{"/api/events?", "/api/ap/vendors?legal_entity=" + m.entity + "&"} { // the answer has names of parameters
		a := m.sendAsEntitled(t, "module", "GET", path+url.Values{m.email: {m.iban}}.Encode(), "")
		require.Equal(t, http.StatusBadRequest, a.status, a)
		require.NotContains(t, string(a.body), m.iban)
	}
	// A registration that is refused.
	refused := strings.NewReplacer(`"schema_version":1`, `"schema_version":2`, `"example"`, `"`+m.name+`"`, `"name":"An example"`, `"name":["`+m.relativeName+`"]`).Replace(personTypes)
	a := m.send(t, "admin", "POST", "/api/event-types", refused)
	require.Equal(t, http.StatusBadRequest, a.status, a)
}

func relatives(m *canaryScenario, n int) (out []object) {
	for range n {
		out = append(out, object{"person_id": m.relative, "email": m.relativeEmail})
	}
	return out
}

// changeVendors submits the built-in intents with personal data.
func (m *canaryScenario) changeVendors(t *testing.T) {
	t.Helper()
	submit := func(persona, intentType string, payload object, members string, header ...string) answer {
		t.Helper()
		text, err := json.Marshal(object{"type": intentType, "legal_entity": m.entity, "payload": payload})
		require.NoError(t, err)
		if strings.Contains(members, "dry_run") { // the answer has the values of the request
			return m.sendAsEntitled(t, persona, "POST", "/api/intents", strings.TrimSuffix(string(text), "}")+members+"}", header...)
		}
		return m.send(t, persona, "POST", "/api/intents", strings.TrimSuffix(string(text), "}")+members+"}", header...)
	}
	change := func(base, change object) object {
		out := object{}
		for _, from := range []object{base, change} {
			for k, v := range from {
				if out[k] = v; v == nil {
					delete(out, k)
				}
			}
		}
		return out
	}
	sole := object{
		"vendor_id": m.vendor, "natural_person": true, "country": "CH", "vat_id_unverified": true,
		"person": object{"name": m.vendorName, "address": m.vendorAddress, "vat_id": m.vendorVAT},
	}
	contact := object{"vendor_id": m.vendor, "contact_id": m.contact, "name": m.contactName, "email": m.relativeEmail, "phone": m.relativePhone, "function": m.note[:90]}
	var out outcome
	dry := submit("vendor_admin", "ap.register_vendor", sole, `,"dry_run":true`)
	require.Equal(t, http.StatusOK, dry.status, dry)
	a := submit("vendor_admin", "ap.register_vendor", sole, "", "Idempotency-Key", "vendor-"+m.suffix)
	require.Equal(t, http.StatusCreated, a.status, a)
	require.NoError(t, a.decode(&out))
	m.vendorIntent = out.IntentID
	require.Equal(t, http.StatusOK, submit("vendor_admin", "ap.register_vendor", sole, "", "Idempotency-Key", "vendor-"+m.suffix).status)
	m.expect(t, 409, "intent.idempotency_mismatch", submit("vendor_admin", "ap.register_vendor", change(sole, object{"person": object{"name": m.name}}), "", "Idempotency-Key", "vendor-"+m.suffix))
	for _, c := range []struct {
		persona string
		status  int
		code    string
		change  object
	}{
		{"vendor_admin", 409, "ap.vendor.duplicate", nil},
		{"auditor", 403, "auth.forbidden", nil},
		{"approver", 403, "intent.forbidden", nil},
		{"vendor_admin", 400, "intent.schema_invalid", object{"vendor_id": "S2-" + m.suffix, "person": object{"name": m.vendorName, "birth": m.vendorVAT}}},
		{"vendor_admin", 400, "intent.schema_invalid", object{"vendor_id": "S2-" + m.suffix, "person": m.vendorName}},
		{"vendor_admin", 400, "intent.schema_invalid", object{"vendor_id": m.vendorName}},
		{"vendor_admin", 422, "ap.vendor.person_in_clear", object{"vendor_id": "S2-" + m.suffix, "name": m.vendorName}},
		{"vendor_admin", 422, "ap.vendor.person_in_clear", object{"vendor_id": "S2-" + m.suffix, "vat_id": m.vendorVAT}},
		{"vendor_admin", 422, "ap.vendor.person_unexpected", object{"vendor_id": "S2-" + m.suffix, "natural_person": false}},
		{"vendor_admin", 404, "ap.withholding_code.not_found", object{"vendor_id": "S2-" + m.suffix, "withholding_code": "X"}},
		{"vendor_admin", 422, "ap.vendor.id_reserved", object{"vendor_id": "V-000017"}},
		{"vendor_admin", 400, "pii.in_identifier", object{"vendor_id": "4111111111111111"}},
		{"vendor_admin", 400, "pii.in_identifier", object{"vendor_id": m.iban}},
	} {
		a := submit(c.persona, "ap.register_vendor", change(sole, c.change), "")
		m.expect(t, c.status, c.code, a)
	}

	dry = submit("ap_clerk", "ap.set_vendor_contact", contact, `,"dry_run":true`)
	require.Equal(t, http.StatusOK, dry.status, dry)
	a = submit("ap_clerk", "ap.set_vendor_contact", contact, "", "Idempotency-Key", "contact-"+m.suffix)
	require.Equal(t, http.StatusCreated, a.status, a)
	require.NoError(t, a.decode(&out))
	m.contactIntent = out.IntentID
	require.Equal(t, http.StatusOK, submit("ap_clerk", "ap.set_vendor_contact", contact, "", "Idempotency-Key", "contact-"+m.suffix).status)
	m.expect(t, 409, "intent.idempotency_mismatch", submit("ap_clerk", "ap.set_vendor_contact", change(contact, object{"name": m.name}), "", "Idempotency-Key", "contact-"+m.suffix))
	for _, c := range []struct {
		persona string
		status  int
		code    string
		change  object
	}{
		{"approver", 403, "intent.forbidden", nil},
		{"controller", 403, "intent.forbidden", nil},
		{"auditor", 403, "auth.forbidden", nil},
		{"compliance", 403, "auth.forbidden", nil},
		{"ap_clerk", 400, "intent.schema_invalid", object{"email": m.contactName}},
		{"ap_clerk", 400, "intent.schema_invalid", object{"name": object{"given": m.contactName}}},
		{"ap_clerk", 400, "intent.schema_invalid", object{"birth": m.contactName}},
		{"ap_clerk", 400, "intent.schema_invalid", object{"contact_id": m.contactName}},
		{"ap_clerk", 404, "ap.vendor.not_found", object{"vendor_id": "V-NONE"}},
		{"ap_clerk", 400, "pii.in_identifier", object{"contact_id": "4111111111111111"}},
		{"ap_clerk", 400, "intent.schema_invalid", object{"name": object{"$pii": m.contactName, "sub": "contact:" + m.contact}}},
	} {
		a := submit(c.persona, "ap.set_vendor_contact", change(contact, c.change), "")
		m.expect(t, c.status, c.code, a)
	}
	require.Equal(t, http.StatusCreated, submit("ap_clerk", "ap.set_vendor_contact", change(contact, object{"contact_id": m.contact + "-2"}), "").status)
	require.Equal(t, http.StatusCreated, submit("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": m.vendor, "contact_id": m.contact + "-2"}, "").status)

	// The name of a vendor who is a person is not kept with documents.
	bill := func(number string) object {
		p := invoice(m.vendor, number+m.suffix)
		p["vendor_name"] = m.vendorName
		return p
	}
	require.Equal(t, http.StatusCreated, submit("ap_clerk", "ap.submit_invoice", bill("K-1"), "").status)
	m.expect(t, 409, "ap.invoice.duplicate", submit("ap_clerk", "ap.submit_invoice", bill("K-1"), ""))
	require.Equal(t, http.StatusOK, submit("ap_clerk", "ap.submit_invoice", bill("K-2"), `,"dry_run":true`).status)
	wrong := bill("K-3")
	wrong["lines"] = m.vendorName
	m.expect(t, 400, "intent.schema_invalid", submit("ap_clerk", "ap.submit_invoice", wrong, ""))
}

// readEverywhere expects the values in answers to entitled readers only.
func (m *canaryScenario) readEverywhere(t *testing.T) {
	t.Helper()
	first := "/api/events/" + m.events[0] + "?legal_entity=" + m.entity
	a := m.sendAsEntitled(t, "module", "GET", first, "")
	require.Equal(t, http.StatusOK, a.status, a)
	var read struct {
		Event struct {
			Data json.RawMessage `json:"data"`
		} `json:"event"`
	}
	require.NoError(t, a.decode(&read))
	want := m.completePerson("first")
	want["person_id"] = m.person
	text, err := json.Marshal(want)
	require.NoError(t, err)
	require.JSONEq(t, string(text), string(read.Event.Data))

	// A read of the read model waits for it, but not for ever.
	head, err := m.as("auditor").head(m.entity)
	require.NoError(t, err)
	require.NoError(t, m.as("auditor").wantCaughtUp(&struct{}{}, "/api/ap/vendors?legal_entity="+m.entity+"&min_sequence="+head))

	streams := []string{
		"stream_type=entity&stream_id=person:" + m.person, "stream_type=type&stream_id=" + personType, "stream_type=type&stream_id=ap.vendor.registered",
		"stream_type=type&stream_id=ap.vendor.contact_recorded", "stream_type=entity&stream_id=vendor:" + m.vendor,
	}
	paths := []string{first, "/api/events/" + m.events[0] + "/lineage?legal_entity=" + m.entity, "/api/ap/vendors?legal_entity=" + m.entity}
	for _, s := range streams {
		paths = append(paths, "/api/events?"+s+"&legal_entity="+m.entity+"&direction=backward")
	}
	for _, path := range paths {
		for _, persona := range []string{"auditor", "importer", "compliance"} {
			a := m.send(t, persona, "GET", path, "")
			require.Contains(t, []int{http.StatusOK, http.StatusForbidden}, a.status, a)
			if a.status == http.StatusOK && persona == "auditor" {
				require.Contains(t, string(a.body), "[MASKED]", path)
			}
		}
	}
	for _, id := range []string{m.vendorIntent, m.contactIntent} {
		a := m.send(t, "auditor", "GET", "/api/intents/"+id+"?legal_entity="+m.entity, "")
		require.Equal(t, http.StatusOK, a.status, a)
		require.Contains(t, string(a.body), "[MASKED]")
	}
	// A clerk may read the contact but not the person of the vendor, a vendor administrator both.
	clerk := m.sendAsEntitled(t, "ap_clerk", "GET", "/api/ap/vendors?legal_entity="+m.entity+"&vendor="+m.vendor, "")
	require.Contains(t, string(clerk.body), m.contactName)
	require.NotContains(t, string(clerk.body), m.vendorName)
	admin := m.sendAsEntitled(t, "vendor_admin", "GET", "/api/ap/vendors?legal_entity="+m.entity+"&vendor="+m.vendor, "")
	require.Contains(t, string(admin.body), m.vendorName)
	require.Contains(t, string(admin.body), m.contactName)
	for _, persona := range []string{"ap_clerk", "vendor_admin"} {
		a := m.sendAsEntitled(t, persona, "GET", "/api/intents/"+m.contactIntent+"?legal_entity="+m.entity, "")
		require.Contains(t, string(a.body), m.contactName, persona)
	}
	module := m.send(t, "module", "GET", "/api/ap/vendors?legal_entity="+m.entity, "")
	require.Equal(t, http.StatusOK, module.status, module)
	require.Contains(t, string(module.body), "[MASKED]", "services may not read values of the built-in types")
}

// eraseSubjects erases three of the subjects; the relatives are kept.
func (m *canaryScenario) eraseSubjects(t *testing.T) {
	t.Helper()
	post := func(persona, path, body string) answer { t.Helper(); return m.send(t, persona, "POST", path, body) }
	m.expect(t, 400, "erasure.reason_invalid", post("compliance", "/api/erasure-requests", erasureBody("employee:"+m.person, "Asked for by "+m.email+".")))
	m.expect(t, 400, "pii.subject_invalid", post("compliance", "/api/erasure-requests", erasureBody("employee:"+m.email, "Asked for.")))
	m.expect(t, 400, "pii.subject_invalid", post("compliance", "/api/erasure-requests", erasureBody(m.name, "Asked for.")))
	m.expect(t, 400, "erasure.reason_invalid", post("compliance", "/api/legal-holds", `{"subject":"employee:`+m.person+`","reason":"`+m.iban+`"}`))
	for _, subject := range []string{"employee:" + m.person, "vendor:" + m.vendor, "contact:" + m.contact} {
		r := eraseSubject(t, m.as("compliance"), m.as("compliance_approver"), subject)
		a := m.send(t, "compliance", "GET", "/api/erasure-requests/"+r.ID, "")
		require.Equal(t, http.StatusOK, a.status)
	}
	m.expect(t, 410, "pii.subject_erased", m.send(t, "module", "POST", "/api/events", batch(personEvent(m.entity, m.person, m.with(nil)))))
	contact, err := json.Marshal(object{"type": "ap.set_vendor_contact", "legal_entity": m.entity, "payload": object{"vendor_id": m.vendor, "contact_id": m.contact, "name": m.contactName}})
	require.NoError(t, err)
	m.expect(t, 410, "pii.subject_erased", m.send(t, "ap_clerk", "POST", "/api/intents", string(contact)))

	data := m.as("module").data(t, m.entity, m.events[0])
	for _, member := range []string{"name", "birth_name", "email", "phone", "iban", "tax_id", "note", "letter", "address", "diagnoses"} {
		require.Equal(t, "[REDACTED]", data[member], member)
	}
	require.Equal(t, []any{
		object{"person_id": m.relative, "name": m.relativeName, "email": m.relativeEmail}, object{"person_id": m.other, "phone": m.relativePhone},
	}, data["relatives"])
	vendors := m.send(t, "vendor_admin", "GET", "/api/ap/vendors?legal_entity="+m.entity+"&vendor="+m.vendor, "")
	require.Contains(t, string(vendors.body), "[REDACTED]")
}

// invoiceDocument is an invoice with personal data in every element that accounting does not
// need.
func (m *canaryScenario) invoiceDocument() string {
	text := func(s string) string { return html.EscapeString(s) }
	party := func(name, id string) string {
		return fmt.Sprintf(`<cac:Party><cac:PartyName><cbc:Name>%[1]s</cbc:Name></cac:PartyName>
			<cac:PostalAddress><cbc:StreetName>%[3]s</cbc:StreetName><cbc:CityName>%[4]s</cbc:CityName><cac:Country><cbc:IdentificationCode>US</cbc:IdentificationCode></cac:Country></cac:PostalAddress>
			<cac:PartyTaxScheme><cbc:CompanyID>%[2]s</cbc:CompanyID><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:PartyTaxScheme>
			<cac:PartyLegalEntity><cbc:RegistrationName>%[1]s</cbc:RegistrationName><cbc:CompanyID>%[2]s</cbc:CompanyID></cac:PartyLegalEntity>
			<cac:Contact><cbc:Name>%[5]s</cbc:Name><cbc:Telephone>%[6]s</cbc:Telephone><cbc:ElectronicMail>%[7]s</cbc:ElectronicMail></cac:Contact></cac:Party>`,
			name, id, text(m.street), text(m.city), text(m.contactName), m.relativePhone, m.relativeEmail)
	}
	return `<?xml version="1.0" encoding="UTF-8"?>
<Invoice xmlns="urn:oasis:names:specification:ubl:schema:xsd:Invoice-2" xmlns:cac="urn:oasis:names:specification:ubl:schema:xsd:CommonAggregateComponents-2" xmlns:cbc="urn:oasis:names:specification:ubl:schema:xsd:CommonBasicComponents-2">
<cbc:CustomizationID>urn:cen.eu:en16931:2017</cbc:CustomizationID><cbc:ID>P-1` + m.suffix + `</cbc:ID><cbc:IssueDate>2026-03-15</cbc:IssueDate><cbc:DueDate>2026-04-14</cbc:DueDate>
<cbc:InvoiceTypeCode>380</cbc:InvoiceTypeCode><cbc:Note>` + text(m.letter) + `</cbc:Note><cbc:DocumentCurrencyCode>` + m.currency() + `</cbc:DocumentCurrencyCode><cbc:BuyerReference>4711</cbc:BuyerReference>
<cac:AccountingSupplierParty>` + party("Paper Mill Ltd", "US-4711-"+m.suffix) + `</cac:AccountingSupplierParty>
<cac:AccountingCustomerParty>` + party("The Buyer Inc", "US-4712") + `</cac:AccountingCustomerParty>
<cac:Delivery><cac:DeliveryLocation><cac:Address><cbc:StreetName>` + text(m.vendorAddress) + `</cbc:StreetName><cbc:CityName>` + text(m.hint) + `</cbc:CityName><cac:Country><cbc:IdentificationCode>US</cbc:IdentificationCode></cac:Country></cac:Address></cac:DeliveryLocation>
	<cac:DeliveryParty><cac:PartyName><cbc:Name>` + text(m.name) + `</cbc:Name></cac:PartyName></cac:DeliveryParty></cac:Delivery>
<cac:PaymentMeans><cbc:PaymentMeansCode>30</cbc:PaymentMeansCode><cac:PayeeFinancialAccount><cbc:ID>` + m.iban + `</cbc:ID><cbc:Name>` + text(m.birthName) + `</cbc:Name></cac:PayeeFinancialAccount></cac:PaymentMeans>
<cac:TaxTotal><cbc:TaxAmount currencyID="` + m.currency() + `">0.00</cbc:TaxAmount><cac:TaxSubtotal><cbc:TaxableAmount currencyID="` + m.currency() + `">125.00</cbc:TaxableAmount><cbc:TaxAmount currencyID="` + m.currency() + `">0.00</cbc:TaxAmount>
	<cac:TaxCategory><cbc:ID>Z</cbc:ID><cbc:Percent>0</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:TaxCategory></cac:TaxSubtotal></cac:TaxTotal>
<cac:LegalMonetaryTotal><cbc:LineExtensionAmount currencyID="` + m.currency() + `">125.00</cbc:LineExtensionAmount><cbc:TaxExclusiveAmount currencyID="` + m.currency() + `">125.00</cbc:TaxExclusiveAmount>
	<cbc:TaxInclusiveAmount currencyID="` + m.currency() + `">125.00</cbc:TaxInclusiveAmount><cbc:PayableAmount currencyID="` + m.currency() + `">125.00</cbc:PayableAmount></cac:LegalMonetaryTotal>
<cac:InvoiceLine><cbc:ID>1</cbc:ID><cbc:Note>` + text(m.note) + `</cbc:Note><cbc:InvoicedQuantity unitCode="C62">5</cbc:InvoicedQuantity><cbc:LineExtensionAmount currencyID="` + m.currency() + `">125.00</cbc:LineExtensionAmount>
	<cac:Item><cbc:Name>Widget</cbc:Name><cac:ClassifiedTaxCategory><cbc:ID>Z</cbc:ID><cbc:Percent>0</cbc:Percent><cac:TaxScheme><cbc:ID>VAT</cbc:ID></cac:TaxScheme></cac:ClassifiedTaxCategory></cac:Item>
	<cac:Price><cbc:PriceAmount currencyID="` + m.currency() + `">25.00</cbc:PriceAmount></cac:Price></cac:InvoiceLine></Invoice>`
}

func (m *canaryScenario) currency() string {
	if m.entity == "DEMF" {
		return "EUR"
	}
	return "USD"
}

// importDocuments imports a sound document, a truncated and an invalid one.
func (m *canaryScenario) importDocuments(t *testing.T) {
	t.Helper()
	folder := t.TempDir()
	sound := m.invoiceDocument()
	for name, text := range map[string]string{
		"sound.xml": sound, "damaged.xml": sound[:len(sound)-200], "wrong.xml": strings.Replace(sound, "<cbc:PayableAmount", "<cbc:PayableAmount><cbc:Note>"+m.letter+"</cbc:Note></cbc:PayableAmount><cbc:PayableAmount", 1),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	r := m.as("importer").command(t, "ap", "import", "--json", "--legal-entity", m.entity, folder)
	m.saveFile(t, "files", "import", []byte(r.stdout+r.stderr))
	var report importReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &report), r)
	require.Equal(t, 1, report.Totals.Accepted, r)
	require.Equal(t, 2, report.Totals.Refused, r)
}
