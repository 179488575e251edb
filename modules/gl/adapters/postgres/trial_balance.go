package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/ports"
)

// NewTrialBalance makes the source of gl/trial-balance. The role of the pool must be able to
// read the schema gl.
func NewTrialBalance(pool *pgxpool.Pool) ports.ReadModelSource {
	return newSource(pool, (*source).trialBalance)
}

type trialBalanceRow struct {
	Account string `json:"account"`
	Name    string `json:"name"`
	Type    string `json:"type"`
	Opening string `json:"opening,omitempty"` // with from
	Debit   string `json:"debit"`
	Credit  string `json:"credit"`
	Balance string `json:"balance"`
}

// sums are the amounts of an account.
type sums struct{ opening, debit, credit money.Number }

func (s sums) add(o sums) sums {
	return sums{s.opening.Add(o.opening), s.debit.Add(o.debit), s.credit.Add(o.credit)}
}

// trialBalance sums the journal lines per account as of an effective date and as known at a
// sequence, so a query can be repeated later with the same result. Without a filter
// total_debit equals total_credit, as domain.CheckJournal admits only balanced journals;
// every page has the totals of all accounts. Before the ledger is configured the currency is
// "" and there are no accounts. Journals of raw appends with another functional currency are
// left out. Faults: cursor.malformed, report.parameter_invalid.
func (s *source) trialBalance(ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
	book, header, err := s.bookHeader(ctx, q)
	if err != nil {
		return ports.Report{}, err
	}
	foreign, err := currencyParam(q)
	if err != nil {
		return ports.Report{}, err
	}
	shown := book
	if foreign.Code != "" {
		shown = foreign
		header = slices.Insert(header, 2, ports.ReportField{Name: "balance_currency", Value: foreign.Code})
	}
	list, err := loadChart(ctx, s.pool, s.queries, q)
	if err != nil {
		return ports.Report{}, err
	}
	chart := make(map[string]gldb.ChartRow, len(list))
	for _, a := range list {
		chart[a.Code] = a
	}
	found, err := s.accountSums(ctx, q, book, foreign)
	if err != nil {
		return ports.Report{}, err
	}
	if found, err = rollUp(q, chart, found); err != nil {
		return ports.Report{}, err
	}
	var total sums
	rows := make([]any, 0, len(found))
	for _, account := range slices.Sorted(maps.Keys(found)) {
		of := found[account]
		total = total.add(of)
		row := trialBalanceRow{
			Account: account, Name: chart[account].Name, Type: chart[account].Type, Debit: of.debit.Fixed(shown.MinorUnit), Credit: of.credit.Fixed(shown.MinorUnit),
			Balance: of.opening.Add(of.debit).Sub(of.credit).Fixed(shown.MinorUnit),
		}
		if q.Params["from"] != "" {
			row.Opening = of.opening.Fixed(shown.MinorUnit)
		}
		rows = append(rows, row)
	}
	report, err := wholeReport(q, header, rows)
	if err != nil {
		return report, err
	}
	if q.Params["from"] != "" {
		report.Footer = append(report.Footer, ports.ReportField{Name: "total_opening", Value: total.opening.Fixed(shown.MinorUnit)})
	}
	unclosed, err := s.unclosedYears(ctx, q, book, list)
	report.RowsName, report.Flat = "accounts", true
	report.Footer = append(report.Footer,
		ports.ReportField{Name: "total_debit", Value: total.debit.Fixed(shown.MinorUnit)},
		ports.ReportField{Name: "total_credit", Value: total.credit.Fixed(shown.MinorUnit)},
		ports.ReportField{Name: "unclosed_years", Value: unclosed},
	)
	return report, err
}

// totalsBlock is the number of bits of a sequence inside a block of gl.line_totals.
const totalsBlock = 15

