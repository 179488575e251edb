package wire

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/embeddedpg"
	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/vault"
	"github.com/erpbackbone/backbone/configs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/kmstest"
	"github.com/erpbackbone/backbone/test/testkit"
)

const (
	drillTenant   = "acme"
	drillDatabase = "postgres"
	drillType     = "hr.employee.hired"
	drillPatience = 5 * time.Minute // nodes of before a restart are waited for a minute
	erasedName    = "person:P-1"
	survivorName  = "person:P-2"
)

// drill is an installation whose database is thrown away and restored.
type drill struct {
	t       *testing.T
	clock   *testkit.Clock // of the key service
	config  configs.Config
	cluster *embeddedpg.Cluster
	server  *Server
	stop    func()
	entity  ports.LegalEntity
}

// startCluster starts PostgreSQL on a folder and leads the configuration there.
func (d *drill) startCluster(folder string) {
	var err error
	d.cluster, err = embeddedpg.Start(d.t.Context(), embeddedpg.Config{DataDir: folder})
	require.NoError(d.t, err)
	require.NoError(d.t, Migrate(d.t.Context(), d.cluster.SuperuserDSN(drillDatabase), nil, modules.BuiltIn()...))
	conn, err := pgx.Connect(d.t.Context(), d.cluster.SuperuserDSN(drillDatabase))
	require.NoError(d.t, err)
	defer conn.Close(context.Background())
	for _, role := range []string{"backbone_app", "backbone_eraser"} {
		_, err = conn.Exec(d.t.Context(), "ALTER ROLE "+role+" WITH LOGIN PASSWORD 'drill'")
		require.NoError(d.t, err)
	}
	d.config.Database.DSN = configs.DSN(d.cluster.DSN("backbone_app", "drill", drillDatabase))
	d.config.Database.EraserDSN = configs.DSN(d.cluster.DSN("backbone_eraser", "drill", drillDatabase))
}

func (d *drill) stopCluster() {
	ctx, cancel := context.WithTimeout(context.Background(), drillPatience)
	defer cancel()
	require.NoError(d.t, d.cluster.Stop(ctx))
}

// serve runs a node without its transport.
func (d *drill) serve() {
	var err error
	d.server, err = NewServer(d.t.Context(), d.config, Options{Modules: modules.BuiltIn(), LogName: "drill.example.org"})
	require.NoError(d.t, err)
	ctx, cancel := context.WithCancel(d.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.server.App.Run(ctx)
	}()
	d.stop = func() {
		cancel()
		<-ended
		require.NoError(d.t, d.server.Close())
	}
}

// hire appends n events about a person.
func (d *drill) hire(person string, n int) {
	subject, id, _ := strings.Cut(person, ":")
	for i := range n {
		_, _, err := d.server.App.appends.Append(d.t.Context(), eventappend.Request{
			LegalEntity: d.entity, Actor: event.Actor{Type: event.System, ID: "s-hr", Name: "hr"}, PersonID: "s-hr",
			Drafts: []event.Draft{{
				Type: drillType, OccurredAt: time.Now(), Stream: event.StreamID{Type: "employment", ID: fmt.Sprintf("%s-%d", id, i)},
				Data:     json.RawMessage(fmt.Sprintf(`{"name":"Name of %s","email":"%s.%d@example.org","grade":%d}`, id, strings.ToLower(id), i, i)),
				Entities: []event.EntityRef{{Type: subject, ID: id, Role: "subject"}},
			}},
		})
		require.NoError(d.t, err)
	}
}

