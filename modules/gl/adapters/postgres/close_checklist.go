package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl"
	"github.com/erpbackbone/backbone/modules/gl/adapters/postgres/internal/gldb"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// NewCloseChecklist makes the source of gl/close-checklist. postingIntents names, per module,
// the intents that post into a period.
func NewCloseChecklist(pool *pgxpool.Pool, postingIntents map[string][]string) ports.ReadModelSource {
	return newSource(pool, func(s *source, ctx context.Context, q ports.ReadModelQuery) (ports.Report, error) {
		return s.closeChecklist(ctx, q, postingIntents)
	})
}

// readCalendar reads the fiscal years as known at the sequence. The query is of the ledger's rows.
func (s *source) readCalendar(ctx context.Context, q ports.ReadModelQuery) (*domain.Calendar, error) {
	rows, err := s.queries.CalendarPeriods(ctx, s.pool, &gldb.CalendarPeriodsParams{PartitionID: int32(q.Partition), Version: int32(q.Version), Known: int64(q.Known)})
	if err != nil {
		return nil, fmt.Errorf("calendar: %w", err)
	}
	var years []domain.FiscalYear
	for _, r := range rows {
		if len(years) == 0 || years[len(years)-1].Label != r.FiscalYear {
			years = append(years, domain.FiscalYear{Label: r.FiscalYear, Start: event.DateOf(r.YearStart.Time), End: event.DateOf(r.YearEnd.Time)})
		}
		y := &years[len(years)-1]
		y.Periods = append(y.Periods, domain.PeriodSpan{Period: r.Period, Start: event.DateOf(r.PeriodStart.Time), End: event.DateOf(r.PeriodEnd.Time)})
	}
	return domain.NewCalendar(years), nil
}

// periodParam is the period that the parameter names, the zero span without it.
func (s *source) periodParam(ctx context.Context, q ports.ReadModelQuery) (domain.PeriodSpan, error) {
	name := q.Params[contract.ParamPeriod]
	if name == "" {
		return domain.PeriodSpan{}, nil
	}
	calendar, err := s.readCalendar(ctx, q)
	if err != nil {
		return domain.PeriodSpan{}, err
	}
	_, span, found := calendar.Period(name)
	if !found {
		return span, undefinedPeriod(name)
	}
	return span, nil
}

func undefinedPeriod(name string) error {
	return fault.New(fault.Invalid, "report.parameter_invalid", "no fiscal year has period %q; look it up in gl/periods", name).WithField(contract.ParamPeriod)
}

// checklist collects the rows for one period.
type checklist struct {
	*source
	q, ledger ports.ReadModelQuery // of gl.closing, of gl.ledger
	book      money.Currency
	calendar  *domain.Calendar
	year      domain.FiscalYear
	span      domain.PeriodSpan
	settings  stepSettingsData
	rows      []any
}

func (s *source) closeChecklist(ctx context.Context, q ports.ReadModelQuery, postingIntents map[string][]string) (ports.Report, error) {
	c := &checklist{source: s, q: q, ledger: ledgerQuery(q)}
	var header ports.ReportFields
	var err error
	if c.book, header, err = s.bookHeader(ctx, c.ledger); err != nil {
		return ports.Report{}, err
	}
	if c.calendar, err = s.readCalendar(ctx, c.ledger); err != nil {
		return ports.Report{}, err
	}
	var found bool
	if c.year, c.span, found = c.calendar.Period(q.Params[contract.ParamPeriod]); !found {
		return ports.Report{}, undefinedPeriod(q.Params[contract.ParamPeriod])
	}
	if err := c.readSettings(ctx); err != nil {
		return ports.Report{}, err
	}
	for _, add := range []func(context.Context) error{
		func(ctx context.Context) error { return c.addWaitingIntents(ctx, postingIntents) },
		c.addReversals, c.addRecurring, c.addAllocations, c.addRevaluation, c.addNumberGaps, c.addPairs, c.addBankAccounts, c.addEarlierPeriods, c.addYear,
	} {
		if err := add(ctx); err != nil {
			return ports.Report{}, err
		}
	}
	header = append(header, ports.ReportFields{
		{Name: "period", Value: c.span.Period}, {Name: "start", Value: c.span.Start.String()}, {Name: "end", Value: c.span.End.String()},
		{Name: "orderly_close", Value: c.settings.OrderlyClose},
	}...)
	return wholeReport(q, header, c.rows)
}

func (c *checklist) add(moduleName, item, blocking, nextStep string, left []string) {
	c.rows = append(c.rows, contract.NewChecklistRow(moduleName, item, blocking, nextStep, left))
}

