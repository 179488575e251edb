package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/domain/fault"
)

const (
	maskedValue   = "[MASKED]"
	redactedValue = "[REDACTED]"
)

// personFixture is the data of one person in two legal entities, and of another person.
type personFixture struct {
	d                 *dev
	module, auditor   client
	officer, approver client
	here, there       string // legal entities
	events, elsewhere []string
	otherEvent        string // about another person
	subject, person   string
}

func (s *personFixture) hire(t *testing.T, entity string, n int) []string {
	t.Helper()
	var events []string
	for i := range n {
		events = append(events, person(entity, s.person, object{"name": "Ada Mosley", "email": "ada@example.org", "grade": i}))
	}
	return s.module.record(t, events...)
}

func newPersonFixture(t *testing.T, d *dev, id, here, there string) *personFixture {
	t.Helper()
	s := &personFixture{
		d: d, module: d.as(t, "module"), auditor: d.as(t, "auditor"), officer: d.as(t, "compliance"), approver: d.as(t, "compliance_approver"),
		here: here, there: there, person: id, subject: "employee:" + id,
	}
	registerPersons(t, d.as(t, "admin"))
	return s
}

// TestErasure uses a separate server: an erasure without legal entities is announced in all
// of them.
func TestErasure(t *testing.T) {
	t.Parallel()
	d := startOn(t, copyOfBooks(t), recoveryStart)
	t.Run("person", func(t *testing.T) { erasePerson(t, d) })
	t.Run("vendor", func(t *testing.T) { eraseVendor(t, d) })
}

