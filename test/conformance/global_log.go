package conformance

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/globallog"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

// GlobalLogHarness is a global log under test, with the log that it takes events from.
type GlobalLogHarness struct {
	GlobalLog interface {
		ports.GlobalLogWriter
		ports.GlobalOrder
		ports.GlobalTree
		ports.GlobalLogAudit
		ports.Checkpoints
	}
	Appender  ports.EventAppender
	Directory interface {
		ports.LegalEntities
		ports.Installations
	}
	Types ports.SharedEventTypes
}

// RunGlobalLog checks a global log; open makes one in a new installation.
func RunGlobalLog(t *testing.T, open func(t *testing.T) GlobalLogHarness) {
	t.Helper()
	for name, check := range map[string]func(*testing.T, *globalLogFixture){
		"empty log has no positions":                   emptyGlobalLog,
		"each event gets one position, in order":       onePosition,
		"ranges are read in both directions":           globalRanges,
		"tree is that of the checksums":                globalTree,
		"of many writers each takes events of its own": globalRace,
		"cancelled call changes nothing":               cancelledExtension,
		"checkpoints only become newer":                checkpoints,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			check(t, &globalLogFixture{h, NewRecorder(t, h.Directory, h.Types, h.Appender, 3)})
		})
	}
}

type globalLogFixture struct {
	GlobalLogHarness
	*Recorder
}

// Recorder records plain events in partitions of a new installation.
type Recorder struct {
	Partitions []event.PartitionID
	Checksums  map[event.PartitionID][]event.Hash // of the recorded events
	appender   ports.EventAppender
	clock      *testkit.Clock
	ids        *idSource
	typ        eventtype.Registration
}

// NewRecorder makes an installation with so many legal entities.
func NewRecorder(t testing.TB, d interface {
	ports.LegalEntities
	ports.Installations
}, types ports.SharedEventTypes, a ports.EventAppender, partitions int) *Recorder {
	t.Helper()
	ctx := t.Context()
	r := &Recorder{Checksums: map[event.PartitionID][]event.Hash{}, appender: a, clock: NewClock(), ids: newIDSource()}
	require.NoError(t, d.Bootstrap(ctx, ports.Installation{LogName: LogName, Deployment: Deployment, CreatedAt: r.clock.Now()}))
	for i := range partitions {
		code := fmt.Sprintf("E%d", i)
		le, err := d.CreateLegalEntity(ctx, ports.LegalEntity{TenantID: "T", Code: code, Name: code, TimeZone: "UTC", Status: "active", CreatedAt: r.clock.Now()})
		require.NoError(t, err)
		r.Partitions = append(r.Partitions, le.Partition)
	}
	var err error
	r.typ, err = types.RegisterEventType(ctx, registration("suite.entry.recorded", 1, r.clock.Now()))
	require.NoError(t, err)
	return r
}

// Record appends n events to a partition.
func (r *Recorder) Record(t testing.TB, p event.PartitionID, n int) {
	t.Helper()
	for ; n > 0; n -= 100 {
		events := make([]event.Prepared, min(n, 100))
		for i := range events {
			events[i] = event.Prepared{
				Skeleton: event.Skeleton{
					Partition: p, ID: r.ids.next(), Type: r.typ.Type, SchemaVersion: 1, OccurredAt: r.clock.Now(), EffectiveDate: event.MustDate("2026-03-02"),
					Scope: event.Scope{TenantID: "T", LegalEntity: "E"}, ActorType: event.System, ActorID: "suite", CorrelationID: "corr", Stream: event.StreamID{Type: "entry", ID: "1"},
					Source: event.Source{System: "suite", Channel: "test"},
				},
				TypeNumber: r.typ.Number,
				Payload:    []byte(`{"data":{},"dimensions":{},"entity_refs":[]}`),
			}
			events[i].PayloadHash, events[i].PayloadHashDone = event.HashPayload(events[i].Salt, events[i].Payload), true
		}
		receipt, err := r.appender.Append(t.Context(), ports.AppendRequest{Partition: p, Events: events})
		require.NoError(t, err)
		for _, e := range receipt.Events {
			r.Checksums[p] = append(r.Checksums[p], e.Checksum)
		}
	}
}

