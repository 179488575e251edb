package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// TestDrillProjectionChangedUnderReaders changes the definition of a projection while invoices
// are imported and a reader polls: every page has rows of one definition, and none lacks an
// event of an earlier page.
func TestDrillProjectionChangedUnderReaders(t *testing.T) {
	t.Parallel()
	const entity = "USMF"
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	cli := func(persona string, args ...string) result { t.Helper(); return d.as(t, persona).command(t, args...) }
	ok := func(persona string, args ...string) string { t.Helper(); return d.as(t, persona).succeed(t, args...) }
	definition := func(fold string) string {
		text, err := json.Marshal(object{"name": "bills", "filter": object{"types": []string{"ap.invoice.submitted"}}, "key": ".data.vendor_id", "fold": fold})
		require.NoError(t, err)
		return string(text)
	}
	file := func(fold string) string {
		path := filepath.Join(t.TempDir(), "bills.json")
		require.NoError(t, os.WriteFile(path, []byte(definition(fold)), 0o600))
		return path
	}
	versions := func() (b rebuildView) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(ok("operator", "projections", "versions", "bills", "--json")), &b))
		return b
	}
	bill := func(number int) error {
		i := invoice("V-A", strconv.Itoa(number))
		i["total_amount"], i["lines"] = 2, []object{{
			"line_number": 1, "description": "Widget", "quantity": 1, "unit_price": 2, "amount": 2, "account": "5100",
			"dimensions": object{"department": "PROD", "cost_center": "CC-5100"},
		}}
		a, err := d.as(t, "ap_clerk").submit(entity, "ap.submit_invoice", i)
		if err == nil && a.status != http.StatusCreated && a.status != http.StatusAccepted {
			err = fmt.Errorf("%s", a)
		}
		return err
	}
	d.as(t, "vendor_admin").must(t, entity, "ap.register_vendor", object{"vendor_id": "V-A", "name": "Firm Ltd", "country": "US"})
	require.NoError(t, bill(0))
	const (
		counting = `{count: ((.state.count // 0) + 1)}`
		adding   = `{count: ((.state.count // 0) + 1), sum: ((.state.sum // 0) + .event.data.total_amount)}`
	)
	ok("admin", "projections", "create", file(counting))
	taken := cli("admin", "projections", "create", file(adding))
	require.Contains(t, taken.stderr, "projection.exists")
	require.Contains(t, taken.stderr, "backbone projections change")

	// state is a row: the number of invoices, and their sum unless it is a row of the first
	// definition.
	type state struct {
		Count int  `json:"count"`
		Sum   *int `json:"sum"`
	}
	read := func(more string) (page customRows, s state, err error) {
		if err = d.as(t, "auditor").wantCaughtUp(&page, "/api/projections/bills?legal_entity="+entity+more); err != nil || len(page.Rows) == 0 {
			return page, s, err
		}
		return page, s, json.Unmarshal(page.Rows[0].State, &s)
	}
	caughtUp := func() state {
		t.Helper()
		head, err := d.as(t, "auditor").head(entity)
		require.NoError(t, err)
		_, s, err := read("&min_sequence=" + head)
		require.NoError(t, err)
		return s
	}
	caughtUp()

	stop := make(chan struct{})
	var busy sync.WaitGroup
	var billed, looks atomic.Int64
	billed.Store(1)
	during := func(f func() error) {
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	during(func() error { err := bill(int(billed.Load())); billed.Add(1); return err })
	last, seen := uint64(0), 0
	during(func() error {
		page, s, err := read("")
		if err != nil {
			return err
		}
		at, err := strconv.ParseUint(page.Sequence, 10, 64)
		if err != nil || at < last || s.Count < seen || s.Sum != nil && *s.Sum != 2*s.Count {
			return fmt.Errorf("a reader gets %s with %v after sequence %d with %d invoices: %w", page.Sequence, s, last, seen, err)
		}
		last, seen = at, s.Count
		looks.Add(1)
		return nil
	})
	await := func(n int64) {
		t.Helper()
		from := looks.Load()
		testkit.Eventually(t, endTime, func() bool { return looks.Load() >= from+n || t.Failed() })
	}

	// Of two concurrent changes one is refused with the active version.
	answers := make(chan answer, 2)
	for _, fold := range []string{`1`, `2`} {
		busy.Go(func() {
			a, err := d.as(t, "admin").do("PUT", "/api/admin/projections/bills", definition(fold))
			if err != nil {
				t.Error(err)
			}
			answers <- a
		})
	}
	first, second := <-answers, <-answers
	if first.status != http.StatusCreated {
		first, second = second, first
	}
	require.Equal(t, []any{http.StatusCreated, http.StatusConflict, "projection.being_changed"}, []any{first.status, second.status, second.code()})
	ok("operator", "projections", "cancel", "bills")

	out := ok("admin", "projections", "change", file(adding), "--compare", "--switch")
	require.Contains(t, out, "bills is built by the new definition in version 3; readers are shown version 1.")
	require.Contains(t, out, "bills, version 1 (left, shown) and version 3 (right): 1 row differs")
	require.Contains(t, out, "bills: readers are shown version 3\nVersion 1 is kept")
	require.NotNil(t, caughtUp().Sum)
	await(10)
	path := filepath.Join(t.TempDir(), "bills.yaml")
	require.NoError(t, os.WriteFile(path, []byte(ok("operator", "projections", "definition", "bills")), 0o600))
	require.Contains(t, ok("admin", "projections", "change", path), "has this definition already, in version 3, which readers are shown; nothing was begun")
	require.Contains(t, ok("operator", "projections", "definition", "bills", "--version", "1"), "\nfold: '"+counting+"'\n")

	// A projection that fails at an event blocks by itself.
	ok("operator", "projections", "configure", "bills", "--max-attempts", "1")
	ok("admin", "projections", "change", file(`if (.state.n // 0) == 1 then error("no") else {n: 1} end`), "--untried", "--switch")
	testkit.Eventually(t, endTime, func() bool {
		b := versions()
		return b.Active == 3 && b.Building != nil && b.Building.Faulted > 0
	})
	require.Contains(t, ok("operator", "deadletters", "--name", "bills"), "transform.failed")
	await(10)
	require.Contains(t, cli("operator", "projections", "switch", "bills").stderr, "projection.version_halted")
	ok("operator", "projections", "cancel", "bills")

	ok("operator", "projections", "rollback", "bills")
	require.Nil(t, caughtUp().Sum, "the first definition again")
	stale := cli("admin", "projections", "change", path).stderr
	require.Contains(t, stale, "projection.wrong_expected_version")
	require.Contains(t, stale, "readers are shown version 1 of projection bills, not version 3")
	await(10)
	close(stop)
	busy.Wait()
	require.False(t, t.Failed())
	n := int(billed.Load())
	require.Equal(t, n, caughtUp().Count)

	// A change survives a restart, and switches by itself.
	ok("admin", "projections", "change", file(`{count: ((.state.count // 0) + 1), sum: (((.state.count // 0) + 1) * 2)}`), "--switch")
	require.NoError(t, d.end())
	d = startOn(t, dir, recoveryStart)
	testkit.Eventually(t, endTime, func() bool { return versions().Building == nil })
	s := caughtUp()
	require.Equal(t, n, s.Count)
	require.NotNil(t, s.Sum)

	// A deletion removes all versions, also the one that is being built.
	ok("admin", "projections", "change", file(`{deleted: true}`))
	ok("admin", "projections", "delete", "bills")
	require.Contains(t, cli("operator", "projections", "versions", "bills").stderr, "projection.not_found")
	super, err := pgx.Connect(t.Context(), superuser(t, dir))
	require.NoError(t, err)
	defer super.Close(context.Background())
	testkit.Eventually(t, endTime, func() bool {
		var rows, living int
		require.NoError(t, super.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM backbone.projection_rows WHERE projection LIKE '%/bills'),
			(SELECT count(*) FROM backbone.projections WHERE name LIKE '%/bills' AND role <> 'dropped')`).Scan(&rows, &living))
		return rows == 0 && living == 0
	})
}
