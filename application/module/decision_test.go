package module_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// courseLog is a log of courses and who has a seat in them. It counts its reads.
type courseLog struct {
	*memory.EventReader
	database  *memory.Database
	partition event.PartitionID
	ids       *system.IDs
	reads     int
}

func newCourseLog(t *testing.T) *courseLog {
	t.Helper()
	database := memory.New(memory.Config{LogName: "school.example.org"})
	s := &courseLog{EventReader: database.Events, database: database, ids: system.NewIDs()}
	le, err := database.Directory.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: "USMF"})
	require.NoError(t, err)
	s.partition = le.Partition
	return s
}

func (s *courseLog) SearchEvents(ctx context.Context, q ports.EventQuery, scan int) (ports.EventScan, error) {
	s.reads++
	return s.EventReader.SearchEvents(ctx, q, scan)
}

func (s *courseLog) Matches(ctx context.Context, q ports.MatchQuery) (ports.MatchPage, error) {
	s.reads++
	return s.EventReader.Matches(ctx, q)
}

func (s *courseLog) write(t *testing.T, name, data string, conditions []concurrency.AppendCondition, tags ...string) error {
	t.Helper()
	e := event.Prepared{Skeleton: event.Skeleton{
		ID: s.ids.NewID(start), Type: name, SchemaVersion: 1, OccurredAt: start, EffectiveDate: event.DateOf(start),
		Scope: event.Scope{TenantID: "acme", LegalEntity: "USMF"}, ActorType: event.Human, ActorID: "p-1", CorrelationID: "c-1",
		Stream: event.StreamID{Type: "course", ID: "all"}, Tags: tags,
	}, Payload: []byte(`{"data":` + data + `,"dimensions":{},"entity_refs":[]}`)}
	for _, tag := range tags {
		e.Keys = append(e.Keys, event.TagKey(tag))
	}
	_, err := s.database.Appender.Append(t.Context(), ports.AppendRequest{Partition: s.partition, Events: []event.Prepared{e}, Conditions: conditions})
	return err
}

// A student takes a seat if the course has one left and the student has not too many
// courses: two facts, one read, one condition.
func TestDecide(t *testing.T) {
	t.Parallel()
	s := newCourseLog(t)
	require.NoError(t, s.write(t, "school.course.opened", "2", nil, "course:go"))
	require.NoError(t, s.write(t, "school.course.opened", "9", nil, "course:sql"))
	seats := func(course string, left *int) module.Projector {
		return module.Project(left, func(n int, e event.Recorded, data []byte) (int, error) {
			if e.Type == "school.course.opened" {
				return strconv.Atoi(string(data))
			}
			return n - 1, nil
		}, concurrency.Item{Types: []string{"school.course.opened"}, Tags: []string{"course:" + course}},
			concurrency.Item{Types: []string{"school.seat.taken"}, Tags: []string{"course:" + course}})
	}
	courses := func(student string, n *int) module.Projector {
		return module.Project(n, func(n int, _ event.Recorded, _ []byte) (int, error) { return n + 1, nil },
			concurrency.Item{Types: []string{"school.seat.taken"}, Tags: []string{"student:" + student}},
			concurrency.Item{Tags: []string{"student:" + student, "course:go"}}) // an event that matches two items counts once
	}
	decide := func(course, student string) (left, taken int, c concurrency.AppendCondition) {
		before := s.reads
		c, err := module.Decide(t.Context(), s, s.partition, seats(course, &left), courses(student, &taken))
		require.NoError(t, err)
		require.Equal(t, before+1, s.reads, "several projectors, one read")
		require.Len(t, c.Items, 4)
		return left, taken, c
	}
	take := func(course, student string, c concurrency.AppendCondition) error {
		return s.write(t, "school.seat.taken", "{}", []concurrency.AppendCondition{c}, "course:"+course, "student:"+student)
	}

	left, taken, ada := decide("go", "ada")
	require.Equal(t, 2, left)
	require.Equal(t, 0, taken)
	_, _, sqlToo := decide("sql", "ada")
	_, _, bob := decide("go", "bob")
	require.NoError(t, take("go", "ada", ada))
	require.Equal(t, concurrency.CodeConditionFailed, fault.CodeOf(take("go", "bob", bob)), "the seats are not as they were")
	require.Equal(t, concurrency.CodeConditionFailed, fault.CodeOf(take("sql", "ada", sqlToo)), "the student is not as before")
	require.NoError(t, s.write(t, "school.course.opened", "9", nil, "course:rust"))
	left, taken, bob = decide("go", "bob")
	require.Equal(t, 1, left)
	require.Equal(t, 0, taken)
	require.NoError(t, take("sql", "eve", func() concurrency.AppendCondition { _, _, c := decide("sql", "eve"); return c }()))
	require.NoError(t, take("go", "bob", bob), "events of another course do not matter")
	left, taken, _ = decide("go", "ada")
	require.Equal(t, 0, left)
	require.Equal(t, 1, taken)
}

