package pipeline_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
)

// stockModule moves goods. stock.count_stock records the quantity that a read model reports, and
// asks a supervisor above 100.
type stockModule struct{ withoutItems bool }

func (stockModule) Name() string { return "stock" }

func (m stockModule) Register(r *module.Registrar) error {
	r.Prefixes("stock")
	r.Policy(ports.PolicyModule{Path: "stock.rego", Source: `package backbone.rules.stock
import rego.v1
submit := {"allow": true}
default big := false
big if input.facts.quantity > 100
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []} if not big
decision := {"outcome": "needs_approval", "denials": [], "needs": [{"roles": ["supervisor"], "reason": "over 100", "rule_id": "stock.limit"}], "rules": []} if big
`})
	schema := json.RawMessage(`{"type":"object","required":["quantity"],"additionalProperties":false,"properties":{"quantity":{"type":"integer"}}}`)
	for _, name := range []string{"stock.goods.moved", "stock.goods.counted"} {
		r.EventType(module.EventType{Registration: eventtype.Registration{
			Type: name, SchemaVersion: 1, Module: "stock", DataSchema: schema, RetentionClass: eventtype.Standard,
		}})
	}
	draft := func(in module.Input, name string, quantity int) event.Draft {
		return event.Draft{Type: name, Stream: event.StreamID{Type: "stock.goods", ID: in.DocumentID(0).String()}, Data: map[string]int{"quantity": quantity}}
	}
	r.Intent(module.IntentType{
		Type: "stock.move_goods", Schema: schema, Emits: []string{"stock.goods.moved"}, Policy: "backbone.rules.stock",
		Plan: module.PlanOf(func(_ context.Context, in module.Input, _ module.State, p struct{ Quantity int }) (module.Plan, error) {
			return module.Plan{Events: []event.Draft{draft(in, "stock.goods.moved", p.Quantity)}, Facts: map[string]int{"quantity": 0}}, nil
		}),
	})
	r.Intent(module.IntentType{
		Type: "stock.count_stock", Schema: json.RawMessage(`{"type":"object","additionalProperties":false}`), Emits: []string{"stock.goods.counted"}, Policy: "backbone.rules.stock",
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			read := module.ReportRead{Path: "stock/goods", Params: map[string]string{"place": "north"}, AsOf: in.Today}
			if !m.withoutItems {
				read.Items = []concurrency.Item{{Types: []string{"stock.goods.moved"}}}
			}
			rows, err := module.ReportRows[struct {
				Quantity int `json:"quantity"`
			}](ctx, s, read)
			if err != nil {
				return module.Plan{}, err
			}
			total := 0
			for _, row := range rows {
				total += row.Quantity
			}
			return module.Plan{Events: []event.Draft{draft(in, "stock.goods.counted", total)}, Facts: map[string]int{"quantity": total}}, nil
		},
	})
	return nil
}

// goodsRow is a row of the read model stock/goods.
type goodsRow struct {
	Quantity int    `json:"quantity"`
	Moved    string `json:"moved"`
}

// goodsReports is a read model that has one row per movement.
type goodsReports struct {
	log   pipeline.Log
	reads []module.ReportRead
	after func() // runs after a read, before its plan is appended
	err   error
}

func (g *goodsReports) ReadForPlan(ctx context.Context, le ports.LegalEntity, r module.ReportRead) (rows []any, known event.Sequence, err error) {
	if g.err != nil {
		return nil, 0, g.err
	}
	g.reads = append(g.reads, r)
	head, err := g.log.Head(ctx, le.Partition)
	if err != nil {
		return nil, 0, err
	}
	moved, err := g.log.Events(ctx, ports.EventQuery{Partition: le.Partition, Types: []string{"stock.goods.moved"}, Until: head.Sequence})
	if err != nil {
		return nil, 0, err
	}
	for i := range moved {
		row := goodsRow{Moved: moved[i].ID.String()}
		var body struct{ Data *goodsRow }
		body.Data = &row
		if err := json.Unmarshal(moved[i].Payload, &body); err != nil {
			return nil, 0, err
		}
		rows = append(rows, row)
	}
	if after := g.after; after != nil {
		g.after = nil
		after()
	}
	return rows, head.Sequence, nil
}

// stockFixture is a pipeline with stockModule and its read model.
type stockFixture struct {
	*cashFixture
	reports *goodsReports
}

func newStockFixture(t *testing.T) *stockFixture {
	t.Helper()
	f := &stockFixture{cashFixture: newFixtureWith(t, stockModule{})}
	f.reports = &goodsReports{log: f.store.Events}
	f.service.SetReports(f.reports)
	return f
}

