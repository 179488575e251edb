package conformance_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/adapters/system"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/conformance"
)

type cursors = ports.PublisherCursors

// brokenCursors break one promise of a sound store.
type brokenCursors struct {
	cursors
	begin func(uint64) uint64
	move  func(s ports.PublisherCursors, ctx context.Context, term uint64, from, to event.Sequence) error
	note  bool // forgets failures
}

func (b brokenCursors) BeginPublishing(ctx context.Context, publisher string, p event.PartitionID, term uint64) (ports.PublisherCursor, error) {
	if b.begin != nil {
		term = b.begin(term)
	}
	return b.cursors.BeginPublishing(ctx, publisher, p, term)
}

func (b brokenCursors) MovePublished(ctx context.Context, publisher string, p event.PartitionID, term uint64, from, to event.Sequence) error {
	if b.move != nil {
		return b.move(b.cursors, ctx, term, from, to)
	}
	return b.cursors.MovePublished(ctx, publisher, p, term, from, to)
}

func (b brokenCursors) RecordPublishFailure(ctx context.Context, publisher string, p event.PartitionID, term uint64, code string) error {
	if b.note {
		return nil
	}
	return b.cursors.RecordPublishFailure(ctx, publisher, p, term, code)
}

// current is the cursor of the suite's partition.
func current(s ports.PublisherCursors) ports.PublisherCursor {
	list, _ := s.PublisherCursors(context.Background(), "nats")
	for _, c := range list {
		return c
	}
	return ports.PublisherCursor{}
}

// failing records that a check failed, and ends it.
type failing struct{ failed bool }

type ended struct{}

func (f *failing) Errorf(string, ...any) { f.failed = true }
func (f *failing) FailNow()              { f.failed = true; panic(ended{}) }

// fails reports whether a check fails.
func fails(check func(t require.TestingT)) (failed bool) {
	f := &failing{}
	defer func() {
		if r := recover(); r != nil && r != any(ended{}) {
			panic(r)
		}
		failed = f.failed
	}()
	check(f)
	return f.failed
}

func TestPublisherCursorPromisesFailOnBrokenStore(t *testing.T) {
	t.Parallel()
	type fixture struct {
		name     string
		store    brokenCursors
		mustFail string // "" is a sound store
	}
	for _, c := range []fixture{
		{"sound", brokenCursors{}, ""},
		{"fences no term", brokenCursors{move: func(s ports.PublisherCursors, ctx context.Context, _ uint64, from, to event.Sequence) error {
			return s.MovePublished(ctx, "nats", 17, current(s).Term, from, to)
		}}, "lower term is fenced"},
		{"moves from anywhere", brokenCursors{move: func(s ports.PublisherCursors, ctx context.Context, term uint64, _, to event.Sequence) error {
			return s.MovePublished(ctx, "nats", 17, term, current(s).PublishedThrough, to)
		}}, "cursor moves forward from its position only"},
		{"moves for a cancelled caller", brokenCursors{move: func(s ports.PublisherCursors, ctx context.Context, term uint64, from, to event.Sequence) error {
			if err := s.MovePublished(context.WithoutCancel(ctx), "nats", 17, term, from, to); err != nil {
				return err
			}
			return ctx.Err()
		}}, "cancelled call changes nothing"},
		{"keeps the first term", brokenCursors{begin: func(uint64) uint64 { return 1 }}, "lower term is fenced"},
		{"forgets failures", brokenCursors{note: true}, "failures are counted until the next move"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			noticed := map[string]bool{}
			for _, p := range conformance.PublisherCursorPromises() {
				c.store.cursors = memory.New(memory.Config{Clock: system.Clock{}}).Publishers
				if fails(func(t require.TestingT) { p.Check(t, c.store) }) {
					noticed[p.Name] = true
				}
			}
			if c.mustFail == "" {
				require.Empty(t, noticed)
				return
			}
			require.True(t, noticed[c.mustFail], "noticed by %v", noticed)
		})
	}
}