func (f *globalLogFixture) extend(t *testing.T, most int, partitions ...event.PartitionID) []globallog.Range {
	t.Helper()
	ranges, err := f.GlobalLog.ExtendGlobalLog(t.Context(), partitions, most)
	require.NoError(t, err)
	return ranges
}

func (f *globalLogFixture) ranges(t *testing.T, q ports.GlobalRangeQuery) []globallog.Range {
	t.Helper()
	if q.Partitions == nil {
		q.Partitions = f.Partitions
	}
	if q.Limit == 0 {
		q.Limit = 1000
	}
	ranges, err := f.GlobalLog.GlobalRanges(t.Context(), q)
	require.NoError(t, err)
	return ranges
}

func emptyGlobalLog(t *testing.T, f *globalLogFixture) {
	ctx, p := t.Context(), f.Partitions[0]
	require.Empty(t, f.extend(t, 10, f.Partitions...), "there is nothing")
	f.Record(t, p, 1)
	size, err := f.GlobalLog.GlobalSize(ctx)
	require.NoError(t, err)
	require.Zero(t, size)
	ends, err := f.GlobalLog.GlobalEnds(ctx, globallog.End)
	require.NoError(t, err)
	require.Empty(t, ends)
	positions, err := f.GlobalLog.GlobalPositions(ctx, []ports.EventPosition{{Partition: p, Sequence: 1}})
	require.NoError(t, err)
	require.Empty(t, positions)
	require.Equal(t, []globallog.Range{}, f.ranges(t, ports.GlobalRangeQuery{}))
	require.Equal(t, []globallog.Range{}, f.ranges(t, ports.GlobalRangeQuery{Direction: ports.Backward}))
	for level := range 2 {
		_, err = f.GlobalLog.GlobalHashes(ctx, level, 0, 1)
		require.Equal(t, "global_log.beyond_end", fault.CodeOf(err))
	}
}

func onePosition(t *testing.T, f *globalLogFixture) {
	ctx := t.Context()
	one, two, three := f.Partitions[0], f.Partitions[1], f.Partitions[2]
	f.Record(t, one, 5)
	f.Record(t, two, 2)
	unknown := event.PartitionID(4_000_001)
	require.Equal(t, []globallog.Range{{First: 0, Partition: two, Sequence: 1, Count: 2}, {First: 2, Partition: one, Sequence: 1, Count: 3}}, f.extend(t, 3, two, unknown, three, one))
	f.Record(t, three, 1)
	f.Record(t, two, 1)
	require.Equal(t, []globallog.Range{{First: 5, Partition: one, Sequence: 4, Count: 2}, {First: 7, Partition: two, Sequence: 3, Count: 1}}, f.extend(t, 3, one, two))
	require.Empty(t, f.extend(t, 3, one, two), "nothing comes twice")

	size, err := f.GlobalLog.GlobalSize(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 8, size)
	ends, err := f.GlobalLog.GlobalEnds(ctx, globallog.End)
	require.NoError(t, err)
	require.Equal(t, map[event.PartitionID]event.Sequence{one: 5, two: 3}, ends)
	for before, want := range map[globallog.Position]map[event.PartitionID]event.Sequence{0: {}, 1: {two: 1}, 2: {two: 2}, 4: {two: 2, one: 2}, 6: {two: 2, one: 4}, 8: {one: 5, two: 3}} {
		ends, err := f.GlobalLog.GlobalEnds(ctx, before)
		require.NoError(t, err)
		require.Equal(t, want, ends, "before %d", before)
	}
	positions, err := f.GlobalLog.GlobalPositions(ctx, []ports.EventPosition{at(two, 3), at(one, 1), at(one, 4), at(one, 6), at(three, 1), at(one, 1), at(one, 3), at(one, 5), at(unknown, 1)})
	require.NoError(t, err)
	require.Equal(t, map[ports.EventPosition]globallog.Position{at(two, 3): 7, at(one, 1): 2, at(one, 3): 4, at(one, 4): 5, at(one, 5): 6}, positions)
	none, err := f.GlobalLog.GlobalPositions(ctx, nil)
	require.NoError(t, err)
	require.Empty(t, none)
}

