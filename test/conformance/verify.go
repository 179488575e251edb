package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

var chainPromises = []promise{
	{"chain recomputes from the genesis", chainRecomputes},
	{"payloads match their hashes", payloadsMatch},
	{"chain pages neither overlap nor skip", chainPages},
}

// verify recomputes the whole chain of the partition in pages and returns the
// events.
func (b *partition) verify(t tester, page int) []event.Recorded {
	t.Helper()
	previous := event.GenesisChecksum(LogName, b.le.Partition)
	var all []event.Recorded
	var scratch []byte
	for {
		events, err := b.store.ChainPage(context.Background(), b.le.Partition, event.Sequence(len(all)), page)
		require.NoError(t, err)
		require.LessOrEqual(t, len(events), page)
		for i := range events {
			e := &events[i]
			require.Equal(t, event.Sequence(len(all)+1), e.Sequence, "a gap in the chain")
			var sum event.Hash
			sum, scratch = e.ChainChecksum(previous, scratch)
			require.Equal(t, sum, e.Checksum, "the checksum of sequence %d does not recompute", e.Sequence)
			require.Equal(t, event.HashPayload(e.Salt, e.Payload), e.PayloadHash, "the payload of sequence %d does not match its hash", e.Sequence)
			previous = e.Checksum
			all = append(all, *e)
		}
		if len(events) < page {
			break
		}
	}
	head := b.head(t)
	require.Equal(t, previous, head.Checksum)
	require.Equal(t, event.Sequence(len(all)), head.Sequence)
	return all
}

func chainRecomputes(t *testing.T, s *suite) {
	b := s.newPartition(t)
	require.Empty(t, b.verify(t, 10))
	for range 3 {
		b.write(t, b.event(s.opened, stream("1"), tagged("b", "a"), about("vendor", "V-1")), b.event(s.opened, stream(""), numbered("journal")))
		r := b.request(b.event(s.opened, stream("1")))
		r.Streams = expect(stream("1"), concurrency.NoStream())
		b.refused(t, concurrency.CodeWrongExpectedVersion, r)
		b.must(t, b.intentRequest(s, insert(b.intent(intent.PendingApproval))))
		b.clock.Advance(time.Second)
	}
	require.Len(t, b.verify(t, 4), 9)
}

func payloadsMatch(t *testing.T, s *suite) {
	b := s.newPartition(t)
	early, late := b.event(s.opened, stream("1")), b.event(s.opened, stream("1"))
	late.PayloadHashDone, late.PayloadHash = false, event.Hash{}
	b.write(t, early, late, b.event(s.opened, stream(""), numbered("journal")))
	for _, e := range b.verify(t, 10) {
		require.Equal(t, event.HashPayload(e.Salt, e.Payload), e.PayloadHash)
		require.NotZero(t, e.Salt)
	}
}

func chainPages(t *testing.T, s *suite) {
	b := s.ten(t)
	for _, page := range []int{1, 3, 5, 10, 11} {
		require.Len(t, b.verify(t, page), 10)
	}
}

var timePromises = []promise{
	{"recorded_at is read from the clock of the store", recordedAt},
	{"recorded_at never goes backwards", recordedMonotone},
	{"sequence at a time is the last one recorded by then", sequenceAt},
}

func recordedAt(t *testing.T, s *suite) {
	b := s.newPartition(t)
	const beyondMicros = 567 * time.Nanosecond
	b.clock.Advance(90*time.Second + 1234*time.Microsecond + beyondMicros)
	defer b.clock.Advance(-beyondMicros) // the suite's own times are in microseconds
	result := b.write(t, b.event(s.opened, stream("1")), b.event(s.opened, stream("1")))
	for i, e := range b.all(t) {
		require.True(t, event.Micros(b.clock.Now()).Equal(e.RecordedAt), "%s is not the clock's %s in microseconds", e.RecordedAt, b.clock.Now())
		require.True(t, e.RecordedAt.Equal(result.Events[i].RecordedAt))
	}
}

func recordedMonotone(t *testing.T, s *suite) {
	b := s.newPartition(t)
	start := b.clock.Now()
	b.write(t, b.event(s.opened, stream("1")))
	b.clock.Advance(-10 * time.Minute)
	back := b.write(t, b.event(s.opened, stream("1")), b.event(s.opened, stream("2")))
	require.True(t, back.Events[0].RecordedAt.Equal(event.Micros(start)), "recorded_at went back to %s", back.Events[0].RecordedAt)
	b.clock.Advance(20 * time.Minute)
	b.write(t, b.event(s.opened, stream("1")))
	last := time.Time{}
	events := b.all(t)
	for _, e := range events {
		require.False(t, e.RecordedAt.Before(last), "recorded_at went back at sequence %d", e.Sequence)
		last = e.RecordedAt
	}
	require.True(t, last.Equal(event.Micros(b.clock.Now())))
	b.verify(t, 10)
}

