package gl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// levelHard is the level of gl.close_period that cannot be undone.
const levelHard = "hard"

// subledgers are the modules whose periods close with the ledger's.
var subledgers = []string{"ap"}

func (m *Module) planClosePeriod(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	p, err := readPeriod(ctx, in, s)
	if err != nil {
		return module.Plan{}, err
	}
	eventType, allowed := domain.EventPeriodSoftClosed, []string{string(domain.PeriodOpen)}
	hard := p.request.Level == levelHard
	if hard {
		eventType, allowed = domain.EventPeriodHardClosed, []string{string(domain.PeriodOpen), string(domain.PeriodSoftClosed)}
	}
	switch {
	case p.moduleState == domain.PeriodHardClosed:
		return module.Plan{}, p.hardClosedFault()
	case p.moduleState == domain.PeriodOpen, hard && p.moduleState == domain.PeriodSoftClosed:
	default:
		return module.Plan{}, p.wrongStateFault(allowed...)
	}
	if hard {
		if err := m.checkHardClose(ctx, s, p); err != nil {
			return module.Plan{}, err
		}
	}
	drafts := []event.Draft{p.draft(in, eventType, p.request.Module)}
	if p.request.Module == contract.ModuleName {
		for _, name := range subledgers {
			along, err := loadPeriod(ctx, s, name, p.span.Period)
			if err != nil {
				return module.Plan{}, err
			}
			if along.State == domain.PeriodOpen || hard && along.State == domain.PeriodSoftClosed {
				d := p.draft(in, eventType, name)
				d.CausedByIndex = 1
				drafts = append(drafts, d)
			}
		}
	}
	return p.plan(ctx, s, p.request.Level, drafts...)
}

// checkHardClose refuses a hard close while intents that post into the period wait for
// approval, that of the ledger while journals are to be reversed in the period, and while control
// accounts differ from their subledger. With the setting OrderlyClose it also refuses one while an
// earlier period can still be posted to, that of the last period of a year that is not closed, and
// one while recurring journals are due in it or the close checklist has another open item.
func (m *Module) checkHardClose(ctx context.Context, s module.State, p periodContext) error {
	types := m.PostingIntents[p.request.Module]
	if p.request.Module == contract.ModuleName {
		for _, name := range subledgers {
			types = append(types[:len(types):len(types)], m.PostingIntents[name]...)
		}
	}
	waiting, err := s.Waiting(ctx, types, p.span.Start, p.span.End)
	if err != nil {
		return err
	}
	if waiting.Count > 0 {
		return pendingIntentsFault(p.span.Period, waiting)
	}
	if p.request.Module == contract.ModuleName {
		if err := checkNoReversalDue(ctx, s, p.span); err != nil {
			return err
		}
	}
	if err := p.checkSubledger(ctx, s); err != nil {
		return err
	}
	settings, err := contract.NewLedger(s).Settings(ctx)
	if fault.CodeOf(err) == "gl.ledger.not_configured" {
		settings, err = domain.Settings{OrderlyClose: true}, nil
	}
	if err != nil || !settings.OrderlyClose {
		return err
	}
	for _, earlier := range p.calendar.Periods() {
		if earlier.Start >= p.span.Start {
			break
		}
		was, err := loadPeriod(ctx, s, p.request.Module, earlier.Period)
		if err != nil {
			return err
		}
		if was.State == domain.PeriodOpen || was.State == domain.PeriodSoftClosed {
			return fault.New(fault.FailedPrecondition, "gl.period.out_of_order",
				"period %s is still %s for %s; close it for good first", earlier.Period, was.State, p.request.Module).
				With("period", earlier.Period).With("module", p.request.Module)
		}
	}
	if p.request.Module != contract.ModuleName {
		return nil
	}
	if last := p.year.Periods[len(p.year.Periods)-1]; last.Period == p.span.Period {
		if err := p.checkYearClosed(ctx, s); err != nil {
			return err
		}
	}
	if err := checkNoRecurringDue(ctx, s, p.span); err != nil {
		return err
	}
	return p.checkChecklist(ctx, s)
}

