package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/test/testkit"
)

const hireType = `{"type":"hr.employee.hired","schema_version":1,"module":"hr",
	"data_schema":{"type":"object","additionalProperties":false,"required":["email","grade"],"properties":{"email":{"type":"string"},"grade":{"type":"integer"}}},
	"required_entity_refs":[{"entity_type":"employee","role":"subject","cardinality":"one"}],
	"pii_fields":[{"path":"$.email","class":"contact","subject":{"entity_role":"subject"}}],
	"examples":[{"email":"ada@example.org","grade":1}]}`

// recordEmployee is an event with the address of a person in it.
func recordEmployee(entity, person string) string {
	return fmt.Sprintf(`{"type":"hr.employee.hired","scope":{"legal_entity":%q},"stream":{"type":"employment","id":%q},"data":{"email":"%s@example.org","grade":3},
		"dimensions":{},"entities":[{"entity_type":"employee","entity_id":%q,"role":"subject"}]}`, entity, person, strings.ToLower(person), person)
}

// health is the answer of /readyz.
type health struct {
	Status string            `json:"status"`
	Checks map[string]string `json:"checks"`
}

var listeningLine = regexp.MustCompile(`(?m)^Listening on `)

// keyServer is `backbone kmsd` on a socket, which a test may stop and start again.
type keyServer struct {
	*process
	folder, socket string
}

func startKeyServer(t *testing.T) *keyServer {
	t.Helper()
	k := &keyServer{folder: filepath.Join(t.TempDir(), "kms"), socket: filepath.Join(t.TempDir(), "s")}
	issued := command(t, nil, "kmsd", "credentials", "--keys", k.folder, "--out", k.folder+"-credentials")
	require.Zero(t, issued.code, issued)
	k.start(t)
	return k
}

func (k *keyServer) start(t *testing.T) {
	t.Helper()
	p, err := launch(program(t), "", nil, "kmsd", "--listen", "unix:"+k.socket, "--keys", k.folder)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.end()) })
	_, err = p.awaitOutput(p.stdout, listeningLine, endTime)
	require.NoError(t, err)
	k.process = p
}

func (k *keyServer) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, k.signal(syscall.SIGKILL))
	_, err := k.wait(endTime)
	require.NoError(t, err)
}

// settings configure the key server and a folder for exports.
func (k *keyServer) settings(t *testing.T) []string {
	t.Helper()
	return []string{
		"BACKBONE_KMS_ENDPOINT=unix:" + k.socket, "BACKBONE_KMS_CREDENTIALS_FILE=" + k.folder + "-credentials",
		"BACKBONE_ERASURE_EXPORT_DIRECTORY=" + filepath.Join(t.TempDir(), "exports"),
	}
}

// TestDrillKeyServiceOutage stops the key service: requests without personal data succeed,
// requests that need a key fail with a retryable error, no value is reported as erased, and the
// server reports degraded. It recovers without a restart.
func TestDrillKeyServiceOutage(t *testing.T) {
	t.Parallel()
	needPostgres(t)
	kms := startKeyServer(t)
	i := installWith(t, kms.settings(t)...)
	_, anonymous := i.serve(t)
	admin := anonymous.as(i.admin)
	require.NoError(t, admin.want(201, nil, "POST", "/api/admin/legal-entities", `{"code":"FRMF","name":"France","time_zone":"Europe/Paris"}`))
	require.NoError(t, admin.want(201, nil, "POST", "/api/event-types", hireType))
	i.machines(t, anonymous.server)
	hr, auditor := anonymous.as(i.enroll(t, "s-hr", "module", "--service")), anonymous.as(i.enroll(t, "p-0002", "auditor"))
	ready := func() (h health) {
		t.Helper()
		require.NoError(t, anonymous.want(200, &h, "GET", "/readyz", ""))
		return h
	}
	var first struct {
		Events []struct {
			ID string `json:"id"`
		} `json:"events"`
	}
	require.NoError(t, hr.want(201, &first, "POST", "/api/events", batch(recordEmployee("FRMF", "E-1"))))
	email := func(c client) string {
		t.Helper()
		var e struct {
			Event struct {
				Data struct {
					Email string `json:"email"`
				} `json:"data"`
			} `json:"event"`
		}
		require.NoError(t, c.want(200, &e, "GET", "/api/events/"+first.Events[0].ID+"?legal_entity=FRMF", ""))
		return e.Event.Data.Email
	}
	require.Equal(t, "e-1@example.org", email(hr))
	require.Equal(t, "[MASKED]", email(auditor))
	var state health // a busy machine may answer a probe late
	testkit.Eventually(t, endTime, func() bool { state = ready(); return state.Status == "ok" }, "readiness is ok")
	require.Equal(t, map[string]string{"database": "ok", "installation": "ok", "kms": "ok", "key_store": "ok", "receipts": "ok", "projections": "ok", "subscriptions": "ok", "webhooks": "ok"}, state.Checks)

	kms.kill(t)
	for i := range 3 {
		require.NoError(t, hr.want(201, nil, "POST", "/api/events", batch(machineServiced("FRMF", fmt.Sprintf("M-%d", i), `{"hours":1}`))))
	}
	refused, err := hr.do("POST", "/api/events", batch(recordEmployee("FRMF", "E-2")))
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, refused.status, refused)
	require.Equal(t, "kms.unavailable", refused.code())
	require.NotEmpty(t, refused.header.Get("Retry-After"))
	require.NotContains(t, string(refused.body), "example.org")
	require.Equal(t, "e-1@example.org", email(hr), "its key is in memory, for a minute")
	testkit.Eventually(t, endTime, func() bool { h := ready(); return h.Status == "degraded" && h.Checks["kms"] == "degraded" }, "readiness is degraded")

	kms.start(t)
	testkit.Eventually(t, endTime, func() bool {
		a, err := hr.do("POST", "/api/events", batch(recordEmployee("FRMF", "E-2")))
		require.NoError(t, err)
		return a.status == http.StatusCreated
	}, "the key service is back")
	testkit.Eventually(t, endTime, func() bool { return ready().Status == "ok" }, "readiness is ok")

	// A rotation runs while the server runs.
	type epoch struct {
		State string `json:"state"`
		Keys  int    `json:"keys"`
	}
	epochs := func() []epoch {
		t.Helper()
		var listed struct {
			Epochs []epoch `json:"epochs"`
		}
		list := command(t, i.env, "keys", "list", "--json")
		require.Zero(t, list.code, list)
		require.NoError(t, json.Unmarshal([]byte(list.stdout), &listed))
		return listed.Epochs
	}
	const keys = 4 // two persons, and the tenant's secrets for fingerprints and for the index of persons, which a node makes when it comes to them
	testkit.Eventually(t, endTime, func() bool { return epochs()[0].Keys == keys }, "the index has its secret")
	rotated := command(t, i.env, "keys", "rotate", "--tenant", "acme", "--json")
	require.Zero(t, rotated.code, rotated)
	require.Equal(t, []epoch{{"deleting", 0}, {"active", keys}}, epochs())
	require.Equal(t, "e-1@example.org", email(hr))
	require.NoError(t, hr.want(201, nil, "POST", "/api/events", batch(recordEmployee("FRMF", "E-3"))))
	require.True(t, kms.alive())
	verdict := command(t, i.env, "verify")
	require.Zero(t, verdict.code, verdict)
}