// fields opens every event of a person and counts its fields by how they read.
func (d *drill) fields(v *vault.Vault, person string) (clear, redacted, failed int, code string) {
	subject, err := shredding.ParseSubject(person)
	require.NoError(d.t, err)
	events, err := d.server.App.Store.PersonalRecords.PersonalEvents(d.t.Context(), d.entity.Partition, subject, 0, 100)
	require.NoError(d.t, err)
	require.NotEmpty(d.t, events)
	for _, e := range events {
		documents := []module.SealedDocument{{
			At:       shredding.Location{Partition: d.entity.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion},
			Document: e.Payload,
		}}
		if err := v.Open(d.t.Context(), documents, module.Planning{}); err != nil {
			failed += 2
			code = fault.CodeOf(err)
			continue
		}
		var payload struct {
			Data struct{ Name, Email string }
		}
		require.NoError(d.t, json.Unmarshal(documents[0].Document, &payload))
		for _, value := range []string{payload.Data.Name, payload.Data.Email} {
			switch {
			case value == "[REDACTED]":
				redacted++
			case strings.Contains(value, "P-") || strings.Contains(value, "p-"):
				clear++
			default:
				d.t.Fatalf("a field reads %q", value)
			}
		}
	}
	return clear, redacted, failed, code
}

// erase erases a person: one colleague requests it, another approves.
func (d *drill) erase(person string) {
	officer := func(id string, role string) ports.Principal {
		return ports.Principal{TenantID: drillTenant, PersonID: id, PrincipalID: id + "-1", ActorType: event.Human, Roles: []string{role}}
	}
	service, first, second := d.server.App.personal.service, officer("p-10", "compliance"), officer("p-11", "compliance_approver")
	request, err := service.Request(d.t.Context(), first, erasure.NewRequest{Subject: person, Basis: "gdpr_art_17", Reason: "Letter of March"})
	require.NoError(d.t, err)
	_, err = service.Approve(d.t.Context(), second, request.ID, request.Scope)
	require.NoError(d.t, err)
	testkit.Eventually(d.t, drillPatience, func() bool {
		status, err := service.Get(d.t.Context(), first, request.ID)
		require.NoError(d.t, err)
		return status.State == string(shredding.ErasureCompleted)
	}, "the erasure is completed")
}

