package verify_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// editedRows shows other rows of legal entities than were created.
type editedRows struct {
	*tamperedLog
	edit func([]ports.LegalEntity) []ports.LegalEntity
}

func (r editedRows) LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error) {
	rows, err := r.tamperedLog.LegalEntities(ctx, tenantID)
	return r.edit(rows), err
}

// TestRun_LegalEntities compares the rows of legal entities with the administrative log.
func TestRun_LegalEntities(t *testing.T) {
	t.Parallel()
	v := newVault()
	log, err := v.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: ports.AdministrativeCode})
	require.NoError(t, err)
	for _, code := range []string{"ONE", "TWO"} {
		le := v.entity(t, code, 1)
		genesis := event.GenesisChecksum(logName, le.Partition)
		e := v.prepared(log)
		e.Type, e.Stream = "backbone.legal_entity.created", event.StreamID{Type: "backbone.legal_entity", ID: code}
		e.Payload = fmt.Appendf(nil, `{"data":{"code":%q,"name":"","time_zone":"","partition_id":%d,"genesis":%q},"dimensions":{},"entity_refs":[]}`, code, le.Partition, hex.EncodeToString(genesis[:]))
		e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
		_, err := v.Append(t.Context(), ports.AppendRequest{Partition: log.Partition, Events: []event.Prepared{e}})
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		edit func([]ports.LegalEntity) []ports.LegalEntity
		want []place
	}{
		"as created": {func(rows []ports.LegalEntity) []ports.LegalEntity { return rows }, []place{}},
		"renamed": {func(rows []ports.LegalEntity) []ports.LegalEntity {
			rows[1].Name = "Three"
			return rows
		}, []place{{verify.LegalEntityMismatch, 2}}},
		"another time zone": {func(rows []ports.LegalEntity) []ports.LegalEntity {
			rows[0].TimeZone = "Asia/Tokyo"
			return rows
		}, []place{{verify.LegalEntityMismatch, 1}}},
		"another partition": {func(rows []ports.LegalEntity) []ports.LegalEntity {
			rows[0].Partition = rows[1].Partition
			return rows
		}, []place{{verify.LegalEntityMismatch, 1}}},
		"removed": {func(rows []ports.LegalEntity) []ports.LegalEntity { return rows[:1] }, []place{{verify.LegalEntityMismatch, 2}}},
		"inserted": {func(rows []ports.LegalEntity) []ports.LegalEntity {
			return append(rows, ports.LegalEntity{TenantID: "acme", Code: "THREE", Partition: 7})
		}, []place{{verify.LegalEntityMismatch, 0}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rows := editedRows{v, func(rows []ports.LegalEntity) []ports.LegalEntity { return c.edit(slices.Clone(rows)) }}
			reports, err := verify.Run(t.Context(), rows, "acme", []string{ports.AdministrativeCode}, nil)
			require.NoError(t, err)
			require.Len(t, reports, 1)
			require.Equal(t, c.want, places(reports[0]))
		})
	}
}
