package gl

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// matchRequest is the payload of gl.match_bank_line. Its schema allows 32 lines of either side,
// since the journal lines are tags of one event.
type matchRequest struct {
	domain.BankLineRef
	FurtherLines []furtherLine           `json:"further_lines"`
	JournalLines []domain.JournalLineRef `json:"journal_lines"`
}

// furtherLine names a line of any statement of the same account.
type furtherLine struct {
	StatementID string `json:"statement_id"`
	Part        int    `json:"part"`
	LineNumber  int    `json:"line_number"`
}

// planMatchBankLine plans a match of one or several statement lines with none or several journal
// lines, whose sums are equal. Of two matches that race for one statement line the stream of the
// line lets one through, of two that race for one journal line the condition on its tag does.
func planMatchBankLine(ctx context.Context, _ module.Input, s module.State, p matchRequest) (module.Plan, error) {
	match := domain.BankMatch{JournalLines: p.JournalLines}
	refs := []domain.BankLineRef{p.BankLineRef}
	for _, l := range p.FurtherLines {
		refs = append(refs, domain.MatchedLine{StatementID: l.StatementID, Part: l.Part, LineNumber: l.LineNumber}.Ref(p.Account))
	}
	var lines []domain.MatchedLine
	var moved, booked money.Number
	for i, ref := range refs {
		at := ""
		if i > 0 {
			at = fmt.Sprintf("/further_lines/%d", i-1)
		}
		statement, line, err := loadUnmatchedLine(ctx, s, &ref, at)
		if err != nil {
			return module.Plan{}, err
		}
		if i == 0 {
			match.BankLineRef, match.Currency, match.Amount = ref, statement.Currency, line.Signed()
		}
		if statement.Currency != match.Currency {
			return module.Plan{}, fault.New(fault.Invalid, "gl.bank_line.currency_mismatch",
				"the statement line is in %s and the first one in %s; match lines of one currency", statement.Currency, match.Currency).WithField(at + "/statement_id")
		}
		named := domain.MatchedLine{StatementID: ref.StatementID, Part: ref.Part, LineNumber: ref.LineNumber, Amount: line.Signed()}
		if slices.ContainsFunc(lines, func(l domain.MatchedLine) bool { return l.Ref(p.Account) == ref }) {
			return module.Plan{}, fault.New(fault.Invalid, "intent.schema_invalid", "a statement line is named twice; name it once").WithField(at)
		}
		lines, moved, match.MatchedAsOf = append(lines, named), moved.Add(named.Amount), max(match.MatchedAsOf, line.BookingDate)
	}
	if len(lines) > 1 {
		match.StatementLines = lines
	}
	if err := checkNotMatched(ctx, s, p.JournalLines); err != nil {
		return module.Plan{}, err
	}
	for i, ref := range p.JournalLines {
		amount, date, err := loadBookedAmount(ctx, s, &match, ref, fmt.Sprintf("/journal_lines/%d", i))
		if err != nil {
			return module.Plan{}, err
		}
		booked, match.MatchedAsOf = booked.Add(amount), max(match.MatchedAsOf, date)
	}
	if !moved.Equal(booked) {
		currency, err := money.LookupCurrency(match.Currency, time.Time{})
		if err != nil {
			return module.Plan{}, err
		}
		expected, got := moved.Fixed(currency.MinorUnit), booked.Fixed(currency.MinorUnit)
		return module.Plan{}, fault.New(fault.Invalid, "gl.bank_line.amount_mismatch",
			"the statement lines make %s %s and the journal lines %s; name lines that make up the same amount, or post what is missing first", expected, match.Currency, got).
			WithField("/journal_lines").WithNumbers(expected, got).With("currency", match.Currency)
	}
	var drafts []event.Draft
	for _, m := range match.PerLine() {
		drafts = append(drafts, matchDraft(domain.EventBankLineMatched, m))
	}
	return module.Plan{Events: drafts, Amount: &module.Amount{Value: match.MovedAmount(), Currency: match.Currency}}, nil
}

// matchDraft makes the event of a match for one of its statement lines.
func matchDraft(eventType string, m domain.BankMatch) event.Draft {
	d := event.Draft{Type: eventType, EffectiveDate: m.MatchedAsOf, Stream: m.Stream(), Data: m, Entities: entity("account", m.Account)}
	for _, ref := range m.JournalLines {
		if m.IsFirst() {
			d.Tags = append(d.Tags, ref.Tag())
		}
		if r := (event.EntityRef{Type: "journal", ID: ref.JournalID, Role: "journal"}); !slices.Contains(d.Entities, r) {
			d.Entities = append(d.Entities, r)
		}
	}
	return d
}

// loadBankLine loads a line of a statement and fills in the first part. at leads to the reference.
func loadBankLine(ctx context.Context, s module.State, ref *domain.BankLineRef, at string) (*domain.BankStatement, *domain.BankLine, error) {
	state, err := loadBankStatement(ctx, s, &ref.StatementRef, at)
	if err != nil {
		return nil, nil, err
	}
	if ref.LineNumber < 1 || ref.LineNumber > len(state.Statement.Lines) {
		return nil, nil, fault.New(fault.NotFound, "gl.bank_line.not_found",
			"the statement has the lines 1 to %d; name one of them", len(state.Statement.Lines)).WithField(at + "/line_number")
	}
	return &state.Statement, &state.Statement.Lines[ref.LineNumber-1], nil
}