// erasePerson follows an erasure from the request to the certificate.
func erasePerson(t *testing.T, d *dev) {
	t.Helper()
	s := newPersonFixture(t, d, "E-100", "USMF", "DEMF")
	s.events, s.elsewhere = s.hire(t, s.here, 22), s.hire(t, s.there, 3)
	s.otherEvent = s.module.record(t, person(s.here, "E-101", object{"name": "Bea Norris", "relatives": []object{{"person_id": s.person, "name": "Ada Mosley"}}}))[0]
	clear := s.module.data(t, s.here, s.events[0])
	require.Equal(t, "Ada Mosley", clear["name"])
	for _, member := range []string{"name", "email"} {
		require.Equal(t, maskedValue, s.auditor.data(t, s.here, s.events[0])[member])
	}
	before := checksums(t, s.auditor, s.here)
	head, err := s.auditor.head(s.here)
	require.NoError(t, err)

	// Only the role compliance may request an erasure, with valid members.
	body := erasureBody(s.subject, "Letter of 12 March.")
	for _, persona := range personas {
		if persona != "compliance" {
			expect(t, http.StatusForbidden, "", must(d.as(t, persona).do("POST", "/api/erasure-requests", body)))
		}
	}
	for code, bad := range map[string]string{
		"erasure.basis_invalid":   strings.Replace(body, "gdpr_art_17", "because", 1),
		"erasure.reason_invalid":  erasureBody(s.subject, "Write to ada@example.org about it."),
		"pii.subject_invalid":     erasureBody("Ada Mosley", "Letter of 12 March."),
		"request.member_missing":  erasureBody(s.subject, ""),
		"request.member_empty":    strings.TrimSuffix(body, "}") + `,"legal_entities":[]}`,
		"erasure.due_invalid":     strings.TrimSuffix(body, "}") + `,"due_on":"2001-01-01"}`,
		"request.date_invalid":    strings.TrimSuffix(body, "}") + `,"due_on":"soon"}`,
		"json.duplicate_name":     strings.TrimSuffix(body, "}") + `,"reason":"x"}`,
		"json.unknown_member":     strings.TrimSuffix(body, "}") + `,"force":true}`,
		"legal_entity.not_found ": erasureBody(s.subject, "Letter of 12 March.", "XXXX"),
	} {
		a := must(s.officer.do("POST", "/api/erasure-requests", bad))
		require.GreaterOrEqual(t, a.status, 400, a)
		require.Equal(t, strings.TrimSpace(code), a.code(), a)
		require.NotContains(t, string(a.body), "Ada Mosley")
	}
	today := func() time.Time { return time.Now().UTC().Truncate(24 * time.Hour) }
	asked := today()
	a := must(s.officer.do("POST", "/api/erasure-requests", body, "Idempotency-Key", "erasure-1"))
	require.Equal(t, http.StatusCreated, a.status, a)
	var r erasureRequest
	require.NoError(t, a.decode(&r))
	require.Equal(t, "previewed", r.Status)
	require.Equal(t, s.subject, r.Subject)
	require.EqualValues(t, 25, r.Preview.Events)
	due, err := time.Parse(time.DateOnly, r.DueOn)
	require.NoError(t, err)
	require.Contains(t, []time.Time{asked.AddDate(0, 0, 30), today().AddDate(0, 0, 30)}, due) // midnight may have come
	daysLeft := func(r erasureRequest) {
		t.Helper()
		require.NotNil(t, r.DaysLeft)
		require.Contains(t, []time.Time{asked, today()}, due.AddDate(0, 0, -*r.DaysLeft))
	}
	daysLeft(r)
	counted := map[string]int64{}
	for _, n := range r.Preview.Types {
		require.Equal(t, personType, n.Type)
		counted[n.LegalEntity] = n.Events
		require.Equal(t, 2*n.Events, n.Fields)
	}
	require.Equal(t, map[string]int64{s.here: 22, s.there: 3}, counted, "the relative of another person is another subject")

	// A repeated request, and a second one for the same subject.
	a = must(s.officer.do("POST", "/api/erasure-requests", body, "Idempotency-Key", "erasure-1"))
	var again erasureRequest
	require.NoError(t, a.decode(&again))
	require.Less(t, a.status, 300, a)
	require.Equal(t, r.ID, again.ID)
	expect(t, http.StatusConflict, "erasure.duplicate", must(s.officer.do("POST", "/api/erasure-requests", body)))
	expect(t, http.StatusConflict, "idempotency.mismatch", must(s.officer.do("POST", "/api/erasure-requests", erasureBody("employee:E-101", "Other."), "Idempotency-Key", "erasure-1")))
	listed := requests(t, s.auditor, "previewed")
	require.Len(t, listed, 1)
	daysLeft(listed[0])

	// Another person approves.
	path := "/api/erasure-requests/" + r.ID
	expect(t, http.StatusForbidden, "erasure.same_person", must(s.officer.do("POST", path+"/approve", "")))
	expect(t, http.StatusForbidden, "erasure.same_person", must(s.officer.do("POST", path+"/reject", `{"reason":"No."}`)))
	for _, persona := range []string{"admin", "auditor", "module", "cfo", "operator"} {
		expect(t, http.StatusForbidden, "", must(d.as(t, persona).do("POST", path+"/approve", "")))
	}
	expect(t, http.StatusConflict, "erasure.not_completed", must(s.officer.do("GET", path+"/certificate", "")))
	started := time.Now()
	s.approver.approveErasure(t, r.ID)
	r = s.officer.awaitErasure(t, r.ID)
	t.Logf("an erasure over 25 events in two legal entities: %s", time.Since(started).Round(time.Millisecond))
	require.Nil(t, r.DaysLeft)
	require.Equal(t, []string{"p-compliance", "p-compliance_approver"}, []string{r.RequestedBy, r.ApprovedBy})
	for _, step := range r.Steps {
		require.True(t, step.Done, step.Step)
	}
	require.Equal(t, r.Status, s.approver.approveErasure(t, r.ID).Status, "approving again changes nothing")

	// The events are kept, without the values.
	for entity, ids := range map[string][]string{s.here: s.events, s.there: s.elsewhere} {
		for _, id := range ids {
			for _, reader := range []client{s.module, s.auditor} {
				data := reader.data(t, entity, id)
				require.Equal(t, []any{s.person, redactedValue, redactedValue}, []any{data["person_id"], data["name"], data["email"]})
			}
		}
	}
	other := s.module.data(t, s.here, s.otherEvent)
	require.Equal(t, "Bea Norris", other["name"])
	require.Equal(t, []any{object{"person_id": s.person, "name": "Ada Mosley"}}, other["relatives"], "another subject")
	after := checksums(t, s.auditor, s.here)
	require.Equal(t, before, after[:len(before)], "events before the erasure are unchanged")
	require.Equal(t, head, fmt.Sprint(len(before)))

	// The erasure is an event, in each legal entity, free of personal data.
	for _, entity := range []string{s.here, s.there} {
		announced, err := s.auditor.events(url.Values{"stream_type": {"type"}, "stream_id": {"pii.subject.erased"}, "legal_entity": {entity}})
		require.NoError(t, err)
		require.Len(t, announced, 1)
		require.Contains(t, string(announced[0].Data), r.ID)
		require.Contains(t, string(announced[0].Data), s.subject)
		require.NotContains(t, string(announced[0].Data), "Ada Mosley")
	}

	// New values of the person are refused, values of other persons are stored.
	for _, entity := range []string{s.here, s.there} {
		expect(t, http.StatusGone, "pii.subject_erased", must(s.module.do("POST", "/api/events", batch(person(entity, s.person, object{"email": "ada@example.org"})))))
	}
	s.module.record(t, person(s.here, s.person, object{"grade": 1}), person(s.here, "E-101", object{"email": "bea@example.org"}))

	s.requireCertificate(t, r)
	verdict := command(t, nil, "verify", "--data-dir", d.dataDir, "--json")
	require.Zero(t, verdict.code, verdict)
	require.Contains(t, verdict.stdout, s.subject)
	require.NotContains(t, verdict.stdout, "Ada Mosley")
	text := command(t, nil, "verify", "--data-dir", d.dataDir)
	require.Regexp(t, `(?m)^USMF .* sound$`, text.stdout)
	require.Contains(t, text.stdout, s.subject)
}

