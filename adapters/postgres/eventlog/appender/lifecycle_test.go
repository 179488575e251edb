package appender_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/postgres"
	"github.com/erpbackbone/backbone/adapters/postgres/eventlog/appender"
	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/testkit"
)

var changeTypes = map[event.StreamAction]string{
	event.DescribeStream: stream.MetadataChanged, event.DeleteStream: stream.Deleted,
	event.TombstoneStream: stream.Tombstoned, event.RecreateStream: stream.Recreated,
}

// TestGroup_SeesItsOwnStreamChanges queues requests one after the other while the
// appender is paused, so that one transaction decides all of them in that order.
func TestGroup_SeesItsOwnStreamChanges(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	metrics := &pgtest.Groups{}
	s := pgtest.Open(t, dsn, pgtest.SingleAppender, func(c *postgres.Config) { c.Metrics = metrics })
	p := pgtest.NewPartitions(t, s, 1)[0]
	id := event.StreamID{Type: "machine", ID: "M-17"}
	request := func(actions ...event.StreamAction) ports.AppendRequest {
		r := pgtest.Invoice(p, len(actions))
		for i, a := range actions {
			e := &r.Events[i]
			e.Stream, e.BusinessKeys = id, nil
			if a != event.AppendToStream {
				e.Type, e.Change = changeTypes[a], &event.StreamChange{Action: a}
			}
		}
		r.Idempotency, r.Streams = nil, nil
		return r
	}
	as := func(r ports.AppendRequest, roles ...string) ports.AppendRequest { r.Roles = roles; return r }
	at := func(r ports.AppendRequest, e concurrency.Expected) ports.AppendRequest {
		r.Streams = []concurrency.StreamExpectation{{Stream: id, Expected: e}}
		return r
	}
	describe := request(event.DescribeStream)
	describe.Events[0].Change.Settings, describe.Events[0].Change.Access = []byte(`{"acl":{"write":["clerk"]}}`), []byte(`{"write":["clerk"]}`)
	const add, remove, recreate, end = event.AppendToStream, event.DeleteStream, event.RecreateStream, event.TombstoneStream
	steps := []struct {
		request ports.AppendRequest
		code    string // "": it succeeds
	}{
		{request(remove), concurrency.CodeStreamNotFound},
		{request(add), ""}, // 1
		{describe, ""},     // 2
		{as(request(add), "chief"), "stream.access_denied"},
		{as(request(add), "clerk"), ""}, // 3
		{request(remove), ""},           // 4
		{request(add), concurrency.CodeStreamDeleted},
		{at(request(add), concurrency.StreamExists()), concurrency.CodeStreamDeleted},
		{at(request(recreate, add), concurrency.Exactly(3)), concurrency.CodeWrongExpectedVersion},
		{at(request(recreate, add), concurrency.NoStream()), ""}, // 5, 6
		{request(recreate, add), concurrency.CodeStreamNotDeleted},
		{at(request(remove), concurrency.Exactly(6)), ""}, // 7
		{request(recreate, add, end), ""},                 // 8, 9, 10
		{request(add), concurrency.CodeStreamTombstoned},
		{at(request(recreate), concurrency.NoStream()), concurrency.CodeStreamTombstoned},
	}
	goOn := pauseAppender(t, s, p)
	out := make([]outcome, len(steps))
	var wg sync.WaitGroup
	for i, step := range steps {
		wg.Go(func() { out[i].result, out[i].err = s.Appender.Append(context.Background(), step.request) })
		testkit.Eventually(t, pgtest.WaitLimit, func() bool { return appender.Queued(s.Appender) == i+1 }, "the request waits in the queue")
	}
	goOn()
	wg.Wait()
	require.Equal(t, []int{1, len(steps)}, metrics.Seen(), "one group decided all of them")

	var last event.ID // of the stream, as the group went on
	version := event.Version(0)
	for i, step := range steps {
		if step.code == "" {
			require.NoError(t, out[i].err, "step %d", i)
			for _, e := range out[i].result.Events {
				version++
				require.Equal(t, version, e.StreamVersion)
				last = e.ID
			}
			continue
		}
		require.Equal(t, step.code, fault.CodeOf(out[i].err), "step %d: %v", i, out[i].err)
		if f, _ := fault.As(out[i].err); version > 0 && f.Kind != fault.Forbidden {
			require.Equal(t, last.String(), f.Holder.EventID, "step %d: who is in the way", i)
		}
	}
	status, err := s.Events.StreamStatus(t.Context(), p, id)
	require.NoError(t, err)
	require.Equal(t, ports.StreamStatus{
		State: event.StreamTombstoned, Version: 10, ReadableFrom: 8, Settings: []byte(`{"acl":{"write":["clerk"]}}`), MetadataVersion: 2,
	}, status)
	require.Equal(t, 1+10, pgtest.RequireVerified(t, s, p))
}

// In rows of ordinary streams the lifecycle columns are NULL; ordinary appends keep the
// lifecycle columns of other streams.
func TestStreamRows_LifecycleColumnsStayNull(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	s := pgtest.Open(t, dsn)
	p := pgtest.NewPartitions(t, s, 1)[0]
	write := func(change *event.StreamChange) event.StreamID {
		r := pgtest.Invoice(p, 1)
		r.Events[0].Stream = event.StreamID{Type: "machine", ID: "M-17"}
		if change == nil {
			r.Events[0].Stream.ID = "M-1"
		}
		if change != nil {
			r.Events[0].Type = changeTypes[change.Action]
		}
		r.Events[0].Change = change
		_, err := s.Appender.Append(t.Context(), r)
		require.NoError(t, err)
		return r.Events[0].Stream
	}
	write(nil)
	changed := write(&event.StreamChange{Action: event.DescribeStream, Settings: []byte(`{"max_count":3}`)})
	conn := pgtest.Connect(t, dsn)
	rows := func() []string {
		return pgtest.Column(t, conn, `SELECT concat_ws(' ', stream_id, version, lifecycle, readable_from, metadata, metadata_version)
			FROM backbone.stream_versions WHERE stream_type = 'machine' ORDER BY 1`)
	}
	require.Equal(t, []string{"M-1 1", `M-17 1 {"max_count":3} 1`}, rows())
	r := pgtest.Invoice(p, 1)
	r.Events[0].Stream = changed
	_, err := s.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, []string{"M-1 1", `M-17 2 {"max_count":3} 1`}, rows())
	write(&event.StreamChange{Action: event.DeleteStream})
	require.Equal(t, []string{"M-1 1", `M-17 3 deleted {"max_count":3} 1`}, rows())
	write(&event.StreamChange{Action: event.RecreateStream})
	require.Equal(t, []string{"M-1 1", `M-17 4 4 {"max_count":3} 1`}, rows())
	write(&event.StreamChange{Action: event.DescribeStream})
	require.Equal(t, []string{"M-1 1", `M-17 5 4 5`}, rows())
	_, err = conn.Exec(t.Context(), `UPDATE backbone.stream_versions SET lifecycle = 'sleeping'`)
	require.Error(t, err, "the check is there although nothing was looked through for it")
}
