package ap_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/test/testkit"
)

// seedInvoice is the example of the event's registration.
func seedInvoice() object {
	return object{
		"invoice_number": "INV-2025-001234", "vendor_id": "V-1042", "vendor_name": "Contoso Supply Ltd",
		"invoice_date": "2025-03-15", "due_date": "2025-04-14", "currency": "USD", "total_amount": n("12500.00"), "tax_amount": 0,
		"description": "Raw materials order - March delivery", "po_reference": "PO-2025-00891",
		"lines": []object{{
			"line_number": 1, "description": "Widget Component A", "quantity": 500, "unit_price": n("25.00"), "amount": n("12500.00"),
			"account": "5100", "po_line_reference": "PO-2025-00891-1", "item_id": "ITEM-4820",
			"dimensions": object{"department": "PROD", "cost_center": "CC-5100"},
		}},
	}
}

func TestSubmit_SeedInvoice(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V-1042", object{"name": "Contoso Supply Ltd", "country": "US"})
	out := b.execute("ap_clerk", "ap.submit_invoice", seedInvoice())
	events := b.events(out)
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.validated"}, types(events))

	s := events[0]
	require.Equal(t, out.IntentID.String(), s.Stream.ID)
	require.Equal(t, "ap.invoice", s.Stream.Type)
	require.Equal(t, event.MustDate("2025-03-15"), s.EffectiveDate)
	require.Equal(t, map[string]string{"department": "PROD", "cost_center": "CC-5100"}, s.body.Dimensions)
	require.Equal(t, []string{"period:2025-03", "fy:2025", "match:invoice:number:V-1042:INV20251234", "match:invoice:total:V-1042:USD:12500.00:2025-03-15"}, s.Tags)
	require.Contains(t, s.body.EntityRefs, event.EntityRef{Type: "vendor", ID: "V-1042", Role: "subject"})
	require.Contains(t, s.body.EntityRefs, event.EntityRef{Type: "invoice", ID: s.Stream.ID, Role: "document"})
	require.Contains(t, string(s.body.Data), `"total_amount":12500.00,`, "amounts are stored as written")
	require.Contains(t, string(s.body.Data), `"unit_price":25.00,`)
	require.Equal(t, s.Stream.ID, s.data["invoice_id"])
	require.Equal(t, "document", s.data["due_date_source"])
	require.Equal(t, s.ID, events[1].CausedBy)
	require.Equal(t, s.Stream, events[1].Stream)
}