// TestDrillRestore restores a backup from before an erasure. It opens no value of the erased
// person, and after the steps of docs/operate, keys restore and erasure replay, every value of
// all other persons.
func TestDrillRestore(t *testing.T) {
	const events = 5
	d := &drill{t: t, clock: testkit.NewClock(time.Now()), config: configs.Default()}
	root, err := os.MkdirTemp("", "backbone-drill-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(root)) })
	require.NoError(t, os.Chmod(root, 0o755)) //nolint:gosec // PostgreSQL may run as another user
	d.config.Erasure.ExportDirectory = filepath.Join(t.TempDir(), "exports")
	d.config.Rotation.At = ""
	kms := kmstest.Serve(t, d.clock)
	d.config.KMS.Endpoint, d.config.KMS.CredentialsFile = kms.Endpoint, kms.Credentials

	// A life before the backup.
	original, backup := filepath.Join(root, "original"), filepath.Join(root, "backup")
	d.startCluster(original)
	d.serve()
	d.entity, err = d.server.App.Tenancy.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: drillTenant, Code: "FRMF", Name: "France", TimeZone: "Europe/Paris"}, event.Actor{})
	require.NoError(t, err)
	subject := json.RawMessage(`{"entity_role":"subject"}`)
	_, err = d.server.App.Registry.Register(t.Context(), eventtype.Registration{
		TenantID: drillTenant, Type: drillType, SchemaVersion: 1, Module: "hr",
		DataSchema:         json.RawMessage(`{"type":"object","additionalProperties":false,"required":["name","email","grade"],"properties":{"name":{"type":"string"},"email":{"type":"string"},"grade":{"type":"integer"}}}`),
		RequiredEntityRefs: []eventtype.RequiredRef{{EntityType: "person", Role: "subject", Cardinality: eventtype.One}},
		PIIFields:          []eventtype.PIIField{{Path: "$.name", Class: "identity", Subject: subject}, {Path: "$.email", Class: "contact", Subject: subject}},
		RetentionClass:     eventtype.Standard, Examples: []json.RawMessage{json.RawMessage(`{"name":"Ada","email":"ada@example.org","grade":1}`)},
	}, event.Actor{Type: event.Human, ID: "p-0001"}, registry.ProofRequest{})
	require.NoError(t, err)
	d.hire(erasedName, events)
	d.hire(survivorName, events)
	clear, _, _, _ := d.fields(d.server.App.vault, erasedName)
	require.Equal(t, 2*events, clear)
	d.stop()
	d.stopCluster()
	out, err := exec.Command("cp", "-a", original, backup).CombinedOutput()
	require.NoError(t, err, string(out))

	// The erasure, and the rotation after it.
	d.startCluster(original)
	d.serve()
	d.erase(erasedName)
	clear, redacted, _, _ := d.fields(d.server.App.vault, erasedName)
	require.Equal(t, []int{0, 2 * events}, []int{clear, redacted})
	rotated, err := d.server.App.personal.Rotation.Rotate(t.Context(), drillTenant, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, rotated.Covers)
	clear, _, _, _ = d.fields(d.server.App.vault, survivorName)
	require.Equal(t, 2*events, clear)
	d.hire(survivorName+"9", 1) // a person whom the backup does not know
	d.stop()
	d.stopCluster()
	d.clock.Advance(8 * 24 * time.Hour)

	// The disaster: only the backup is left.
	d.startCluster(backup)
	d.serve()
	defer func() { d.stop(); d.stopCluster() }()
	app := d.server.App
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(app.personal.Gate.LastVerdict()))
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(app.Ready(t.Context())["receipts"]))
	_, _, failed, code := d.fields(app.vault, survivorName)
	require.Equal(t, 2*events, failed)
	require.Equal(t, "pii.receipts_behind", code)
	_, err = app.personal.Rotation.Rotate(t.Context(), drillTenant, nil)
	require.Equal(t, "pii.receipts_behind", fault.CodeOf(err), "nothing is rotated before the repair")
	// Who goes around the gate finds nothing that opens: the KEK is destroyed.
	ungated := func() *vault.Vault {
		return testkit.Must(vault.New(vault.Config{
			Keys: app.personal.Store, DataKeys: app.personal.DataKeys, Manifests: app.Registry, Limits: app.vault.Limits,
		}))
	}
	for _, person := range []string{erasedName, survivorName} {
		clear, _, failed, code = d.fields(ungated(), person)
		require.Equal(t, []int{0, 2 * events}, []int{clear, failed}, person)
		require.Equal(t, "kms.key_not_found", code)
	}

	restored, err := app.personal.Rotation.Restore(t.Context(), 0, nil)
	require.NoError(t, err)
	require.Positive(t, restored.Keys)
	clear, _, failed, _ = d.fields(ungated(), survivorName)
	require.Equal(t, []int{2 * events, 0}, []int{clear, failed}, "100 %% of the survivor's fields")
	clear, _, _, _ = d.fields(ungated(), erasedName)
	require.Zero(t, clear, "also before the replay")

	keys, err := storedVerifierKeys(t.Context(), app.personal.Exports)
	require.NoError(t, err)
	n, err := app.personal.Replay(t.Context(), keys, nil)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.NoError(t, app.personal.Gate.Check(t.Context()))
	app.vault.EvictAll()
	clear, redacted, failed, _ = d.fields(app.vault, erasedName)
	require.Equal(t, []int{0, 2 * events, 0}, []int{clear, redacted, failed})
	clear, _, failed, _ = d.fields(app.vault, survivorName)
	require.Equal(t, []int{2 * events, 0}, []int{clear, failed})
	require.NoError(t, app.Ready(t.Context())["receipts"])

	// Life goes on: the survivor's key seals, the erased one is refused.
	d.hire(survivorName+"0", 1)
	_, _, err = app.appends.Append(t.Context(), eventappend.Request{
		LegalEntity: d.entity, Actor: event.Actor{Type: event.System, ID: "s-hr", Name: "hr"}, PersonID: "s-hr",
		Drafts: []event.Draft{{
			Type: drillType, OccurredAt: time.Now(), Stream: event.StreamID{Type: "employment", ID: "again"},
			Data: json.RawMessage(`{"name":"Back","email":"back@example.org","grade":1}`), Entities: []event.EntityRef{{Type: "person", ID: "P-1", Role: "subject"}},
		}},
	})
	require.Equal(t, "pii.subject_erased", fault.CodeOf(err))
	// And the next rotation finds nothing amiss.
	_, err = app.personal.Rotation.Rotate(t.Context(), drillTenant, nil)
	require.NoError(t, err)
}
