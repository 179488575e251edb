package domain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// MatchSettings say how documents of a legal entity are compared with purchase orders.
type MatchSettings struct {
	Policy              string // contract.MatchOff, ...
	UnitPricePercent    money.Number
	UnitPriceAmount     money.Number // in document currency
	OverOrderedPercent  money.Number
	OverReceivedPercent money.Number
	OrderRequired       bool         // invoices without an order are held
	OrderRequiredAbove  money.Number // only those of a larger total, in functional currency
}

// defaultMatch are the settings of a legal entity that has set none.
func defaultMatch() MatchSettings {
	return MatchSettings{Policy: contract.MatchOff, UnitPricePercent: money.FromInt(1), UnitPriceAmount: money.FromInt(10)}
}

// change replaces the members that c has.
func (m *MatchSettings) change(c contract.MatchSettings) {
	if c.Policy != "" {
		m.Policy = c.Policy
	}
	if c.OrderRequired != nil {
		m.OrderRequired = *c.OrderRequired
	}
	for _, member := range []struct {
		to   *money.Number
		from *money.Number
	}{
		{&m.UnitPricePercent, c.UnitPricePercent}, {&m.UnitPriceAmount, c.UnitPriceAmount},
		{&m.OverOrderedPercent, c.OverOrderedPercent}, {&m.OverReceivedPercent, c.OverReceivedPercent},
		{&m.OrderRequiredAbove, c.OrderRequiredAbove},
	} {
		if member.from != nil {
			*member.to = *member.from
		}
	}
}

// MatchFinding says what of a document differs from its purchase order. Expected and Got are
// texts, since sums of quantities may be longer than a number in an event; a price that is not
// for one unit is written with the quantity that it is for, as "25.00 / 12".
type MatchFinding struct {
	POReference     string `json:"po_reference"`
	LineNumber      int    `json:"line_number,omitempty"` // 0: the document as a whole
	POLineReference string `json:"po_line_reference,omitempty"`
	Differs         string `json:"differs"` // what differs: DiffersOrder, ...
	Expected        string `json:"expected"`
	Got             string `json:"got"`
}

// What a document can differ in from its order, the values of differs.
const (
	DiffersOrder    = "order"    // it names none, or one that is not recorded
	DiffersVendor   = "vendor"   // the order is another vendor's
	DiffersStatus   = "status"   // the order is closed
	DiffersLine     = "line"     // a line names none of the order's lines, and its item does not say which
	DiffersCurrency = "currency" // the order is in another one
	DiffersUnit     = "unit"     // quantities of a line and of the order are in different ones
	DiffersPrice    = "unit_price"
	DiffersQuantity = "quantity"
)

// maxMatchFindings bounds the holds for differences from the order. Those after it are found when
// the document is checked again.
const maxMatchFindings = 20

// IsMatchHold reports whether holds of a kind come from the comparison with a purchase order.
func IsMatchHold(kind string) bool {
	return slices.Contains([]string{contract.HoldPriceVariance, contract.HoldQtyOrdered, contract.HoldQtyReceived, contract.HoldPOMissing, contract.HoldUnitDiffers}, kind)
}

// OrderMatch is the comparison of a document with its purchase order.
type OrderMatch struct {
	Findings []Finding
	Lines    []contract.MatchedLine
}

// matcher compares a document with its order.
type matcher struct {
	kind     contract.Kind
	d        *contract.Document
	order    *PurchaseOrder
	settings MatchSettings
	currency money.Currency
	out      OrderMatch
	checked  map[string]bool // lines of the order whose quantity was compared
}

// MatchOrder compares a document with its purchase order, which must include what the document
// bills. order is nil for a document that names no order which could be recorded; whether it
// must name one is settings.OrderRequired. A credit memo is not compared by price and quantity: what
// it gives back need not be a price of the order.
func MatchOrder(k contract.Kind, d *contract.Document, order *PurchaseOrder, settings MatchSettings, c money.Currency) OrderMatch {
	m := &matcher{kind: k, d: d, order: order, settings: settings, currency: c, checked: map[string]bool{}}
	if !m.isOrderUsable() {
		return m.out
	}
	for i := range d.Lines {
		if l := &d.Lines[i]; isItem(l) {
			m.matchLine(l)
		}
	}
	return m.out
}

