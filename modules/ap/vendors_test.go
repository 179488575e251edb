package ap_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	appostgres "github.com/erpbackbone/backbone/modules/ap/adapters/postgres"
	"github.com/erpbackbone/backbone/ports"
)

// vendors asks the report and gives its rows as they are stored.
func (b *books) vendors(p *pgxpool.Pool, asOf string, known event.Sequence, params map[string]string) string {
	b.tb.Helper()
	report, err := appostgres.NewVendors(p).Query(b.tb.Context(), ports.ReadModelQuery{
		Partition: b.entity.Partition, Entity: b.entity, AsOf: event.MustDate(asOf), Known: known, KnownAt: fmt.Sprintf("seq:%d", known), Params: params, Limit: 1000,
	})
	require.NoError(b.tb, err)
	require.False(b.tb, report.HasMore)
	rows, err := json.Marshal(report.Rows)
	require.NoError(b.tb, err)
	return string(rows)
}

// manyVendors are a company with two contacts, one of them removed, and two natural
// persons, of whom one is known by an id alone.
func (b *books) manyVendors(t *testing.T) (registered map[string]string) {
	t.Helper()
	registered = map[string]string{}
	b.vendor("V1", object{"name": "Firm \"A\" & Co", "country": "DE"})
	contact := func(id, vendor string, more object) {
		p := object{"contact_id": id, "vendor_id": vendor, "name": contactName}
		for k, v := range more {
			p[k] = v
		}
		b.execute("ap_clerk", "ap.set_vendor_contact", p)
	}
	contact("C-2", "V1", object{"name": "Nora Nord", "function": "sales"})
	contact("C-1", "V1", object{"name": "Olaf P."})
	contact("C-1", "V1", object{"email": contactMail, "phone": "+45 70 10 20 30"})
	contact("C-3", "V1", nil)
	b.execute("ap_clerk", "ap.remove_vendor_contact", object{"vendor_id": "V1", "contact_id": "C-3"})
	b.naturalPerson(object{"vendor_id": "SOLE-1"})
	contact("C-1", "SOLE-1", nil)
	b.naturalPerson(object{"vendor_id": "SOLE-2", "person": nil})
	for _, e := range b.all() {
		if e.Type == "ap.vendor.registered" {
			registered[e.Stream.ID] = e.ID.String()
		}
	}
	return registered
}

const vendorRows = `[
	{"vendor_id":"SOLE-1","name":%[4]s,"country":"SE","status":"active","natural_person":true,"contacts":[{"contact_id":"C-1","name":"Olaf Petersen"}],"bank":{"state":"none","accounts":[]},"event_id":"%[1]s"},
	{"vendor_id":"SOLE-2","name":null,"country":"SE","status":"active","natural_person":true,"contacts":[],"bank":{"state":"none","accounts":[]},"event_id":"%[2]s"},
	{"vendor_id":"V1","name":"Firm \"A\" & Co","country":"DE","status":"active","natural_person":false,"contacts":[
		{"contact_id":"C-1","name":"Olaf Petersen","email":"olaf.petersen@supplier.example","phone":"+45 70 10 20 30"},
		{"contact_id":"C-2","name":"Nora Nord","function":"sales"}],"bank":{"state":"none","accounts":[]},"event_id":"%[3]s"}]`

const miraRow = `{"name":"Mira Sandvik","address":"Birkenweg 9, 22100 Lund","vat_id":"SE 123456-7897 01"}`

