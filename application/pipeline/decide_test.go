package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

// seatModule decides by State.Decide instead of a stream: a seat is sold while the show
// has seats left, at most one to a person. Both facts come from one read.
type seatModule struct{}

const showSeats = 3

func (seatModule) Name() string { return "seats" }

func (seatModule) Register(r *module.Registrar) error {
	r.Prefixes("seats")
	r.Policy(ports.PolicyModule{Path: "seats.rego", Source: `package backbone.rules.seats
submit := {"allow": true}
decision := {"outcome": "allow", "denials": [], "needs": [], "rules": []}
`})
	schema := json.RawMessage(`{"type":"object","required":["show"],"additionalProperties":false,"properties":{"show":{"type":"string"}}}`)
	r.EventType(module.EventType{Registration: eventtype.Registration{
		Type: "seats.seat.taken", SchemaVersion: 1, Module: "seats", DataSchema: schema, RetentionClass: eventtype.Standard,
	}})
	r.Intent(module.IntentType{
		Type: "seats.take_seat", Schema: schema, Emits: []string{"seats.seat.taken"}, Policy: "backbone.rules.seats",
		Plan: func(ctx context.Context, in module.Input, s module.State) (module.Plan, error) {
			var wanted struct {
				Show string `json:"show"`
			}
			if err := json.Unmarshal(in.Payload, &wanted); err != nil {
				return module.Plan{}, err
			}
			show, person := "show:"+wanted.Show, "guest:"+in.PersonID
			count := func(n int, _ event.Recorded, _ []byte) (int, error) { return n + 1, nil }
			var sold, own int
			if err := s.Decide(ctx,
				module.Project(&sold, count, concurrency.Item{Types: []string{"seats.seat.taken"}, Tags: []string{show}}),
				module.Project(&own, count, concurrency.Item{Types: []string{"seats.seat.taken"}, Tags: []string{show, person}}),
			); err != nil {
				return module.Plan{}, err
			}
			switch {
			case own > 0:
				return module.Plan{}, fault.New(fault.FailedPrecondition, "seats.one_each", "this person has a seat already; take that one")
			case sold >= showSeats:
				return module.Plan{}, fault.New(fault.FailedPrecondition, "seats.sold_out", "the show is sold out; choose another")
			}
			return module.Plan{Events: []event.Draft{{
				Type: "seats.seat.taken", Stream: event.StreamID{Type: "seats.seat", ID: in.DocumentID(0).String()}, Data: wanted, Tags: []string{show, person},
			}}}, nil
		},
	})
	return nil
}

func TestDecide_Concurrently(t *testing.T) {
	t.Parallel()
	b := newFixtureWith(t, seatModule{})
	const guests = 12
	errs := make([]error, guests)
	var running sync.WaitGroup
	for i := range guests {
		running.Go(func() {
			outcome, err := b.service.Submit(t.Context(), person(fmt.Sprint("guest-", i%8)), pipeline.Request{
				Type: "seats.take_seat", LegalEntity: b.entity, Payload: json.RawMessage(`{"show":"hamlet"}`),
			})
			if err == nil && len(outcome.Events) != 1 {
				err = fmt.Errorf("an intent made %d events", len(outcome.Events))
			}
			errs[i] = err
		})
	}
	running.Wait()
	taken := 0
	for _, err := range errs {
		if err == nil {
			taken++
			continue
		}
		require.Contains(t, []string{"seats.one_each", "seats.sold_out"}, fault.CodeOf(err), "%v", err)
	}
	require.Equal(t, showSeats, taken)
	found, err := b.store.Events.Events(t.Context(), ports.EventQuery{Partition: b.entity.Partition, Types: []string{"seats.seat.taken"}})
	require.NoError(t, err)
	require.Len(t, found, showSeats)
}
