package globallog_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/signednote"
	"github.com/erpbackbone/backbone/application/globallog"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	domain "github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// witnessMemory keeps the state of a witness in memory.
type witnessMemory struct {
	mu    sync.Mutex
	notes map[string][]byte
}

func (m *witnessMemory) Newest(origin string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notes[origin], nil
}

func (m *witnessMemory) Keep(origin string, note []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[origin] = note
	return nil
}

func newCosigner(name string, seed byte) *signednote.Cosigner {
	return testkit.Must(signednote.NewCosigner(name, ed25519.NewKeyFromSeed(slices.Repeat([]byte{seed}, ed25519.SeedSize))))
}

// watched is a log of many events, its key, and a witness of it.
type watched struct {
	t       *testing.T
	levels  map[int][]event.Hash
	roots   []event.Hash
	key     *localKey
	logKey  string
	witness *globallog.Witness
	signer  *signednote.Cosigner
}

const watchedOrigin = "books.example.org/1"

func watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{t: t, levels: map[int][]event.Hash{}, key: newLocalKey(1), signer: newCosigner("witness.example.org/w1", 9)}
	var tree domain.Edge
	w.roots = append(w.roots, tree.Root())
	for n := range 600 {
		checksum := event.Hash{byte(n), byte(n >> 8), 1}
		w.levels[0] = append(w.levels[0], domain.EntryHash(checksum))
		for _, tile := range tree.Append(checksum) {
			w.levels[tile.Level+1] = append(w.levels[tile.Level+1], tile.Root())
		}
		w.roots = append(w.roots, tree.Root())
	}
	w.logKey = testkit.Must(w.log(watchedOrigin).VerifierKey(t.Context()))
	w.witness = globallog.NewWitness(&witnessMemory{notes: map[string][]byte{}}, w.signer, signednote.Opener{}, w.logKey)
	return w
}

func (w *watched) log(origin string) *signednote.Signer {
	return testkit.Must(signednote.NewSigner(origin, "key", w.key))
}

func (w *watched) sign(c domain.Checkpoint) []byte {
	return testkit.Must(w.log(c.Origin).SignNote(w.t.Context(), c.Text()))
}

// extension is the request to sign the log of a size after one of an earlier size.
func (w *watched) extension(from, size uint64) domain.Extension {
	proof, err := domain.ProveConsistency(size, from, func(level int, first, n uint64) ([]event.Hash, error) { return w.levels[level][first : first+n], nil })
	require.NoError(w.t, err)
	return domain.Extension{From: from, Hashes: proof, Checkpoint: w.sign(domain.Checkpoint{Origin: watchedOrigin, Size: size, Root: w.roots[size]})}
}

// add requires that the witness signs a request, and returns the lines.
func (w *watched) add(x domain.Extension) []byte {
	lines, err := w.witness.AddCheckpoint(x.Encode(), time.Unix(1_800_000_000, 0))
	require.NoError(w.t, err)
	_, signers, err := signednote.Opener{}.OpenCosigned(slices.Concat(x.Checkpoint, lines), w.signer.VerifierKey())
	require.NoError(w.t, err)
	require.Equal(w.t, []string{w.signer.VerifierKey()}, signers)
	return lines
}

// addMixed requires that the witness signs a request whose checkpoint has other signatures too.
func (w *watched) addMixed(x domain.Extension) {
	_, err := w.witness.AddCheckpoint(x.Encode(), time.Unix(1_800_000_000, 0))
	require.NoError(w.t, err)
}

// TestWitness signs a log that grows, also twice in the same state, and keeps the newest one.
func TestWitness(t *testing.T) {
	t.Parallel()
	w := watch(t)
	newest, err := w.witness.Newest(watchedOrigin)
	require.NoError(t, err)
	require.Nil(t, newest)
	w.add(domain.Extension{Hashes: []event.Hash{}, Checkpoint: w.sign(domain.Checkpoint{Origin: watchedOrigin, Root: w.roots[0]})})
	for _, step := range [][2]uint64{{0, 1}, {1, 1}, {1, 300}, {300, 300}, {300, 512}, {512, 600}} {
		w.add(w.extension(step[0], step[1]))
	}
	newest, err = w.witness.Newest(watchedOrigin)
	require.NoError(t, err)
	text, signers, err := signednote.Opener{}.OpenCosigned(newest, w.logKey, w.signer.VerifierKey())
	require.NoError(t, err)
	require.Len(t, signers, 2)
	require.Equal(t, string(domain.Checkpoint{Origin: watchedOrigin, Size: 600, Root: w.roots[600]}.Text()), string(text))
	require.Equal(t, []string{watchedOrigin}, w.witness.Origins())
}

