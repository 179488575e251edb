package globallog_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// localKey signs with a key in memory, unless the service is down.
type localKey struct {
	testkit.SigningKey
	isDown atomic.Bool
}

func newLocalKey(seed byte) *localKey { return &localKey{SigningKey: testkit.NewSigningKey(seed)} }

func (k *localKey) Sign(ctx context.Context, keyID string, message []byte) ([]byte, error) {
	if k.isDown.Load() {
		return nil, fault.New(fault.Unavailable, "kms.unavailable", "a test")
	}
	return k.SigningKey.Sign(ctx, keyID, message)
}

// signing is a global log in memory with a key, an export store, and what a checkpointer reports.
type signing struct {
	*fixture
	key     *localKey
	exports *memory.ExportStore
	tree    treeOf

	mu      sync.Mutex
	signed  []uint64
	failed  int
	refused int
	answers []string // of witnesses
	clients []ports.Witness
}

// treeOf is the store with an event that a test exchanges.
type treeOf struct {
	*memory.GlobalLog
	isExchanged atomic.Bool  // the third event is another one
	first       atomic.Value // a ports.SignedCheckpoint that another node records first
}

func (s *treeOf) RecordCheckpoint(ctx context.Context, c ports.SignedCheckpoint) (bool, error) {
	if other, ok := s.first.Load().(ports.SignedCheckpoint); ok {
		if _, err := s.GlobalLog.RecordCheckpoint(ctx, other); err != nil {
			return false, err
		}
	}
	return s.GlobalLog.RecordCheckpoint(ctx, c)
}

func (s *treeOf) GlobalHashes(ctx context.Context, level int, from, n uint64) ([]event.Hash, error) {
	hashes, err := s.GlobalLog.GlobalHashes(ctx, level, from, n)
	if err == nil && s.isExchanged.Load() && level == 0 && from == 0 {
		hashes[2][0] ^= 1
	}
	return hashes, err
}

func (s *signing) CheckpointSigned(size uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signed = append(s.signed, size)
}

func (s *signing) CheckpointWitnessed(isSigned, isRefused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, map[bool]string{true: "refused", false: map[bool]string{true: "signed", false: "failed"}[isSigned]}[isRefused])
}

func (s *signing) CheckpointFailed(isRefused bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if isRefused {
		s.refused++
	} else {
		s.failed++
	}
}

func newSigning(t *testing.T) *signing {
	s := &signing{fixture: newFixture(t, 2), key: newLocalKey(1), exports: memory.NewExportStore()}
	s.tree.GlobalLog = s.database.GlobalLog
	return s
}

// begin starts a process that makes checkpoints.
func (s *signing) begin() (c *globallog.Checkpointer, stop func()) {
	c, err := globallog.NewCheckpointer(globallog.CheckpointerConfig{
		Log: &s.tree, Signers: func(origin string) ports.NoteSigner { return testkit.Must(signednote.NewSigner(origin, "key", s.key)) }, Opener: signednote.Opener{},
		Exports: s.exports, LogName: "books.example.org", Logger: slog.New(slog.DiscardHandler), Observer: s,
		Witnesses: s.clients, Limits: globallog.CheckpointLimits{Interval: time.Second, ExportInterval: time.Minute},
	})
	require.NoError(s.t, err)
	return c, s.run(c.Run)
}

// grow records events, takes them into the global log and tells the checkpointer.
func (s *signing) grow(c *globallog.Checkpointer, events int) (size uint64) {
	s.recorder.Record(s.t, s.recorder.Partitions[0], events)
	_, err := s.database.GlobalLog.ExtendGlobalLog(s.t.Context(), s.recorder.Partitions, 10_000)
	require.NoError(s.t, err)
	size = testkit.Must(s.database.GlobalLog.GlobalSize(s.t.Context()))
	c.Grown(size)
	return size
}

// requireSigned demands that a note has the signature of the log and the root of its events.
func (s *signing) requireSigned(note []byte, incarnation int, size uint64) {
	s.t.Helper()
	signer := testkit.Must(signednote.NewSigner(domain.Origin("books.example.org", incarnation), "key", s.key))
	text, err := signednote.Opener{}.OpenNote(note, testkit.Must(signer.VerifierKey(s.t.Context())))
	require.NoError(s.t, err)
	root, err := domain.Root(size, func(level int, from, n uint64) ([]event.Hash, error) {
		return s.database.GlobalLog.GlobalHashes(s.t.Context(), level, from, n)
	})
	require.NoError(s.t, err)
	require.Equal(s.t, string(domain.Checkpoint{Origin: domain.Origin("books.example.org", incarnation), Size: size, Root: root}.Text()), string(text))
}

