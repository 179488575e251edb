package contract

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// Reversal is a request to reverse a journal.
type Reversal struct {
	Module           string   // module that reverses; a module may reverse its own journals only
	OriginalID       event.ID // journal to reverse
	PostingDate      event.Date
	Reason           string
	JournalID        event.ID // of the reversal, from Input.DocumentID
	SeriesToken      string   // "" is SeriesToken(JournalID)
	SourceEventToken string   // id of the causing event; "" for the ledger's own reversals
	CausedBy         event.ID
	CausedByIndex    int // 1-based index of the causing draft; 0: none
	Index            int // index (from 0) of Journal.Draft in the plan; Reversed follows it
}

// PlannedReversal is the reversing journal and the event that marks the original as
// reversed. The plan must hold both, in this order.
type PlannedReversal struct {
	Journal  PlannedJournal
	Reversed event.Draft
}

// PlanReversal plans a journal with the lines of the original, their sides swapped and
// their amounts and rates copied, so that the two offset each other in functional currency
// too. A journal is reversed once. Faults: gl.journal.not_found, gl.journal.already_reversed,
// gl.journal.is_reversal, gl.journal.is_closing, gl.journal.owned_by_module,
// gl.journal.reversal_date_invalid, those of CheckPeriod.
func PlanReversal(ctx context.Context, l *Ledger, r Reversal) (PlannedReversal, error) {
	return planReversal(ctx, l, r, false)
}

func planReversal(ctx context.Context, l *Ledger, r Reversal, reopens bool) (PlannedReversal, error) {
	original, err := module.Load[*domain.JournalState](ctx, l.state, domain.JournalStream(r.OriginalID.String()))
	if err != nil {
		return PlannedReversal{}, err
	}
	if err := checkReversible(original, r, reopens); err != nil {
		return PlannedReversal{}, err
	}
	if r.PostingDate < original.EffectiveDate {
		// Reports as of a date between the two would have the reversal without the original.
		return PlannedReversal{}, fault.New(fault.Invalid, "gl.journal.reversal_date_invalid",
			"the posting date %s is before the journal's own, %s; use that day or a later one", r.PostingDate, original.EffectiveDate).
			WithField("/posting_date").With("journal_id", r.OriginalID.String())
	}
	period, err := l.CheckPeriod(ctx, r.Module, r.PostingDate)
	if err != nil {
		return PlannedReversal{}, err
	}
	if reopens {
		period = period.accepted()
	}
	was := original.Journal
	posted := domain.JournalPosted{
		JournalType: domain.Reversal, JournalID: r.JournalID.String(), Description: reversalText(was.JournalNumber),
		SourceEventID: r.SourceEventToken, FunctionalCurrency: was.FunctionalCurrency,
		FiscalYear: period.FiscalYear, Period: period.ID, ReversesJournalID: r.OriginalID.String(),
		Lines: slices.Clone(was.Lines),
	}
	if r.Module != ModuleName {
		posted.SourceModule = r.Module
	}
	for i := range posted.Lines {
		posted.Lines[i].Side = posted.Lines[i].Side.Opposite()
	}
	causedBy := r.CausedBy
	if causedBy == (event.ID{}) && r.CausedByIndex == 0 {
		causedBy = original.EventID
	}
	journal, err := draftJournal(posted, SubledgerJournal{
		PostingDate: r.PostingDate, JournalID: r.JournalID, SeriesToken: r.SeriesToken,
		CausedBy: causedBy, CausedByIndex: r.CausedByIndex,
	}, original.Dimensions, period)
	if err != nil {
		return PlannedReversal{}, err
	}
	return PlannedReversal{
		Journal: journal,
		Reversed: event.Draft{
			Type: EventJournalReversed, EffectiveDate: r.PostingDate, Stream: domain.JournalStream(r.OriginalID.String()),
			CausedByIndex: r.Index + 1,
			Data: domain.JournalReversed{
				JournalID: r.OriginalID.String(), ReversedByJournalID: r.JournalID.String(), PostingDate: r.PostingDate, Reason: r.Reason,
			},
			Entities: []event.EntityRef{
				{Type: "journal", ID: r.OriginalID.String(), Role: "subject"},
				{Type: "journal", ID: r.JournalID.String(), Role: "reversal"},
			},
			Tags: slices.Concat(period.Tags, stateTags(was)),
		},
	}, nil
}

// PostedLines returns the lines of a journal. Callers must not change them. Fault:
// gl.journal.not_found.
func (l *Ledger) PostedLines(ctx context.Context, journalID string) ([]PostedLine, error) {
	j, err := module.Load[*domain.JournalState](ctx, l.state, domain.JournalStream(journalID))
	if err != nil {
		return nil, err
	}
	if !j.Posted {
		return nil, fault.New(fault.NotFound, "gl.journal.not_found", "there is no journal with this id").With("journal_id", journalID)
	}
	return j.Journal.Lines, nil
}

func reversalText(number string) string { return "Reversal of " + number }

func checkReversible(original *domain.JournalState, r Reversal, reopens bool) error {
	id := r.OriginalID.String()
	refuse := func(kind fault.Kind, code, detail string, args ...any) *fault.Error {
		return fault.New(kind, code, detail, args...).With("journal_id", id)
	}
	owner := original.Journal.SourceModule
	if owner == "" {
		owner = ModuleName
	}
	switch {
	case !original.Posted:
		return refuse(fault.NotFound, "gl.journal.not_found", "there is no such journal; look it up by its number")
	case original.ReversedBy != "":
		return refuse(fault.Conflict, "gl.journal.already_reversed",
			"journal %s was reversed by journal %s; a journal is reversed once, post a new one instead", original.Journal.JournalNumber, original.ReversedBy)
	case original.Journal.JournalType == domain.Reversal:
		return refuse(fault.FailedPrecondition, "gl.journal.is_reversal",
			"journal %s is itself a reversal; post the original again instead", original.Journal.JournalNumber)
	case original.Journal.JournalType == domain.Closing && !reopens:
		return refuse(fault.FailedPrecondition, "gl.journal.is_closing",
			"journal %s closes a year; reopen the year instead", original.Journal.JournalNumber)
	case owner != r.Module:
		return refuse(fault.FailedPrecondition, "gl.journal.owned_by_module",
			"journal %s belongs to module %s; void its document there", original.Journal.JournalNumber, owner).With("module", owner)
	}
	return nil
}
