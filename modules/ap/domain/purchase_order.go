package domain

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// PurchaseOrder is the state of the stream of a purchase order. Readers share it; only Apply, Revise,
// Receive and Bill change it, on a clone.
type PurchaseOrder struct {
	Recorded      bool // false: only documents that name the order are known
	EventID       event.ID
	CorrelationID string
	Order         contract.PurchaseOrder  // newest revision
	Received      map[string]money.Number // by contract.OrderLineKey
	Billed        []Billing               // in the order in which documents take the quantity of a line
}

// Billing is what a document bills of a line. A positive quantity counts from the submission of
// the document, a negative one, which gives quantity back, from its approval.
type Billing struct {
	Document contract.DocumentRef
	VendorID string
	Line     string // contract.OrderLineKey
	Quantity money.Number
}

// NewPurchaseOrder gives the state of a stream without events.
func NewPurchaseOrder() *PurchaseOrder {
	return &PurchaseOrder{Received: map[string]money.Number{}}
}

// Clone copies the state. Revisions are replaced as a whole, so clones share them.
func (o *PurchaseOrder) Clone() *PurchaseOrder {
	c := *o
	c.Received, c.Billed = maps.Clone(o.Received), slices.Clone(o.Billed)
	return &c
}

// Apply folds an event.
func (o *PurchaseOrder) Apply(e event.Recorded, data []byte) error {
	switch e.Type {
	case contract.EventOrderRecorded, contract.EventOrderRevised:
		var p contract.PurchaseOrder
		if err := json.Unmarshal(data, &p); err != nil {
			return fmt.Errorf("purchase order: %w", err)
		}
		if o.EventID = e.ID; !o.Recorded {
			o.CorrelationID = e.CorrelationID
		}
		o.Revise(p)
	case contract.EventReceiptRecorded:
		var r contract.GoodsReceipt
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("goods receipt: %w", err)
		}
		o.Receive(r)
	case contract.EventOrderBilled:
		var b contract.OrderBilling
		if err := json.Unmarshal(data, &b); err != nil {
			return fmt.Errorf("billing: %w", err)
		}
		o.Bill(b)
	}
	return nil
}

// Revise takes over a revision. The first one drops what documents of other vendors bill: they
// named the order before it was known whose it is.
func (o *PurchaseOrder) Revise(p contract.PurchaseOrder) {
	if !o.Recorded {
		o.Billed = slices.DeleteFunc(o.Billed, func(b Billing) bool { return b.VendorID != p.VendorID })
	}
	o.Recorded, o.Order = true, p
}

// Receive adds a goods receipt.
func (o *PurchaseOrder) Receive(r contract.GoodsReceipt) {
	for _, l := range r.Lines {
		key := contract.OrderLineKey(r.POReference, l.POLineReference)
		o.Received[key] = o.Received[key].Add(l.Quantity)
	}
}

// Bill takes over what a document bills. It keeps its place among the documents of a line unless
// it bills more than before: then it is behind all others.
func (o *PurchaseOrder) Bill(b contract.OrderBilling) {
	for _, l := range b.Lines {
		key := contract.OrderLineKey(b.POReference, l.POLineReference)
		i := slices.IndexFunc(o.Billed, func(have Billing) bool { return have.Document == b.DocumentRef && have.Line == key })
		if i >= 0 && !l.Quantity.IsZero() && l.Quantity.Cmp(o.Billed[i].Quantity) <= 0 {
			o.Billed[i].Quantity = l.Quantity
			continue
		}
		if i >= 0 {
			o.Billed = slices.Delete(o.Billed, i, i+1)
		}
		if !l.Quantity.IsZero() {
			o.Billed = append(o.Billed, Billing{Document: b.DocumentRef, VendorID: b.VendorID, Line: key, Quantity: l.Quantity})
		}
	}
}

// Line finds a line of the newest revision. A nil order has none.
func (o *PurchaseOrder) Line(poLineReference string) (contract.OrderLine, bool) {
	if o == nil || poLineReference == "" {
		return contract.OrderLine{}, false
	}
	po := o.Order.POReference
	key := contract.OrderLineKey(po, poLineReference)
	i := slices.IndexFunc(o.Order.Lines, func(l contract.OrderLine) bool { return contract.OrderLineKey(po, l.POLineReference) == key })
	if i < 0 {
		return contract.OrderLine{}, false
	}
	return o.Order.Lines[i], true
}

// DocumentLine finds the line of the newest revision that a line of a document bills: the line that it
// names or, if it names none, the only one with its item. Of several lines with the item none is taken:
// which of them is billed would be a guess.
func (o *PurchaseOrder) DocumentLine(l *contract.Line) (contract.OrderLine, bool) {
	if o == nil || l.POLineReference != "" || l.ItemID == "" {
		return o.Line(l.POLineReference)
	}
	hasItem := func(ordered contract.OrderLine) bool { return ordered.ItemID == l.ItemID }
	i := slices.IndexFunc(o.Order.Lines, hasItem)
	if i < 0 || slices.ContainsFunc(o.Order.Lines[i+1:], hasItem) {
		return contract.OrderLine{}, false
	}
	return o.Order.Lines[i], true
}