func checkpoints(t *testing.T, f *globalLogFixture) {
	ctx, none := t.Context(), []ports.SignedCheckpoint{}
	newest, err := f.GlobalLog.NewestCheckpoint(ctx)
	require.NoError(t, err)
	require.Nil(t, newest)
	f.Record(t, f.Partitions[0], 5)
	f.extend(t, 10, f.Partitions[0])
	signed := func(incarnation int, size uint64) ports.SignedCheckpoint {
		return ports.SignedCheckpoint{Incarnation: incarnation, Size: size, Root: f.Checksums[f.Partitions[0]][size-1], Note: fmt.Appendf(nil, "note of %d/%d\n", incarnation, size)}
	}
	for _, step := range []struct {
		incarnation int
		size        uint64
		isRecorded  bool
	}{{1, 2, true}, {1, 2, false}, {1, 1, false}, {1, 5, true}, {2, 3, true}, {1, 5, false}, {2, 3, false}, {2, 4, true}} {
		isRecorded, err := f.GlobalLog.RecordCheckpoint(ctx, signed(step.incarnation, step.size))
		require.NoError(t, err)
		require.Equal(t, step.isRecorded, isRecorded, step)
	}
	beyond := signed(2, 5)
	beyond.Size = 6
	_, err = f.GlobalLog.RecordCheckpoint(ctx, beyond)
	require.Equal(t, "global_log.beyond_end", fault.CodeOf(err))
	newest, err = f.GlobalLog.NewestCheckpoint(ctx)
	require.NoError(t, err)
	require.Equal(t, signed(2, 4), *newest)
	all := []ports.SignedCheckpoint{signed(1, 2), signed(2, 3), signed(2, 4), signed(1, 5)}
	for _, page := range []struct {
		after              uint64
		incarnation, limit int
		want               []ports.SignedCheckpoint
	}{{0, 0, 9, all}, {2, 1, 2, all[1:3]}, {3, 1, 9, all[1:]}, {3, 2, 9, all[2:]}, {5, 1, 9, none}} {
		got, err := f.GlobalLog.Checkpoints(ctx, page.after, page.incarnation, page.limit)
		require.NoError(t, err)
		require.Equal(t, page.want, got)
	}
}

func at(p event.PartitionID, s event.Sequence) ports.EventPosition {
	return ports.EventPosition{Partition: p, Sequence: s}
}

func globalRanges(t *testing.T, f *globalLogFixture) {
	one, two := f.Partitions[0], f.Partitions[1]
	var all []globallog.Range
	for range 4 {
		f.Record(t, one, 3)
		f.Record(t, two, 1)
		all = append(all, f.extend(t, 10, one, two)...)
	}
	require.Equal(t, all, f.ranges(t, ports.GlobalRangeQuery{}))
	require.Equal(t, all[2:4], f.ranges(t, ports.GlobalRangeQuery{From: 6, Limit: 2}), "the range that has the position is the first")
	require.Equal(t, []globallog.Range{all[3], all[5]}, f.ranges(t, ports.GlobalRangeQuery{From: 5, Partitions: []event.PartitionID{two}, Limit: 2}))
	require.Empty(t, f.ranges(t, ports.GlobalRangeQuery{From: 16}))
	back := slices.Clone(all)
	slices.Reverse(back)
	require.Equal(t, back, f.ranges(t, ports.GlobalRangeQuery{From: 99, Direction: ports.Backward}))
	require.Equal(t, []globallog.Range{all[2], all[0]}, f.ranges(t, ports.GlobalRangeQuery{From: 5, Partitions: []event.PartitionID{one}, Direction: ports.Backward}))
	require.Equal(t, []globallog.Range{}, f.ranges(t, ports.GlobalRangeQuery{Partitions: []event.PartitionID{}}))
}