func (s *signing) newest() *ports.SignedCheckpoint {
	return testkit.Must(s.database.GlobalLog.NewestCheckpoint(s.t.Context()))
}

// TestCheckpointer: a log that grows is signed once in an interval, the newest size only; exports are rarer, and
// the last size is exported when the interval has passed. The next process goes on.
func TestCheckpointer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, stop := s.begin()
		pass(time.Hour)
		require.Nil(t, s.newest())
		for range 10 {
			s.grow(c, 30)
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		require.Equal(t, []uint64{30, 300}, s.signed)
		s.requireSigned(s.newest().Note, 1, 300)
		require.Equal(t, []string{globallog.CheckpointName(1, 30)}, testkit.Must(s.exports.List(t.Context(), "")))
		pass(time.Minute)
		require.Equal(t, []string{globallog.CheckpointName(1, 30), globallog.CheckpointName(1, 300)}, testkit.Must(s.exports.List(t.Context(), "")))
		exported, err := globallog.NewestExport(t.Context(), s.exports)
		require.NoError(t, err)
		require.Equal(t, *s.newest(), *exported)
		stop()

		c, stop = s.begin()
		c.Grown(300)
		pass(time.Hour)
		require.Equal(t, []uint64{30, 300}, s.signed, "nothing new")
		s.grow(c, 400)
		pass(2 * time.Second)
		s.grow(c, 10)
		pass(2 * time.Second)
		s.requireSigned(s.newest().Note, 1, 710)
		require.Len(t, testkit.Must(s.exports.List(t.Context(), "")), 3)
		stop()
		exported, err = globallog.NewestExport(t.Context(), s.exports)
		require.NoError(t, err)
		require.Equal(t, *s.newest(), *exported, "at the end")
		require.Zero(t, s.failed+s.refused)
	})
}

// TestCheckpointer_KeyServiceDown tries again until the key service answers.
func TestCheckpointer_KeyServiceDown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, _ := s.begin()
		s.key.isDown.Store(true)
		s.grow(c, 3)
		pass(10 * time.Second)
		require.Nil(t, s.newest())
		require.NotZero(t, s.failed)
		require.Zero(t, s.refused)
		s.key.isDown.Store(false)
		pass(2 * time.Second)
		s.requireSigned(s.newest().Note, 1, 3)
	})
}

// TestCheckpointer_Refuses signs nothing when the log is not the one that was signed: in the process that signed
// it, in the next one by the database, and by the newest export when the database was set back. Nor does it go on from
// a checkpoint that another key signed.
func TestCheckpointer_Refuses(t *testing.T) {
	t.Parallel()
	// restore is an installation with another database, the same key and the same exports.
	restore := func(s *signing) *signing {
		restored := newSigning(s.t)
		restored.exports, restored.key = s.exports, s.key
		return restored
	}
	for name, attack := range map[string]func(s *signing, c *globallog.Checkpointer, stop func()) (*signing, *globallog.Checkpointer){
		"an event is exchanged": func(s *signing, c *globallog.Checkpointer, _ func()) (*signing, *globallog.Checkpointer) {
			s.tree.isExchanged.Store(true)
			return s, c
		},
		"an event is exchanged before the next start": func(s *signing, _ *globallog.Checkpointer, stop func()) (*signing, *globallog.Checkpointer) {
			stop()
			s.tree.isExchanged.Store(true)
			c, _ := s.begin()
			return s, c
		},
		"the log is another one": func(s *signing, _ *globallog.Checkpointer, stop func()) (*signing, *globallog.Checkpointer) {
			stop()
			s = restore(s)
			c, _ := s.begin()
			s.grow(c, 50)
			return s, c
		},
		"the log is shorter": func(s *signing, _ *globallog.Checkpointer, stop func()) (*signing, *globallog.Checkpointer) {
			stop()
			s = restore(s)
			c, _ := s.begin()
			return s, c
		},
		"another key signed": func(s *signing, _ *globallog.Checkpointer, stop func()) (*signing, *globallog.Checkpointer) {
			stop()
			s.key = newLocalKey(2)
			c, _ := s.begin()
			return s, c
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSigning(t)
				c, stop := s.begin()
				s.grow(c, 40)
				pass(2 * time.Minute)
				require.Equal(t, []uint64{40}, s.signed)
				s, c = attack(s, c, stop)
				before := len(s.signed)
				s.grow(c, 5)
				pass(time.Minute)
				require.NotZero(t, s.refused)
				require.Zero(t, s.failed)
				require.Len(t, s.signed, before)
				require.Len(t, testkit.Must(s.exports.List(t.Context(), "")), 1)
			})
		})
	}
}

