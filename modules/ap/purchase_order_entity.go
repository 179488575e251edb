package ap

import (
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// orderEntity is a purchase order with its quantities. Lines are named without the order's
// reference; numbers are decimal strings.
type orderEntity struct {
	POReference string                         `json:"po_reference"`
	Status      string                         `json:"status,omitempty"` // open, closed; "" before the order is recorded
	Revision    int                            `json:"revision"`
	VendorID    string                         `json:"vendor_id,omitempty"`
	Currency    string                         `json:"currency,omitempty"`
	Lines       map[string]orderEntityLine     `json:"lines,omitempty"` // of the newest revision
	Received    map[string]string              `json:"received,omitempty"`
	Billed      map[string]string              `json:"billed,omitempty"`    // by all documents
	Documents   map[string]orderEntityDocument `json:"documents,omitempty"` // that bill the order, by id
}

type orderEntityLine struct {
	ItemID            string            `json:"item_id,omitempty"`
	Quantity          string            `json:"quantity"`
	Unit              string            `json:"unit,omitempty"`
	UnitPrice         string            `json:"unit_price"`
	PriceBaseQuantity string            `json:"price_base_quantity"`
	Account           string            `json:"account,omitempty"`
	Dimensions        map[string]string `json:"dimensions,omitempty"`
}

type orderEntityDocument struct {
	VendorID   string            `json:"vendor_id"`
	Quantities map[string]string `json:"quantities"` // by line; negative: given back
}

func (o *orderEntity) apply(e event.Recorded, data []byte) error {
	if e.Stream != contract.OrderStream(o.POReference) {
		return nil
	}
	switch e.Type {
	case contract.EventOrderRecorded, contract.EventOrderRevised:
		return o.applyRevision(data)
	case contract.EventReceiptRecorded:
		var r contract.GoodsReceipt
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		if o.Received == nil {
			o.Received = map[string]string{}
		}
		for _, l := range r.Lines {
			if err := addQuantity(o.Received, contract.OrderLineKey(o.POReference, l.POLineReference), l.Quantity); err != nil {
				return err
			}
		}
	case contract.EventOrderBilled:
		var b contract.OrderBilling
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		return o.applyBilling(b)
	}
	return nil
}

// applyRevision takes over a revision. The first one drops documents of other vendors.
func (o *orderEntity) applyRevision(data []byte) error {
	var p contract.PurchaseOrder
	if err := json.Unmarshal(data, &p); err != nil {
		return err
	}
	for id, d := range o.Documents {
		if o.Status != "" || d.VendorID == p.VendorID {
			continue
		}
		for line, text := range d.Quantities {
			var quantity money.Number
			if err := quantity.Scan(text); err != nil {
				return err
			}
			if err := addQuantity(o.Billed, line, quantity.Neg()); err != nil {
				return err
			}
		}
		delete(o.Documents, id)
	}
	o.Status, o.Revision, o.VendorID, o.Currency, o.Lines = p.Status, p.Revision, p.VendorID, p.Currency, map[string]orderEntityLine{}
	for _, l := range p.Lines {
		o.Lines[contract.OrderLineKey(p.POReference, l.POLineReference)] = orderEntityLine{
			ItemID: l.ItemID, Quantity: l.Quantity.String(), Unit: l.Unit, UnitPrice: l.UnitPrice.String(), PriceBaseQuantity: l.BaseQuantity().String(),
			Account: l.Account, Dimensions: l.Dimensions,
		}
	}
	return nil
}

func (o *orderEntity) applyBilling(b contract.OrderBilling) error {
	if o.Documents == nil {
		o.Billed, o.Documents = map[string]string{}, map[string]orderEntityDocument{}
	}
	d, known := o.Documents[b.ID()]
	if !known {
		d = orderEntityDocument{VendorID: b.VendorID, Quantities: map[string]string{}}
		o.Documents[b.ID()] = d
	}
	for _, l := range b.Lines {
		key := contract.OrderLineKey(o.POReference, l.POLineReference)
		if err := addQuantity(o.Billed, key, l.Change); err != nil {
			return err
		}
		if d.Quantities[key] = l.Quantity.String(); l.Quantity.IsZero() {
			delete(d.Quantities, key)
		}
	}
	if len(d.Quantities) == 0 {
		delete(o.Documents, b.ID())
	}
	return nil
}

// addQuantity adds to the sum of a line. A sum may be longer than a number in an event.
func addQuantity(sums map[string]string, line string, quantity money.Number) error {
	var sum money.Number
	if text := sums[line]; text != "" {
		if err := sum.Scan(text); err != nil {
			return err
		}
	}
	sums[line] = sum.Add(quantity).String()
	return nil
}
