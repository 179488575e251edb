package postgres

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// Parameters of ap/purchase-orders.
const (
	paramOrder  = "po_reference"
	paramStatus = "status"
)

// PurchaseOrders answers ap/purchase-orders.
type PurchaseOrders struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*PurchaseOrders)(nil)

// NewPurchaseOrders makes the source. The role of the pool must be able to read the schema ap.
func NewPurchaseOrders(pool *pgxpool.Pool) *PurchaseOrders {
	return &PurchaseOrders{pool: pool, queries: apdb.New()}
}

type orderLineRow struct {
	POReference       string `json:"po_reference"`
	POLineReference   string `json:"po_line_reference"`
	Revision          int32  `json:"revision"`
	VendorID          string `json:"vendor_id"`
	ItemID            string `json:"item_id"`
	Currency          string `json:"currency"`
	UnitPrice         string `json:"unit_price"`
	PriceBaseQuantity string `json:"price_base_quantity"`
	Ordered           string `json:"ordered"`
	Received          string `json:"received"`
	Billed            string `json:"billed"`
	Open              string `json:"open"`
	Status            string `json:"status"`
	EventID           string `json:"event_id"`
}

// orderCursor is the last row of a page.
type orderCursor struct {
	Order string `json:"o"`
	Line  string `json:"l"`
}

// Query implements ports.ReadModelSource. Rows are the lines of the newest revision of each order,
// and lines that a revision removed of which quantities are known. Fault: cursor.invalid.
func (o *PurchaseOrders) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	var after orderCursor
	if q.Cursor != "" {
		if err := readCursor(q.Cursor, &after); err != nil {
			return ports.Report{}, err
		}
	}
	found, err := o.queries.PurchaseOrderLines(ctx, o.pool, &apdb.PurchaseOrderLinesParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), PoReference: q.Params[paramOrder],
		VendorID: q.Params[paramVendor], Status: q.Params[paramStatus], AfterReference: after.Order, AfterLine: after.Line, PageSize: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("purchase orders: %w", err)
	}
	report := ports.Report{Header: ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		{Name: "sequence", Value: fmt.Sprint(uint64(q.Known))},
	}}
	for _, name := range []string{paramOrder, paramVendor, paramStatus} {
		if v := q.Params[name]; v != "" {
			report.Header = append(report.Header, ports.ReportField{Name: name, Value: v})
		}
	}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := &found[q.Limit-1]
		if report.NextCursor, err = cursorText(orderCursor{last.PoReference, last.Line}); err != nil {
			return ports.Report{}, err
		}
	}
	report.Rows = make([]any, len(found))
	for i := range found {
		if report.Rows[i], err = toOrderLineRow(&found[i]); err != nil {
			return ports.Report{}, fmt.Errorf("order %s: %w", found[i].PoReference, err)
		}
	}
	return report, nil
}

func toOrderLineRow(r *apdb.PurchaseOrderLinesRow) (orderLineRow, error) {
	var ordered, billed money.Number
	if err := ordered.Scan(r.Ordered); err != nil {
		return orderLineRow{}, err
	}
	if err := billed.Scan(r.Billed); err != nil {
		return orderLineRow{}, err
	}
	eventID, err := eventIDText(r.EventID)
	return orderLineRow{
		POReference: r.PoReference, POLineReference: r.Line, Revision: r.Revision, VendorID: r.VendorID, ItemID: r.ItemID, Currency: r.Currency,
		UnitPrice: r.UnitPrice, PriceBaseQuantity: r.PriceBaseQuantity, Ordered: r.Ordered, Received: r.Received, Billed: r.Billed,
		Open: ordered.Sub(billed).String(), Status: r.Status, EventID: eventID,
	}, err
}

// matchedLine is a line of a document beside the line of the order that it bills.
type matchedLine struct {
	LineNumber        int    `json:"line_number"`
	POLineReference   string `json:"po_line_reference"`
	Quantity          string `json:"quantity"` // of the document's line; "" if it has none
	Amount            string `json:"amount"`
	Ordered           string `json:"ordered"`
	Received          string `json:"received"`
	Billed            string `json:"billed"`         // by all documents
	BilledHere        string `json:"billed_by_this"` // by all lines of this document
	UnitPrice         string `json:"unit_price"`     // ordered
	PriceBaseQuantity string `json:"price_base_quantity"`
	Currency          string `json:"currency"` // of the order
}

// maxOrderLines is more than an order can have.
const maxOrderLines = 5000

// matchTable compares the lines of a document's body with the order that it names, as known at
// the sequence, whatever their dates. Lines that bill no line of the order are left out.
func matchTable(ctx context.Context, db apdb.DBTX, queries *apdb.Queries, q ports.ReadModelQuery, version int32, documentID string, body []byte) ([]matchedLine, error) {
	table := []matchedLine{}
	var d struct {
		POReference string          `json:"po_reference"`
		VendorID    string          `json:"vendor_id"`
		Lines       []contract.Line `json:"lines"`
	}
	if err := json.Unmarshal(body, &d); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	if d.POReference == "" {
		return table, nil
	}
	found, err := queries.PurchaseOrderLines(ctx, db, &apdb.PurchaseOrderLinesParams{
		PartitionID: int32(q.Partition), Version: version, Known: int64(q.Known), AsOf: pgtype.Date{InfinityModifier: pgtype.Infinity, Valid: true},
		PoReference: d.POReference, VendorID: d.VendorID, DocumentID: documentID, PageSize: maxOrderLines,
	})
	if err != nil {
		return nil, fmt.Errorf("purchase order: %w", err)
	}
	rows := map[string]*apdb.PurchaseOrderLinesRow{}
	var order domain.PurchaseOrder
	order.Order.POReference = d.POReference
	for i := range found {
		rows[found[i].Line] = &found[i]
		order.Order.Lines = append(order.Order.Lines, contract.OrderLine{POLineReference: found[i].Line, ItemID: found[i].ItemID})
	}
	for i := range d.Lines {
		l := &d.Lines[i]
		ordered, ok := order.DocumentLine(l)
		if !ok {
			continue
		}
		r := rows[ordered.POLineReference]
		m := matchedLine{
			LineNumber: l.LineNumber, POLineReference: r.Line, Amount: l.Amount.String(), Ordered: r.Ordered, Received: r.Received, Billed: r.Billed,
			BilledHere: r.BilledHere, UnitPrice: r.UnitPrice, PriceBaseQuantity: r.PriceBaseQuantity, Currency: r.Currency,
		}
		if l.Quantity != nil {
			m.Quantity = l.Quantity.String()
		}
		table = append(table, m)
	}
	return table, nil
}
