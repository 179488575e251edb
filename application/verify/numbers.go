package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// An event that takes numbers of series says which. Within a series they have no gap, and the row
// of the series continues with the next one. Numbers from before events said so come first; the
// row says how many they are.

// numbers compares the series of one partition with the numbers that its events took.
type numbers struct {
	rows  []ports.NumberSeries // as they were when the run began
	head  event.Sequence
	taken map[string]*takenNumbers // by series
}

// takenNumbers are the numbers of one series.
type takenNumbers struct {
	first, last uint64
	atHead      uint64 // the last one up to the head
	at          event.Sequence
}

func newNumbers(head event.Sequence) numbers {
	return numbers{head: head, taken: map[string]*takenNumbers{}}
}

// note takes the numbers of the next event, whose payload is as it was recorded.
func (n *numbers) note(c *chain, e *event.Recorded, member json.RawMessage) {
	var drawn []event.DrawnNumber
	if json.Unmarshal(member, &drawn) != nil {
		c.add(NumberMismatch, e.Sequence, "the numbers that the event took cannot be read")
		return
	}
	for _, d := range drawn {
		value, ok := d.Value()
		s := n.taken[d.Series]
		switch {
		case !ok:
			c.add(NumberMismatch, e.Sequence, fmt.Sprintf("%q is no number of the series %s", d.Number, d.Series))
			continue
		case s == nil:
			s = &takenNumbers{first: value}
			n.taken[d.Series] = s
		case value != s.last+1 && len(c.keys.damaged) == 0:
			c.add(NumberMismatch, e.Sequence, fmt.Sprintf("number %d of the series %s follows %d", value, d.Series, s.last))
		}
		s.last, s.at = value, e.Sequence
		if e.Sequence <= n.head {
			s.atHead = value
		}
	}
}

// finish compares the rows. With damaged events, which have findings of their own, it cannot be
// told which numbers were taken.
func (n *numbers) finish(c *chain, damaged bool) {
	for _, row := range n.rows {
		c.report.UnboundNumbers += row.UnboundThrough
		s := n.taken[row.Series]
		delete(n.taken, row.Series)
		switch {
		case damaged:
		case s == nil || s.atHead == 0:
			// The first number may have been taken since the run began.
			if row.Next != row.UnboundThrough+1 && (s == nil || row.Next < s.first || row.Next > s.last+1) {
				c.add(NumberMismatch, 0, fmt.Sprintf("the series %s goes on with %d, and no event took a number of it", row.Series, row.Next))
			}
		case s.first != row.UnboundThrough+1:
			c.add(NumberMismatch, s.at, fmt.Sprintf("the first number of the series %s that an event took is %d, after %d earlier ones", row.Series, s.first, row.UnboundThrough))
		case row.Next < s.atHead+1 || row.Next > s.last+1:
			c.add(NumberMismatch, s.at, fmt.Sprintf("the series %s goes on with %d after %d", row.Series, row.Next, s.last))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.taken)) {
		if s := n.taken[name]; s.atHead > 0 && !damaged {
			c.add(NumberMismatch, s.at, fmt.Sprintf("the series %s has no row, and would begin again", name))
		}
	}
}
