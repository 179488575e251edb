package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

var versionPromises = []promise{
	{"one version is active and one is built", oneOfEachRole},
	{"switch retains the previous version", switchAndBack},
	{"switch catches up", switchCatchesUp},
	{"dropped version is not worked again", dropEnds},
	{"one of concurrent switches wins", switchRace},
	{"switch ignores unread partitions", switchReads},
	{"ended projection leaves no version", endRace},
	{"switch drops a version after its writer ends", switchDrops},
	{"comparison is consistent", compareRace},
	{"comparison filters types by version", compareReads},
}

// versions adds a projection whose first version is active.
func (b *partition) versions(t tester) string {
	t.Helper()
	name := b.unique("projection")
	b.version(t, name, 1, projection.Active)
	return name
}

func (b *partition) version(t tester, name string, version int, role projection.Role) {
	t.Helper()
	p, err := b.store.AddProjection(context.Background(), projection.Projection{Name: name, Version: version, Role: role, Status: projection.Running})
	require.NoError(t, err)
	require.Equal(t, role, p.Role)
}

func (b *partition) roles(t tester, name string) map[int]projection.Role {
	t.Helper()
	all, err := b.store.ListProjections(context.Background())
	require.NoError(t, err)
	out := map[int]projection.Role{}
	for _, p := range all {
		if p.Name == name {
			out[p.Version] = p.Role
		}
	}
	return out
}

// swap allows for all the events of the other tests, which the new version lacks as
// well as the old one.
func (b *partition) swap(name string, from, to int, h ports.ProjectionHandler) error {
	return b.swapWithin(name, from, to, 1<<40, h)
}

func (b *partition) swapWithin(name string, from, to int, behind uint64, h ports.ProjectionHandler) error {
	return b.store.SwitchProjection(context.Background(), ports.ProjectionSwitch{Projection: name, From: from, To: to, MaxBehind: behind, Handler: h, By: "ada"})
}

func (b *partition) follow(t tester, name string, version, limit int, h ports.ProjectionHandler) event.Sequence {
	t.Helper()
	c, _, err := b.store.Advance(context.Background(), b.step(name, version, nil, limit), h)
	require.NoError(t, err)
	return c.Sequence
}

func oneOfEachRole(t *testing.T, s *suite) {
	b := s.newPartition(t)
	name := b.versions(t)
	active := func() int {
		version, err := s.store.ActiveProjection(context.Background(), name)
		require.NoError(t, err)
		return version
	}
	require.Equal(t, 1, active())
	b.version(t, name, 2, projection.Building)
	require.Equal(t, 1, active(), "a version that is built is not active")
	build := func(name string, version int) error {
		_, err := s.store.AddProjection(context.Background(), projection.Projection{Name: name, Version: version, Role: projection.Building, Status: projection.Running})
		return err
	}
	require.Equal(t, fault.NotFound, fault.KindOf(build(name, 3)), "one at a time")
	require.Equal(t, fault.NotFound, fault.KindOf(build(b.unique("projection"), 1)), "a build needs an active version")
	_, err := s.store.ActiveProjection(context.Background(), b.unique("projection"))
	require.Equal(t, "projection.not_found", fault.CodeOf(err))
	require.Equal(t, map[int]projection.Role{1: projection.Active, 2: projection.Building}, b.roles(t, name))
}

func switchAndBack(t *testing.T, s *suite) {
	b := s.newPartition(t)
	h, name := &recorder{partition: b}, b.versions(t)
	b.version(t, name, 2, projection.Building)
	require.NoError(t, b.swap(name, 1, 2, h))
	require.Equal(t, map[int]projection.Role{1: projection.Retained, 2: projection.Active}, b.roles(t, name))
	require.Equal(t, projection.CodeChanged, fault.CodeOf(b.swap(name, 1, 2, h)))
	require.NoError(t, b.swap(name, 2, 1, h))
	require.Equal(t, map[int]projection.Role{1: projection.Active, 2: projection.Retained}, b.roles(t, name))
	b.version(t, name, 3, projection.Building)
	require.NoError(t, b.swap(name, 1, 3, h))
	require.Equal(t, map[int]projection.Role{1: projection.Retained, 2: projection.Dropping, 3: projection.Active}, b.roles(t, name), "one way back")
}

