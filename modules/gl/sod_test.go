package gl_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/moduletest"
)

// actingAs adds a caller with one role to the fixture, see moduletest.Acting.
func (b *ledgerFixture) actingAs(by, role string) string {
	name := role + ":" + by
	b.persons[name] = moduletest.Acting("demo", by, role)
	return name
}

// waitingSteps are the first steps of testdata/sod.txt: each waits for another person. n makes the
// intents of a fixture differ.
var waitingSteps = map[string]func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome{
	"post-over-limit": func(t *testing.T, b *ledgerFixture, by string, _ int) pipeline.Outcome {
		return b.pend(t, b.actingAs(by, "gl_accountant"), "gl.post_journal", twoLines("20000", "20000", "USD", "2026-03-15"))
	},
	"post-late": func(t *testing.T, b *ledgerFixture, by string, _ int) pipeline.Outcome {
		return b.pend(t, b.actingAs(by, "gl_accountant"), "gl.post_journal", twoLines("5", "5", "USD", "2026-02-15"))
	},
	"reopen-period": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		period := fmt.Sprintf("2026-%02d", 4+n)
		b.period(t, "open", "gl", period, "")
		b.period(t, "soft", "gl", period, "")
		return b.pend(t, b.actingAs(by, "controller"), "gl.reopen_period", fmt.Sprintf(`{"module": "gl", "period": %q, "reason": "a late bill"}`, period))
	},
	"close-period": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		period := fmt.Sprintf("2026-%02d", 4+n)
		b.period(t, "open", "gl", period, "")
		return b.pend(t, b.actingAs(by, "controller"), "gl.close_period", fmt.Sprintf(`{"module": "gl", "period": %q, "level": "hard"}`, period))
	},
	"define-account": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		return b.pend(t, b.actingAs(by, "gl_accountant"), "gl.define_account", fmt.Sprintf(`{"code": "7%03d", "name": "Travel", "type": "expense"}`, n))
	},
	"change-account": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		return b.pend(t, b.actingAs(by, "controller"), "gl.change_account", fmt.Sprintf(`{"code": "6000", "name": "Services %d", "reason": "clearer"}`, n))
	},
	"correct-rate": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		return b.pend(t, b.actingAs(by, "gl_accountant"), "gl.set_exchange_rate", fmt.Sprintf(`{"from": "EUR", "to": "USD", "date": "2026-03-01", "rate": 1.08%02d, "reason": "mistyped"}`, n))
	},
	"discard-statement": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		id := fmt.Sprint("S-", n)
		b.execute(t, "treasurer", "gl.import_bank_statement", statement(id, "2026-03-10", "0", "-10", "-10"))
		return b.pend(t, b.actingAs(by, "treasurer"), "gl.discard_bank_statement", discard(id, 1))
	},
	"configure": func(t *testing.T, b *ledgerFixture, by string, n int) pipeline.Outcome {
		return b.pend(t, b.actingAs(by, "admin"), "gl.configure_ledger", strings.Replace(secondPersonLedger, `"rate_age_days": 31`, fmt.Sprintf(`"rate_age_days": %d`, 31+n), 1))
	},
}

var secondPersonLedger = strings.Replace(exampleConfigureLedger, `"second_person": false`, `"second_person": true`, 1)

// newDutiesFixture is a ledger whose February is softly closed and whose steps take a second person.
func newDutiesFixture(t *testing.T) *ledgerFixture {
	t.Helper()
	b := newLedger(t)
	b.period(t, "open", "gl", "2026-02", "")
	b.period(t, "soft", "gl", "2026-02", "")
	b.execute(t, "admin", "gl.configure_ledger", secondPersonLedger)
	return b
}

// TestSegregationOfDuties goes through testdata/sod.txt: S7 and S8, each role, by persons, by agents and
// services for persons, and by services. A refused decision makes no event but that of the refusal.
func TestSegregationOfDuties(t *testing.T) {
	t.Parallel()
	compiled, err := shared()
	require.NoError(t, err)
	steps := map[string][]moduletest.Duty{}
	for _, d := range moduletest.ReadDuties(t, compiled.catalog.RoleNames()) {
		steps[d.First] = append(steps[d.First], d)
	}
	require.Len(t, steps, len(waitingSteps))
	for step, duties := range steps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			b, n := newDutiesFixture(t), 0
			for _, d := range duties {
				var waiting *pipeline.Outcome
				for role, outcome := range d.Outcomes {
					if waiting == nil {
						if n == 9 { // no more periods
							b, n = newDutiesFixture(t), 0
						}
						out := waitingSteps[step](t, b, d.FirstBy, n)
						waiting, n = &out, n+1
					}
					before, err := b.store.Events.Head(t.Context(), b.entity.Partition)
					require.NoError(t, err)
					_, err = b.approve(t, b.actingAs(d.SecondBy, role), *waiting)
					cell := fmt.Sprintf("%s by %s, decided by %s as %s", step, d.FirstBy, d.SecondBy, role)
					if outcome == "ok" {
						require.NoError(t, err, cell)
						waiting = nil
						continue
					}
					code := map[string]string{"-": "intent.forbidden", "person": "intent.approval_needs_person", "S8": "sod.same_person"}[outcome]
					require.Equal(t, code, fault.CodeOf(err), "%s: %v", cell, err)
					f, _ := fault.As(err)
					require.Equal(t, fault.Forbidden, f.Kind, cell)
					if outcome == "S8" {
						require.Equal(t, "S8", f.Attributes["rule"], cell)
					}
					after, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, After: before.Sequence})
					require.NoError(t, err)
					require.Len(t, after, 1, cell)
					require.Equal(t, intent.DecisionRefused, after[0].Type, cell)
				}
			}
		})
	}
}

// TestApprove_OnePersonAtOnce lets one person approve a waiting journal 16 times at once: one approval is
// recorded, and one journal is posted.
func TestApprove_OnePersonAtOnce(t *testing.T) {
	t.Parallel()
	b := newDutiesFixture(t)
	waiting := b.pend(t, "gl_accountant", "gl.post_journal", twoLines("20000", "20000", "USD", "2026-03-15"))
	b.caller("controller")
	errs := make([]error, 16)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = b.approve(t, "controller", waiting) })
	}
	wg.Wait()
	approved := 0
	for _, err := range errs {
		if err == nil {
			approved++
			continue
		}
		require.Contains(t, []string{"intent.wrong_state", "intent.changed"}, fault.CodeOf(err), "%v", err)
	}
	require.Equal(t, 1, approved)
	stored, out, err := b.intake.Get(t.Context(), b.entity, waiting.IntentID)
	require.NoError(t, err)
	require.Equal(t, intent.Executed, stored.Status)
	require.Len(t, stored.Approvals, 1)
	require.Len(t, out.Events, 1)
}
