package gl

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// bankPolicyPackage is the Rego package that decides on bank statements and their matches.
const bankPolicyPackage = "backbone.rules.gl_bank"

//go:embed policy/bank.rego
var bankPolicy string

func bankPolicyModule() ports.PolicyModule {
	return ports.PolicyModule{Path: "modules/gl/policy/bank.rego", Source: bankPolicy}
}

func bankTypes() []module.EventType {
	imported := declare(domain.EventBankStatementImported, "A bank statement, or a part of one, was imported.", `{
		"account": "1010", "statement_id": "2026-03-31/42", "part": 1, "parts": 1, "currency": "USD", "statement_date": "2026-03-31",
		"opening_balance": 1000.00, "closing_balance": 899.50, "lines": [
			{"line_number": 1, "debit_credit": "debit", "amount": 100.50, "booking_date": "2026-03-30", "value_date": "2026-03-31",
				"end_to_end_id": "01JQ7B8C9D0E1F2G3H4J5K6M7N-1", "text": "Supplier payment"}
		]}`)
	imported.Checks, imported.Redactable = []module.Check{domain.CheckBankStatement}, []string{"$.lines[*].text"}
	imported.BusinessKeys = key("bank_statement", "statement_id", "account", "statement_id", "part")
	return []module.EventType{
		imported,
		declare(domain.EventBankLineMatched, "A line of a bank statement was matched with the journal lines that book it.", `{
			"account": "1010", "statement_id": "2026-03-31/42", "part": 1, "line_number": 1, "currency": "USD", "amount": -100.50,
			"matched_as_of": "2026-03-30", "journal_lines": [{"journal_id": "01JQ7B8C9D0E1F2G3H4J5K6M7P", "line_number": 2}]}`),
		explained(domain.EventBankLineUnmatched, "The match of a statement line was taken back."),
	}
}

func bankIntents() []module.IntentType {
	return []module.IntentType{
		{
			Type: "gl.import_bank_statement", Description: "Import a bank statement, or a part of a long one, into the reconciliation of an account.", Policy: bankPolicyPackage,
			Emits: []string{domain.EventBankStatementImported}, Plan: module.WithTexts(module.PlanOf(planImportBankStatement), "text", "reference", "end_to_end_id"),
		},
		{
			Type: "gl.match_bank_line", Description: "Match a line of a bank statement with the journal lines that book it.", Policy: bankPolicyPackage,
			Emits: []string{domain.EventBankLineMatched}, Plan: module.PlanOf(planMatchBankLine),
		},
		{
			Type: "gl.unmatch_bank_line", Description: "Take back the match of a line of a bank statement.", Policy: bankPolicyPackage,
			Emits: []string{domain.EventBankLineUnmatched}, Plan: module.PlanOf(planUnmatchBankLine),
		},
	}
}

// registerBank declares the folds of bank statements. A statement and a line of it have streams
// of their own: no stream grows with the number of statements.
func registerBank(r *module.Registrar) {
	r.Policy(bankPolicyModule())
	r.Fold(module.FoldOf(domain.StreamBankStatement, func() *domain.BankStatementState { return &domain.BankStatementState{} }))
	r.Fold(module.FoldOf(domain.StreamBankLine, func() *domain.BankLineState { return &domain.BankLineState{} }))
}

// planImportBankStatement plans the import of a statement. That the statement follows the one
// before is not checked here: statements may arrive in any order, and the reconciliation shows
// the ones that are missing.
func planImportBankStatement(ctx context.Context, _ module.Input, s module.State, p domain.BankStatement) (module.Plan, error) {
	p.Number()
	if err := p.Check(); err != nil {
		return module.Plan{}, err
	}
	account, err := contract.NewLedger(s).Account(ctx, p.Account)
	if err != nil {
		return module.Plan{}, fault.WithField(err, "/account")
	}
	switch {
	case account.IsControl():
		return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.account.control_account",
			"account %s belongs to the subledger %s and is no bank account; import the statement for the bank account", p.Account, account.Control).
			WithField("/account").With("account", p.Account)
	case !account.AcceptsCurrency(p.Currency):
		return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.account.currency_not_allowed",
			"account %s takes no amounts in %s; import the statement for another account", p.Account, p.Currency).
			WithField("/currency").With("account", p.Account)
	}
	if err := checkPartBefore(ctx, s, p); err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventBankStatementImported, EffectiveDate: p.StatementDate, Stream: p.Stream(), Data: p,
			Entities: entity("account", p.Account),
		}},
		Amount: &module.Amount{Value: p.ClosingBalance, Currency: p.Currency},
	}, nil
}

