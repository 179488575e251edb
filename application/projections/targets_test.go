package projections_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

const ada shredding.Subject = "person:ada"

// peopleFixture is a store with a projection that keeps copies: versions with checkpoints, and
// rows of people, some of which events tell of and some of which only rows do.
type peopleFixture struct {
	ports.Projections
	ports.ProjectionRegister
	ports.ProjectionVersions
	ports.PersonalRecords

	versions []projection.Projection
	reached  map[int]event.Sequence
	copies   map[int]int64 // rows that hold copies, by version
	streams  []event.StreamID
	rows     []ports.SubjectEntity
	folded   []string
	dropped  []int
	folds    func(ports.TargetRebuild) error // on each
}

func (s *peopleFixture) ListProjections(context.Context) ([]projection.Projection, error) {
	return slices.Clone(s.versions), nil
}

func (s *peopleFixture) Checkpoints(_ context.Context, name string, version int) ([]ports.Checkpoint, error) {
	return []ports.Checkpoint{{Projection: name, Version: version, Partition: 7, Sequence: s.reached[version]}}, nil
}

func (s *peopleFixture) DropProjection(_ context.Context, _ string, version int, _ string) error {
	s.dropped = append(s.dropped, version)
	return nil
}

func (s *peopleFixture) PersonalEvents(_ context.Context, _ event.PartitionID, _ shredding.Subject, after event.Sequence, limit int) (out []event.Recorded, err error) {
	for i, stream := range s.streams {
		if sequence := event.Sequence(i + 1); sequence > after && len(out) < limit {
			out = append(out, event.Recorded{Skeleton: event.Skeleton{Sequence: sequence, Stream: stream}})
		}
	}
	return out, nil
}

func (s *peopleFixture) SubjectEntities(context.Context, event.PartitionID, shredding.Subject, []ports.ProjectionTarget) ([]ports.SubjectEntity, error) {
	return s.rows, nil
}

func (s *peopleFixture) CountCopies(context.Context, event.PartitionID, shredding.Subject, []ports.ProjectionTarget) (map[int]int64, error) {
	return s.copies, nil
}

func (s *peopleFixture) RebuildTarget(_ context.Context, r ports.TargetRebuild, h ports.ProjectionHandler) (ports.TargetChange, error) {
	if s.folds != nil {
		if err := s.folds(r); err != nil {
			return ports.TargetChange{}, err
		}
	}
	s.folded = append(s.folded, fmt.Sprintf("%d %s/%s through %d", r.Version, r.Target.Streams[0], r.Entity, r.MinCheckpoint))
	return ports.TargetChange{Sequence: 9, Events: 2, Tables: []ports.TableDifference{{Table: "hr.people", LeftRows: 3, RightRows: 2, OnlyLeft: 1}}}, nil
}

const people = "hr.people"

func newPeopleFixture(versions ...projection.Projection) (*peopleFixture, *projections.Targets) {
	s := &peopleFixture{versions: versions, reached: map[int]event.Sequence{}, copies: map[int]int64{}}
	for i := range s.versions {
		s.versions[i].Name = people
		s.reached[s.versions[i].Version] = 9
	}
	return s, testkit.Must(projections.NewTargets(projections.TargetsConfig{
		Store: s, Checkpoints: s, Register: s, Versions: s, Records: s, MaxEvents: 10_000,
		Declared: []module.Projection{{Name: people, Version: 1}, {Name: "gl.plain", Version: 1}},
		Handlers: map[string]ports.ProjectionHandler{people: newCountingHandler()},
		Targets: map[string][]ports.ProjectionTarget{people: {
			{Streams: []string{"hr.desk"}, ID: "main", Tables: []ports.TargetTable{{ProjectionTable: ports.ProjectionTable{Name: "desks"}}}},
			{Streams: []string{"hr.person"}, Tables: []ports.TargetTable{{ProjectionTable: ports.ProjectionTable{Name: "people"}, Subject: "subject"}}},
		}},
	}))
}

