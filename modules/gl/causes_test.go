package gl_test

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/gl/contract"
	"github.com/erpbackbone/backbone/ports"
)

// causingModule is a subledger as small as can be. It is named "ap", so it owns that
// module's periods and control account.
type causingModule struct{}

func (causingModule) Name() string { return "ap" }

// causeData is the event that causes a journal.
type causeData struct {
	Account string       `json:"account"`
	Amount  money.Number `json:"amount"`
}

// Register declares ap.cause, which posts, and ap.undo, which reverses.
func (causingModule) Register(r *module.Registrar) error {
	r.Prefixes("ap")
	open := json.RawMessage(`{"type": "object"}`)
	r.EventType(module.EventType{Registration: eventtype.Registration{Type: "ap.thing.caused", SchemaVersion: 1, Module: "ap", DataSchema: open}})
	r.Policy(ports.PolicyModule{Path: "ap.rego", Source: `package backbone.rules.ap
submit := {"allow": true, "reason": ""}
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []}`})
	emits := []string{"ap.thing.caused", contract.EventJournalPosted, contract.EventJournalReversed}
	r.Intent(module.IntentType{Type: "ap.cause", Schema: open, Policy: "backbone.rules.ap", Emits: emits, Plan: planCause})
	r.Intent(module.IntentType{Type: "ap.undo", Schema: open, Policy: "backbone.rules.ap", Emits: emits, Plan: planUndo})
	return nil
}

type causeRequest struct {
	Date     event.Date   `json:"date"`
	Account  string       `json:"account"`
	Control  string       `json:"control"`
	Currency string       `json:"currency"`
	Amount   money.Number `json:"amount"`
	Undo     event.ID     `json:"undo"`
}

func caused(in module.Input, r causeRequest, tags []string) event.Draft {
	return event.Draft{
		Type: "ap.thing.caused", EffectiveDate: r.Date, Stream: event.StreamID{Type: "ap.thing", ID: in.DocumentID(0).String()},
		Data: causeData{Account: r.Account, Amount: r.Amount}, Tags: tags,
	}
}

func planCause(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var r causeRequest
	if err := json.Unmarshal(in.Payload, &r); err != nil {
		return module.Plan{}, err
	}
	journal, err := contract.PlanSubledgerJournal(ctx, contract.NewLedger(s), contract.SubledgerJournal{
		SourceModule: "ap", CausedByIndex: 1, SourceEventToken: contract.EventID(in, 0).String(), Description: "Thing",
		PostingDate: r.Date, Currency: r.Currency, Dimensions: map[string]string{"department": "ENG", "vendor": "V-1"},
		Lines: []contract.SubledgerLine{
			{Account: r.Account, Side: contract.Debit, Amount: r.Amount},
			{Account: r.Control, Side: contract.Credit, Amount: r.Amount, Control: true, Dimensions: map[string]string{"vendor": "V-1"}},
		},
		JournalID: in.DocumentID(1),
	})
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{Events: []event.Draft{caused(in, r, journal.Period.Tags), journal.Draft}, Rules: journal.Rules}, nil
}

func planUndo(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
	var r causeRequest
	if err := json.Unmarshal(in.Payload, &r); err != nil {
		return module.Plan{}, err
	}
	reversal, err := contract.PlanReversal(ctx, contract.NewLedger(s), contract.Reversal{
		Module: "ap", OriginalID: r.Undo, PostingDate: r.Date, Reason: "Undone", JournalID: in.DocumentID(1),
		SourceEventToken: contract.EventID(in, 0).String(), CausedByIndex: 1, Index: 1,
	})
	if err != nil {
		return module.Plan{}, err
	}
	return module.Plan{
		Events: []event.Draft{caused(in, r, reversal.Journal.Period.Tags), reversal.Journal.Draft, reversal.Reversed},
		Rules:  reversal.Journal.Rules,
	}, nil
}
