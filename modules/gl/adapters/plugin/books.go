package plugin

import (
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/modules/gl/contract"
)

type object map[string]any

// builder makes steps and keeps the first error.
type builder struct{ err error }

func (b *builder) step(as, intentType string, payload object) demo.Step {
	text, err := json.Marshal(payload)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("demo payload of %s: %w", intentType, err)
	}
	return demo.Step{As: as, Type: intentType, Payload: text}
}

// books makes the demonstration's intents that set up an entity's books: ledger settings,
// chart of accounts, dimensions, calendar, open periods and rates.
func books(e demo.Entity) ([]demo.Stage, error) {
	var b builder
	stages := []demo.Stage{
		{Title: "ledger", Lanes: []demo.Lane{{b.step("admin", "gl.configure_ledger", ledger(e))}}},
		{Title: "accounts", Lanes: b.accounts()},
		{Title: "dimensions", Lanes: b.dimensions()},
		{Title: "fiscal years", Lanes: []demo.Lane{b.fiscalYears()}},
		{Title: "open periods", Lanes: b.periods()},
		{Title: "exchange rates", Lanes: b.rates(e)},
	}
	return stages, b.err
}

func ledger(e demo.Entity) object {
	return object{
		"functional_currency": e.Currency,
		"default_dimensions":  object{"department": "OPS"},
		"rate_age_days":       92, // a quarter
		"tax_groups":          taxGroups(e.Home),
		"posting_profile": object{
			"bank": "1000", "prepayment": "1200", "fx_clearing": "1300", "input_tax": "1400", "due_from": "1900",
			"ap_control": "2000", "ap_revaluation": "2010", "output_tax": "2200", "withholding": "2300", "due_to": "2900",
			"retained_earnings": "3100", "opening": "3900", "default_expense": "6000",
			"fx_gain": "7000", "fx_loss": "7010", "fx_unrealised": "7020", "discount": "7100", "rounding": "7900",
		},
		"second_person": false,
		"orderly_close": false,
	}
}

// taxRates are the standard and reduced rates of value added tax in Europe, in
// percent, as in the names of tax groups ("S/25").
var taxRates = []string{
	"2.1", "2.5", "3", "3.7", "4", "4.8", "5", "5.5", "6", "7", "7.7", "8", "8.1", "8.5", "9", "9.5", "10", "11", "12", "13", "13.5",
	"14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "25.5", "27",
}

func taxGroups(home string) object {
	standard := json.Number("19")
	if home != "DE" {
		standard = "0"
	}
	groups := object{
		"Z/0":  object{"rate": 0, "description": "zero rated"},
		"E/0":  object{"rate": 0, "description": "exempt"},
		"G/0":  object{"rate": 0, "description": "export"},
		"O/0":  object{"rate": 0, "description": "outside the scope of tax"},
		"O":    object{"rate": 0, "description": "outside the scope of tax"},
		"B/22": object{"rate": 22, "description": "split payment"},
		"AE/0": object{"rate": standard, "reverse_charge": standard != "0", "description": "reverse charge"},
		"K/0":  object{"rate": standard, "reverse_charge": standard != "0", "description": "intra-community supply"},
	}
	for _, rate := range taxRates {
		groups["S/"+rate] = object{"rate": json.Number(rate), "description": "value added tax at " + rate + " percent"}
		groups["AA/"+rate] = object{"rate": json.Number(rate), "description": "value added tax at a lower rate of " + rate + " percent"}
	}
	for _, rate := range []string{"0", "3", "7", "9.5", "15"} {
		groups["L/"+rate] = object{"rate": json.Number(rate), "description": "Canary Islands general indirect tax"}
	}
	return groups
}

