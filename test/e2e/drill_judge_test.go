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
	answered := func(from, till int, taken bool) *deliveryRecord {
		return &deliveryRecord{from: second(from), at: second(from), ended: second(till), taken: taken}
	}
	open := func(from int) *deliveryRecord { return &deliveryRecord{from: second(from), at: second(from)} }
	leased := func(h *deliveryRecord, n int) *deliveryRecord { h.until = second(n); return h }
	refused := func(h *deliveryRecord) *deliveryRecord { h.refused = true; return h }
	for _, c := range []struct {
		name           string
		earlier, later *deliveryRecord
		want           verdict
	}{
		{"the answer was late because of an outage", answered(9, 13, false), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"handed out while something was broken", open(11), open(14), verdict{outages: map[string]int{"first": 1}}},
		{"never answered, and then something broke", open(17), open(20), verdict{outages: map[string]int{"second": 1}}},
		{"between two outages", answered(13, 19, false), open(16), verdict{unexplained: []string{"E"}}},
		{"what broke afterwards explains nothing", open(5), open(8), verdict{unexplained: []string{"E"}}},
		{"answered before something broke", answered(7, 8, false), open(11), verdict{unexplained: []string{"E"}}},
		{"a process was stalled", answered(29, 33, false), open(32), verdict{stalled: 1}},
		{"a process was stalled, then something broke", answered(9, 13, false), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"acknowledged before the stall", answered(29, 31, true), open(32), verdict{contradicted: []string{"E"}}},
		{"its own doing", refused(open(13)), open(16), verdict{refused: 1}},
		{"its own doing, while something was broken", refused(answered(11, 12, false)), open(12), verdict{refused: 1}},
		{"acknowledged while it was already out again", answered(9, 13, true), open(12), verdict{outages: map[string]int{"first": 1}}},
		{"acknowledged before, whatever broke", answered(9, 11, true), open(12), verdict{contradicted: []string{"E"}}},
		{"acknowledged before, though it means to refuse", refused(answered(1, 2, true)), open(3), verdict{contradicted: []string{"E"}}},
		{"before its time was over, whatever broke", leased(open(10), 13), open(12), verdict{contradicted: []string{"E"}}},
		{"before its time was over, as it wanted", refused(leased(open(10), 13)), open(12), verdict{refused: 1}},
		{"when its time was over", leased(open(10), 13), open(13), verdict{outages: map[string]int{"first": 1}}},
		{"a feed", nil, nil, verdict{unexplained: []string{"E"}}},
	} {
		b := newDeliveryLog("reader", hastyTimeout)
		b.recordEvent("key", "E", 1, 1, c.earlier)
		b.recordEvent("key", "E", 1, 2, c.later)
		got := b.explainRepeats(broken)
		require.Equal(t, c.want.refused, got.refused, c.name)
		require.Equal(t, c.want.stalled, got.stalled, c.name)
		require.Len(t, got.outages, len(c.want.outages), c.name)
		for what, n := range c.want.outages {
			require.Equal(t, n, got.outages[what], c.name)
		}
		require.Len(t, got.contradicted, len(c.want.contradicted), c.name)
		require.Len(t, got.unexplained, len(c.want.unexplained), c.name)
		require.Equal(t, 1-c.want.refused-c.want.stalled, got.notRefused(), c.name)
	}
}

// TestFleetReaderOutcomes follows an event that three consumers are handed,
// of which the first answers too late.
func TestFleetReaderOutcomes(t *testing.T) {
	b := newDeliveryLog("reader", hastyTimeout)
	now := time.Now()
	times := func(attempt int, deadline time.Time) (e delivered) {
		e.ID, e.Sequence = "E", "7"
		e.Delivery.Attempt, e.Delivery.Deadline = attempt, deadline
		return e
	}
	first, second := times(1, now.Add(time.Minute)), times(2, now.Add(2*time.Minute))
	require.Len(t, b.recordPoll("a", []delivered{first}), 1)
	require.Empty(t, b.recordPoll("a", []delivered{times(1, now)}), "its time was over before it came")
	require.Empty(t, b.recordOrderedPoll([]delivered{times(1, now)}))
	b.recordAnswerSent(first, false)
	b.recordPoll("b", []delivered{second})
	b.recordAcknowledged([]delivered{first}, map[string]string{"E": "other_consumer"})
	require.Len(t, b.explainRepeats(nil).unexplained, 1)
	from := first.Delivery.Deadline.Add(-hastyTimeout)
	require.Equal(t, map[string]int{"a crash": 1}, b.explainRepeats([]outage{{what: "a crash", from: from.Add(-time.Minute), till: from}}).outages)
	b.recordAnswerSent(second, false)
	b.recordAcknowledged([]delivered{second}, nil)
	require.Empty(t, b.explainRepeats(nil).contradicted)
	b.recordPoll("c", []delivered{times(3, time.Now().Add(2*time.Minute))})
	require.Len(t, b.explainRepeats(nil).contradicted, 1)
	require.Empty(t, b.violations)
}