func globalTree(t *testing.T, f *globalLogFixture) {
	ctx := t.Context()
	f.Record(t, f.Partitions[0], 300)
	f.Record(t, f.Partitions[1], 300)
	var want globallog.Edge
	var ranges []globallog.Range
	roots := map[int][]event.Hash{}
	for {
		extended := f.extend(t, 70, f.Partitions...)
		if len(extended) == 0 {
			break
		}
		ranges = append(ranges, extended...)
		for _, r := range extended {
			for s := r.Sequence; s < r.NextSequence(); s++ {
				for _, tile := range want.Append(f.Checksums[r.Partition][s-1]) {
					roots[tile.Level] = append(roots[tile.Level], tile.Root())
				}
			}
		}
		got, err := globallog.Root(want.Size(), func(level int, from, n uint64) ([]event.Hash, error) {
			return f.GlobalLog.GlobalHashes(ctx, level, from, n)
		})
		require.NoError(t, err)
		require.Equal(t, want.Root(), got)
	}
	require.EqualValues(t, 600, want.Size())
	require.Len(t, roots[0], 2)
	report, err := verify.GlobalLog(ctx, f.GlobalLog, verify.Anchors{}, nil)
	require.NoError(t, err)
	root := want.Root()
	require.Equal(t, verify.GlobalLogReport{Size: 600, Root: hex.EncodeToString(root[:]), FindingList: verify.FindingList{Findings: []verify.Finding{}}}, report)
	got, err := f.GlobalLog.GlobalHashes(ctx, 1, 0, 2)
	require.NoError(t, err)
	require.Equal(t, roots[0], got)
	entries, err := f.GlobalLog.GlobalHashes(ctx, 0, 200, 100) // across the first tile and ranges
	require.NoError(t, err)
	for i, entry := range entries {
		position := globallog.Position(200 + i)
		for _, r := range ranges {
			if s, ok := r.SequenceAt(position); ok {
				require.Equal(t, globallog.EntryHash(f.Checksums[r.Partition][s-1]), entry, "position %d", position)
			}
		}
	}
	_, err = f.GlobalLog.GlobalHashes(ctx, 0, 500, 101)
	require.Equal(t, "global_log.beyond_end", fault.CodeOf(err))
	_, err = f.GlobalLog.GlobalHashes(ctx, 1, 0, 3)
	require.Equal(t, "global_log.beyond_end", fault.CodeOf(err))
}

func globalRace(t *testing.T, f *globalLogFixture) {
	const writers, events = 6, 120
	for _, p := range f.Partitions {
		f.Record(t, p, events)
	}
	var mu sync.Mutex
	var taken []globallog.Range
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for idle := 0; idle < 3; {
				ranges, err := f.GlobalLog.ExtendGlobalLog(t.Context(), f.Partitions, 7)
				if err != nil && fault.CodeOf(err) != "global_log.moved" {
					t.Errorf("extend: %v", err)
					return
				}
				if err == nil && len(ranges) == 0 {
					idle++
				}
				mu.Lock()
				taken = append(taken, ranges...)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	stored := f.ranges(t, ports.GlobalRangeQuery{})
	slices.SortFunc(taken, func(a, b globallog.Range) int { return int(a.First) - int(b.First) })
	require.Equal(t, taken, stored, "each writer was told exactly what it stored")
	var next globallog.Position
	ends := map[event.PartitionID]event.Sequence{}
	for _, r := range stored {
		require.Equal(t, next, r.First)
		require.Equal(t, ends[r.Partition]+1, r.Sequence)
		next, ends[r.Partition] = r.End(), r.NextSequence()-1
	}
	for _, p := range f.Partitions {
		require.Equal(t, event.Sequence(events), ends[p])
	}
}

func cancelledExtension(t *testing.T, f *globalLogFixture) {
	f.Record(t, f.Partitions[0], 3)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := f.GlobalLog.ExtendGlobalLog(ctx, f.Partitions, 10)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, f.ranges(t, ports.GlobalRangeQuery{}))
}