func sequenceAt(t *testing.T, s *suite) {
	b := s.newPartition(t)
	start := b.clock.Now()
	at := func(d time.Duration) event.Sequence {
		n, err := b.store.SequenceAt(context.Background(), b.le.Partition, start.Add(d))
		require.NoError(t, err)
		return n
	}
	require.Zero(t, at(time.Hour))
	b.write(t, b.event(s.opened, stream("1")), b.event(s.opened, stream("1")))
	b.clock.Advance(time.Minute)
	b.write(t, b.event(s.opened, stream("1")))
	require.Zero(t, at(-time.Second))
	require.Equal(t, event.Sequence(2), at(0))
	require.Equal(t, event.Sequence(2), at(59*time.Second))
	require.Equal(t, event.Sequence(3), at(time.Minute))
	require.Equal(t, event.Sequence(3), at(time.Hour))
}

var cancellationPromises = []promise{
	{"cancelled append writes nothing", cancelledAppend},
	{"cancelled read fails", cancelledRead},
	{"cancelled advance moves nothing", cancelledAdvance},
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func cancelledAppend(t *testing.T, s *suite) {
	b := s.newPartition(t)
	r := b.request(b.event(s.opened, stream("1"), claiming("K", "")))
	r.Idempotency = b.claim("key", "content")
	_, err := b.store.Append(cancelled(), r)
	require.ErrorIs(t, err, context.Canceled)
	// The next event would follow it, had it been written late.
	result := b.write(t, b.event(s.opened, stream("2")))
	require.Equal(t, event.Sequence(1), result.Head)
	again := b.must(t, r)
	require.False(t, again.Replayed)
	require.Equal(t, event.Sequence(2), again.Head)
}

func cancelledRead(t *testing.T, s *suite) {
	b := s.ten(t)
	ctx, p, id := cancelled(), b.le.Partition, b.ids.next()
	reads := map[string]func() error{
		"EventByID":      func() error { _, err := b.store.EventByID(ctx, p, id); return err },
		"TypesOf":        func() error { _, err := b.store.TypesOf(ctx, []ports.Cause{{Partition: p, ID: id}}); return err },
		"EventsOfStream": func() error { _, err := b.store.EventsOfStream(ctx, p, stream("1"), 1, 10); return err },
		"Events":         func() error { _, err := b.store.Events(ctx, ports.EventQuery{Partition: p, Limit: 10}); return err },
		"Head":           func() error { _, err := b.store.Head(ctx, p); return err },
		"SequenceAt":     func() error { _, err := b.store.SequenceAt(ctx, p, b.clock.Now()); return err },
		"Lineage":        func() error { _, _, err := b.store.Lineage(ctx, p, id, 10, 0); return err },
		"Intent":         func() error { _, err := b.store.Intent(ctx, p, id); return err },
		"WaitingIntents": func() error { _, err := b.store.WaitingIntents(ctx, p, 10); return err },
		"ListIntents": func() error {
			_, err := b.store.ListIntents(ctx, ports.IntentQuery{Partition: p, Limit: 10})
			return err
		},
		"ChainPage":      func() error { _, err := b.store.ChainPage(ctx, p, 0, 10); return err },
		"Checkpoints":    func() error { _, err := b.store.Checkpoints(ctx, "p", 1); return err },
		"PartitionHeads": func() error { _, err := b.store.PartitionHeads(ctx); return err },
		"RecordedAt": func() error {
			_, err := b.store.RecordedAt(ctx, []ports.EventPosition{{Partition: p, Sequence: 1}})
			return err
		},
		"LegalEntities": func() error { _, err := b.store.LegalEntities(ctx, ""); return err },
		"EventTypes":    func() error { _, _, err := b.store.SharedEventTypes(ctx); return err },
		"IdempotencyOutcome": func() error {
			_, _, err := b.store.IdempotencyOutcome(ctx, p, "k", b.clock.Now())
			return err
		},
	}
	for name, read := range reads {
		require.ErrorIs(t, read(), context.Canceled, name)
	}
}

func cancelledAdvance(t *testing.T, s *suite) {
	b := s.ten(t)
	name := b.unique("projection")
	h := &recorder{partition: b}
	_, _, err := b.store.Advance(cancelled(), b.step(name, 1, nil, 5), h)
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel := context.WithCancel(context.Background())
	h.after = func() error { cancel(); return nil } // the caller is cancelled while the handler runs
	_, _, err = b.store.Advance(ctx, b.step(name, 1, []string{s.changed.Type}, 5), h)
	require.Error(t, err)
	require.Empty(t, h.committed(t))
	h.after = nil
	checkpoint, passed := h.advance(t, name, 5)
	require.Equal(t, 5, passed)
	require.Equal(t, event.Sequence(5), checkpoint.Sequence)
	require.Len(t, h.committed(t), 5)
}
