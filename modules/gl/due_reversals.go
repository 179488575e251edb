package gl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func dueReversalIntents() []module.IntentType {
	return []module.IntentType{{
		Type: "gl.run_due_reversals", Description: "Reverse the journals whose reversal date has come.",
		Emits: []string{domain.EventJournalPosted, domain.EventJournalReversed}, Plan: module.PlanOf(planRunDueReversals),
	}}
}

// maxJournalsPerRun bounds the journals that one intent posts by itself. A batch holds 100
// events, and a reversal is two. maxLinesPerRun bounds their lines, beyond the first journal.
const (
	maxJournalsPerRun = 40
	maxLinesPerRun    = 10_000
)

// loadDueReversals returns the ledger's own standing journals with a reversal date in the
// range, by date and number. That there are no more of them becomes an append condition.
func loadDueReversals(ctx context.Context, s module.State, from, through event.Date) ([]standingJournal, error) {
	journals, err := standingJournals(ctx, s, contract.TagReversalDue)
	if err != nil {
		return nil, err
	}
	due := slices.DeleteFunc(journals, func(j standingJournal) bool {
		date := j.data.ReversalDate
		return date == nil || *date < from || *date > through || j.data.SourceModule != ""
	})
	slices.SortStableFunc(due, func(a, b standingJournal) int {
		return cmp.Compare(*a.data.ReversalDate, *b.data.ReversalDate)
	})
	return due, nil
}

// maxNumbersNamed bounds the journal numbers in a fault.
const maxNumbersNamed = 20

// checkNoReversalDue refuses the hard close of a period in which journals are to be reversed.
func checkNoReversalDue(ctx context.Context, s module.State, span domain.PeriodSpan) error {
	due, err := loadDueReversals(ctx, s, span.Start, span.End)
	if err != nil || len(due) == 0 {
		return err
	}
	var numbers []string
	for _, d := range due[:min(len(due), maxNumbersNamed)] {
		numbers = append(numbers, d.data.JournalNumber)
	}
	return fault.New(fault.FailedPrecondition, "gl.period.reversals_due",
		"journals are to be reversed in period %[2]s, %[1]d in all (%[3]s); reverse them with gl.run_due_reversals first", len(due), span.Period, strings.Join(numbers, ", ")).
		With("period", span.Period).With("due", len(due)).With("journal_numbers", numbers)
}

type runThrough struct {
	Through event.Date `json:"through"`
}

// planRunDueReversals reverses each journal that is due on its reversal date. What is more
// than one batch holds stays for the next run; the rule trace says how many.
func planRunDueReversals(ctx context.Context, in module.Input, s module.State, p runThrough) (module.Plan, error) {
	ledger := contract.NewLedger(s)
	settings, err := ledger.Settings(ctx)
	if err != nil {
		return module.Plan{}, err
	}
	due, err := loadDueReversals(ctx, s, 0, p.Through)
	if err != nil {
		return module.Plan{}, err
	}
	plan, lines := module.Plan{}, 0
	var journals []contract.PlannedJournal
	for i, d := range due[:min(len(due), maxJournalsPerRun)] {
		date := *d.data.ReversalDate
		planned, err := contract.PlanReversal(ctx, ledger, contract.Reversal{
			Module: contract.ModuleName, OriginalID: d.id, PostingDate: date, Reason: "Reversal date " + date.String(),
			JournalID: in.DocumentID(i), Index: len(plan.Events),
		})
		if err != nil {
			return module.Plan{}, nameJournal(err, d.data.JournalNumber)
		}
		if lines += len(planned.Journal.Lines); lines > maxLinesPerRun && i > 0 {
			break
		}
		plan.Events = append(plan.Events, planned.Journal.Draft, planned.Reversed)
		journals = append(journals, planned.Journal)
	}
	plan.Rules = []event.RuleEvaluation{
		runRule("gl.reversals.due", "Journals to reverse through "+p.Through.String(), len(journals), len(due)-len(journals)),
	}
	plan.Facts, plan.Amount = runFacts(settings, journals)
	return plan, nil
}

// nameJournal adds the number of the journal to a fault about one of many.
func nameJournal(err error, number string) error {
	if f, ok := fault.As(err); ok {
		return f.WithField("").With("journal_number", number)
	}
	return err
}

// runRule is the trace of a run that posts journals by itself.
func runRule(id, name string, posted, left int) event.RuleEvaluation {
	r := event.RuleEvaluation{RuleID: id, RuleName: name, Result: event.RuleConditionFalse}
	if posted > 0 {
		r.Result = event.RuleFired
		r.ActionsTaken = []string{fmt.Sprintf("posted %d", posted), fmt.Sprintf("left %d", left)}
	}
	return r
}

// runFacts are the facts of a run: the largest journal counts against the limit, as if each
// were posted alone, and the strictest period decides about late postings. The amount is the
// sum.
func runFacts(s domain.Settings, journals []contract.PlannedJournal) (facts, *module.Amount) {
	known := facts{SecondPerson: s.SecondPerson, Limits: s.EffectiveLimits()}
	if len(journals) == 0 {
		return known, nil
	}
	largest, sum, period := money.Number{}, money.Number{}, journals[0].Period
	for _, j := range journals {
		if j.Journal.TotalDebit.Cmp(largest) > 0 {
			largest = j.Journal.TotalDebit
		}
		sum = sum.Add(j.Journal.TotalDebit)
		if j.Period.NeedsApproval() && !period.NeedsApproval() {
			period = j.Period
		}
	}
	known.Journal = &journalFacts{Amount: largest, Currency: s.FunctionalCurrency, Period: period}
	return known, &module.Amount{Value: sum, Currency: s.FunctionalCurrency}
}