// TestWitness_Refuses has every case of c2sp.org/tlog-witness.
func TestWitness_Refuses(t *testing.T) {
	t.Parallel()
	forged := event.Hash{7}
	for name, c := range map[string]struct {
		request func(w *watched) []byte
		code    string
	}{
		"no request":              {func(*watched) []byte { return nil }, "global_log.proof_malformed"},
		"no checkpoint":           {func(*watched) []byte { return []byte("old 300\n\n") }, "witness.log_unknown"},
		"old size without digits": {func(w *watched) []byte { return slices.Concat([]byte("old x\n\n"), w.extension(300, 400).Checkpoint) }, "global_log.proof_malformed"},
		"another log": {func(w *watched) []byte {
			return domain.Extension{From: 300, Checkpoint: w.sign(domain.Checkpoint{Origin: "books.example.org/2", Size: 400, Root: w.roots[400]})}.Encode()
		}, "witness.log_unknown"},
		"another key": {func(w *watched) []byte {
			x := w.extension(300, 400)
			other := *w
			other.key = newLocalKey(2)
			x.Checkpoint = other.sign(domain.Checkpoint{Origin: watchedOrigin, Size: 400, Root: w.roots[400]})
			return x.Encode()
		}, "note.not_verified"},
		"a changed checkpoint": {func(w *watched) []byte {
			x := w.extension(300, 400)
			x.Checkpoint = []byte(string(x.Checkpoint[:len(watchedOrigin)+1]) + "9" + string(x.Checkpoint[len(watchedOrigin)+2:]))
			return x.Encode()
		}, "note.not_verified"},
		"extension lines": {func(w *watched) []byte {
			note := testkit.Must(w.log(watchedOrigin).SignNote(t.Context(), append(domain.Checkpoint{Origin: watchedOrigin, Size: 400, Root: w.roots[400]}.Text(), "more\n"...)))
			return domain.Extension{From: 300, Checkpoint: note}.Encode()
		}, "global_log.checkpoint_malformed"},
		"smaller than its old size": {func(w *watched) []byte {
			return domain.Extension{From: 300, Checkpoint: w.sign(domain.Checkpoint{Origin: watchedOrigin, Size: 200, Root: w.roots[200]})}.Encode()
		}, "global_log.proof_malformed"},
		"an older size than it signed":         {func(w *watched) []byte { return w.extension(200, 400).Encode() }, "witness.size_differs"},
		"a newer size than it signed":          {func(w *watched) []byte { return w.extension(350, 400).Encode() }, "witness.size_differs"},
		"from the beginning":                   {func(w *watched) []byte { return w.extension(0, 400).Encode() }, "witness.size_differs"},
		"an empty tree, after one with events": {func(w *watched) []byte { return w.extension(0, 0).Encode() }, "witness.size_differs"},
		"another log of the same size": {func(w *watched) []byte {
			return domain.Extension{From: 300, Checkpoint: w.sign(domain.Checkpoint{Origin: watchedOrigin, Size: 300, Root: forged})}.Encode()
		}, "global_log.inconsistent"},
		"a proof where none is needed": {func(w *watched) []byte {
			x := w.extension(300, 300)
			x.Hashes = []event.Hash{forged}
			return x.Encode()
		}, "global_log.inconsistent"},
		"a fork": {func(w *watched) []byte {
			x := w.extension(300, 400)
			x.Checkpoint = w.sign(domain.Checkpoint{Origin: watchedOrigin, Size: 400, Root: forged})
			return x.Encode()
		}, "global_log.inconsistent"},
		"a wrong proof": {func(w *watched) []byte {
			x := w.extension(300, 400)
			x.Hashes[1] = forged
			return x.Encode()
		}, "global_log.inconsistent"},
		"no proof": {func(w *watched) []byte {
			x := w.extension(300, 400)
			x.Hashes = nil
			return x.Encode()
		}, "global_log.inconsistent"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := watch(t)
			w.add(w.extension(0, 300))
			_, err := w.witness.AddCheckpoint(c.request(w), time.Now())
			require.Equal(t, c.code, fault.CodeOf(err))
			if c.code == "witness.size_differs" {
				f, _ := fault.As(err)
				require.EqualValues(t, 300, f.Actual)
			}
			w.add(w.extension(300, 400)) // nothing was kept of it
		})
	}
	t.Run("first of all", func(t *testing.T) {
		t.Parallel()
		w := watch(t)
		x := w.extension(0, 5)
		x.Hashes = []event.Hash{forged}
		_, err := w.witness.AddCheckpoint(x.Encode(), time.Now())
		require.Equal(t, "global_log.inconsistent", fault.CodeOf(err), "a proof from nothing")
		empty := domain.Extension{Checkpoint: w.sign(domain.Checkpoint{Origin: watchedOrigin, Root: forged})}
		_, err = w.witness.AddCheckpoint(empty.Encode(), time.Now())
		require.Equal(t, "global_log.inconsistent", fault.CodeOf(err), "an empty tree with another root")
		_, err = w.witness.AddCheckpoint(w.extension(3, 5).Encode(), time.Now())
		require.Equal(t, "witness.size_differs", fault.CodeOf(err))
	})
}

