package eventlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// TestPersonalKeys_Pages reads the keys of a partition in pages of every size: each comes once, with
// the first event that it sealed.
func TestPersonalKeys_Pages(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	books := pgtest.NewPartitions(t, s, 2)
	pgtest.Execute(t, dsn, fmt.Sprintf(`
INSERT INTO backbone.event_pii_subjects (partition_id, subject_id, sequence, class, paths)
VALUES (%[1]d, 'employee:E-1', 7, 0, '{/data/a}'), (%[1]d, 'employee:E-1', 3, 0, '{/data/a}'), (%[1]d, 'employee:E-1', 5, 1, '{/data/a}'),
    (%[1]d, 'employee:E-3', 4, 1, '{/data/a}'), (%[1]d, 'employee:E-3', 4, 300, '{/data/a}'), (%[1]d, 'employee:E-3', 4, -1, '{/data/a}'), (%[2]d, 'employee:E-4', 1, 0, '{/data/a}');
INSERT INTO backbone.intent_pii_subjects (partition_id, subject_id, intent_id, class, paths)
VALUES (%[1]d, 'employee:E-2', gen_random_uuid(), 0, '{/data/a}'), (%[1]d, 'employee:E-2', gen_random_uuid(), 0, '{/data/a}'), (%[1]d, 'employee:E-3', gen_random_uuid(), 1, '{/data/a}')`, books[0], books[1]))
	want := []ports.PersonalKey{
		{Subject: "employee:E-1", First: 3}, {Subject: "employee:E-1", KeyClass: shredding.KeyClass(1), First: 5}, {Subject: "employee:E-2"}, {Subject: "employee:E-3", KeyClass: shredding.KeyClass(1), First: 4},
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []ports.PersonalKey
		for after := (ports.PersonalKey{}); ; after = got[len(got)-1] {
			page, err := s.Audit.PersonalKeys(t.Context(), books[0], after, limit)
			require.NoError(t, err)
			got = append(got, page...)
			if len(page) < limit {
				break
			}
		}
		require.Equal(t, want, got, limit)
	}
}
