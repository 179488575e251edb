package conformance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var lifecyclePromises = []promise{
	{"every action in every state", lifecycleTable},
	{"expectations on deleted and tombstoned streams", lifecycleExpectations},
	{"events of a request see each other", lifecycleWithinRequest},
	{"refused change leaves the stream unchanged", lifecycleRefused},
	{"metadata is kept until it is replaced", lifecycleMetadata},
	{"metadata does not move the version that appends expect", lifecycleMetadataVersion},
	{"appends at the version they read go on among changes of metadata", raceMetadata},
	{"access list is checked against the roles of the caller", lifecycleAccess},
	{"streams of other legal entities are unchanged", lifecyclePartitions},
	{"deletion among appends is ordered with them", raceDeletion},
	{"one of many recreates a stream", raceRecreation},
	{"no event follows a tombstone", raceTombstone},
}

// changing makes the event one that changes its stream.
func changing(a event.StreamAction) option {
	return func(p *event.Prepared) {
		p.Type, p.Change = stateEvents[a], &event.StreamChange{Action: a}
	}
}

var stateEvents = map[event.StreamAction]string{
	event.DeleteStream: "stream.deleted", event.TombstoneStream: "stream.tombstoned", event.RecreateStream: "stream.recreated",
}

func describing(settings, access string) option {
	return func(p *event.Prepared) {
		p.Type, p.Change = metadataChanged, &event.StreamChange{Action: event.DescribeStream}
		if settings != "" {
			p.Change.Settings = []byte(settings)
		}
		if access != "" {
			p.Change.Access = []byte(access)
		}
	}
}

func (b *partition) act(id event.StreamID, a event.StreamAction) event.Prepared {
	if a == event.AppendToStream {
		return b.event(b.changed, id)
	}
	if a == event.DescribeStream {
		return b.event(b.changed, id, describing("", ""))
	}
	return b.event(b.changed, id, changing(a))
}

func (b *partition) status(t tester, id event.StreamID) ports.StreamStatus {
	t.Helper()
	s, err := b.store.StreamStatus(context.Background(), b.le.Partition, id)
	require.NoError(t, err)
	return s
}

// in brings a new stream into a state.
func (b *partition) in(t tester, state event.StreamState) event.StreamID {
	t.Helper()
	id := stream(b.unique("stream"))
	if state != event.StreamAbsent {
		b.write(t, b.event(b.opened, id))
	}
	switch state {
	case event.StreamDeleted:
		b.write(t, b.act(id, event.DeleteStream))
	case event.StreamTombstoned:
		b.write(t, b.act(id, event.TombstoneStream))
	}
	require.Equal(t, state, b.status(t, id).State)
	return id
}

// refusalOf is the code that an impossible action is answered with.
func refusalOf(state event.StreamState, a event.StreamAction) string {
	switch {
	case state == event.StreamTombstoned:
		return concurrency.CodeStreamTombstoned
	case a == event.RecreateStream:
		return concurrency.CodeStreamNotDeleted
	case state == event.StreamDeleted:
		return concurrency.CodeStreamDeleted
	default:
		return concurrency.CodeStreamNotFound
	}
}

func lifecycleTable(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for _, state := range []event.StreamState{event.StreamAbsent, event.StreamActive, event.StreamDeleted, event.StreamTombstoned} {
		for _, action := range event.StreamActions() {
			id := b.in(t, state)
			before := b.status(t, id)
			want, possible := state.After(action)
			if !possible {
				f := b.refused(t, refusalOf(state, action), b.request(b.act(id, action)))
				if before.Version > 0 {
					require.NotNil(t, f.Holder, "the event that refuses is named")
					events := b.stream(t, id)
					require.Equal(t, events[len(events)-1].ID.String(), f.Holder.EventID)
				}
				require.Equal(t, before, b.status(t, id))
				continue
			}
			r := b.write(t, b.act(id, action))
			after := b.status(t, id)
			require.Equal(t, want, after.State, "%s, action %d", state, action)
			require.Equal(t, before.Version+1, after.Version)
			require.Equal(t, after.Version, r.Events[0].StreamVersion)
			if action == event.RecreateStream {
				require.Equal(t, after.Version, after.ReadableFrom, "what was deleted stays behind")
			}
			require.Len(t, b.stream(t, id), int(after.Version), "facts stay")
		}
	}
	require.Equal(t, ports.StreamStatus{}, b.status(t, stream("none")))
	b.verify(t, 1000)
}

