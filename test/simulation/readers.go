package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("readers", 0.4, func(w *world, r *rand.Rand) part { return &readers{world: w, number: 1 + r.IntN(2)} })

// readers ask for reports, streams, entities and what caused what, while everything goes wrong. An
// answer that they get is right for the position that it names.
type readers struct {
	world  *world
	number int
}

func (*readers) prepare(context.Context) error { return nil }

func (p *readers) work() {
	for i := range p.number {
		r := p.world.random(fmt.Sprintf("auditor %d", i))
		p.world.begin(func(ctx context.Context) {
			for pause(ctx, r, 500*time.Millisecond) == nil {
				_ = p.read(ctx, r) // no answer is no wrong one
			}
		})
	}
}

func (p *readers) read(ctx context.Context, r *rand.Rand) error {
	entity := p.world.entities[r.IntN(len(p.world.entities))]
	till := fmt.Sprintf("T%d", r.IntN(2))
	switch r.IntN(6) {
	case 0:
		return p.all(ctx, r)
	case 1:
		return p.selection(ctx, r, entity)
	}
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		switch r.IntN(4) {
		case 0:
			return p.report(ctx, n, entity)
		case 1:
			return p.stream(ctx, n, entity, till)
		case 2:
			return p.entity(ctx, n, entity, till)
		}
		return p.causes(ctx, r, n, entity)
	})
}

// log reads the books of a legal entity past every node.
func (p *readers) log(ctx context.Context, le ports.LegalEntity) ([]event.Recorded, error) {
	return p.world.database.Events.Events(ctx, ports.EventQuery{Partition: le.Partition, Limit: 1 << 20})
}

// report compares a report with a fold of the log at the sequence that it includes. A report without
// a wish includes all that was committed when it was asked for, or says up to where it goes.
func (p *readers) report(ctx context.Context, n *run, le ports.LegalEntity) error {
	report, err := n.app.Reports.Query(ctx, query.ReportQuery{Path: module.ReadModelPath("till", "balances"), Entity: le, Limit: 100})
	if err != nil {
		return err
	}
	events, err := p.log(ctx, le)
	if err != nil {
		return err
	}
	known := report.Footer[0].Value.(event.Sequence)
	want := foldBalances(events, known)
	p.world.require(len(report.Rows) == len(want), "reports are right at their sequence", "%s at %d: %d rows, not %d", le.Code, known, len(report.Rows), len(want))
	for _, row := range report.Rows {
		line := row.(balanceLine)
		p.world.require(line.tillState == want[line.Till].tillState, "reports are right at their sequence", "%s at %d: till %s is %v, not %v", le.Code, known, line.Till, line.tillState, want[line.Till].tillState)
	}
	return nil
}

// stream reads a stream in pages. What was committed before is in it, without a gap.
func (p *readers) stream(ctx context.Context, n *run, le ports.LegalEntity, till string) error {
	before, err := p.log(ctx, le)
	if err != nil {
		return err
	}
	want := 0
	for i := range before {
		if before[i].Stream == tillStream(till) {
			want++
		}
	}
	version := event.Version(0)
	for q := (query.StreamQuery{Entity: le, Stream: tillStream(till), Count: 7}); ; {
		page, err := n.app.Query.Stream(ctx, q)
		if fault.KindOf(err) == fault.NotFound {
			break
		}
		if err != nil {
			return err
		}
		for i := range page.Events {
			version++
			p.world.require(page.Events[i].StreamVersion == version, "streams are read without gaps", "%s of %s: version %d at place %d", till, le.Code, page.Events[i].StreamVersion, version)
		}
		if q.From = page.Next; !page.HasMore {
			break
		}
	}
	p.world.require(int(version) >= want, "what is committed is read", "%s of %s: %d of %d", till, le.Code, version, want)
	return nil
}

// all reads the logs of all legal entities as one, in pages of which each comes from another node.
func (p *readers) all(ctx context.Context, r *rand.Rand) error {
	before := map[event.PartitionID]event.Sequence{}
	for _, le := range p.world.entities {
		events, err := p.log(ctx, le)
		if err != nil {
			return err
		}
		before[le.Partition] = event.Sequence(len(events))
	}
	read := map[event.PartitionID]event.Sequence{}
	for q := (query.FeedQuery{TenantID: tenantID}); ; {
		var page query.Page
		if err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
			q.Count = 1 + r.IntN(20)
			page, err = n.app.Query.Feed(ctx, q)
			return err
		}); err != nil {
			return err
		}
		for i := range page.Events {
			e := &page.Events[i]
			read[e.Partition]++
			p.world.require(e.Sequence == read[e.Partition], "logs are read without gaps", "partition %d: event %d at place %d", e.Partition, e.Sequence, read[e.Partition])
		}
		if q.Cursor = page.NextCursor; !page.HasMore {
			break
		}
	}
	for partition, n := range before {
		p.world.require(read[partition] >= n, "what is committed is read", "partition %d: %d of %d", partition, read[partition], n)
	}
	return nil
}

