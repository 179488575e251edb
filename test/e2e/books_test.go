package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/configs/demo"
	"github.com/erpbackbone/backbone/modules"
)

// booksYear is the year of the documents of tests.
const booksYear = 2026

// smallBooks makes a legal entity with the demonstration's books of booksYear. Its log has a tenth of
// the events of the demonstration's legal entities, for tests that read all of it many times.
func smallBooks(t *testing.T, d *dev, code, currency string) {
	t.Helper()
	require.NoError(t, d.as(t, "admin").want(http.StatusCreated, nil, "POST", "/api/admin/legal-entities", fmt.Sprintf(`{"code":%q,"name":"Small books","time_zone":"UTC"}`, code)))
	ofYear := func(s demo.Step) bool {
		return !slices.Contains([]string{"gl.define_fiscal_year", "gl.open_period", "gl.set_exchange_rate"}, s.Type) || strings.Contains(string(s.Payload), fmt.Sprintf(`"%d`, booksYear))
	}
	for _, m := range modules.BuiltIn() {
		if m.Demo.Books == nil {
			continue
		}
		stages, err := m.Demo.Books(demo.Entity{Code: code, Currency: currency, Home: "US"})
		require.NoError(t, err)
		for _, stage := range stages {
			for _, step := range slices.Concat(stage.Lanes...) {
				if ofYear(step) {
					requireDone(t, d, code, step)
				}
			}
		}
	}
}

// requireDone submits a step of the demonstration, and has it approved if that is needed.
func requireDone(t *testing.T, d *dev, entity string, step demo.Step) {
	t.Helper()
	a := must(d.as(t, step.As).submit(entity, step.Type, json.RawMessage(step.Payload)))
	if a.status == http.StatusAccepted {
		var waiting outcome
		require.NoError(t, a.decode(&waiting))
		a = must(d.as(t, "cfo").do("POST", "/api/intents/"+waiting.IntentID+"/approve", ""))
		require.Equal(t, http.StatusOK, a.status, "%s: %s", step.Type, a)
		return
	}
	require.Equal(t, http.StatusCreated, a.status, "%s: %s", step.Type, a)
}