var chart = []struct{ code, name, kind, control string }{
	{"1000", "Bank", "asset", ""},
	{"1010", "Bank, foreign currency", "asset", ""},
	{"1100", "Trade receivables", "asset", ""},
	{"1200", "Prepayments to suppliers", "asset", ""},
	{"1300", "Currency clearing", "asset", ""},
	{"1400", "Input tax", "asset", ""},
	{"1500", "Inventory", "asset", ""},
	{"1700", "Equipment", "asset", ""},
	{"1900", "Due from affiliates", "asset", ""},
	{"2000", "Trade payables", "liability", "ap"},
	{"2010", "Trade payables, revaluation", "liability", ""},
	{"2100", "Accrued expenses", "liability", ""},
	{"2200", "Output tax", "liability", ""},
	{"2300", "Withholding tax", "liability", ""},
	{"2900", "Due to affiliates", "liability", ""},
	{"3000", "Share capital", "equity", ""},
	{"3100", "Retained earnings", "equity", ""},
	{"3900", "Opening balances", "equity", ""},
	{"4000", "Revenue", "income", ""},
	{"5000", "Cost of goods sold", "expense", ""},
	{"5100", "Materials", "expense", ""},
	{"5200", "Freight and handling", "expense", ""},
	{"6000", "Services", "expense", ""},
	{"6100", "Rent and utilities", "expense", ""},
	{"6200", "Software and licences", "expense", ""},
	{"6300", "Travel", "expense", ""},
	{"6400", "Office supplies", "expense", ""},
	{"6500", "Personnel", "expense", ""},
	{"6900", "Other operating expense", "expense", ""},
	{"7000", "Exchange gains", "income", ""},
	{"7010", "Exchange losses", "expense", ""},
	{"7020", "Unrealised exchange differences", "expense", ""},
	{"7100", "Cash discounts received", "income", ""},
	{"7900", "Rounding differences", "expense", ""},
}

func (b *builder) accounts() []demo.Lane {
	var lanes []demo.Lane
	for _, a := range chart {
		payload := object{"code": a.code, "name": a.name, "type": a.kind}
		if a.control != "" {
			payload["control"] = a.control
		}
		lanes = append(lanes, demo.Lane{b.step("gl_accountant", "gl.define_account", payload)})
	}
	return lanes
}

var departments = []struct{ value, name string }{
	{"ENG", "Engineering"}, {"PROD", "Production"}, {"SALES", "Sales"}, {"OPS", "Operations"}, {"HR", "Human resources"}, {"FIN", "Finance"},
}

func (b *builder) dimensions() []demo.Lane {
	var dep, centers demo.Lane
	for _, d := range departments {
		dep = append(dep, b.step("gl_accountant", "gl.define_dimension_value", object{"dimension": "department", "value": d.value, "name": d.name}))
	}
	for n := 1000; n <= 5200; n += 100 {
		value := fmt.Sprintf("CC-%d", n)
		centers = append(centers, b.step("gl_accountant", "gl.define_dimension_value", object{"dimension": "cost_center", "value": value, "name": "Cost center " + value[3:]}))
	}
	return []demo.Lane{dep, centers}
}

func (b *builder) fiscalYears() demo.Lane {
	var lane demo.Lane
	for y := demo.FirstYear; y <= demo.LastYear; y++ {
		lane = append(lane, b.step("controller", "gl.define_fiscal_year", object{
			"label": fmt.Sprint(y), "start": fmt.Sprintf("%d-01-01", y), "end": fmt.Sprintf("%d-12-31", y),
		}))
	}
	return lane
}

func (b *builder) periods() []demo.Lane {
	var lanes []demo.Lane
	for _, period := range demo.Periods() {
		lanes = append(lanes, demo.Lane{b.step("controller", "gl.open_period", object{"module": contract.ModuleName, "period": period})})
	}
	return lanes
}

func (b *builder) rates(e demo.Entity) []demo.Lane {
	series, err := quarterlyRates(e.Currency)
	if err != nil && b.err == nil {
		b.err = err
	}
	var lanes []demo.Lane
	for _, s := range series {
		var lane demo.Lane
		for _, r := range s {
			lane = append(lane, b.step("gl_accountant", "gl.set_exchange_rate", object{
				"from": r.From, "to": r.To, "rate_type": "spot", "date": r.Date, "rate": json.Number(r.Value),
			}))
		}
		lanes = append(lanes, lane)
	}
	return lanes
}
