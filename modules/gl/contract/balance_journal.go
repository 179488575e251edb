package contract

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// PlanBalanceJournal plans a journal that the ledger computes from its own balances, such as
// that of a year end. Its lines are taken as they are, in both currencies: neither accounts
// nor values of dimensions are checked, since a balance stays on an account that was blocked
// or has ended. j.Lines is not read. A closing journal is part of a step that another person
// approves, so a soft-closed period takes it like an open one. Faults: those of CheckPeriod
// and Settings, gl.account.dimension_missing, gl.journal.*.
func PlanBalanceJournal(ctx context.Context, l *Ledger, j Journal, lines []PostedLine) (PlannedJournal, error) {
	settings, err := l.Settings(ctx)
	if err != nil {
		return PlannedJournal{}, err
	}
	period, err := l.CheckPeriod(ctx, ModuleName, j.PostingDate)
	if err != nil {
		return PlannedJournal{}, err
	}
	if j.Type == domain.Closing {
		period = period.accepted()
	}
	department := departmentOf(settings, lines)
	if department == "" {
		return PlannedJournal{}, fault.New(fault.FailedPrecondition, "gl.account.dimension_missing",
			"the journal has no department and the ledger no default; set one with gl.configure_ledger").With("dimension", DimensionDepartment)
	}
	return draftJournal(domain.JournalPosted{
		JournalType: j.Type, JournalID: j.JournalID.String(), Description: j.Description, ReversalDate: j.ReversalDate,
		FunctionalCurrency: settings.FunctionalCurrency, FiscalYear: period.FiscalYear, Period: period.ID, Lines: lines,
	}, j.SubledgerJournal, map[string]string{DimensionDepartment: department}, period)
}

// departmentOf is the department of a journal as a whole: that of all lines, else the
// ledger's default, else the first that a line has.
func departmentOf(s Settings, lines []PostedLine) (first string) {
	one := true
	for i := range lines {
		department := lines[i].Dimensions[DimensionDepartment]
		if first == "" {
			first = department
		}
		one = one && department != "" && department == first
	}
	if standard := s.DefaultDimensions[DimensionDepartment]; standard != "" && !one {
		return standard
	}
	return first
}

// accepted is the period for a posting that needs no approval of its own.
func (p Period) accepted() Period {
	p.State = PeriodOpen
	p.Tags = slices.DeleteFunc(slices.Clone(p.Tags), func(tag string) bool { return tag == TagLatePosting })
	return p
}

// PlanReopening is PlanReversal for a closing journal of the ledger, which only reopening its
// year reverses.
func PlanReopening(ctx context.Context, l *Ledger, r Reversal) (PlannedReversal, error) {
	return planReversal(ctx, l, r, true)
}
