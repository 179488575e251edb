package gl_test

// One valid payload of every intent, as a customer would send it.
const (
	exampleConfigureLedger = `{
		"functional_currency": "USD",
		"default_dimensions": {"department": "OPS"},
		"rate_age_days": 31,
		"tax_groups": {
			"S/19": {"rate": 19, "account": "1400", "recoverable_percent": 100},
			"AE/19": {"rate": 19, "account": "1400", "output_account": "2400", "reverse_charge": true}
		},
		"posting_profile": {"ap_control": "2000", "input_tax": "1400", "output_tax": "2400", "bank": "1000", "rounding": "6990", "default_expense": "6000"},
		"limits": {"gl_accountant": 10000, "controller": 1000000, "cfo": null},
		"second_person": false,
		"orderly_close": false
	}`
	exampleFiscalYear   = `{"label": "2026", "start": "2026-01-01", "end": "2026-12-31"}`
	exampleRate         = `{"from": "EUR", "to": "USD", "rate_type": "spot", "date": "2026-03-01", "rate": 1.0834}`
	exampleOpenPeriod   = `{"module": "gl", "period": "2026-04"}`
	exampleClosePeriod  = `{"module": "gl", "period": "2026-03", "level": "soft", "reason": "Month end"}`
	exampleReopenPeriod = `{"module": "gl", "period": "2026-03", "reason": "Late supplier invoices"}`
	exampleBlockAccount = `{"code": "6000", "reason": "Replaced by 6100"}`
	exampleReverse      = `{"journal_id": %q, "posting_date": "2026-03-20", "reason": "Posted twice"}`
	examplePostJournal  = `{
		"description": "Rent for March",
		"posting_date": "2026-03-15",
		"dimensions": {"department": "ENG"},
		"lines": [
			{"account": "6000", "debit_credit": "debit", "amount": 1200.00, "description": "Office"},
			{"account": "6000", "debit_credit": "debit", "amount": 300, "dimensions": {"department": "FIN"}},
			{"account": "1000", "debit_credit": "credit", "amount": 1500.0}
		]
	}`
)

// exampleAccounts is a small chart.
var exampleAccounts = []string{
	`{"code": "1", "name": "Assets", "type": "asset", "postable": false}`,
	`{"code": "1000", "name": "Bank", "type": "asset", "parent": "1"}`,
	`{"code": "1010", "name": "Bank in dollars", "type": "asset", "currencies": ["USD"]}`,
	`{"code": "1400", "name": "Input tax", "type": "asset"}`,
	`{"code": "1900", "name": "Old clearing", "type": "asset", "active_to": "2025-12-31"}`,
	`{"code": "2000", "name": "Accounts payable", "type": "liability", "control": "ap", "revalue": true}`,
	`{"code": "2400", "name": "Output tax", "type": "liability"}`,
	`{"code": "5100", "name": "Materials", "type": "expense", "required_dimensions": ["department", "cost_center"]}`,
	`{"code": "6000", "name": "Services", "type": "expense", "required_dimensions": ["department"]}`,
	`{"code": "6990", "name": "Rounding", "type": "expense"}`,
}

// exampleDimensionValues are the values that the tests post to.
var exampleDimensionValues = []string{
	`{"dimension": "department", "value": "ENG", "name": "Engineering"}`,
	`{"dimension": "department", "value": "FIN", "name": "Finance"}`,
	`{"dimension": "department", "value": "OPS", "name": "Operations"}`,
	`{"dimension": "department", "value": "OLD", "name": "Closed", "active_to": "2025-12-31"}`,
	`{"dimension": "cost_center", "value": "CC-1000", "name": "Head office"}`,
}
