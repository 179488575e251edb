package e2e

import (
	"encoding/json"
	"net/http"
	"regexp"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

// projectionView has the members of a projection that tests use.
type projectionView struct {
	Status        string `json:"status"`
	ChangedBy     string `json:"changed_by"`
	Faulted       int    `json:"faulted"`
	LegalEntities []struct {
		LegalEntity string `json:"legal_entity"`
		Status      string `json:"status"`
		Sequence    string `json:"sequence"`
		Head        string `json:"head"`
		Code        string `json:"code"`
		Skipped     string `json:"skipped"`
	} `json:"legal_entities"`
}

// TestProjectionCommands pauses and resumes a projection, finds and repairs one that fails at
// an event, and resets it. Other legal entities are not affected.
func TestProjectionCommands(t *testing.T) {
	t.Parallel()
	const bad, good, projection = "PRJB", "PRJG", "ap.vendors"
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	newEntity(t, d, bad)
	newEntity(t, d, good)
	admin, vendors := d.as(t, "admin"), d.as(t, "vendor_admin")
	cli := func(persona string, args ...string) result { t.Helper(); return d.as(t, persona).command(t, args...) }
	ok := func(args ...string) string { t.Helper(); return d.as(t, "admin").succeed(t, args...) }
	show := func() (p projectionView) {
		t.Helper()
		require.NoError(t, admin.want(http.StatusOK, &p, "GET", "/api/admin/projections/"+projection, ""))
		return p
	}
	in := func(entity string) (status, sequence, head string) {
		t.Helper()
		for _, e := range show().LegalEntities {
			if e.LegalEntity == entity {
				return e.Status, e.Sequence, e.Head
			}
		}
		return "", "", ""
	}
	register := func(entity, id string) {
		t.Helper()
		vendors.must(t, entity, "ap.register_vendor", object{"vendor_id": id, "name": "Firm Ltd", "country": "US"})
	}
	caughtUp := func(entity string) func() bool {
		return func() bool { status, at, head := in(entity); return status == "running" && at == head }
	}

	vendorsCaughtUp := regexp.MustCompile(`(?m)^ap\.vendors +2 +running +0 `) // with all legal entities
	testkit.Eventually(t, endTime, func() bool { return vendorsCaughtUp.MatchString(ok("projections", "list")) }, "the projection catches up")
	require.Regexp(t, `gl\.ledger, version \d+: running`, ok("projections", "show", "gl.ledger"))
	var printed projectionView
	require.NoError(t, json.Unmarshal([]byte(ok("projections", "show", projection, "--json")), &printed))
	require.Equal(t, "running", printed.Status)
	require.Len(t, printed.LegalEntities, len(show().LegalEntities))
	require.Equal(t, 1, cli("auditor", "projections", "pause", projection).code, "an auditor looks only")
	require.Zero(t, cli("auditor", "projections", "list").code)
	require.Contains(t, cli("admin", "projections", "show", "no.such").stderr, "projection.not_found")

	// Paused, it does not move; resumed, it catches up.
	require.Contains(t, ok("projections", "pause", projection), "paused")
	require.Contains(t, cli("admin", "projections", "pause", projection).stderr, "projection.wrong_state")
	testkit.Eventually(t, endTime, func() bool { return show().Status == "paused" })
	ok("projections", "resume", projection)
	register(good, "FIRM-1")
	testkit.Eventually(t, endTime, caughtUp(good))

	// The read model refuses an event of one legal entity.
	super, err := pgx.Connect(t.Context(), superuser(t, dir))
	require.NoError(t, err)
	defer super.Close(t.Context())
	_, err = super.Exec(t.Context(), "ALTER TABLE ap.vendors ADD CONSTRAINT too_strict CHECK (vendor_id <> 'POISON')")
	require.NoError(t, err)
	require.Contains(t, ok("projections", "configure", projection, "--max-attempts", "2", "--retry", "50"), "at most 2 attempts")
	register(bad, "FIRM-1")
	register(bad, "POISON")
	register(bad, "FIRM-2")
	register(good, "FIRM-2")
	testkit.Eventually(t, endTime, func() bool { status, _, _ := in(bad); return status == "faulted" })
	_, at, _ := in(bad)
	require.Equal(t, "1", at, "what came before it is kept")
	testkit.Eventually(t, endTime, caughtUp(good), "the other legal entities continue")
	var ready struct {
		Status  string            `json:"status"`
		Checks  map[string]string `json:"checks"`
		Reasons map[string]string `json:"reasons"`
	}
	testkit.Eventually(t, endTime, func() bool {
		require.NoError(t, admin.want(http.StatusOK, &ready, "GET", "/readyz", ""))
		return ready.Checks["projections"] == "degraded"
	}, "the node reports the state of the database")
	require.Equal(t, "degraded", ready.Status)
	require.Contains(t, ready.Reasons["projections"], "ap.vendors v2 in 1 legal entities")
	letters := ok("deadletters", "--status", "waiting")
	require.Regexp(t, `(?m)^projection ap\.vendors +PRJB +2 +\S+ +waiting +store\.failed `, letters)
	require.NotContains(t, letters, "POISON", "no value of the event")
	require.Contains(t, cli("admin", "projections", "skip", projection).stderr, "projection.partition_missing")
	require.Contains(t, cli("admin", "projections", "skip", projection, "--legal-entity", good).stderr, "projection.not_halted")

	// After the repair it applies the event.
	_, err = super.Exec(t.Context(), "ALTER TABLE ap.vendors DROP CONSTRAINT too_strict")
	require.NoError(t, err)
	ok("projections", "fix", projection, "--legal-entity", bad, "--reason", "The constraint was wrong.")
	testkit.Eventually(t, endTime, caughtUp(bad))
	require.Regexp(t, `(?m)^projection ap\.vendors +PRJB +2 +\S+ +resolved `, ok("deadletters", "--name", projection))
	count := func(entity string) (n int) {
		t.Helper()
		require.NoError(t, super.QueryRow(t.Context(), `SELECT count(*) FROM ap.vendors v JOIN backbone.legal_entities e USING (partition_id) WHERE e.code = $1`, entity).Scan(&n))
		return n
	}
	require.Equal(t, 3, count(bad))

	// A reset removes its rows and reads all events again.
	ok("projections", "reset", projection, "--legal-entity", bad)
	testkit.Eventually(t, endTime, func() bool { return caughtUp(bad)() && count(bad) == 3 })
	require.Equal(t, 2, count(good))
	testkit.Eventually(t, endTime, func() bool {
		ready.Status = ""
		return admin.want(http.StatusOK, &ready, "GET", "/readyz", "") == nil && ready.Checks["projections"] == "ok"
	})
}
