package verify_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
)

// TestRun_ExtraStreamRows counts more streams than begin, and none of what is
// compared one by one says which.
func TestRun_ExtraStreamRows(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "ONE", 10)
	require.Empty(t, places(v.run(t)[0]))
	v.kept = 1
	require.Equal(t, []place{{verify.StreamMismatch, 0}}, places(v.run(t)[0]))
}

// TestRun_EventsBeforeFirstOfStream gives an event a version that no stream has.
func TestRun_EventsBeforeFirstOfStream(t *testing.T) {
	t.Parallel()
	v := newVault()
	v.entity(t, "ONE", 10)
	for _, version := range []event.Version{0, 1 << 63} {
		v.tamper = func(_ event.PartitionID, events []event.Recorded) []event.Recorded {
			events[4].StreamVersion = version
			return events
		}
		require.Contains(t, places(v.run(t)[0]), place{verify.StreamMismatch, 5})
	}
}