func (c *checklist) addNotApplicable(item, blocking string) {
	r := contract.NewChecklistRow(contract.ModuleName, item, blocking, "", nil)
	r.State = contract.ChecklistNotApplicable
	c.rows = append(c.rows, r)
}

// orderly is what an item blocks that only a ledger with orderly_close demands.
func (c *checklist) orderly() string {
	if c.settings.OrderlyClose {
		return contract.BlocksHardClose
	}
	return contract.BlocksNothing
}

func (c *checklist) steps(ctx context.Context, kinds ...string) ([]gldb.CloseStepsRow, error) {
	rows, err := c.queries.CloseSteps(ctx, c.pool, &gldb.CloseStepsParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.q.Version), Known: int64(c.q.Known), Kinds: kinds,
	})
	if err != nil {
		return nil, fmt.Errorf("steps %v: %w", kinds, err)
	}
	return rows, nil
}

func (c *checklist) due(ctx context.Context, kind string, endedBy ...string) ([]gldb.DueStepsRow, error) {
	rows, err := c.queries.DueSteps(ctx, c.pool, &gldb.DueStepsParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.q.Version), Known: int64(c.q.Known), Kind: kind, EndedBy: endedBy,
		FromDay: date(c.span.Start), ToDay: date(c.span.End),
	})
	if err != nil {
		return nil, fmt.Errorf("due %s: %w", kind, err)
	}
	return rows, nil
}

func (c *checklist) readSettings(ctx context.Context) error {
	c.settings = stepSettingsData{OrderlyClose: true}
	steps, err := c.steps(ctx, stepSettings)
	if err != nil || len(steps) == 0 {
		return err
	}
	return json.Unmarshal([]byte(steps[len(steps)-1].Data), &c.settings)
}

// addWaitingIntents counts the intents of each module that would post into the period. One
// that began to wait in an earlier release has no date and counts in each period.
func (c *checklist) addWaitingIntents(ctx context.Context, postingIntents map[string][]string) error {
	waiting, err := c.due(ctx, stepIntentWaiting, stepIntentEnded, stepIntentWaiting)
	if err != nil {
		return err
	}
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(postingIntents))) {
		var left []string
		for _, w := range waiting {
			var data stepIntentData
			if err := json.Unmarshal([]byte(w.Data), &data); err != nil {
				return err
			}
			if slices.Contains(postingIntents[name], data.IntentType) {
				left = append(left, w.Item)
			}
		}
		c.add(name, "waiting_intents", contract.BlocksHardClose, "approve or reject them: backbone intents list --waiting-for-me", left)
	}
	return nil
}

func (c *checklist) addReversals(ctx context.Context) error {
	due, err := c.due(ctx, stepReversalDue, stepReversed)
	if err != nil {
		return err
	}
	var left []string
	for _, d := range due {
		var j stepJournalData
		if err := json.Unmarshal([]byte(d.Data), &j); err != nil {
			return err
		}
		left = append(left, j.JournalNumber)
	}
	c.add(contract.ModuleName, "reversals_due", contract.BlocksHardClose, "gl.run_due_reversals through "+c.span.End.String(), left)
	return nil
}

// addRecurring lists the due dates of the period without a journal, as RENT 2026-03-01.
func (c *checklist) addRecurring(ctx context.Context) error {
	steps, err := c.steps(ctx, stepRecurring, stepRecurringPosted)
	if err != nil {
		return err
	}
	definitions, posted := map[string]stepRecurringData{}, map[string]bool{}
	for _, s := range steps {
		if s.Kind == stepRecurringPosted {
			posted[s.Item+" "+dateText(s.Day)] = true
			continue
		}
		var r stepRecurringData
		if err := json.Unmarshal([]byte(s.Data), &r); err != nil {
			return err
		}
		definitions[s.Item] = r
	}
	if len(definitions) == 0 {
		c.addNotApplicable("recurring_due", c.orderly())
		return nil
	}
	var left []string
	for _, id := range slices.Sorted(maps.Keys(definitions)) {
		r := definitions[id]
		through := c.span.End
		if r.Until != nil {
			through = min(through, *r.Until)
		}
		for _, d := range r.Schedule.Dates(c.calendar, r.From, through) {
			if name := id + " " + d.String(); d >= c.span.Start && !posted[name] {
				left = append(left, name)
			}
		}
	}
	c.add(contract.ModuleName, "recurring_due", c.orderly(), "gl.run_recurring through "+c.span.End.String(), left)
	return nil
}

