package conformance

import (
	"context"
	"crypto/sha256"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// partitionPromises are those of versions of a single partition.
var partitionPromises = []promise{
	{"partition switch swaps rows", replaceAndBack},
	{"one of concurrent partition switches wins", replaceRace},
	{"partitions build independently", buildSeparately},
}

// projectionSnapshotPromises are those of versions that are saved and that others start from.
var projectionSnapshotPromises = []promise{
	{"version starts from a snapshot", beginWithSnapshot},
	{"forged snapshot is not restored", forgedSnapshot},
	{"events of a snapshot count as processed", processedOfTypes},
	{"version activated before its copy runs", activateBeforeCopy},
	{"newest snapshots of a scope are kept", keepSnapshots},
}

var rowTables = []ports.ProjectionTable{ports.ProjectionRowTable}

func (b *partition) versionIn(t tester, name string, version int, role projection.Role) {
	t.Helper()
	p, err := b.store.AddProjection(context.Background(), projection.Projection{
		Name: name, Version: version, Code: 1, Role: role, Scope: b.le.Partition, Status: projection.Running,
	})
	require.NoError(t, err)
	require.Equal(t, []any{role, b.le.Partition}, []any{p.Role, p.Scope})
}

func (b *partition) replace(name string, to int, behind uint64) (int, error) {
	return b.store.SwitchPartition(context.Background(), ports.PartitionSwitch{
		ProjectionSwitch: ports.ProjectionSwitch{Projection: name, From: 1, To: to, MaxBehind: behind, By: "ada", Partitions: []event.PartitionID{b.le.Partition}},
		Partition:        b.le.Partition, Tables: rowTables,
	})
}

func (b *partition) rowKeys(t tester, name string, version int) []string {
	t.Helper()
	keys, _ := b.listRows(t, ports.ProjectionRowQuery{Projection: name, Version: version})
	return keys
}

func (b *partition) checkpointOf(t tester, name string, version int) (c ports.Checkpoint) {
	t.Helper()
	all, err := b.store.Checkpoints(context.Background(), name, version)
	require.NoError(t, err)
	for _, one := range all {
		if one.Partition == b.le.Partition {
			c = one
		}
	}
	return c
}

func replaceAndBack(t *testing.T, s *suite) {
	b := s.newPartition(t)
	name := b.versions(t)
	require.NoError(t, b.rows(t, name, 1, nil, "old"))
	b.versionIn(t, name, 2, projection.Building)
	_, err := b.replace(name, 2, 0)
	require.Equal(t, projection.CodeVersionBehind, fault.CodeOf(err), "it has not begun")
	require.NoError(t, b.rows(t, name, 2, nil, "new"))
	before, built := b.checkpointOf(t, name, 1), b.checkpointOf(t, name, 2)
	kept, err := b.replace(name, 2, 100)
	require.NoError(t, err)
	require.Equal(t, 3, kept)
	require.Equal(t, map[int]projection.Role{1: projection.Active, 2: projection.Dropping, 3: projection.Retained}, b.roles(t, name))
	require.Equal(t, [][]string{{"new"}, {}, {"old"}}, [][]string{b.rowKeys(t, name, 1), b.rowKeys(t, name, 2), b.rowKeys(t, name, 3)})
	after := b.checkpointOf(t, name, 1)
	require.Equal(t, []uint64{uint64(built.Sequence), before.Generation + 1}, []uint64{uint64(after.Sequence), after.Generation}, "rows and checkpoint go together")
	require.Equal(t, before.Sequence, b.checkpointOf(t, name, 3).Sequence)
	require.Zero(t, b.checkpointOf(t, name, 2).Version)
	_, err = b.replace(name, 2, 100)
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err))

	require.NoError(t, b.rows(t, name, 3, nil, "older"))
	kept, err = b.replace(name, 3, 100)
	require.NoError(t, err)
	require.Equal(t, 4, kept)
	require.Equal(t, [][]string{{"old", "older"}, {"new"}}, [][]string{b.rowKeys(t, name, 1), b.rowKeys(t, name, 4)})
	require.Equal(t, before.Generation+2, b.checkpointOf(t, name, 1).Generation)
}

func replaceRace(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for range races {
		name := b.versions(t)
		require.NoError(t, b.rows(t, name, 1, nil, "old"))
		b.versionIn(t, name, 2, projection.Building)
		require.NoError(t, b.rows(t, name, 2, nil, "new"))
		oneWinner(t, race(6, func(int) error { _, err := b.replace(name, 2, 100); return err }), projection.CodeChanged)
		require.Equal(t, []string{"new"}, b.rowKeys(t, name, 1))
		require.Equal(t, uint64(1), b.checkpointOf(t, name, 1).Generation)
	}
}

