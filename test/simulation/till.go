package simulation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/adapters/memory"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// tillModule is the business module of the simulation: tills that may not be overdrawn, receipts
// that are numbered without gaps, slips that count once, and members with personal data.
type tillModule struct{}

const (
	movedType  = "till.cash.moved"
	joinedType = "till.member.joined"
	leftType   = "till.member.left"

	moveIntent     = "till.move"
	transferIntent = "till.transfer"
	joinIntent     = "till.join"

	balances = "till.balances"
)

// approvalFrom is the amount from which a movement needs a supervisor.
const approvalFrom = 500

const tillPolicy = `package backbone.rules.till
import rego.v1
submit := {"allow": allowed, "reason": "cashiers only"}
default allowed := false
allowed if "cashier" in input.actor.roles
default big := false
big if input.facts.amount >= 500
decision := {"outcome": "needs_approval", "denials": [], "needs": [{"roles": ["supervisor"], "reason": "a large amount", "rule_id": "till.limit"}], "rules": [{"rule_id": "till.limit", "rule_name": "limit", "result": "fired"}]} if big
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": [{"rule_id": "till.limit", "rule_name": "limit", "result": "condition_false"}]} if not big
`

// movement is the data of till.cash.moved, and the payload of a movement with From or To.
type movement struct {
	Till    string `json:"till"`
	Amount  int64  `json:"amount"` // in cents, negative: out
	Receipt string `json:"receipt,omitempty"`
	Slip    string `json:"slip,omitempty"`
	Memo    string `json:"memo,omitempty"` // may be redacted
}

type transfer struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int64  `json:"amount"`
}

type joining struct {
	Member string `json:"member"`
	Email  string `json:"email"`
	Wish   string `json:"wish,omitempty"` // in clear, may be redacted
}

// tillState is the state of a till.
type tillState struct {
	Balance int64 `json:"balance"`
	Moves   int   `json:"moves"`
}

func (tillModule) Name() string { return "till" }

