package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// AccountLedger answers gl/accounts/{account}/ledger.
type AccountLedger struct {
	pool    *pgxpool.Pool
	queries *gldb.Queries
}

var _ ports.ReadModelSource = (*AccountLedger)(nil)

// NewAccountLedger makes the source. The role of the pool must be able to read the schema
// gl.
func NewAccountLedger(pool *pgxpool.Pool) *AccountLedger {
	return &AccountLedger{pool: pool, queries: gldb.New()}
}

type accountLedgerRow struct {
	EffectiveDate    event.Date      `json:"effective_date"`
	RecordedAt       string          `json:"recorded_at"`
	Sequence         string          `json:"sequence"`
	EventID          string          `json:"event_id"`
	JournalID        string          `json:"journal_id"`
	JournalNumber    string          `json:"journal_number"`
	LineNumber       int32           `json:"line_number"`
	Type             string          `json:"type"`
	Description      string          `json:"description"`
	Side             string          `json:"side"`
	Amount           string          `json:"amount"`
	Currency         string          `json:"currency"`
	FunctionalAmount string          `json:"functional_amount"`
	Rate             string          `json:"rate,omitempty"`
	RateDate         *event.Date     `json:"rate_date,omitempty"`
	Dimensions       json.RawMessage `json:"dimensions"`
	RunningBalance   string          `json:"running_balance"`
	SourceModule     string          `json:"source_module,omitempty"`
	SourceEventID    string          `json:"source_event_id,omitempty"`
	ReversedBy       string          `json:"reversed_by,omitempty"`
}

// lineCursor is the position of a line in the account's order. A page begins after it.
type lineCursor struct {
	date     event.Date
	sequence int64
	line     int32
}

// beforeFirstLine is the cursor of the first page.
var beforeFirstLine = lineCursor{date: firstDay}

func (p lineCursor) String() string {
	return fmt.Sprintf("%d:%d:%d", int32(p.date), p.sequence, p.line)
}

// parseCursor reads a cursor that String wrote. Fault: cursor.malformed.
func parseCursor(s string) (lineCursor, error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return lineCursor{}, malformed()
	}
	day, err1 := strconv.ParseInt(parts[0], 10, 32)
	sequence, err2 := strconv.ParseInt(parts[1], 10, 64)
	line, err3 := strconv.ParseInt(parts[2], 10, 32)
	if errors.Join(err1, err2, err3) != nil {
		return lineCursor{}, malformed()
	}
	return lineCursor{date: event.Date(day), sequence: sequence, line: int32(line)}, nil
}

func malformed() error {
	return fault.New(fault.Invalid, "cursor.malformed", "this is not a cursor; use next_cursor of the page before, unchanged").WithField("cursor")
}

// Query implements ports.ReadModelSource. The running balance begins at opening_balance,
// the balance before the page. Faults: gl.account.not_found, cursor.malformed.
func (a *AccountLedger) Query(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	after, err := startCursor(q)
	if err != nil {
		return ports.Report{}, err
	}
	var report ports.Report
	// One snapshot for the opening balance and the lines.
	err = pgx.BeginTxFunc(ctx, a.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		report, err = a.page(ctx, tx, q, after)
		return err
	})
	return report, err
}

// startCursor returns the position before the page.
func startCursor(q ports.ReadModelQuery) (lineCursor, error) {
	if q.Cursor != "" {
		return parseCursor(q.Cursor)
	}
	d, err := fromDate(q)
	if d == firstDay {
		return beforeFirstLine, err
	}
	return lineCursor{date: d - 1, sequence: math.MaxInt64, line: math.MaxInt32}, err
}