// TestDevKeys requires that a later run of `backbone dev` opens values of an earlier one, also
// after a kill, and that the keys are outside the data of PostgreSQL.
func TestDevKeys(t *testing.T) {
	t.Parallel()
	dir := copyOfBooks(t)
	entity, id := "", ""
	for run := range 3 {
		d := startOn(t, dir, recoveryStart)
		entity = d.LegalEntities[0]
		if run == 0 {
			require.NoError(t, d.as(t, "admin").want(201, nil, "POST", "/api/event-types", hireType))
			var made struct {
				Events []struct {
					ID string `json:"id"`
				} `json:"events"`
			}
			require.NoError(t, d.as(t, "module").want(201, &made, "POST", "/api/events", batch(recordEmployee(entity, "E-1"))))
			id = made.Events[0].ID
		}
		a, err := d.as(t, "module").do("GET", "/api/events/"+id+"?legal_entity="+entity, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.status, a)
		require.Contains(t, string(a.body), `"e-1@example.org"`)
		require.DirExists(t, filepath.Join(dir, "kms"))
		require.DirExists(t, filepath.Join(dir, "exports"))
		if run == 0 {
			require.NoError(t, d.signal(syscall.SIGKILL))
			_, err = d.wait(endTime)
			require.NoError(t, err)
			continue
		}
		rotated := command(t, nil, "keys", "rotate", "--data-dir", dir)
		require.Zero(t, rotated.code, rotated)
		require.Contains(t, rotated.stdout, fmt.Sprintf("epoch %d is active", run+1))
		super, err := pgx.Connect(t.Context(), superuser(t, dir))
		require.NoError(t, err)
		_, err = super.Exec(t.Context(), `INSERT INTO backbone.blind_index (partition_id, kind, hash, subject_id, class, event_type, path, key_class)
			SELECT partition_id, 1, '\x0011223344556677', 'employee:E-stale', 'contact', 'hr.employee.hired', '$.email', 0 FROM backbone.legal_entities`)
		require.NoError(t, err)
		restored := command(t, nil, "keys", "restore", "--data-dir", dir)
		require.Zero(t, restored.code, restored)
		require.Contains(t, restored.stdout, "the database lacks no key")
		stale := 0
		require.NoError(t, super.QueryRow(t.Context(), "SELECT count(*) FROM backbone.blind_index WHERE subject_id = 'employee:E-stale'").Scan(&stale))
		require.Zero(t, stale, "the index is built again, as after a restore that was cut off behind the keys")
		require.NotContains(t, restored.stdout, "withheld")
		require.NoError(t, super.Close(t.Context()))
		replayed := command(t, nil, "erasure", "replay", "--data-dir", dir)
		require.Zero(t, replayed.code, replayed)
		code, err := d.interrupt()
		require.NoError(t, err)
		require.Zero(t, code, d.stderr)
	}
}
