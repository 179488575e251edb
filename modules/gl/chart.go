package gl

import (
	"context"
	"strconv"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

func chartTypes() []module.EventType {
	account := declare(domain.EventAccountDefined, "An account joined the chart of accounts.", "")
	account.BusinessKeys, account.Redactable = key("code", "code", "code"), []string{"$.name"}
	value := declare(domain.EventDimensionValueDefined, "A value joined a dimension.", "")
	value.BusinessKeys, value.Redactable = key("value", "value", "dimension", "value"), []string{"$.name"}
	return []module.EventType{
		account, value,
		explained(domain.EventAccountBlocked, "An account takes no more lines."),
		explained(domain.EventAccountUnblocked, "An account takes lines again."),
	}
}

func chartIntents() []module.IntentType {
	return []module.IntentType{
		{Type: "gl.define_account", Description: "Add an account to the chart.", Emits: []string{domain.EventAccountDefined}, Plan: planDefineAccount},
		{Type: "gl.block_account", Description: "Let an account take no more lines.", Emits: []string{domain.EventAccountBlocked}, Plan: planBlockAccount},
		{Type: "gl.unblock_account", Description: "Let a blocked account take lines again.", Emits: []string{domain.EventAccountUnblocked}, Plan: planUnblockAccount},
		{Type: "gl.define_dimension_value", Description: "Add a value to a dimension.", Emits: []string{domain.EventDimensionValueDefined}, Plan: module.PlanOf(planDefineDimensionValue)},
	}
}

func planDefineAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	account := domain.Account{Postable: true, Control: domain.ControlNone}
	if err := module.DecodePayload(in.Payload, &account); err != nil {
		return module.Plan{}, err
	}
	if account.NormalSide == "" {
		account.NormalSide = normalSide(account.Type)
	}
	for i, code := range account.Currencies {
		if _, err := money.LookupCurrency(code, in.Today.Time()); err != nil {
			return module.Plan{}, fault.WithField(err, "/currencies/"+strconv.Itoa(i))
		}
	}
	if err := checkActive(account.ActiveFrom, account.ActiveTo); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	have, err := loadAccount(ctx, s, account.Code)
	if err != nil {
		return module.Plan{}, err
	}
	if have.Defined {
		return module.Plan{}, duplicateFault(domain.EventAccountDefined, "account "+account.Code).WithField("/code")
	}
	if account.Parent != "" {
		if _, err := ledger.Account(ctx, account.Parent); err != nil {
			return module.Plan{}, fault.WithField(err, "/parent")
		}
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventAccountDefined, EffectiveDate: in.Date(), Stream: domain.AccountStream(account.Code),
			Data: account, Entities: entity("account", account.Code),
		}},
		Facts: known,
	}, err
}

// normalSide returns the side that increases accounts of a type.
func normalSide(accountType string) domain.Side {
	if accountType == "asset" || accountType == "expense" {
		return domain.Debit
	}
	return domain.Credit
}

func checkActive(from, to *event.Date) error {
	if from != nil && to != nil && *to < *from {
		return fault.New(fault.Invalid, "intent.schema_invalid", "active_to %s is before active_from %s; correct the dates", *to, *from).
			WithField("/active_to")
	}
	return nil
}

// accountChange is the data of gl.account.blocked and gl.account.unblocked.
type accountChange struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

func planBlockAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	return planSetBlocked(ctx, in, s, domain.EventAccountBlocked, false)
}

func planUnblockAccount(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	return planSetBlocked(ctx, in, s, domain.EventAccountUnblocked, true)
}

func planSetBlocked(ctx context.Context, in module.Input, s module.State, eventType string, blockedBefore bool) (module.Plan, error) {
	var mark accountChange
	if err := module.DecodePayload(in.Payload, &mark); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	if _, err := ledger.Account(ctx, mark.Code); err != nil {
		return module.Plan{}, fault.WithField(err, "/code")
	}
	have, err := loadAccount(ctx, s, mark.Code)
	if err != nil {
		return module.Plan{}, err
	}
	if have.Blocked != blockedBefore {
		state, allowed := "blocked", "active"
		if !have.Blocked {
			state, allowed = allowed, state
		}
		return module.Plan{}, wrongStateFault("gl.account", "account "+mark.Code, state, allowed)
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: eventType, EffectiveDate: in.Date(), Stream: domain.AccountStream(mark.Code),
			Data: mark, Entities: entity("account", mark.Code),
		}},
		Facts: known,
	}, err
}

func planDefineDimensionValue(ctx context.Context, in module.Input, s module.State, value domain.DimensionValue) (module.Plan, error) {
	if err := checkActive(value.ActiveFrom, value.ActiveTo); err != nil {
		return module.Plan{}, err
	}
	ledger := contract.NewLedger(s)
	have, err := ledger.DimensionValueDefined(ctx, value.Dimension, value.Value)
	if err != nil {
		return module.Plan{}, err
	}
	if have {
		return module.Plan{}, duplicateFault(domain.EventDimensionValueDefined, "value "+value.Value+" of "+value.Dimension).WithField("/value")
	}
	known, err := loadFacts(ctx, ledger)
	return module.Plan{
		Events: []event.Draft{{
			Type: domain.EventDimensionValueDefined, EffectiveDate: in.Date(),
			Stream: domain.DimensionStream(value.Dimension), Data: value,
		}},
		Facts: known,
	}, err
}