// Events of a submission lead to the cause that the intent names, those of an approval to the
// document. The intent of the approval keeps the cause that it names.
func TestNamedCause(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	cause := b.execute("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "Vendor", "country": "DE", "registration_id": "R1"}).Events[0].ID
	submit := func(who, intentType string, payload object) (recorded, intent.Intent) {
		t.Helper()
		out, err := b.pipeline.Submit(t.Context(), caller(who), pipeline.Request{
			Type: intentType, LegalEntity: b.entity, Payload: testkit.Must(json.Marshal(payload)), CausedBy: cause,
		})
		require.NoError(t, err)
		stored, _, err := b.pipeline.Get(t.Context(), b.entity, out.IntentID)
		require.NoError(t, err)
		return b.events(out)[0], stored
	}
	submitted, stored := submit("ap_clerk", "ap.submit_invoice", documentPayload("V1", "A", "100", nil))
	require.Equal(t, []any{cause, cause}, []any{submitted.CausedBy, stored.CausedBy})
	approved, stored := submit("approver", "ap.approve_invoice", object{"invoice_id": submitted.Stream.ID})
	require.Equal(t, []any{submitted.ID, cause}, []any{approved.CausedBy, stored.CausedBy})
}

func TestSubmit_Refusals(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.execute("controller", "gl.close_period", object{"module": "ap", "period": "2025-02", "level": "hard"})
	line := func(amount string) []object {
		return []object{{"line_number": 1, "amount": n(amount), "account": "5100"}}
	}
	tax := func(amount string) []object {
		return []object{{"category": "S", "rate": 19, "taxable_amount": n("100"), "tax_amount": n(amount), "tax_group": "S/19"}}
	}
	for _, c := range []struct {
		name, code, field string
		kind              fault.Kind
		more              object
	}{
		{"total", "ap.invoice.total_mismatch", "/total_amount", fault.Invalid, object{"total_amount": n("100.01")}},
		{"tax", "ap.invoice.tax_mismatch", "/tax_amount", fault.Invalid, object{"total_amount": n("119"), "tax_amount": n("19"), "tax_lines": tax("18.99")}},
		{"payable", "ap.invoice.payable_mismatch", "/payable_amount", fault.Invalid, object{"prepaid_amount": n("10"), "payable_amount": n("100")}},
		{"rounding", "ap.invoice.payable_mismatch", "/rounding_amount", fault.Invalid, object{"rounding_amount": n("-100.01")}},
		{"number of wide blanks", "ap.invoice.number_invalid", "/invoice_number", fault.Invalid, object{"invoice_number": "\u00a0\u2003"}},
		{"invisible number", "ap.invoice.number_invalid", "/invoice_number", fault.Invalid, object{"invoice_number": "R-1\u200b"}},
		{"number of two lines", "ap.invoice.number_invalid", "/invoice_number", fault.Invalid, object{"invoice_number": "R\n1"}},
		{"number with a control character", "ap.invoice.number_invalid", "/invoice_number", fault.Invalid, object{"invoice_number": "R\u00011"}},
		{"due date", "ap.invoice.due_date_invalid", "/due_date", fault.Invalid, object{"due_date": "2025-03-14"}},
		{"line number", "ap.invoice.line_number_invalid", "/lines/1/line_number", fault.Invalid,
			object{"lines": append(line("40"), line("60")...)}},
		{"vendor", "ap.vendor.not_found", "/vendor_id", fault.NotFound, object{"vendor_id": "V2"}},
		{"currency unknown", "money.currency_unsupported", "/currency", fault.Invalid, object{"currency": "XYZ"}},
		{"currency retired", "money.currency_unsupported", "/currency", fault.Invalid, object{"currency": "DEM"}},
		{"scale", "money.scale", "/total_amount", fault.Invalid, object{"total_amount": n("100.001"), "lines": line("100.001")}},
		{"line scale", "money.scale", "/lines/0/amount", fault.Invalid, object{"lines": line("100.001")}},
		{"digits", "money.too_large", "", fault.Invalid, object{"total_amount": n("12345678901234.56")}},
		{"exponent", "money.exponent", "", fault.Invalid, object{"total_amount": n("1e2")}},
		{"negative zero", "money.negative_zero", "", fault.Invalid, object{"rounding_amount": n("-0")}},
		{"text amount", "intent.schema_invalid", "/payload/total_amount", fault.Invalid, object{"total_amount": "100"}},
		{"unknown field", "intent.schema_invalid", "", fault.Invalid, object{"totl": 1}},
		{"negative total", "intent.schema_invalid", "/payload/total_amount", fault.Invalid, object{"total_amount": n("-1"), "lines": line("-1")}},
		{"hard closed", "gl.period.hard_closed", "", fault.FailedPrecondition, object{"posting_date": "2025-02-10"}},
		{"not open", "gl.period.not_open", "", fault.FailedPrecondition, object{"posting_date": "2025-12-10"}},
		{"undefined", "gl.period.undefined", "", fault.FailedPrecondition, object{"posting_date": "2027-01-10"}},
		{"withholding code", "ap.withholding_code.not_found", "/withholding/0/code", fault.NotFound,
			object{"withholding": []object{{"code": "nope", "amount": 1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.tb = t
			for _, kind := range []string{"invoice", "credit_memo"} {
				code := strings.Replace(c.code, "ap.invoice.", "ap."+kind+".", 1)
				f := b.refuse(code, "ap_clerk", "ap.submit_"+kind, documentPayload("V1", "R-"+c.name, "100", c.more))
				require.Equal(t, c.kind, f.Kind)
				if c.field != "" {
					require.Equal(t, inPayload(c.field), f.Field)
				}
			}
		})
	}
	b.tb = t
	f := b.refuse("ap.invoice.total_mismatch", "ap_clerk", "ap.submit_invoice", documentPayload("V1", "R", "100", object{"total_amount": n("100.01")}))
	require.Equal(t, "100", f.Expected)
	require.Equal(t, "100.01", f.Actual)
	require.Equal(t, "0.01", f.Attributes["difference"])
	b.refuse("intent.forbidden", "approver", "ap.submit_invoice", documentPayload("V1", "R", "100", nil))
}

func TestEffectiveDateMismatch(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	for _, sameDay := range []bool{true, false} {
		asked := event.MustDate("2025-03-18")
		p := documentPayload("V1", fmt.Sprint(sameDay), "1", object{"posting_date": "2025-03-18"})
		if !sameDay {
			p["posting_date"] = "2025-03-19"
		}
		out, err := b.submitDated(&asked, p)
		if !sameDay {
			require.Equal(t, "intent.effective_date_mismatch", fault.CodeOf(err))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, asked, b.events(out)[0].EffectiveDate)
	}
}

func TestDuplicates(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("V2", nil)
	first := b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "INV-2025 001", "100", nil))
	id, eventID := first.Events[0].Stream.ID, first.Events[0].ID.String()

	for name, c := range map[string]struct {
		number, amount string
		agree          bool
	}{
		"same":               {"INV-2025 001", "100.00", true},
		"case and blanks":    {" inv-2025001 ", "100", true},
		"full width":         {"ＩＮＶ－２０２５００１", "100", true},
		"no-break space":     {"INV-2025\u00a0001", "100", true},
		"with another total": {"INV-2025 001", "100.01", false},
	} {
		f := b.refuse("ap.invoice.duplicate", "ap_clerk", "ap.submit_invoice", documentPayload("V1", c.number, c.amount, nil))
		require.Equal(t, fault.Conflict, f.Kind, name)
		require.Equal(t, &fault.Holder{EventID: eventID, DocumentID: id, Sequence: fmt.Sprint(first.Events[0].Sequence)}, f.Holder, name)
		require.Equal(t, c.agree, f.Attributes["totals_agree"], name)
	}
	b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V2", "INV-2025 001", "100", nil))     // another vendor
	b.execute("ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "INV-2025 001", "100", nil)) // another kind
	b.refuse("ap.credit_memo.duplicate", "ap_clerk", "ap.submit_credit_memo", documentPayload("V1", "inv-2025 001", "100", nil))

	// A number stays claimed when the document is rejected.
	b.execute("approver", "ap.reject_invoice", object{"invoice_id": id, "reason": "wrong address"})
	b.refuse("ap.invoice.duplicate", "ap_clerk", "ap.submit_invoice", documentPayload("V1", "INV-2025 001", "100", nil))
}

// suspects gives the rules by which each DUPLICATE_SUSPECT hold arose.
func suspects(events []recorded) []any {
	var out []any
	for _, e := range events {
		if e.Type == "ap.invoice.held" && e.data["kind"] == "DUPLICATE_SUSPECT" {
			out = append(out, e.data["finding"].(object)["rules"])
		}
	}
	return out
}

func TestSubmit_PossibleDuplicates(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("V2", nil)
	submit := func(p object) []recorded { return b.events(b.execute("ap_clerk", "ap.submit_invoice", p)) }
	first := submit(documentPayload("V1", "INV-00123", "100", nil))[0].Stream.ID

	require.Equal(t, []any{[]any{"number"}}, suspects(submit(documentPayload("V1", "inv 123", "77", nil))))
	require.Equal(t, []any{[]any{"total"}}, suspects(submit(documentPayload("V1", "other", "100.00", nil))))
	both := submit(documentPayload("V1", "INV.0123", "100", nil))
	require.Equal(t, []any{[]any{"number", "total"}}, suspects(both), "one hold, however many documents look alike")
	require.Equal(t, first, both[1].data["finding"].(object)["document_id"])
	require.Equal(t, []string{"ap.invoice.submitted", "ap.invoice.held"}, types(both))

	require.Empty(t, suspects(submit(documentPayload("V2", "INV-00123", "100", nil))), "another vendor")
	require.Empty(t, suspects(submit(documentPayload("V1", "x1", "100", object{"invoice_date": "2025-03-16"}))), "another day")
	require.Empty(t, suspects(submit(documentPayload("V1", "x2", "100", object{"currency": "USD"}))), "another currency")
	require.Empty(t, suspects(submit(documentPayload("V1", "x3", "100.01", nil))), "another total")

	// Within a window the days around count too.
	b.execute("admin", "ap.configure", object{"duplicate_window_days": 3})
	require.Equal(t, []any{[]any{"total"}}, suspects(submit(documentPayload("V1", "x4", "100.01", object{"invoice_date": "2025-03-18"}))))
	require.Empty(t, suspects(submit(documentPayload("V1", "x5", "100.01", object{"invoice_date": "2025-03-22"}))))
}

func TestSubmit_RejectedDuplicates(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	id := b.invoice(documentPayload("V1", "A", "100", nil))
	b.execute("approver", "ap.reject_invoice", object{"invoice_id": id, "reason": "wrong vendor"})
	again := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "B", "100", nil)))
	require.Empty(t, suspects(again))
	third := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "C", "100", nil)))
	require.Equal(t, again[0].Stream.ID, third[1].data["finding"].(object)["document_id"], "a rejected document is no duplicate")
}