// selection reads the movements of a legal entity in pages, each from another node: all that were
// committed when the first page was read, and no others.
func (p *readers) selection(ctx context.Context, r *rand.Rand, le ports.LegalEntity) error {
	before, err := p.movements(ctx, le)
	if err != nil {
		return err
	}
	var read, first []event.ID
	for q := (query.Selection{TenantID: tenantID, Kind: query.ByType, StreamID: movedType, LegalEntity: le.Code}); ; {
		var page query.Page
		if err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
			q.Limit = 1 + r.IntN(10)
			page, err = n.app.Query.Events(ctx, q)
			return err
		}); err != nil {
			return err
		}
		if first == nil {
			if first, err = p.movements(ctx, le); err != nil {
				return err
			}
		}
		for i := range page.Events {
			read = append(read, page.Events[i].ID)
		}
		if q.Cursor = page.NextCursor; !page.HasMore {
			break
		}
		if err := pause(ctx, r, 100*time.Millisecond); err != nil {
			return err
		}
	}
	holds := len(read) >= len(before) && len(read) <= len(first) && slices.Equal(read, first[:len(read)])
	p.world.require(holds, "pages are one result", "%s: %d events, of %d to %d", le.Code, len(read), len(before), len(first))
	return nil
}

// movements are the events about movements, past every node.
func (p *readers) movements(ctx context.Context, le ports.LegalEntity) ([]event.ID, error) {
	events, err := p.log(ctx, le)
	out := []event.ID{}
	for i := range events {
		if events[i].Type == movedType {
			out = append(out, events[i].ID)
		}
	}
	return out, err
}

// entity compares the state of a till with the last event that it includes.
func (p *readers) entity(ctx context.Context, n *run, le ports.LegalEntity, till string) error {
	state, err := n.services.Entities.Read(ctx, entities.Query{LegalEntity: le, Type: "till", ID: till, Consistency: entities.Strong})
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	events, err := p.log(ctx, le)
	if err != nil {
		return err
	}
	var got movement
	if err := json.Unmarshal(state.State, &got); err != nil {
		return err
	}
	want, err := movementOf(&events[state.Version-1])
	p.world.require(err == nil && got.Receipt == want.Receipt && got.Till == till, "entities are right at their version", "%s of %s at %d: %v, not %v", till, le.Code, state.Version, got, want)
	return err
}

// causes requires that all events of an intent name it as their process.
func (p *readers) causes(ctx context.Context, r *rand.Rand, n *run, le ports.LegalEntity) error {
	events, err := p.log(ctx, le)
	if err != nil || len(events) == 0 {
		return err
	}
	e := events[r.IntN(len(events))]
	lineage, err := n.app.Query.Lineage(ctx, le, nil, e.ID)
	if err != nil {
		return err
	}
	p.world.require(lineage.Events[len(lineage.Events)-1].ID == e.ID, "lineage ends at its event", "%s", e.ID)
	page, err := n.app.Query.Events(ctx, query.Selection{TenantID: tenantID, Kind: query.ByCorrelation, StreamID: e.CorrelationID, LegalEntity: le.Code, Limit: 50})
	if err != nil {
		return err
	}
	isEvent := func(o event.Recorded) bool { return o.ID == e.ID }
	p.world.require(slices.ContainsFunc(page.Events, isEvent) || page.HasMore, "processes have all their events", "%s lacks %s", e.CorrelationID, e.ID)
	process, err := n.app.Query.Process(ctx, query.ProcessQuery{TenantID: tenantID, CorrelationID: e.CorrelationID, Limit: 50})
	if err != nil {
		return err
	}
	p.world.require(slices.ContainsFunc(process.Events, isEvent) || len(process.Omissions) > 0, "processes have all their events", "%s lacks %s", e.CorrelationID, e.ID)
	effects, err := n.app.Query.Descendants(ctx, le, nil, e.ID, 50)
	if err != nil {
		return err
	}
	for i := range events {
		is := func(d query.Descendant) bool { return d.Event.ID == events[i].ID }
		p.world.require(events[i].CausedBy != e.ID || len(effects.Omissions) > 0 || slices.ContainsFunc(effects.Events, is), "causes have all their effects", "%s lacks %s", e.ID, events[i].ID)
	}
	return nil
}

func (p *readers) settle(ctx context.Context) error {
	r := p.world.random("settling auditor")
	for range 8 {
		if err := eventually(ctx, func() error { return p.read(ctx, r) }); err != nil {
			return err
		}
	}
	return nil
}

func (*readers) check(*books) {}
