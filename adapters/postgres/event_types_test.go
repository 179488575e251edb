package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	backbonesql "github.com/erpbackbone/backbone/sql/backbone"
)

// What was registered before the registry kept a history is in it as if it always
// had.
func TestTheHistoryBeginsWithWhatWasRegistered(t *testing.T) {
	t.Parallel()
	dsn := database(t)
	s := open(t, dsn)
	at := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	for i, name := range []string{"crm.lead.won", "crm.lead.lost", "crm.lead.won"} {
		_, err := s.RegisterEventType(t.Context(), eventtype.Registration{
			Type: name, SchemaVersion: uint32(1 + i/2), Module: "crm", DataSchema: []byte(`{"type":"object","title":"<ä>"}`), RetentionClass: eventtype.Standard,
			Active: true, RegisteredAt: at.Add(time.Duration(i) * time.Second), RegisteredBy: "p-1",
		})
		require.NoError(t, err)
	}
	want, err := s.EventTypeHistory(t.Context(), "crm.lead.won")
	require.NoError(t, err)
	require.Len(t, want, 2)
	before, generation, err := s.EventTypes(t.Context())
	require.NoError(t, err)

	superuser := connect(t, dsn)
	migration, err := backbonesql.Migrations.ReadFile("migrations/00007_registry_history.sql") // alone: what follows it is there already
	require.NoError(t, err)
	_, err = superuser.Exec(t.Context(), `SET ROLE backbone_owner; DROP TABLE backbone.event_type_history; `+string(migration))
	require.NoError(t, err)
	got, err := s.EventTypeHistory(t.Context(), "crm.lead.won")
	require.NoError(t, err)
	require.Equal(t, want, got)
	after, _, err := s.EventTypes(t.Context())
	require.NoError(t, err)
	require.Equal(t, before, after)
	for _, c := range got {
		require.LessOrEqual(t, c.Number, generation)
	}
}
