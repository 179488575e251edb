package verify_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

// forgedGlobalLog is a global log whose rows were edited.
type forgedGlobalLog struct {
	ports.GlobalLogAudit
	size   uint64
	ranges []globallog.Range
	tiles  []ports.StoredTile // of level 0
}

func (f *forgedGlobalLog) GlobalSize(context.Context) (uint64, error) { return f.size, nil }

func (f *forgedGlobalLog) AllGlobalRanges(_ context.Context, from globallog.Position, limit int) ([]globallog.Range, error) {
	ranges := slices.DeleteFunc(slices.Clone(f.ranges), func(r globallog.Range) bool { return r.First < from })
	return ranges[:min(len(ranges), limit)], nil
}

func (f *forgedGlobalLog) GlobalTiles(_ context.Context, level int, from uint64, limit int) ([]ports.StoredTile, error) {
	tiles := slices.DeleteFunc(slices.Clone(f.tiles), func(t ports.StoredTile) bool { return t.Level != level || t.Index < from })
	return tiles[:min(len(tiles), limit)], nil
}

// TestGlobalLog finds every edit of a range or tile, each at its position.
func TestGlobalLog(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := memory.New(memory.Config{})
	r := conformance.NewRecorder(t, d.Directory, d.Registry, d.Appender, 2)
	one, two := r.Partitions[0], r.Partitions[1]
	for range 3 {
		r.Record(t, one, 110)
		r.Record(t, two, 90)
		_, err := d.GlobalLog.ExtendGlobalLog(ctx, r.Partitions, 1000)
		require.NoError(t, err)
	}
	ranges, err := d.GlobalLog.AllGlobalRanges(ctx, 0, 100)
	require.NoError(t, err)
	require.Len(t, ranges, 6)
	tiles, err := d.GlobalLog.GlobalTiles(ctx, 0, 0, 100)
	require.NoError(t, err)
	require.Len(t, tiles, 2)
	for name, c := range map[string]struct {
		edit     func(f *forgedGlobalLog)
		position event.Sequence
		detail   string
	}{
		"as it is":             {edit: func(*forgedGlobalLog) {}},
		"range removed":        {func(f *forgedGlobalLog) { f.ranges = slices.Delete(f.ranges, 2, 3) }, 200, "gap: after position 200 there is a range from 310 on"},
		"last range removed":   {func(f *forgedGlobalLog) { f.ranges = f.ranges[:5] }, 510, "no range has position 510"},
		"range shortened":      {func(f *forgedGlobalLog) { f.ranges[0].Count-- }, 109, "gap"},
		"range of another log": {func(f *forgedGlobalLog) { f.ranges[2].Partition = two }, 200, "begins with event 111"},
		"event left out":       {func(f *forgedGlobalLog) { f.ranges[2].Sequence++ }, 200, "begins with event 112"},
		"event twice":          {func(f *forgedGlobalLog) { f.ranges[3].Sequence-- }, 310, "begins with event 90"},
		"ranges exchanged": {func(f *forgedGlobalLog) {
			f.ranges[0], f.ranges[1] = globallog.Range{First: 0, Partition: two, Sequence: 1, Count: 90}, globallog.Range{First: 90, Partition: one, Sequence: 1, Count: 110}
		}, 256, "tile 0 of level 0 is not that of the events"},
		"events that do not exist": {func(f *forgedGlobalLog) { f.ranges[5].Count++; f.size++ }, 510, "its log lacks 1 of them"},
		"hash changed": {func(f *forgedGlobalLog) {
			f.tiles[1].Hashes = slices.Clone(f.tiles[1].Hashes)
			f.tiles[1].Hashes[7][0]++
		}, 512, "tile 1 of level 0 is not that"},
		"root changed": {func(f *forgedGlobalLog) { f.tiles[0].StoredRoot[31]++ }, 256, "tile 0 of level 0 is not that"},
		"tile removed": {func(f *forgedGlobalLog) { f.tiles = f.tiles[1:] }, 256, "tile 0 of level 0 is missing"},
		"tile invented": {func(f *forgedGlobalLog) {
			f.tiles = append(f.tiles, ports.StoredTile{Tile: globallog.Tile{Index: 2, Hashes: f.tiles[0].Hashes}})
		}, 600, "tile 2 of level 0 is of more events"},
		"upper tile invented": {func(f *forgedGlobalLog) {
			f.tiles = append(f.tiles, ports.StoredTile{Tile: globallog.Tile{Level: 3, Hashes: f.tiles[0].Hashes}})
		}, 600, "tile 0 of level 3 is of more events"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &forgedGlobalLog{GlobalLogAudit: d.GlobalLog, size: 600, ranges: slices.Clone(ranges), tiles: slices.Clone(tiles)}
			c.edit(f)
			report, err := verify.GlobalLog(t.Context(), f, verify.Anchors{}, nil)
			require.NoError(t, err)
			if c.detail == "" {
				require.True(t, report.Sound(), report.Findings)
				require.EqualValues(t, 600, report.Size)
				return
			}
			require.NotEmpty(t, report.Findings)
			require.Equal(t, verify.GlobalLogMismatch, report.Findings[0].Kind)
			require.Equal(t, c.position, report.Findings[0].Sequence)
			require.Contains(t, report.Findings[0].Detail, c.detail)
		})
	}
}

