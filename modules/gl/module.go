// Package gl is the general ledger: the chart of accounts, the calendar with its periods,
// exchange rates, and balanced journals. Module declares it. Other modules post through
// package contract; gl imports none of them and knows them by name only, to close their
// periods.
package gl

import (
	"cmp"
	"embed"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
	"github.com/erpbackbone/backbone/ports"
)

// policyPackage is the Rego package that decides on the ledger's intents.
const policyPackage = "backbone.rules.gl"

//go:embed schema/*.json
var schemas embed.FS

//go:embed policy/gl.rego
var policy string

// Module is the general ledger.
type Module struct {
	// PostingIntents names, per module, the intents that post into a period. While one of
	// them waits for approval, its period cannot be hard-closed.
	PostingIntents map[string][]string
}

// New makes the module. Its list of posting intents also names intents that accounts
// payable does not declare yet, of which none can wait.
func New() *Module {
	return &Module{PostingIntents: map[string][]string{
		"gl": {"gl.post_journal", "gl.reverse_journal", "gl.run_due_reversals", "gl.load_opening_balances", "gl.run_recurring", "gl.close_year", "gl.reopen_year", "gl.revalue", "gl.post_intercompany", "gl.mirror_intercompany", "gl.run_allocation"},
		"ap": {
			"ap.submit_invoice", "ap.correct_invoice", "ap.approve_invoice", "ap.void_invoice",
			"ap.submit_credit_memo", "ap.correct_credit_memo", "ap.approve_credit_memo", "ap.void_credit_memo",
			"ap.apply_credit", "ap.unapply_credit", "ap.apply_prepayment", "ap.execute_payment", "ap.void_payment",
		},
	}}
}

// Name is "gl".
func (m *Module) Name() string { return contract.ModuleName }

// Register declares everything the ledger has.
func (m *Module) Register(r *module.Registrar) error {
	r.Prefixes(contract.ModuleName)
	r.Roles(roles()...)
	r.Policy(ports.PolicyModule{Path: "modules/gl/policy/gl.rego", Source: policy})
	for _, t := range eventTypes() {
		t.SchemaVersion = cmp.Or(t.SchemaVersion, 1)
		schema, err := readSchema(fmt.Sprintf("%s.v%d", t.Type, t.SchemaVersion))
		if err != nil {
			return err
		}
		t.DataSchema, t.Module = schema, "general_ledger"
		t.RetentionClass, t.MinRetentionYears = eventtype.Regulatory, 7
		r.EventType(t)
	}
	for _, t := range m.intents() {
		schema, err := readSchema(t.Type + ".intent")
		if err != nil {
			return err
		}
		t.Schema, t.Policy = schema, cmp.Or(t.Policy, policyPackage)
		t.OnDuplicate = onDuplicate
		t.Plan = module.WithTexts(t.Plan, "description", "name", "reason")
		r.Intent(t)
	}
	registerFolds(r)
	registerBank(r)
	registerEntities(r)
	registerReadModels(r)
	return nil
}

func readSchema(name string) (json.RawMessage, error) {
	b, err := schemas.ReadFile("schema/" + name + ".json")
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", name, err)
	}
	return b, nil
}

func eventTypes() []module.EventType {
	return slices.Concat(settingsTypes(), chartTypes(), accountChangeTypes(), calendarTypes(), rateTypes(), journalTypes(), recurringTypes(), yearTypes(), revaluationTypes(), intercompanyTypes(), allocationTypes(), bankTypes())
}

func (m *Module) intents() []module.IntentType {
	return slices.Concat(settingsIntents(), chartIntents(), accountChangeIntents(), m.calendarIntents(), rateIntents(), journalIntents(), dueReversalIntents(), openingIntents(), recurringIntents(), yearIntents(), revaluationIntents(), intercompanyIntents(), allocationIntents(), bankIntents())
}

// declare makes an event type of the ledger, without an example if it is "".
func declare(name, description, example string) module.EventType {
	t := module.EventType{Registration: eventtype.Registration{Type: name, Description: description}}
	if example != "" {
		t.Examples = []json.RawMessage{json.RawMessage(example)}
	}
	return t
}

// explained makes an event type with a reason, which nothing reads but people.
func explained(name, description string) module.EventType {
	t := declare(name, description, "")
	t.Redactable = []string{"$.reason"}
	return t
}

// key makes the business key of an event type.
func key(name, document string, fields ...string) []eventtype.BusinessKeyRule {
	return []eventtype.BusinessKeyRule{{Name: name, Fields: fields, Document: document}}
}

func registerFolds(r *module.Registrar) {
	r.StaysOnline(contract.TagRecurring, contract.TagReversalDue, contract.TagOpeningBalances)
	r.Fold(module.StoredFoldOf(domain.StreamLedger, 1, func() *domain.LedgerState { return &domain.LedgerState{} }))
	r.Fold(module.FoldOf(domain.StreamCalendar, func() *domain.Calendar { return &domain.Calendar{} }))
	r.Fold(module.StoredFoldOf(domain.StreamPeriod, 1, domain.NewModulePeriod))
	r.Fold(module.StoredFoldOf(domain.StreamFiscalYear, 1, func() *domain.YearState { return &domain.YearState{} }))
	r.Fold(module.StoredFoldOf(domain.StreamRevaluation, 1, func() *domain.RevaluationState { return &domain.RevaluationState{} }))
	r.Fold(module.StoredFoldOf(domain.StreamAllocation, 1, func() *domain.AllocationState { return &domain.AllocationState{} }))
	r.Fold(module.StoredFoldOf(domain.StreamAccount, 1, func() *domain.AccountState { return &domain.AccountState{} }))
	r.Fold(module.StoredFoldOf(domain.StreamJournal, 1, func() *domain.JournalState { return &domain.JournalState{} }))
	r.Fold(module.StoredFoldOf(domain.StreamIntercompany, 1, func() *domain.IntercompanyState { return &domain.IntercompanyState{} }))
	r.Fold(module.LongFoldOf(domain.StreamDimension, 1, domain.NewDimensionState))
	r.Fold(module.LongFoldOf(domain.StreamExchangeRate, 1, func() *domain.RateHistory { return &domain.RateHistory{} }))
}
