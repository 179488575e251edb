package domain

import (
	"fmt"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// DuplicateFault makes the fault for a later document with the number of d. It says in which of
// total_amount, currency, invoice_date, payable_amount, type_code and source_document the two
// differ, and the state of d. A rejected or voided document is not refused for good: the paper
// can be booked again on its stream.
func (d *Document) DuplicateFault(later *contract.Document, h fault.Holder) *fault.Error {
	differences := Differences(&d.Data, later)
	detail := "this vendor's %s with this number was submitted before and is %s, with the same figures; look at the holder instead of submitting it again"
	switch {
	case d.State == StateRejected || d.State == StateVoided:
		detail = "this vendor's %s with this number was submitted before and is %s; if it is to be booked after all, reinstate the holder with " + d.Kind.Intent("reinstate")
	case len(differences) > 0:
		detail = "this vendor's %s with this number was submitted before and is %s, with other figures; compare the papers and ask the vendor"
	}
	agree := d.Data.TotalAmount.Equal(later.TotalAmount) && d.Data.Currency == later.Currency
	state := string(d.State)
	if d.State == StateSubmitted {
		state = "not validated yet"
	}
	return fault.New(fault.Conflict, d.Kind.Code("duplicate"), detail, d.Kind.Noun(), state).
		WithHolder(h).With("totals_agree", agree).With("differs", differences).With("holder_state", string(d.State))
}

// Differences names the members in which two documents of one number differ, so that a reader
// knows whether both are the same paper. A member that one of them lacks is not compared.
func Differences(a, b *contract.Document) []string {
	found := []string{}
	note := func(member string, differ bool) {
		if differ {
			found = append(found, member)
		}
	}
	note("total_amount", !a.TotalAmount.Equal(b.TotalAmount))
	note("currency", a.Currency != b.Currency)
	note("invoice_date", a.InvoiceDate != b.InvoiceDate)
	note("payable_amount", a.PayableAmount != nil && b.PayableAmount != nil && !a.PayableAmount.Equal(*b.PayableAmount))
	if s, o := a.SourceDocument, b.SourceDocument; s != nil && o != nil {
		note("type_code", s.TypeCode != "" && o.TypeCode != "" && s.TypeCode != o.TypeCode)
		note("source_document", s.SHA256 != o.SHA256)
	}
	return found
}

// Holder describes the document in the fault for a later one with its number.
func (d *Document) Holder() fault.Holder {
	return fault.Holder{EventID: d.SubmittedID.String(), DocumentID: d.Data.ID(), Sequence: fmt.Sprint(uint64(d.Sequence))}
}
