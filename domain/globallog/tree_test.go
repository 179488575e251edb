package globallog_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
)

// tree has the tiles of a log of events, and its roots.
type tree struct {
	levels map[int][]event.Hash
	roots  map[uint64]event.Hash // at sizes, those before them and 0
}

// growTree grows the tree that all tests read.
var growTree = sync.OnceValue(func() *tree {
	g := &tree{levels: map[int][]event.Hash{}, roots: map[uint64]event.Hash{}}
	var edge globallog.Edge
	for n := range sizes[len(sizes)-1] + 1 {
		if slices.Contains(sizes, n) || slices.Contains(sizes, n+1) {
			g.roots[n] = edge.Root()
		}
		g.levels[0] = append(g.levels[0], globallog.EntryHash(checksum(n)))
		for _, tile := range edge.Append(checksum(n)) {
			g.levels[tile.Level+1] = append(g.levels[tile.Level+1], tile.Root())
		}
	}
	return g
})

func (g *tree) read(level int, from, n uint64) ([]event.Hash, error) {
	if from+n > uint64(len(g.levels[level])) {
		return nil, fmt.Errorf("level %d has no hash %d", level, from+n-1)
	}
	return g.levels[level][from : from+n], nil
}

func (g *tree) checkpoint(size uint64) globallog.Checkpoint {
	return globallog.Checkpoint{Origin: "books.example.org/1", Size: size, Root: g.roots[size]}
}

// sizes are around the edges of tiles of two levels.
var sizes = []uint64{1, 2, 3, 7, 255, 256, 257, 511, 512, 700, 65535, 65536, 65537, 66000}

// TestInclusion proves entries of trees of many sizes, and no proof holds for another event, position or tree.
func TestInclusion(t *testing.T) {
	t.Parallel()
	g := growTree()
	for _, size := range sizes {
		for _, p := range []globallog.Position{0, globallog.Position(size / 3), globallog.Position(size - 1)} {
			proof, err := globallog.ProveInclusion(size, p, g.read)
			require.NoError(t, err)
			c := g.checkpoint(size)
			require.NoError(t, globallog.CheckInclusion(proof, c, p, checksum(uint64(p))), "%d of %d", p, size)
			require.Equal(t, "global_log.not_included", fault.CodeOf(globallog.CheckInclusion(proof, c, p, checksum(uint64(p)+1))))
			require.Equal(t, "global_log.not_included", fault.CodeOf(globallog.CheckInclusion(proof, c, p+1, checksum(uint64(p)))))
			require.Equal(t, "global_log.not_included", fault.CodeOf(globallog.CheckInclusion(append(proof, c.Root), c, p, checksum(uint64(p)))))
			require.Equal(t, "global_log.not_included", fault.CodeOf(globallog.CheckInclusion(proof, g.checkpoint(size-1), p, checksum(uint64(p)))))
		}
	}
	_, err := globallog.ProveInclusion(100, 100, g.read)
	require.Error(t, err)
}

// TestConsistency proves that trees begin with smaller ones, and that a tree in which an event was exchanged
// does not.
func TestConsistency(t *testing.T) {
	t.Parallel()
	g := growTree()
	for _, size := range sizes {
		for _, earlier := range append([]uint64{0}, sizes...) {
			if earlier > size {
				continue
			}
			proof, err := globallog.ProveConsistency(size, earlier, g.read)
			require.NoError(t, err)
			require.NoError(t, globallog.CheckConsistency(proof, g.checkpoint(size), g.checkpoint(earlier)), "%d and %d", earlier, size)
			other := g.checkpoint(earlier)
			other.Origin = "books.example.org/2"
			require.Equal(t, "global_log.inconsistent", fault.CodeOf(globallog.CheckConsistency(proof, g.checkpoint(size), other)))
			if earlier > 0 {
				other = g.checkpoint(earlier)
				other.Root[7] ^= 1
				require.Equal(t, "global_log.inconsistent", fault.CodeOf(globallog.CheckConsistency(proof, g.checkpoint(size), other)))
			}
			if earlier < size {
				require.Equal(t, "global_log.inconsistent", fault.CodeOf(globallog.CheckConsistency(proof, g.checkpoint(earlier), g.checkpoint(size))))
			}
		}
	}
}

// TestCheckpoint_Text has the known text of the frozen format, and only that is parsed.
func TestCheckpoint_Text(t *testing.T) {
	t.Parallel()
	c := globallog.Checkpoint{Origin: globallog.Origin("ledger of +Acme", 2), Size: 1, Root: globallog.EntryHash(checksum(0))}
	root := base64.StdEncoding.EncodeToString(c.Root[:])
	text := "ledger-of--Acme/2\n1\n" + root + "\n"
	require.Equal(t, text, string(c.Text()))
	parsed, err := globallog.ParseCheckpoint([]byte(text))
	require.NoError(t, err)
	require.Equal(t, c, parsed)
	for _, malformed := range []string{
		"", "a\n1\n", text + "more\n", strings.TrimSuffix(text, "\n"), "\n1\n" + root + "\n", strings.Replace(text, "\n1\n", "\n01\n", 1), strings.Replace(text, "\n1\n", "\n-1\n", 1),
		strings.Replace(text, "\n1\n", "\n9223372036854775808\n", 1), strings.Replace(text, "\n1\n", "\n281474976710657\n", 1), strings.Replace(text, "=\n", "\n", 1), "a\n1\nAAAA\n",
	} {
		_, err := globallog.ParseCheckpoint([]byte(malformed))
		require.Equal(t, "global_log.checkpoint_malformed", fault.CodeOf(err), "%q", malformed)
	}
}

