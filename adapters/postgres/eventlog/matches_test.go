package eventlog_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// TestDrillMatchCostOfFrequentKeys looks for events that carry two frequent keys
// which never meet, and for some that carry a frequent and a rare one: no call scans
// more than its share, and the rare key leads.
func TestDrillMatchCostOfFrequentKeys(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	const rows = 60_000
	owner := pgtest.Connect(t, dsn)
	fill(t, owner, p, rows)
	_, err := owner.Exec(t.Context(), `INSERT INTO backbone.event_keys (partition_id, key, sequence, type_no)
		SELECT $1::int, CASE WHEN n % 2 = 0 THEN 'tag:even' ELSE 'tag:odd' END, n, 1 FROM generate_series(1, $2::int) n
		UNION ALL SELECT $1::int, 'tag:rare', n, 1 FROM generate_series(9999, $2::int, 10000) n`, int32(p), rows)
	require.NoError(t, err)

	read := func(tags ...string) (sequences []event.Sequence, calls int) {
		q := ports.MatchQuery{Partition: p, Items: []concurrency.Item{{Tags: tags}}, Until: rows, Limit: 100, WithoutData: true}
		for q.After < q.Until {
			page, err := s.Events.Matches(t.Context(), q)
			require.NoError(t, err)
			require.Greater(t, page.Through, q.After)
			for _, m := range page.Matches {
				sequences = append(sequences, m.Event.Sequence)
			}
			q.After = page.Through
			calls++
		}
		return sequences, calls
	}
	sequences, calls := read("even", "odd")
	require.Empty(t, sequences)
	require.Equal(t, 30_000/concurrency.MaxConditionScan, calls)
	sequences, calls = read("odd", "rare")
	require.Equal(t, []event.Sequence{9999, 19999, 29999, 39999, 49999, 59999}, sequences)
	require.Equal(t, 1, calls)
	sequences, _ = read("even", "rare")
	require.Empty(t, sequences)

	// An append that checks such a condition blocks no other append.
	ctx, cancel := context.WithTimeout(t.Context(), pgtest.WaitLimit)
	defer cancel()
	_, err = s.Appender.Append(ctx, ports.AppendRequest{Partition: p, Conditions: []concurrency.AppendCondition{
		{After: rows - 2*concurrency.MaxConditionScan, Items: []concurrency.Item{{Tags: []string{"even", "odd"}}}},
	}})
	require.NoError(t, err)
}
