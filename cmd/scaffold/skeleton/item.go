package skeleton

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Added is the data of skeleton.item.added. The payload of skeleton.add_item is the same
// without the id.
type Added struct {
	ItemID   string `json:"item_id"`
	Code     string `json:"code"`
	Quantity int    `json:"quantity"`
}

// Removed is the data of skeleton.item.removed and the payload of skeleton.remove_item.
type Removed struct {
	ItemID string `json:"item_id"`
	Reason string `json:"reason"`
}

// item is the state of an item's stream.
type item struct{ exists, removed bool }

func (s *item) apply(eventType string) {
	switch eventType {
	case EventAdded:
		s.exists = true
	case EventRemoved:
		s.removed = true
	}
}

// facts are the input.facts of policy/skeleton.rego.
type facts struct {
	Quantity int `json:"quantity"`
}

func planAdd(_ context.Context, in module.Input, _ module.State) (module.Plan, error) {
	var data Added
	if err := json.Unmarshal(in.Payload, &data); err != nil {
		return module.Plan{}, err
	}
	data.ItemID = in.DocumentID(0).String()
	return module.Plan{Events: []event.Draft{draft(in, EventAdded, data.ItemID, data)}, Facts: facts{data.Quantity}}, nil
}

func planRemove(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var data Removed
	if err := json.Unmarshal(in.Payload, &data); err != nil {
		return module.Plan{}, err
	}
	have, err := module.Load[*item](ctx, s, event.StreamID{Type: StreamItem, ID: data.ItemID})
	switch {
	case err != nil:
		return module.Plan{}, err
	case !have.exists:
		return module.Plan{}, fault.New(fault.NotFound, "skeleton.item.not_found", "there is no such item; look its id up in /api/skeleton/items").WithField("/item_id")
	case have.removed:
		return module.Plan{}, fault.New(fault.FailedPrecondition, "skeleton.item.wrong_state", "the item is removed already; nothing is left to do")
	}
	return module.Plan{Events: []event.Draft{draft(in, EventRemoved, data.ItemID, data)}, Facts: facts{}}, nil
}

// draft makes an event on an item's stream.
func draft(in module.Input, eventType, id string, data any) event.Draft {
	return event.Draft{
		Type: eventType, Stream: event.StreamID{Type: StreamItem, ID: id}, EffectiveDate: in.Date(), Data: data,
		Entities: []event.EntityRef{{Type: "item", ID: id, Role: "subject"}},
	}
}

// onDuplicate makes the fault for a code that another item has.
func onDuplicate(_ context.Context, _ module.Input, _ module.State, _ string, h fault.Holder) error {
	return fault.New(fault.Conflict, "skeleton.item.duplicate", "an item with this code exists; choose another code").WithHolder(h)
}