func TestHolds(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	held := func(p object) map[string]string {
		out := map[string]string{}
		for _, e := range b.events(b.execute("ap_clerk", "ap.submit_invoice", p)) {
			if e.Type == "ap.invoice.held" {
				out[e.data["kind"].(string)] = e.data["blocks"].(string)
			}
		}
		return out
	}
	withTax := func(number, total, charged, group string, rate any) object {
		return documentPayload("V1", number, "100", object{
			"total_amount": n(total), "tax_amount": n(charged),
			"tax_lines": []object{{"category": "S", "rate": rate, "taxable_amount": n("100"), "tax_amount": n(charged), "tax_group": group}},
		})
	}
	require.Empty(t, held(withTax("t1", "119.05", "19.05", "S/19", 19)), "at the tolerance")
	require.Equal(t, map[string]string{"TAX_VARIANCE": "approval"}, held(withTax("t2", "119.06", "19.06", "S/19", 19)))
	require.Equal(t, map[string]string{"TAX_VARIANCE": "approval"}, held(withTax("t3", "119", "19", "AE/0", 19)), "tax charged under reverse charge")
	require.Equal(t, map[string]string{"PREPAID_UNMATCHED": "payment"}, held(documentPayload("V1", "p1", "50", object{"prepaid_amount": n("5")})))
	require.Empty(t, held(documentPayload("V1", "p2", "51", object{"prepaid_amount": n("5"), "document_type": "prepayment"})))
	require.Equal(t, map[string]string{"PAYEE_DIFFERS": "payment"}, held(documentPayload("V1", "d1", "52", object{"payee_differs": true})))
	require.Equal(t, map[string]string{"PAYEE_DIFFERS": "payment", "PREPAID_UNMATCHED": "payment"},
		held(documentPayload("V1", "d2", "53", object{"payee_differs": true, "prepaid_amount": n("1")})), "one event per finding")
	warned := func(number string) object {
		return documentPayload("V1", number, "54."+number[1:], object{"source_document": object{
			"syntax": "UBL 2.1", "sha256": strings.Repeat("0", 64), "warnings": []string{"PEPPOL-EN16931-R120", "ubl.vat_id_invalid"},
		}})
	}
	require.Empty(t, held(warned("w1")), "warnings of the reader are kept")
	b.execute("admin", "ap.configure", object{"hold_warnings": true})
	require.Equal(t, map[string]string{"DOCUMENT_WARNING": "approval"}, held(warned("w2")))

	b.execute("admin", "ap.configure", object{"tolerances": object{"tax_amount": n("0")}})
	require.Equal(t, map[string]string{"TAX_VARIANCE": "approval"}, held(withTax("t4", "119.01", "19.01", "S/19", 19)))

	b.execute("admin", "gl.configure_ledger", object{
		"functional_currency": "EUR", "default_dimensions": object{"department": "FIN"}, "second_person": false,
		"posting_profile": object{"ap_control": "2000"},
	})
	open := []object{{"line_number": 1, "amount": n("60")}}
	require.Equal(t, map[string]string{"CODING_MISSING": "approval"}, held(documentPayload("V1", "c1", "60", object{"lines": open})))
	b.vendor("V3", object{"default_account": "6100"})
	require.Empty(t, held(documentPayload("V3", "c2", "60", object{"lines": open})))
}