func (tillModule) Register(r *module.Registrar) error {
	r.Prefixes("till")
	r.Policy(ports.PolicyModule{Path: "till.rego", Source: tillPolicy})
	r.Roles(
		module.Role{Name: "cashier", Description: "moves cash", Reads: []shredding.Class{"contact"}},
		module.Role{Name: "supervisor", Description: "approves large amounts", Approves: true},
	)
	object := func(members, required string) json.RawMessage {
		return json.RawMessage(`{"type":"object","additionalProperties":false,"required":` + required + `,"properties":` + members + `}`)
	}
	movedSchema := object(`{"till":{"type":"string"},"amount":{"type":"integer"},"receipt":{"type":"string"},"slip":{"type":"string"},"memo":{"type":"string"}}`, `["till","amount"]`)
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: movedType, SchemaVersion: 1, Module: "till", DataSchema: movedSchema, RetentionClass: eventtype.Standard,
		BusinessKeys: []eventtype.BusinessKeyRule{{Name: "slip", Fields: []string{"slip"}, Normalise: eventtype.NormaliseDocumentNumber, Document: "slip"}},
	}, Redactable: []string{"$.memo"}})
	memberFields := []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"path":"$.member","type":"member"}`)}}
	memberSchema := object(`{"member":{"type":"string"},"email":{"type":"string"},"wish":{"type":"string"}}`, `["member"]`)
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: joinedType, SchemaVersion: 1, Module: "till", DataSchema: memberSchema, PIIFields: memberFields, RetentionClass: eventtype.Standard,
	}, Redactable: []string{"$.wish"}})
	r.Fold(module.Fold{
		StreamType: "till",
		New:        func() any { return &tillState{} },
		Clone:      func(s any) any { c := *s.(*tillState); return &c },
		Apply: func(s any, e event.Recorded, data []byte) error {
			var m movement
			if err := json.Unmarshal(data, &m); err != nil {
				return err
			}
			t := s.(*tillState)
			t.Balance, t.Moves = t.Balance+m.Amount, t.Moves+1
			return nil
		},
		Codec: module.JSONCodec[tillState](1), IsLong: true,
	})
	r.Intent(module.IntentType{
		Type: moveIntent, Schema: movedSchema, Emits: []string{movedType}, Policy: "backbone.rules.till", Plan: planMove,
		OnDuplicate: func(_ context.Context, _ module.Input, _ module.State, _ string, h fault.Holder) error {
			return fault.New(fault.Conflict, "till.slip_used", "the slip was used; look at the holder").WithHolder(h)
		},
	})
	r.Intent(module.IntentType{
		Type: transferIntent, Schema: object(`{"from":{"type":"string"},"to":{"type":"string"},"amount":{"type":"integer"}}`, `["from","to","amount"]`),
		Emits: []string{movedType}, Policy: "backbone.rules.till", Plan: planTransfer,
	})
	r.Intent(module.IntentType{
		Type: joinIntent, Schema: memberSchema, PIIFields: memberFields, RetentionClass: eventtype.Standard,
		Emits: []string{joinedType}, Policy: "backbone.rules.till", Plan: planJoin,
	})
	r.Projection(module.Projection{Name: balances, Version: 1, EventTypes: []string{movedType}})
	r.ReadModel(module.ReadModel{
		Name: "balances", Description: "balances of tills", Projection: balances,
		Columns: []module.Column{{Name: "till", Type: "string", Description: "the till"}, {Name: "balance", Type: "integer", Description: "in cents"}, {Name: "moves", Type: "integer", Description: "number of movements"}},
	})
	return nil
}

func tillStream(id string) event.StreamID { return event.StreamID{Type: "till", ID: id} }

// move drafts a movement with the next receipt number.
func move(m movement) event.Draft {
	const token = "~receipt~"
	m.Receipt = token
	return event.Draft{
		Type: movedType, Stream: tillStream(m.Till), Data: m, Tags: []string{"till:" + m.Till}, Entities: []event.EntityRef{{Type: "till", ID: m.Till, Role: "till"}},
		Series: []event.SeriesNumber{{Series: "receipts", Prefix: "R-", Width: 6, Token: token}},
	}
}

func planMove(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var m movement
	if err := json.Unmarshal(in.Payload, &m); err != nil {
		return module.Plan{}, err
	}
	till, err := module.Load[*tillState](ctx, s, tillStream(m.Till))
	if err != nil {
		return module.Plan{}, err
	}
	if till.Balance+m.Amount < 0 {
		return module.Plan{}, overdrawn()
	}
	return module.Plan{Events: []event.Draft{move(m)}, Facts: map[string]any{"amount": max(m.Amount, -m.Amount)}}, nil
}

const codeOverdrawn = "till.overdrawn"

func overdrawn() error {
	return fault.New(fault.FailedPrecondition, codeOverdrawn, "there is not enough in the till; take less")
}

func planTransfer(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var t transfer
	if err := json.Unmarshal(in.Payload, &t); err != nil {
		return module.Plan{}, err
	}
	from, err := module.Load[*tillState](ctx, s, tillStream(t.From))
	if err != nil {
		return module.Plan{}, err
	}
	if from.Balance < t.Amount {
		return module.Plan{}, overdrawn()
	}
	return module.Plan{
		Events: []event.Draft{move(movement{Till: t.From, Amount: -t.Amount}), move(movement{Till: t.To, Amount: t.Amount})},
		Facts:  map[string]any{"amount": t.Amount},
	}, nil
}

func planJoin(_ context.Context, in module.Input, _ module.State) (module.Plan, error) {
	var j struct {
		Member string          `json:"member"`
		Email  json.RawMessage `json:"email,omitempty"`
		Wish   string          `json:"wish,omitempty"`
	}
	if err := json.Unmarshal(in.Payload, &j); err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{{Type: joinedType, Stream: event.StreamID{Type: "member", ID: j.Member}, Data: j}},
		Facts:  map[string]any{"amount": 0},
	}, nil
}

// balanceRow is a row of the projection of balances.
type balanceRow struct {
	tillState
	Sequence event.Sequence // of the last movement
	before   *balanceRow    // as it was before that
}

// at is the row as it was at a sequence, nil if there was none.
func (b *balanceRow) at(n event.Sequence) *balanceRow {
	for b != nil && b.Sequence > n {
		b = b.before
	}
	return b
}

func rowKey(version int, p event.PartitionID, till string) string {
	return fmt.Sprintf("%d/%d/%s", version, p, till)
}

// balancesHandler builds the projection of balances in memory.
type balancesHandler struct{}

// Apply implements ports.ProjectionHandler.
func (balancesHandler) Apply(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	rows, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	for i := range b.Events {
		e := &b.Events[i]
		var payload struct{ Data movement }
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			return err
		}
		m := payload.Data
		key := rowKey(b.Version, b.Partition, m.Till)
		stored, _ := rows.Get(balances, key)
		next := balanceRow{tillState: tillState{m.Amount, 1}, Sequence: e.Sequence}
		if row, found := stored.(*balanceRow); found {
			next.Balance, next.Moves, next.before = row.Balance+m.Amount, row.Moves+1, row
		}
		rows.Put(balances, key, &next)
	}
	return nil
}

// Reset implements ports.ProjectionResetter.
func (balancesHandler) Reset(_ context.Context, tx ports.ProjectionTx, b ports.ProjectionBatch) error {
	rows, err := memory.Bind(tx)
	if err != nil {
		return err
	}
	for _, row := range rows.Rows(balances, rowKey(b.Version, b.Partition, "")) {
		rows.Delete(balances, row.Key)
	}
	return nil
}