// requireCertificate downloads the certificate, verifies it, and requires that every altered
// copy is refused.
func (s *personFixture) requireCertificate(t *testing.T, r erasureRequest) {
	t.Helper()
	path := "/api/erasure-requests/" + r.ID + "/certificate"
	a := must(s.auditor.do("GET", path, ""))
	require.Equal(t, http.StatusOK, a.status, a)
	require.Equal(t, string(a.body), string(must(s.officer.do("GET", path, "")).body), "the same bytes for every caller")
	require.NotContains(t, string(a.body), "Ada Mosley")
	folder := t.TempDir()
	file, key := filepath.Join(folder, "certificate.json"), receiptKey(t, s.d.Exports)
	require.NoError(t, os.WriteFile(file, a.body, 0o600))
	good := command(t, nil, "verify-certificate", file, "--key", key)
	require.Zero(t, good.code, good)
	require.Contains(t, good.stdout, s.subject)
	require.Contains(t, good.stdout, "Genuine")
	changed := filepath.Join(folder, "changed.json")
	require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(a.body), s.subject, "employee:E-101", 1)), 0o600))
	bad := command(t, nil, "verify-certificate", changed, "--key", key)
	require.Equal(t, 1, bad.code, bad)
	require.Contains(t, bad.stdout, "Not genuine")
	require.NotContains(t, bad.stdout, "E-101")

	public, err := os.ReadFile(key)
	require.NoError(t, err)
	verifier := strings.TrimSpace(string(public))
	certificate, err := erasure.VerifyCertificate(a.body, signednote.Opener{}, verifier)
	require.NoError(t, err)
	require.Equal(t, s.subject, certificate.Subject)
	require.EqualValues(t, 25, certificate.Counts.Events)
	require.Equal(t, []string{"complete", r.RequestedBy, r.ApprovedBy}, []string{certificate.Outcome, certificate.RequestedBy, certificate.ApprovedBy})
	// One bit of each byte in turn.
	for at := range a.body {
		altered := []byte(string(a.body))
		altered[at] ^= 1 << (at % 8)
		_, err := erasure.VerifyCertificate(altered, signednote.Opener{}, verifier)
		require.Error(t, err, "byte %d of %d", at, len(altered))
		require.NotEmpty(t, fault.CodeOf(err), "byte %d", at)
	}
	t.Logf("a certificate of %d bytes, each changed once: all refused", len(a.body))
}

