package ap

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// orderMatch is the comparison of a body with its purchase order.
type orderMatch struct {
	kind      contract.Kind
	body      *contract.Document
	policy    string                 // the value of match in the validated event
	reference string                 // of the order whose quantities the document may bill; "" for none
	order     *domain.PurchaseOrder  // with what the document bills; nil without a reference
	billing   *contract.OrderBilling // what changes in what it bills; nil for nothing
	result    domain.OrderMatch
}

// matchOrder compares a body with its purchase order. The order's stream is read, so of documents
// that race for one remainder the append lets one take it, and the others are planned again.
// Without a policy no order is read.
func matchOrder(ctx context.Context, s module.State, settings domain.MatchSettings, k contract.Kind, d *contract.Document, c money.Currency) (*orderMatch, error) {
	if settings.Policy == contract.MatchOff || !isStandard(d) {
		return &orderMatch{kind: k, body: d, policy: contract.MatchOff}, nil
	}
	var order *domain.PurchaseOrder
	if reference, ok := domain.OrderReference(d); ok {
		var err error
		if order, err = loadOrder(ctx, s, reference); err != nil {
			return nil, err
		}
	}
	return compareWithOrder(order, settings, k, d, c)
}

// compareWithOrder compares a body with the order that it names, nil for none. What the body bills
// may change by a revision too, if its lines are found by their item.
func compareWithOrder(order *domain.PurchaseOrder, settings domain.MatchSettings, k contract.Kind, d *contract.Document, c money.Currency) (*orderMatch, error) {
	m := &orderMatch{kind: k, body: d, policy: contract.MatchNoOrder, order: order}
	if order != nil {
		m.reference = d.POReference
		var want map[string]money.Number
		if !order.Recorded || order.Order.VendorID == d.VendorID {
			want = order.BilledQuantities(k, d, false)
		}
		var err error
		if m.billing, err = order.BillingChange(k, d, m.reference, want); err != nil {
			return nil, err
		}
		if m.billing != nil {
			m.order = order.Clone()
			m.order.Bill(*m.billing)
		}
	}
	if m.result = domain.MatchOrder(k, d, m.order, settings, c); len(m.result.Lines) > 0 {
		m.policy = settings.Policy
	}
	return m, nil
}

// vendorOrder is the order from which lines of the body take accounts and dimensions; nil for
// none.
func (m *orderMatch) vendorOrder(d *contract.Document) *domain.PurchaseOrder {
	if m.order == nil || !m.order.Recorded || m.order.Order.VendorID != d.VendorID {
		return nil
	}
	return m.order
}

// billingDrafts drafts what changes in what the document bills, caused by the first event of the
// plan.
func (m *orderMatch) billingDrafts(date event.Date) []event.Draft {
	return billingDrafts(m.kind, m.body, m.billing, date)
}

func billingDrafts(k contract.Kind, d *contract.Document, b *contract.OrderBilling, date event.Date) []event.Draft {
	if b == nil {
		return nil
	}
	e := orderDraft(contract.EventOrderBilled, b.POReference, d.VendorID, b, date)
	e.Entities = append(e.Entities, k.Ref(d.ID()))
	e.CausedByIndex = 1
	return []event.Draft{e}
}

// takeBackBilling drafts that a document which is rejected, voided or names another order bills
// nothing of its order any more, whatever the policy is by now.
func takeBackBilling(ctx context.Context, s module.State, doc *domain.Document, date event.Date) ([]event.Draft, error) {
	return changeBilling(ctx, s, doc, date, func(*domain.PurchaseOrder) map[string]money.Number { return nil })
}

// giveBackBilling drafts the quantities that an approved document gives back, such as those of a
// credit memo.
func giveBackBilling(ctx context.Context, s module.State, settings domain.MatchSettings, doc *domain.Document, date event.Date) ([]event.Draft, error) {
	if settings.Policy == contract.MatchOff || !domain.GivesBack(doc.Kind, &doc.Data) {
		return nil, nil
	}
	return changeBilling(ctx, s, doc, date, func(order *domain.PurchaseOrder) map[string]money.Number {
		return order.BilledQuantities(doc.Kind, &doc.Data, true)
	})
}

func changeBilling(ctx context.Context, s module.State, doc *domain.Document, date event.Date, want func(*domain.PurchaseOrder) map[string]money.Number) ([]event.Draft, error) {
	reference, ok := domain.OrderReference(&doc.Data)
	if !ok {
		return nil, nil
	}
	order, err := loadOrder(ctx, s, reference)
	if err != nil {
		return nil, err
	}
	if order.Recorded && order.Order.VendorID != doc.Data.VendorID {
		return nil, nil
	}
	billing, err := order.BillingChange(doc.Kind, &doc.Data, reference, want(order))
	return billingDrafts(doc.Kind, &doc.Data, billing, date), err
}

// Bounds of what the arrival of an order or a receipt checks again in its own batch. What is
// beyond stays held until a clerk validates the document.
const (
	maxRematched     = 20 // documents, those that billed the order last
	maxRematchEvents = 60
)

// rematch drafts what an order, as it is after the plan, changes for the documents that bill it and
// are not decided: holds that are gone, new ones, and documents that are valid now. It compares
// with the order only; the other checks run when the document is validated.
func rematch(ctx context.Context, s module.State, order *domain.PurchaseOrder, date event.Date) ([]event.Draft, error) {
	settings, err := loadSettings(ctx, s)
	if err != nil || settings.Match.Policy == contract.MatchOff {
		return nil, err
	}
	var last []contract.DocumentRef
	for _, b := range slices.Backward(order.Billed) {
		if len(last) < maxRematched && !slices.Contains(last, b.Document) {
			last = append(last, b.Document)
		}
	}
	var out []event.Draft
	for _, ref := range slices.Backward(last) { // in the order in which they bill
		doc, err := loadDocument(ctx, s, kindOf(ref), ref.ID())
		if err != nil {
			return nil, err
		}
		if !slices.Contains(domain.UndecidedStates(), doc.State) {
			continue
		}
		currency, err := money.LookupCurrency(doc.Data.Currency, doc.Data.InvoiceDate.Time())
		if err != nil {
			return nil, err
		}
		m, err := compareWithOrder(order, settings.Match, doc.Kind, &doc.Data, currency)
		if err != nil {
			return nil, err
		}
		changes := m.rematched(doc, date)
		if len(out)+len(changes) > maxRematchEvents {
			break
		}
		out, order = append(out, changes...), m.order
	}
	return out, nil
}

// rematched drafts what the comparison changes for a document that is not decided.
func (m *orderMatch) rematched(doc *domain.Document, date event.Date) []event.Draft {
	findings := withoutWaived(m.result.Findings, doc.Holds)
	changes := holdChanges(doc, findings, domain.IsMatchHold, date)
	others := false // open holds of other checks
	for _, h := range doc.OpenHolds(false) {
		others = others || !domain.IsMatchHold(h.Kind) && !contract.PlacedByPerson(h.Kind)
	}
	if len(changes) > 0 && len(findings) == 0 && !others {
		changes = append(changes, validatedDraft(doc, m, nil, date))
	}
	return append(m.billingDrafts(date), changes...)
}
