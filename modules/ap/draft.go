package ap

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// planDraft plans to keep any part of a document, new or in place of an earlier draft. A draft
// claims no number and posts nothing. It keeps the vendor's name of a registered company only:
// drafts have no sealed members, and an unknown vendor may be a person.
func planDraft(k contract.Kind) func(context.Context, module.Input, module.State) (module.Plan, error) {
	return func(ctx context.Context, in module.Input, s module.State) (plan module.Plan, err error) {
		var ref struct {
			contract.DocumentRef
			VendorID   string `json:"vendor_id"`
			VendorName string `json:"vendor_name"`
		}
		if err := module.DecodePayload(in.Payload, &ref); err != nil {
			return module.Plan{}, err
		}
		body := in.Payload
		if ref.VendorName != "" {
			company := false
			if ref.VendorID != "" {
				vendor, err := module.Load[*domain.Vendor](ctx, s, contract.VendorStream(ref.VendorID))
				if err != nil {
					return module.Plan{}, err
				}
				company = vendor.Registered && !vendor.Master.NaturalPerson
			}
			if !company {
				body = editPayload(body, func(p members) { delete(p, "vendor_name") })
				defer func() { plan.Kept = body }()
			}
		}
		id := ref.ID()
		plan = module.Plan{Facts: factsOf(in)}
		if id == "" {
			id = in.DocumentID(0).String()
			body = editPayload(body, func(p members) { p.set(k.IDField(), id) })
			plan.Streams = []concurrency.StreamExpectation{{Stream: k.Stream(id), Expected: concurrency.NoStream()}}
		} else {
			d, err := loadDocument(ctx, s, k, id)
			if err != nil {
				return module.Plan{}, err
			}
			if err := d.RequireState(domain.StateDraft); err != nil {
				return module.Plan{}, err
			}
			plan.CorrelationID = d.CorrelationID
		}
		entities := []event.EntityRef{k.Ref(id)}
		if ref.VendorID != "" {
			entities = append(entities, contract.VendorRef(ref.VendorID))
		}
		plan.Events = []event.Draft{{
			Type: k.Event(contract.Drafted), EffectiveDate: in.Date(), Stream: k.Stream(id), Data: json.RawMessage(body), Entities: entities,
		}}
		return plan, nil
	}
}

// planDiscardDraft plans the end of a draft.
func planDiscardDraft(ctx context.Context, in module.Input, s module.State, p contract.DocumentDiscarded) (module.Plan, error) {
	k := contract.Invoice
	if p.CreditMemoID != "" {
		k = contract.CreditMemo
	}
	d, err := loadDocument(ctx, s, k, p.ID())
	if err != nil {
		return module.Plan{}, err
	}
	if err := d.RequireState(domain.StateDraft); err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{
			Type: k.Event(contract.Discarded), EffectiveDate: in.Date(), Stream: k.Stream(p.ID()), Data: p, Entities: []event.EntityRef{k.Ref(p.ID())},
		}},
		Facts: factsOf(in), CorrelationID: d.CorrelationID,
	}, nil
}
