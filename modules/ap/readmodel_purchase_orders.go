package ap

import (
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// PurchaseOrders is the projection of purchase orders, and its read model.
const (
	PurchaseOrders          = "ap.purchase-orders"
	PurchaseOrdersVersion   = 1
	ReadModelPurchaseOrders = "purchase-orders"
)

func registerPurchaseOrders(r *module.Registrar) {
	r.Projection(module.Projection{Name: PurchaseOrders, Version: PurchaseOrdersVersion, EventTypes: []string{
		contract.EventOrderRecorded, contract.EventOrderRevised, contract.EventReceiptRecorded, contract.EventOrderBilled,
	}})
	r.ReadModel(module.ReadModel{
		Name: ReadModelPurchaseOrders, Projection: PurchaseOrders, Example: "--vendor V-000001 --status open",
		Description: "Lines of purchase orders with the quantities that were ordered, received and billed. Documents bill from their submission, held or not, until they are rejected or voided; credit memos give back from their approval.",
		Params: []module.Param{
			{Name: "vendor", Type: module.ParamString, Description: "vendor id"},
			{Name: "po_reference", Type: module.ParamString, Description: "one order"},
			{Name: "status", Type: module.ParamString, Description: "open or closed"},
		},
		Columns: []module.Column{
			{Name: "po_reference", Type: "string", Description: "the order"},
			{Name: "po_line_reference", Type: "string", Description: "the line, without the order's reference"},
			{Name: "revision", Type: "integer", Description: "newest revision of the order"},
			{Name: "vendor_id", Type: "string", Description: "vendor"},
			{Name: "item_id", Type: "string", Description: "item", Detail: true},
			{Name: "currency", Type: "string", Description: "currency of the order"},
			{Name: "unit_price", Type: "string", Description: "ordered price, for price_base_quantity units"},
			{Name: "price_base_quantity", Type: "string", Description: "units that unit_price is for", Detail: true},
			{Name: "ordered", Type: "string", Description: "ordered quantity; 0 for a line that a revision removed"},
			{Name: "received", Type: "string", Description: "received quantity, less returns"},
			{Name: "billed", Type: "string", Description: "quantity that documents bill, less what they give back"},
			{Name: "open", Type: "string", Description: "ordered less billed"},
			{Name: "status", Type: "string", Description: "open or closed"},
			{Name: "event_id", Type: "string", Description: "event of the revision"},
		},
	})
}
