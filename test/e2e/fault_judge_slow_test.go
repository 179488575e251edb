//go:build slow

package e2e

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRepeatsAreTiedToWhatExplainsThem lets events come again for every reason there is,
// and for none.
func TestRepeatsAreTiedToWhatExplainsThem(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	second := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	broken := []outage{{"first", second(10), second(12)}, {"second", second(20), second(21)}}
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
		{"what broke afterwards explains nothing", open(6), open(9), verdict{strange: []string{"E"}}},
		{"answered before something broke", answered(8, 9, false), open(11), verdict{strange: []string{"E"}}},
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
		require.Len(t, got.outages, len(c.want.outages), c.name)
		for what, n := range c.want.outages {
			require.Equal(t, n, got.outages[what], c.name)
		}
		require.Len(t, got.wrong, len(c.want.wrong), c.name)
		require.Len(t, got.strange, len(c.want.strange), c.name)
		require.Equal(t, 1-c.want.own, got.suffered(), c.name)
	}
}

// TestReadersKnowWhatBecameOfEachTime follows an event that three consumers are handed,
// of which the first answers too late.
func TestReadersKnowWhatBecameOfEachTime(t *testing.T) {
	b := newNotebook("reader", hastyTimeout)
	now := time.Now()
	times := func(attempt int, deadline time.Time) (e delivered) {
		e.ID, e.Sequence = "E", "7"
		e.Delivery.Attempt, e.Delivery.Deadline = attempt, deadline
		return e
	}
	first, second := times(1, now.Add(-time.Second)), times(2, now.Add(hastyTimeout-time.Second/2))
	b.take("a", []delivered{first})
	b.gave(first, false)
	b.take("b", []delivered{second})
	b.answered([]delivered{first}, map[string]string{"E": "other_consumer"})
	require.Len(t, b.judge(nil).strange, 1)
	from := first.Delivery.Deadline.Add(-hastyTimeout)
	require.Equal(t, map[string]int{"a crash": 1}, b.judge([]outage{{"a crash", from.Add(-time.Minute), from}}).outages)
	b.gave(second, false)
	b.answered([]delivered{second}, nil)
	require.Empty(t, b.judge(nil).wrong)
	b.take("c", []delivered{times(3, time.Now().Add(time.Minute))})
	require.Len(t, b.judge(nil).wrong, 1)
	require.Empty(t, b.violations)
}