func TestVendors_Report(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	ids := b.manyVendors(t)
	project(t, p, appostgres.NewVendorProjection(), b.all(), 3)
	stored := b.vendors(p, "2025-12-31", b.head(), nil)
	for _, secret := range []string{"Mira", "Olaf", "Nora", "sales", contactMail} {
		require.NotContains(t, stored, secret)
	}
	want := fmt.Sprintf(vendorRows, ids["SOLE-1"], ids["SOLE-2"], ids["V1"], miraRow)
	require.JSONEq(t, want, b.keys.open(t, []byte(stored)), "every copy opens where it says it was sealed")
	project(t, p, appostgres.NewVendorProjection(), b.all(), 1000)
	require.Equal(t, stored, b.vendors(p, "2025-12-31", b.head(), nil), "a second time changes nothing")

	// Each axis on its own.
	require.Equal(t, "[]", b.vendors(p, "2025-03-19", b.head(), nil))
	var first event.Sequence
	for _, e := range b.all() {
		if e.Type == "ap.vendor.contact_recorded" && first == 0 {
			first = e.Sequence
		}
	}
	require.JSONEq(t, fmt.Sprintf(`[{"vendor_id":"V1","name":"Firm \"A\" & Co","country":"DE","status":"active","natural_person":false,"contacts":[{"contact_id":"C-2","name":"Nora Nord","function":"sales"}],"bank":{"state":"none","accounts":[]},"event_id":"%s"}]`, ids["V1"]),
		b.keys.open(t, []byte(b.vendors(p, "2025-12-31", first, nil))))
	one := b.keys.open(t, []byte(b.vendors(p, "2025-12-31", b.head(), map[string]string{"vendor": "SOLE-1"})))
	require.Contains(t, one, "Mira")
	require.NotContains(t, one, `"V1"`)

	source := appostgres.NewVendors(p)
	q := ports.ReadModelQuery{Partition: b.entity.Partition, Entity: b.entity, AsOf: event.MustDate("2025-12-31"), Known: b.head(), KnownAt: "x", Limit: 1}
	var pages []any
	for {
		report, err := source.Query(t.Context(), q)
		require.NoError(t, err)
		require.Len(t, report.Rows, 1)
		pages = append(pages, report.Rows...)
		if q.Cursor = report.NextCursor; !report.HasMore {
			break
		}
	}
	paged, err := json.Marshal(pages)
	require.NoError(t, err)
	require.Equal(t, stored, string(paged))
	_, err = source.Query(t.Context(), ports.ReadModelQuery{Cursor: "x"})
	require.Equal(t, "cursor.invalid", fault.CodeOf(err))
}

func TestVendors_Rebuild(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	b.manyVendors(t)
	project(t, p, appostgres.NewVendorProjection(), b.all(), 2)
	dump := func() (rows []string) {
		for _, table := range []string{"ap.vendors", "ap.vendor_contacts"} {
			found, err := p.Query(t.Context(), "SELECT to_json(r)::text FROM "+table+" AS r WHERE r.partition_id = $1 ORDER BY r.sequence", b.entity.Partition)
			require.NoError(t, err)
			texts, err := pgx.CollectRows(found, pgx.RowTo[string])
			require.NoError(t, err)
			rows = append(rows, texts...)
		}
		return rows
	}
	before := dump()
	require.Len(t, before, 9)
	b.deleteRows(p, "ap.vendors", "ap.vendor_contacts")
	project(t, p, appostgres.NewVendorProjection(), b.all(), 1000)
	require.Equal(t, before, dump())
}

// TestVendors_PlainValuesAreRefused checks that values in clear, as in events from before key
// management, are not copied into rows, and that redacted ones are rows with "[REDACTED]".
func TestVendors_PlainValuesAreRefused(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	b.manyVendors(t)
	events := b.all()
	for i, e := range events {
		value := shredding.Redacted
		if e.Stream.ID == "V1" {
			value = `"` + contactName + `"`
		}
		var err error
		events[i].Payload, err = shredding.OpenDocument(nil, e.Payload, func(shredding.Sealed) (shredding.Answer, error) {
			return shredding.Clear(shredding.NewPlain([]byte(value))), nil
		})
		require.NoError(t, err)
	}
	project(t, p, appostgres.NewVendorProjection(), events, 1000)
	stored := b.vendors(p, "2025-12-31", b.head(), nil)
	require.NotContains(t, stored, "Olaf")
	require.Contains(t, stored, `"vendor_id":"SOLE-1","name":"[REDACTED]"`)
	require.Contains(t, stored, `{"contact_id":"C-2"}`)
	require.Contains(t, stored, `{"contact_id":"C-1","name":"[REDACTED]"}`)
}

// redact gives events as a handler that keeps copies is handed them once persons were
// erased.
func redact(t *testing.T, events []event.Recorded, subjects ...shredding.Subject) []event.Recorded {
	t.Helper()
	out := slices.Clone(events)
	for i := range out {
		var err error
		out[i].Payload, err = shredding.OpenDocument(nil, out[i].Payload, func(s shredding.Sealed) (shredding.Answer, error) {
			if slices.Contains(subjects, s.Subject) {
				return shredding.Destroyed(), nil
			}
			return shredding.Kept(s), nil
		})
		require.NoError(t, err)
	}
	return out
}

// copies counts rows with sealed copies of a person, by the columns that the handler
// declares.
func (b *books) copies(p *pgxpool.Pool, s shredding.Subject) (rows int) {
	b.tb.Helper()
	for _, target := range appostgres.NewVendorProjection().Targets() {
		for _, table := range target.Tables {
			var n int
			require.NoError(b.tb, p.QueryRow(b.tb.Context(), fmt.Sprintf("SELECT count(*) FROM %s.%s WHERE %s = $1 AND partition_id = $2", table.Schema, table.Name, table.Subject), s, b.entity.Partition).Scan(&n))
			rows += n
		}
	}
	return rows
}

