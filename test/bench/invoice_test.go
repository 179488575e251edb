//go:build bench

package bench

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

const (
	vendors     = 50
	invoiceType = "ap.invoice.submitted"
)

// invoices makes submitted invoices of about 1 KB, no two of them equal.
type invoices struct {
	ids    *system.IDs
	number atomic.Int64
	typeNo int32 // of invoiceType in the registry
}

func newInvoices(typeNo int32) *invoices { return &invoices{ids: system.NewIDs(), typeNo: typeNo} }

func vendorID(n int64) string { return fmt.Sprintf("BENCH-V%02d", n%vendors) }

// amount is the n-th invoice's total in cents: no two of one vendor within half a
// million are alike.
func amount(n int64) int64 { return 100_000 + n%25_000_000 }

func cents(c int64) string { return fmt.Sprintf("%d.%02d", c/100, c%100) }

// lines are three lines of a document, worth the total.
func appendLines(dst []byte, total int64) []byte {
	first, second := total/2, total/3
	for i, line := range [...]struct {
		text, account, center string
		cents                 int64
	}{
		{"Widget component A, zinc plated, box of 500", "5100", "CC-5100", first},
		{"Mounting brackets for assembly line 3", "5100", "CC-5100", second},
		{"Freight and handling to the Redmond plant", "5200", "CC-1200", total - first - second},
	} {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = fmt.Appendf(dst, `{"line_number":%d,"description":%q,"quantity":1,"unit_price":%s,"amount":%s,"account":%q,"dimensions":{"department":"PROD","cost_center":%q}}`,
			i+1, line.text, cents(line.cents), cents(line.cents), line.account, line.center)
	}
	return dst
}

// appendDocument is the JSON of a document without its closing brace.
func appendDocument(dst []byte, n int64) []byte {
	total := amount(n)
	dst = fmt.Appendf(dst, `{"invoice_number":"INV-%09d","vendor_id":%q,"vendor_name":"Contoso Supply Ltd","invoice_date":"2025-03-%02d","due_date":"2025-04-28","currency":"USD","total_amount":%s,"tax_amount":0,"description":"Raw materials order, March delivery","po_reference":"PO-%07d","lines":[`,
		n, vendorID(n), 1+n%28, cents(total), n/3)
	dst = appendLines(dst, total)
	return append(dst, ']')
}

// prepare makes the n-th invoice ready for the store, with everything that a caller of the
// engine does before the lock.
func (i *invoices) prepare(le ports.LegalEntity, n int64, now time.Time) event.Prepared {
	id := i.ids.NewID(now)
	invoice, vendor := id.String(), vendorID(n)
	payload := make([]byte, 0, 1536)
	payload = append(payload, `{"data":`...)
	payload = appendDocument(payload, n)
	payload = fmt.Appendf(payload, `,"invoice_id":%q},"dimensions":{"department":"PROD","cost_center":"CC-5100"},"entity_refs":[{"entity_type":"vendor","entity_id":%q,"role":"subject"},{"entity_type":"invoice","entity_id":%q,"role":"document"}]}`,
		invoice, vendor, invoice)
	e := event.Prepared{
		Skeleton: event.Skeleton{
			Partition: le.Partition, ID: id, Type: invoiceType, SchemaVersion: 1,
			OccurredAt: event.Micros(now), EffectiveDate: event.MustDate("2025-03-15"),
			Scope:     event.Scope{TenantID: le.TenantID, LegalEntity: le.Code},
			ActorType: event.Human, ActorID: "u-ap-clerk-1", ActorName: "ap_clerk",
			CorrelationID: invoice, Stream: event.StreamID{Type: "ap.invoice", ID: invoice},
			Tags: []string{"period:2025-03", "fy:2025"}, Source: event.Source{System: "backbone", Channel: "api"},
			RulesEvaluated: []byte(`[{"rule_id":"ap.submit.findings","rule_name":"Findings that hold a document","result":"condition_false","evaluation_ms":0}]`),
		},
		TypeNumber: i.typeNo, Salt: i.ids.NewSalt(), Payload: payload,
		Keys: []string{event.EntityKey("invoice", invoice), event.EntityKey("vendor", vendor), event.TagKey("fy:2025"), event.TagKey("period:2025-03")},
		BusinessKeys: []event.BusinessKey{{
			EventType: invoiceType, Key: fmt.Sprintf("number\x1f%s\x1fINV-%09d", vendor, n), Document: invoice,
		}},
	}
	e.PayloadHash, e.PayloadHashDone = event.HashPayload(e.Salt, e.Payload), true
	return e
}

// claim is the idempotency key of a request that begins with the event.
func claim(e *event.Prepared, now time.Time) *ports.IdempotencyClaim {
	return &ports.IdempotencyClaim{
		Key: "u-ap-clerk-1|events|" + e.Stream.ID, Fingerprint: e.PayloadHash, ExpiresAt: event.Micros(now.Add(24 * time.Hour)),
	}
}

// request is an append with an idempotency key and the demand that none of the streams
// exists.
func (i *invoices) request(le ports.LegalEntity, events int) ports.AppendRequest {
	now := time.Now()
	r := ports.AppendRequest{
		Partition: le.Partition, Events: make([]event.Prepared, events), Streams: make([]concurrency.StreamExpectation, events),
	}
	for k := range r.Events {
		r.Events[k] = i.prepare(le, i.number.Add(1), now)
		r.Streams[k] = concurrency.StreamExpectation{Stream: r.Events[k].Stream, Expected: concurrency.NoStream()}
	}
	r.Idempotency = claim(&r.Events[0], now)
	return r
}