func switchCatchesUp(t *testing.T, s *suite) {
	b := s.ten(t)
	h, name := &recorder{partition: b}, b.versions(t)
	require.Equal(t, event.Sequence(10), b.follow(t, name, 1, 0, h))
	b.version(t, name, 2, projection.Building)
	require.Equal(t, event.Sequence(5), b.follow(t, name, 2, 5, h))
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(b.swapWithin(name, 1, 2, 4, h)), "it lacks too much")
	require.Equal(t, projection.Building, b.roles(t, name)[2])
	require.Equal(t, event.Sequence(7), b.follow(t, name, 2, 2, h))
	require.NoError(t, b.swap(name, 1, 2, h))
	list, err := s.store.Checkpoints(context.Background(), name, 2)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, event.Sequence(10), list[0].Sequence, "no reader goes back in time")
	require.Equal(t, append(upTo(10), upTo(10)...), h.seen)
}

func dropEnds(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.ten(t)
	h, name := &recorder{partition: b}, b.versions(t)
	b.follow(t, name, 1, 0, h)
	b.version(t, name, 2, projection.Building)
	b.follow(t, name, 2, 5, h)
	require.Equal(t, projection.CodeChanged, fault.CodeOf(s.store.DropProjection(ctx, name, 1, "ada")), "never the active one")
	require.NoError(t, s.store.DropProjection(ctx, name, 2, "ada"))
	list, err := s.store.Checkpoints(ctx, name, 2)
	require.NoError(t, err)
	require.Empty(t, list)
	for _, role := range []projection.Role{projection.Dropping, projection.Dropped} {
		require.Equal(t, role, b.roles(t, name)[2])
		_, _, err = s.store.Advance(ctx, b.step(name, 2, nil, 0), h)
		require.Equal(t, projection.CodeFenced, fault.CodeOf(err))
		_, err = s.store.SweepProjection(ctx, name, 2, nil, 10)
		require.NoError(t, err)
	}
	require.Equal(t, projection.CodeChanged, fault.CodeOf(s.store.DropProjection(ctx, name, 2, "ada")))
	require.Equal(t, projection.CodeChanged, fault.CodeOf(b.swap(name, 1, 2, h)))

	// It stays known, and is listed until there is a later one.
	b.version(t, name, 3, projection.Building)
	require.Equal(t, map[int]projection.Role{1: projection.Active, 3: projection.Building}, b.roles(t, name))
	named, err := s.store.NamedProjections(ctx, name)
	require.NoError(t, err)
	require.Len(t, named, 3)
	require.Equal(t, []any{2, projection.Dropped}, []any{named[1].Version, named[1].Role})
	again, err := s.store.AddProjection(ctx, projection.Projection{Name: name, Version: 2, Role: projection.Building, Status: projection.Running})
	require.NoError(t, err)
	require.Equal(t, projection.Dropped, again.Role, "a number is not given twice")
	none, err := s.store.NamedProjections(ctx, b.unique("projection"))
	require.NoError(t, err)
	require.Empty(t, none)
}

