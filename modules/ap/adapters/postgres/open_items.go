package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/adapters/postgres/internal/apdb"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/ports"
)

// States of an open document.
const (
	statePosted        = "posted"
	statePartiallyPaid = "partially_paid"
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
	EventID        string          `json:"event_id"`
}

// Query implements ports.ReadModelSource. Rows are posted documents with an open amount, by
// vendor, due date and id. A positive amount is owed to the vendor, so the sum of
// open_functional over all rows is the credit balance of the control account at the same
// as_of and known_at. Faults: report.parameter_invalid, cursor.invalid.
func (o *OpenItems) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	book, err := o.functionalCurrency(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	params, err := filters(q)
	if err != nil {
		return ports.Report{}, err
	}
	params.PartitionID, params.Version = int32(q.Partition), int32(q.Version)
	params.Known, params.AsOf = int64(q.Known), date(q.AsOf)
	params.FunctionalCurrency, params.PageSize = book.Code, int32(q.Limit+1)
	found, err := o.queries.OpenItems(ctx, o.pool, params)
	if err != nil {
		return ports.Report{}, fmt.Errorf("open items: %w", err)
	}
	report := ports.Report{Header: header(q, book)}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		if report.NextCursor, err = cursorAfter(found[q.Limit-1]); err != nil {
			return ports.Report{}, err
		}
	}
	report.Rows = make([]any, len(found))
	for i := range found {
		if report.Rows[i], err = toRow(&found[i], q.AsOf, book); err != nil {
			return ports.Report{}, fmt.Errorf("open item %s: %w", found[i].DocumentID, err)
		}
	}
	return report, nil
}

// functionalCurrency returns the functional currency as known at the query's sequence, the
// zero Currency if the ledger was not configured by then.
func (o *OpenItems) functionalCurrency(ctx context.Context, q ports.ReadModelQuery) (money.Currency, error) {
	code, err := o.queries.LedgerCurrency(ctx, o.pool, &apdb.LedgerCurrencyParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if errors.Is(err, pgx.ErrNoRows) {
		return money.Currency{}, nil
	}
	if err != nil {
		return money.Currency{}, fmt.Errorf("functional currency: %w", err)
	}
	return money.LookupCurrency(code, time.Time{})
}

// The parameters of the report.
const (
	paramVendor    = "vendor"
	paramCurrency  = "currency"
	paramDueBefore = "due_before"
	paramHeld      = "held"
	paramKind      = "kind"
)

func header(q ports.ReadModelQuery, book money.Currency) []ports.ReportField {
	fields := []ports.ReportField{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "functional_currency", Value: book.Code},
		{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		{Name: "sequence", Value: fmt.Sprint(uint64(q.Known))},
	}
	for _, name := range []string{paramVendor, paramCurrency, paramDueBefore, paramHeld, paramKind} {
		if v := q.Params[name]; v != "" {
			fields = append(fields, ports.ReportField{Name: name, Value: v})
		}
	}
	return fields
}

func filters(q ports.ReadModelQuery) (*apdb.OpenItemsParams, error) {
	p := &apdb.OpenItemsParams{
		VendorID: q.Params[paramVendor], Currency: q.Params[paramCurrency], DueBefore: q.Params[paramDueBefore],
		Held: q.Params[paramHeld], Kind: q.Params[paramKind],
		AfterDueDate: pgtype.Date{InfinityModifier: pgtype.NegativeInfinity, Valid: true},
	}
	refuse := func(name, want string) (*apdb.OpenItemsParams, error) {
		return nil, fault.New(fault.Invalid, "report.parameter_invalid", "parameter %s is %s; correct it", name, want).WithField(name)
	}
	if _, err := event.ParseDate(p.DueBefore); p.DueBefore != "" && err != nil {
		return refuse(paramDueBefore, "an ISO date such as 2026-03-31")
	}
	if p.Held != "" && p.Held != "true" && p.Held != "false" {
		return refuse(paramHeld, "true or false")
	}
	kinds := []string{string(contract.Invoice), kindPrepayment, kindOpening, string(contract.CreditMemo)}
	if p.Kind != "" && !slices.Contains(kinds, p.Kind) {
		return refuse(paramKind, "one of invoice, prepayment, opening, credit_memo")
	}
	if q.Cursor == "" {
		return p, nil
	}
	after, due, err := readCursor(q.Cursor)
	if err != nil {
		return nil, fault.New(fault.Invalid, "cursor.invalid", "this cursor was not made by this report; ask again without one").WithField("cursor")
	}
	p.AfterVendorID, p.AfterDueDate, p.AfterDocumentID = after[0], date(due), after[2]
	return p, nil
}

// cursorAfter makes the cursor of the page after the row.
func cursorAfter(r apdb.OpenItemsRow) (string, error) {
	b, err := json.Marshal([3]string{r.VendorID, event.DateOf(r.DueDate.Time).String(), r.DocumentID})
	return string(b), err
}

func readCursor(cursor string) (after [3]string, due event.Date, err error) {
	if err = json.Unmarshal([]byte(cursor), &after); err != nil {
		return after, 0, err
	}
	due, err = event.ParseDate(after[1])
	return after, due, err
}

func toRow(r *apdb.OpenItemsRow, asOf event.Date, book money.Currency) (openItemRow, error) {
	currency, err := money.LookupCurrency(r.Currency, time.Time{})
	if err != nil {
		return openItemRow{}, err
	}
	var total, open, functional money.Number
	if err := errors.Join(total.Scan(r.Total), open.Scan(r.Open), functional.Scan(r.OpenFunctional)); err != nil {
		return openItemRow{}, err
	}
	var id pgtype.UUID
	if err := id.Scan(r.EventID); err != nil {
		return openItemRow{}, err
	}
	row := openItemRow{
		VendorID: r.VendorID, DocumentID: r.DocumentID, Number: r.InvoiceNumber, Kind: r.Kind,
		InvoiceDate: event.DateOf(r.InvoiceDate.Time), DueDate: event.DateOf(r.DueDate.Time), Currency: r.Currency,
		Total: formatAmount(total, currency), Applied: formatAmount(total.Sub(open), currency), Open: formatAmount(open, currency),
		OpenFunctional: formatAmount(functional, book), State: statePosted, Holds: json.RawMessage(r.Holds),
		Dimensions: json.RawMessage(r.Dimensions), EventID: event.ID(id.Bytes).String(),
	}
	if !open.Equal(total) {
		row.State = statePartiallyPaid
	}
	if asOf > row.DueDate {
		row.DaysOverdue = int(asOf - row.DueDate)
	}
	return row, nil
}

// formatAmount writes an amount with the currency's decimals. Columns have more; the rest
// are zeros.
func formatAmount(n money.Number, c money.Currency) string {
	if exact, err := n.Rescale(c.MinorUnit); err == nil {
		n = exact
	}
	return n.Fixed(c.MinorUnit)
}