func TestCoding(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.vendor("V2", object{"default_account": "6900", "default_dimensions": object{"department": "ENG", "project": "P-1"}})
	lines := func(ls ...object) object {
		for i := range ls {
			ls[i]["line_number"], ls[i]["amount"] = i+1, n("10")
		}
		return object{"lines": ls, "total_amount": 10 * len(ls)}
	}
	number := 0
	submit := func(vendor string, more object) []recorded {
		number++
		more["invoice_date"] = fmt.Sprintf("2025-03-%02d", number)
		return b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload(vendor, fmt.Sprintf("N%dX", number), "10", more)))
	}
	account := func(e recorded, i int) any { return e.data["lines"].([]any)[i].(object)["account"] }
	dimensions := func(e recorded, i int) any { return e.data["lines"].([]any)[i].(object)["dimensions"] }

	e := submit("V1", lines(object{"accounting_cost": "BookingCode001"}, object{"accounting_cost": "BookingCode001", "account": "5100", "dimensions": object{"department": "PROD"}}))
	require.Equal(t, "6100", account(e[0], 0))
	require.Equal(t, object{"department": "ENG"}, dimensions(e[0], 0))
	require.Equal(t, "5100", account(e[0], 1), "the line's own account wins")
	require.Equal(t, object{"department": "PROD"}, dimensions(e[0], 1))
	require.Equal(t, map[string]string{"department": "FIN"}, e[0].body.Dimensions, "the lines disagree, so the ledger's default")

	e = submit("V1", lines(object{"accounting_cost": "CC-5100"}))
	require.Equal(t, object{"cost_center": "CC-5100"}, dimensions(e[0], 0))
	require.Equal(t, map[string]string{"department": "FIN", "cost_center": "CC-5100"}, e[0].body.Dimensions)
	require.Equal(t, "6000", account(e[0], 0), "posting profile")

	e = submit("V1", lines(object{"accounting_cost": "unheard of"}))
	require.Nil(t, dimensions(e[0], 0))
	require.Equal(t, "unheard of", e[0].data["lines"].([]any)[0].(object)["accounting_cost"])
	require.Equal(t, "ap.coding.entry_missing", e[1].data["warnings"].([]any)[0].(object)["code"])

	e = submit("V2", lines(object{}, object{"dimensions": object{"department": "PROD"}}))
	require.Equal(t, "6900", account(e[0], 0), "the vendor's account")
	require.Equal(t, map[string]string{"department": "ENG", "project": "P-1"}, e[0].body.Dimensions, "the vendor's defaults")
}

