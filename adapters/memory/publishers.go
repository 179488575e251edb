package memory

import (
	"cmp"
	"context"
	"maps"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Publishers keeps the cursors of publishers.
type Publishers struct{ *state }

type publisherKey struct {
	publisher string
	partition event.PartitionID
}

func publisherFenced() error {
	return fault.New(fault.Conflict, "publisher.fenced", "another node publishes this partition now; leave it to that one")
}

// BeginPublishing implements ports.PublisherCursors.
func (s *Publishers) BeginPublishing(ctx context.Context, publisher string, p event.PartitionID, term uint64) (ports.PublisherCursor, error) {
	return get(ctx, s.state, func() (ports.PublisherCursor, error) {
		c := s.publishers[publisherKey{publisher, p}]
		if c.Term > term {
			return ports.PublisherCursor{}, publisherFenced()
		}
		c.Publisher, c.Partition, c.Term = publisher, p, term
		s.publishers[publisherKey{publisher, p}] = c
		return c, nil
	})
}

func (s *Publishers) change(ctx context.Context, publisher string, p event.PartitionID, term uint64, change func(*ports.PublisherCursor) error) error {
	return s.do(ctx, func() error {
		c, begun := s.publishers[publisherKey{publisher, p}]
		if !begun || c.Term != term {
			return publisherFenced()
		}
		err := change(&c)
		s.publishers[publisherKey{publisher, p}] = c
		return err
	})
}

// MovePublished implements ports.PublisherCursors.
func (s *Publishers) MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error {
	return s.change(ctx, publisher, p, term, func(c *ports.PublisherCursor) error {
		if c.PublishedThrough != from || to <= from {
			return fault.New(fault.Conflict, "publisher.cursor_moved", "the cursor is at %d and cannot move from %d to %d; begin again", c.PublishedThrough, from, to)
		}
		*c = ports.PublisherCursor{Publisher: publisher, Partition: p, PublishedThrough: to, Term: term, MovedAt: s.now()}
		return nil
	})
}

// RecordPublishFailure implements ports.PublisherCursors.
func (s *Publishers) RecordPublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error {
	return s.change(ctx, publisher, p, term, func(c *ports.PublisherCursor) error {
		c.Failures++
		c.LastError, c.FailedAt = code, s.now()
		return nil
	})
}

// PublisherCursors implements ports.PublisherCursors.
func (s *Publishers) PublisherCursors(ctx context.Context, publisher string) ([]ports.PublisherCursor, error) {
	return get(ctx, s.state, func() ([]ports.PublisherCursor, error) {
		return list(maps.Values(s.publishers), func(c ports.PublisherCursor) bool { return publisher == "" || c.Publisher == publisher }, func(a, b ports.PublisherCursor) int {
			return cmp.Or(cmp.Compare(a.Publisher, b.Publisher), cmp.Compare(a.Partition, b.Partition))
		}), nil
	})
}
