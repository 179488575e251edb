package shredding_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// allowed is the whole table, written out.
var allowed = map[shredding.ErasureState][]shredding.ErasureState{
	"requested": {"previewed", "rejected", "withdrawn", "refused"},
	"previewed": {"approved", "rejected", "withdrawn", "refused"},
	"approved":  {"fenced", "previewed", "withdrawn", "expired", "refused"},
	"fenced":    {"destroyed", "refused"},
	"destroyed": {"receipted"}, "receipted": {"announced"}, "announced": {"evicted"}, "evicted": {"rebuilt"},
	"rebuilt": {"verified"}, "verified": {"completed"},
	"completed": {}, "rejected": {}, "withdrawn": {}, "expired": {}, "refused": {},
}

func TestErasureMoves(t *testing.T) {
	t.Parallel()
	require.Len(t, shredding.ErasureStates(), len(allowed))
	for _, from := range shredding.ErasureStates() {
		require.Contains(t, allowed, from)
		require.True(t, from.Valid())
		require.Equal(t, len(allowed[from]) == 0, from.Final(), from)
		for _, to := range append(shredding.ErasureStates(), "", "unknown") {
			want := false
			for _, x := range allowed[from] {
				want = want || x == to
			}
			require.Equal(t, want, from.CanBecome(to), "%s to %s", from, to)
			got, err := from.Move(to)
			if want {
				require.NoError(t, err)
				require.Equal(t, to, got)
			} else {
				require.Equal(t, "erasure.move_refused", fault.CodeOf(err))
				require.Equal(t, from, got)
			}
		}
	}
	for _, s := range []shredding.ErasureState{"", "unknown"} {
		require.False(t, s.Valid())
		require.False(t, s.Final())
		require.False(t, s.CanBecome("requested"))
	}
}

// TestErasurePath checks that a request only moves on along the path once keys are destroyed.
func TestErasurePath(t *testing.T) {
	t.Parallel()
	s, steps := shredding.ErasureRequested, 1
	for {
		next, ok := s.Next()
		if !ok {
			break
		}
		require.False(t, s.Irrevocable() && !next.Irrevocable())
		if s.Irrevocable() {
			require.Len(t, allowed[s], 1)
		}
		s, steps = next, steps+1
	}
	require.Equal(t, shredding.ErasureCompleted, s)
	require.Equal(t, 11, steps)
	require.False(t, shredding.ErasureFenced.Irrevocable())
	require.True(t, shredding.ErasureDestroyed.Irrevocable())
	require.False(t, shredding.ErasureRefused.Irrevocable())
	require.True(t, shredding.ErasureFenced.Fences())
	require.True(t, shredding.ErasureCompleted.Fences())
	require.False(t, shredding.ErasureApproved.Fences())
	require.False(t, shredding.ErasureRefused.Fences())
}

func TestApprovals(t *testing.T) {
	t.Parallel()
	require.NoError(t, shredding.CheckApprover("p-1", "p-2"))
	for _, persons := range [][2]string{{"p-1", "p-1"}, {"", "p-1"}, {"p-1", ""}, {"", ""}} {
		err := shredding.CheckApprover(persons[0], persons[1])
		require.Equal(t, "erasure.same_person", fault.CodeOf(err))
		require.Equal(t, fault.Forbidden, fault.KindOf(err))
	}
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	scope, other := [32]byte{1}, [32]byte{2}
	require.NoError(t, shredding.CheckApproval(now, now, scope, scope))
	require.NoError(t, shredding.CheckApproval(now.Add(-72*time.Hour+1), now, scope, scope))
	require.Equal(t, "erasure.approval_expired", fault.CodeOf(shredding.CheckApproval(now.Add(-72*time.Hour), now, scope, scope)))
	require.Equal(t, "erasure.approval_expired", fault.CodeOf(shredding.CheckApproval(now.Add(1), now, scope, scope)))
	require.Equal(t, "erasure.approval_expired", fault.CodeOf(shredding.CheckApproval(time.Time{}, now, scope, scope)))
	require.Equal(t, "erasure.scope_changed", fault.CodeOf(shredding.CheckApproval(now, now, scope, other)))

	for _, b := range []shredding.Basis{"gdpr_art_17", "subject_request", "retention_expired", "court_order"} {
		require.True(t, b.Valid())
	}
	require.False(t, shredding.Basis("").Valid())
}

func TestKeyMoves(t *testing.T) {
	t.Parallel()
	states := []shredding.KeyState{shredding.KeyAbsent, shredding.KeyActive, shredding.KeyFenced, shredding.KeyDestroyed}
	moves := map[[2]shredding.KeyState]bool{
		{"absent", "active"}: true, {"absent", "destroyed"}: true, {"active", "active"}: true, {"active", "fenced"}: true,
		{"fenced", "active"}: true, {"fenced", "destroyed"}: true, {"destroyed", "active"}: true,
	}
	for _, from := range states {
		for _, to := range states {
			require.Equal(t, moves[[2]shredding.KeyState{from, to}], from.CanBecome(to), "%s to %s", from, to)
		}
		require.Equal(t, from == shredding.KeyActive, from.Seals())
	}
	require.Equal(t, fault.Gone, shredding.Erased("/data/email").Kind)
	require.Equal(t, "/data/email", shredding.Erased("/data/email").Field)
	require.NotContains(t, shredding.Erased("/data/email").Detail, "reopen", "no caller can do that")
}
