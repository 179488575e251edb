package pipeline_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Planners go by how many events carry a tag, so large events do not end what they are
// shown early; it comes without the events' data.
func TestWhatCarriesATagIsShownWithoutItsData(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range module.TaggedLimit + 1 {
		_, err := b.store.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: []event.Prepared{{
			Skeleton: event.Skeleton{
				ID: ulid.Make(), Type: "till.cash.moved", SchemaVersion: 1, Stream: event.StreamID{Type: "till", ID: fmt.Sprint(i)}, Tags: []string{"slips"},
				Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
			},
			Payload: []byte(`{"data":{"text":"` + strings.Repeat("x", 1<<20) + `"},"dimensions":{},"entity_refs":[]}`), Keys: []string{event.TagKey("slips")},
		}}})
		require.NoError(t, err)
	}
	found, err := pipeline.NewStates(b.store, b.store, nil, 1).Tagged(t.Context(), b.entity.Partition, "slips")
	require.NoError(t, err)
	require.Len(t, found, module.TaggedLimit)
	for i, e := range found {
		require.Zero(t, len(e.Payload))
		require.EqualValues(t, i+1, e.Sequence)
		require.Equal(t, fmt.Sprint(i), e.Stream.ID)
		require.Equal(t, []string{"slips"}, e.Tags)
	}
}