func (a *AccountLedger) page(ctx context.Context, tx pgx.Tx, q ports.ReadModelQuery, after lineCursor) (ports.Report, error) {
	account, documentCurrency := q.Params["account"], q.Params["currency"]
	functional, err := functionalCurrency(ctx, tx, a.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	balanceCurrency := functional
	if documentCurrency != "" {
		if balanceCurrency, err = currencyParam(q); err != nil {
			return ports.Report{}, err
		}
	}
	filter, err := dimensionsParam(q)
	if err != nil {
		return ports.Report{}, err
	}
	name, err := a.queries.AccountName(ctx, tx, &gldb.AccountNameParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Code: account, Known: int64(q.Known)})
	undefined := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !undefined {
		return ports.Report{}, fmt.Errorf("account name: %w", err)
	}
	opening, err := a.balance(ctx, tx, q, after, functional.Code, filter)
	if err != nil {
		return ports.Report{}, err
	}
	found, err := a.queries.AccountLinePage(ctx, tx, &gldb.AccountLinePageParams{
		Known: int64(q.Known), PartitionID: int32(q.Partition), Version: int32(q.Version), Account: account,
		AfterDate: date(after.date), AfterSequence: after.sequence, AfterLine: after.line, AsOf: date(q.AsOf),
		Currency: documentCurrency, FunctionalCurrency: functional.Code, WithDimensions: filter.with, WithoutDimensions: filter.without,
		MaxRows: int32(q.Limit + 1),
	})
	if err != nil {
		return ports.Report{}, fmt.Errorf("account lines: %w", err)
	}
	if undefined && len(found) == 0 && opening.IsZero() {
		return ports.Report{}, fault.New(fault.NotFound, "gl.account.not_found",
			"account %q is not in the chart; look at gl/trial-balance for those in use", account).With("account", account)
	}
	report := ports.Report{
		Header: ports.ReportFields{
			{Name: "legal_entity", Value: q.Entity.Code}, {Name: "account", Value: account}, {Name: "name", Value: name},
			{Name: "currency", Value: functional.Code}, {Name: "balance_currency", Value: balanceCurrency.Code},
			{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
			{Name: "sequence", Value: strconv.FormatUint(uint64(q.Known), 10)}, {Name: "from", Value: q.Params["from"]},
			{Name: "opening_balance", Value: opening.Fixed(balanceCurrency.MinorUnit)},
		},
	}
	if report.HasMore = len(found) > q.Limit; report.HasMore {
		found = found[:q.Limit]
		last := found[q.Limit-1]
		report.NextCursor = lineCursor{date: event.DateOf(last.EffectiveDate.Time), sequence: last.Sequence, line: last.LineNumber}.String()
	}
	running := opening
	for i := range found {
		row, change, err := accountRow(&found[i], functional, documentCurrency != "")
		if err != nil {
			return ports.Report{}, err
		}
		running = running.Add(change)
		row.RunningBalance = running.Fixed(balanceCurrency.MinorUnit)
		report.Rows = append(report.Rows, row)
	}
	if !report.HasMore { // only the last page has the closing balance
		report.Footer = ports.ReportFields{{Name: "closing_balance", Value: running.Fixed(balanceCurrency.MinorUnit)}}
	}
	return report, nil
}

func (a *AccountLedger) balance(ctx context.Context, tx pgx.Tx, q ports.ReadModelQuery, upto lineCursor, functional string, filter dimensionFilter) (money.Number, error) {
	text, err := a.queries.AccountBalance(ctx, tx, &gldb.AccountBalanceParams{
		Currency: q.Params["currency"], PartitionID: int32(q.Partition), Version: int32(q.Version), Account: q.Params["account"],
		UptoDate: date(upto.date), UptoSequence: upto.sequence, UptoLine: upto.line, Known: int64(q.Known), FunctionalCurrency: functional,
		WithDimensions: filter.with, WithoutDimensions: filter.without,
	})
	if err != nil {
		return money.Number{}, fmt.Errorf("account balance: %w", err)
	}
	var n money.Number
	err = n.Scan(text)
	return n, err
}

// accountRow makes the row of a line and returns the amount that it adds to the balance.
func accountRow(r *gldb.AccountLinePageRow, functional money.Currency, inDocumentCurrency bool) (accountLedgerRow, money.Number, error) {
	currency, err := money.LookupCurrency(r.Currency, time.Time{})
	if err != nil {
		return accountLedgerRow{}, money.Number{}, err
	}
	// A line with another functional currency appears only in queries by document currency.
	book := functional
	if r.FunctionalCurrency != functional.Code {
		if book, err = money.LookupCurrency(r.FunctionalCurrency, time.Time{}); err != nil {
			return accountLedgerRow{}, money.Number{}, err
		}
	}
	var amount, functionalAmount money.Number
	if err := errors.Join(amount.Scan(r.Amount), functionalAmount.Scan(r.FunctionalAmount)); err != nil {
		return accountLedgerRow{}, money.Number{}, err
	}
	row := accountLedgerRow{
		EffectiveDate: event.DateOf(r.EffectiveDate.Time), RecordedAt: formatTime(r.RecordedAt), Sequence: strconv.FormatInt(r.Sequence, 10),
		EventID: event.ID(r.EventID.Bytes).String(), JournalID: r.JournalID, JournalNumber: r.JournalNumber, LineNumber: r.LineNumber,
		Type: r.JournalType, Description: r.Description, Side: r.Side, Amount: amount.Fixed(currency.MinorUnit), Currency: r.Currency,
		FunctionalAmount: functionalAmount.Fixed(book.MinorUnit), Rate: r.Rate, Dimensions: r.Dimensions,
		SourceModule: r.SourceModule, SourceEventID: r.SourceEventID, ReversedBy: r.ReversedBy,
	}
	if r.RateDate.Valid {
		d := event.DateOf(r.RateDate.Time)
		row.RateDate = &d
	}
	change := functionalAmount
	if inDocumentCurrency {
		change = amount
	}
	if r.Side == "credit" {
		change = change.Neg()
	}
	return row, change, nil
}