func TestDepartmentMissing(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	b.execute("admin", "gl.configure_ledger", object{"functional_currency": "EUR", "second_person": false})
	for _, kind := range []string{"invoice", "credit_memo"} {
		b.refuse("ap."+kind+".dimension_missing", "ap_clerk", "ap.submit_"+kind,
			documentPayload("V1", "A", "10", object{"lines": []object{{"line_number": 1, "amount": n("10"), "account": "5100"}}}))
	}
}

func TestDueDate(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", object{"terms": object{"net_days": 14}})
	b.vendor("V2", nil)
	due := func(vendor string) []any {
		e := b.events(b.execute("ap_clerk", "ap.submit_invoice", documentPayload(vendor, "A", "10", nil)))[0]
		return []any{e.data["due_date"], e.data["due_date_source"]}
	}
	require.Equal(t, []any{"2025-03-29", "vendor_terms"}, due("V1"))
	require.Equal(t, []any{"2025-04-14", "default_terms"}, due("V2"))
}

// TestSubmit_PossibleDuplicateRace submits documents with the same total and day concurrently:
// all but one are held as possible duplicates.
func TestSubmit_PossibleDuplicateRace(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.vendor("V1", nil)
	const clients = 12
	outcomes := make([]pipeline.Outcome, clients)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for i := range clients {
		wg.Add(1)
		go func() {
			defer wg.Done()
			outcomes[i], errs[i] = b.submit("ap_clerk", "ap.submit_invoice", documentPayload("V1", fmt.Sprintf("N%dX", i), "100", nil))
		}()
	}
	wg.Wait()
	clear := 0
	for i := range clients {
		require.NoError(t, errs[i])
		if len(suspects(b.events(outcomes[i]))) == 0 {
			clear++
		}
	}
	require.Equal(t, 1, clear)
}

