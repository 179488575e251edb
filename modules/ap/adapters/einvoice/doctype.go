package einvoice

import (
	"strings"

	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// booking is how a document is booked.
type booking struct {
	kind         contract.Kind
	documentType string // contract.TypeStandard or contract.TypePrepayment
	corrects     bool   // it replaces an earlier document, which is booked already
}

// bookings are the bookings by type code (BT-3, UNTDID 1001) in either root of UBL. A code
// that is not here is refused: it is none of the standard's, or it is no demand for payment.
// So a code of one root is refused in the other, and a credit note (381, 81) in an Invoice
// never becomes a debt.
var bookings = map[string]map[string]booking{
	"Invoice": bookingsOf(
		bookedTypes{booking{contract.Invoice, contract.TypeStandard, false},
			"71 80 82 84 102 218 219 295 326 331 380 382 383 385 387 388 389 390 393 394 395 501 527 553 575 623 633 780 817 870 875 876 877"},
		bookedTypes{booking{contract.Invoice, contract.TypePrepayment, false}, "386 500"},
		bookedTypes{booking{contract.Invoice, contract.TypeStandard, true}, "384 471 472 473"},
	),
	"CreditNote": bookingsOf(
		bookedTypes{booking{contract.CreditMemo, contract.TypeStandard, false}, "81 83 261 262 296 308 381 396 420 458 502 503 532"},
	),
}

// bookedTypes are type codes, separated by blanks, with the same booking.
type bookedTypes struct {
	booking
	codes string
}

func bookingsOf(types ...bookedTypes) map[string]booking {
	out := map[string]booking{}
	for _, t := range types {
		for code := range strings.FieldsSeq(t.codes) {
			out[code] = t.booking
		}
	}
	return out
}

// book decides the booking of a document by its root and its type code. The rule BR-04
// reports an absent code.
func (c *checker) book(root *Element) booking {
	e := root.Find(typeCodeTag(root))
	b, known := bookings[root.Name][e.Value()]
	if known {
		if b.corrects {
			c.add(e, CodeCorrectsAnother, "BT-3", "This document replaces an earlier one. Reject or void the earlier one, so that the debt is not booked twice.").Severity = SeverityWarning
		}
		return b
	}
	if e.Value() != "" {
		c.add(e, CodeTypeUnsupported, "BT-3", "Documents of this type are not booked: the code belongs to the other root, is none of the standard, or is no demand for payment.")
	}
	if root.Name == "CreditNote" {
		return booking{kind: contract.CreditMemo, documentType: contract.TypeStandard}
	}
	return booking{kind: contract.Invoice, documentType: contract.TypeStandard}
}