// loadUnmatchedLine loads a line of a statement and refuses one that is matched.
func loadUnmatchedLine(ctx context.Context, s module.State, ref *domain.BankLineRef, at string) (*domain.BankStatement, *domain.BankLine, error) {
	statement, line, err := loadBankLine(ctx, s, ref, at)
	if err != nil {
		return nil, nil, err
	}
	state, err := module.Load[*domain.BankLineState](ctx, s, ref.Stream())
	if err == nil && state.Match != nil {
		err = fault.New(fault.Conflict, "gl.bank_line.already_matched",
			"line %d of the statement is matched already; take that back with gl.unmatch_bank_line first", ref.LineNumber).
			WithField(at+"/line_number").With("event_id", state.EventID.String())
	}
	return statement, line, err
}

// loadBookedAmount reads what a journal line moves on the bank account, and its posting date.
func loadBookedAmount(ctx context.Context, s module.State, match *domain.BankMatch, ref domain.JournalLineRef, at string) (money.Number, event.Date, error) {
	journal, err := module.Load[*domain.JournalState](ctx, s, domain.JournalStream(ref.JournalID))
	if err != nil {
		return money.Number{}, 0, err
	}
	i := slices.IndexFunc(journal.Journal.Lines, func(l domain.Line) bool { return l.LineNumber == ref.LineNumber })
	switch {
	case !journal.Posted:
		return money.Number{}, 0, fault.New(fault.NotFound, "gl.journal.not_found",
			"there is no journal with this id; look it up in gl/bank-reconciliation").WithField(at + "/journal_id")
	case i < 0:
		return money.Number{}, 0, fault.New(fault.NotFound, "gl.journal_line.not_found",
			"journal %s has no line %d; look it up in gl/bank-reconciliation", journal.Journal.JournalNumber, ref.LineNumber).WithField(at + "/line_number")
	}
	line := &journal.Journal.Lines[i]
	if line.Account != match.Account {
		return money.Number{}, 0, fault.New(fault.Invalid, "gl.bank_line.account_mismatch",
			"line %d of journal %s is on account %s and the statement of account %[4]s; name a line of account %[4]s", ref.LineNumber, journal.Journal.JournalNumber, line.Account, match.Account).
			WithField(at)
	}
	if line.Currency != match.Currency {
		return money.Number{}, 0, fault.New(fault.Invalid, "gl.bank_line.currency_mismatch",
			"line %d of journal %s is in %s and the statement in %[4]s; name a line in %[4]s", ref.LineNumber, journal.Journal.JournalNumber, line.Currency, match.Currency).
			WithField(at)
	}
	return line.SignedBankAmount(), journal.EffectiveDate, nil
}

// checkNotMatched refuses journal lines that another match has, and a line that is named twice.
// That no further match names one of them becomes a condition of the append.
func checkNotMatched(ctx context.Context, s module.State, refs []domain.JournalLineRef) error {
	if len(refs) == 0 {
		return nil
	}
	holders := map[domain.JournalLineRef]event.ID{}
	var items []concurrency.Item
	for i, ref := range refs {
		if slices.Contains(refs[:i], ref) {
			return fault.New(fault.Invalid, "intent.schema_invalid", "a journal line is named twice; name it once").WithField(fmt.Sprintf("/journal_lines/%d", i))
		}
		items = append(items, concurrency.Item{Types: []string{domain.EventBankLineMatched, domain.EventBankLineUnmatched}, Tags: []string{ref.Tag()}})
	}
	err := s.Decide(ctx, module.Projector{Items: items, Apply: func(e event.Recorded, data []byte) error {
		var m domain.BankMatch
		if err := json.Unmarshal(data, &m); err != nil {
			return err
		}
		for _, ref := range m.JournalLines {
			if e.Type == domain.EventBankLineMatched {
				holders[ref] = e.ID
			} else {
				delete(holders, ref)
			}
		}
		return nil
	}})
	if err != nil {
		return err
	}
	for i, ref := range refs {
		if holder, matched := holders[ref]; matched {
			return fault.New(fault.Conflict, "gl.journal_line.already_matched",
				"line %d of the journal is matched with another statement line; take that back with gl.unmatch_bank_line first", ref.LineNumber).
				WithField(fmt.Sprintf("/journal_lines/%d", i)).With("event_id", holder.String())
		}
	}
	return nil
}

// unmatchRequest is the payload of gl.unmatch_bank_line.
type unmatchRequest struct {
	domain.BankLineRef
	Reason string `json:"reason"`
}

// planUnmatchBankLine plans the end of the match that a line is in, for all its statement lines.
func planUnmatchBankLine(ctx context.Context, _ module.Input, s module.State, p unmatchRequest) (module.Plan, error) {
	if _, _, err := loadBankLine(ctx, s, &p.BankLineRef, ""); err != nil {
		return module.Plan{}, err
	}
	named, err := module.Load[*domain.BankLineState](ctx, s, p.Stream())
	if err != nil {
		return module.Plan{}, err
	}
	if named.Match == nil {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.bank_line.not_matched",
			"line %d of the statement is matched with nothing; there is nothing to take back", p.LineNumber).WithField("/line_number")
	}
	var drafts []event.Draft
	for _, m := range named.Match.PerLine() {
		state, err := module.Load[*domain.BankLineState](ctx, s, m.Stream())
		if err != nil {
			return module.Plan{}, err
		}
		m.Reason = p.Reason
		d := matchDraft(domain.EventBankLineUnmatched, m)
		d.CausedBy = state.EventID
		drafts = append(drafts, d)
	}
	return module.Plan{Events: drafts, Amount: &module.Amount{Value: named.Match.MovedAmount(), Currency: named.Match.Currency}}, nil
}
