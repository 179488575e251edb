package memory

import (
	"slices"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
)

// checkCondition looks for the first event after the condition's sequence that
// any item matches.
func (p *partition) checkCondition(c *concurrency.AppendCondition) error {
	if head := event.Sequence(len(p.events)); c.After > head {
		return concurrency.ConditionBeyondHead(c.After, head)
	}
	var first event.Sequence
	tooOld := false
	for i := range c.Items {
		n, over := p.firstMatch(&c.Items[i], c.After)
		tooOld = tooOld || over
		if n != 0 && (first == 0 || n < first) {
			first = n
		}
	}
	switch {
	case first != 0:
		return concurrency.ConditionFailed(c.After, p.holder(first))
	case tooOld:
		return concurrency.ConditionTooOld(c.After)
	default:
		return nil
	}
}

// firstMatch lets each key lead the scan once: whichever is rare enough to be
// scanned to its end, or to a match, answers for all. over says that none is.
func (p *partition) firstMatch(item *concurrency.Item, after event.Sequence) (found event.Sequence, over bool) {
	keys := item.Keys()
	if len(keys) == 0 {
		return p.firstOfTypes(item.Types, after), false
	}
	lists := make([][]event.Sequence, len(keys))
	for i, k := range keys {
		lists[i] = following(p.byKey[k], after)
	}
	for _, leading := range lists {
		scan := leading[:min(len(leading), concurrency.MaxConditionScan)]
		for _, n := range scan {
			if p.hasType(n, item.Types) && inAll(lists, n) {
				return n, false
			}
		}
		if len(scan) == len(leading) {
			return 0, false
		}
	}
	return 0, true
}

// firstOfTypes answers an item without keys: the first event after the sequence
// that has one of the types, or the first of all when no type is named.
func (p *partition) firstOfTypes(types []string, after event.Sequence) event.Sequence {
	if len(types) == 0 {
		if int(after) < len(p.events) {
			return after + 1
		}
		return 0
	}
	var first event.Sequence
	for _, t := range types {
		if list := following(p.byType[t], after); len(list) > 0 && (first == 0 || list[0] < first) {
			first = list[0]
		}
	}
	return first
}

func (p *partition) hasType(n event.Sequence, types []string) bool {
	return len(types) == 0 || slices.Contains(types, p.at(n).Type)
}

func inAll(lists [][]event.Sequence, n event.Sequence) bool {
	for _, list := range lists {
		if _, ok := slices.BinarySearch(list, n); !ok {
			return false
		}
	}
	return true
}

// following is the part of an ascending list after the sequence.
func following(list []event.Sequence, after event.Sequence) []event.Sequence {
	i, _ := slices.BinarySearch(list, after+1)
	return list[i:]
}