func (f *stockFixture) submit(t *testing.T, intentType, payload string) (pipeline.Outcome, error) {
	t.Helper()
	return f.service.Submit(t.Context(), person("clerk"), pipeline.Request{Type: intentType, LegalEntity: f.entity, Payload: json.RawMessage(payload)})
}

func (f *stockFixture) move(t *testing.T, payload string) {
	t.Helper()
	_, err := f.submit(t, "stock.move_goods", payload)
	require.NoError(t, err)
}

// counted returns the quantities that were recorded.
func (f *stockFixture) counted(t *testing.T) []string {
	t.Helper()
	found, err := f.store.Events.Events(t.Context(), ports.EventQuery{Partition: f.entity.Partition, Types: []string{"stock.goods.counted"}})
	require.NoError(t, err)
	var out []string
	for i := range found {
		var body struct{ Data json.RawMessage }
		require.NoError(t, json.Unmarshal(found[i].Payload, &body))
		out = append(out, string(body.Data))
	}
	return out
}

func TestReport(t *testing.T) {
	t.Parallel()

	t.Run("plan_is_made_again_when_an_event_of_its_items_commits_after_the_read", func(t *testing.T) {
		t.Parallel()
		f := newStockFixture(t)
		f.move(t, `{"quantity":7}`)
		f.reports.after = func() { f.move(t, `{"quantity":5}`) }
		_, err := f.submit(t, "stock.count_stock", `{}`)
		require.NoError(t, err)
		require.Equal(t, []string{`{"quantity":12}`}, f.counted(t))
		require.Len(t, f.reports.reads, 2)
		require.Equal(t, map[string]string{"place": "north"}, f.reports.reads[1].Params)
	})

	t.Run("events_of_other_items_do_not_matter", func(t *testing.T) {
		t.Parallel()
		f := newStockFixture(t)
		f.move(t, `{"quantity":7}`)
		f.reports.after = func() {
			_, err := f.submit(t, "stock.count_stock", `{}`)
			require.NoError(t, err)
		}
		_, err := f.submit(t, "stock.count_stock", `{}`)
		require.NoError(t, err)
		require.Equal(t, []string{`{"quantity":7}`, `{"quantity":7}`}, f.counted(t))
		require.Len(t, f.reports.reads, 2, "one read per count")
	})

	t.Run("approval_reads_again", func(t *testing.T) {
		t.Parallel()
		f := newStockFixture(t)
		f.move(t, `{"quantity":101}`)
		f.reports.after = func() { f.move(t, `{"quantity":1}`) }
		waiting, err := f.submit(t, "stock.count_stock", `{}`)
		require.NoError(t, err)
		require.Equal(t, intent.PendingApproval, waiting.Status)
		require.Len(t, f.reports.reads, 2, "parking checks the read too")
		approve := func() error {
			_, err := f.service.Approve(t.Context(), person("boss", "supervisor"), pipeline.Decision{LegalEntity: f.entity, Intent: waiting.IntentID, PlanHash: waiting.PlanHash})
			return err
		}
		f.reports.after = func() { f.move(t, `{"quantity":1}`) }
		require.Equal(t, "intent.plan_changed", fault.CodeOf(approve()), "the approver saw another quantity")
		require.Empty(t, f.counted(t))
	})

	t.Run("read_model_that_is_not_caught_up_stores_no_refusal", func(t *testing.T) {
		t.Parallel()
		f := newStockFixture(t)
		f.reports.err = fault.New(fault.Timeout, module.CodeNotCaughtUp, "the read model has reached sequence 0; ask again in a moment")
		_, err := f.submit(t, "stock.count_stock", `{}`)
		refusal, _ := fault.As(err)
		require.Equal(t, module.CodeNotCaughtUp, refusal.Code)
		require.Empty(t, refusal.IntentID)
		head, err := f.store.Events.Head(t.Context(), f.entity.Partition)
		require.NoError(t, err)
		require.Zero(t, head.Sequence)
	})

	t.Run("pipeline_without_read_models_says_so", func(t *testing.T) {
		t.Parallel()
		f := newFixtureWith(t, stockModule{})
		_, err := f.service.Submit(t.Context(), person("clerk"), pipeline.Request{Type: "stock.count_stock", LegalEntity: f.entity, Payload: json.RawMessage(`{}`)})
		require.ErrorContains(t, err, "this pipeline has no read models")
	})

	t.Run("read_without_items_is_refused", func(t *testing.T) {
		t.Parallel()
		f := newFixtureWith(t, stockModule{withoutItems: true})
		f.service.SetReports(&goodsReports{log: f.store.Events})
		_, err := f.service.Submit(t.Context(), person("clerk"), pipeline.Request{Type: "stock.count_stock", LegalEntity: f.entity, Payload: json.RawMessage(`{}`)})
		require.ErrorContains(t, err, "without items")
	})
}
