package globallog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/test/conformance"
)

func TestGlobalLog(t *testing.T) {
	t.Parallel()
	conformance.RunGlobalLog(t, func(t *testing.T) conformance.GlobalLogHarness {
		d := pgtest.Open(t, pgtest.Database(t))
		return conformance.GlobalLogHarness{GlobalLog: d.GlobalLog, Appender: d.Appender, Directory: d.Directory, Types: d.Registry}
	})
}

// TestGlobalLog_UpperTile completes a tile of the second level, over 255 tiles that the test invents.
func TestGlobalLog_UpperTile(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	d := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, d, 1)[0]
	conn := pgtest.Connect(t, dsn)
	_, err := conn.Exec(t.Context(), `INSERT INTO backbone.log_ranges (first_position, first_sequence, count, partition_id) VALUES (0, 1, 255 * 256, 9)`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `INSERT INTO backbone.log_tiles (level, index, root, hashes)
		SELECT 0, i, sha256(i::text::bytea), (SELECT string_agg(sha256((i || '/' || j)::bytea), '') FROM generate_series(0, 255) j) FROM generate_series(0, 254) i`)
	require.NoError(t, err)
	for range 3 {
		_, err = d.Appender.Append(t.Context(), pgtest.Invoice(p, 100))
		require.NoError(t, err)
	}
	ranges, err := d.GlobalLog.ExtendGlobalLog(t.Context(), []event.PartitionID{p}, 1000)
	require.NoError(t, err)
	require.Equal(t, []globallog.Range{{First: 255 * 256, Partition: p, Sequence: 1, Count: 300}}, ranges)
	below, err := d.GlobalLog.GlobalHashes(t.Context(), 1, 0, 256)
	require.NoError(t, err)
	above, err := d.GlobalLog.GlobalHashes(t.Context(), 2, 0, 1)
	require.NoError(t, err)
	require.Equal(t, globallog.Tile{Level: 1, Hashes: below}.Root(), above[0])
	require.Equal(t, []string{"257"}, pgtest.Column(t, conn, "SELECT count(*)::text FROM backbone.log_tiles"))
}

// TestGlobalLog_Gap: events behind a gap, which no append leaves, are not taken, and keep no other log from growing.
func TestGlobalLog_Gap(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	d := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, d, 2)
	for _, id := range p {
		_, err := d.Appender.Append(t.Context(), pgtest.Invoice(id, 100))
		require.NoError(t, err)
	}
	conn := pgtest.Connect(t, dsn)
	for _, sequence := range []int{103, 1_000_000} {
		_, err := conn.Exec(t.Context(), "CREATE TEMP TABLE forged AS SELECT * FROM backbone.events WHERE partition_id = $1 AND sequence = 1", int(p[0]))
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "UPDATE forged SET sequence = $1, id = gen_random_uuid(), stream_version = $1", sequence)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "INSERT INTO backbone.events SELECT * FROM forged")
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), "DROP TABLE forged")
		require.NoError(t, err)
	}
	for _, step := range []struct {
		most int
		want []globallog.Range
	}{
		{60, []globallog.Range{{First: 0, Partition: p[0], Sequence: 1, Count: 60}, {First: 60, Partition: p[1], Sequence: 1, Count: 60}}},
		{1000, []globallog.Range{{First: 120, Partition: p[1], Sequence: 61, Count: 40}}},
		{40, []globallog.Range{{First: 160, Partition: p[0], Sequence: 61, Count: 40}}},
		{1000, []globallog.Range{}},
	} {
		ranges, err := d.GlobalLog.ExtendGlobalLog(t.Context(), p, step.most)
		require.NoError(t, err)
		require.Equal(t, step.want, ranges)
	}
	report, err := verify.GlobalLog(t.Context(), d.GlobalLog, verify.Anchors{}, nil)
	require.NoError(t, err)
	require.True(t, report.Sound(), report.Findings)
}

// TestGlobalLog_Immutable: with the credentials of a node no row is written but by extend_global_log, which takes
// events that exist, and record_checkpoint, which changes none that there is.
func TestGlobalLog_Immutable(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.As("backbone_app", pgtest.Database(t)))
	for _, statement := range []string{
		"INSERT INTO backbone.log_ranges (first_position, first_sequence, count, partition_id) VALUES (0, 1, 1, 1)", "UPDATE backbone.log_ranges SET count = 2",
		"DELETE FROM backbone.log_ranges", "TRUNCATE backbone.log_ranges",
		"INSERT INTO backbone.log_tiles (level, index, root, hashes) VALUES (0, 0, sha256(''), '')", "UPDATE backbone.log_tiles SET root = ''",
		"INSERT INTO backbone.log_checkpoints (incarnation, size, root, note) VALUES (1, 1, sha256(''), 'x')", "UPDATE backbone.log_checkpoints SET note = 'x'",
		"DELETE FROM backbone.log_checkpoints", "TRUNCATE backbone.log_checkpoints",
		"DELETE FROM backbone.log_tiles", "TRUNCATE backbone.log_tiles", "SELECT backbone.tile_root('')",
	} {
		_, err := conn.Exec(t.Context(), statement)
		require.ErrorContains(t, err, "permission denied", statement)
	}
}