// deleteRows deletes the rows of the books.
func (b *books) deleteRows(p *pgxpool.Pool, tables ...string) {
	b.tb.Helper()
	for _, table := range tables {
		_, err := p.Exec(b.tb.Context(), "DELETE FROM "+table+" WHERE partition_id = $1", b.entity.Partition)
		require.NoError(b.tb, err)
	}
}

// TestErasure_KeepsAmounts erases a contact and a sole trader: names disappear, and amounts and
// states are unchanged.
func TestErasure_KeepsAmounts(t *testing.T) {
	t.Parallel()
	b, p := newBooks(t), pool(t)
	ids := b.manyVendors(t)
	for _, v := range []string{"SOLE-1", "V1"} {
		id := b.invoice(documentPayload(v, "1", "100", object{"vendor_name": map[string]any{"V1": "Firm", "SOLE-1": personName}[v]}))
		b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
	}
	project(t, p, appostgres.NewProjection(), b.all(), 1000)
	project(t, p, appostgres.NewVendorProjection(), b.all(), 1000)
	events, head := b.all(), b.head()
	figures := b.openItems(p, "2025-12-31", head, nil)
	require.Len(t, figures, 2)

	subjects := []shredding.Subject{"vendor:SOLE-1", "contact:C-1"}
	b.keys.erase(subjects...)
	redacted := fmt.Sprintf(`[
		{"vendor_id":"SOLE-1","name":"[REDACTED]","country":"SE","status":"active","natural_person":true,"contacts":[{"contact_id":"C-1","name":"[REDACTED]"}],"bank":{"state":"none","accounts":[]},"event_id":"%[1]s"},
		{"vendor_id":"SOLE-2","name":null,"country":"SE","status":"active","natural_person":true,"contacts":[],"bank":{"state":"none","accounts":[]},"event_id":"%[2]s"},
		{"vendor_id":"V1","name":"Firm \"A\" & Co","country":"DE","status":"active","natural_person":false,"contacts":[
			{"contact_id":"C-1","name":"[REDACTED]","email":"[REDACTED]","phone":"[REDACTED]"},
			{"contact_id":"C-2","name":"Nora Nord","function":"sales"}],"bank":{"state":"none","accounts":[]},"event_id":"%[3]s"}]`, ids["SOLE-1"], ids["SOLE-2"], ids["V1"])
	require.JSONEq(t, redacted, b.keys.open(t, []byte(b.vendors(p, "2025-12-31", head, nil))), "the keys alone do it")
	require.Equal(t, []int{1, 3}, []int{b.copies(p, subjects[0]), b.copies(p, subjects[1])})
	b.deleteRows(p, "ap.vendors", "ap.vendor_contacts")
	project(t, p, appostgres.NewVendorProjection(), redact(t, events, subjects...), 1000)
	for _, s := range subjects {
		require.Zero(t, b.copies(p, s))
	}
	require.Equal(t, 1, b.copies(p, "contact:C-2"), "of no other contact")
	stored := b.vendors(p, "2025-12-31", head, nil)
	require.NotContains(t, stored, "vendor:SOLE-1")
	require.NotContains(t, stored, "contact:C-1")
	require.JSONEq(t, redacted, b.keys.open(t, []byte(stored)))

	require.Equal(t, figures, b.openItems(p, "2025-12-31", head, nil))
	require.Equal(t, events, b.all(), "no byte of the log is another")
	require.Equal(t, head, b.head())
	// The books go on, about this vendor too.
	id := b.invoice(documentPayload("SOLE-1", "2", "50", nil))
	b.execute("approver", "ap.approve_invoice", object{"invoice_id": id})
	b.refuse("ap.invoice.duplicate", "ap_clerk", "ap.submit_invoice", documentPayload("SOLE-1", "1", "100", nil))
	f := b.refuse("pii.subject_erased", "ap_clerk", "ap.set_vendor_contact", object{"vendor_id": "V1", "contact_id": "C-1", "name": contactName})
	require.NotContains(t, b.stored(f.IntentID), "Olaf")
	require.Equal(t, "SOLE-1", b.refuse("ap.vendor.duplicate", "ap_clerk", "ap.register_vendor",
		object{"natural_person": true, "country": "SE", "person": mira, "vendor_id": "SOLE-1"}).Holder.DocumentID)
}
