package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	killedErasures = 20 // of persons with events only
	copiedErasures = 8  // of persons with copies in a read model
	farthestStep   = 30 // between two kills, of some 200 steps of all erasures

	// erasuresGoOn is how long erasures may take to the step of the next kill: after a kill
	// PostgreSQL recovers, and a failed step is retried within a minute.
	erasuresGoOn = 5 * time.Minute
)

// TestDrillErasuresKilled kills backbone, and PostgreSQL under it, at random moments of
// erasures and of starts, while operators build, switch, retain and drop versions and
// snapshots of the read model with copies. Each erasure completes once: with one receipt, one
// certificate, one announcement per legal entity, and no sealed copy in any version.
func TestDrillErasuresKilled(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	d := startOn(t, dir, recoveryStart)
	s := newPersonFixture(t, d, "E-300", "USMF", "DEMF")
	ids, events := map[string]string{}, map[string]string{} // by subject; events of it by request
	for i := range killedErasures {
		s.person, s.subject = fmt.Sprintf("E-3%02d", i), fmt.Sprintf("employee:E-3%02d", i)
		s.hire(t, s.there, 1)
		event := s.hire(t, s.here, 2)[0]
		ids[s.subject] = s.officer.requestErasure(t, s.subject).ID
		events[ids[s.subject]] = event
	}
	clerk := d.as(t, "ap_clerk")
	d.as(t, "vendor_admin").must(t, s.here, "ap.register_vendor", object{"vendor_id": "V-300", "name": "Firm Ltd", "country": "US"})
	contact := func(id, name string) {
		t.Helper()
		clerk.must(t, s.here, "ap.set_vendor_contact", object{"vendor_id": "V-300", "contact_id": id, "name": name, "email": "olaf@example.org"})
	}
	contact("K-400", "Bea Norris")
	for i := range copiedErasures {
		id := fmt.Sprintf("K-3%02d", i)
		contact(id, "Olaf Petersen")
		contact(id, "Olaf Petersson")
	}
	for i := range copiedErasures {
		subject := fmt.Sprintf("contact:K-3%02d", i)
		ids[subject] = s.officer.requestErasure(t, subject).ID
	}
	untouched := s.module.record(t, person(s.here, "E-400", object{"name": "Bea Norris"}))[0]

	// The recorded steps measure the progress of all erasures.
	progress := func() (steps, completed int) {
		t.Helper()
		testkit.EventuallyNoError(t, erasuresGoOn, func() error { // a killed PostgreSQL restarts
			connection, err := pgx.Connect(t.Context(), superuser(t, dir))
			if err != nil {
				return err
			}
			defer func() { _ = connection.Close(context.Background()) }()
			return connection.QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE state = 'completed') FROM keystore.pii_deletion_steps").Scan(&steps, &completed)
		})
		return steps, completed
	}
	o := newOperators(t, restarting(dir))
	o.transient = true // before an erasure reaches it, the active version has sealed values that a new version redacts
	const copies = "ap.vendors"
	o.repeat(func(n int) error {
		if n%2 == 0 {
			return o.rebuild(copies, "", "as a whole", object{})
		}
		return o.rebuildFromSnapshot(copies)
	})
	o.repeat(func(int) error { return o.rebuildPart(copies, s.here) })
	kinds := []string{"as a whole: begun", "a legal entity: begun", "snapshot"}
	o.reach(t, kinds...) // before the erasures too: the time between kills may be too short for all of them
	for _, id := range ids {
		s.approver.approveErasure(t, id)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	running, kills := d.process, 0
	for before, done := progress(); done < len(ids); before, done = progress() {
		target := before + 1 + random.IntN(farthestStep)
		testkit.Eventually(t, erasuresGoOn, func() bool {
			steps, completed := progress()
			return steps >= target || completed == len(ids)
		})
		kills++
		pid, err := postmaster(dir)
		if kills%3 != 0 || err != nil || syscall.Kill(pid, syscall.SIGKILL) != nil { // a start may be replacing it
			require.NoError(t, running.signal(syscall.SIGKILL))
		}
		_, err = running.wait(endTime)
		require.NoError(t, err)
		running, err = launch(program(t), dir, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0") // the next kill may come before it is ready
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, running.end()) })
	}
	o.stop(t, kinds...)
	t.Logf("%d kills, seed %d", kills, seed)
	require.Greater(t, kills, 3)
	require.NoError(t, running.signal(syscall.SIGKILL))
	_, err := running.wait(endTime)
	require.NoError(t, err)
	d = startOn(t, dir, recoveryStart)
	s = newPersonFixture(t, d, "E-300", "USMF", "DEMF")
	for _, id := range ids {
		require.Equal(t, "completed", s.officer.erasure(t, id).Status)
	}

	// A kill may leave a file that was being written, with a dot before its name.
	receipts, err := filepath.Glob(filepath.Join(d.Exports, "receipts", "[^.]*"))
	require.NoError(t, err)
	require.Len(t, receipts, len(ids))
	certificates, err := filepath.Glob(filepath.Join(d.Exports, "certificates", "[^.]*"))
	require.NoError(t, err)
	require.Len(t, certificates, len(ids))
	key, err := os.ReadFile(receiptKey(t, d.Exports))
	require.NoError(t, err)
	named := map[uint64]bool{}
	for _, file := range certificates {
		document, err := os.ReadFile(file)
		require.NoError(t, err)
		c, err := erasure.VerifyCertificate(document, signednote.Opener{}, string(key[:len(key)-1]))
		require.NoError(t, err)
		require.Equal(t, ids[c.Subject], c.RequestID.String())
		want := []any{"complete", int64(3), 2}
		if _, logged := events[c.RequestID.String()]; !logged {
			want = []any{"complete", int64(2), 1}
		}
		require.Equal(t, want, []any{c.Outcome, c.Counts.Events, c.Counts.Versions}, c.Subject)
		named[c.Receipt.Number] = true
	}
	require.Len(t, named, len(ids), "receipts are distinct")
	for _, entity := range []string{s.here, s.there} {
		announced, err := s.auditor.events(url.Values{"stream_type": {"type"}, "stream_id": {"pii.subject.erased"}, "legal_entity": {entity}})
		require.NoError(t, err)
		about := map[string]int{}
		for _, e := range announced {
			var data struct {
				Request string `json:"request_id"`
				Subject string `json:"subject"`
			}
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.Equal(t, ids[data.Subject], data.Request)
			about[data.Subject]++
		}
		require.Len(t, about, len(ids))
		require.Len(t, announced, len(ids), "one announcement each")
	}
	for _, id := range events {
		data := s.module.data(t, s.here, id)
		require.Equal(t, []any{redactedValue, redactedValue}, []any{data["name"], data["email"]})
	}
	require.Equal(t, "Bea Norris", s.module.data(t, s.here, untouched)["name"])
	requireNoCopies(t, dir)
	clerk = d.as(t, "ap_clerk")
	var vendors struct {
		Rows []json.RawMessage `json:"rows"`
	}
	require.NoError(t, clerk.want(http.StatusOK, &vendors, "GET", "/api/ap/vendors?vendor=V-300&legal_entity="+s.here, ""))
	require.Len(t, vendors.Rows, 1)
	require.Contains(t, string(vendors.Rows[0]), "Bea Norris")
	require.NotContains(t, string(vendors.Rows[0]), "Olaf")
	for subject, id := range ids {
		if events[id] == "" {
			contact := object{"vendor_id": "V-300", "contact_id": strings.TrimPrefix(subject, "contact:"), "name": "Olaf Petersen"}
			expect(t, http.StatusGone, "pii.subject_erased", must(clerk.submit(s.here, "ap.set_vendor_contact", contact)))
			continue
		}
		a := must(s.module.do("POST", "/api/events", batch(person(s.here, subject[len("employee:"):], object{"name": "Ada Mosley"}))))
		require.Equal(t, "pii.subject_erased", a.code(), a)
	}
	judge(t, d.DSN, "--data-dir", dir) // with the receipts and the key store
}