// hold adds a finding.
func (m *matcher) hold(kind, reason string, f MatchFinding) {
	if len(m.out.Findings) == maxMatchFindings {
		return
	}
	f.POReference = m.d.POReference
	m.out.Findings = append(m.out.Findings, Finding{Kind: kind, Blocks: contract.BlocksApproval, Reason: reason, Detail: f})
}

// isOrderUsable finds what is wrong with the order as a whole. Lines are compared only if it
// is the vendor's order and open.
func (m *matcher) isOrderUsable() bool {
	switch {
	case !NamesOrder(m.d):
		if m.settings.OrderRequired {
			m.hold(contract.HoldPOMissing, "an invoice has to name a purchase order, and this one names none", MatchFinding{Differs: DiffersOrder, Expected: "a recorded order"})
		}
		return false
	case m.order == nil || !m.order.Recorded:
		m.hold(contract.HoldPOMissing, "no purchase order is recorded with the reference of the document", MatchFinding{Differs: DiffersOrder, Expected: "a recorded order", Got: m.d.POReference})
		return false
	case m.order.Order.VendorID != m.d.VendorID:
		m.hold(contract.HoldPOMissing, "the purchase order is another vendor's", MatchFinding{Differs: DiffersVendor, Expected: m.order.Order.VendorID, Got: m.d.VendorID})
		return false
	case m.order.Order.Status == contract.OrderClosed && m.kind == contract.Invoice:
		m.hold(contract.HoldPOMissing, "the purchase order is closed", MatchFinding{Differs: DiffersStatus, Expected: contract.OrderOpen, Got: contract.OrderClosed})
	}
	if m.order.Order.Currency != m.d.Currency {
		m.hold(contract.HoldPriceVariance, "the purchase order is in another currency", MatchFinding{Differs: DiffersCurrency, Expected: m.order.Order.Currency, Got: m.d.Currency})
	}
	return true
}

// NamesOrder reports whether a document, or one of its lines, names a purchase order.
func NamesOrder(d *contract.Document) bool {
	return d.POReference != "" || slices.ContainsFunc(d.Lines, func(l contract.Line) bool { return l.POLineReference != "" })
}

func (m *matcher) matchLine(l *contract.Line) {
	ordered, found := m.order.DocumentLine(l)
	if !found {
		m.hold(contract.HoldPOMissing, fmt.Sprintf("line %d names no line of the purchase order, and no single one has its item", l.LineNumber),
			MatchFinding{LineNumber: l.LineNumber, Differs: DiffersLine, Expected: "a line of the order", Got: cmp.Or(l.POLineReference, l.ItemID)})
		return
	}
	key := contract.OrderLineKey(m.order.Order.POReference, ordered.POLineReference)
	ref := contract.RefTo(m.kind, m.d.ID())
	billed, bills := m.order.BilledThrough(ref, key)
	received := m.order.Received[key]
	matched := contract.MatchedLine{
		LineNumber: l.LineNumber, POLineReference: key, Ordered: ordered.Quantity.String(), Received: received.String(), Billed: billed.String(),
	}
	if l.Quantity != nil {
		matched.Quantity = l.Quantity.String()
	}
	m.out.Lines = append(m.out.Lines, matched)
	finding := MatchFinding{LineNumber: l.LineNumber, POLineReference: key}
	if l.Quantity != nil && unitsDiffer(l, ordered) {
		finding.Differs, finding.Expected, finding.Got = DiffersUnit, ordered.Unit, l.Unit
		m.hold(contract.HoldUnitDiffers, fmt.Sprintf("line %d is in another unit than the purchase order, so neither price nor quantity is compared", l.LineNumber), finding)
		return
	}
	if m.kind == contract.Invoice {
		m.matchPrice(l, ordered, finding)
	}
	if !bills || m.checked[key] { // several lines that bill one line of the order are one finding
		return
	}
	m.checked[key] = true
	finding.Differs, finding.Got = DiffersQuantity, billed.String()
	for _, limit := range []struct {
		applies           bool
		kind, what        string
		quantity, percent money.Number
	}{
		{true, contract.HoldQtyOrdered, "ordered", ordered.Quantity, m.settings.OverOrderedPercent},
		{m.settings.Policy == contract.MatchThreeWay, contract.HoldQtyReceived, "received", received, m.settings.OverReceivedPercent},
	} {
		if !limit.applies || !isOver(billed, limit.quantity, limit.percent) {
			continue
		}
		finding.Expected = limit.quantity.String()
		m.hold(limit.kind, fmt.Sprintf("of order line %s %s are billed in all, and %s are %s", key, billed, limit.quantity, limit.what), finding)
	}
}