func built(n, code int, role projection.Role) projection.Projection {
	return projection.Projection{Version: n, Code: code, Role: role}
}

func TestTargets_ForgetInEveryVersion(t *testing.T) {
	t.Parallel()
	s, targets := newPeopleFixture(built(1, 1, projection.Retained), built(2, 1, projection.Active), built(3, 1, projection.Building), built(4, 1, projection.Dropping),
		projection.Projection{Version: 5, Code: 1, Role: projection.Building, Scope: 8})
	s.reached[5] = 0 // of another legal entity
	for n := range 500 {
		s.streams = append(s.streams, event.StreamID{Type: "hr.person", ID: fmt.Sprint(n % 2)}, event.StreamID{Type: "hr.desk", ID: "2"})
	}
	s.rows = []ports.SubjectEntity{{Target: 0, Entity: "1"}, {Target: 0, Entity: "invented"}}
	s.reached[3] = 8
	forget := func() string { return fault.CodeOf(targets.Forget(t.Context(), people, 7, ada, 9)) }
	require.Equal(t, projection.CodeTargetBehind, forget())
	require.Empty(t, s.folded, "not before all versions have passed it")
	s.reached[3] = 9
	require.Empty(t, forget())
	var want []string
	for _, v := range []int{1, 2, 3} {
		for _, id := range []string{"1", "invented", "0"} {
			want = append(want, fmt.Sprintf("%d hr.person/%s through 9", v, id))
		}
	}
	require.Equal(t, want, s.folded, "what events and what rows tell, each once")
	require.Empty(t, s.dropped)

	// A version that was dropped in the meantime is ignored; one that was started is not.
	s.folds = func(r ports.TargetRebuild) error {
		if r.Version == 3 {
			return projection.Fenced()
		}
		return nil
	}
	require.Empty(t, forget())
	s.folds = func(ports.TargetRebuild) error {
		if len(s.versions) == 5 {
			s.versions = append(s.versions, projection.Projection{Name: people, Version: 6, Code: 1, Role: projection.Building})
		}
		return nil
	}
	require.Equal(t, projection.CodeTargetBehind, forget())
	// So is one that got the rows of another, which were not recomputed, after its own were.
	s.reached[6] = 9
	s.folds = func(r ports.TargetRebuild) error {
		if r.Version == 3 && s.versions[1].Revision == 0 {
			s.versions[1].Revision++
			return projection.Fenced()
		}
		return nil
	}
	require.Equal(t, projection.CodeTargetBehind, forget())
	require.Empty(t, forget())
	s.folds = func(ports.TargetRebuild) error { return fault.New(fault.Invalid, "hr.unreadable", "no") }
	require.Equal(t, "hr.unreadable", forget())
}

// What another release built this one cannot fold: while it holds copies an operator has to
// see to it.
func TestTargets_ForgetRefusedByForeignVersion(t *testing.T) {
	t.Parallel()
	s, targets := newPeopleFixture(built(1, 1, projection.Active), built(2, 2, projection.Building), built(3, 5, projection.Retained))
	s.reached[3] = 2 // no node writes it
	forget := func() string { return fault.CodeOf(targets.Forget(t.Context(), people, 7, ada, 9)) }
	s.reached[2] = 8
	require.Equal(t, projection.CodeTargetBehind, forget(), "it may still write some")
	s.reached[2] = 9
	require.Empty(t, forget())
	for _, v := range []int{2, 3} {
		s.copies = map[int]int64{1: 4, v: 1}
		require.Equal(t, projection.CodeOtherCode, forget())
	}
	n, err := targets.CountCopies(t.Context(), people, 7, ada)
	require.NoError(t, err)
	require.EqualValues(t, 5, n, "in any version")
	require.Equal(t, []string{people}, targets.HoldersOfCopies())
}