// duplicateStatementFault makes the fault for a statement id that is taken. It says whether the
// statement that has it is the same one.
func duplicateStatementFault(ctx context.Context, in module.Input, s module.State, h fault.Holder) error {
	var p domain.BankStatement
	if err := json.Unmarshal(in.Payload, &p); err != nil {
		return err
	}
	p.Number()
	held, err := module.Load[*domain.BankStatementState](ctx, s, p.Stream())
	if err != nil {
		return err
	}
	f := duplicateFault(domain.EventBankStatementImported, duplicates[domain.EventBankStatementImported].what).WithHolder(h)
	return f.With("same_content", held.Imported && p.SameMovements(&held.Statement))
}

// checkPartBefore refuses a part whose part before is not there, or ended with another balance.
func checkPartBefore(ctx context.Context, s module.State, p domain.BankStatement) error {
	if p.Part == 1 {
		return nil
	}
	ref := p.StatementRef
	ref.Part--
	before, err := module.Load[*domain.BankStatementState](ctx, s, ref.Stream())
	if err != nil {
		return err
	}
	if !before.Imported {
		return fault.New(fault.FailedPrecondition, "gl.bank_statement.part_missing",
			"part %d of the statement was not imported; import the parts in their order", ref.Part).WithField("/part").With("part", ref.Part)
	}
	if b := &before.Statement; !b.ClosingBalance.Equal(p.OpeningBalance) || b.Currency != p.Currency || b.Parts != p.Parts || b.StatementDate != p.StatementDate {
		return fault.New(fault.Invalid, "gl.bank_statement.part_mismatch",
			"part %d ended with %s %s on %s as one of %d parts, and this part begins with %s %s; send parts of one statement", ref.Part,
			b.ClosingBalance, b.Currency, b.StatementDate, b.Parts, p.OpeningBalance, p.Currency).WithField("/opening_balance").
			WithNumbers(b.ClosingBalance.String(), p.OpeningBalance.String())
	}
	return nil
}

// matchRequest is the payload of gl.match_bank_line.
type matchRequest struct {
	domain.BankLineRef
	JournalLines []domain.JournalLineRef `json:"journal_lines"`
}

// planMatchBankLine plans a match. Of two matches that race for one statement line the stream of
// the line lets one through, of two that race for one journal line the condition on its tag does.
func planMatchBankLine(ctx context.Context, _ module.Input, s module.State, p matchRequest) (module.Plan, error) {
	statement, line, err := loadBankLine(ctx, s, &p.BankLineRef)
	if err != nil {
		return module.Plan{}, err
	}
	state, err := module.Load[*domain.BankLineState](ctx, s, p.Stream())
	if err != nil {
		return module.Plan{}, err
	}
	if state.Match != nil {
		return module.Plan{}, fault.New(fault.Conflict, "gl.bank_line.already_matched",
			"line %d of the statement is matched already; take that back with gl.unmatch_bank_line first", p.LineNumber).
			WithField("/line_number").With("event_id", state.EventID.String())
	}
	if err := checkNotMatched(ctx, s, p.JournalLines); err != nil {
		return module.Plan{}, err
	}
	match := domain.BankMatch{
		BankLineRef: p.BankLineRef, Currency: statement.Currency, Amount: line.Signed(), MatchedAsOf: line.BookingDate, JournalLines: p.JournalLines,
	}
	var sum money.Number
	for i, ref := range p.JournalLines {
		amount, date, err := loadBookedAmount(ctx, s, statement, ref, fmt.Sprintf("/journal_lines/%d", i))
		if err != nil {
			return module.Plan{}, err
		}
		sum, match.MatchedAsOf = sum.Add(amount), max(match.MatchedAsOf, date)
	}
	if !sum.Equal(match.Amount) {
		currency, err := money.LookupCurrency(statement.Currency, statement.StatementDate.Time())
		if err != nil {
			return module.Plan{}, err
		}
		expected, got := match.Amount.Fixed(currency.MinorUnit), sum.Fixed(currency.MinorUnit)
		return module.Plan{}, fault.New(fault.Invalid, "gl.bank_line.amount_mismatch",
			"the statement line is of %s %s and the journal lines make %s; name lines that make up the amount, or post what is missing first", expected, statement.Currency, got).
			WithField("/journal_lines").WithNumbers(expected, got).With("currency", statement.Currency)
	}
	return module.Plan{
		Events: []event.Draft{matchDraft(domain.EventBankLineMatched, match, match.MatchedAsOf)},
		Amount: &module.Amount{Value: line.Amount, Currency: statement.Currency},
	}, nil
}

