package eventlog_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// useStreams writes streams in every state that a stream can be in.
func (c *tamperFixture) useStreams(t *testing.T, le ports.LegalEntity) {
	t.Helper()
	write := func(id string, types ...string) {
		r := fullEvents(le, len(types))
		r.Idempotency, r.Streams = nil, nil
		for i, typ := range types {
			e := &r.Events[i]
			e.Stream = event.StreamID{Type: "machine", ID: id}
			if typ == "" {
				continue
			}
			e.Type, e.Change = typ, &event.StreamChange{Action: stream.ActionOf(typ)}
			if typ == stream.MetadataChanged {
				e.Change.Settings = []byte(`{"max_count":7}`)
				e.Payload = []byte(`{"data":{"metadata":{"max_count":7,"custom":{"a":1}},"reason":"x"},"dimensions":{},"entity_refs":[]}`)
				e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
			}
		}
		_, err := c.Appender.Append(t.Context(), r)
		require.NoError(t, err)
	}
	write("plain", "", "", "")
	write("described", "", stream.MetadataChanged, "")
	write("deleted", "", stream.Deleted)
	write("recreated", "", stream.Deleted, stream.Recreated, "")
	write("ended", "", stream.Tombstoned)
	write("single", "")
}

// TestVerify_FindsTamperedStreamRows changes the rows of streams, from which appends take
// the next version and who may write.
func TestVerify_FindsTamperedStreamRows(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	le := c.newLegalEntity(t, "ATTACKED")
	c.useStreams(t, le)
	requireSound := func() {
		report := c.verify(t, le)
		require.True(t, report.Sound(), "%v", report.Findings)
	}
	requireSound()
	c.exec(t, "CREATE TABLE public.saved AS TABLE backbone.stream_versions")

	const of = " WHERE partition_id = $1 AND stream_id = "
	statements := []string{
		"UPDATE backbone.stream_versions SET version = version + 1" + of + "'plain'",
		"UPDATE backbone.stream_versions SET version = version - 1" + of + "'plain'",
		"UPDATE backbone.stream_versions SET first_sequence = first_sequence - 1" + of + "'plain'",
		"UPDATE backbone.stream_versions SET last_sequence = last_sequence + 1" + of + "'plain'",
		"UPDATE backbone.stream_versions SET stream_id = 'other'" + of + "'plain'",
		"UPDATE backbone.stream_versions SET stream_type = 'other'" + of + "'plain'",
		"DELETE FROM backbone.stream_versions" + of + "'plain'",
		"INSERT INTO backbone.stream_versions (version, first_sequence, last_sequence, partition_id, stream_type, stream_id) VALUES (1, 3, 3, $1, 'machine', 'none')",
		"UPDATE backbone.stream_versions SET lifecycle = 'deleted'" + of + "'plain'",
		"UPDATE backbone.stream_versions SET lifecycle = 'tombstoned'" + of + "'plain'",
		"UPDATE backbone.stream_versions SET lifecycle = NULL" + of + "'deleted'",
		"UPDATE backbone.stream_versions SET lifecycle = NULL" + of + "'ended'",
		"UPDATE backbone.stream_versions SET lifecycle = 'deleted'" + of + "'ended'",
		`UPDATE backbone.stream_versions SET metadata = '{"max_count":8}'` + of + "'described'",
		"UPDATE backbone.stream_versions SET metadata = NULL" + of + "'described'",
		"UPDATE backbone.stream_versions SET metadata = NULL, metadata_version = NULL" + of + "'described'",
		"UPDATE backbone.stream_versions SET metadata_version = 3" + of + "'described'",
		"UPDATE backbone.stream_versions SET metadata_version = NULL" + of + "'described'",
		`UPDATE backbone.stream_versions SET metadata = '{"acl":{"write":[]}}'` + of + "'plain'",
		`UPDATE backbone.stream_versions SET metadata = '{"acl":{"write":[]}}', metadata_version = 2` + of + "'plain'",
		"UPDATE backbone.stream_versions SET readable_from = NULL" + of + "'recreated'",
		"UPDATE backbone.stream_versions SET readable_from = 1" + of + "'recreated'",
		"UPDATE backbone.stream_versions SET readable_from = 4" + of + "'recreated'",
		"UPDATE backbone.stream_versions SET readable_from = 2" + of + "'plain'",
		// Of a stream with one event only that event is looked up.
		"UPDATE backbone.stream_versions SET version = 2" + of + "'single'",
		"UPDATE backbone.stream_versions SET first_sequence = first_sequence - 1" + of + "'single'",
		"UPDATE backbone.stream_versions SET last_sequence = last_sequence + 1" + of + "'single'",
		"UPDATE backbone.stream_versions SET first_sequence = 1, last_sequence = 1" + of + "'single'",
		"UPDATE backbone.stream_versions SET version = 1, last_sequence = first_sequence" + of + "'plain'",
		"UPDATE backbone.stream_versions SET version = 0, first_sequence = 0, last_sequence = 0, stream_id = 'other'" + of + "'single'",
		"UPDATE backbone.stream_versions SET stream_type = '', stream_id = ''" + of + "'single'",
		"UPDATE backbone.stream_versions SET lifecycle = 'deleted'" + of + "'single'",
		`UPDATE backbone.stream_versions SET metadata = '{"max_count":8}'` + of + "'single'",
		"DELETE FROM backbone.stream_versions" + of + "'single'",
		"INSERT INTO backbone.stream_versions (version, first_sequence, last_sequence, partition_id, stream_type, stream_id) VALUES (1, 3, 3, $1, '', '')",
	}
	for _, statement := range statements {
		require.EqualValues(t, 1, c.exec(t, statement, int32(le.Partition)), statement)
		require.Contains(t, kinds(c.verify(t, le)), verify.StreamMismatch, statement)
		c.exec(t, "DELETE FROM backbone.stream_versions")
		c.exec(t, "INSERT INTO backbone.stream_versions SELECT * FROM public.saved")
	}
	requireSound()
}

