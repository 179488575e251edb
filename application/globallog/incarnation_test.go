package globallog_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// incarnations begins new ones. An announcement is an event of the recorder; drafts receives what it should say.
func (s *signing) incarnations(drafts *[]event.Draft) *globallog.Incarnations {
	return &globallog.Incarnations{IncarnationsConfig: globallog.IncarnationsConfig{
		Log: s.database.GlobalLog, Entities: s.database.Directory, Opener: signednote.Opener{}, Exports: s.exports, LogName: "books.example.org",
		Signers: func(origin string) ports.NoteSigner { return testkit.Must(signednote.NewSigner(origin, "key", s.key)) },
		Append: func(_ context.Context, le ports.LegalEntity, d event.Draft) error {
			*drafts = append(*drafts, d)
			s.recorder.Record(s.t, le.Partition, 1)
			return nil
		},
	}}
}

func (s *signing) kept() (kept []domain.Checkpoint) {
	for _, name := range testkit.Must(s.exports.List(s.t.Context(), "")) {
		c := testkit.Must(globallog.ParseSigned(testkit.Must(s.exports.Get(s.t.Context(), name))))
		kept = append(kept, domain.Checkpoint{Origin: domain.Origin("books.example.org", c.Incarnation), Size: c.Size, Root: c.Root})
	}
	return kept
}

// TestIncarnations: after a restore that lost signed events, an event in each log names the last checkpoint that is
// still true, nodes sign again, and verification lists the lost checkpoint as a fork. Without a loss it is refused.
func TestIncarnations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		var drafts []event.Draft
		begin := func() (globallog.Incarnation, error) {
			return s.incarnations(&drafts).Begin(t.Context(), "A disk was lost.", false, func(int, int) {})
		}
		_, err := begin()
		require.Equal(t, "global_log.not_restored", fault.CodeOf(err), "nothing was signed")
		c, stop := s.begin()
		s.grow(c, 40)
		pass(2 * time.Minute)
		stop()
		backup := *s.newest()
		_, err = begin()
		require.Equal(t, "global_log.not_restored", fault.CodeOf(err), "nothing was lost")
		require.Empty(t, drafts)

		// 300 more events were signed, and lost. The restored log grows beyond them, by others.
		lost := domain.Checkpoint{Origin: domain.Origin("books.example.org", 1), Size: 340, Root: event.Hash{1}}
		signer := testkit.Must(signednote.NewSigner(lost.Origin, "key", s.key))
		require.NoError(t, s.exports.PutIfAbsent(t.Context(), globallog.CheckpointName(1, 340), testkit.Must(signer.SignNote(t.Context(), lost.Text()))))
		c, stop = s.begin()
		s.grow(c, 500)
		pass(10 * time.Second)
		require.NotZero(t, s.refused)
		stop()

		begun, err := begin()
		require.NoError(t, err)
		logs := len(testkit.Must(s.database.Directory.Partitions(t.Context(), "")))
		require.Equal(t, globallog.Incarnation{Number: 2, Common: 40, Lost: 340, Size: 540 + uint64(logs), Logs: logs}, begun)
		require.Len(t, drafts, logs)
		var says map[string]any
		require.NoError(t, json.Unmarshal(testkit.Must(json.Marshal(drafts[0].Data)), &says))
		require.Equal(t, map[string]any{"incarnation": 2., "reason": "A disk was lost.", "common_size": 40., "common_root": hex.EncodeToString(backup.Root[:]), "lost_size": 340.}, says)
		s.requireSigned(s.newest().Note, 2, begun.Size)
		_, err = begin()
		require.Equal(t, "global_log.not_restored", fault.CodeOf(err))

		s.refused = 0
		c, _ = s.begin()
		s.grow(c, 10)
		pass(2 * time.Minute)
		s.requireSigned(s.newest().Note, 2, begun.Size+10)
		require.Zero(t, s.refused)
		report, err := verify.GlobalLog(t.Context(), s.database.GlobalLog, verify.Anchors{Kept: s.kept()}, nil)
		require.NoError(t, err)
		require.True(t, report.Sound(), report.Findings)
		require.Equal(t, []verify.Fork{{Origin: "books.example.org/1", Size: 340}}, report.Forks)
	})
}

// TestIncarnations_Forced begins one although no known checkpoint is missed.
func TestIncarnations_Forced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		var drafts []event.Draft
		_, err := s.incarnations(&drafts).Begin(t.Context(), "r", true, func(int, int) {})
		require.Equal(t, "global_log.not_restored", fault.CodeOf(err), "nothing was ever signed")
		c, stop := s.begin()
		s.grow(c, 40)
		pass(time.Minute)
		stop()
		begun, err := s.incarnations(&drafts).Begin(t.Context(), "r", true, func(int, int) {})
		require.NoError(t, err)
		require.Equal(t, []uint64{2, 40, 40}, []uint64{uint64(begun.Number), begun.Common, begun.Lost})
		c, _ = s.begin()
		s.grow(c, 5)
		pass(time.Minute)
		s.requireSigned(s.newest().Note, 2, begun.Size+5)
		require.Zero(t, s.refused)
	})
}

// TestIncarnations_Forged is the way out after a session of a node recorded a checkpoint that the log did not sign: nodes
// refuse to go on from it, and sign again in the incarnation after it.
func TestIncarnations_Forged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, stop := s.begin()
		s.grow(c, 40)
		pass(time.Minute)
		require.True(t, testkit.Must(s.database.GlobalLog.RecordCheckpoint(t.Context(), ports.SignedCheckpoint{Incarnation: 900, Size: 1, Note: []byte("x")})))
		s.grow(c, 5)
		pass(time.Minute)
		require.NotZero(t, s.refused)
		require.EqualValues(t, []uint64{40}, s.signed)
		stop()
		var drafts []event.Draft
		begun, err := s.incarnations(&drafts).Begin(t.Context(), "A session forged a checkpoint.", false, func(int, int) {})
		require.NoError(t, err)
		require.Equal(t, []uint64{901, 40, 40}, []uint64{uint64(begun.Number), begun.Common, begun.Lost})
		s.refused = 0
		c, _ = s.begin()
		s.grow(c, 5)
		pass(time.Minute)
		s.requireSigned(s.newest().Note, 901, begun.Size+5)
		require.Zero(t, s.refused)
	})
}