func TestTargets_ForgetDropsSnapshots(t *testing.T) {
	t.Parallel()
	s, targets := newPeopleFixture(built(1, 1, projection.Active), built(2, 1, projection.Saved), built(3, 1, projection.Saved), built(4, 1, projection.Saving))
	s.copies[2] = 1
	require.NoError(t, targets.Forget(t.Context(), people, 7, ada, 9))
	require.Equal(t, []int{2, 4}, s.dropped, "and one that is being taken, which may come to hold some")
}

func TestTargets_SelectRows(t *testing.T) {
	t.Parallel()
	s, targets := newPeopleFixture(built(1, 1, projection.Retained), built(2, 1, projection.Active), built(3, 2, projection.Building))
	order := projections.TargetOrder{Name: people, Partitions: []event.PartitionID{8, 7}, Entity: event.StreamID{Type: "hr.person", ID: "1"}, By: "ada"}
	code := func(change func(*projections.TargetOrder)) string {
		o := order
		change(&o)
		_, err := targets.Rebuild(t.Context(), o)
		return fault.CodeOf(err)
	}
	for want, change := range map[string]func(*projections.TargetOrder){
		projection.CodeTargetUnsupported: func(o *projections.TargetOrder) { o.Entity.Type = "gl.journal" },
		projection.CodeOtherCode:         func(o *projections.TargetOrder) { o.Version = 3 },
		"projection.not_found":           func(o *projections.TargetOrder) { o.Version = 4 },
	} {
		require.Equal(t, want, code(change))
	}
	require.Equal(t, "projection.not_found", code(func(o *projections.TargetOrder) { o.Name = "no.such" }))
	for _, name := range []string{"gl.plain", projection.CustomName("acme", "mine")} {
		require.Equal(t, projection.CodeTargetUnsupported, code(func(o *projections.TargetOrder) { o.Name = name }), name)
	}
	require.Equal(t, projection.CodeTargetUnsupported, code(func(o *projections.TargetOrder) { o.Entity = event.StreamID{Type: "hr.desk", ID: "other"} }))
	require.Empty(t, s.folded)

	report, err := targets.Rebuild(t.Context(), order)
	require.NoError(t, err)
	require.Equal(t, []string{"1 hr.person/1 through 0", "2 hr.person/1 through 0", "1 hr.person/1 through 0", "2 hr.person/1 through 0"}, s.folded)
	require.Equal(t, []int{3}, report.Foreign)
	require.EqualValues(t, 4, report.Rows())
	require.Equal(t, []any{1, event.PartitionID(7), 1, 2}, []any{report.Rebuilt[0].Version, report.Rebuilt[0].Partition, report.Rebuilt[0].Entities, report.Rebuilt[0].Events})

	// One that is dropped in the meantime is skipped, unless it is the one that is meant.
	s.folds = func(r ports.TargetRebuild) error {
		if r.Version == 1 {
			return projection.Fenced()
		}
		return nil
	}
	report, err = targets.Rebuild(t.Context(), order)
	require.NoError(t, err)
	require.Len(t, report.Rebuilt, 2)
	require.Equal(t, []int{2, 2}, []int{report.Rebuilt[0].Version, report.Rebuilt[1].Version})
	require.Equal(t, "projection.not_found", code(func(o *projections.TargetOrder) { o.Version = 1 }))

	s.rows, s.folded = []ports.SubjectEntity{{Target: 1, Entity: "1"}, {Target: 1, Entity: "2"}}, nil
	order.Subject, order.Entity, order.Version, order.Partitions = ada, event.StreamID{}, 2, order.Partitions[:1]
	report, err = targets.Rebuild(t.Context(), order)
	require.NoError(t, err)
	require.Len(t, report.Rebuilt, 1)
	require.Equal(t, 2, report.Rebuilt[0].Entities)
	require.Equal(t, []ports.TableDifference{{Table: "hr.people", LeftRows: 6, RightRows: 4, OnlyLeft: 2}}, report.Rebuilt[0].Tables)
}