// TestRawAppend_Checks checks that raw appends of inconsistent documents are refused.
func TestRawAppend_Checks(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	prepare := func(data string, dimensions map[string]string, entities ...event.EntityRef) ([]event.Prepared, error) {
		return b.preparer.Prepare(t.Context(), module.Batch{
			LegalEntity: b.entity, Actor: caller("module").Actor, Now: b.clock.Now(), CorrelationID: "c",
			Drafts: []event.Draft{{
				Type: "ap.invoice.submitted", Stream: event.StreamID{Type: "ap.invoice", ID: "old-1"}, EffectiveDate: event.MustDate("2025-03-15"),
				Data: json.RawMessage(data), Dimensions: dimensions, Entities: entities,
			}},
		})
	}
	const sound = `{"invoice_number":" inv-1 ","vendor_id":"V1","invoice_date":"2025-03-15","due_date":"2025-04-14","currency":"USD","total_amount":12.50,"lines":[{"line_number":1,"amount":12.50}],"extra":true}`
	department, vendor := map[string]string{"department": "PROD"}, event.EntityRef{Type: "vendor", ID: "V1", Role: "subject"}
	prepared, err := prepare(sound, department, vendor)
	require.NoError(t, err)
	require.Equal(t, "number\x1fV1\x1fINV-1", prepared[0].BusinessKeys[0].Key)

	_, err = prepare(strings.Replace(sound, "12.50", "12.51", 1), department, vendor)
	f, _ := fault.As(err)
	require.Equal(t, "ap.invoice.total_mismatch", f.Code)
	require.Equal(t, "/events/0/data/total_amount", f.Field)
	_, err = prepare(sound, nil, vendor)
	require.Equal(t, "append.dimension_missing", fault.CodeOf(err))
	_, err = prepare(sound, department)
	require.Equal(t, "append.reference_missing", fault.CodeOf(err))
	_, err = prepare(strings.ReplaceAll(sound, "12.50", "1.25e1"), department, vendor)
	require.Equal(t, "money.exponent", fault.CodeOf(err))
}

// inPayload is where the pipeline points for a planner's pointer.
func inPayload(field string) string {
	if strings.HasPrefix(field, "/payload") || !strings.HasPrefix(field, "/") {
		return field // the schema's pointers are there already
	}
	return "/payload" + field
}