func buildSeparately(t *testing.T, s *suite) {
	b := s.newPartition(t)
	name := b.versions(t)
	b.versionIn(t, name, 2, projection.Building)
	b.version(t, name, 3, projection.Building)
	_, err := b.store.AddProjection(context.Background(), projection.Projection{Name: name, Version: 4, Role: projection.Building, Scope: b.le.Partition, Status: projection.Running})
	require.Equal(t, fault.NotFound, fault.KindOf(err), "one at a time of a partition")
	require.Equal(t, projection.CodeChanged, fault.CodeOf(b.swap(name, 1, 2, nil)), "it is not of all")
	_, err = b.replace(name, 3, 1<<40)
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "and this one not of one")
	require.NoError(t, b.swap(name, 1, 3, &recorder{partition: b}))
	_, err = b.replace(name, 2, 1<<40)
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "another version is active by now")
}

// activateBeforeCopy activates a version before its snapshot is copied. An active version gets
// no copy, so it must not wait for one.
func activateBeforeCopy(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	require.NoError(t, b.rows(t, name, 1, nil, "a"))
	_, err := b.store.AddProjection(ctx, projection.Projection{Name: name, Version: 2, Code: 1, Role: projection.Building, Base: 9, Status: projection.Created})
	require.NoError(t, err)
	require.NoError(t, b.store.SwitchProjection(ctx, ports.ProjectionSwitch{Projection: name, From: 1, To: 2, Force: true, By: "ada"}))
	all, err := b.store.NamedProjections(ctx, name)
	require.NoError(t, err)
	status := map[int]projection.Status{}
	for _, p := range all {
		status[p.Version] = p.Status
	}
	require.Equal(t, map[int]projection.Status{1: projection.Running, 2: projection.Running}, status)
}

func (b *partition) copyOf(name string, version, to int) ports.SnapshotCopy {
	return ports.SnapshotCopy{Projection: name, Version: version, Partition: b.le.Partition, Tables: rowTables, To: to, Authenticate: AuthenticatePart("secret")}
}

// AuthenticatePart computes a code of a part under a secret.
func AuthenticatePart(secret string) func(ports.SnapshotPart) ([]byte, error) {
	return func(p ports.SnapshotPart) ([]byte, error) {
		code := sha256.Sum256(fmt.Append(nil, secret, p))
		return code[:], nil
	}
}

func beginWithSnapshot(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	require.NoError(t, b.rows(t, name, 1, nil, "a", "b"))
	at := b.checkpointOf(t, name, 1).Sequence
	b.versionIn(t, name, 2, projection.Saving)
	_, err := b.store.AddProjection(ctx, projection.Projection{Name: name, Version: 3, Role: projection.Saving, Scope: b.le.Partition, Status: projection.Running})
	require.Equal(t, fault.NotFound, fault.KindOf(err), "one at a time")
	require.NoError(t, b.store.PlanSnapshot(ctx, name, 2, 1))
	for range 2 {
		done, err := b.store.SavePart(ctx, b.copyOf(name, 2, 0))
		require.NoError(t, err)
		require.True(t, done)
		require.NoError(t, b.rows(t, name, 1, []string{"a"}, "c"), "what comes later is not in it")
	}
	parts, err := b.store.SnapshotParts(ctx, name)
	require.NoError(t, err)
	require.Len(t, parts, 1)
	require.Equal(t, []any{2, b.le.Partition, at, uint64(2), true}, []any{parts[0].Version, parts[0].Partition, parts[0].Sequence, parts[0].Rows, parts[0].Usable})

	b.versionIn(t, name, 3, projection.Building)
	_, err = b.store.RestorePart(ctx, b.copyOf(name, 2, 3))
	require.Equal(t, projection.CodeChanged, fault.CodeOf(err), "it is not complete")
	require.NoError(t, b.store.FinishSnapshot(ctx, name, 2, 3, "ada"))
	require.Equal(t, projection.Saved, b.roles(t, name)[2])
	for range 2 {
		done, err := b.store.RestorePart(ctx, b.copyOf(name, 2, 3))
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, []string{"a", "b"}, b.rowKeys(t, name, 3))
	}
	require.Equal(t, at, b.checkpointOf(t, name, 3).Sequence)
	require.Equal(t, b.checkpointOf(t, name, 1).Processed-2, b.checkpointOf(t, name, 3).Processed, "what the rows are folded from counts")
	_, _, err = b.store.Advance(ctx, b.step(name, 2, nil, 0), &recorder{partition: b})
	require.Equal(t, projection.CodeFenced, fault.CodeOf(err), "no worker may write it")

	require.NoError(t, b.store.ForgetPart(ctx, b.copyOf(name, 2, 0)))
	require.Empty(t, b.rowKeys(t, name, 2))
	done, err := b.store.RestorePart(ctx, b.copyOf(name, 2, 3))
	require.NoError(t, err)
	require.False(t, done)
	require.Equal(t, []string{"a", "b"}, b.rowKeys(t, name, 3))
}