// TestVerify_NamesEventsWithoutStreamRow removes rows, or replaces them so that their number
// stays: verification names the events of the missing rows.
func TestVerify_NamesEventsWithoutStreamRow(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	for i, statements := range [][]string{
		{"DELETE FROM backbone.stream_versions WHERE partition_id = $1 AND stream_id = 'single'"},
		{
			"DELETE FROM backbone.stream_versions WHERE partition_id = $1 AND stream_id = 'single'",
			"INSERT INTO backbone.stream_versions (version, first_sequence, last_sequence, partition_id, stream_type, stream_id) VALUES (1, 3, 3, $1, 'machine', 'none')",
		},
	} {
		le := c.newLegalEntity(t, fmt.Sprintf("N%d", i))
		c.useStreams(t, le)
		page, err := c.Events.EventsOfStream(t.Context(), le.Partition, event.StreamID{Type: "machine", ID: "single"}, 1, 1)
		require.NoError(t, err)
		for _, statement := range statements {
			require.EqualValues(t, 1, c.exec(t, statement, int32(le.Partition)), statement)
		}
		named := false
		for _, f := range c.verify(t, le).Findings {
			named = named || f.Kind == verify.StreamMismatch && f.Sequence == page[0].Sequence
		}
		require.True(t, named, "%v", statements)
	}
}

// TestAudit_StreamRowPages reads what is kept of streams a few at a time: those that need
// a second look come once each, wherever a page ends.
func TestAudit_StreamRowPages(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	le := c.newLegalEntity(t, "PAGES")
	c.useStreams(t, le)
	for limit := 1; limit <= 20; limit++ {
		var ids []string
		pages := 0
		for from, more := (event.StreamID{}), true; more; pages++ {
			page, err := c.Audit.StreamRowsWithEnds(t.Context(), le.Partition, from, limit)
			require.NoError(t, err)
			for _, r := range page.Rows {
				ids = append(ids, r.Stream.ID)
			}
			from, more = page.Next, page.Next != event.StreamID{}
		}
		require.Equal(t, []string{"deleted", "described", "ended", "recreated"}, ids, "by %d", limit)
		if limit == 1 {
			require.Greater(t, pages, 6)
		}
	}
}

// TestVerify_AcceptsRedactedMetadata redacts a text of the metadata that the log obeys: the
// row keeps it, as the log goes on obeying it, and the event no longer says it.
func TestVerify_AcceptsRedactedMetadata(t *testing.T) {
	t.Parallel()
	c := newTamperFixture(t)
	le := c.newLegalEntity(t, "REDACTED")
	r := fullEvents(le, 1)
	r.Idempotency, r.Streams = nil, nil
	e := &r.Events[0]
	e.Stream, e.Type = event.StreamID{Type: "machine", ID: "of-ada"}, stream.MetadataChanged
	e.Change = &event.StreamChange{Action: event.DescribeStream, Settings: []byte(`{"acl":{"read":["Ada"]}}`), Access: []byte(`{"read":["Ada"]}`)}
	e.Payload = []byte(`{"data":{"metadata":{"acl":{"read":["Ada"]}},"reason":"x"},"dimensions":{},"entity_refs":[]}`)
	e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
	done, err := c.Appender.Append(t.Context(), r)
	require.NoError(t, err)
	report := c.verify(t, le)
	require.True(t, report.Sound(), "%v", report.Findings)

	c.announce(t, le, c.redactAt(t, le, done.Events[0].Sequence, "/data/metadata/acl/read/0"))
	report = c.verify(t, le)
	require.True(t, report.Sound(), "%v", report.Findings)
}
