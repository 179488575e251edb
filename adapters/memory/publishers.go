package memory

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// Publishers implements ports.PublisherCursors. The zero value is not usable.
type Publishers struct {
	clock ports.Clock

	mu   sync.Mutex
	rows map[publisherKey]*ports.PublisherCursor
}

type publisherKey struct {
	publisher string
	partition event.PartitionID
}

// newPublishers makes an empty store.
func newPublishers(clock ports.Clock) *Publishers {
	return &Publishers{clock: clock, rows: map[publisherKey]*ports.PublisherCursor{}}
}

func publisherFenced() error {
	return fault.New(fault.Conflict, "publisher.fenced", "another node publishes this partition since; leave it to that one")
}

// BeginPublishing implements ports.PublisherCursors.
func (s *Publishers) BeginPublishing(ctx context.Context, publisher string, p event.PartitionID, term uint64) (ports.PublisherCursor, error) {
	if err := ctx.Err(); err != nil {
		return ports.PublisherCursor{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.rows[publisherKey{publisher, p}]
	if c == nil {
		c = &ports.PublisherCursor{Publisher: publisher, Partition: p}
		s.rows[publisherKey{publisher, p}] = c
	}
	if c.Term > term {
		return ports.PublisherCursor{}, publisherFenced()
	}
	c.Term = term
	return *c, nil
}

func (s *Publishers) change(ctx context.Context, publisher string, p event.PartitionID, term uint64, change func(*ports.PublisherCursor) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.rows[publisherKey{publisher, p}]
	if c == nil || c.Term != term {
		return publisherFenced()
	}
	return change(c)
}

// MovePublished implements ports.PublisherCursors.
func (s *Publishers) MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error {
	return s.change(ctx, publisher, p, term, func(c *ports.PublisherCursor) error {
		if c.PublishedThrough != from || to <= from {
			return fault.New(fault.Conflict, "publisher.cursor_moved", "the cursor is at %d and cannot move from %d to %d; begin again", c.PublishedThrough, from, to)
		}
		*c = ports.PublisherCursor{Publisher: publisher, Partition: p, PublishedThrough: to, Term: term, MovedAt: event.Micros(s.clock.Now())}
		return nil
	})
}

// NotePublishFailure implements ports.PublisherCursors.
func (s *Publishers) NotePublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error {
	return s.change(ctx, publisher, p, term, func(c *ports.PublisherCursor) error {
		c.Failures++
		c.LastError, c.FailedAt = code, event.Micros(s.clock.Now())
		return nil
	})
}

// Publishers implements ports.PublisherCursors.
func (s *Publishers) PublisherCursors(ctx context.Context, publisher string) ([]ports.PublisherCursor, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []ports.PublisherCursor{}
	for key, c := range s.rows {
		if publisher == "" || key.publisher == publisher {
			out = append(out, *c)
		}
	}
	slices.SortFunc(out, func(a, b ports.PublisherCursor) int {
		return cmp.Or(cmp.Compare(a.Publisher, b.Publisher), cmp.Compare(a.Partition, b.Partition))
	})
	return out, nil
}
