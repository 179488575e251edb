package concurrency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

func TestExpectedAllows(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		expected concurrency.Expected
		value    any
		allows   map[event.Version]bool
	}{
		"zero value":    {concurrency.Expected{}, "any", map[event.Version]bool{0: true, 1: true, 7: true}},
		"any":           {concurrency.Any(), "any", map[event.Version]bool{0: true, 1: true, 7: true}},
		"no stream":     {concurrency.NoStream(), "no_stream", map[event.Version]bool{0: true, 1: false, 7: false}},
		"stream exists": {concurrency.StreamExists(), "stream_exists", map[event.Version]bool{0: false, 1: true, 7: true}},
		"exactly 7":     {concurrency.Exactly(7), uint64(7), map[event.Version]bool{0: false, 6: false, 7: true, 8: false}},
		"exactly 0":     {concurrency.Exactly(0), "no_stream", map[event.Version]bool{0: true, 1: false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.value, c.expected.Value())
			require.Equal(t, c.value == "any", c.expected.IsAny())
			for actual, allowed := range c.allows {
				require.Equal(t, allowed, c.expected.Allows(actual), "at version %d", actual)
			}
		})
	}
	require.Equal(t, concurrency.NoStream(), concurrency.Exactly(0), "the two ways to say it are one value")
}

func TestParseExpected_RoundTrip(t *testing.T) {
	t.Parallel()
	for _, e := range []concurrency.Expected{concurrency.Any(), concurrency.NoStream(), concurrency.StreamExists()} {
		word, ok := e.Value().(string)
		require.True(t, ok)
		parsed, ok := concurrency.ParseExpected(word)
		require.True(t, ok, word)
		require.Equal(t, e, parsed)
	}
	absent, ok := concurrency.ParseExpected("")
	require.True(t, ok)
	require.True(t, absent.IsAny())
	for _, word := range []string{"none", "No_Stream", " any", "-1", "7"} {
		_, ok := concurrency.ParseExpected(word)
		require.False(t, ok, word)
	}
}

func TestItemKeys(t *testing.T) {
	t.Parallel()
	item := concurrency.Item{
		Types: []string{"ap.invoice.received"}, Tags: []string{"q1"},
		Entities: []concurrency.Entity{{Type: "vendor", ID: "V-1"}},
	}
	require.Equal(t, []string{event.EntityRef{Type: "vendor", ID: "V-1", Role: "seller"}.Key(), event.TagKey("q1")}, item.Keys())
	require.Equal(t, []string{}, concurrency.Item{Types: []string{"x.y"}}.Keys())
}

func TestConflict_Holder(t *testing.T) {
	t.Parallel()
	holder := fault.Holder{EventID: "01JQ8E6Z6G3V5T8C9N2M4K7R1P", DocumentID: "INV-1", Sequence: "42"}
	stream := event.StreamID{Type: "invoice", ID: "I-1"}

	f := concurrency.WrongExpectedVersion(stream, concurrency.Exactly(3), 4, &holder)
	require.Equal(t, fault.Conflict, f.Kind)
	require.Equal(t, "append.wrong_expected_version", f.Code)
	require.Equal(t, uint64(3), f.Expected)
	require.Equal(t, uint64(4), f.Actual)
	require.Equal(t, &holder, f.Holder)
	require.Equal(t, "invoice/I-1", f.Attributes["stream"])

	f = concurrency.WrongExpectedVersion(stream, concurrency.NoStream(), 4, nil)
	require.Equal(t, []any{uint64(0), uint64(4)}, []any{f.Expected, f.Actual}, "both are numbers")
	f = concurrency.WrongExpectedVersion(stream, concurrency.StreamExists(), 0, nil)
	require.Equal(t, "stream_exists", f.Expected)
	require.Equal(t, uint64(0), f.Actual)
	require.Nil(t, f.Holder)

	f = concurrency.WrongEntityVersion("vendor", "V-1", 10, 12)
	require.Equal(t, "append.wrong_expected_version", f.Code)
	require.Equal(t, uint64(10), f.Expected)
	require.Equal(t, uint64(12), f.Actual)
	require.Equal(t, "vendor:V-1", f.Attributes["entity"])

	condition := concurrency.AppendCondition{After: 9, Entity: concurrency.Entity{Type: "vendor", ID: "V-1"}}
	f = condition.Failed(holder)
	require.Equal(t, "append.wrong_expected_version", f.Code)
	require.Equal(t, []any{uint64(9), nil}, []any{f.Expected, f.Actual}, "the caller may not see the last event")
	require.Equal(t, "vendor:V-1", f.Attributes["entity"])
	require.Equal(t, &holder, f.Holder)
	condition.Entity = concurrency.Entity{}
	require.Equal(t, concurrency.ConditionFailed(9, holder), condition.Failed(holder))

	for code, f := range map[string]*fault.Error{
		"append.condition_failed":       concurrency.ConditionFailed(9, holder),
		"append.condition_too_old":      concurrency.ConditionTooOld(9),
		"append.duplicate_business_key": concurrency.DuplicateBusinessKey("ap.invoice.received", holder),
		"idempotency.mismatch":          concurrency.IdempotencyMismatch(),
		"intent.changed":                concurrency.IntentChanged(event.ID{1}),
	} {
		require.Equal(t, code, f.Code)
		require.Equal(t, fault.Conflict, f.Kind, code)
		require.Contains(t, f.Detail, ";", "%s ends with the next step", code)
	}
	require.Equal(t, &holder, concurrency.ConditionFailed(9, holder).Holder)
	require.Equal(t, &holder, concurrency.DuplicateBusinessKey("x.y", holder).Holder)
	require.Equal(t, event.ID{1}.String(), concurrency.IntentChanged(event.ID{1}).IntentID)
}
