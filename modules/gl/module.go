// Package gl is the general ledger: the chart of accounts, the calendar with its periods,
// exchange rates, and balanced journals. Module declares it. Other modules post through
// package contract; gl imports none of them and knows them by name only, to close their
// periods.
package gl

import (
	"embed"
	"encoding/json"
	"fmt"

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
		"gl": {"gl.post_journal", "gl.reverse_journal"},
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
		schema, err := readSchema(t.Type + ".v1")
		if err != nil {
			return err
		}
		t.DataSchema, t.SchemaVersion, t.Module = schema, 1, "general_ledger"
		t.RetentionClass, t.MinRetentionYears = eventtype.Regulatory, 7
		r.EventType(t)
	}
	for _, t := range m.intents() {
		schema, err := readSchema(t.Type + ".intent")
		if err != nil {
			return err
		}
		t.Schema, t.Policy = schema, policyPackage
		t.OnDuplicate = onDuplicate
		r.Intent(t)
	}
	registerFolds(r)
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
	key := func(name, document string, fields ...string) []eventtype.BusinessKeyRule {
		return []eventtype.BusinessKeyRule{{Name: name, Fields: fields, Document: document}}
	}
	declare := func(name, description string, example string) module.EventType {
		t := module.EventType{Registration: eventtype.Registration{Type: name, Description: description}}
		if example != "" {
			t.Examples = []json.RawMessage{json.RawMessage(example)}
		}
		return t
	}
	journal := declare(domain.EventJournalPosted, "A journal entered the general ledger. Debits equal credits in every currency and in functional currency.", `{
		"journal_number": "GJ-2026-000001", "journal_type": "general", "description": "Rent for March",
		"functional_currency": "USD", "fiscal_year": "2026", "period": "2026-03",
		"lines": [
			{"line_number": 1, "account": "6000", "debit_credit": "debit", "amount": 1200.00, "currency": "USD", "amount_in_reporting_currency": 1200.00},
			{"line_number": 2, "account": "1000", "debit_credit": "credit", "amount": 1200.00, "currency": "USD", "amount_in_reporting_currency": 1200.00}
		],
		"total_debit": 1200.00, "total_credit": 1200.00}`)
	journal.RequiredDimensions = []string{contract.DimensionDepartment}
	journal.OptionalDimensions = []string{"cost_center", "project", "customer", "vendor"}
	journal.BusinessKeys = key("journal_number", "journal_id", "journal_number")
	journal.Checks = []module.Check{domain.CheckJournal}
	journal.Redactable = []string{"$.description", "$.lines[*].description", "$.lines[*].account_name"}

	account := declare(domain.EventAccountDefined, "An account joined the chart of accounts.", "")
	account.BusinessKeys, account.Redactable = key("code", "code", "code"), []string{"$.name"}
	value := declare(domain.EventDimensionValueDefined, "A value joined a dimension.", "")
	value.BusinessKeys, value.Redactable = key("value", "value", "dimension", "value"), []string{"$.name"}
	year := declare(domain.EventFiscalYearDefined, "A fiscal year with its periods was defined.", "")
	year.BusinessKeys = key("label", "label", "label")
	rate := declare(domain.EventExchangeRateSet, "A rate was set for a day: units of to per 1 from.",
		`{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2026-03-01", "rate": 1.0834}`)
	rate.Checks, rate.Redactable = []module.Check{checkRate}, []string{"$.reason"}
	year.Checks = []module.Check{checkYear}
	calendar := declare(domain.EventCalendarExtended, "A fiscal year joined the calendar, from which the period of a date is read.", "")
	calendar.Checks = []module.Check{checkYear}
	configured := declare(domain.EventLedgerConfigured, "The ledger's settings, whole.", "")
	configured.Checks = []module.Check{checkConfigured}

	// Nothing reads the reasons of these changes but people.
	explained := func(name, description string) module.EventType {
		t := declare(name, description, "")
		t.Redactable = []string{"$.reason"}
		return t
	}
	return []module.EventType{
		journal, account, value, year, calendar, rate, configured,
		explained(domain.EventJournalReversed, "A journal was reversed by another one."),
		explained(domain.EventAccountBlocked, "An account takes no more lines."),
		explained(domain.EventAccountUnblocked, "An account takes lines again."),
		explained(domain.EventPeriodOpened, "A period was opened for a module."),
		explained(domain.EventPeriodSoftClosed, "A period was closed for a module; late postings need approval."),
		explained(domain.EventPeriodHardClosed, "A period was closed for a module for good."),
		explained(domain.EventPeriodReopened, "A softly closed period was opened again for a module."),
	}
}