// restarting sends requests to the server of a data folder, at whichever address it has after
// a restart, until it answers.
func restarting(dir string) func(ctx context.Context, method, path, body string) (answer, error) {
	return func(ctx context.Context, method, path, body string) (answer, error) {
		pause := time.NewTicker(50 * time.Millisecond)
		defer pause.Stop()
		for {
			var file devFile
			text, err := os.ReadFile(filepath.Join(dir, "dev.json"))
			if err == nil && json.Unmarshal(text, &file) == nil {
				a, err := clientOf(file, "admin").do(method, path, body)
				// An unknown token means that another server took the address of the killed one.
				if err == nil && a.status < http.StatusInternalServerError && a.status != http.StatusUnauthorized {
					return a, nil
				}
			}
			select {
			case <-ctx.Done():
				return answer{}, ctx.Err()
			case <-pause.C:
			}
		}
	}
}

// requireNoCopies searches all tables but the log and its indexes, which keep sealed values and
// identifiers, for the erased persons with copies.
func requireNoCopies(t *testing.T, dir string) {
	t.Helper()
	connection, err := pgx.Connect(t.Context(), superuser(t, dir))
	require.NoError(t, err)
	defer func() { _ = connection.Close(context.Background()) }()
	rows, err := connection.Query(t.Context(), `SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname IN ('ap', 'gl', 'backbone')
		AND tablename !~ '^(events|event_payloads)(_|$)' AND tablename NOT IN ('event_keys', 'event_pii_subjects', 'intents', 'intent_pii_subjects') ORDER BY 1`)
	require.NoError(t, err)
	tables, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	kept := 0
	for _, table := range tables {
		var copies, foreign int
		require.NoError(t, connection.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE r::text ~ 'contact:K-3|Olaf|olaf'), count(*) FILTER (WHERE r::text LIKE '%contact:K-400%') FROM `+table+` r`).Scan(&copies, &foreign))
		require.Zero(t, copies, table)
		kept += foreign
	}
	require.Positive(t, kept, "copies of other persons are kept")
}