func lifecycleExpectations(t *testing.T, s *suite) {
	b := s.newPartition(t)
	deleted, tombstoned := b.in(t, event.StreamDeleted), b.in(t, event.StreamTombstoned)
	try := func(id event.StreamID, e concurrency.Expected, code string) {
		t.Helper()
		r := b.request(b.event(b.changed, id))
		r.Streams = expect(id, e)
		b.refused(t, code, r)
	}
	for _, e := range []concurrency.Expected{concurrency.Any(), concurrency.NoStream(), concurrency.StreamExists(), concurrency.Exactly(2)} {
		try(deleted, e, concurrency.CodeStreamDeleted)
		try(tombstoned, e, concurrency.CodeStreamTombstoned)
	}
	try(deleted, concurrency.Exactly(1), concurrency.CodeWrongExpectedVersion)
	try(tombstoned, concurrency.Exactly(1), concurrency.CodeStreamTombstoned)

	recreate := func(id event.StreamID, e concurrency.Expected) error {
		r := b.request(b.act(id, event.RecreateStream), b.event(b.changed, id))
		r.Streams = expect(id, e)
		_, err := b.try(r)
		return err
	}
	for _, e := range []concurrency.Expected{concurrency.Any(), concurrency.NoStream(), concurrency.Exactly(2)} {
		id := b.in(t, event.StreamDeleted)
		require.NoError(t, recreate(id, e))
		require.Equal(t, ports.StreamStatus{State: event.StreamActive, Version: 4, ReadableFrom: 3}, b.status(t, id))
	}
	require.Equal(t, concurrency.CodeStreamDeleted, fault.CodeOf(recreate(deleted, concurrency.StreamExists())))
	require.Equal(t, concurrency.CodeWrongExpectedVersion, fault.CodeOf(recreate(deleted, concurrency.Exactly(3))))
	// What is only looked at, and not written, need not take events.
	other := b.request(b.event(b.opened, stream(b.unique("stream"))))
	other.Streams = append(expect(deleted, concurrency.Exactly(2)), expect(tombstoned, concurrency.Exactly(2))...)
	b.must(t, other)
}

func lifecycleWithinRequest(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := stream(b.unique("stream"))
	b.write(t, b.event(b.opened, id), b.act(id, event.DeleteStream), b.act(id, event.RecreateStream), b.event(b.changed, id))
	require.Equal(t, ports.StreamStatus{State: event.StreamActive, Version: 4, ReadableFrom: 3}, b.status(t, id))
	b.refused(t, concurrency.CodeStreamDeleted, b.request(b.act(id, event.DeleteStream), b.event(b.changed, id)))
	b.refused(t, concurrency.CodeStreamTombstoned, b.request(b.act(id, event.TombstoneStream), b.event(b.changed, id)))
	other := stream(b.unique("stream"))
	b.write(t, b.event(b.changed, other), b.act(id, event.TombstoneStream), b.event(b.changed, other))
	require.Equal(t, event.StreamTombstoned, b.status(t, id).State)
	require.Equal(t, ports.StreamStatus{State: event.StreamActive, Version: 2}, b.status(t, other))
}

func lifecycleRefused(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := b.in(t, event.StreamActive)
	r := b.request(b.event(b.changed, id, describing(`{"max_count":3}`, "")), b.act(id, event.DeleteStream))
	r.Streams = expect(id, concurrency.Exactly(7))
	f := b.refused(t, concurrency.CodeWrongExpectedVersion, r)
	require.EqualValues(t, 7, f.Expected)
	require.EqualValues(t, 1, f.Actual)
	b.refused(t, concurrency.CodeStreamNotFound, b.request(b.event(b.changed, id, describing(`{"max_count":3}`, "")), b.act(stream("none"), event.DeleteStream)))
	require.Equal(t, ports.StreamStatus{State: event.StreamActive, Version: 1}, b.status(t, id))
}

