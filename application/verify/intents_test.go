package verify_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// unboundIntent shows a row of an intent from before bindings in one partition.
type unboundIntent struct {
	*tamperedLog
	partition event.PartitionID
}

func (s unboundIntent) BoundIntents(_ context.Context, p event.PartitionID, after event.ID, _ int) ([]ports.BoundIntent, error) {
	if p != s.partition || after != (event.ID{}) {
		return nil, nil
	}
	return []ports.BoundIntent{{Intent: intent.Intent{ID: event.ID{1}, Partition: p, LastSequence: intent.BeforeBindings}}}, nil
}

// TestRun_UnboundIntents counts a row from before bindings where the legal entity may be as old, and
// reports it elsewhere.
func TestRun_UnboundIntents(t *testing.T) {
	t.Parallel()
	v := newVault()
	log, err := v.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: ports.AdministrativeCode})
	require.NoError(t, err)
	record := func(typ, stream, data string) {
		e := v.prepared(log)
		e.Type, e.Stream = typ, event.StreamID{Type: typ, ID: stream}
		e.Payload = []byte(`{"data":` + data + `,"dimensions":{},"entity_refs":[]}`)
		e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
		_, err := v.Append(t.Context(), ports.AppendRequest{Partition: log.Partition, Events: []event.Prepared{e}})
		require.NoError(t, err)
	}
	create := func(code string) ports.LegalEntity {
		le := v.entity(t, code, 1)
		record("backbone.legal_entity.created", code, fmt.Sprintf(`{"code":%q,"partition_id":%d}`, code, le.Partition))
		return le
	}
	adopted := create("OLD")
	record("backbone.administration.began", "log", `{"adopted_legal_entities":1}`)
	created := create("NEW")
	unrecorded := v.entity(t, "NONE", 1)

	for name, c := range map[string]struct {
		entity  ports.LegalEntity
		want    []place
		unbound uint64
	}{
		"legal entity from before the administrative log": {adopted, []place{}, 1},
		"legal entity without an event":                   {unrecorded, []place{}, 1},
		"legal entity that the log created":               {created, []place{{verify.IntentMismatch, 0}}, 0},
		"administrative log":                              {log, []place{{verify.IntentMismatch, 0}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reports, err := verify.Run(t.Context(), unboundIntent{v, c.entity.Partition}, "acme", nil, nil)
			require.NoError(t, err)
			for _, r := range reports {
				if r.Partition != c.entity.Partition {
					require.Zero(t, r.UnboundIntents)
					continue
				}
				require.Equal(t, c.unbound, r.UnboundIntents)
				got := []place{}
				for _, p := range places(r) {
					if p.Kind == verify.IntentMismatch {
						got = append(got, p)
					}
				}
				require.Equal(t, c.want, got)
			}
		})
	}
}
