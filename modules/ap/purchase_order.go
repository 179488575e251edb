package ap

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// orderPolicy is the Rego package with the rules of purchase orders.
const orderPolicy = "backbone.rules.ap_purchase_orders"

// orderDeclarations are the event types and intents of purchase orders and goods receipts.
func orderDeclarations() declarations {
	orderRef := eventtype.RequiredRef{EntityType: contract.EntityOrder, Role: contract.RoleOrder, Cardinality: eventtype.One}
	refs := []eventtype.RequiredRef{vendorRefRule(), orderRef}
	var d declarations
	for _, e := range []struct {
		name, schema, description string
		keys                      []eventtype.BusinessKeyRule
		checks                    []module.Check
	}{
		{
			contract.EventOrderRecorded, contract.EventOrderRecorded, "A purchase order was recorded.",
			[]eventtype.BusinessKeyRule{{Name: "revision", Fields: []string{"po_reference", "revision"}, Document: "po_reference"}}, []module.Check{checkOrderData},
		},
		{
			contract.EventOrderRevised, contract.EventOrderRecorded, "A purchase order was revised: it is as given here from now on.",
			[]eventtype.BusinessKeyRule{{Name: "revision", Fields: []string{"po_reference", "revision"}, Document: "po_reference"}}, []module.Check{checkOrderData},
		},
		{
			contract.EventReceiptRecorded, contract.EventReceiptRecorded, "Goods of a purchase order arrived, or went back.",
			[]eventtype.BusinessKeyRule{{Name: "number", Fields: []string{"receipt_number"}, Normalise: eventtype.NormaliseDocumentNumber, Document: "po_reference"}},
			[]module.Check{checkReceiptData},
		},
		{contract.EventOrderBilled, contract.EventOrderBilled, "A document bills other quantities of a purchase order than before.", nil, nil},
	} {
		d.events = append(d.events, declaredEvent{schema: e.schema, EventType: module.EventType{
			Registration: eventtype.Registration{Type: e.name, Description: e.description, RequiredEntityRefs: refs, BusinessKeys: e.keys}, Checks: e.checks,
		}})
	}
	rematched := []string{contract.EventOrderBilled}
	for _, k := range contract.Kinds() {
		rematched = append(rematched, k.Event(contract.Validated), k.Event(contract.Held), k.Event(contract.HoldReleased))
	}
	d.intents = []declaredIntent{
		{schema: "record_purchase_order", IntentType: module.IntentType{
			Type: contract.IntentRecordOrder, Description: "Record a purchase order, or a new revision of it.", Policy: orderPolicy,
			Emits: append([]string{contract.EventOrderRecorded, contract.EventOrderRevised}, rematched...), Plan: module.PlanOf(planRecordOrder),
		}},
		{schema: "record_goods_receipt", IntentType: module.IntentType{
			Type: contract.IntentRecordReceipt, Description: "Record what arrived of a purchase order, or went back.", Policy: orderPolicy,
			Emits: append([]string{contract.EventReceiptRecorded}, rematched...), Plan: module.PlanOf(planRecordReceipt), OnDuplicate: onDuplicateReceipt,
		}},
	}
	return d
}

// checkOrderData checks an order on every path into the log. The currency was checked on the
// day of the intent.
func checkOrderData(data json.RawMessage, _ map[string]string) error {
	var p contract.PurchaseOrder
	if err := module.DecodePayload(data, &p); err != nil {
		return err
	}
	return inData(domain.CheckPurchaseOrder(&p))
}

func checkReceiptData(data json.RawMessage, _ map[string]string) error {
	var r contract.GoodsReceipt
	if err := module.DecodePayload(data, &r); err != nil {
		return err
	}
	return inData(domain.CheckReceiptLines(&r))
}

// inData moves the field of a fault below the event's data.
func inData(err error) error {
	if f, ok := fault.As(err); ok {
		return f.WithField("/data" + f.Field)
	}
	return err
}

func loadOrder(ctx context.Context, s module.State, poReference string) (*domain.PurchaseOrder, error) {
	return module.Load[*domain.PurchaseOrder](ctx, s, contract.OrderStream(poReference))
}

// orderDraft makes an event on the stream of a purchase order.
func orderDraft(eventType, poReference, vendorID string, data any, date event.Date) event.Draft {
	return event.Draft{
		Type: eventType, EffectiveDate: date, Stream: contract.OrderStream(poReference), Data: data,
		Entities: []event.EntityRef{contract.VendorRef(vendorID), contract.OrderRef(poReference)},
	}
}

// planRecordOrder plans the first or a further revision of a purchase order. Documents that bill
// the order are compared with it again.
func planRecordOrder(ctx context.Context, in module.Input, s module.State, p contract.PurchaseOrder) (module.Plan, error) {
	if err := domain.CheckPurchaseOrder(&p); err != nil {
		return module.Plan{}, err
	}
	if err := domain.CheckOrderCurrency(&p, in.Date()); err != nil {
		return module.Plan{}, err
	}
	if _, err := loadVendor(ctx, s, p.VendorID); err != nil {
		return module.Plan{}, err
	}
	order, err := loadOrder(ctx, s, p.POReference)
	if err != nil {
		return module.Plan{}, err
	}
	eventType := contract.EventOrderRecorded
	if order.Recorded {
		if err := order.CheckRevision(&p); err != nil {
			return module.Plan{}, err
		}
		eventType = contract.EventOrderRevised
	}
	after := order.Clone()
	after.Revise(p)
	return planOrderEvent(ctx, in, s, order, after, orderDraft(eventType, p.POReference, p.VendorID, p, in.Date()))
}

// planRecordReceipt plans a goods receipt. Documents that bill the order are compared with it
// again.
func planRecordReceipt(ctx context.Context, in module.Input, s module.State, r contract.GoodsReceipt) (module.Plan, error) {
	order, err := loadOrder(ctx, s, r.POReference)
	if err != nil {
		return module.Plan{}, err
	}
	if !order.Recorded {
		return module.Plan{}, fault.New(fault.NotFound, "ap.purchase_order.not_found",
			"no purchase order is recorded with this reference in this legal entity; record it with ap.record_purchase_order or correct po_reference").WithField("/po_reference")
	}
	if err := order.CheckReceipt(&r); err != nil {
		return module.Plan{}, err
	}
	after := order.Clone()
	after.Receive(r)
	return planOrderEvent(ctx, in, s, order, after, orderDraft(contract.EventReceiptRecorded, r.POReference, order.Order.VendorID, r, in.Date()))
}

// planOrderEvent plans an event of an order, with what it changes for the documents that bill it.
func planOrderEvent(ctx context.Context, in module.Input, s module.State, order, after *domain.PurchaseOrder, e event.Draft) (module.Plan, error) {
	changes, err := rematch(ctx, s, after, in.Date())
	return module.Plan{Events: append([]event.Draft{e}, changes...), Facts: factsOf(in), CorrelationID: order.CorrelationID}, err
}

// onDuplicateReceipt makes the fault for the number of a receipt that another event has.
func onDuplicateReceipt(_ context.Context, _ module.Input, _ module.State, eventType string, h fault.Holder) error {
	if eventType != contract.EventReceiptRecorded {
		return nil
	}
	return fault.New(fault.Conflict, "ap.goods_receipt.duplicate",
		"a goods receipt with this number was recorded before, for the purchase order that the holder names; look at it instead of recording it again").
		WithHolder(h)
}