func matchDraft(eventType string, m domain.BankMatch, date event.Date) event.Draft {
	d := event.Draft{Type: eventType, EffectiveDate: date, Stream: m.Stream(), Data: m, Entities: entity("account", m.Account)}
	for _, ref := range m.JournalLines {
		d.Tags = append(d.Tags, ref.Tag())
		if r := (event.EntityRef{Type: "journal", ID: ref.JournalID, Role: "journal"}); !slices.Contains(d.Entities, r) {
			d.Entities = append(d.Entities, r)
		}
	}
	return d
}

// loadBankLine loads a line of a statement and fills in the first part.
func loadBankLine(ctx context.Context, s module.State, ref *domain.BankLineRef) (*domain.BankStatement, *domain.BankLine, error) {
	ref.Part = cmp.Or(ref.Part, 1)
	state, err := module.Load[*domain.BankStatementState](ctx, s, ref.StatementRef.Stream())
	if err != nil {
		return nil, nil, err
	}
	if !state.Imported {
		return nil, nil, fault.New(fault.NotFound, "gl.bank_statement.not_found",
			"account %s has no such statement; import it with gl.import_bank_statement", ref.Account).WithField("/statement_id").With("account", ref.Account)
	}
	if ref.LineNumber < 1 || ref.LineNumber > len(state.Statement.Lines) {
		return nil, nil, fault.New(fault.NotFound, "gl.bank_line.not_found",
			"the statement has the lines 1 to %d; name one of them", len(state.Statement.Lines)).WithField("/line_number")
	}
	return &state.Statement, &state.Statement.Lines[ref.LineNumber-1], nil
}

// loadBookedAmount reads what a journal line moves on the bank account, and its posting date.
func loadBookedAmount(ctx context.Context, s module.State, statement *domain.BankStatement, ref domain.JournalLineRef, at string) (money.Number, event.Date, error) {
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
	if line.Account != statement.Account {
		return money.Number{}, 0, fault.New(fault.Invalid, "gl.bank_line.account_mismatch",
			"line %d of journal %s is on account %s and the statement of account %s; name a line of that account", ref.LineNumber, journal.Journal.JournalNumber, line.Account, statement.Account).
			WithField(at)
	}
	if line.Currency != statement.Currency {
		return money.Number{}, 0, fault.New(fault.Invalid, "gl.bank_line.currency_mismatch",
			"line %d of journal %s is in %s and the statement in %s; name a line in that currency", ref.LineNumber, journal.Journal.JournalNumber, line.Currency, statement.Currency).
			WithField(at)
	}
	return line.SignedBankAmount(), journal.EffectiveDate, nil
}

// checkNotMatched refuses journal lines that another match has, and a line that is named twice.
// That no further match names one of them becomes a condition of the append.
func checkNotMatched(ctx context.Context, s module.State, refs []domain.JournalLineRef) error {
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

func planUnmatchBankLine(ctx context.Context, _ module.Input, s module.State, p unmatchRequest) (module.Plan, error) {
	if _, _, err := loadBankLine(ctx, s, &p.BankLineRef); err != nil {
		return module.Plan{}, err
	}
	state, err := module.Load[*domain.BankLineState](ctx, s, p.Stream())
	if err != nil {
		return module.Plan{}, err
	}
	if state.Match == nil {
		return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.bank_line.not_matched",
			"line %d of the statement is matched with nothing; there is nothing to take back", p.LineNumber).WithField("/line_number")
	}
	ended := *state.Match
	ended.Reason = p.Reason
	d := matchDraft(domain.EventBankLineUnmatched, ended, ended.MatchedAsOf)
	d.CausedBy = state.EventID
	return module.Plan{Events: []event.Draft{d}, Amount: &module.Amount{Value: ended.Amount.Abs(), Currency: ended.Currency}}, nil
}