func lifecycleMetadata(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := stream(b.unique("stream"))
	check := func(settings string, version event.Version) {
		t.Helper()
		got := b.status(t, id)
		require.Equal(t, version, got.MetadataVersion)
		if settings == "" {
			require.Empty(t, got.Settings)
		} else {
			require.JSONEq(t, settings, string(got.Settings))
		}
	}
	b.write(t, b.event(b.changed, id, describing(`{"max_count":3}`, "")))
	require.Equal(t, event.StreamActive, b.status(t, id).State, "metadata may come before the first event")
	check(`{"max_count":3}`, 1)
	b.write(t, b.event(b.changed, id))
	check(`{"max_count":3}`, 1)
	b.write(t, b.act(id, event.DeleteStream))
	check(`{"max_count":3}`, 1)
	b.write(t, b.act(id, event.RecreateStream))
	check(`{"max_count":3}`, 1)
	b.write(t, b.event(b.changed, id, describing(`{"max_count":4}`, "")), b.event(b.changed, id), b.event(b.changed, id, describing(`{"max_age_seconds":9}`, "")))
	check(`{"max_age_seconds":9}`, 7)
	require.EqualValues(t, 4, b.status(t, id).ReadableFrom)
	b.write(t, b.event(b.changed, id, describing("", "")))
	check("", 8)
}

// metadataChanged is the type of the events that set metadata, as domain/stream names it.
const metadataChanged = "stream.metadata.changed"

func lifecycleMetadataVersion(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := stream(b.unique("stream"))
	describe := func() event.Prepared { return b.event(b.changed, id, describing(`{"max_count":3}`, "")) }
	try := func(e event.Prepared, expected concurrency.Expected) error {
		r := b.request(e)
		r.Streams = expect(id, expected)
		_, err := b.try(r)
		return err
	}
	refused := func(e event.Prepared, expected concurrency.Expected) {
		t.Helper()
		require.Equal(t, concurrency.CodeWrongExpectedVersion, fault.CodeOf(try(e, expected)))
	}
	b.write(t, describe(), describe())
	refused(b.event(b.opened, id), concurrency.Exactly(3))
	require.NoError(t, try(b.event(b.opened, id), concurrency.NoStream()), "metadata is no first event")
	refused(b.event(b.opened, id), concurrency.NoStream())
	refused(b.event(b.changed, id), concurrency.Exactly(2))
	b.write(t, describe())
	b.write(t, describe())
	refused(describe(), concurrency.Exactly(4)) // two writers of metadata do not overwrite each other
	require.NoError(t, try(describe(), concurrency.Exactly(5)))
	refused(b.event(b.changed, id), concurrency.Exactly(2))
	refused(b.event(b.changed, id), concurrency.Exactly(7))
	require.NoError(t, try(b.event(b.changed, id), concurrency.Exactly(3)), "the last event that is no metadata")
	refused(b.event(b.changed, id), concurrency.Exactly(6))
	b.write(t, describe())
	require.NoError(t, try(b.event(b.changed, id), concurrency.Exactly(8)), "a reader may have seen the metadata")
	b.write(t, b.event(b.changed, id), describe(), b.event(b.changed, id), describe())
	refused(b.event(b.changed, id), concurrency.Exactly(10))
	require.NoError(t, try(b.event(b.changed, id), concurrency.Exactly(12)))

	// The search for the last other event is bounded. What it has not looked at does not count.
	for range concurrency.MaxMetadataRun + 2 {
		b.write(t, describe())
	}
	refused(b.event(b.changed, id), concurrency.Exactly(14))
	require.NoError(t, try(b.event(b.changed, id), concurrency.Exactly(15)))
	b.verify(t, 1000)
}

