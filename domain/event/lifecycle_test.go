package event_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
)

// TestStreamStates is the whole state machine: what each action makes of each
// state; "" is impossible.
func TestStreamStates(t *testing.T) {
	t.Parallel()
	actions := []event.StreamAction{event.AppendToStream, event.DescribeStream, event.DeleteStream, event.TombstoneStream, event.RecreateStream}
	require.Equal(t, event.StreamActions(), actions)
	for _, row := range []struct {
		from event.StreamState
		want [5]string
	}{
		//                      append    describe  delete     tombstone     recreate
		{event.StreamAbsent, [5]string{"active", "active", "", "", ""}},
		{event.StreamActive, [5]string{"active", "active", "deleted", "tombstoned", ""}},
		{event.StreamDeleted, [5]string{"", "", "", "tombstoned", "active"}},
		{event.StreamTombstoned, [5]string{"", "", "", "", ""}},
		{event.StreamState(9), [5]string{"", "", "", "", ""}},
	} {
		for i, action := range actions {
			to, possible := row.from.After(action)
			require.Equal(t, row.want[i] != "", possible, "%s, action %d", row.from, action)
			if possible {
				require.Equal(t, row.want[i], to.String(), "%s, action %d", row.from, action)
			} else {
				require.Equal(t, row.from, to)
			}
		}
	}
	for stored, want := range map[string]event.StreamState{
		"": event.StreamActive, "active": event.StreamActive, "deleted": event.StreamDeleted, "tombstoned": event.StreamTombstoned, "odd": event.StreamTombstoned,
	} {
		require.Equal(t, want, event.ParseStreamState(stored), stored)
	}
}
