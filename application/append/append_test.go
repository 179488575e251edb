package append_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// append stores prepared events and reads them back.
func (b *appendFixture) append(t *testing.T, events ...event.Prepared) []event.Recorded {
	t.Helper()
	res, err := b.store.Appender.Append(t.Context(), ports.AppendRequest{Partition: b.entity.Partition, Events: events})
	require.NoError(t, err)
	return b.readBack(t, res.Events)
}

func (b *appendFixture) readBack(t *testing.T, receipts []ports.AppendedEvent) []event.Recorded {
	t.Helper()
	out := make([]event.Recorded, len(receipts))
	for i, r := range receipts {
		e, err := b.store.Events.EventByID(t.Context(), b.entity.Partition, r.ID)
		require.NoError(t, err)
		out[i] = e
	}
	return out
}

func (b *appendFixture) eventIDsByKey(t *testing.T, key string) ([]event.ID, error) {
	t.Helper()
	events, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, Key: key})
	var ids []event.ID
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	return ids, err
}

func (b *appendFixture) head(t *testing.T) event.Sequence {
	t.Helper()
	h, err := b.store.Events.Head(t.Context(), b.entity.Partition)
	require.NoError(t, err)
	return h.Sequence
}

func (b *appendFixture) service() *eventappend.Service {
	return eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: b.store.Appender, Events: b.store.Events, Idempotency: b.store.Intents, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour})
}

func (b *appendFixture) request(key string, drafts ...event.Draft) eventappend.Request {
	r := eventappend.Request{LegalEntity: b.entity, Actor: clerk, PersonID: "p-clerk", Drafts: drafts, IdempotencyKey: key}
	for _, d := range drafts {
		if raw, ok := d.Data.(json.RawMessage); ok && len(raw) > 0 {
			r.Digest[0] += raw[len(raw)-2]
		}
	}
	return r
}

func code(t *testing.T, err error) string {
	t.Helper()
	require.Error(t, err)
	return fault.CodeOf(err)
}

func TestAppend_Receipts(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	receipts, replayed, err := b.service().Append(t.Context(), b.request("", orderPlaced(nil), orderPlaced(func(d *event.Draft) { d.CausedByIndex = 1 })))
	require.NoError(t, err)
	require.False(t, replayed)
	require.Len(t, receipts, 2)
	events := b.readBack(t, receipts)
	for i, e := range events {
		require.Equal(t, ports.AppendedEvent{
			ID: e.ID, Type: e.Type, Sequence: event.Sequence(i) + 1, Stream: e.Stream, StreamVersion: event.Version(i) + 1, RecordedAt: e.RecordedAt, Checksum: e.Checksum,
		}, receipts[i])
		require.Equal(t, events[0].CorrelationID, e.CorrelationID, "one batch is one process")
		require.Equal(t, event.Source{System: "backbone", Channel: "api"}, e.Source)
	}
	require.Equal(t, events[0].ID, events[1].CausedBy)
	require.NotEmpty(t, events[0].CorrelationID)
}

func TestAppend_EmptyBatch(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	_, _, err := b.service().Append(t.Context(), b.request("k"))
	f, _ := fault.As(err)
	require.Equal(t, "append.batch_empty", f.Code)
	require.Equal(t, "/events", f.Field)
}

func TestAppend_DefaultEffectiveDate(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t) // 23:30 UTC is the next day in Berlin
	undated := orderPlaced(func(d *event.Draft) { d.EffectiveDate = 0 })
	for zone, want := range map[string]string{"Europe/Berlin": "2026-04-01", "America/New_York": "2026-03-31", "UTC": "2026-03-31", "no/such": "2026-03-31"} {
		r := b.request("", undated, orderPlaced(func(d *event.Draft) { d.EffectiveDate = event.MustDate("2020-02-29") }))
		r.LegalEntity.TimeZone = zone
		receipts, _, err := b.service().Append(t.Context(), r)
		require.NoError(t, err)
		events := b.readBack(t, receipts)
		require.Equal(t, want, events[0].EffectiveDate.String(), zone)
		require.Equal(t, "2020-02-29", events[1].EffectiveDate.String(), "a given date stays")
	}
}

func TestAppend_LeavesCallersDrafts(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	r := b.request("", orderPlaced(func(d *event.Draft) { d.EffectiveDate = 0 }))
	_, _, err := b.service().Append(t.Context(), r)
	require.NoError(t, err)
	require.Zero(t, r.Drafts[0].EffectiveDate, "the same request sent again tomorrow has another default")
}

