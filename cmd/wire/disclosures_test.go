package wire

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/configs"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// TestAccessesAreVerified binds accesses in PostgreSQL to the administrative log, and verifies
// them before and after one is edited.
func TestAccessesAreVerified(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t, nil, "empty")
	require.NoError(t, Migrate(t.Context(), dsn, nil, modules.BuiltIn()...))
	config := configs.Default()
	config.Database.DSN = configs.DSN(as(t, "backbone_app", dsn))
	a, err := Open(t.Context(), config, Options{Modules: modules.BuiltIn(), LogName: "node.example.org"})
	require.NoError(t, err)
	defer a.Close()
	_, err = a.Tenancy.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF", TimeZone: "UTC"}, event.Actor{})
	require.NoError(t, err)
	reader := ports.Principal{TenantID: "acme", PersonID: "p-1", PrincipalID: "p-1-1"}
	for range 3 {
		require.NoError(t, a.disclosures.Record(t.Context(), reader, disclosure.Purpose{Operation: "exportEvents"}, access.Access{Kind: access.Export}))
	}
	findings := func() (kinds []verify.FindingKind) {
		reports, err := verify.Run(t.Context(), a.Store.Chains, "acme", []string{ports.AdministrativeCode}, nil)
		require.NoError(t, err)
		for _, f := range reports[0].Findings {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	}
	execute := func(statement string) {
		conn := testkit.Must(pgx.Connect(t.Context(), dsn))
		_, err := conn.Exec(t.Context(), statement)
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
	}
	execute("UPDATE backbone.access_log SET at = at - interval '2 hours'")
	require.NoError(t, a.accesses.RunOnce(t.Context()))
	log, err := a.disclosures.Logs.Of(t.Context(), "acme")
	require.NoError(t, err)
	recorded, err := a.Store.Events.EventsOfStream(t.Context(), log.Partition, access.AccessStream, 1, 10)
	require.NoError(t, err)
	require.Len(t, recorded, 1)
	require.Empty(t, findings())

	execute("UPDATE backbone.access_log SET person_id = 'p-2' WHERE id = (SELECT id FROM backbone.access_log LIMIT 1)")
	require.Equal(t, []verify.FindingKind{verify.AccessMismatch}, findings())
	execute("DELETE FROM backbone.access_log")
	require.Equal(t, []verify.FindingKind{verify.AccessMismatch}, findings())
}
