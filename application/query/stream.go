package query

import (
	"cmp"
	"context"
	"sort"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

// StreamQuery asks for a part of one stream.
type StreamQuery struct {
	Entity      ports.LegalEntity
	Stream      event.StreamID
	Roles       []string      // of the reader, checked against the stream's access list; nil: no check
	From        event.Version // the first version to read; 0: the beginning, or the end if backward
	Direction   ports.Direction
	AsOf        *event.Date // only events that take effect on this day or before; nil: all
	KnownAt     string      // only events recorded by then, see ResolveKnownAt; "": all
	Count       int
	Bytes       int // of payloads, unless the first event alone is larger; 0: MaxPageBytes
	WithoutData bool
}

// StreamPage is a part of a stream.
type StreamPage struct {
	Version      event.Version // of the stream now
	Events       []event.Recorded
	HasMore      bool
	Next         event.Version // the From of the next page, if HasMore
	CacheControl string        // the header that the stream's metadata define; "": none
	// Until is the sequence that KnownAt was resolved to; nil without KnownAt.
	Until *event.Sequence
}

// Stream reads a stream by version. Events that the stream's metadata (max_count,
// max_age_seconds) or a deletion hide are left out, and so are those that the caller does not
// see; a stream that it does not see is not found. Faults: request.*, report.known_at_*,
// stream.not_found, stream.access_denied, stream.deleted (NotFound), stream.tombstoned.
func (s *Service) Stream(ctx context.Context, q StreamQuery) (StreamPage, error) {
	if q.Count < 1 {
		return StreamPage{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the count").WithField("count")
	}
	sight, err := module.SightOf(ctx)
	if err != nil {
		return StreamPage{}, err
	}
	seen, owned, err := sight.Stream(ctx, s.events, q.Entity.Partition, q.Stream)
	if err != nil || !seen {
		return StreamPage{}, cmp.Or(err, checkStreamState(event.StreamAbsent))
	}
	status, metadata, err := s.checkReadAccess(ctx, q.Entity, q.Stream, q.Roles)
	if err != nil {
		return StreamPage{}, err
	}
	if err := checkStreamState(status.State); err != nil {
		return StreamPage{}, err
	}
	page := StreamPage{Version: status.Version, Events: []event.Recorded{}, CacheControl: metadata.CacheHeader()}
	first, err := s.firstVisibleVersion(ctx, q, status, metadata)
	if err != nil {
		return page, err
	}
	if q.KnownAt != "" {
		if err := waitUntilSettled(ctx, s.clock.Now(), q.KnownAt, s.settleDelay, 0); err != nil {
			return page, err
		}
		until, _, err := s.ResolveKnownAt(ctx, q.Entity.Partition, q.KnownAt)
		if err != nil {
			return page, err
		}
		page.Until = &until
	}
	if first > status.Version || page.Until != nil && *page.Until == 0 {
		return page, nil
	}
	ask := ports.StreamQuery{
		Partition: q.Entity.Partition, Stream: q.Stream, Direction: q.Direction, From: q.From, Limit: q.Count + 1,
		Bytes: cmp.Or(q.Bytes, MaxPageBytes), WithoutData: q.WithoutData,
	}
	if q.Direction == ports.Forward {
		ask.From = max(ask.From, first)
	}
	if ask.EffectiveTo = q.AsOf; page.Until != nil {
		ask.Until = *page.Until
	}
	events, cut, err := s.events.ReadStream(ctx, ask)
	if err != nil {
		return StreamPage{}, err
	}
	for i := range events {
		if events[i].StreamVersion < first { // reading backward: all further events are hidden too
			events, cut = events[:i], false
			break
		}
	}
	page.Events = events
	switch n := len(events); {
	case n > q.Count:
		page.Events, page.HasMore, page.Next = events[:q.Count], true, events[q.Count].StreamVersion
	case cut && q.Direction == ports.Forward:
		page.HasMore, page.Next = true, events[n-1].StreamVersion+1
	case cut && events[n-1].StreamVersion > first:
		page.HasMore, page.Next = true, events[n-1].StreamVersion-1
	}
	if n := len(page.Events); n > 0 { // events may have been appended since the status was read
		page.Version = max(page.Version, page.Events[0].StreamVersion, page.Events[n-1].StreamVersion)
	}
	page.Events = sight.FilterStream(page.Events, owned)
	return page, nil
}

// checkReadAccess reads a stream's status and checks the reader's roles against its access
// list.
func (s *Service) checkReadAccess(ctx context.Context, le ports.LegalEntity, id event.StreamID, roles []string) (ports.StreamStatus, stream.Metadata, error) {
	status, err := s.events.StreamStatus(ctx, le.Partition, id)
	if err != nil {
		return status, stream.Metadata{}, err
	}
	metadata, err := stream.ParseSettings(status.Settings)
	if err != nil {
		return status, metadata, err
	}
	return status, metadata, metadata.ACL.Check(stream.Read, roles)
}

// checkStreamState refuses streams that do not exist, were deleted or were tombstoned. The
// events of a deleted or tombstoned stream stay in the log.
func checkStreamState(s event.StreamState) error {
	switch s {
	case event.StreamAbsent:
		return fault.New(fault.NotFound, concurrency.CodeStreamNotFound, "this legal entity has no such stream; check type, id and legal entity")
	case event.StreamActive:
		return nil
	case event.StreamDeleted:
		return fault.New(fault.NotFound, concurrency.CodeStreamDeleted,
			"the stream was deleted; append to it to recreate it, or read its facts under GET /api/events")
	default:
		return fault.New(fault.Gone, concurrency.CodeStreamTombstoned, "the stream was ended for good; read its facts under GET /api/events")
	}
}

// firstVisibleVersion returns the first version that metadata and a deletion leave
// readable; one beyond the last if there is none. Events of a stream are in order of
// recording, so the first one that is young enough is found by binary search.
func (s *Service) firstVisibleVersion(ctx context.Context, q StreamQuery, status ports.StreamStatus, m stream.Metadata) (event.Version, error) {
	first := max(status.ReadableFrom, m.Floor(status.Version))
	since := m.Since(s.clock.Now())
	if since.IsZero() {
		return first, nil
	}
	var failed error
	n := sort.Search(int(status.Version-first)+1, func(i int) bool {
		if failed != nil {
			return true
		}
		events, _, err := s.events.ReadStream(ctx, ports.StreamQuery{
			Partition: q.Entity.Partition, Stream: q.Stream, From: first + event.Version(i), Limit: 1, WithoutData: true,
		})
		failed = err
		return err != nil || len(events) == 0 || !events[0].RecordedAt.Before(since)
	})
	return first + event.Version(n), failed
}