// TestWitness_Damaged signs nothing when it cannot read what it signed.
func TestWitness_Damaged(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.witness = globallog.NewWitness(&witnessMemory{notes: map[string][]byte{watchedOrigin: []byte("x")}}, w.signer, signednote.Opener{}, w.logKey)
	_, err := w.witness.AddCheckpoint(w.extension(0, 5).Encode(), time.Now())
	require.Equal(t, "witness.state_damaged", fault.CodeOf(err))
}

// fullDisk is a state that cannot be kept.
type fullDisk struct{ witnessMemory }

func (*fullDisk) Keep(string, []byte) error {
	return fault.New(fault.FailedPrecondition, "witness.folder_unusable", "a test")
}

// TestWitness_NotKept gives no signature that it could forget.
func TestWitness_NotKept(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.witness = globallog.NewWitness(&fullDisk{}, w.signer, signednote.Opener{}, w.logKey)
	lines, err := w.witness.AddCheckpoint(w.extension(0, 5).Encode(), time.Now())
	require.Equal(t, "witness.folder_unusable", fault.CodeOf(err))
	require.Empty(t, lines)
}

// TestWitness_Race: of requests that continue the same checkpoint at the same time, one is signed.
func TestWitness_Race(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.add(w.extension(0, 10))
	var asking sync.WaitGroup
	var mu sync.Mutex
	codes := map[string]int{}
	for n := range uint64(20) {
		request := w.extension(10, 11+n).Encode()
		asking.Go(func() {
			_, err := w.witness.AddCheckpoint(request, time.Now())
			mu.Lock()
			defer mu.Unlock()
			codes[fault.CodeOf(err)]++
		})
	}
	asking.Wait()
	require.Equal(t, map[string]int{"": 1, "witness.size_differs": 19}, codes)
}

// localWitness is a witness in the process of the log, which may be down.
type localWitness struct {
	witness *globallog.Witness
	key     string
	fails   error
}

func (l *localWitness) VerifierKey() string { return l.key }

func (l *localWitness) AddCheckpoint(_ context.Context, x domain.Extension) ([]byte, error) {
	if l.fails != nil {
		return nil, l.fails
	}
	return l.witness.AddCheckpoint(x.Encode(), time.Now())
}

// TestCheckpointer_Witnesses: checkpoints carry the signatures of the witnesses that answer; one that is new gets the
// proof from nothing, also from another process; one that does not answer, or lies, stops nothing.
func TestCheckpointer_Witnesses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSigning(t)
		logKey := testkit.Must(testkit.Must(signednote.NewSigner(watchedOrigin, "key", s.key)).VerifierKey(t.Context()))
		one, two := newCosigner("w1", 5), newCosigner("w2", 6)
		local := func(signer *signednote.Cosigner) *localWitness {
			return &localWitness{witness: globallog.NewWitness(&witnessMemory{notes: map[string][]byte{}}, signer, signednote.Opener{}, logKey), key: signer.VerifierKey()}
		}
		first, second, liar := local(one), local(two), local(newCosigner("w3", 7))
		second.fails = fault.New(fault.Unavailable, "witness.unavailable", "a test")
		liar.key = newCosigner("w3", 8).VerifierKey()
		s.clients = []ports.Witness{first, second, liar}
		signers := func() []string {
			_, witnesses, err := globallog.OpenCheckpoint(s.newest().Note, signednote.Opener{}, logKey, first.key, second.key, liar.key)
			if fault.CodeOf(err) == "note.not_verified" { // the liar's signature may not be in it
				t.Fatal(err)
			}
			return witnesses
		}
		c, stop := s.begin()
		s.grow(c, 10)
		pass(time.Second)
		require.Equal(t, []string{first.key}, signers())
		require.ElementsMatch(t, []string{"signed", "failed", "failed"}, s.answers)
		stop()
		second.fails = nil
		c, stop = s.begin()
		s.grow(c, 300)
		pass(time.Second)
		s.grow(c, 300)
		pass(time.Second)
		require.ElementsMatch(t, []string{first.key, second.key}, signers())
		stop()

		// A witness that has signed another log refuses, and says so.
		s.answers = nil
		second.fails = fault.New(fault.FailedPrecondition, "witness.inconsistent", "a test")
		c, _ = s.begin()
		s.grow(c, 1)
		pass(2 * time.Minute)
		require.Equal(t, []string{first.key}, signers())
		require.Contains(t, s.answers, "refused")
		require.Zero(t, s.failed+s.refused)
		exported, err := globallog.NewestExport(t.Context(), s.exports)
		require.NoError(t, err)
		require.Equal(t, *s.newest(), *exported)
	})
}

