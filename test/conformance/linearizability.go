package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// The operations of a history of conditional appends: a read of items, which returns a
// condition, an append under a condition, and an append without one.
type conditionInput struct {
	read  bool
	items []concurrency.Item
	after event.Sequence
	event modelEvent // what an append writes: type and keys
	free  bool       // an append without a condition
}

type conditionOutput struct {
	found    []event.Sequence // by a read
	head     event.Sequence   // as of a read
	accepted event.Sequence   // 0: refused
	holder   string           // of a refusal
}

// logState is the log as a sequential program has it: the events in order. States
// are never changed, so that the checker may go back to them.
type logState []modelEvent

// first is the sequence of the first event after the given one that an item matches.
func (s logState) first(items []concurrency.Item, after event.Sequence) event.Sequence {
	for i := int(after); i < len(s); i++ {
		if slices.ContainsFunc(items, s[i].matches) {
			return event.Sequence(i + 1)
		}
	}
	return 0
}

var conditionModel = porcupine.Model{
	Init: func() any { return logState(nil) },
	Step: func(state, input, output any) (bool, any) {
		log, in, out := state.(logState), input.(conditionInput), output.(conditionOutput)
		if in.read {
			var found []event.Sequence
			for i := int(in.after); i < len(log); i++ {
				if slices.ContainsFunc(in.items, log[i].matches) {
					found = append(found, event.Sequence(i+1))
				}
			}
			return out.head == event.Sequence(len(log)) && slices.Equal(out.found, found), log
		}
		var broken event.Sequence
		if !in.free {
			broken = log.first(in.items, in.after)
		}
		if out.accepted == 0 {
			return broken != 0 && out.holder == fmt.Sprint(broken), log
		}
		next := append(slices.Clip(log), in.event)
		return broken == 0 && out.accepted == event.Sequence(len(next)), next
	},
	Equal: func(a, b any) bool {
		return slices.EqualFunc(a.(logState), b.(logState), func(x, y modelEvent) bool { return x.typ == y.typ && slices.Equal(x.keys, y.keys) })
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// linearizableConditions lets clients read items, append under the conditions they
// got, stale ones too, and append without any, and looks for one order of all
// operations that explains every answer: what was found, the head, the sequence that
// was given, and the event that a refusal names.
func linearizableConditions(t *testing.T, s *suite) {
	const clients, operations, histories = 5, 12, 10
	for history := range histories {
		b := s.newPartition(t)
		recorded := make([][]porcupine.Operation, clients)
		start := time.Now()
		errs := race(clients, func(client int) error {
			random := rand.New(rand.NewPCG(uint64(history), uint64(client)))
			known := conditionInput{items: b.randomItems(random)}
			for range operations {
				in := conditionInput{items: known.items, after: known.after, event: b.randomEvent(random)}
				switch random.IntN(5) {
				case 0, 1:
					in = conditionInput{read: true, items: b.randomItems(random)}
				case 2:
					in.free = true
				}
				op := porcupine.Operation{ClientId: client, Input: in, Call: time.Since(start).Nanoseconds()}
				out, err := b.perform(in)
				if err != nil {
					return err
				}
				op.Return, op.Output = time.Since(start).Nanoseconds(), out
				recorded[client] = append(recorded[client], op)
				if in.read {
					known.items, known.after = in.items, out.head
				}
			}
			return nil
		})
		for _, err := range errs {
			require.NoError(t, err)
		}
		result := porcupine.CheckOperationsTimeout(conditionModel, slices.Concat(recorded...), maxWait)
		require.Equal(t, porcupine.Ok, result, "no order of the operations explains the answers")
	}
}

func (b *partition) randomEvent(random *rand.Rand) modelEvent {
	e := modelEvent{typ: []string{b.opened.Type, b.changed.Type}[random.IntN(2)]}
	for tag := range 2 {
		if random.IntN(2) == 0 {
			e.keys = append(e.keys, event.TagKey(fmt.Sprint("t", tag)))
		}
	}
	return e
}

func (b *partition) randomItems(random *rand.Rand) (items []concurrency.Item) {
	for range 1 + random.IntN(2) {
		var item concurrency.Item
		for tag := range 2 {
			if random.IntN(2) == 0 {
				item.Tags = append(item.Tags, fmt.Sprint("t", tag))
			}
		}
		if len(item.Tags) == 0 || random.IntN(2) == 0 {
			item.Types = []string{b.opened.Type}
		}
		items = append(items, item)
	}
	return items
}

// perform asks the store. A read that is one operation to its caller is two to the
// store, the head and the matches up to it.
func (b *partition) perform(in conditionInput) (conditionOutput, error) {
	ctx := context.Background()
	if in.read {
		head, err := b.store.Head(ctx, b.le.Partition)
		if err != nil {
			return conditionOutput{}, err
		}
		out := conditionOutput{head: head.Sequence}
		page, err := b.store.Matches(ctx, ports.MatchQuery{Partition: b.le.Partition, Items: in.items, Until: head.Sequence, Limit: 1000})
		for _, m := range page.Matches {
			out.found = append(out.found, m.Event.Sequence)
		}
		return out, err
	}
	typ := b.opened
	if in.event.typ == b.changed.Type {
		typ = b.changed
	}
	e := b.event(typ, stream("1"))
	e.Keys = slices.Clone(in.event.keys)
	r := b.request(e)
	if !in.free {
		r.Conditions = []concurrency.AppendCondition{{Items: in.items, After: in.after}}
	}
	result, err := b.try(r)
	if f, ok := fault.As(err); ok && f.Code == concurrency.CodeConditionFailed && f.Holder != nil {
		return conditionOutput{holder: f.Holder.Sequence}, nil
	}
	if err != nil {
		return conditionOutput{}, err
	}
	return conditionOutput{accepted: result.Events[0].Sequence}, nil
}