// eraseVendor erases a contact and a sole trader. Every figure and every chain is
// unchanged; only names are gone.
func eraseVendor(t *testing.T, d *dev) {
	t.Helper()
	const entity = "USMF"
	officer, second, clerk, vendorAdmin := d.as(t, "compliance"), d.as(t, "compliance_approver"), d.as(t, "ap_clerk"), d.as(t, "vendor_admin")
	vendorAdmin.must(t, entity, "ap.register_vendor", object{
		"vendor_id": "SOLE-1", "natural_person": true, "country": "US", "person": object{"name": "Mira Sandvik", "address": "9 Birch Road", "vat_id": "US-77"},
	})
	vendorAdmin.must(t, entity, "ap.register_vendor", object{"vendor_id": "FIRM-1", "name": "Firm Ltd", "country": "US"})
	for vendor, contact := range map[string]string{"SOLE-1": "C-1", "FIRM-1": "C-2"} {
		set := clerk.must(t, entity, "ap.set_vendor_contact", object{
			"vendor_id": vendor, "contact_id": contact, "name": "Olaf Petersen", "email": "olaf@example.org", "phone": "+45 70 10 20 30", "function": "bookkeeping",
		})
		require.NotEmpty(t, set.event("ap.vendor.contact_recorded"))
	}
	for _, vendor := range []string{"SOLE-1", "FIRM-1"} {
		bill := invoice(vendor, "B-1")
		bill["vendor_name"] = "Mira Sandvik"
		submitted := clerk.must(t, entity, "ap.submit_invoice", bill)
		id, _, _ := strings.Cut(strings.TrimPrefix(submitted.Events[0].Stream, "ap.invoice/"), "/")
		d.as(t, "approver").must(t, entity, "ap.approve_invoice", object{"invoice_id": id})
	}
	auditor := d.as(t, "auditor")
	head, err := auditor.head(entity)
	require.NoError(t, err)
	figures := func() map[string]string {
		t.Helper()
		out := map[string]string{}
		for _, report := range []string{
			"/api/gl/trial-balance?legal_entity=" + entity, "/api/ap/open-items?legal_entity=" + entity, "/api/gl/accounts/2000/ledger?legal_entity=" + entity,
			"/api/gl/accounts/5100/ledger?legal_entity=" + entity, "/api/ap/open-items?legal_entity=" + entity + "&vendor=SOLE-1",
		} {
			a := must(auditor.caughtUp(report + "&as_of=2026-12-31&known_at=seq:" + head + "&min_sequence=" + head))
			require.Equal(t, http.StatusOK, a.status, a)
			out[report] = string(a.body)
		}
		return out
	}
	before, chain := figures(), checksums(t, auditor, entity)
	require.Contains(t, before["/api/ap/open-items?legal_entity="+entity], "SOLE-1")
	vendorText := func(c client, vendor string) string {
		t.Helper()
		a := must(c.caughtUp("/api/ap/vendors?legal_entity=" + entity + "&vendor=" + vendor + "&min_sequence=" + head))
		require.Equal(t, http.StatusOK, a.status, a)
		state := must(c.do("GET", "/api/entities/vendor/"+vendor+"?legal_entity="+entity, ""))
		require.Equal(t, http.StatusOK, state.status, state)
		require.Equal(t, strings.Contains(string(a.body), redactedValue), strings.Contains(string(state.body), redactedValue))
		return string(a.body) + string(state.body)
	}
	require.Contains(t, vendorText(vendorAdmin, "SOLE-1"), "Mira Sandvik")
	require.Contains(t, vendorText(clerk, "FIRM-1"), "olaf@example.org")
	require.Contains(t, vendorText(auditor, "SOLE-1"), maskedValue)
	require.NotContains(t, vendorText(auditor, "SOLE-1"), "Mira")

	for _, subject := range []string{"vendor:SOLE-1", "contact:C-1"} {
		r := officer.requestErasure(t, subject)
		require.Contains(t, r.Preview.Projections, "ap.vendors", "a read model holds copies")
		require.EqualValues(t, 1, r.Preview.Intents)
		second.approveErasure(t, r.ID)
		r = officer.awaitErasure(t, r.ID)
		for _, c := range r.Classes {
			require.True(t, c.Erased, "%s: %s", c.Class, c.Refused)
		}
	}
	for _, c := range []client{vendorAdmin, clerk, auditor} {
		text := vendorText(c, "SOLE-1")
		require.Contains(t, text, redactedValue)
		for _, gone := range []string{"Mira", "Birch", "US-77", "Olaf", "olaf", "bookkeeping"} {
			require.NotContains(t, text, gone)
		}
	}
	require.Contains(t, vendorText(clerk, "FIRM-1"), "olaf@example.org", "the other contact is another subject")
	require.Contains(t, vendorText(clerk, "FIRM-1"), "Firm Ltd")
	require.Equal(t, before, figures(), "every figure, to the byte")
	require.Equal(t, chain, checksums(t, auditor, entity)[:len(chain)])

	// Documents of the vendor and a new contact are accepted, the erased contact is refused.
	clerk.must(t, entity, "ap.submit_invoice", invoice("SOLE-1", "B-2"))
	clerk.must(t, entity, "ap.set_vendor_contact", object{"vendor_id": "SOLE-1", "contact_id": "C-3", "name": "Nils Berg"})
	clerk.must(t, entity, "ap.remove_vendor_contact", object{"vendor_id": "SOLE-1", "contact_id": "C-1"})
	expect(t, http.StatusGone, "pii.subject_erased", must(clerk.submit(entity, "ap.set_vendor_contact", object{"vendor_id": "FIRM-1", "contact_id": "C-1", "name": "Olaf Petersen"})))
	require.Zero(t, command(t, nil, "verify", "--data-dir", d.dataDir).code)
}