func TestAppend_Idempotency(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	first := b.request("k-1", orderPlaced(nil), orderPlaced(nil))
	receipts, replayed, err := s.Append(t.Context(), first)
	require.NoError(t, err)
	require.False(t, replayed)

	again, replayed, err := s.Append(t.Context(), first)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, receipts, again)
	require.EqualValues(t, 2, b.head(t))

	other := first
	other.Digest = event.Hash{99}
	_, _, err = s.Append(t.Context(), other)
	require.Equal(t, "idempotency.mismatch", code(t, err))

	// A replay is answered before the expectations are checked.
	late := first
	late.Streams = []concurrency.StreamExpectation{{Stream: event.StreamID{Type: "order", ID: "O-1"}, Expected: concurrency.NoStream()}}
	again, replayed, err = s.Append(t.Context(), late)
	require.NoError(t, err)
	require.True(t, replayed)
	require.Equal(t, receipts, again)

	// Another person's key is another key.
	theirs := first
	theirs.PersonID = "p-other"
	_, replayed, err = s.Append(t.Context(), theirs)
	require.NoError(t, err)
	require.False(t, replayed)
	require.EqualValues(t, 4, b.head(t))

	// The key expires after keyTTL.
	b.clock.Advance(time.Hour)
	_, replayed, err = s.Append(t.Context(), other)
	require.NoError(t, err)
	require.False(t, replayed)
	require.EqualValues(t, 6, b.head(t))
}

// blindIdempotencyReader finds no key before the append, as if the first request were
// running on another node and not committed yet.
type blindIdempotencyReader struct{ ports.IdempotencyReader }

func (blindIdempotencyReader) IdempotencyOutcome(context.Context, event.PartitionID, string, time.Time) (ports.IdempotencyOutcome, bool, error) {
	return ports.IdempotencyOutcome{}, false, nil
}

func TestAppend_IdempotencyConcurrentRequests(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := eventappend.NewService(eventappend.Config{Preparer: b.preparer, Appender: b.store.Appender, Events: b.store.Events, Idempotency: blindIdempotencyReader{b.store.Intents}, Clock: b.clock, IDs: b.ids, KeyTTL: time.Hour})
	first := b.request("k-1", orderPlaced(nil), orderPlaced(nil))
	var mu sync.Mutex
	var fresh, again int
	var seen [][]ports.AppendedEvent
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			receipts, replayed, err := s.Append(t.Context(), first)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && replayed {
				again++
			} else if err == nil {
				fresh++
			}
			seen = append(seen, receipts)
		})
	}
	wg.Wait()
	require.Equal(t, []int{1, 7}, []int{fresh, again})
	for _, receipts := range seen {
		require.Equal(t, seen[0], receipts)
	}
	other := first
	other.Digest = event.Hash{99}
	_, _, err := s.Append(t.Context(), other)
	require.Equal(t, "idempotency.mismatch", code(t, err))
	require.EqualValues(t, 2, b.head(t))
}

func TestAppend_IdempotencyKeyAfterRefusal(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	r := b.request("k-1", orderPlaced(func(d *event.Draft) { d.Data = json.RawMessage(`{"amount":-1}`) }))
	_, _, err := s.Append(t.Context(), r)
	require.Equal(t, "shop.amount_negative", code(t, err))
	r = b.request("k-1", orderPlaced(nil))
	_, replayed, err := s.Append(t.Context(), r)
	require.NoError(t, err)
	require.False(t, replayed)
}

func TestAppend_IdempotencyKeyInvalid(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	for key, want := range map[string]string{
		strings.Repeat("k", 256): "idempotency.key_invalid",
		"a\x00b":                 "idempotency.key_invalid",
		"a\xff":                  "idempotency.key_invalid",
		"ada@example.org":        "pii.in_identifier",
	} {
		_, _, err := b.service().Append(t.Context(), b.request(key, orderPlaced(nil)))
		f, ok := fault.As(err)
		require.True(t, ok)
		require.Equal(t, want, f.Code)
		require.Equal(t, "Idempotency-Key", f.Field)
	}
	require.Zero(t, b.head(t))
	_, _, err := b.service().Append(t.Context(), b.request(strings.Repeat("k", 255), orderPlaced(nil)))
	require.NoError(t, err)
}

func TestAppend_Expectations(t *testing.T) {
	t.Parallel()
	b := newAppendFixture(t)
	s := b.service()
	_, _, err := s.Append(t.Context(), b.request("", orderPlaced(func(d *event.Draft) {
		d.Entities, d.Tags = []event.EntityRef{order}, []string{"q1"}
		d.Data = json.RawMessage(`{"customer":"c","number":"7"}`)
	})))
	require.NoError(t, err)
	for want, demand := range map[string]func(*eventappend.Request){
		"append.wrong_expected_version": func(r *eventappend.Request) {
			r.Streams = []concurrency.StreamExpectation{{Stream: event.StreamID{Type: "order", ID: "O-1"}, Expected: concurrency.NoStream()}}
		},
		"append.wrong_expected_version ": func(r *eventappend.Request) {
			r.Entities = []concurrency.EntityExpectation{{EntityType: "order", EntityID: "O-1"}}
		},
		"append.condition_failed": func(r *eventappend.Request) {
			r.Conditions = []concurrency.AppendCondition{{Items: []concurrency.Item{{Tags: []string{"q1"}}}}}
		},
		"append.duplicate_business_key": func(r *eventappend.Request) {
			r.Drafts[0].Data = json.RawMessage(`{"customer":"C","number":" 7"}`)
		},
	} {
		r := b.request("", orderPlaced(nil))
		demand(&r)
		_, _, err := s.Append(t.Context(), r)
		require.Equal(t, strings.TrimSpace(want), code(t, err))
	}
	require.EqualValues(t, 1, b.head(t))
}