func (m *Module) intents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.configure_ledger", Description: "Set the ledger's configuration as a whole.", Emits: []string{domain.EventLedgerConfigured}, Plan: module.PlanOf(planConfigure)},
		{Type: "gl.define_account", Description: "Add an account to the chart.", Emits: []string{domain.EventAccountDefined}, Plan: planDefineAccount},
		{Type: "gl.block_account", Description: "Let an account take no more lines.", Emits: []string{domain.EventAccountBlocked}, Plan: planBlockAccount},
		{Type: "gl.unblock_account", Description: "Let a blocked account take lines again.", Emits: []string{domain.EventAccountUnblocked}, Plan: planUnblockAccount},
		{Type: "gl.define_dimension_value", Description: "Add a value to a dimension.", Emits: []string{domain.EventDimensionValueDefined}, Plan: module.PlanOf(planDefineDimensionValue)},
		{Type: "gl.define_fiscal_year", Description: "Define a fiscal year; without periods it is cut at the ends of months.", Emits: []string{domain.EventFiscalYearDefined, domain.EventCalendarExtended}, Plan: module.PlanOf(planDefineFiscalYear)},
		{Type: "gl.open_period", Description: "Open a period for a module.", Emits: []string{domain.EventPeriodOpened}, Plan: planOpenPeriod},
		{Type: "gl.close_period", Description: "Close a period for a module, softly or for good.", Emits: []string{domain.EventPeriodSoftClosed, domain.EventPeriodHardClosed}, Plan: m.planClosePeriod},
		{Type: "gl.reopen_period", Description: "Open a softly closed period again.", Emits: []string{domain.EventPeriodReopened}, Plan: planReopenPeriod},
		{Type: "gl.post_journal", Description: "Post a journal.", Emits: []string{domain.EventJournalPosted}, Plan: module.PlanOf(planPostJournal)},
		{Type: "gl.reverse_journal", Description: "Reverse one of the ledger's own journals.", Emits: []string{domain.EventJournalPosted, domain.EventJournalReversed}, Plan: module.PlanOf(planReverseJournal)},
		{Type: "gl.set_exchange_rate", Description: "Set the rate of a day.", Emits: []string{domain.EventExchangeRateSet}, Plan: planSetExchangeRate},
	}
}

func registerFolds(r *module.Registrar) {
	r.Fold(module.FoldOf(domain.StreamLedger, func() *domain.LedgerState { return &domain.LedgerState{} }))
	r.Fold(module.FoldOf(domain.StreamCalendar, func() *domain.Calendar { return &domain.Calendar{} }))
	r.Fold(module.FoldOf(domain.StreamPeriod, domain.NewModulePeriod))
	r.Fold(module.FoldOf(domain.StreamAccount, func() *domain.AccountState { return &domain.AccountState{} }))
	r.Fold(module.FoldOf(domain.StreamJournal, func() *domain.JournalState { return &domain.JournalState{} }))
	// These two streams grow without bound (a rate per day, a value per project), so their
	// states are stored.
	dimension := module.FoldOf(domain.StreamDimension, domain.NewDimensionState)
	dimension.Codec = module.JSONCodec[domain.DimensionState](1)
	r.Fold(dimension)
	rates := module.FoldOf(domain.StreamExchangeRate, func() *domain.RateHistory { return &domain.RateHistory{} })
	rates.Codec = module.JSONCodec[domain.RateHistory](1)
	r.Fold(rates)
}
