package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestFleetJudgeExplainsRepeats lets events come again for every reason there is,
// and for none.
func TestFleetJudgeExplainsRepeats(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	broken := []outage{
		{what: "stall", from: second(9), till: second(11), stall: true}, {what: "first", from: second(10), till: second(12)},
		{what: "second", from: second(20), till: second(21)}, {what: "stall", from: second(30), till: second(31), stall: true},
	}
	answered := func(from, till int, taken bool) *handout {
		return &handout{from: second(from), at: second(from), ended: second(till), taken: taken}
	}
	open := func(from int) *handout { return &handout{from: second(from), at: second(from)} }
	leased := func(h *handout, n int) *handout { h.until = second(n); return h }
	refused := func(h *handout) *handout { h.refused = true; return h }
	for _, c := range []struct {
		name           string
		earlier, later *handout
		want           verdict
	}{
		{"the answer was late because of an outage", answered(9, 13, false), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"handed out while something was broken", open(11), open(14), verdict{outages: map[string]int{"first": 1}}},
		{"never answered, and then something broke", open(17), open(20), verdict{outages: map[string]int{"second": 1}}},
		{"between two outages", answered(13, 19, false), open(16), verdict{strange: []string{"E"}}},
		{"what broke afterwards explains nothing", open(5), open(8), verdict{strange: []string{"E"}}},
		{"answered before something broke", answered(7, 8, false), open(11), verdict{strange: []string{"E"}}},
		{"somebody stood still", answered(29, 33, false), open(32), verdict{stalled: 1}},
		{"somebody stood still, and then something broke", answered(9, 13, false), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"acknowledged before, whoever stood still", answered(29, 31, true), open(32), verdict{wrong: []string{"E"}}},
		{"its own doing", refused(open(13)), open(16), verdict{own: 1}},
		{"its own doing, while something was broken", refused(answered(11, 12, false)), open(12), verdict{own: 1}},
		{"acknowledged while it was already out again", answered(9, 13, true), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"acknowledged before, whatever broke", answered(9, 11, true), open(12), verdict{wrong: []string{"E"}}},
		{"acknowledged before, though it means to refuse", refused(answered(1, 2, true)), open(3), verdict{wrong: []string{"E"}}},
		{"before its time was over, whatever broke", leased(open(10), 13), open(12), verdict{wrong: []string{"E"}}},
		{"before its time was over, as it wanted", refused(leased(open(10), 13)), open(12), verdict{own: 1}},
		{"when its time was over", leased(open(10), 13), open(13), verdict{outages: map[string]int{"first": 1}}},
		{"a feed", nil, nil, verdict{strange: []string{"E"}}},
	} {
		b := newNotebook("reader", hastyTimeout)
		b.note("key", "E", 1, 1, c.earlier)
		b.note("key", "E", 1, 2, c.later)
		got := b.judge(broken)
		require.Equal(t, c.want.own, got.own, c.name)
		require.Equal(t, c.want.stalled, got.stalled, c.name)
		require.Len(t, got.outages, len(c.want.outages), c.name)
		for what, n := range c.want.outages {
			require.Equal(t, n, got.outages[what], c.name)
		}
		require.Len(t, got.wrong, len(c.want.wrong), c.name)
		require.Len(t, got.strange, len(c.want.strange), c.name)
		require.Equal(t, 1-c.want.own-c.want.stalled, got.suffered(), c.name)
	}
}

// TestFleetReaderOutcomes follows an event that three consumers are handed,
// of which the first answers too late.
func TestFleetReaderOutcomes(t *testing.T) {
	b := newNotebook("reader", hastyTimeout)
	now := time.Now()
	times := func(attempt int, deadline time.Time) (e delivered) {
		e.ID, e.Sequence = "E", "7"
		e.Delivery.Attempt, e.Delivery.Deadline = attempt, deadline
		return e
	}
	first, second := times(1, now.Add(time.Minute)), times(2, now.Add(2*time.Minute))
	require.Len(t, b.take("a", []delivered{first}), 1)
	require.Empty(t, b.take("a", []delivered{times(1, now)}), "its time was over before it came")
	require.Empty(t, b.takeInOrder([]delivered{times(1, now)}))
	b.gave(first, false)
	b.take("b", []delivered{second})
	b.answered([]delivered{first}, map[string]string{"E": "other_consumer"})
	require.Len(t, b.judge(nil).strange, 1)
	from := first.Delivery.Deadline.Add(-hastyTimeout)
	require.Equal(t, map[string]int{"a crash": 1}, b.judge([]outage{{what: "a crash", from: from.Add(-time.Minute), till: from}}).outages)
	b.gave(second, false)
	b.answered([]delivered{second}, nil)
	require.Empty(t, b.judge(nil).wrong)
	b.take("c", []delivered{times(3, time.Now().Add(2*time.Minute))})
	require.Len(t, b.judge(nil).wrong, 1)
	require.Empty(t, b.violations)
}