// signedAt is a checkpoint of a size, whose note has no signature.
func signedAt(incarnation int, size uint64, root event.Hash) ports.SignedCheckpoint {
	c := globallog.Checkpoint{Origin: globallog.Origin("books", incarnation), Size: size, Root: root}
	return ports.SignedCheckpoint{Incarnation: incarnation, Size: size, Root: root, Note: append(c.Text(), "\n— books AAAA\n"...)}
}

// editedCheckpoints is a global log whose checkpoints were edited.
type editedCheckpoints struct {
	ports.GlobalLogAudit
	checkpoints []ports.SignedCheckpoint
}

func (e editedCheckpoints) NewestCheckpoint(context.Context) (*ports.SignedCheckpoint, error) {
	if len(e.checkpoints) == 0 {
		return nil, nil
	}
	return &e.checkpoints[len(e.checkpoints)-1], nil
}

func (e editedCheckpoints) Checkpoints(_ context.Context, after uint64, incarnation, limit int) ([]ports.SignedCheckpoint, error) {
	rest := slices.DeleteFunc(slices.Clone(e.checkpoints), func(c ports.SignedCheckpoint) bool {
		return c.Size < after || c.Size == after && c.Incarnation <= incarnation
	})
	return rest[:min(len(rest), limit)], nil
}

