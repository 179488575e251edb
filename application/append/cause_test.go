package append_test

import (
	"context"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// countingReader counts the queries for causes.
type countingReader struct {
	ports.EventReader
	queries int
}

func (r *countingReader) TypesOf(ctx context.Context, events []ports.Cause) (map[ports.Cause]string, error) {
	r.queries++
	return r.EventReader.TypesOf(ctx, events)
}

func causedBy(id event.ID, p event.PartitionID) event.Draft {
	return orderPlaced(func(d *event.Draft) { d.CausedBy, d.CausedByPartition = id, p })
}

// A cause that is in no log, or that the caller does not see, is refused with the event that names
// it, unless the request says that it may be unknown.
func TestAppend_UnknownCause(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	known, _, err := b.service().Append(t.Context(), b.request("", orderPlaced(nil)))
	require.NoError(t, err)
	blind := module.WithSight(t.Context(), func(context.Context) (module.Sight, error) { return module.Sight{}, nil })
	for name, c := range map[string]struct {
		ctx   context.Context
		cause event.Draft
	}{
		"no event":                {t.Context(), causedBy(ulid.Make(), 0)},
		"event of another log":    {t.Context(), causedBy(known[0].ID, 4711)},
		"event of an unseen type": {blind, causedBy(known[0].ID, 0)},
	} {
		r := b.request(name, orderPlaced(nil), c.cause)
		_, _, err := b.service().Append(c.ctx, r)
		require.Equal(t, "request.cause_unknown", code(t, err), name)
		require.Equal(t, fault.NotFound, fault.KindOf(err))
		f, _ := fault.As(err)
		require.Equal(t, "/events/1/caused_by", f.Field)
		r.AllowUnknownCause = true
		_, _, err = b.service().Append(c.ctx, r)
		require.NoError(t, err, name)
	}
}

// Causes of a batch are looked up in one query, and a batch without any sends none. A repeated
// request is answered before its causes are looked up.
func TestAppend_CausesInOneQuery(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	log := &countingReader{EventReader: b.store.Events}
	s := eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: b.store.Appender, Events: log, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour})
	known, _, err := s.Append(t.Context(), b.request("", orderPlaced(nil), orderPlaced(func(d *event.Draft) { d.CausedByIndex = 1 })))
	require.NoError(t, err)
	require.Zero(t, log.queries)
	r := b.request("k", causedBy(known[0].ID, 0), causedBy(known[1].ID, b.entity.Partition), orderPlaced(nil))
	for _, replayed := range []bool{false, true} {
		_, again, err := s.Append(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, replayed, again)
		require.Equal(t, 1, log.queries)
	}
}