func forgedSnapshot(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	require.NoError(t, b.rows(t, name, 1, nil, "a", "b"))
	b.versionIn(t, name, 2, projection.Saving)
	require.NoError(t, b.store.PlanSnapshot(ctx, name, 2, 1))
	unavailable := b.copyOf(name, 2, 0)
	unavailable.Authenticate = func(ports.SnapshotPart) ([]byte, error) {
		return nil, fault.New(fault.Unavailable, "kms.unavailable", "down")
	}
	_, err := b.store.SavePart(ctx, unavailable)
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	forged := b.copyOf(name, 2, 0)
	forged.Authenticate = AuthenticatePart("another secret")
	_, err = b.store.SavePart(ctx, forged)
	require.NoError(t, err)
	require.NoError(t, b.store.FinishSnapshot(ctx, name, 2, 3, "ada"))
	b.versionIn(t, name, 3, projection.Building)
	_, err = b.store.RestorePart(ctx, b.copyOf(name, 2, 3))
	require.Equal(t, "snapshot.forged", fault.CodeOf(err))
	unavailable.To = 3
	_, err = b.store.RestorePart(ctx, unavailable)
	require.Equal(t, "kms.unavailable", fault.CodeOf(err))
	require.Empty(t, b.rowKeys(t, name, 3))
	require.Zero(t, b.checkpointOf(t, name, 3).Version, "the version reads the partition from the beginning")
	forged.To = 3
	done, err := b.store.RestorePart(ctx, forged)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, []string{"a", "b"}, b.rowKeys(t, name, 3))
}

func processedOfTypes(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	b.write(t, b.event(b.opened, stream("r")), b.event(b.changed, stream("r")), b.event(b.changed, stream("r")))
	require.NoError(t, b.rows(t, name, 1, nil, "a"))
	b.versionIn(t, name, 2, projection.Saving)
	require.NoError(t, b.store.PlanSnapshot(ctx, name, 2, 1))
	for b.checkpointOf(t, name, 1).Sequence < b.head(t).Sequence {
		b.follow(t, name, 1, 0, &recorder{partition: b})
	}
	_, err := b.store.SavePart(ctx, b.copyOf(name, 2, 0))
	require.NoError(t, err)
	require.NoError(t, b.store.FinishSnapshot(ctx, name, 2, 3, "ada"))
	b.versionIn(t, name, 3, projection.Building)
	c := b.copyOf(name, 2, 3)
	c.Types = []string{b.opened.Type}
	_, err = b.store.RestorePart(ctx, c)
	require.NoError(t, err)
	require.EqualValues(t, 1, b.checkpointOf(t, name, 3).Processed, "of the types that it reads")
}

func keepSnapshots(t *testing.T, s *suite) {
	ctx := context.Background()
	b := s.newPartition(t)
	name := b.versions(t)
	require.NoError(t, b.rows(t, name, 1, nil, "a"))
	for version := 2; version <= 4; version++ {
		b.versionIn(t, name, version, projection.Saving)
		require.NoError(t, b.store.PlanSnapshot(ctx, name, version, 1))
		_, err := b.store.SavePart(ctx, b.copyOf(name, version, 0))
		require.NoError(t, err)
		require.NoError(t, b.store.FinishSnapshot(ctx, name, version, 2, "ada"))
	}
	b.version(t, name, 5, projection.Saving)
	require.NoError(t, b.store.FinishSnapshot(ctx, name, 5, 2, "ada"))
	require.Equal(t, map[int]projection.Role{1: projection.Active, 2: projection.Dropping, 3: projection.Saved, 4: projection.Saved, 5: projection.Saved}, b.roles(t, name))
	require.NoError(t, b.store.DropProjection(ctx, name, 3, "ada"))
	parts, err := b.store.SnapshotParts(ctx, name)
	require.NoError(t, err)
	require.Len(t, parts, 1)
	for b.roles(t, name)[3] == projection.Dropping { // a sweep looks at some legal entities only
		_, err = b.store.SweepProjection(ctx, name, 3, rowTables, 10)
		require.NoError(t, err)
	}
	require.Empty(t, b.rowKeys(t, name, 3))
	require.Equal(t, projection.CodeChanged, fault.CodeOf(b.store.FinishSnapshot(ctx, name, 3, 2, "ada")))
}
