package gl_test

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// actingAs adds a caller with one role to the fixture: "<type>:<person>[>on behalf of]".
func (b *ledgerFixture) actingAs(text, role string) string {
	kind, rest, _ := strings.Cut(text, ":")
	id, principal, delegated := strings.Cut(rest, ">")
	a := event.Actor{Type: event.ActorType(kind), ID: id, Name: role}
	if delegated {
		a.Details.OnBehalfOf = &event.Delegate{Type: "human", ID: principal}
	}
	name := role + ":" + text
	b.persons[name] = pipeline.Caller{Principal: ports.Principal{TenantID: "demo", PersonID: id, PrincipalID: id, ActorType: a.Type, Roles: []string{role}}, Actor: a}
	return name
}

// TestSegregationOfDuties goes through the table in testdata: who may approve what waits for a
// second person, for each role, directly and acting for another person.
func TestSegregationOfDuties(t *testing.T) {
	t.Parallel()
	file, err := os.Open("testdata/sod.csv")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	reader := csv.NewReader(file)
	reader.Comment = '#'
	rows, err := reader.ReadAll()
	require.NoError(t, err)
	roles := []string{"ap_clerk", "approver", "vendor_admin", "treasurer", "gl_accountant", "controller", "cfo", "admin", "auditor", "module", "importer"}
	steps := map[string]func(t *testing.T, b *ledgerFixture, requester string) pipeline.Outcome{
		"over limit": func(t *testing.T, b *ledgerFixture, requester string) pipeline.Outcome {
			return b.pend(t, b.actingAs(requester, "gl_accountant"), "gl.post_journal", twoLines("20000", "20000", "USD", "2026-03-15"))
		},
		"late posting": func(t *testing.T, b *ledgerFixture, requester string) pipeline.Outcome {
			b.period(t, "soft", "gl", "2026-03", "")
			return b.pend(t, b.actingAs(requester, "gl_accountant"), "gl.post_journal", twoLines("5", "5", "USD", "2026-03-15"))
		},
		"second person": func(t *testing.T, b *ledgerFixture, requester string) pipeline.Outcome {
			b.period(t, "soft", "gl", "2026-03", "")
			b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true`, 1))
			return b.pend(t, b.actingAs(requester, "controller"), "gl.reopen_period", `{"module": "gl", "period": "2026-03", "reason": "a late bill"}`)
		},
		"discard": func(t *testing.T, b *ledgerFixture, requester string) pipeline.Outcome {
			b.execute(t, "admin", "gl.configure_ledger", strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true`, 1))
			b.execute(t, "treasurer", "gl.import_bank_statement", statement("S-1", "2026-03-10", "0", "-10", "-10"))
			return b.pend(t, b.actingAs(requester, "treasurer"), "gl.discard_bank_statement", discard("S-1", 1))
		},
	}
	for _, row := range rows[1:] {
		step, requester, approver, may, otherwise := row[1], row[2], row[3], strings.Fields(row[4]), row[5]
		t.Run(strings.Join(row[:4], " "), func(t *testing.T) {
			t.Parallel()
			b := newLedger(t)
			waiting := steps[step](t, b, requester)
			before, err := b.store.Events.Head(t.Context(), b.entity.Partition)
			require.NoError(t, err)
			for _, role := range roles {
				if slices.Contains(may, role) {
					continue
				}
				_, err := b.approve(t, b.actingAs(approver, role), waiting)
				require.Equal(t, otherwise, fault.CodeOf(err), "%s: %v", role, err)
				f, _ := fault.As(err)
				require.Equal(t, fault.Forbidden, f.Kind)
				if otherwise == "sod.same_person" {
					require.Equal(t, "S8", f.Attributes["rule"])
				}
			}
			after, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, After: before.Sequence})
			require.NoError(t, err)
			for _, e := range after {
				require.True(t, strings.HasPrefix(e.Type, "backbone."), "a refused approval makes no event of the ledger, and made %s", e.Type)
			}
			for i, role := range may {
				if i > 0 {
					b = newLedger(t)
					waiting = steps[step](t, b, requester)
				}
				b.mustApprove(t, b.actingAs(approver, role), waiting)
			}
		})
	}
}
