package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewBankReconciliation makes the source of gl/bank-reconciliation. The role of the pool must be
// able to read the schema gl. Faults: gl.account.not_found, report.parameter_invalid,
// cursor.malformed, read.rebuilding.
func NewBankReconciliation(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).bankReconciliation)
}

type reconciliationRow struct {
	Item              string `json:"item"`
	Date              string `json:"date"`
	Amount            string `json:"amount"`
	Currency          string `json:"currency"`
	StatementID       string `json:"statement_id"`
	Part              int32  `json:"part,omitempty"`
	JournalNumber     string `json:"journal_number"`
	JournalID         string `json:"journal_id"`
	LineNumber        int32  `json:"line_number,omitempty"`
	ValueDate         string `json:"value_date"`
	Reference         string `json:"reference"`
	EndToEndID        string `json:"end_to_end_id"`
	Description       string `json:"description"`
	ProposedJournalID string `json:"proposed_journal_id"`
	ProposedLine      int32  `json:"proposed_line,omitempty"`
	Sequence          string `json:"sequence"`
}

func (s *source) bankReconciliation(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	currency, err := currencyParam(q)
	if err != nil {
		return ports.Report{}, err
	}
	skip := 0
	if q.Cursor != "" {
		if skip, err = strconv.Atoi(q.Cursor); err != nil || skip < 0 || skip > math.MaxInt32 {
			return ports.Report{}, malformed()
		}
	}
	var report ports.Report
	// One snapshot for the account and its rows.
	err = pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if err := s.requireAccount(ctx, tx, q); err != nil {
			return err
		}
		if currency.Code == "" {
			if currency, err = s.statementCurrency(ctx, tx, q); err != nil {
				return err
			}
		}
		found, err := s.readReconciliation(ctx, tx, &gldb.BankReconciliationParams{
			PartitionID: int32(q.Partition), Version: int32(q.Version), LedgerVersion: int32(q.Versions[gl.ProjectionLedger]), Account: q.Params["account"],
			Currency: currency.Code, Known: int64(q.Known), AsOf: date(q.AsOf), Skip: int32(skip), MaxRows: int32(q.Limit) + 1,
		})
		if err != nil {
			return err
		}
		report, err = reconciliation(q, currency, skip, found)
		return err
	})
	return report, err
}

// requireAccount refuses an account that is not in the chart.
func (s *source) requireAccount(ctx context.Context, tx pgx.Tx, q ports.ReadModelQuery) error {
	account := q.Params["account"]
	_, err := s.queries.AccountName(ctx, tx, &gldb.AccountNameParams{
		PartitionID: int32(q.Partition), Version: int32(q.Versions[gl.ProjectionLedger]), Code: account, Known: int64(q.Known),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return fault.New(fault.NotFound, "gl.account.not_found", "account %q is not in the chart; look at gl/accounts for those in use", account).With("account", account)
	}
	return err
}

// readReconciliation reads at least one row, and no rows of an earlier release, which lack what
// the query compares: read.rebuilding. The version of this release is being built then.
func (s *source) readReconciliation(ctx context.Context, tx pgx.Tx, p *gldb.BankReconciliationParams) ([]gldb.BankReconciliationRow, error) {
	earlier, err := s.queries.HasEarlierBankRows(ctx, tx, &gldb.HasEarlierBankRowsParams{PartitionID: p.PartitionID, Version: p.Version, Account: p.Account})
	if err != nil {
		return nil, fmt.Errorf("release of bank rows: %w", err)
	}
	if earlier {
		return nil, fault.New(fault.Unavailable, "read.rebuilding", "this release builds the rows of this report; ask again once the new version is switched to").
			WithRetryAfter(time.Minute)
	}
	if err := s.queries.JoinWhole(ctx, tx); err != nil {
		return nil, fmt.Errorf("settings of the bank reconciliation: %w", err)
	}
	rows, err := s.queries.BankReconciliation(ctx, tx, p)
	if err != nil {
		return nil, fmt.Errorf("bank reconciliation: %w", err)
	}
	return rows, nil
}

// statementCurrency is the currency of the newest statement, the functional one without any.
func (s *source) statementCurrency(ctx context.Context, tx pgx.Tx, q ports.ReadModelQuery) (money.Currency, error) {
	code, err := s.queries.BankCurrency(ctx, tx, &gldb.BankCurrencyParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Account: q.Params["account"], Known: int64(q.Known)})
	if errors.Is(err, pgx.ErrNoRows) {
		ledger := q
		ledger.Version = q.Versions[gl.ProjectionLedger]
		return functionalCurrency(ctx, tx, s.queries, ledger)
	}
	if err != nil {
		return money.Currency{}, fmt.Errorf("currency of statements: %w", err)
	}
	return money.LookupCurrency(code, time.Time{})
}

// reconciliation makes the report. Every row has the sums; a report without rows has one row
// without an item.
func reconciliation(q ports.ReadModelQuery, currency money.Currency, skip int, found []gldb.BankReconciliationRow) (ports.Report, error) {
	var sums [4]money.Number
	for i, text := range []string{found[0].BookBalance, found[0].StatementBalance, found[0].BookItems, found[0].StatementItems} {
		if err := sums[i].Scan(text); err != nil {
			return ports.Report{}, err
		}
	}
	fixed := func(n money.Number) string { return n.Fixed(currency.MinorUnit) }
	book, statement, bookItems, statementItems := sums[0], sums[1], sums[2], sums[3]
	difference, explained := book.Sub(statement), bookItems.Sub(statementItems)
	report := ports.Report{Header: ports.ReportFields{
		{Name: "legal_entity", Value: q.Entity.Code}, {Name: "account", Value: q.Params["account"]}, {Name: "currency", Value: currency.Code},
		{Name: "as_of", Value: q.AsOf.String()}, {Name: "known_at", Value: q.KnownAt},
		{Name: "last_statement", Value: dateText(found[0].LastStatement)},
		{Name: "book_balance", Value: fixed(book)}, {Name: "statement_balance", Value: fixed(statement)}, {Name: "difference", Value: fixed(difference)},
		{Name: "unmatched_book", Value: fixed(bookItems)}, {Name: "unmatched_statement", Value: fixed(statementItems)},
		{Name: "unmatched_lines", Value: found[0].UnmatchedLines}, {Name: "unexplained", Value: fixed(difference.Sub(explained))},
	}}
	for i := range found {
		r := &found[i]
		if r.Item == "" {
			break
		}
		if len(report.Rows) == q.Limit {
			report.HasMore, report.NextCursor = true, strconv.Itoa(skip+q.Limit)
			break
		}
		var amount money.Number
		if err := amount.Scan(r.Amount); err != nil {
			return ports.Report{}, err
		}
		report.Rows = append(report.Rows, reconciliationRow{
			Item: r.Item, Date: dateText(r.Day), Amount: fixed(amount), Currency: currency.Code, StatementID: r.StatementID, Part: r.Part,
			JournalNumber: r.JournalNumber, JournalID: r.JournalID, LineNumber: r.LineNumber, ValueDate: dateText(r.ValueDate), Reference: r.Reference,
			EndToEndID: r.EndToEndID, Description: r.Description, ProposedJournalID: r.ProposedJournalID, ProposedLine: r.ProposedLine,
			Sequence: strconv.FormatInt(r.Sequence, 10),
		})
	}
	return report, nil
}