// TestCheckpointer_Nodes: a node goes on from what another one signed, and a stale size changes nothing.
func TestCheckpointer_Nodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		one, _ := s.begin()
		two, _ := s.begin()
		s.grow(one, 10)
		pass(time.Second)
		s.grow(two, 10)
		pass(time.Second)
		one.Grown(10)
		pass(time.Second)
		s.requireSigned(s.newest().Note, 1, 20)
		s.grow(one, 10)
		pass(time.Second)
		s.requireSigned(s.newest().Note, 1, 30)
		require.Equal(t, []uint64{10, 20, 30}, s.signed)
		require.Zero(t, s.failed+s.refused)
	})
}

// TestCheckpointer_SecondNode: of two nodes that sign the same size, whose notes have other signatures of witnesses, one
// is recorded, and both export that one.
func TestCheckpointer_SecondNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, stop := s.begin()
		stop()
		size := s.grow(c, 12)
		root := testkit.Must(domain.Root(size, func(level int, from, n uint64) ([]event.Hash, error) {
			return s.database.GlobalLog.GlobalHashes(t.Context(), level, from, n)
		}))
		checkpoint := domain.Checkpoint{Origin: domain.Origin("books.example.org", 1), Size: size, Root: root}
		note := testkit.Must(testkit.Must(signednote.NewSigner(checkpoint.Origin, "key", s.key)).SignNote(t.Context(), checkpoint.Text()))
		cosigned := append(note, newCosigner("w1", 5).Cosign(checkpoint.Text(), time.Now())...)
		s.tree.first.Store(ports.SignedCheckpoint{Incarnation: 1, Size: size, Root: root, Note: cosigned})
		c, _ = s.begin()
		c.Grown(size)
		pass(2 * time.Minute)
		require.Equal(t, cosigned, s.newest().Note)
		require.Equal(t, cosigned, testkit.Must(s.exports.Get(t.Context(), globallog.CheckpointName(1, size))))
		require.Zero(t, s.failed+s.refused)
		require.Empty(t, s.signed)
	})
}

// TestCheckpointer_Incarnation goes on in the incarnation of the newest checkpoint, which need not continue what an
// earlier one signed.
func TestCheckpointer_Incarnation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, stop := s.begin()
		s.grow(c, 40)
		pass(time.Minute)
		stop()
		exports := s.exports
		s = newSigning(t)
		s.exports = exports
		c, stop = s.begin()
		stop()
		size := s.grow(c, 7)
		root := testkit.Must(domain.Root(size, func(level int, from, n uint64) ([]event.Hash, error) {
			return s.database.GlobalLog.GlobalHashes(t.Context(), level, from, n)
		}))
		signer := testkit.Must(signednote.NewSigner(domain.Origin("books.example.org", 2), "key", s.key))
		note := testkit.Must(signer.SignNote(t.Context(), domain.Checkpoint{Origin: domain.Origin("books.example.org", 2), Size: size, Root: root}.Text()))
		require.True(t, testkit.Must(s.database.GlobalLog.RecordCheckpoint(t.Context(), ports.SignedCheckpoint{Incarnation: 2, Size: size, Root: root, Note: note})))
		c, _ = s.begin()
		s.grow(c, 5)
		pass(2 * time.Minute)
		s.requireSigned(s.newest().Note, 2, 12)
		require.Equal(t, []string{globallog.CheckpointName(1, 40), globallog.CheckpointName(2, 12)}, testkit.Must(s.exports.List(t.Context(), "")))
		require.Zero(t, s.failed+s.refused)
	})
}