// checkNoRecurringDue refuses the hard close of a period in which a recurring journal is due:
// it could not be posted any more.
func checkNoRecurringDue(ctx context.Context, s module.State, span domain.PeriodSpan) error {
	due, err := loadDueRecurring(ctx, s, runRecurring{Through: span.End})
	if err != nil {
		return err
	}
	due = slices.DeleteFunc(due, func(r dueRecurring) bool { return r.date < span.Start })
	if len(due) == 0 {
		return nil
	}
	var names []string
	for _, r := range due[:min(len(due), maxNumbersNamed)] {
		names = append(names, r.RecurringID+" "+r.date.String())
	}
	return fault.New(fault.FailedPrecondition, "gl.period.recurring_due",
		"recurring journals are due in period %[2]s, %[1]d in all (%[3]s); post them with gl.run_recurring, or define them again with a later from", len(due), span.Period, strings.Join(names, ", ")).
		With("period", span.Period).With("due", len(due)).With("recurring", names)
}

// checkChecklist refuses the hard close of a ledger's period while the checklist has an open
// item that blocks it, whichever module added it. Items with codes of their own were checked
// before. A pipeline without read models has no checklist.
func (p periodContext) checkChecklist(ctx context.Context, s module.State) error {
	read := module.ReportRead{Path: contract.ReadModelCloseChecklist, Params: map[string]string{contract.ParamPeriod: p.span.Period}, AsOf: p.span.End}
	for _, tag := range tagsThrough(p.calendar, p.span) { // events with a financial effect have the tags of their periods
		read.Items = append(read.Items, concurrency.Item{Tags: []string{tag}})
	}
	rows, err := module.ReportRows[contract.ChecklistRow](ctx, s, read)
	if code := fault.CodeOf(err); code == "report.not_found" || code == module.CodeReportUnbound {
		return nil
	}
	if err != nil {
		return err
	}
	var open, steps []string
	for _, r := range rows {
		if r.State == contract.ChecklistOpen && r.Blocking == contract.BlocksHardClose {
			open = append(open, r.Module+"/"+r.Item)
			steps = append(steps, fmt.Sprintf("%s/%s (%d): %s", r.Module, r.Item, r.Count, r.NextStep))
		}
	}
	if len(open) == 0 {
		return nil
	}
	return fault.New(fault.FailedPrecondition, "gl.period.checklist_open",
		"period %s has open items: %s; gl/close-checklist shows them", p.span.Period, strings.Join(steps, "; ")).
		With("period", p.span.Period).With("items", open)
}

func pendingIntentsFault(period string, waiting module.WaitingIntents) error {
	ids := make([]string, len(waiting.IDs))
	for i, id := range waiting.IDs {
		ids[i] = id.String()
	}
	return fault.New(fault.FailedPrecondition, "gl.period.pending_intents",
		"intents that would post into period %[2]s wait for approval, %[1]d in all (%[3]s); approve or reject them first", waiting.Count, period, strings.Join(ids, ", ")).
		With("period", period).With("waiting", waiting.Count).With("intent_ids", ids)
}

// checkYearClosed refuses the hard close of a year's last period, after which its income and
// expense could not be closed any more.
func (p periodContext) checkYearClosed(ctx context.Context, s module.State) error {
	y, err := readYear(ctx, s, p.year.Label)
	if err != nil && fault.CodeOf(err) != "gl.ledger.not_configured" {
		return err
	}
	if err == nil && y.state.Closed {
		left, err := y.readResult(ctx, s)
		if err != nil || len(left) == 0 {
			return err
		}
	}
	return fault.New(fault.FailedPrecondition, "gl.period.year_open",
		"period %s is the last of fiscal year %s, which is not closed; close the year first", p.span.Period, p.year.Label).
		With("period", p.span.Period).With("fiscal_year", p.year.Label)
}
