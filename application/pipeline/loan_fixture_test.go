package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/ports"
)

// loanModule has plans and needs that depend on state: an event holds the sum lent before
// it, so every loan changes the plans of those that wait. A loan over 100 needs a
// supervisor, one over 1000 a director too; nothing is needed once 10,000 are lent. Some amounts
// make the policy contradict itself.
type loanModule struct{}

const (
	loanNeedsNothing   = 13 // needs_approval without a need
	loanAllowedYetNeed = 14 // allow with a need
	loanOnOwnStream    = 15 // its plan writes a stream that is named for the sum lent before
)

const loanPolicy = `package backbone.rules.loan
import rego.v1
submit := {"allow": true}
default small := false
small if input.facts.amount <= 100
small if input.facts.lent >= 10000
needs contains {"roles": ["supervisor"], "reason": "over 100", "rule_id": "loan.limit"} if not small
needs contains {"roles": ["director"], "reason": "over 1000", "rule_id": "loan.limit2"} if { not small; input.facts.amount > 1000 }
needs contains {"roles": ["supervisor"], "reason": "always", "rule_id": "loan.always"} if input.facts.amount in {14, 15}
outcome := "needs_approval" if input.facts.amount == 13
else := "allow" if input.facts.amount == 14
else := "needs_approval" if count(needs) > 0
else := "allow"
decision := {"outcome": outcome, "denials": [], "needs": [n | some n in needs], "rules": [{"rule_id": "loan.limit", "rule_name": "limit", "result": "fired"}]}
`

type lentSum struct{ Lent int64 }

type loan struct {
	Amount int64 `json:"amount"`
	Before int64 `json:"before"`
}

var loans = event.StreamID{Type: "loan", ID: "main"}

func (loanModule) Name() string { return "loan" }

func (loanModule) Register(r *module.Registrar) error {
	r.Prefixes("loan")
	r.Policy(ports.PolicyModule{Path: "loan.rego", Source: loanPolicy})
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "loan.loan.given", SchemaVersion: 1, Module: "loan", RetentionClass: eventtype.Standard,
		DataSchema: json.RawMessage(`{"type":"object","required":["amount","before"],"additionalProperties":false,"properties":{"amount":{"type":"integer"},"before":{"type":"integer"}}}`),
	}})
	r.Fold(module.Fold{
		StreamType: "loan",
		New:        func() any { return &lentSum{} },
		Clone:      func(s any) any { c := *s.(*lentSum); return &c },
		Apply: func(s any, _ event.Recorded, data []byte) error {
			var l loan
			err := json.Unmarshal(data, &l)
			s.(*lentSum).Lent += l.Amount
			return err
		},
	})
	r.Intent(module.IntentType{
		Type: "loan.give_loan", Emits: []string{"loan.loan.given"}, Policy: "backbone.rules.loan",
		Schema: json.RawMessage(`{"type":"object","required":["amount"],"additionalProperties":false,"properties":{"amount":{"type":"integer"}}}`),
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			var l loan
			if err := json.Unmarshal(in.Payload, &l); err != nil {
				return module.Plan{}, err
			}
			lent, err := module.Load[*lentSum](ctx, s, loans)
			if err != nil {
				return module.Plan{}, err
			}
			l.Before = lent.Lent
			stream := loans
			if l.Amount == loanOnOwnStream {
				stream.ID = fmt.Sprint("after-", l.Before)
			}
			return module.Plan{
				Events: []event.Draft{{Type: "loan.loan.given", Stream: stream, Data: l}},
				Facts:  map[string]any{"amount": l.Amount, "lent": lent.Lent},
				Amount: &module.Amount{Value: money.FromInt(l.Amount), Currency: "EUR"},
			}, nil
		},
	})
	return nil
}

func (b *cashFixture) giveLoan(amount int) pipeline.Request {
	return pipeline.Request{Type: "loan.give_loan", LegalEntity: b.entity, Payload: json.RawMessage(fmt.Sprintf(`{"amount":%d}`, amount))}
}
