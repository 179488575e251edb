package contract

import (
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

// Events of purchase orders. All are on the order's stream.
const (
	EventOrderRecorded   = "ap.purchase_order.recorded"
	EventOrderRevised    = "ap.purchase_order.revised"
	EventOrderBilled     = "ap.purchase_order.billed" // what a document bills of the order changed
	EventReceiptRecorded = "ap.goods_receipt.recorded"
)

// Intents of purchase orders.
const (
	IntentRecordOrder   = "ap.record_purchase_order"
	IntentRecordReceipt = "ap.record_goods_receipt"
)

// StreamOrder is the type of the orders' streams; the id is the reference of the order. A
// document that names an order which is not recorded yet begins the stream with what it bills.
const StreamOrder = "ap.purchase_order"

// OrderStream is the stream of a purchase order.
func OrderStream(poReference string) event.StreamID {
	return event.StreamID{Type: StreamOrder, ID: poReference}
}

// The entity type of purchase orders and the role of references to them.
const (
	EntityOrder = "purchase_order"
	RoleOrder   = "order"
)

// OrderRef refers to the purchase order an event is about.
func OrderRef(poReference string) event.EntityRef {
	return event.EntityRef{Type: EntityOrder, ID: poReference, Role: RoleOrder}
}

// States of a purchase order, the values of status.
const (
	OrderOpen   = "open"
	OrderClosed = "closed" // invoices for it are held
)

// How documents are compared with purchase orders, the values of a match policy.
const (
	MatchOff      = "off"
	MatchTwoWay   = "two_way"   // with the order
	MatchThreeWay = "three_way" // with the order and its goods receipts
	// MatchNoOrder is no policy: the document names no order. It is a value of match in
	// ap.invoice.validated.
	MatchNoOrder = "no_order"
)

// Hold kinds of documents that do not fit their purchase order. All block approval.
const (
	HoldPriceVariance = "PRICE_VARIANCE"
	HoldQtyOrdered    = "QTY_ORDERED"
	HoldQtyReceived   = "QTY_RECEIVED"
	HoldPOMissing     = "PO_MISSING"
	HoldUnitDiffers   = "UNIT_DIFFERS"
)

// PurchaseOrder is the payload of ap.record_purchase_order and the data of
// ap.purchase_order.recorded and ap.purchase_order.revised: the order as it is from this revision
// on.
type PurchaseOrder struct {
	POReference string      `json:"po_reference"`
	Revision    int         `json:"revision"`
	VendorID    string      `json:"vendor_id"`
	Currency    string      `json:"currency"`
	Status      string      `json:"status"` // OrderOpen or OrderClosed
	Lines       []OrderLine `json:"lines"`
}

// OrderLine is a line of a purchase order.
type OrderLine struct {
	POLineReference   string            `json:"po_line_reference"`
	ItemID            string            `json:"item_id,omitempty"`
	Quantity          money.Number      `json:"quantity"`
	Unit              string            `json:"unit,omitempty"`                // of quantity, receipts and price: a code of UN/ECE Recommendation 20
	UnitPrice         money.Number      `json:"unit_price"`                    // for PriceBaseQuantity units
	PriceBaseQuantity *money.Number     `json:"price_base_quantity,omitempty"` // default 1
	Account           string            `json:"account,omitempty"`
	Dimensions        map[string]string `json:"dimensions,omitempty"`
}

// BaseQuantity is the number of units that UnitPrice is for.
func (l OrderLine) BaseQuantity() money.Number {
	if l.PriceBaseQuantity == nil {
		return money.FromInt(1)
	}
	return *l.PriceBaseQuantity
}

// OrderLineKey names a line within its order. Papers name it alone, as "1", or after the order,
// as "PO-7-1"; both are the same line.
func OrderLineKey(poReference, poLineReference string) string {
	return strings.TrimPrefix(strings.TrimSpace(poLineReference), poReference+"-")
}

// GoodsReceipt is the payload of ap.record_goods_receipt and the data of
// ap.goods_receipt.recorded.
type GoodsReceipt struct {
	ReceiptNumber string        `json:"receipt_number"`
	POReference   string        `json:"po_reference"`
	Lines         []ReceiptLine `json:"lines"`
}

// ReceiptLine is what arrived of a line of an order. A negative quantity went back.
type ReceiptLine struct {
	POLineReference string       `json:"po_line_reference"`
	Quantity        money.Number `json:"quantity"`
}

// OrderBilling is the data of ap.purchase_order.billed: the lines of the order of which the
// document bills another quantity from now on.
type OrderBilling struct {
	DocumentRef
	POReference string       `json:"po_reference"`
	VendorID    string       `json:"vendor_id"` // of the document
	Lines       []BilledLine `json:"lines"`
}

// BilledLine is what a document bills of a line of an order. Quantities that it gives back are
// negative.
type BilledLine struct {
	POLineReference string       `json:"po_line_reference"` // see OrderLineKey
	Quantity        money.Number `json:"quantity"`          // from now on, by the document alone
	Change          money.Number `json:"change"`
}

// MatchSettings say how documents are compared with purchase orders. Members that are left out
// of a change stay.
type MatchSettings struct {
	Policy              string        `json:"policy,omitempty"`
	UnitPricePercent    *money.Number `json:"unit_price_percent,omitempty"` // largest difference of a unit price, of the ordered one
	UnitPriceAmount     *money.Number `json:"unit_price_amount,omitempty"`  // largest difference of a unit price, in document currency
	OverOrderedPercent  *money.Number `json:"over_ordered_percent,omitempty"`
	OverReceivedPercent *money.Number `json:"over_received_percent,omitempty"`
	OrderRequired       *bool         `json:"order_required,omitempty"`       // invoices without an order are held
	OrderRequiredAbove  *money.Number `json:"order_required_above,omitempty"` // only those of a larger total, in functional currency
}

// MatchedLine is a line of a document beside the line of the order that it bills. Quantities are
// decimal strings, since sums may be longer than a number in an event.
type MatchedLine struct {
	LineNumber      int    `json:"line_number"`
	POLineReference string `json:"po_line_reference"`
	Quantity        string `json:"quantity,omitempty"` // of the document's line
	Ordered         string `json:"ordered"`
	Received        string `json:"received"`
	Billed          string `json:"billed"` // by this document and those before it
}