// TestProver proves events of the log that was signed, and that it begins with an earlier one; what the reader
// checks has one key, one event and one log.
func TestProver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, _ := s.begin()
		prover := globallog.NewProver(s.database.GlobalLog)
		at := func(sequence event.Sequence) ports.EventPosition {
			return ports.EventPosition{Partition: s.recorder.Partitions[0], Sequence: sequence}
		}
		_, err := prover.Prove(t.Context(), at(1), nil)
		require.Equal(t, "global_log.not_signed", fault.CodeOf(err))
		_, err = prover.ProveExtension(t.Context(), domain.Checkpoint{Size: 1})
		require.Equal(t, "global_log.not_signed", fault.CodeOf(err))
		s.grow(c, 100)
		pass(time.Second)
		earlier := s.newest()
		s.grow(c, 500)
		pass(2 * time.Second)
		require.EqualValues(t, 600, s.newest().Size)

		signer := testkit.Must(signednote.NewSigner(domain.Origin("books.example.org", 1), "key", s.key))
		key := testkit.Must(signer.VerifierKey(t.Context()))
		otherKey := testkit.Must(testkit.Must(signednote.NewSigner("other", "key", s.key)).VerifierKey(t.Context()))
		sums := s.recorder.Checksums[s.recorder.Partitions[0]]
		for _, sequence := range []event.Sequence{1, 100, 101, 600} {
			proof, err := prover.Prove(t.Context(), at(sequence), []byte("extra"))
			require.NoError(t, err)
			parsed, err := domain.ParseProof(proof.Encode())
			require.NoError(t, err)
			require.Equal(t, proof, parsed)
			shown, witnesses, err := globallog.VerifyProof(parsed, sums[sequence-1], signednote.Opener{}, key, otherKey)
			require.NoError(t, err)
			require.EqualValues(t, 600, shown.Size)
			require.Empty(t, witnesses)
			_, _, err = globallog.VerifyProof(parsed, sums[sequence%600], signednote.Opener{}, key)
			require.Equal(t, "global_log.not_included", fault.CodeOf(err))
			_, _, err = globallog.VerifyProof(parsed, sums[sequence-1], signednote.Opener{}, otherKey)
			require.Equal(t, "note.not_verified", fault.CodeOf(err))
		}
		_, err = prover.Prove(t.Context(), at(601), nil)
		require.Equal(t, "global_log.not_signed", fault.CodeOf(err))

		extension, err := prover.ProveExtension(t.Context(), domain.Checkpoint{Size: earlier.Size})
		require.NoError(t, err)
		from, to, err := globallog.VerifyExtension(extension, earlier.Note, signednote.Opener{}, key)
		require.NoError(t, err)
		require.Equal(t, []uint64{100, 600}, []uint64{from.Size, to.Size})
		fork := domain.Checkpoint{Origin: from.Origin, Size: 100, Root: sums[0]}
		forked := testkit.Must(signer.SignNote(t.Context(), fork.Text()))
		_, _, err = globallog.VerifyExtension(extension, forked, signednote.Opener{}, key)
		require.Equal(t, "global_log.inconsistent", fault.CodeOf(err))
		other := testkit.Must(testkit.Must(signednote.NewSigner("other", "key", s.key)).SignNote(t.Context(), fork.Text()))
		_, _, err = globallog.OpenCheckpoint(other, signednote.Opener{}, key, otherKey)
		require.Equal(t, "note.not_verified", fault.CodeOf(err), "the log itself has not signed it")
	})
}

// TestProver_Await waits for the checkpoint that has all of the events, and until its context ends; many that wait ask the
// store together.
func TestProver_Await(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		c, _ := s.begin()
		counted := &countedLog{GlobalLog: s.database.GlobalLog}
		prover := globallog.NewProver(counted)
		p := s.recorder.Partitions[0]
		_, err := prover.Await(t.Context(), []ports.EventPosition{{Partition: p, Sequence: 1}})
		require.Equal(t, "global_log.not_signed", fault.CodeOf(err), "nothing is ever signed")
		s.grow(c, 5)
		pass(2 * time.Second)
		done := make(chan []domain.Proof, 50)
		for range cap(done) {
			go func() {
				proofs, err := prover.Await(t.Context(), []ports.EventPosition{{Partition: p, Sequence: 7}, {Partition: p, Sequence: 2}})
				if err == nil {
					done <- proofs
				}
			}()
		}
		pass(2 * time.Second)
		require.Empty(t, done)
		require.LessOrEqual(t, counted.reads.Load(), int64(10))
		s.grow(c, 5)
		pass(2 * time.Second)
		require.Len(t, done, cap(done))
		proofs := <-done
		require.Equal(t, []domain.Position{6, 1}, []domain.Position{proofs[0].Position, proofs[1].Position})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = prover.Await(ctx, []ports.EventPosition{{Partition: p, Sequence: 11}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// countedLog counts reads of the newest checkpoint.
type countedLog struct {
	*memory.GlobalLog
	reads atomic.Int64
}

func (l *countedLog) NewestCheckpoint(ctx context.Context) (*ports.SignedCheckpoint, error) {
	l.reads.Add(1)
	return l.GlobalLog.NewestCheckpoint(ctx)
}