// TestGlobalLog_Checkpoints compares those of the database and those that were kept outside.
func TestGlobalLog_Checkpoints(t *testing.T) {
	t.Parallel()
	d := memory.New(memory.Config{})
	r := conformance.NewRecorder(t, d.Directory, d.Registry, d.Appender, 1)
	r.Record(t, r.Partitions[0], 2500)
	_, err := d.GlobalLog.ExtendGlobalLog(t.Context(), r.Partitions, 10_000)
	require.NoError(t, err)
	var tree globallog.Edge
	roots := []event.Hash{tree.Root()}
	var all []ports.SignedCheckpoint // more than a page
	for i, checksum := range r.Checksums[r.Partitions[0]] {
		tree.Append(checksum)
		roots = append(roots, tree.Root())
		if i < 2400 {
			all = append(all, signedAt(1, uint64(i+1), tree.Root()))
		}
	}
	kept := func(incarnation int, size uint64, root event.Hash) globallog.Checkpoint {
		return globallog.Checkpoint{Origin: globallog.Origin("books", incarnation), Size: size, Root: root}
	}
	edit := func(i int, change func(c *ports.SignedCheckpoint)) []ports.SignedCheckpoint {
		edited := slices.Clone(all)
		edited[i].Note = slices.Clone(edited[i].Note)
		change(&edited[i])
		return edited
	}
	other := event.Hash{1}
	type test struct {
		checkpoints []ports.SignedCheckpoint
		anchors     verify.Anchors
		want        []verify.FindingKind
		forks       []verify.Fork
		signed      uint64
	}
	// unsigned has a checkpoint of another incarnation that the log did not sign, and a kept one of another log.
	unsigned := func(checkpoints []ports.SignedCheckpoint, signed uint64) test {
		return test{checkpoints: checkpoints, signed: signed, want: []verify.FindingKind{verify.GlobalLogMismatch, verify.GlobalLogForked}, anchors: verify.Anchors{
			Kept: []globallog.Checkpoint{kept(1, 700, other)}, IsSigned: func(note []byte) bool { return strings.HasPrefix(string(note), "books/1\n") },
		}}
	}
	for name, c := range map[string]test{
		"none":                          {},
		"all":                           {checkpoints: all, signed: 2400},
		"another root":                  {checkpoints: edit(1500, func(c *ports.SignedCheckpoint) { c.Root = other }), want: []verify.FindingKind{verify.GlobalLogMismatch}, signed: 2400},
		"another root in its note too":  {checkpoints: edit(7, func(c *ports.SignedCheckpoint) { *c = signedAt(1, 8, other) }), want: []verify.FindingKind{verify.GlobalLogMismatch}, signed: 2400},
		"a note of another size":        {checkpoints: edit(7, func(c *ports.SignedCheckpoint) { c.Note = all[8].Note }), want: []verify.FindingKind{verify.GlobalLogMismatch}, signed: 2400},
		"a note of another incarnation": {checkpoints: edit(7, func(c *ports.SignedCheckpoint) { c.Note = signedAt(2, 8, roots[8]).Note }), want: []verify.FindingKind{verify.GlobalLogMismatch}, signed: 2400},
		"no note":                       {checkpoints: edit(7, func(c *ports.SignedCheckpoint) { c.Note = []byte("x") }), want: []verify.FindingKind{verify.GlobalLogMismatch}, signed: 2400},
		"of events that there are not":  {checkpoints: []ports.SignedCheckpoint{signedAt(1, 2501, other)}, want: []verify.FindingKind{verify.GlobalLogMismatch}},
		"one that is not signed":        {checkpoints: all, anchors: verify.Anchors{IsSigned: func(note []byte) bool { return !slices.Equal(note, all[3].Note) }}, want: []verify.FindingKind{verify.GlobalLogMismatch}, signed: 2400},
		"kept ones":                     {anchors: verify.Anchors{Kept: []globallog.Checkpoint{kept(1, 2500, roots[2500]), kept(1, 1, roots[1]), kept(1, 700, roots[700])}}},
		"a kept one of another log":     {anchors: verify.Anchors{Kept: []globallog.Checkpoint{kept(1, 700, other), kept(1, 701, roots[701])}}, want: []verify.FindingKind{verify.GlobalLogForked}},
		"a kept one of more events":     {anchors: verify.Anchors{Kept: []globallog.Checkpoint{kept(1, 2501, other)}}, want: []verify.FindingKind{verify.GlobalLogCut}},
		"a fork that an unsigned incarnation would hide":         unsigned(append(slices.Clone(all), signedAt(2, 2450, roots[2450])), 2400),
		"a fork that an unsigned incarnation to come would hide": unsigned([]ports.SignedCheckpoint{signedAt(2, 2501, other)}, 0),
		"a fork before a restore":                                {checkpoints: []ports.SignedCheckpoint{signedAt(2, 2000, roots[2000])}, signed: 2000, anchors: verify.Anchors{Kept: []globallog.Checkpoint{kept(1, 700, roots[700]), kept(1, 1900, other), kept(1, 2600, other)}}, forks: []verify.Fork{{Origin: "books/1", Size: 1900}, {Origin: "books/1", Size: 2600}}},
		"a restore that only a kept one":                         {anchors: verify.Anchors{Kept: []globallog.Checkpoint{kept(1, 1900, other), kept(2, 2000, roots[2000])}}, forks: []verify.Fork{{Origin: "books/1", Size: 1900}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			report, err := verify.GlobalLog(t.Context(), editedCheckpoints{d.GlobalLog, c.checkpoints}, c.anchors, nil)
			require.NoError(t, err)
			var kinds []verify.FindingKind
			for _, f := range report.Findings {
				kinds = append(kinds, f.Kind)
			}
			require.Equal(t, c.want, kinds)
			require.Equal(t, c.forks, report.Forks)
			require.Equal(t, c.signed, report.Signed)
			require.Equal(t, len(c.anchors.Kept), report.Compared)
		})
	}
}