// matchPrice compares what a line pays for a unit, its amount for its quantity, with the price of
// the order. Without a quantity there is nothing to compare, and nothing is counted as billed.
func (m *matcher) matchPrice(l *contract.Line, ordered contract.OrderLine, f MatchFinding) {
	if l.Quantity == nil || l.Quantity.IsZero() {
		f.Differs, f.Expected, f.Got = DiffersQuantity, "a quantity", "none"
		m.hold(contract.HoldQtyOrdered, fmt.Sprintf("line %d has no quantity to compare with the purchase order", l.LineNumber), f)
		return
	}
	if m.order.Order.Currency != m.d.Currency || m.isPriceWithin(l.Amount, *l.Quantity, ordered) {
		return
	}
	f.Differs, f.Got, f.Expected = DiffersPrice, l.Amount.String()+" / "+l.Quantity.String(), ordered.UnitPrice.String()
	if base := ordered.BaseQuantity(); !base.Equal(money.FromInt(1)) {
		f.Expected += " / " + base.String()
	}
	m.hold(contract.HoldPriceVariance, fmt.Sprintf("line %d pays another price than the purchase order by more than the tolerances", l.LineNumber), f)
}

// isPriceWithin reports whether amount / quantity differs from the ordered price / base by at most
// the tolerances: both, the percent of the ordered price and the amount for one unit. It divides
// nothing: both sides are multiplied by quantity and base. An amount that is the exact one rounded
// to the currency is no difference.
func (m *matcher) isPriceWithin(amount, quantity money.Number, ordered contract.OrderLine) bool {
	base := ordered.BaseQuantity()
	exact := quantity.Mul(ordered.UnitPrice) // × base
	difference := amount.Mul(base).Sub(exact).Abs()
	units := money.FromInt(2)
	for range m.currency.MinorUnit {
		units = units.Mul(money.FromInt(10))
	}
	if difference.Mul(units).Cmp(base) <= 0 { // at most half a minor unit
		return true
	}
	return difference.Mul(money.FromInt(100)).Cmp(m.settings.UnitPricePercent.Mul(exact.Abs())) <= 0 &&
		difference.Cmp(m.settings.UnitPriceAmount.Mul(quantity.Abs()).Mul(base)) <= 0
}

// isOver reports whether billed is more than the limit with its percent.
func isOver(billed, limit, percent money.Number) bool {
	hundred := money.FromInt(100)
	return billed.Mul(hundred).Cmp(limit.Mul(hundred.Add(percent))) > 0
}

// coveredExcess reports whether a hold for a billed quantity covers a finding about the same line:
// as much or more was billed over the limit when it was placed. A person who released it knew
// of that much.
func coveredExcess(f Finding, h Hold) bool {
	now, ok := f.Detail.(MatchFinding)
	var then MatchFinding
	if !ok || json.Unmarshal(h.Finding, &then) != nil || now.Differs != DiffersQuantity {
		return false
	}
	if now.POReference != then.POReference || now.POLineReference != then.POLineReference || now.LineNumber != then.LineNumber {
		return false
	}
	excess := func(f MatchFinding) (money.Number, bool) {
		var expected, got money.Number
		if expected.Scan(f.Expected) != nil || got.Scan(f.Got) != nil {
			return money.Number{}, false
		}
		return got.Sub(expected), true
	}
	a, okNow := excess(now)
	b, okThen := excess(then)
	return okNow && okThen && a.Cmp(b) <= 0
}