// switchReads has a version that reads one legal entity only, and one without a handler.
func switchReads(t *testing.T, s *suite) {
	b, other := s.ten(t), s.ten(t)
	h, name := &recorder{partition: b}, b.versions(t)
	b.follow(t, name, 1, 0, h)
	other.follow(t, name, 1, 0, &recorder{partition: other})
	b.version(t, name, 2, projection.Building)
	b.follow(t, name, 2, 8, h)
	read := []event.PartitionID{b.le.Partition, other.le.Partition}
	swap := ports.ProjectionSwitch{Projection: name, From: 1, To: 2, MaxBehind: 5, By: "ada", Types: []string{b.changed.Type}, Partitions: read[:1]}
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(s.store.SwitchProjection(context.Background(), swap)), "no handler can read the missing events")
	swap.Partitions, swap.Handler = read, h
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(s.store.SwitchProjection(context.Background(), swap)), "it has not begun in the other legal entity")
	swap.Partitions = read[:1]
	require.NoError(t, s.store.SwitchProjection(context.Background(), swap))
	list, err := s.store.Checkpoints(context.Background(), name, 2)
	require.NoError(t, err)
	require.Len(t, list, 1, "what it does not read is left alone")
	require.Equal(t, event.Sequence(10), list[0].Sequence)
}

// endRace ends projections while versions of them are begun.
func endRace(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	for range 8 {
		name := b.versions(t)
		var racing sync.WaitGroup
		racing.Go(func() { assert.NoError(t, s.store.EndProjection(ctx, name, "ada")) })
		for version := 2; version <= 4; version++ {
			racing.Go(func() {
				_, err := s.store.AddProjection(ctx, projection.Projection{Name: name, Version: version, Role: projection.Building, Status: projection.Running})
				if err != nil {
					assert.Equal(t, fault.NotFound, fault.KindOf(err))
				}
			})
		}
		racing.Wait()
		for version, role := range b.roles(t, name) {
			require.False(t, role.IsLive(), "version %d", version)
		}
	}
}

func switchRace(t *testing.T, s *suite) {
	b := s.newPartition(t)
	h := &recorder{partition: b}
	for range races {
		name := b.versions(t)
		b.version(t, name, 2, projection.Building)
		oneWinner(t, race(6, func(int) error { return b.swap(name, 1, 2, h) }), projection.CodeChanged)
		require.Equal(t, map[int]projection.Role{1: projection.Retained, 2: projection.Active}, b.roles(t, name))
	}
}

// compareReads compares the rows of two versions, of which the second one reads no event
// from the fourth on.
func compareReads(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.ten(t)
	name := b.versions(t)
	b.version(t, name, 2, projection.Building)
	row := func(state string) onRows {
		return func(ctx context.Context, tx ports.ProjectionTx, batch ports.ProjectionBatch) error {
			rows := make([]ports.ProjectionRow, len(batch.Events))
			for i, e := range batch.Events {
				rows[i] = ports.ProjectionRow{Key: fmt.Sprint(e.Sequence), State: json.RawMessage(state), Sequence: e.Sequence}
			}
			return s.store.StoreProjectionRows(ctx, tx, batch, rows, nil)
		}
	}
	b.follow(t, name, 1, 0, row(`{"a":1.0,"b":[]}`))
	b.follow(t, name, 2, 2, row(`{"b": [], "a": 1.0}`))
	b.follow(t, name, 2, 1, row(`{"a":1.00,"b":[]}`))
	refuse := onRows(func(context.Context, ports.ProjectionTx, ports.ProjectionBatch) error {
		return fault.New(fault.Internal, "test.called", "called")
	})
	c := ports.ProjectionComparison{
		Projection: name, Partition: b.le.Partition, Left: 1, Right: 2, MaxBehind: 6, Tables: []ports.ProjectionTable{ports.ProjectionRowTable}, Examples: 2,
		Types: map[int][]string{2: {"test.never.seen"}}, Handlers: map[int]ports.ProjectionHandler{2: refuse},
	}
	_, err := s.store.CompareProjection(ctx, c)
	require.Equal(t, projection.CodeIncomparable, fault.CodeOf(err), "it lacks too much")
	c.MaxBehind, c.Handlers = 7, nil
	_, err = s.store.CompareProjection(ctx, c)
	require.Equal(t, projection.CodeIncomparable, fault.CodeOf(err), "there is no handler to build it")
	c.Handlers = map[int]ports.ProjectionHandler{2: refuse}
	d, err := s.store.CompareProjection(ctx, c)
	require.NoError(t, err)
	require.Equal(t, event.Sequence(10), d.Sequence)
	require.Len(t, d.Tables, 1)
	got := d.Tables[0]
	require.Equal(t, []uint64{10, 3, 7, 0, 1}, []uint64{got.LeftRows, got.RightRows, got.OnlyLeft, got.OnlyRight, got.Changed})
	require.Len(t, got.Examples, 2)
	require.JSONEq(t, `{"key":"10"}`, string(got.Examples[0].Key))
	require.Equal(t, "left", got.Examples[0].Where)
	require.JSONEq(t, `{"key":"3"}`, string(got.Examples[1].Key))
	require.Equal(t, []string{"state"}, got.Examples[1].Columns)
	other := s.newPartition(t)
	c.Partition = other.le.Partition
	d, err = s.store.CompareProjection(ctx, c)
	require.NoError(t, err, "neither has begun")
	require.Zero(t, d.Rows())
	other.write(t, other.event(other.changed, stream("r")))
	other.follow(t, name, 1, 0, row(`1`))
	_, err = s.store.CompareProjection(ctx, c)
	require.Equal(t, projection.CodeIncomparable, fault.CodeOf(err), "one has not begun")
}