// TestProof_Encode has one text for a proof: whatever parses is written so again.
func TestProof_Encode(t *testing.T) {
	t.Parallel()
	note := "books.example.org/1\n1\nAAAA\n\n— books.example.org/1 AAAA\n"
	h := checksum(1)
	line := base64.StdEncoding.EncodeToString(h[:])
	for text, want := range map[string]globallog.Proof{
		"c2sp.org/tlog-proof@v1\nindex 0\n\n" + note:                            {Hashes: []event.Hash{}, Checkpoint: []byte(note)},
		"c2sp.org/tlog-proof@v1\nextra e30=\nindex 12\n" + line + "\n\n" + note: {Extra: []byte("{}"), Position: 12, Hashes: []event.Hash{h}, Checkpoint: []byte(note)},
	} {
		require.Equal(t, text, string(want.Encode()))
		got, err := globallog.ParseProof([]byte(text))
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, malformed := range []string{
		"", "\n\n", "index 0\n\n", "c2sp.org/tlog-proof@v1\n\n", "c2sp.org/tlog-proof@v1\nindex 00\n\n", "c2sp.org/tlog-proof@v1\nindex -1\n\n", "c2sp.org/tlog-proof@v2\nindex 0\n\n",
		"c2sp.org/tlog-proof@v1\nextra e30\nindex 0\n\n", "c2sp.org/tlog-proof@v1\nextra \nindex 0\n\n", "c2sp.org/tlog-proof@v1\nindex 0\nAAAA\n\n",
		"c2sp.org/tlog-proof@v1\nindex 0\n" + strings.Repeat(line+"\n", 64) + "\n",
	} {
		_, err := globallog.ParseProof([]byte(malformed))
		require.Equal(t, "global_log.proof_malformed", fault.CodeOf(err), "%q", malformed)
	}
}

func TestExtension_Encode(t *testing.T) {
	t.Parallel()
	h := checksum(1)
	x := globallog.Extension{From: 7, Hashes: []event.Hash{h}, Checkpoint: []byte("note\n")}
	text := "old 7\n" + base64.StdEncoding.EncodeToString(h[:]) + "\n\nnote\n"
	require.Equal(t, text, string(x.Encode()))
	got, err := globallog.ParseExtension([]byte(text))
	require.NoError(t, err)
	require.Equal(t, x, got)
	for _, malformed := range []string{"", "old\n\n", "old x\n\n", "old 07\n\n", "old -7\n\n", "old 7\nAAAA\n\n", "old 7\n"} {
		_, err := globallog.ParseExtension([]byte(malformed))
		require.Equal(t, "global_log.proof_malformed", fault.CodeOf(err), "%q", malformed)
	}
}

// FuzzProofs feeds texts of outsiders to the parsers: what they accept has one spelling.
func FuzzProofs(f *testing.F) {
	h := checksum(1)
	f.Add(globallog.Proof{Extra: []byte("{}"), Position: 12, Hashes: []event.Hash{h}, Checkpoint: []byte("note\n")}.Encode())
	f.Add(globallog.Extension{From: 7, Hashes: []event.Hash{h}, Checkpoint: []byte("note\n")}.Encode())
	f.Add(globallog.Checkpoint{Origin: "a/1", Size: 1, Root: h}.Text())
	f.Fuzz(func(t *testing.T, text []byte) {
		if p, err := globallog.ParseProof(text); err == nil {
			require.Equal(t, text, p.Encode())
		}
		if x, err := globallog.ParseExtension(text); err == nil {
			require.Equal(t, text, x.Encode())
		}
		if c, err := globallog.ParseCheckpoint(text); err == nil {
			require.Equal(t, text, c.Text())
		}
	})
}

// TestCheckpoint_IsOf: a checkpoint is of the same log as one of a later incarnation, and of no other.
func TestCheckpoint_IsOf(t *testing.T) {
	t.Parallel()
	later := globallog.Checkpoint{Origin: "books.example.org/ledger/3"}
	for origin, want := range map[string]bool{
		"books.example.org/ledger/3": true, "books.example.org/ledger/1": true, "books.example.org/ledger/4": false, "books.example.org/other/1": false, "books.example.org/ledger": false, "": false,
	} {
		require.Equal(t, want, globallog.Checkpoint{Origin: origin}.IsOf(later), origin)
	}
}