func TestDecide_StopsAtErrors(t *testing.T) {
	t.Parallel()
	s := newCourseLog(t)
	require.NoError(t, s.write(t, "school.course.opened", "2", nil, "course:go"))
	item := concurrency.Item{Tags: []string{"course:go"}}
	wrong := errors.New("wrong")
	n := 7
	_, err := module.Decide(t.Context(), s, s.partition, module.Project(&n, func(int, event.Recorded, []byte) (int, error) { return 0, wrong }, item))
	require.ErrorIs(t, err, wrong)
	require.Equal(t, 7, n, "a failed step leaves the state")
	_, err = module.Decide(t.Context(), s, s.partition)
	require.Error(t, err)
	_, err = module.Decide(t.Context(), s, s.partition, module.Projector{})
	require.Error(t, err)
	_, err = module.Decide(t.Context(), s, 1<<18, module.Projector{Items: []concurrency.Item{item}})
	require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = module.Decide(cancelled, s, s.partition, module.Projector{Items: []concurrency.Item{item}})
	require.ErrorIs(t, err, context.Canceled)
}

func TestEvents_ReadsOnDemand(t *testing.T) {
	t.Parallel()
	s := newCourseLog(t)
	const events = 1200
	for i := range events {
		require.NoError(t, s.write(t, "school.course.opened", strconv.Itoa(i), nil, fmt.Sprint("parity:", i%2)))
	}
	odd := []concurrency.Item{{Tags: []string{"parity:1"}}}

	next := event.Sequence(1)
	for e, err := range module.Events(t.Context(), s, ports.EventQuery{Partition: s.partition}) {
		require.NoError(t, err)
		require.Equal(t, next, e.Sequence)
		require.Equal(t, int(next-1)/500+1, s.reads, "no page before it is needed")
		if next++; next == 600 { // a stream ends at the head as of its beginning
			require.NoError(t, s.write(t, "school.course.opened", "0", nil, "late"))
		}
	}
	require.EqualValues(t, events+1, next)
	for e, err := range module.Events(t.Context(), s, ports.EventQuery{Partition: s.partition, Direction: ports.Backward, Limit: 701}) {
		require.NoError(t, err)
		next = e.Sequence
	}
	require.EqualValues(t, events+1-700, next)

	s.reads = 0
	n := 0
	for m, err := range module.Matches(t.Context(), s, ports.MatchQuery{Partition: s.partition, Items: odd, Until: events, Limit: 550}) {
		require.NoError(t, err)
		require.EqualValues(t, 2*n+2, m.Event.Sequence)
		n++
	}
	require.Equal(t, 550, n)
	require.Equal(t, 2, s.reads)

	// A consumer that stops ends the reading; a canceled one gets the error once.
	s.reads = 0
	for _, err := range module.Events(t.Context(), s, ports.EventQuery{Partition: s.partition}) {
		require.NoError(t, err)
		break
	}
	require.Equal(t, 1, s.reads)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n = 0
	var last error
	for _, err := range module.Events(ctx, s, ports.EventQuery{Partition: s.partition}) {
		if n++; n == 3 {
			cancel()
		}
		last = err
	}
	require.Equal(t, 4, n)
	require.ErrorIs(t, last, context.Canceled)
	n = 0
	for _, err := range module.Matches(ctx, s, ports.MatchQuery{Partition: s.partition, Items: odd, Until: events}) {
		require.ErrorIs(t, err, context.Canceled)
		n++
	}
	require.Equal(t, 1, n)
	n = 0
	for _, err := range module.Events(t.Context(), s, ports.EventQuery{Partition: 1 << 18}) {
		require.Equal(t, "legal_entity.not_found", fault.CodeOf(err))
		n++
	}
	require.Equal(t, 1, n)
}

// Payloads are read unless no projector of the decision needs them.
func TestDecide_WithoutData(t *testing.T) {
	t.Parallel()
	log := newCourseLog(t)
	require.NoError(t, log.write(t, "course.opened", `{"seats":2}`, nil, "course:1"))
	read := func(withoutData ...bool) (payloads int) {
		var projectors []module.Projector
		for _, without := range withoutData {
			projectors = append(projectors, module.Projector{
				Items: []concurrency.Item{{Tags: []string{"course:1"}}}, WithoutData: without,
				Apply: func(e event.Recorded, _ []byte) error {
					if e.Payload != nil {
						payloads++
					}
					return nil
				},
			})
		}
		_, err := module.Decide(t.Context(), log, log.partition, projectors...)
		require.NoError(t, err)
		return payloads
	}
	require.Zero(t, read(true))
	require.Equal(t, 1, read(false))
	require.Equal(t, 2, read(true, false))
}
