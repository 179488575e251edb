package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// PurchaseOrderProjection writes ap.purchase-orders. It is stateless and idempotent.
type PurchaseOrderProjection struct{ queries *apdb.Queries }

var (
	_ ports.ProjectionHandler  = (*PurchaseOrderProjection)(nil)
	_ ports.ProjectionResetter = (*PurchaseOrderProjection)(nil)
	_ ports.ProjectionTables   = (*PurchaseOrderProjection)(nil)
	_ ports.ProjectionTargets  = (*PurchaseOrderProjection)(nil)
)

// NewPurchaseOrderProjection makes the handler of the projection ap.purchase-orders.
func NewPurchaseOrderProjection() *PurchaseOrderProjection {
	return &PurchaseOrderProjection{queries: apdb.New()}
}

// The tables of ap.purchase-orders.
var (
	ordersTable          = ports.ProjectionTable{Schema: "ap", Name: "purchase_orders", Key: []string{"po_reference", "sequence"}}
	orderLinesTable      = ports.ProjectionTable{Schema: "ap", Name: "purchase_order_lines", Key: []string{"po_reference", "sequence", "line"}}
	orderQuantitiesTable = ports.ProjectionTable{Schema: "ap", Name: "purchase_order_quantities", Key: []string{"po_reference", "sequence", "position"}}
)

// Tables implements ports.ProjectionTables.
func (p *PurchaseOrderProjection) Tables() []ports.ProjectionTable {
	return []ports.ProjectionTable{ordersTable, orderLinesTable, orderQuantitiesTable}
}

// Targets implements ports.ProjectionTargets. A target is an order with all its rows, which only
// events of its own stream write.
func (p *PurchaseOrderProjection) Targets() []ports.ProjectionTarget {
	order := ports.ProjectionTarget{Streams: []string{contract.StreamOrder}}
	for _, t := range p.Tables() {
		order.Tables = append(order.Tables, ports.TargetTable{ProjectionTable: t, Entity: "po_reference"})
	}
	return []ports.ProjectionTarget{order}
}

// Reset implements ports.ProjectionResetter.
func (p *PurchaseOrderProjection) Reset(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	return plugin.DeleteRows(ctx, tx, b, p.Tables())
}

// Apply implements ports.ProjectionHandler; tx must be a pgx.Tx.
func (p *PurchaseOrderProjection) Apply(ctx context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	db, err := plugin.Tx(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		if err := p.apply(ctx, db, int32(b.Version), &b.Events[i]); err != nil {
			return fmt.Errorf("event %s: %w", b.Events[i].ID, err)
		}
	}
	return nil
}

func (p *PurchaseOrderProjection) apply(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded) error {
	data, err := e.Data()
	if err != nil {
		return err
	}
	switch e.Type {
	case contract.EventOrderRecorded, contract.EventOrderRevised:
		var o contract.PurchaseOrder
		if err := json.Unmarshal(data, &o); err != nil {
			return err
		}
		return p.addRevision(ctx, db, version, e, &o)
	case contract.EventReceiptRecorded:
		var r contract.GoodsReceipt
		if err := json.Unmarshal(data, &r); err != nil {
			return err
		}
		rows := quantityRows(version, e)
		for _, l := range r.Lines {
			addQuantity(rows, l.POLineReference, l.Quantity, money.Number{})
		}
		return p.queries.PurchaseOrderQuantityInsert(ctx, db, rows)
	case contract.EventOrderBilled:
		var b contract.OrderBilling
		if err := json.Unmarshal(data, &b); err != nil {
			return err
		}
		rows := quantityRows(version, e)
		rows.VendorID, rows.DocumentID = b.VendorID, b.ID()
		for _, l := range b.Lines {
			addQuantity(rows, l.POLineReference, money.Number{}, l.Change)
		}
		return p.queries.PurchaseOrderQuantityInsert(ctx, db, rows)
	default:
		return nil
	}
}

func (p *PurchaseOrderProjection) addRevision(ctx context.Context, db pgx.Tx, version int32, e *event.Recorded, o *contract.PurchaseOrder) error {
	err := p.queries.PurchaseOrderInsert(ctx, db, &apdb.PurchaseOrderInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate), Revision: int32(o.Revision),
		EventID: pgtype.UUID{Bytes: e.ID, Valid: true}, PoReference: e.Stream.ID, VendorID: o.VendorID, Currency: o.Currency, Status: o.Status,
	})
	if err != nil {
		return err
	}
	rows := &apdb.PurchaseOrderLineInsertParams{PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), PoReference: e.Stream.ID}
	for i, l := range o.Lines {
		rows.LineNumbers = append(rows.LineNumbers, int32(i+1))
		rows.Lines = append(rows.Lines, contract.OrderLineKey(e.Stream.ID, l.POLineReference))
		rows.ItemIds = append(rows.ItemIds, l.ItemID)
		rows.Quantities = append(rows.Quantities, l.Quantity.String())
		rows.UnitPrices = append(rows.UnitPrices, l.UnitPrice.String())
		rows.PriceBaseQuantities = append(rows.PriceBaseQuantities, l.BaseQuantity().String())
		rows.Accounts = append(rows.Accounts, l.Account)
	}
	return p.queries.PurchaseOrderLineInsert(ctx, db, rows)
}

func quantityRows(version int32, e *event.Recorded) *apdb.PurchaseOrderQuantityInsertParams {
	return &apdb.PurchaseOrderQuantityInsertParams{
		PartitionID: int32(e.Partition), Version: version, Sequence: int64(e.Sequence), EffectiveDate: date(e.EffectiveDate), PoReference: e.Stream.ID,
	}
}

func addQuantity(rows *apdb.PurchaseOrderQuantityInsertParams, line string, received, billed money.Number) {
	rows.Positions = append(rows.Positions, int32(len(rows.Positions)+1))
	rows.Lines = append(rows.Lines, contract.OrderLineKey(rows.PoReference, line))
	rows.Received = append(rows.Received, received.String())
	rows.Billed = append(rows.Billed, billed.String())
}
