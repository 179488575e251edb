package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

type rebuildView struct {
	Active   int   `json:"active"`
	Retained int   `json:"retained"`
	Dropping []int `json:"dropping"`
	Building *struct {
		Version  int  `json:"version"`
		CaughtUp bool `json:"caught_up"`
		Faulted  int  `json:"faulted"`
	} `json:"building"`
}

// versions reads the versions of a projection. Tests that wait ask the server: a command costs a process.
func (c client) versions(t *testing.T, projection string) (b rebuildView) {
	t.Helper()
	require.NoError(t, c.want(http.StatusOK, &b, "GET", "/api/admin/projections/"+projection+"/rebuild", ""))
	return b
}

// TestRebuild rebuilds read models while invoices are submitted, sessions of the database are
// killed, and readers page through reports: every report stays consistent.
func TestRebuild(t *testing.T) {
	t.Parallel()
	const ledger, items = "gl.ledger", "ap.open-items"
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	cli := func(persona string, args ...string) result { t.Helper(); return d.as(t, persona).command(t, args...) }
	ok := func(args ...string) string { t.Helper(); return d.as(t, "admin").succeed(t, args...) }
	admin := d.as(t, "admin")
	printed := func(projection string) (b rebuildView) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(ok("projections", "versions", projection, "--json")), &b))
		require.Equal(t, admin.versions(t, projection), b)
		return b
	}
	super, err := pgx.Connect(t.Context(), superuser(t, dir))
	require.NoError(t, err)
	defer super.Close(context.Background())
	rows := func(table string, version int) (n int) {
		t.Helper()
		require.NoError(t, super.QueryRow(t.Context(), fmt.Sprintf("SELECT count(*) FROM %s WHERE version = %d", table, version)).Scan(&n))
		return n
	}

	post := func(amount int) {
		t.Helper()
		d.as(t, "controller").must(t, loadEntity, "gl.post_journal", object{
			"description": "Cleaning", "posting_date": "2026-03-15", "dimensions": object{"department": "FIN"},
			"lines": []object{{"account": "6000", "debit_credit": "debit", "amount": amount}, {"account": "1000", "debit_credit": "credit", "amount": amount}},
		})
	}
	for amount := 1; amount <= 5; amount++ {
		post(amount)
	}
	declared := map[string]int{ledger: printed(ledger).Active, items: printed(items).Active}
	of := declared[ledger]

	// A report pinned on both axes is the same at all times.
	auditor := d.as(t, "auditor")
	head, err := auditor.head(loadEntity)
	require.NoError(t, err)
	reports := []string{"/api/gl/trial-balance?legal_entity=", "/api/gl/accounts/6000/ledger?legal_entity=", "/api/ap/open-items?legal_entity="}
	var first []string
	for i := range reports {
		reports[i] += loadEntity + "&as_of=2026-12-31&known_at=seq:" + head
		a := must(auditor.do("GET", reports[i], ""))
		require.Equal(t, http.StatusOK, a.status, a)
		require.Contains(t, string(a.body), `"as_of":"2026-12-31"`)
		first = append(first, string(a.body))
	}
	stop := make(chan struct{})
	var looking sync.WaitGroup
	var looks atomic.Int64
	looking.Go(func() {
		pace := time.NewTicker(time.Second / 2) // reports cost more than all else of this test
		defer pace.Stop()
		for {
			select {
			case <-stop:
				return
			case <-pace.C:
			}
			for i, path := range reports {
				a, err := auditor.do("GET", path, "")
				// The end of a database session gives an answer that asks to try again.
				if err != nil || a.status == http.StatusServiceUnavailable || a.status == http.StatusGatewayTimeout {
					continue
				}
				if a.status != http.StatusOK || string(a.body) != first[i] {
					t.Errorf("%s answered %s instead of %s", path, a, first[i])
					return
				}
				looks.Add(1)
			}
		}
	})

	require.Equal(t, 1, cli("auditor", "projections", "rebuild", ledger).code, "an auditor looks only")
	require.Contains(t, cli("admin", "projections", "switch", ledger).stderr, "projection.not_building")
	require.Contains(t, cli("admin", "projections", "rollback", ledger).stderr, "projection.not_retained")
	require.Contains(t, cli("admin", "projections", "rebuild", "no.such").stderr, "projection.not_found")

	l := startLoad(t, d, time.Second/2)
	l.await(t, 20)
	for _, projection := range []string{ledger, items} {
		ok("projections", "rebuild", projection)
	}
	_, err = super.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'backbone_app'`)
	require.NoError(t, err)
	l.await(t, 20)
	require.Contains(t, cli("admin", "projections", "rebuild", ledger).stderr, "projection.rebuilding")
	for _, projection := range []string{ledger, items} {
		testkit.Eventually(t, endTime, func() bool { b := admin.versions(t, projection).Building; return b != nil && b.CaughtUp })
		v := declared[projection]
		require.Contains(t, ok("projections", "compare", projection), fmt.Sprintf("version %d (left, shown) and version %d (right): 0 rows differ", v, v+1))
		require.Contains(t, ok("projections", "list"), "running (building)")
		require.Contains(t, ok("projections", "switch", projection), fmt.Sprintf("readers are shown version %d\nVersion %d is kept", v+1, v))
	}
	l.await(t, 20)
	require.Contains(t, ok("projections", "rollback", ledger), fmt.Sprintf("readers are shown version %d\nVersion %d is kept", of, of+1))
	post(6)
	l.await(t, 20)
	require.Contains(t, ok("projections", "compare", ledger), fmt.Sprintf("version %d (left, shown) and version %d (right): 0 rows differ", of, of+1))
	require.Contains(t, ok("projections", "rollback", ledger), fmt.Sprintf("readers are shown version %d", of+1))
	l.finish(t)
	requireBooksAgree(t, d, loadEntity)

	// A dropped version leaves no rows.
	require.Contains(t, ok("projections", "drop", ledger), fmt.Sprintf("Version %d is being removed.", of))
	testkit.Eventually(t, endTime, func() bool { b := admin.versions(t, ledger); return len(b.Dropping) == 0 && b.Retained == 0 })
	for _, table := range []string{"gl.journals", "gl.journal_lines", "gl.accounts", "gl.ledgers"} {
		require.Zero(t, rows(table, of), table)
		require.NotZero(t, rows(table, of+1), table)
	}

	// A wrong version is found before it serves a read.
	ok("projections", "rebuild", ledger, "--wait")
	_, err = super.Exec(t.Context(), `UPDATE gl.accounts SET name = name || ' (wrong)' WHERE version = $1 AND code = '2000'`, of+2)
	require.NoError(t, err)
	report := ok("projections", "compare", ledger)
	require.Regexp(t, `(?m)^`+loadEntity+` +gl\.accounts +\{"code":"2000","sequence":\d+\} +both +name$`, report)
	require.NotContains(t, report, "(wrong)", "no value")
	require.Contains(t, ok("projections", "cancel", ledger), fmt.Sprintf("Version %d is being removed.", of+2))
	testkit.Eventually(t, endTime, func() bool { return len(admin.versions(t, ledger).Dropping) == 0 })
	require.Zero(t, rows("gl.accounts", of+2)+rows("gl.journal_lines", of+2))

	// One command builds, compares and switches.
	all := ok("projections", "rebuild", ledger, "--compare", "--switch")
	require.Contains(t, all, fmt.Sprintf("version %d (left, shown) and version %d (right): 0 rows differ", of+1, of+3))
	require.Contains(t, all, fmt.Sprintf("readers are shown version %d", of+3))
	requireBooksAgree(t, d, loadEntity)
	testkit.Eventually(t, endTime, func() bool { return t.Failed() || looks.Load() > 20 }, "reports were read")
	close(stop)
	looking.Wait()
}