// TestErasureOutcomes ends requests in every other way: refused by a hold, rejected,
// withdrawn, completed in one legal entity, and for a person without events.
func TestErasureOutcomes(t *testing.T) {
	t.Parallel()
	d := sharedDev(t)
	s := newPersonFixture(t, d, "E-200", "ERAX", "ERAY")
	newEntity(t, d, s.here)
	newEntity(t, d, s.there)
	request := func() erasureRequest { t.Helper(); return s.officer.requestErasure(t, s.subject, s.here, s.there) }
	id := s.hire(t, s.here, 1)[0]
	readable := func() {
		t.Helper()
		require.Equal(t, "Ada Mosley", s.module.data(t, s.here, id)["name"])
		s.hire(t, s.here, 1)
	}

	var placed struct {
		Holds []struct {
			ID      string `json:"id"`
			Subject string `json:"subject"`
		} `json:"legal_holds"`
	}
	hold := `{"subject":"` + s.subject + `","reason":"Case 17 is before the court."}`
	expect(t, http.StatusForbidden, "", must(s.approver.do("POST", "/api/legal-holds", hold)))
	require.NoError(t, s.officer.want(http.StatusCreated, &placed, "POST", "/api/legal-holds", hold))
	require.Len(t, placed.Holds, 1)
	r := request()
	require.Equal(t, "refused", r.Status, "at once: a hold covers all of it")
	require.Contains(t, r.EndReason, "hold")
	expect(t, http.StatusUnprocessableEntity, "erasure.move_refused", must(s.approver.do("POST", "/api/erasure-requests/"+r.ID+"/approve", "")))
	readable()

	// A hold that is placed between the preview and the approval.
	require.NoError(t, s.officer.want(http.StatusOK, nil, "POST", "/api/legal-holds/"+placed.Holds[0].ID+"/release", ""))
	r = request()
	require.Equal(t, "previewed", r.Status)
	require.NoError(t, s.officer.want(http.StatusCreated, &placed, "POST", "/api/legal-holds", hold))
	a := must(s.approver.do("POST", "/api/erasure-requests/"+r.ID+"/approve", ""))
	require.Contains(t, []int{http.StatusOK, http.StatusUnprocessableEntity, http.StatusConflict}, a.status, a)
	s.awaitStatus(t, r.ID, "refused")
	readable()
	require.NoError(t, s.officer.want(http.StatusOK, nil, "POST", "/api/legal-holds/"+placed.Holds[0].ID+"/release", ""))

	r = request()
	expect(t, http.StatusForbidden, "", must(d.as(t, "auditor").do("POST", "/api/erasure-requests/"+r.ID+"/reject", `{"reason":"No."}`)))
	expect(t, http.StatusBadRequest, "request.member_missing", must(s.approver.do("POST", "/api/erasure-requests/"+r.ID+"/reject", `{"reason":""}`)))
	require.NoError(t, s.approver.want(http.StatusOK, &r, "POST", "/api/erasure-requests/"+r.ID+"/reject", `{"reason":"The person is still employed."}`))
	require.Equal(t, []string{"rejected", "p-compliance_approver", "The person is still employed."}, []string{r.Status, r.EndedBy, r.EndReason})
	readable()

	r = request()
	expect(t, http.StatusForbidden, "", must(s.approver.do("POST", "/api/erasure-requests/"+r.ID+"/withdraw", `{"reason":"No."}`)))
	r.DaysLeft = nil
	require.NoError(t, s.officer.want(http.StatusOK, &r, "POST", "/api/erasure-requests/"+r.ID+"/withdraw", `{"reason":"The person has changed their mind."}`))
	require.Equal(t, []string{"withdrawn", "p-compliance"}, []string{r.Status, r.EndedBy})
	require.Nil(t, r.DaysLeft)
	expect(t, http.StatusUnprocessableEntity, "erasure.move_refused", must(s.approver.do("POST", "/api/erasure-requests/"+r.ID+"/approve", "")))
	expect(t, http.StatusConflict, "erasure.not_completed", must(s.officer.do("GET", "/api/erasure-requests/"+r.ID+"/certificate", "")))
	expect(t, http.StatusNotFound, "erasure.not_found", must(s.officer.do("GET", "/api/erasure-requests/01JQ8E6Z6G3V5T8C9N2M4K7R1P", "")))
	readable()

	// An erasure in one legal entity keeps the values of the other one.
	kept := s.hire(t, s.there, 1)[0]
	done := eraseSubject(t, s.officer, s.approver, s.subject, s.here)
	require.Equal(t, []string{s.here}, done.LegalEntities)
	require.Equal(t, redactedValue, s.module.data(t, s.here, id)["name"])
	require.Equal(t, "Ada Mosley", s.module.data(t, s.there, kept)["name"])
	s.hire(t, s.there, 1)

	// New values of an erased person without events are refused too.
	eraseSubject(t, s.officer, s.approver, "employee:E-299", s.here)
	expect(t, http.StatusGone, "pii.subject_erased", must(s.module.do("POST", "/api/events", batch(person(s.here, "E-299", object{"name": "Cy Twain"})))))
}