// switchDrops activates a third version while the retained first one is written: the
// switch drops it after its writer has ended, and leaves no checkpoint of it.
func switchDrops(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.ten(t)
	for range races {
		h, name := &recorder{partition: b}, b.versions(t)
		b.version(t, name, 2, projection.Building)
		require.NoError(t, b.swap(name, 1, 2, h))
		b.version(t, name, 3, projection.Building)
		var dropping sync.WaitGroup
		var dropped error
		writer := &recorder{partition: b, after: func() error {
			dropping.Go(func() { dropped = b.swap(name, 2, 3, h) })
			for range 100 {
				runtime.Gosched() // it must not get through now
			}
			return nil
		}}
		_, _, err := s.store.Advance(ctx, b.step(name, 1, nil, 0), writer)
		require.NoError(t, err)
		dropping.Wait()
		require.NoError(t, dropped)
		left, err := s.store.Checkpoints(ctx, name, 1)
		require.NoError(t, err)
		require.Empty(t, left)
		_, _, err = s.store.Advance(ctx, b.step(name, 1, nil, 0), h)
		require.Equal(t, projection.CodeFenced, fault.CodeOf(err))
	}
}

// compareRace compares two versions of the same handler while both follow the log.
func compareRace(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.ten(t)
	h := onRows(func(ctx context.Context, tx ports.ProjectionTx, batch ports.ProjectionBatch) error {
		rows := make([]ports.ProjectionRow, len(batch.Events))
		for i, e := range batch.Events {
			rows[i] = ports.ProjectionRow{Key: fmt.Sprint(e.Sequence), State: json.RawMessage(`{}`), Sequence: e.Sequence}
		}
		return s.store.StoreProjectionRows(ctx, tx, batch, rows, nil)
	})
	for range 8 {
		name := b.versions(t)
		b.version(t, name, 2, projection.Building)
		c := ports.ProjectionComparison{
			Projection: name, Partition: b.le.Partition, Left: 1, Right: 2, MaxBehind: 10, Tables: rowTables, Handlers: map[int]ports.ProjectionHandler{1: h, 2: h},
		}
		for _, err := range race(3, func(i int) error {
			for range 5 {
				if i == 0 {
					d, err := s.store.CompareProjection(ctx, c)
					if err == nil && d.Rows() > 0 {
						return fmt.Errorf("at %d: %+v", d.Sequence, d.Tables)
					}
					if err != nil && fault.CodeOf(err) != projection.CodeIncomparable {
						return err
					}
					continue
				}
				if _, _, err := s.store.Advance(ctx, b.step(name, i, nil, 2), h); err != nil {
					return err
				}
			}
			return nil
		}) {
			require.NoError(t, err)
		}
	}
}