// accountSums sums the lines that the parameters select, per account.
func (s *source) accountSums(ctx context.Context, q ports.ReadModelQuery, book, foreign money.Currency) (map[string]sums, error) {
	from, err := fromDate(q)
	if err != nil {
		return nil, err
	}
	filter, err := dimensionsParam(q)
	if err != nil {
		return nil, err
	}
	without, err := s.closings(ctx, q)
	if err != nil {
		return nil, err
	}
	common := gldb.TrialBalanceParams{
		FromDate: date(from), PartitionID: int32(q.Partition), Version: int32(q.Version), AsOf: date(q.AsOf), Known: int64(q.Known),
		FunctionalCurrency: book.Code, Without: without, WholeBlocks: (int64(q.Known) + 1) >> totalsBlock,
	}
	var found []gldb.TrialBalanceRow
	if foreign.Code == "" && filter.isEmpty() {
		found, err = s.queries.TrialBalance(ctx, s.pool, &common)
	} else {
		var filtered []gldb.FilteredTrialBalanceRow
		filtered, err = s.queries.FilteredTrialBalance(ctx, s.pool, &gldb.FilteredTrialBalanceParams{
			Currency: foreign.Code, FromDate: common.FromDate, PartitionID: common.PartitionID, Version: common.Version, AsOf: common.AsOf, Known: common.Known,
			FunctionalCurrency: common.FunctionalCurrency, WithDimensions: filter.with, WithoutDimensions: filter.without, Without: without,
		})
		for _, r := range filtered {
			found = append(found, gldb.TrialBalanceRow(r))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("trial balance: %w", err)
	}
	out := make(map[string]sums, len(found))
	for _, r := range found {
		var of sums
		if err := errors.Join(of.opening.Scan(r.Opening), of.debit.Scan(r.Debit), of.credit.Scan(r.Credit)); err != nil {
			return nil, err
		}
		out[r.Account] = of
	}
	return out, nil
}

// closings lists the journals that include_closing=false leaves out: those that close the
// fiscal year of as_of, and their reversals. Those of earlier years stay, else their income
// and expense would be shown again. The result is never nil.
func (s *source) closings(ctx context.Context, q ports.ReadModelQuery) ([]int64, error) {
	if q.Params["include_closing"] != "false" {
		return []int64{}, nil
	}
	start, err := s.queries.FiscalYearStart(ctx, s.pool, &gldb.FiscalYearStartParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), Day: date(q.AsOf),
	})
	if errors.Is(err, pgx.ErrNoRows) {
		start, err = pgtype.Date{Time: firstDay.Time(), Valid: true}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("fiscal year: %w", err)
	}
	found, err := s.queries.ClosingSequences(ctx, s.pool, &gldb.ClosingSequencesParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), FromDate: start,
	})
	if err != nil {
		return nil, fmt.Errorf("closing journals: %w", err)
	}
	return append([]int64{}, found...), nil
}

// rollUp adds accounts below the parameter "level" to their ancestors at that level.
func rollUp(q ports.ReadModelQuery, chart map[string]gldb.ChartRow, found map[string]sums) (map[string]sums, error) {
	text := q.Params["level"]
	if text == "" {
		return found, nil
	}
	level, err := strconv.Atoi(text)
	if err != nil || level < 1 {
		return nil, invalid("level", "a level of the chart, 1 for accounts without a parent")
	}
	out := map[string]sums{}
	for account, of := range found {
		at := ancestor(chart, account, level)
		out[at] = out[at].add(of)
	}
	return out, nil
}

// unclosedYears lists the fiscal years that ended before as_of and still have a balance of
// income or expense, which the next year's balances then contain.
func (s *source) unclosedYears(ctx context.Context, q ports.ReadModelQuery, book money.Currency, chart []gldb.ChartRow) ([]string, error) {
	accounts := []string{}
	for _, a := range chart {
		if a.Type == "income" || a.Type == "expense" {
			accounts = append(accounts, a.Code)
		}
	}
	found, err := s.queries.UnclosedYears(ctx, s.pool, &gldb.UnclosedYearsParams{
		PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known), AsOf: date(q.AsOf), Accounts: accounts, FunctionalCurrency: book.Code,
	})
	if err != nil {
		return nil, fmt.Errorf("unclosed years: %w", err)
	}
	return append([]string{}, found...), nil
}

// functionalCurrency returns the functional currency as known at the query's sequence, the
// zero Currency if the ledger was not configured by then.
func functionalCurrency(ctx context.Context, db gldb.DBTX, queries *gldb.Queries, q ports.ReadModelQuery) (money.Currency, error) {
	code, err := queries.LedgerCurrency(ctx, db, &gldb.LedgerCurrencyParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if errors.Is(err, pgx.ErrNoRows) {
		return money.Currency{}, nil
	}
	if err != nil {
		return money.Currency{}, fmt.Errorf("functional currency: %w", err)
	}
	return money.LookupCurrency(code, time.Time{})
}