// raceMetadata posts at the version of the last other event while other writers set metadata.
func raceMetadata(t *testing.T, s *suite) {
	const posts, writers = 20, 4
	b := s.newPartition(t)
	id := b.in(t, event.StreamActive)
	errs := race(writers, func(i int) error {
		version := event.Version(1)
		for range posts {
			if i > 0 {
				if _, err := b.try(b.request(b.event(b.changed, id, describing(`{"max_count":3}`, "")))); err != nil {
					return err
				}
				continue
			}
			r := b.request(b.event(b.changed, id))
			r.Streams = expect(id, concurrency.Exactly(version))
			out, err := b.try(r)
			if err != nil {
				return err
			}
			version = out.Events[0].StreamVersion
		}
		return nil
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	require.EqualValues(t, 1+writers*posts, b.status(t, id).Version)
}

func lifecycleAccess(t *testing.T, s *suite) {
	b := s.newPartition(t)
	id := stream(b.unique("stream"))
	access := `{"write":["clerk"],"delete":["chief"],"metadata":[]}`
	b.write(t, b.event(b.changed, id, describing(`{"acl":`+access+`}`, access)))
	as := func(e event.Prepared, roles ...string) ports.AppendRequest {
		r := b.request(e)
		r.Roles = append([]string{}, roles...)
		return r
	}
	const denied = "stream.access_denied"
	b.refused(t, denied, as(b.event(b.changed, id), "chief"))
	b.refused(t, denied, as(b.event(b.changed, id)))
	b.must(t, as(b.event(b.changed, id), "other", "clerk"))
	b.must(t, as(b.event(b.changed, id), "admin"))
	b.write(t, b.event(b.changed, id))
	b.refused(t, denied, as(b.event(b.changed, id, describing("", "")), "clerk", "chief"))
	b.refused(t, denied, as(b.act(id, event.DeleteStream), "clerk"))
	// Access is checked first: other refusals would reveal the state of the stream.
	wrong := as(b.event(b.changed, id), "chief")
	wrong.Streams = expect(id, concurrency.Exactly(77))
	b.refused(t, denied, wrong)
	b.must(t, as(b.act(id, event.DeleteStream), "chief"))
	b.refused(t, denied, as(b.act(id, event.RecreateStream), "chief"))
	b.must(t, as(b.act(id, event.RecreateStream), "clerk"))
	b.refused(t, denied, as(b.act(id, event.TombstoneStream), "clerk"))
	b.must(t, as(b.event(b.changed, id, describing("", "")), "admin"))
	b.must(t, as(b.event(b.changed, id), "chief"))
}

func lifecyclePartitions(t *testing.T, s *suite) {
	a, b := s.newPartition(t), s.newPartition(t)
	id := a.in(t, event.StreamTombstoned)
	b.write(t, b.event(b.opened, id))
	require.Equal(t, ports.StreamStatus{State: event.StreamActive, Version: 1}, b.status(t, id))
	require.Equal(t, event.StreamTombstoned, a.status(t, id).State)
}

// raceDeletion lets one writer delete a stream while other writers append to it at the
// version they read. An append after the deletion is refused; an append before it makes the
// deletion's expectation wrong.
func raceDeletion(t *testing.T, s *suite) {
	const writers = 16
	b := s.newPartition(t)
	for round := range 20 {
		id := b.in(t, event.StreamActive)
		expects := func(i int) bool { return i%2 == 0 && (i > 0 || round%2 == 0) }
		requests := make([]ports.AppendRequest, writers)
		for i := range requests {
			requests[i] = b.request(b.event(b.changed, id))
			if i == 0 {
				requests[i] = b.request(b.act(id, event.DeleteStream))
			}
			if expects(i) {
				requests[i].Streams = expect(id, concurrency.Exactly(1))
			}
		}
		errs := race(writers, func(i int) error { _, err := b.try(requests[i]); return err })
		events := b.stream(t, id)
		written := map[event.ID]bool{}
		for _, e := range events {
			written[e.ID] = true
		}
		want := event.StreamActive
		if errs[0] == nil {
			want = event.StreamDeleted
			require.Equal(t, requests[0].Events[0].ID, events[len(events)-1].ID, "an event followed the deletion")
			require.True(t, !expects(0) || len(events) == 2, "it was deleted at another version than expected")
		}
		require.True(t, expects(0) || errs[0] == nil, "a deletion that expects nothing was refused")
		exact := 0
		for i, err := range errs {
			require.Equal(t, err == nil, written[requests[i].Events[0].ID])
			if err == nil && expects(i) {
				exact++
			}
			if err != nil {
				code := concurrency.CodeWrongExpectedVersion
				if !expects(i) {
					code = concurrency.CodeStreamDeleted
				}
				require.Equal(t, code, fault.CodeOf(err), "writer %d: %v", i, err)
			}
		}
		require.LessOrEqual(t, exact, 1, "one version, several winners")
		require.Equal(t, want, b.status(t, id).State)
		require.EqualValues(t, len(events), b.status(t, id).Version)
	}
	b.verify(t, 1000)
}

func raceRecreation(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for range 20 {
		id := b.in(t, event.StreamDeleted)
		errs := race(8, func(int) error {
			_, err := b.try(b.request(b.act(id, event.RecreateStream), b.event(b.changed, id)))
			return err
		})
		oneWinner(t, errs, concurrency.CodeStreamNotDeleted)
		require.Equal(t, ports.StreamStatus{State: event.StreamActive, Version: 4, ReadableFrom: 3}, b.status(t, id))
	}
}

// raceTombstone ends a stream amid writers that recreate it, delete it and append.
func raceTombstone(t *testing.T, s *suite) {
	b := s.newPartition(t)
	for round := range 20 {
		id := b.in(t, event.StreamActive)
		requests := make([]ports.AppendRequest, 16)
		for i := range requests {
			requests[i] = b.request(b.event(b.changed, id))
			switch {
			case i == 0:
				requests[i] = b.request(b.event(b.closed, id, changing(event.TombstoneStream)))
			case i%3 == 1:
				requests[i] = b.request(b.act(id, event.DeleteStream))
			case i%3 == 2:
				requests[i] = b.request(b.act(id, event.RecreateStream), b.event(b.changed, id))
			}
		}
		errs := race(len(requests), func(i int) error { _, err := b.try(requests[i]); return err })
		require.NoError(t, errs[0], "a stream that exists can always be ended")
		events := b.stream(t, id)
		require.Equal(t, requests[0].Events[0].ID, events[len(events)-1].ID, fmt.Sprint("round ", round, ": an event followed the tombstone"))
		// The events agree with the answers of the store.
		state := event.StreamAbsent
		actions := map[event.ID]event.StreamAction{}
		for _, r := range requests {
			for i := range r.Events {
				actions[r.Events[i].ID] = r.Events[i].Action()
			}
		}
		for _, e := range events {
			next, possible := state.After(actions[e.ID])
			require.True(t, possible, "%s in state %s", e.ID, state)
			state = next
		}
		require.Equal(t, state, b.status(t, id).State)
	}
	b.verify(t, 1000)
}

var asOfPromises = []promise{
	{"stream is read as of an earlier event", streamAsOf},
}

// streamAsOf compares every page of a stream, on both axes and in both directions,
// with what a reader would pick out by hand.
func streamAsOf(t *testing.T, s *suite) {
	b := s.newPartition(t)
	first := event.MustDate("2026-03-01")
	days := []int{0, 8, 1, 2, 9, 3, 3, 0, 12, 4}
	var all []event.Version
	for i, day := range days {
		e := b.event(s.opened, stream("A"))
		e.EffectiveDate = first.AddDays(day)
		b.write(t, e)
		b.write(t, b.event(s.opened, stream("other")))
		all = append(all, event.Version(i+1))
	}
	sequence := func(v event.Version) event.Sequence { return event.Sequence(2*v - 1) }
	for until := range event.Sequence(21) {
		for _, through := range []int{-2, -1, 0, 3, 9, 20} {
			for from := range event.Version(12) {
				for _, limit := range []int{0, 1, 2} {
					for _, direction := range []ports.Direction{ports.Forward, ports.Backward} {
						q := ports.StreamQuery{Partition: b.le.Partition, Stream: stream("A"), From: from, Direction: direction, Until: until, Limit: limit, WithoutData: limit == 1}
						if through > -2 {
							d := first.AddDays(through)
							q.EffectiveTo = &d
						}
						if (int(until)+through+int(from)+limit)%3 != 0 {
							continue // a third of them is enough
						}
						want := slices.DeleteFunc(slices.Clone(all), func(v event.Version) bool {
							return until != 0 && sequence(v) > until || through > -2 && days[v-1] > through ||
								direction == ports.Forward && v < from || direction == ports.Backward && from != 0 && v > from
						})
						if direction == ports.Backward {
							slices.Reverse(want)
						}
						if limit > 0 {
							want = want[:min(limit, len(want))]
						}
						events, more, err := b.store.ReadStream(context.Background(), q)
						require.NoError(t, err)
						require.False(t, more)
						require.NotNil(t, events)
						got := []event.Version{}
						for i := range events {
							got = append(got, events[i].StreamVersion)
							require.Equal(t, q.WithoutData, events[i].Payload == nil)
						}
						require.Equal(t, want, got, "%+v", q)
					}
				}
			}
		}
	}
}
