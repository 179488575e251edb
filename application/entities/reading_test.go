package entities_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/entities"
)

// A version that is registered while an entity is folded changes how its events are
// read: what was folded until then is not mixed with what comes after, and no snapshot
// of the mixture stays.
func TestRead_DuringRegistration(t *testing.T) {
	t.Parallel()
	var p *entityFixture
	p = newEntityFixture(t, func(c *entities.Config) {
		c.ReadingID = func(string) string {
			if p == nil || p.reads.read == 0 {
				return "before"
			}
			return "after"
		}
	})
	p.write(t, "meter", `{"n":2}`, days("2026-03-01", 12)...)
	got := p.read(t)
	require.Equal(t, 12, got.EventCount)
	require.EqualValues(t, 24, state(t, got).Sum)
	require.Equal(t, entities.Strong, got.Reached)
	require.Equal(t, 24, p.reads.read, "folded once more")
	kept, _, err := p.store.Snapshots.EntitySnapshots(t.Context(), p.entity.Partition, "meter", "M-1")
	require.NoError(t, err)
	require.NotEmpty(t, kept)
	for _, s := range kept {
		require.Contains(t, s.Fold, "@after")
	}
	p.read(t)
	require.Equal(t, 24, p.reads.read, "from the snapshot")
}
