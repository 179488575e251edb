package gl_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
)

func TestChangeAccount(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	change := func(payload string) map[string]any {
		t.Helper()
		_, data := b.journal(t, b.execute(t, "gl_accountant", "gl.change_account", payload))
		return data
	}
	data := change(`{"code": "1000", "name": "Main bank", "currencies": ["USD", "EUR"], "active_from": "2026-01-01", "revalue": true, "reason": "New contract"}`)
	require.Equal(t, map[string]any{
		"code": "1000", "name": "Main bank", "type": "asset", "normal_side": "debit", "parent": "1", "postable": true,
		"currencies": []any{"USD", "EUR"}, "active_from": "2026-01-01", "control": "none", "revalue": true, "reason": "New contract",
	}, data)
	_, posted := b.journal(t, b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15")))
	require.Equal(t, "Main bank", posted["lines"].([]any)[1].(map[string]any)["account_name"])

	data = change(`{"code": "1000", "active_from": null, "parent": "", "currencies": ["USD"], "reason": "Moved"}`)
	require.NotContains(t, data, "active_from")
	require.NotContains(t, data, "parent")
	require.Equal(t, []any{"USD"}, data["currencies"])
	b.refuse(t, "gl.account.currency_not_allowed", "gl_accountant", "gl.post_journal", twoLines("1", "1", "EUR", "2026-03-15"))
	change(`{"code": "1000", "active_to": "2026-03-14", "reason": "Closed"}`)
	b.refuse(t, "gl.account.inactive", "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))

	data = change(`{"code": "2400", "type": "income", "reason": "Typing error"}`)
	require.Equal(t, "credit", data["normal_side"])
	data = change(`{"code": "2400", "type": "expense", "reason": "Typing error"}`)
	require.Equal(t, "debit", data["normal_side"], "the side follows the type")
}

func TestChangeAccount_Refusals(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.execute(t, "gl_accountant", "gl.post_journal", twoLines("1", "1", "USD", "2026-03-15"))
	for _, c := range []struct{ name, code, payload, field string }{
		{"unknown account", "gl.account.not_found", `{"code": "9999", "name": "x", "reason": "x"}`, "/payload/code"},
		{"unknown parent", "gl.account.not_found", `{"code": "1000", "parent": "9999", "reason": "x"}`, "/payload/parent"},
		{"own parent", "gl.account.parent_invalid", `{"code": "1000", "parent": "1000", "reason": "x"}`, "/payload/parent"},
		{"parent below", "gl.account.parent_invalid", `{"code": "1", "parent": "1000", "reason": "x"}`, "/payload/parent"},
		{"dates", "intent.schema_invalid", `{"code": "1000", "active_from": "2026-02-01", "active_to": "2026-01-01", "reason": "x"}`, "/payload/active_to"},
		{"currency", "money.currency_unsupported", `{"code": "1000", "currencies": ["XAU"], "reason": "x"}`, "/payload/currencies/0"},
		{"nothing to change", "intent.schema_invalid", `{"code": "1000", "reason": "x"}`, "/payload"},
		{"type in use", "gl.account.in_use", `{"code": "1000", "type": "expense", "reason": "x"}`, "/payload/type"},
		{"side in use", "gl.account.in_use", `{"code": "6000", "normal_side": "credit", "reason": "x"}`, "/payload/normal_side"},
		{"control in use", "gl.account.in_use", `{"code": "1000", "control": "ap", "reason": "x"}`, "/payload/control"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := b.refuse(t, c.code, "gl_accountant", "gl.change_account", c.payload)
			require.Equal(t, c.field, f.Field)
		})
	}
	f := b.refuse(t, "gl.account.in_use", "gl_accountant", "gl.change_account", `{"code": "1000", "type": "expense", "reason": "x"}`)
	require.Contains(t, f.Detail, "GJ-2026-000001")
	require.Equal(t, []string{"type"}, f.Attributes["members"])
	b.execute(t, "gl_accountant", "gl.change_account", `{"code": "1000", "type": "asset", "name": "Bank account", "reason": "the type stays"}`)
}

func TestChangeAccount_SecondPerson(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	var settings map[string]any
	require.NoError(t, json.Unmarshal([]byte(exampleConfigureLedger), &settings))
	settings["second_person"] = true
	strict, err := json.Marshal(settings)
	require.NoError(t, err)
	b.execute(t, "admin", "gl.configure_ledger", string(strict))
	waiting := b.pend(t, "gl_accountant", "gl.change_account", `{"code": "1000", "name": "Main bank", "reason": "New contract"}`)
	require.Equal(t, []string{"gl_accountant", "controller", "cfo"}, waiting.Needs[0].Roles)
	b.mustApprove(t, "gl_accountant:2", waiting)
}

// TestChangeAccount_Race: an account's type changes and its first line is posted at the same
// time. A change never follows a line.
func TestChangeAccount_Race(t *testing.T) {
	t.Parallel()
	b := newLedger(t)
	b.caller("gl_accountant")
	for i := range 10 {
		code := fmt.Sprintf("65%02d", i)
		b.execute(t, "gl_accountant", "gl.define_account", fmt.Sprintf(`{"code": %q, "name": "New", "type": "expense"}`, code))
		var changed, posted pipeline.Outcome
		var wg sync.WaitGroup
		wg.Go(func() {
			changed, _ = b.submit("gl_accountant", "gl.change_account", fmt.Sprintf(`{"code": %q, "type": "asset", "reason": "x"}`, code))
		})
		wg.Go(func() {
			posted, _ = b.submit("gl_accountant", "gl.post_journal", strings.Replace(twoLines("1", "1", "USD", "2026-03-15"), "6000", code, 1))
		})
		wg.Wait()
		if len(changed.Events) > 0 && len(posted.Events) > 0 {
			require.Less(t, changed.Events[0].Sequence, posted.Events[0].Sequence)
		}
		require.NotEmpty(t, append(changed.Events, posted.Events...))
	}
}
