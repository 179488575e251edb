package ap_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/plugin"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	applugin "github.com/erpbackbone/backbone/modules/ap/adapters/plugin"
	glplugin "github.com/erpbackbone/backbone/modules/gl/adapters/plugin"
	gl "github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// pastModule posts 5 EUR to the control account of payables without a document.
type pastModule struct{}

func (pastModule) Name() string { return "past" }

func (pastModule) Register(r *module.Registrar) error {
	r.Policy(ports.PolicyModule{Path: "past.rego", Source: `package backbone.rules.past
submit := {"allow": true, "reason": ""}
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []}`})
	r.Intent(module.IntentType{
		Type: "past.post", Schema: json.RawMessage(`{"type": "object", "additionalProperties": false}`), Policy: "backbone.rules.past", Emits: []string{gl.EventJournalPosted},
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			planned, err := gl.PlanSubledgerJournal(ctx, gl.NewLedger(s), gl.SubledgerJournal{
				SourceModule: "ap", Description: "Import", PostingDate: event.MustDate("2025-03-20"), Currency: "EUR", JournalID: in.DocumentID(0),
				Lines: []gl.SubledgerLine{
					{Account: "6000", Side: gl.Debit, Amount: money.FromInt(5)},
					{Account: "2000", Side: gl.Credit, Amount: money.FromInt(5), Control: true, Dimensions: map[string]string{"vendor": "V1"}},
				},
			})
			return module.Plan{Events: []event.Draft{planned.Draft}}, err
		},
	})
	return nil
}

// newControlFixture are books of both modules over PostgreSQL with the period 2025-03 open and
// two posted documents of vendor V1, in two currencies.
func newControlFixture(t *testing.T) *moduletest.Books {
	t.Helper()
	f := moduletest.NewOnPostgres(t, glplugin.New(), applugin.New(), plugin.Module{Module: pastModule{}})
	f.Problems = problems
	execute := func(who, intentType string, payload object) (id string) {
		t.Helper()
		encoded, err := json.Marshal(payload)
		require.NoError(t, err)
		return f.Execute(who, intentType, string(encoded)).Events[0].Stream.ID
	}
	execute("admin", "gl.configure_ledger", object{
		"functional_currency": "EUR", "default_dimensions": object{"department": "FIN"}, "second_person": false, "orderly_close": false,
		"posting_profile": object{"ap_control": "2000", "input_tax": "1400", "default_expense": "6000"},
	})
	for _, a := range []object{
		{"code": "1400", "name": "Input tax", "type": "asset"}, {"code": "6000", "name": "Services", "type": "expense"},
		{"code": "2000", "name": "Payables", "type": "liability", "control": "ap"},
	} {
		execute("gl_accountant", "gl.define_account", a)
	}
	execute("gl_accountant", "gl.define_dimension_value", object{"dimension": "department", "value": "FIN", "name": "Finance"})
	execute("controller", "gl.define_fiscal_year", object{"label": "2025", "start": "2025-01-01", "end": "2025-12-31"})
	for _, m := range []string{"gl", "ap"} {
		execute("controller", "gl.open_period", object{"module": m, "period": "2025-03"})
	}
	execute("gl_accountant", "gl.set_exchange_rate", object{"from": "USD", "to": "EUR", "date": "2025-03-01", "rate": n("0.9245")})
	execute("vendor_admin", "ap.register_vendor", object{"vendor_id": "V1", "name": "Vendor", "country": "DE", "registration_id": "R1"})
	for _, currency := range []string{"EUR", "USD"} {
		id := execute("ap_clerk", "ap.submit_invoice", documentPayload("V1", "A-"+currency, "1000", object{
			"currency": currency, "lines": []object{{"line_number": 1, "amount": n("1000"), "account": "6000"}},
		}))
		execute("approver", "ap.approve_invoice", object{"invoice_id": id})
	}
	return f
}

func TestHardClose_SubledgerMismatch(t *testing.T) {
	t.Parallel()
	const closeHard = `{"module": "gl", "period": "2025-03", "level": "hard"}`

	t.Run("control_account_that_agrees_is_closed", func(t *testing.T) {
		t.Parallel()
		newControlFixture(t).Execute("controller", "gl.close_period", closeHard)
	})

	t.Run("posting_past_the_subledger_is_found", func(t *testing.T) {
		t.Parallel()
		f := newControlFixture(t)
		f.Execute("ap_clerk", "past.post", `{}`)
		for _, name := range []string{"ap", "gl"} {
			f.Refuse("gl.period.subledger_mismatch", "controller", "gl.close_period", fmt.Sprintf(`{"module": %q, "period": "2025-03", "level": "hard"}`, name))
		}
	})
}