func (c *checklist) addAllocations(ctx context.Context) error {
	steps, err := c.steps(ctx, stepAllocation, stepAllocationRun, stepReversed)
	if err != nil {
		return err
	}
	valid, runs := map[string]bool{}, map[string]string{}
	for _, s := range steps {
		switch s.Kind {
		case stepReversed:
			for id, journal := range runs {
				if journal == s.Item {
					delete(runs, id)
				}
			}
		case stepAllocation:
			var a stepAllocationData
			if err := json.Unmarshal([]byte(s.Data), &a); err != nil {
				return err
			}
			valid[s.Item] = domain.AllocationRule{ValidFrom: a.ValidFrom, ValidTo: a.ValidTo}.ValidOn(c.span.End)
		case stepAllocationRun:
			var run stepJournalData
			if err := json.Unmarshal([]byte(s.Data), &run); err != nil {
				return err
			}
			if run.Period == c.span.Period {
				runs[s.Item] = run.JournalID
			}
		}
	}
	var left []string
	applies := false
	for _, id := range slices.Sorted(maps.Keys(valid)) {
		applies = applies || valid[id]
		if valid[id] && runs[id] == "" {
			left = append(left, id)
		}
	}
	if !applies {
		c.addNotApplicable("allocations_due", contract.BlocksNothing)
		return nil
	}
	c.add(contract.ModuleName, "allocations_due", contract.BlocksNothing, "gl.run_allocation for "+c.span.Period, left)
	return nil
}

// addRevaluation says whether balances in foreign currencies were revalued, and which of their
// currencies lack a closing rate.
func (c *checklist) addRevaluation(ctx context.Context) error {
	balances, err := c.queries.ForeignBalances(ctx, c.pool, &gldb.ForeignBalancesParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.ledger.Version), Known: int64(c.q.Known), AsOf: date(c.span.End), FunctionalCurrency: c.book.Code,
	})
	if err != nil {
		return fmt.Errorf("foreign balances: %w", err)
	}
	steps, err := c.steps(ctx, stepAccount, stepRevaluation)
	if err != nil {
		return err
	}
	accounts, ran := map[string]stepAccountData{}, false
	for _, s := range steps {
		if s.Kind == stepRevaluation {
			ran = ran || s.Item == c.span.Period
			continue
		}
		var a stepAccountData
		if err := json.Unmarshal([]byte(s.Data), &a); err != nil {
			return err
		}
		accounts[s.Item] = a
	}
	var revalued, currencies []string
	for _, b := range balances {
		if a := accounts[b.Account]; a.Revalue || a.Control != "" && a.Control != domain.ControlNone {
			revalued = append(revalued, b.Account+" "+b.Currency)
			if !slices.Contains(currencies, b.Currency) {
				currencies = append(currencies, b.Currency)
			}
		}
	}
	if len(revalued) == 0 {
		c.addNotApplicable("closing_rates", contract.BlocksNothing)
		c.addNotApplicable("revaluation", contract.BlocksNothing)
		return nil
	}
	missing, err := c.missingRates(ctx, currencies)
	if err != nil {
		return err
	}
	c.add(contract.ModuleName, "closing_rates", contract.BlocksNothing, "gl.set_exchange_rate with rate_type closing", missing)
	if ran {
		revalued = nil
	}
	c.add(contract.ModuleName, "revaluation", contract.BlocksNothing, "gl.revalue for "+c.span.Period, revalued)
	return nil
}

// missingRates lists the currencies without a closing rate on the period's last day that is
// young enough.
func (c *checklist) missingRates(ctx context.Context, currencies []string) ([]string, error) {
	rates, err := c.queries.ExchangeRates(ctx, c.pool, &gldb.ExchangeRatesParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.ledger.Version), Known: int64(c.q.Known), AsOf: date(c.span.End),
		ToCurrency: c.book.Code, RateType: domain.RateClosing, Latest: true,
	})
	if err != nil {
		return nil, fmt.Errorf("closing rates: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(currencies), func(code string) bool {
		return slices.ContainsFunc(rates, func(r gldb.ExchangeRatesRow) bool {
			return r.FromCurrency == code && int(c.span.End-event.DateOf(r.RateDate.Time)) <= c.settings.RateAgeDays
		})
	}), nil
}

func (c *checklist) addNumberGaps(ctx context.Context) error {
	q := c.ledger
	q.Params, q.Cursor, q.Limit = map[string]string{"fiscal_year": c.year.Label}, "", 1000
	report, err := c.numberGaps(ctx, q)
	if err != nil {
		return err
	}
	var left []string
	for _, r := range report.Rows {
		if row, ok := r.(numberGapsRow); ok && (len(row.Missing) > 0 || len(row.Repeated) > 0) {
			left = append(left, row.Series)
		}
	}
	c.add(contract.ModuleName, "number_gaps", c.orderly(), "gl/number-gaps shows the missing numbers", left)
	return nil
}

