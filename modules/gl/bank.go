package gl

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
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
	reimported := imported
	reimported.Type, reimported.Description = domain.EventBankStatementReimported, "A bank statement, or a part of one, was imported again after it was discarded."
	reimported.BusinessKeys, reimported.Examples = nil, nil // the first import has the key
	types := []module.EventType{imported, reimported, explained(domain.EventBankStatementDiscarded, "A bank statement, or a part of one, was taken out of the reconciliation.")}
	for _, version := range []uint32{1, 2} { // version 2 is of several statement lines too
		matched := declare(domain.EventBankLineMatched, "A line of a bank statement was matched with the journal lines that book it.", `{
			"account": "1010", "statement_id": "2026-03-31/42", "part": 1, "line_number": 1, "currency": "USD", "amount": -100.50,
			"matched_as_of": "2026-03-30", "journal_lines": [{"journal_id": "01JQ7B8C9D0E1F2G3H4J5K6M7P", "line_number": 2}]}`)
		unmatched := explained(domain.EventBankLineUnmatched, "The match of a statement line was taken back.")
		matched.SchemaVersion, unmatched.SchemaVersion = version, version
		types = append(types, matched, unmatched)
	}
	return types
}

func bankIntents() []module.IntentType {
	return []module.IntentType{
		{
			Type: "gl.import_bank_statement", Description: "Import a bank statement, or a part of a long one, into the reconciliation of an account.", Policy: bankPolicyPackage,
			Emits: []string{domain.EventBankStatementImported, domain.EventBankStatementReimported},
			Plan:  module.WithTexts(module.PlanOf(planImportBankStatement), "text", "reference", "end_to_end_id"),
		},
		{
			Type: "gl.discard_bank_statement", Description: "Take a bank statement, or a part of a long one, out of the reconciliation.", Policy: bankPolicyPackage,
			Emits: []string{domain.EventBankStatementDiscarded}, Plan: module.PlanOf(planDiscardBankStatement),
		},
		{
			Type: "gl.match_bank_line", Description: "Match lines of bank statements with the journal lines that book them.", Policy: bankPolicyPackage,
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
	r.Fold(module.StoredFoldOf(domain.StreamBankStatement, 1, func() *domain.BankStatementState { return &domain.BankStatementState{} }))
	r.Fold(module.StoredFoldOf(domain.StreamBankLine, 1, func() *domain.BankLineState { return &domain.BankLineState{} }))
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
	was, err := module.Load[*domain.BankStatementState](ctx, s, p.Stream())
	if err != nil {
		return module.Plan{}, err
	}
	eventType := domain.EventBankStatementImported
	switch {
	case was.Imported:
		return module.Plan{}, duplicateStatementFault(&p, was, fault.Holder{EventID: was.EventID.String(), DocumentID: p.StatementID, Sequence: strconv.FormatUint(uint64(was.Sequence), 10)})
	case was.Discarded:
		eventType = domain.EventBankStatementReimported
	}
	if err := checkPartBefore(ctx, s, p); err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: eventType, EffectiveDate: p.StatementDate, Stream: p.Stream(), Data: p, Entities: entity("account", p.Account),
		}},
		Amount: &module.Amount{Value: p.ClosingBalance, Currency: p.Currency},
	}, nil
}

// onDuplicateStatement makes the fault for a statement whose business key another event has.
func onDuplicateStatement(ctx context.Context, in module.Input, s module.State, h fault.Holder) error {
	var p domain.BankStatement
	if err := json.Unmarshal(in.Payload, &p); err != nil {
		return err
	}
	p.Number()
	held, err := module.Load[*domain.BankStatementState](ctx, s, p.Stream())
	if err != nil {
		return err
	}
	return duplicateStatementFault(&p, held, h)
}

// duplicateStatementFault makes the fault for a statement id that is taken. It says whether the
// statement that has it is the same one.
func duplicateStatementFault(p *domain.BankStatement, held *domain.BankStatementState, h fault.Holder) error {
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

// maxLinesNamed bounds the statement lines that a refusal names.
const maxLinesNamed = 20

// discardRequest is the payload of gl.discard_bank_statement.
type discardRequest struct {
	domain.StatementRef
	Reason string `json:"reason"`
}

// planDiscardBankStatement plans to take a statement out of the reconciliation. A match reads the
// stream of the statement, and this plan reads those of its lines: of a match and a discard that
// race for one statement, one is refused.
func planDiscardBankStatement(ctx context.Context, _ module.Input, s module.State, p discardRequest) (module.Plan, error) {
	state, err := loadBankStatement(ctx, s, &p.StatementRef, "")
	if err != nil {
		return module.Plan{}, err
	}
	statement := &state.Statement
	if p.Part < statement.Parts {
		next := p.StatementRef
		next.Part++
		after, err := module.Load[*domain.BankStatementState](ctx, s, next.Stream())
		if err != nil {
			return module.Plan{}, err
		}
		if after.Imported {
			return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.bank_statement.part_follows",
				"part %d of the statement begins where this part ends; discard the last part first", next.Part).WithField("/part").With("part", next.Part)
		}
	}
	var matched []int
	for i := range statement.Lines {
		number := statement.Lines[i].LineNumber
		line, err := module.Load[*domain.BankLineState](ctx, s, domain.BankLineRef{StatementRef: p.StatementRef, LineNumber: number}.Stream())
		if err != nil {
			return module.Plan{}, err
		}
		if line.Match != nil {
			matched = append(matched, number)
		}
	}
	if len(matched) > 0 {
		named := matched[:min(len(matched), maxLinesNamed)]
		return module.Plan{}, fault.New(fault.FailedPrecondition, "gl.bank_statement.has_matches",
			"%d lines of the statement are matched (%s); take that back with gl.unmatch_bank_line first", len(matched), joinNumbers(named)).
			WithField("/statement_id").With("matched", len(matched)).With("line_numbers", named)
	}
	known, err := loadFacts(ctx, contract.NewLedger(s))
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventBankStatementDiscarded, EffectiveDate: statement.StatementDate, Stream: p.Stream(), Entities: entity("account", p.Account),
			CausedBy: state.EventID, Data: domain.DiscardedStatement{StatementRef: p.StatementRef, Reason: p.Reason},
		}},
		Facts: known, Amount: &module.Amount{Value: statement.ClosingBalance, Currency: statement.Currency},
	}, err
}

func joinNumbers(numbers []int) string {
	parts := make([]string, len(numbers))
	for i, n := range numbers {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ", ")
}

// loadBankStatement loads a statement and fills in the first part. at leads to the reference.
func loadBankStatement(ctx context.Context, s module.State, ref *domain.StatementRef, at string) (*domain.BankStatementState, error) {
	ref.Part = cmp.Or(ref.Part, 1)
	state, err := module.Load[*domain.BankStatementState](ctx, s, ref.Stream())
	if err == nil && !state.Imported {
		err = fault.New(fault.NotFound, "gl.bank_statement.not_found",
			"account %s has no such statement; import it with gl.import_bank_statement", ref.Account).WithField(at+"/statement_id").With("account", ref.Account)
	}
	return state, err
}