func (s *personFixture) awaitStatus(t *testing.T, id, status string) (r erasureRequest) {
	t.Helper()
	require.Eventually(t, func() bool { r = s.officer.erasure(t, id); return r.Status == status }, erasureTime, 50*time.Millisecond, id)
	return r
}

// requests lists the requests of a status.
func requests(t *testing.T, c client, status string) []erasureRequest {
	t.Helper()
	var all struct {
		Requests []erasureRequest `json:"erasure_requests"`
	}
	require.NoError(t, c.want(http.StatusOK, &all, "GET", "/api/erasure-requests?limit=1000&status="+status, ""))
	return all.Requests
}

// checksums are those of all events of a legal entity, in order.
func checksums(t *testing.T, c client, entity string) (out []string) {
	t.Helper()
	events, err := c.events(url.Values{"stream_type": {"scope"}, "stream_id": {entity}})
	require.NoError(t, err)
	for _, e := range events {
		require.Regexp(t, hash64, e.Metadata.Checksum)
		out = append(out, e.Metadata.Checksum)
	}
	return out
}

var hash64 = regexp.MustCompile(`^[0-9a-f]{64}$`)

func must(a answer, err error) answer {
	if err != nil {
		panic(err)
	}
	return a
}

// expect demands a status and the code of a problem; "" is any code.
func expect(t *testing.T, status int, code string, a answer) {
	t.Helper()
	require.Equal(t, status, a.status, "%s wanted: %s", code, a)
	if code != "" {
		require.Equal(t, code, a.code(), a)
	}
	require.True(t, json.Valid(a.body))
}