// TestWitness_KeepsNothingElse: lines that others put below a checkpoint, also false ones under the witness's name, do not
// keep it from signing the next one.
func TestWitness_KeepsNothingElse(t *testing.T) {
	t.Parallel()
	w := watch(t)
	first := w.extension(0, 300)
	lines := w.add(first)
	x := w.extension(300, 300)
	other := newCosigner("witness.example.org/w1", 9).Cosign([]byte("another text\n"), time.Now())
	x.Checkpoint = slices.Concat(x.Checkpoint, lines, other, bytes.Repeat([]byte("— junk AAAA\n"), 200))
	w.addMixed(x)
	newest, err := w.witness.Newest(watchedOrigin)
	require.NoError(t, err)
	require.Equal(t, 2, bytes.Count(newest, []byte("— ")))
	w.add(w.extension(300, 400))
}

// TestWitness_LargestSize answers at once for a size that no log has.
func TestWitness_LargestSize(t *testing.T) {
	t.Parallel()
	w := watch(t)
	w.add(w.extension(0, 300))
	for _, size := range []uint64{1<<48 + 1, 1<<62 + 1, 1<<63 - 1} {
		x := w.extension(300, 300)
		x.Hashes = []event.Hash{{1}}
		x.Checkpoint = w.sign(domain.Checkpoint{Origin: watchedOrigin, Size: size})
		_, err := w.witness.AddCheckpoint(x.Encode(), time.Now())
		require.Equal(t, "global_log.checkpoint_malformed", fault.CodeOf(err))
	}
	x := w.extension(300, 300)
	x.Hashes = []event.Hash{{1}}
	x.Checkpoint = w.sign(domain.Checkpoint{Origin: watchedOrigin, Size: 1 << 48})
	_, err := w.witness.AddCheckpoint(x.Encode(), time.Now())
	require.Equal(t, "global_log.inconsistent", fault.CodeOf(err))
}

// TestCheckpointer_HostileWitness: whatever a witness answers, the note stays one that the log signed, with at most the
// one line of that witness.
func TestCheckpointer_HostileWitness(t *testing.T) {
	t.Parallel()
	signer := newCosigner("w1", 5)
	for name, answer := range map[string]func(x domain.Extension, own []byte) []byte{
		"a line that makes another note of it": func(x domain.Extension, _ []byte) []byte {
			return append([]byte("\n"), signer.Cosign(x.Checkpoint, time.Now())...)
		},
		"junk before its line":        func(_ domain.Extension, own []byte) []byte { return append([]byte("— w2 AAAAAAAA\n"), own...) },
		"many lines":                  func(_ domain.Extension, own []byte) []byte { return bytes.Repeat(own, 100) },
		"its line, and an empty line": func(_ domain.Extension, own []byte) []byte { return append(own, "\n\nx"...) },
		"nothing":                     func(domain.Extension, []byte) []byte { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSigning(t)
				s.clients = []ports.Witness{hostileWitness{signer, answer}}
				c, stop := s.begin()
				s.grow(c, 10)
				pass(2 * time.Second)
				require.LessOrEqual(t, bytes.Count(s.newest().Note, []byte("— ")), 2)
				stop()
				c, _ = s.begin() // another process learns it
				s.grow(c, 10)
				pass(2 * time.Minute)
				require.EqualValues(t, 20, s.newest().Size)
				require.Zero(t, s.failed+s.refused)
			})
		})
	}
}

// hostileWitness answers what it likes. own is the line that it should answer with.
type hostileWitness struct {
	signer *signednote.Cosigner
	answer func(x domain.Extension, own []byte) []byte
}

func (h hostileWitness) VerifierKey() string { return h.signer.VerifierKey() }

func (h hostileWitness) AddCheckpoint(_ context.Context, x domain.Extension) ([]byte, error) {
	text := x.Checkpoint[:bytes.Index(x.Checkpoint, []byte("\n\n"))+1]
	return h.answer(x, h.signer.Cosign(text, time.Now())), nil
}

// TestOpenCheckpoint_WitnessIsNoLog: a witness that signs a log of its own name is no log that the reader trusts.
func TestOpenCheckpoint_WitnessIsNoLog(t *testing.T) {
	t.Parallel()
	signer := newCosigner("witness.example.org/1", 5)
	forged := domain.Checkpoint{Origin: "witness.example.org/1", Size: 1, Root: event.Hash{1}}
	note := slices.Concat(forged.Text(), []byte("\n"), signer.Cosign(forged.Text(), time.Now()))
	_, _, err := globallog.OpenCheckpoint(note, signednote.Opener{}, signer.VerifierKey())
	require.Equal(t, "note.not_verified", fault.CodeOf(err))
}