// BilledThrough sums what a document and those before it bill of a line, less what all documents
// gave back. ok is false if the document bills nothing of the line.
func (o *PurchaseOrder) BilledThrough(d contract.DocumentRef, line string) (sum money.Number, ok bool) {
	for _, b := range o.Billed {
		if b.Line != line || ok && b.Quantity.Sign() > 0 {
			continue
		}
		sum = sum.Add(b.Quantity)
		ok = ok || b.Document == d && b.Quantity.Sign() > 0
	}
	return sum, ok
}

// BillingChange compares what a document should bill of the order, by line, with what it bills
// now. nil: nothing changes. Fault: money.too_large.
func (o *PurchaseOrder) BillingChange(k contract.Kind, d *contract.Document, reference string, want map[string]money.Number) (*contract.OrderBilling, error) {
	b := &contract.OrderBilling{DocumentRef: contract.RefTo(k, d.ID()), POReference: reference, VendorID: d.VendorID}
	have := map[string]money.Number{}
	for _, known := range o.Billed {
		if known.Document == b.DocumentRef {
			have[known.Line] = known.Quantity
		}
	}
	lines := slices.AppendSeq(slices.Collect(maps.Keys(have)), maps.Keys(want))
	slices.Sort(lines)
	for _, line := range slices.Compact(lines) {
		change := want[line].Sub(have[line])
		if change.IsZero() {
			continue
		}
		for _, n := range []money.Number{want[line], change} {
			if err := money.CheckQuantity(n); err != nil {
				return nil, fault.WithField(err, "/lines")
			}
		}
		b.Lines = append(b.Lines, contract.BilledLine{POLineReference: line, Quantity: want[line], Change: change})
	}
	if len(b.Lines) == 0 {
		return nil, nil
	}
	return b, nil
}

// BilledQuantities is what a document bills of each line of the order; a credit memo, and a line
// with a negative quantity, gives back. What a document gives back counts once it is approved:
// until then it could still be rejected, after another document has taken the quantity. The document
// names the order, which may not be recorded yet: then lines that it names count. A line in another
// unit than the order's line bills nothing, as its quantity cannot be added to those of others.
func (o *PurchaseOrder) BilledQuantities(k contract.Kind, d *contract.Document, approved bool) map[string]money.Number {
	quantities := map[string]money.Number{}
	for i := range d.Lines {
		l := &d.Lines[i]
		reference := l.POLineReference
		ordered, found := o.DocumentLine(l)
		if found {
			reference = ordered.POLineReference
		}
		key := contract.OrderLineKey(d.POReference, reference)
		if !isItem(l) || key == "" || l.Quantity == nil || found && unitsDiffer(l, ordered) {
			continue
		}
		quantity := *l.Quantity
		if k == contract.CreditMemo {
			quantity = quantity.Neg()
		}
		quantities[key] = quantities[key].Add(quantity)
	}
	maps.DeleteFunc(quantities, func(_ string, q money.Number) bool { return q.IsZero() || q.Sign() < 0 && !approved })
	return quantities
}

// unitsDiffer reports whether a line of a document and a line of its order are in two units. A unit
// that one of them does not name is taken to be that of the other.
func unitsDiffer(l *contract.Line, ordered contract.OrderLine) bool {
	return l.Unit != "" && ordered.Unit != "" && l.Unit != ordered.Unit
}

// GivesBack reports whether a document may give back quantities of its order.
func GivesBack(k contract.Kind, d *contract.Document) bool {
	return k == contract.CreditMemo || slices.ContainsFunc(d.Lines, func(l contract.Line) bool { return l.Quantity != nil && l.Quantity.Sign() < 0 })
}

// isItem reports whether a line is no allowance and no charge.
func isItem(l *contract.Line) bool { return l.Kind == "" || l.Kind == "item" }

