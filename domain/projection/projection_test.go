package projection_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
)

// TestTransitions compares every state and action with the table of the life of a
// projection.
func TestTransitions(t *testing.T) {
	t.Parallel()
	const refused = projection.Status("")
	table := map[projection.Status]map[projection.Action]projection.Status{
		projection.Created: {projection.Start: projection.Running, projection.Stop: projection.Stopped, projection.Reset: projection.Created},
		projection.Running: {projection.Pause: projection.Paused, projection.Stop: projection.Stopped, projection.Reset: projection.Running,
			projection.Fix: projection.Running, projection.Skip: projection.Running, projection.Fault: projection.Faulted},
		projection.Paused: {projection.Resume: projection.Running, projection.Stop: projection.Stopped, projection.Reset: projection.Paused,
			projection.Fix: projection.Paused, projection.Skip: projection.Paused, projection.Fault: projection.Faulted},
		projection.Stopped: {projection.Start: projection.Running, projection.Reset: projection.Stopped},
		projection.Faulted: {projection.Stop: projection.Stopped, projection.Reset: projection.Running, projection.Fix: projection.Running,
			projection.Skip: projection.Running, projection.Fault: projection.Faulted},
	}
	for from, actions := range table {
		for _, a := range append(projection.Actions(), projection.Fault) {
			to, err := from.After(a)
			if want := actions[a]; want != refused {
				require.NoError(t, err, "%s %s", from, a)
				require.Equal(t, want, to, "%s %s", from, a)
				continue
			}
			require.Equal(t, "projection.wrong_state", fault.CodeOf(err), "%s %s", from, a)
			require.Equal(t, from, to)
		}
		_, err := from.After("destroy")
		require.Equal(t, "projection.action_unknown", fault.CodeOf(err))
	}
}

func TestSettings_Pause(t *testing.T) {
	t.Parallel()
	s := projection.DefaultSettings()
	for i, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		require.Equal(t, time.Duration(seconds)*time.Second, s.Pause(i+1))
	}
	require.Equal(t, time.Minute, s.Pause(1<<30), "no overflow")
}
