package query

import (
	"cmp"
	"context"
	"sort"

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
	Roles       []string      // of the reader, for the stream's access list; nil: it does not apply
	From        event.Version // the first to be read; 0: the beginning, backward the end
	Direction   ports.Direction
	AsOf        *event.Date // only events that take effect on this day or before; nil: all
	KnownAt     string      // only events recorded then, see Known; "": all
	Count       int
	Bytes       int // of payloads, unless the first event alone has more; 0 is MaxPageBytes
	WithoutData bool
}

// StreamPage is a part of a stream.
type StreamPage struct {
	Version      event.Version // of the stream now
	Events       []event.Recorded
	HasMore      bool
	Next         event.Version // the From to go on with, when there is more
	CacheControl string        // what the stream's metadata say about keeping the page; "": nothing
	// Until is the sequence that KnownAt stands for; nil: it was not asked for.
	Until *event.Sequence
}

// Stream reads a stream by version, as far as its metadata and a deletion show it.
// Faults: request.*, report.known_at_*, stream.not_found, stream.access_denied, stream.deleted (NotFound),
// stream.tombstoned.
func (s *Service) Stream(ctx context.Context, q StreamQuery) (StreamPage, error) {
	if q.Count < 1 {
		return StreamPage{}, fault.New(fault.Invalid, "request.parameter_invalid", "a page holds at least one event; correct the count").WithField("count")
	}
	status, metadata, err := s.admit(ctx, q.Entity, q.Stream, q.Roles)
	if err != nil {
		return StreamPage{}, err
	}
	if err := inState(status.State); err != nil {
		return StreamPage{}, err
	}
	page := StreamPage{Version: status.Version, Events: []event.Recorded{}, CacheControl: metadata.CacheHeader()}
	first, err := s.firstShown(ctx, q, status, metadata)
	if err != nil {
		return page, err
	}
	if q.KnownAt != "" {
		if err := settled(ctx, s.now(), q.KnownAt, s.settle, 0); err != nil {
			return page, err
		}
		until, _, err := s.Known(ctx, q.Entity.Partition, q.KnownAt)
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
		if events[i].StreamVersion < first { // backward: those that follow are older still
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
	if n := len(page.Events); n > 0 { // written since
		page.Version = max(page.Version, page.Events[0].StreamVersion, page.Events[n-1].StreamVersion)
	}
	return page, nil
}

// admit holds the reader's roles against the stream's access list.
func (s *Service) admit(ctx context.Context, le ports.LegalEntity, id event.StreamID, roles []string) (ports.StreamStatus, stream.Metadata, error) {
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

// inState refuses what a stream's state hides. Its events stay in the log.
func inState(s event.StreamState) error {
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

// firstShown is the first version of the stream that may be shown, one beyond the
// last when none may. Events of a stream are recorded in order, so whether the age
// allows an event is found by halving.
func (s *Service) firstShown(ctx context.Context, q StreamQuery, status ports.StreamStatus, m stream.Metadata) (event.Version, error) {
	first := max(status.ReadableFrom, m.Floor(status.Version))
	since := m.Since(s.now())
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
