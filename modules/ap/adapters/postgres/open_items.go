package postgres

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/ports"
)

// OpenItems answers ap/open-items.
type OpenItems struct {
	pool    *pgxpool.Pool
	queries *apdb.Queries
}

var _ ports.ReadModelSource = (*OpenItems)(nil)

// NewOpenItems makes the source. The role of the pool must be able to read the schema ap.
func NewOpenItems(pool *pgxpool.Pool) *OpenItems {
	return &OpenItems{pool: pool, queries: apdb.New()}
}

type openItemRow struct {
	VendorID       string          `json:"vendor_id"`
	DocumentID     string          `json:"document_id"`
	Number         string          `json:"number"`
	Kind           string          `json:"kind"`
	InvoiceDate    event.Date      `json:"invoice_date"`
	DueDate        event.Date      `json:"due_date"`
	Currency       string          `json:"currency"`
	Total          string          `json:"total"`
	Applied        string          `json:"applied"`
	Open           string          `json:"open"`
	OpenFunctional string          `json:"open_functional"`
	State          string          `json:"state"`
	Holds          json.RawMessage `json:"holds"`
	DaysOverdue    int             `json:"days_overdue"`
	Dimensions     json.RawMessage `json:"dimensions"`
	Discount       json.RawMessage `json:"discount"`
	EventID        string          `json:"event_id"`
}

// Query implements ports.ReadModelSource. Rows are posted documents with an open amount, by
// vendor, due date and id. A positive amount is owed to the vendor, so the sum of
// open_functional over all rows is the credit balance of the control account at the same
// as_of and known_at. Faults: report.parameter_invalid, cursor.invalid.
func (o *OpenItems) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	book, err := functionalCurrency(ctx, o.pool, o.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	params, err := openItemsFilters(q)
	if err != nil {
		return ports.Report{}, err
	}
	params.PartitionID, params.Version = int32(q.Partition), int32(q.Version)
	params.Known, params.AsOf = int64(q.Known), date(q.AsOf)
	params.FunctionalCurrency, params.PageSize = book.Code, int32(q.Limit+1)
	found, err := o.page(ctx, params)
	if err != nil {
		return ports.Report{}, fmt.Errorf("open items: %w", err)
	}
	report := ports.Report{Header: header(q, book, paramVendor, paramCurrency, paramDueBefore, paramHeld, paramKind)}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := &found[q.Limit-1]
		if report.NextCursor, err = cursorText(openItemCursor{last.VendorID, event.DateOf(last.DueDate.Time), last.DocumentID, last.BodySequence}); err != nil {
			return ports.Report{}, err
		}
	}
	report.Rows = make([]any, len(found))
	for i := range found {
		if report.Rows[i], err = toOpenItem(&found[i], q.AsOf, book); err != nil {
			return ports.Report{}, fmt.Errorf("open item %s: %w", found[i].DocumentID, err)
		}
	}
	return report, nil
}

// page reads a page. Until a version of this release is built, readers see rows of the release
// before.
func (o *OpenItems) page(ctx context.Context, params *apdb.OpenItemsParams) ([]apdb.OpenItemsRow, error) {
	earlier, err := o.queries.HasEarlierRows(ctx, o.pool, &apdb.HasEarlierRowsParams{PartitionID: params.PartitionID, Version: params.Version})
	if err != nil || !earlier {
		if err == nil {
			return o.queries.OpenItems(ctx, o.pool, params)
		}
		return nil, err
	}
	same := apdb.OpenItemsEarlierParams(*params)
	found, err := o.queries.OpenItemsEarlier(ctx, o.pool, &same)
	rows := make([]apdb.OpenItemsRow, len(found))
	for i := range found {
		rows[i] = apdb.OpenItemsRow(found[i])
	}
	return rows, err
}

func openItemsFilters(q ports.ReadModelQuery) (*apdb.OpenItemsParams, error) {
	p := &apdb.OpenItemsParams{
		LastVendorID: lastVendor, Currency: q.Params[paramCurrency], DueBefore: q.Params[paramDueBefore],
		Held: q.Params[paramHeld], Kind: q.Params[paramKind],
		AfterDueDate: pgtype.Date{InfinityModifier: pgtype.NegativeInfinity, Valid: true},
	}
	if id := q.Params[paramVendor]; id != "" {
		p.FirstVendorID, p.LastVendorID = id, id
		p.AfterVendorID = id // with the first due date: all items of the vendor are after it
	}
	refuse := func(name, want string) (*apdb.OpenItemsParams, error) { return nil, parameterFault(name, want) }
	if _, err := event.ParseDate(p.DueBefore); p.DueBefore != "" && err != nil {
		return refuse(paramDueBefore, "an ISO date such as 2026-03-31")
	}
	if p.Held != "" && p.Held != "true" && p.Held != "false" {
		return refuse(paramHeld, "true or false")
	}
	if p.Kind != "" && !slices.Contains(documentKinds, p.Kind) {
		return refuse(paramKind, kindsText)
	}
	if q.Cursor == "" {
		return p, nil
	}
	var after openItemCursor
	if err := readCursor(q.Cursor, &after); err != nil {
		return nil, err
	}
	p.AfterVendorID, p.AfterDueDate, p.AfterDocumentID, p.AfterBodySequence = after.VendorID, date(after.DueDate), after.DocumentID, after.BodySequence
	return p, nil
}

// lastVendor is after all vendor ids.
const lastVendor = "\U0010FFFF"

// openItemCursor is the last row of a page.
type openItemCursor struct {
	VendorID     string     `json:"v"`
	DueDate      event.Date `json:"d"`
	DocumentID   string     `json:"i"`
	BodySequence int64      `json:"s"`
}

func toOpenItem(r *apdb.OpenItemsRow, asOf event.Date, book money.Currency) (openItemRow, error) {
	currency, err := money.LookupCurrency(r.Currency, time.Time{})
	if err != nil {
		return openItemRow{}, err
	}
	var total, open, functional money.Number
	if err := errors.Join(total.Scan(r.Total), open.Scan(r.Open), functional.Scan(r.OpenFunctional)); err != nil {
		return openItemRow{}, err
	}
	eventID, err := eventIDText(r.EventID)
	if err != nil {
		return openItemRow{}, err
	}
	row := openItemRow{
		VendorID: r.VendorID, DocumentID: r.DocumentID, Number: r.InvoiceNumber, Kind: r.Kind,
		InvoiceDate: event.DateOf(r.InvoiceDate.Time), DueDate: event.DateOf(r.DueDate.Time), Currency: r.Currency,
		Total: formatAmount(total, currency), Applied: formatAmount(total.Sub(open), currency), Open: formatAmount(open, currency),
		OpenFunctional: formatAmount(functional, book), State: string(domain.StatePosted), Holds: json.RawMessage(r.Holds),
		Dimensions: json.RawMessage(r.Dimensions), Discount: json.RawMessage(cmp.Or(r.Discount, "null")), EventID: eventID,
	}
	if !open.Equal(total) {
		row.State = string(domain.StatePartiallyPaid)
	}
	if asOf > row.DueDate {
		row.DaysOverdue = int(asOf - row.DueDate)
	}
	return row, nil
}