// orderReference is the form of the references of orders that are recorded.
var orderReference = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,49}$`)

// OrderReference returns the reference of the order that a document bills. ok is false if it names
// none, if no order can be recorded under that text, and for prepayments and opening items,
// which bill nothing that was ordered.
func OrderReference(d *contract.Document) (reference string, ok bool) {
	if d.DocumentType != "" && d.DocumentType != contract.TypeStandard {
		return "", false
	}
	return d.POReference, orderReference.MatchString(d.POReference) && shredding.PersonalPattern(d.POReference) == ""
}

// CheckRevision checks that an order may follow the one that is recorded. Faults:
// ap.purchase_order.duplicate, .revision_outdated, .revision_invalid.
func (o *PurchaseOrder) CheckRevision(p *contract.PurchaseOrder) error {
	switch have := o.Order; {
	case p.Revision == have.Revision:
		return fault.New(fault.Conflict, "ap.purchase_order.duplicate",
			"revision %d of this purchase order was recorded before; send a change as a higher revision", p.Revision).
			WithField("/revision").WithHolder(fault.Holder{EventID: o.EventID.String(), DocumentID: p.POReference})
	case p.Revision < have.Revision:
		return fault.New(fault.FailedPrecondition, "ap.purchase_order.revision_outdated",
			"revision %d of this purchase order is recorded, and revision %d is older; send only what is newer", have.Revision, p.Revision).
			WithField("/revision").With("recorded", have.Revision)
	case p.VendorID != have.VendorID || p.Currency != have.Currency:
		return fault.New(fault.FailedPrecondition, "ap.purchase_order.revision_invalid",
			"the purchase order is of vendor %s in %s, which a revision does not change; record another order", have.VendorID, have.Currency).
			With("vendor_id", have.VendorID).With("currency", have.Currency)
	default:
		return nil
	}
}

// CheckOrderCurrency checks that the currency of an order is in use on a day. Fault:
// money.currency_unsupported.
func CheckOrderCurrency(p *contract.PurchaseOrder, on event.Date) error {
	_, err := money.LookupCurrency(p.Currency, on.Time())
	return at(err, "/currency")
}

// CheckPurchaseOrder checks that the lines of an order are consistent. Faults: money.*,
// ap.purchase_order.line_invalid.
func CheckPurchaseOrder(p *contract.PurchaseOrder) error {
	seen := map[string]bool{}
	for i := range p.Lines {
		l, field := &p.Lines[i], fmt.Sprintf("/lines/%d", i)
		key := contract.OrderLineKey(p.POReference, l.POLineReference)
		base := l.BaseQuantity()
		for _, n := range []numberCheck{
			{field + "/quantity", &l.Quantity, []func(money.Number) error{money.CheckQuantity, money.CheckNonNegative}},
			{field + "/unit_price", &l.UnitPrice, []func(money.Number) error{money.CheckQuantity, money.CheckNonNegative}},
			{field + "/price_base_quantity", &base, []func(money.Number) error{money.CheckQuantity}},
		} {
			for _, check := range n.checks {
				if err := check(*n.value); err != nil {
					return at(err, n.field)
				}
			}
		}
		invalid := func(member, detail string) error {
			return fault.New(fault.Invalid, "ap.purchase_order.line_invalid", "line %q: %s", l.POLineReference, detail).WithField(field + member)
		}
		switch {
		case key == "":
			return invalid("/po_line_reference", "the reference is blank, or it is the order's alone; send one that names the line")
		case seen[key]:
			return invalid("/po_line_reference", "two lines have this reference; send each line once")
		case l.Quantity.IsZero():
			return invalid("/quantity", "nothing is ordered; leave the line out")
		case base.Sign() <= 0:
			return invalid("/price_base_quantity", "a price is for a quantity above 0; correct it")
		}
		seen[key] = true
	}
	return nil
}

// CheckReceipt checks a goods receipt against its order: each line exists, and no more goes back
// than has arrived. Faults: ap.purchase_order.line_not_found, ap.goods_receipt.over_returned,
// those of CheckReceiptLines.
func (o *PurchaseOrder) CheckReceipt(r *contract.GoodsReceipt) error {
	if err := CheckReceiptLines(r); err != nil {
		return err
	}
	after := o.Clone()
	after.Receive(*r)
	for i, l := range r.Lines {
		field := fmt.Sprintf("/lines/%d", i)
		key := contract.OrderLineKey(r.POReference, l.POLineReference)
		before, total := o.Received[key], after.Received[key]
		if _, found := o.Line(l.POLineReference); !found && (before.IsZero() || total.Cmp(before) > 0) { // of a line that a revision removed, goods may go back
			return fault.New(fault.NotFound, "ap.purchase_order.line_not_found",
				"the order has no line %q; look at its lines in ap/purchase-orders", l.POLineReference).WithField(field + "/po_line_reference")
		}
		if total.Sign() < 0 {
			return fault.New(fault.FailedPrecondition, "ap.goods_receipt.over_returned",
				"%s of line %q have arrived, and %s are sent back; correct the quantity", before, l.POLineReference, total.Sub(before).Neg()).
				WithField(field+"/quantity").With("received", before.String()).With("returned", total.Sub(before).Neg().String())
		}
		if err := money.CheckQuantity(total); err != nil {
			return at(err, field+"/quantity")
		}
	}
	return nil
}

// CheckReceiptLines checks that a goods receipt is consistent in itself. Faults: money.*,
// ap.goods_receipt.line_invalid.
func CheckReceiptLines(r *contract.GoodsReceipt) error {
	for i, l := range r.Lines {
		field := fmt.Sprintf("/lines/%d", i)
		if err := money.CheckQuantity(l.Quantity); err != nil {
			return at(err, field+"/quantity")
		}
		if l.Quantity.IsZero() || contract.OrderLineKey(r.POReference, l.POLineReference) == "" {
			return fault.New(fault.Invalid, "ap.goods_receipt.line_invalid",
				"line %q receives nothing, or names no line of the order; leave it out or correct it", l.POLineReference).WithField(field)
		}
	}
	return nil
}