func (c *checklist) addPairs(ctx context.Context) error {
	pairs, err := c.pairs(ctx, c.q, c.book)
	if err != nil {
		return err
	}
	var left []string
	applies := false
	for _, p := range pairs {
		if p.effective < c.span.Start || p.effective > c.span.End {
			continue
		}
		applies = true
		if p.NextStep != "" {
			left = append(left, p.PairID)
		}
	}
	if !applies {
		c.addNotApplicable("intercompany", contract.BlocksNothing)
		return nil
	}
	c.add(contract.ModuleName, "intercompany", contract.BlocksNothing, "gl/intercompany shows each pair's next step", left)
	return nil
}

// addBankAccounts lists the bank accounts, as 1000 EUR, whose statements do not reach the period's
// end or lack one before it, and those with lines up to it that are not matched. A bank account is
// one with statements that is not blocked. A statement of a later day shows that the ones
// before it reach the period's end.
func (c *checklist) addBankAccounts(ctx context.Context) error {
	accounts, err := c.queries.BankAccounts(ctx, c.pool, &gldb.BankAccountsParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.q.Versions[gl.ProjectionBank]), LedgerVersion: int32(c.ledger.Version), Known: int64(c.q.Known), AsOf: date(c.span.End),
	})
	if err != nil {
		return fmt.Errorf("bank accounts: %w", err)
	}
	if len(accounts) == 0 {
		c.addNotApplicable("bank_statements", contract.BlocksNothing)
		c.addNotApplicable("bank_lines", contract.BlocksNothing)
		return nil
	}
	var missing, unmatched []string
	for _, a := range accounts {
		name := a.Account + " " + a.Currency
		if a.HasGap || event.DateOf(a.LastStatement.Time) < c.span.End {
			missing = append(missing, name)
		}
		err := pgx.BeginTxFunc(ctx, c.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			rows, err := c.readReconciliation(ctx, tx, &gldb.BankReconciliationParams{
				PartitionID: int32(c.q.Partition), Version: int32(c.q.Versions[gl.ProjectionBank]), LedgerVersion: int32(c.ledger.Version), Account: a.Account, Currency: a.Currency,
				Known: int64(c.q.Known), AsOf: date(c.span.End),
			})
			if err == nil && rows[0].UnmatchedLines > 0 {
				unmatched = append(unmatched, name)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	c.add(contract.ModuleName, "bank_statements", contract.BlocksNothing, "gl.import_bank_statement through "+c.span.End.String(), missing)
	c.add(contract.ModuleName, "bank_lines", contract.BlocksNothing, "gl/bank-reconciliation as of "+c.span.End.String()+" shows the lines", unmatched)
	return nil
}

func (c *checklist) addEarlierPeriods(ctx context.Context) error {
	states, err := c.queries.Periods(ctx, c.pool, &gldb.PeriodsParams{
		Known: int64(c.q.Known), PartitionID: int32(c.q.Partition), Version: int32(c.ledger.Version), Module: contract.ModuleName,
	})
	if err != nil {
		return fmt.Errorf("periods: %w", err)
	}
	var left []string
	for _, p := range states {
		if event.DateOf(p.PeriodStart.Time) < c.span.Start && (p.State == string(domain.PeriodOpen) || p.State == string(domain.PeriodSoftClosed)) {
			left = append(left, p.Period)
		}
	}
	c.add(contract.ModuleName, "earlier_periods", c.orderly(), "gl.close_period with level hard, in order", left)
	return nil
}

// addYear says, of a year's last period, whether the year is closed with nothing left.
func (c *checklist) addYear(ctx context.Context) error {
	if c.span.End != c.year.End {
		c.addNotApplicable("year_closed", c.orderly())
		return nil
	}
	steps, err := c.queries.CloseSteps(ctx, c.pool, &gldb.CloseStepsParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.q.Version), Known: int64(c.q.Known), Kinds: []string{stepYear}, Item: c.year.Label,
	})
	if err != nil {
		return fmt.Errorf("year: %w", err)
	}
	state := stepYearData{}
	if len(steps) > 0 {
		if err := json.Unmarshal([]byte(steps[len(steps)-1].Data), &state); err != nil {
			return err
		}
	}
	left, err := c.queries.ResultAccounts(ctx, c.pool, &gldb.ResultAccountsParams{
		PartitionID: int32(c.q.Partition), Version: int32(c.ledger.Version), Known: int64(c.q.Known), FunctionalCurrency: c.book.Code,
		FromDate: pgtype.Date{Time: c.year.Start.Time(), Valid: true}, AsOf: date(c.year.End),
	})
	if err != nil {
		return fmt.Errorf("result: %w", err)
	}
	if !state.Closed && len(left) == 0 {
		left = []string{c.year.Label}
	}
	c.add(contract.ModuleName, "year_closed", c.orderly(), "gl.close_year for "+c.year.Label, left)
	return nil
}
