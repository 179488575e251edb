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

// Planners count the events with a tag. Their data is left out, so that the byte limit of
// a read does not truncate the list.
func TestTagged_WithoutData(t *testing.T) {
	t.Parallel()
	b := newCashFixture(t)
	for i := range module.TaggedLimit + 1 {
		_, err := b.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: []event.Prepared{{
			Skeleton: event.Skeleton{
				ID: ulid.Make(), Type: "cash.cash.moved", SchemaVersion: 1, Stream: event.StreamID{Type: "cash", ID: fmt.Sprint(i)}, Tags: []string{"slips"},
				Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: "p-1", ActorName: "clerk",
			},
			Payload: []byte(`{"data":{"text":"` + strings.Repeat("x", 1<<20) + `"},"dimensions":{},"entity_refs":[]}`), Keys: []string{event.TagKey("slips")},
		}}})
		require.NoError(t, err)
	}
	found, err := pipeline.NewStateCache(b.store.Events, b.store.Intents, nil, 1).Tagged(t.Context(), b.entity.Partition, "slips")
	require.NoError(t, err)
	require.Len(t, found, module.TaggedLimit)
	for i, e := range found {
		require.Zero(t, len(e.Payload))
		require.EqualValues(t, i+1, e.Sequence)
		require.Equal(t, fmt.Sprint(i), e.Stream.ID)
		require.Equal(t, []string{"slips"}, e.Tags)
	}
}
