package cli

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
)

// TestComparison tells "no row differs" from "nothing could be compared", which must not
// read the same.
func TestComparison(t *testing.T) {
	t.Parallel()
	printed := func(c client.ProjectionComparison) string {
		var out bytes.Buffer
		c.Name, c.Left, c.Right = "gl.ledger", 1, 2
		require.NoError(t, printPage(&out, func(p *page) { p.comparison(c) }))
		return out.String()
	}
	compared := []client.ProjectionDifference{{LegalEntity: "DEMF", Sequence: "7"}}
	require.Equal(t, "gl.ledger, version 1 (left, shown) and version 2 (right): nothing was compared\n"+
		"Not compared, since the versions could not be brought to the same event: DEMF\n", printed(client.ProjectionComparison{Rows: "0", NotCompared: []string{"DEMF"}}))
	require.Contains(t, printed(client.ProjectionComparison{Rows: "0", LegalEntities: compared}), ": 0 rows differ\n")
	require.Contains(t, printed(client.ProjectionComparison{Rows: "1", LegalEntities: compared}), ": 1 row differs\n")
}

// TestSnapshotsTable: what was redacted since is removed from a snapshot
// that is complete, and nothing may be left of it.
func TestSnapshotsTable(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, printPage(&out, func(p *page) {
		p.snapshots([]client.ProjectionSnapshot{
			{Version: 3, Complete: true, LegalEntities: []client.ProjectionSnapshotPart{{LegalEntity: "DEMF", Sequence: "7", RowCount: "2", Usable: true}}},
			{Version: 2, Complete: true, LegalEntity: "DEMF"}, {Version: 1, LegalEntity: "USMF"},
		})
	}))
	require.Regexp(t, `(?m)^3 +DEMF +7 +2 +- +usable$`, out.String())
	require.Regexp(t, `(?m)^2 +DEMF +- +0 +- +redacted since$`, out.String())
	require.Regexp(t, `(?m)^1 +USMF +- +0 +- +being copied$`, out.String())
}

func TestRowsOutcome(t *testing.T) {
	t.Parallel()
	require.Equal(t, "all rows are as the log makes them", rowsOutcome("0", false))
	require.Equal(t, "all rows are as the log makes them", rowsOutcome("0", true))
	require.Equal(t, "1 row is not as the log makes it; nothing was changed", rowsOutcome("1", true))
	require.Equal(t, "3 rows were not as the log makes them and are now", rowsOutcome("3", false))
}

// TestSettingsText: an operator who sets a value sees that it was set.
func TestSettingsText(t *testing.T) {
	t.Parallel()
	s := client.ProjectionSettings{MaxAttempts: 5, RetryMs: 1000, RetryMaxMs: 60000, OnPoison: "skip"}
	s.Checkpoint.Mode = "synchronous"
	require.Equal(t, "at most 5 attempts, then skip; pauses of 1000 to 60000 ms; the node's batch size; checkpoints synchronous; shared by all nodes", settingsText(s))
	s.BatchSize, s.SingleInstance = 50, true
	s.Checkpoint.Mode, s.Checkpoint.Events, s.Checkpoint.WaitMs = "batched", 100, 200
	require.Equal(t, "at most 5 attempts, then skip; pauses of 1000 to 60000 ms; batches of 50 events; checkpoints batched, each 100 events or 200 ms; on one node at a time", settingsText(s))
}
