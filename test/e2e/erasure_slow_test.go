//go:build slow

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	killedErasures = 20
	farthestStep   = 30 // between two kills, of some 200 steps of all erasures
)

// TestErasuresKilled kills backbone, and PostgreSQL under it, at random moments while
// twenty erasures are under way, and again while it starts. Each ends, once: one receipt, one certificate, one
// announcement per legal entity.
func TestErasuresKilled(t *testing.T) {
	t.Parallel()
	dir := books(t)
	d := startOn(t, dir, recoveryStart)
	s := newStory(t, d, "E-300", "USMF", "DEMF")
	ids, events := map[string]string{}, map[string]string{} // by subject; events of it by request
	for i := range killedErasures {
		s.person, s.subject = fmt.Sprintf("E-3%02d", i), fmt.Sprintf("employee:E-3%02d", i)
		s.hire(t, s.there, 1)
		event := s.hire(t, s.here, 2)[0]
		ids[s.subject] = s.officer.requestErasure(t, s.subject).ID
		events[ids[s.subject]] = event
	}
	others := s.module.record(t, person(s.here, "E-400", object{"name": "Bea Norris"}))[0]

	// The journal of steps tells how far all of them are.
	progress := func() (steps, completed int) {
		t.Helper()
		testkit.EventuallyNoError(t, endTime, func() error { // a killed PostgreSQL comes back
			connection, err := pgx.Connect(t.Context(), superuser(t, dir))
			if err != nil {
				return err
			}
			defer func() { _ = connection.Close(context.Background()) }()
			return connection.QueryRow(t.Context(), "SELECT count(*), count(*) FILTER (WHERE state = 'completed') FROM keystore.pii_deletion_steps").Scan(&steps, &completed)
		})
		return steps, completed
	}
	for _, id := range ids {
		s.approver.approveErasure(t, id)
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	running, kills := d.process, 0
	for before, done := progress(); done < killedErasures; before, done = progress() {
		target := before + 1 + random.IntN(farthestStep)
		testkit.Eventually(t, endTime, func() bool {
			steps, completed := progress()
			return steps >= target || completed == killedErasures
		})
		if kills++; kills%3 != 0 {
			require.NoError(t, running.signal(syscall.SIGKILL))
		} else {
			pid, err := postmaster(dir)
			require.NoError(t, err)
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		}
		_, err := running.wait(endTime)
		require.NoError(t, err)
		running, err = launch(program(t), dir, nil, "dev", "--data-dir", dir, "--http", "127.0.0.1:0") // killed again before it is ready, maybe
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, running.end()) })
	}
	t.Logf("%d kills, seed %d", kills, seed)
	require.Greater(t, kills, 3)
	require.NoError(t, running.signal(syscall.SIGKILL))
	_, err := running.wait(endTime)
	require.NoError(t, err)
	d = startOn(t, dir, recoveryStart)
	s = newStory(t, d, "E-300", "USMF", "DEMF")
	for _, id := range ids {
		require.Equal(t, "completed", s.officer.erasure(t, id).Status)
	}

	// A kill may leave a file that was being written, with a dot before its name.
	receipts, err := filepath.Glob(filepath.Join(d.Exports, "receipts", "[^.]*"))
	require.NoError(t, err)
	require.Len(t, receipts, killedErasures)
	certificates, err := filepath.Glob(filepath.Join(d.Exports, "certificates", "[^.]*"))
	require.NoError(t, err)
	require.Len(t, certificates, killedErasures)
	key, err := os.ReadFile(verifierKeys(t, d.Exports)[0])
	require.NoError(t, err)
	named := map[uint64]bool{}
	for _, file := range certificates {
		document, err := os.ReadFile(file)
		require.NoError(t, err)
		c, err := erasure.VerifyCertificate(document, signednote.Opener{}, string(key[:len(key)-1]))
		require.NoError(t, err)
		require.Equal(t, ids[c.Subject], c.RequestID.String())
		require.Equal(t, []any{"complete", int64(3), 2}, []any{c.Outcome, c.Counts.Events, c.Counts.Versions})
		named[c.Receipt.Number] = true
	}
	require.Len(t, named, killedErasures, "each has a receipt of its own")
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
		require.Len(t, about, killedErasures)
		require.Len(t, announced, killedErasures, "each once")
	}
	for _, id := range events {
		data := s.module.data(t, s.here, id)
		require.Equal(t, []any{redactedValue, redactedValue}, []any{data["name"], data["email"]})
	}
	require.Equal(t, "Bea Norris", s.module.data(t, s.here, others)["name"])
	for subject := range ids {
		a := must(s.module.do("POST", "/api/events", batch(person(s.here, subject[len("employee:"):], object{"name": "Ada Mosley"}))))
		require.Equal(t, "pii.subject_erased", a.code(), a)
	}
	verdict := command(t, nil, "verify", "--data-dir", dir)
	require.Zero(t, verdict.code, verdict)
}
