package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/entities"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/application/projections/custom"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/redaction"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("redactions", 0.3, func(w *world, _ *rand.Rand) part {
	return &redactions{world: w, known: map[event.ID]*statement{}, requests: map[event.ID]bool{}, completed: map[event.ID]bool{}}
})

// redactions are of texts that were written in clear: remarks of services, memos of movements and
// wishes of members, who may be erased at the same time. Two persons decide about each, while
// others read the same events in every way that a node offers.
type redactions struct {
	world    *world
	service  ports.Principal
	officers []ports.Principal // who request
	approver ports.Principal

	mu         sync.Mutex
	statements []*statement
	known      map[event.ID]*statement
	requests   map[event.ID]bool
	completed  map[event.ID]bool
}

// statement is an event with texts in clear. Each text occurs in no other event.
type statement struct {
	entity ports.LegalEntity
	id     event.ID
	intent event.ID
	stream event.StreamID
	texts  map[string]*clearText // by the pointer to it
}

// clearText is a text with what is known about its redaction.
type clearText struct {
	text       string
	threatened bool      // its redaction was approved, or may have been
	redacted   time.Time // when an answer said so; zero: none did
	forgotten  time.Time // when an answer said that read models were recomputed
}

const (
	remarkType = "remark.remark.made"
	remarks    = "remarks" // the tenant's projection of them
)

func (p *redactions) prepare(ctx context.Context) (err error) {
	w := p.world
	p.service = ports.Principal{TenantID: tenantID, PersonID: "s-remarks", PrincipalID: "s-remarks-1", ActorType: event.System, RoleLabel: "module", Roles: []string{"module"}}
	n := w.nodes[0].current()
	_, err = n.app.Registry.Register(ctx, eventtype.Registration{
		TenantID: tenantID, Type: remarkType, SchemaVersion: 1, Module: "remark", RetentionClass: eventtype.Standard,
		DataSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["text","stars"],"properties":{"text":{"type":"string"},"lines":{"type":"array","items":{"type":"string"}},"stars":{"type":"integer"}}}`),
	}, event.Actor{Type: event.Human, ID: "p-owner", Name: "admin"}, registry.ProofRequest{})
	if err != nil {
		return err
	}
	_, _, err = n.services.Custom.Create(ctx, custom.Creation{Name: remarks, By: "p-owner", Definition: projection.Definition{
		TenantID: tenantID, Filter: projection.Filter{Types: []string{remarkType}}, Key: `.stream.id`, Fold: `(.state // []) + [.event.data]`,
	}})
	if err != nil {
		return err
	}
	for _, person := range []string{"p-redactor", "p-other-redactor"} {
		officer, err := w.enroll(ctx, person, event.Human, "compliance")
		if err != nil {
			return err
		}
		p.officers = append(p.officers, officer)
	}
	p.approver, err = w.enroll(ctx, "p-redaction-approver", event.Human, "compliance_approver")
	return err
}

func (p *redactions) work() {
	writer := p.world.random("writer of remarks")
	p.world.begin(func(ctx context.Context) {
		for n := 0; pause(ctx, writer, 600*time.Millisecond) == nil; n++ {
			p.write(ctx, writer, fmt.Sprintf("remark %d", n))
		}
	})
	for i, officer := range p.officers {
		r := p.world.random(officer.PersonID)
		p.world.begin(func(ctx context.Context) {
			for n := 0; pause(ctx, r, 4*time.Second) == nil; n++ {
				p.request(ctx, r, officer, fmt.Sprintf("redact %d-%d", i, n))
			}
		})
	}
	approver := p.world.random("approver of redactions")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, approver, time.Second) == nil {
			_ = p.followAll(ctx, approver) // the settling follows them to the end
		}
	})
	reader := p.world.random("reader of remarks")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, reader, 300*time.Millisecond) == nil {
			_ = p.read(ctx, reader) // no answer shows nothing
		}
	})
}

// write makes a statement: a remark, or a movement with a memo.
func (p *redactions) write(ctx context.Context, r *rand.Rand, key string) {
	w := p.world
	s := &statement{entity: w.entities[r.IntN(len(w.entities))], stream: event.StreamID{Type: "remark", ID: fmt.Sprintf("R%d", r.IntN(3))}, texts: map[string]*clearText{}}
	text := func(pointer string) string {
		t := &clearText{text: fmt.Sprintf("(%s %s)", key, pointer)}
		s.texts[pointer] = t
		return t.text
	}
	if r.Float64() < 0.4 {
		payload, _ := json.Marshal(movement{Till: "T0", Amount: 1, Memo: text("/data/memo")}) // of texts
		s.stream = tillStream("T0")
		_ = w.retry(ctx, r, func(ctx context.Context, n *run) error {
			out, err := n.app.Pipeline.Submit(ctx, w.writer, pipeline.Request{Type: moveIntent, LegalEntity: s.entity, Payload: payload, IdempotencyKey: key})
			if err == nil && len(out.Events) == 1 {
				s.intent = out.IntentID
				p.learn(s, out.Events[0].ID)
			}
			return err
		})
		return
	}
	data := map[string]any{"text": text("/data/text"), "stars": r.IntN(5)}
	if r.Float64() < 0.5 {
		data["lines"] = []string{text("/data/lines/0"), text("/data/lines/1")}
	}
	content, _ := json.Marshal(data) // of texts and numbers
	_ = w.retry(ctx, r, func(ctx context.Context, n *run) error {
		receipts, _, err := n.services.Appends.Append(ctx, eventappend.Request{
			LegalEntity: s.entity, Actor: p.service.Actor(), PersonID: p.service.PersonID, Roles: p.service.Roles,
			Drafts:         []event.Draft{{Type: remarkType, Stream: s.stream, Data: json.RawMessage(content), Entities: []event.EntityRef{{Type: "remark", ID: s.stream.ID, Role: "remark"}}}},
			IdempotencyKey: key, Digest: event.HashPayload(event.Salt{}, content),
		})
		if err == nil {
			p.learn(s, receipts[0].ID)
		}
		return err
	})
}

func (p *redactions) learn(s *statement, id event.ID) *statement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known[id] == nil {
		s.id = id
		p.known[id] = s
		p.statements = append(p.statements, s)
	}
	return p.known[id]
}

// choose picks a statement, nil if there is none.
func (p *redactions) choose(r *rand.Rand) *statement {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.statements) == 0 {
		return nil
	}
	return p.statements[r.IntN(len(p.statements))]
}

// chooseJoining picks the wish of a member out of the log.
func (p *redactions) chooseJoining(ctx context.Context, r *rand.Rand) *statement {
	le := p.world.entities[0]
	events, err := p.world.database.Events.Events(ctx, ports.EventQuery{Partition: le.Partition, Limit: 1 << 20})
	events = slices.DeleteFunc(events, func(e event.Recorded) bool { return e.Type != joinedType || len(e.Redactions) > 0 })
	if err != nil || len(events) == 0 {
		return nil
	}
	e := events[r.IntN(len(events))]
	var payload struct{ Data struct{ Wish string } }
	if json.Unmarshal(e.Payload, &payload) != nil {
		return nil // the check of persons reports it
	}
	s := &statement{entity: le, stream: e.Stream, intent: e.IntentID, texts: map[string]*clearText{"/data/wish": {text: payload.Data.Wish}}}
	return p.learn(s, e.ID)
}

// request asks for the redaction of some texts of a statement, which may be redacted already.
func (p *redactions) request(ctx context.Context, r *rand.Rand, officer ports.Principal, key string) {
	s := p.choose(r)
	if r.Float64() < 0.3 {
		if about := p.chooseJoining(ctx, r); about != nil {
			s = about
		}
	}
	if s == nil {
		return
	}
	var pointers []string
	for _, pointer := range slices.Sorted(maps.Keys(s.texts)) {
		if r.Float64() < 0.6 || pointer == "/data/wish" {
			pointers = append(pointers, pointer)
		}
	}
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error { // there may be nothing to redact any more
		_, err := n.services.Redactions.Request(ctx, officer, redaction.NewRequest{LegalEntity: s.entity.Code, EventID: s.id, Pointers: pointers, Reason: "asked for it", IdempotencyKey: key})
		return err
	})
}

// followAll decides about each request that waits, and notes how far the others are.
func (p *redactions) followAll(ctx context.Context, r *rand.Rand) error {
	var all []redaction.Status
	err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		all, err = n.services.Redactions.List(ctx, p.approver, nil, 1000)
		return err
	})
	for _, s := range all {
		p.mu.Lock()
		p.requests[s.ID] = true
		done := p.completed[s.ID]
		p.mu.Unlock()
		if done {
			continue
		}
		if failed := p.follow(ctx, r, s); err == nil {
			err = failed
		}
	}
	return err
}

// follow decides about a request, and fails unless it has come to its end.
func (p *redactions) follow(ctx context.Context, r *rand.Rand, s redaction.Status) error {
	fate := p.world.random("fate of " + s.ID.String()).Float64() // of the request, not of the call
	err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		service := n.services.Redactions
		switch state := shredding.RedactionState(s.State); {
		case state == shredding.RedactionPreviewed && r.Float64() < 0.1:
			_, err := service.Approve(ctx, p.requester(s), s.ID, s.Scope)
			p.world.require(err != nil, "another person approves", "request %s of %s", s.ID, s.RequestedBy)
			return err
		case state == shredding.RedactionPreviewed && fate < 0.1:
			s, err = service.Reject(ctx, p.approver, s.ID, "not needed")
		case state == shredding.RedactionPreviewed && r.Float64() < 0.2:
			s, err = service.Preview(ctx, p.approver, s.ID)
		case state == shredding.RedactionApproved && fate > 0.9:
			s, err = service.Withdraw(ctx, p.requester(s), s.ID, "not needed")
		case state == shredding.RedactionPreviewed, state == shredding.RedactionApproved: // again, since the first call may have been cut off
			p.threaten(s)
			s, err = service.Approve(ctx, p.approver, s.ID, s.Scope)
		}
		return err
	})
	p.note(s)
	if err == nil && !shredding.RedactionState(s.State).Final() {
		err = fmt.Errorf("redaction %s is %s after %d attempts: %s", s.ID, s.State, s.Attempts, s.LastError)
	}
	return err
}

func (p *redactions) requester(s redaction.Status) ports.Principal {
	if s.RequestedBy == p.officers[0].PersonID {
		return p.officers[0]
	}
	return p.officers[1]
}

// threaten notes that texts may be redacted from now on.
func (p *redactions) threaten(s redaction.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pointer := range s.Pointers {
		p.known[s.EventID].texts[pointer].threatened = true
	}
}

// note remembers what an answer promised.
func (p *redactions) note(s redaction.Status) {
	state := shredding.RedactionState(s.State)
	if !state.CarriedOut() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pointer := range s.Pointers {
		t := p.known[s.EventID].texts[pointer]
		if t.redacted.IsZero() {
			t.redacted = time.Now()
		}
		if t.forgotten.IsZero() && (state == shredding.RedactionRebuilt || state == shredding.RedactionCompleted) {
			t.forgotten = time.Now()
		}
	}
	p.completed[s.ID] = p.completed[s.ID] || state == shredding.RedactionCompleted
}

// feedsShow is how long feeds may show a redacted text: two seconds by their node's clock, which may be
// set back by four.
const feedsShow = 6 * time.Second

// read looks for the texts of a statement in one of the ways that a node offers. None of them shows a
// redacted text, and those that show whole events show what cannot have been redacted.
func (p *redactions) read(ctx context.Context, r *rand.Rand) error {
	s := p.choose(r)
	if s == nil {
		return nil
	}
	way, began := r.IntN(5), time.Now()
	redacted := func(t *clearText) bool { return !t.redacted.IsZero() && t.redacted.Before(began) }
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		switch {
		case way == 1:
			shown, err := p.feed(ctx, n, s.entity)
			return p.compare(s, "a feed of "+n.link.name, shown, err, true, func(t *clearText) bool { return !t.redacted.IsZero() && t.redacted.Add(feedsShow).Before(began) })
		case way == 2:
			state, err := n.services.Entities.Read(ctx, entities.Query{LegalEntity: s.entity, Type: s.stream.Type, ID: s.stream.ID, Consistency: entities.Strong})
			return p.compare(s, "an entity of "+n.link.name, state.State, err, false, redacted)
		case way == 3:
			page, err := n.services.Custom.Rows(ctx, custom.RowsQuery{Name: remarks, Entity: s.entity, Limit: 100})
			var shown []byte
			for _, row := range page.Rows {
				shown = append(shown, row.State...)
			}
			return p.compare(s, "a row of "+n.link.name, shown, err, false, func(t *clearText) bool { return !t.forgotten.IsZero() && t.forgotten.Before(began) })
		case way == 4 && s.intent != event.ID{}:
			stored, _, err := n.app.Pipeline.Get(ctx, s.entity, s.intent)
			return p.compare(s, "an intent of "+n.link.name, stored.Payload, err, true, redacted)
		}
		e, err := n.app.Store.Events.EventByID(ctx, s.entity.Partition, s.id)
		return p.compare(s, "an event of "+n.link.name, e.Payload, err, true, redacted)
	})
}

// feed reads all events of a legal entity as a live feed does.
func (p *redactions) feed(ctx context.Context, n *run, le ports.LegalEntity) (shown []byte, err error) {
	source, err := n.services.Feeds.All(query.AllQuery{TenantID: tenantID, Readable: []string{le.Code}})
	if err != nil {
		return nil, err
	}
	heads, err := source.Start(ctx)
	for more := true; err == nil && more; {
		var events []event.Recorded
		events, _, more, err = source.Read(ctx, heads, 100)
		for i := range events {
			shown = append(shown, events[i].Payload...)
		}
	}
	return shown, err
}

// compare requires that what was shown has no text that must be gone and, if it has the whole
// statement, each text that is not threatened.
func (p *redactions) compare(s *statement, where string, shown []byte, err error, whole bool, gone func(t *clearText) bool) error {
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pointer := range slices.Sorted(maps.Keys(s.texts)) {
		t := s.texts[pointer]
		visible := bytes.Contains(shown, []byte(t.text))
		p.world.require(!visible || !gone(t), "what is redacted is not shown", "%s shows %s", where, t.text)
		p.world.require(visible || !whole || t.threatened, "what is not redacted is shown", "%s lacks %s", where, t.text)
	}
	return nil
}

func (p *redactions) settle(ctx context.Context) error {
	r := p.world.random("settling approver")
	if err := eventually(ctx, func() error { return p.followAll(ctx, r) }); err != nil {
		return err
	}
	for range 30 {
		if err := eventually(ctx, func() error { return p.read(ctx, r) }); err != nil {
			return err
		}
	}
	return eventually(ctx, func() error { return p.world.customCaughtUp(ctx, remarks) })
}

// check requires that each completed redaction replaced its texts and no others, with one event that
// announces it, and that the rows of the projection equal a fresh fold.
func (p *redactions) check(b *books) {
	all, err := p.world.database.Redactions.RedactionRequests(context.Background(), tenantID, nil, 0)
	p.world.require(err == nil, "redactions", "%v", err)
	redacted := map[event.ID]map[string]bool{} // pointers by event
	announced := map[string]bool{}             // streams of announcements
	for _, q := range all {
		p.world.require(q.State.Final(), "redactions come to their end", "%s is %s", q.ID, q.State)
		if q.State != shredding.RedactionCompleted {
			continue
		}
		announced[q.ID.String()] = false
		if redacted[q.EventID] == nil {
			redacted[q.EventID] = map[string]bool{}
		}
		for _, pointer := range q.Pointers {
			p.world.require(!redacted[q.EventID][pointer], "a text is redacted once", "%s of %s", pointer, q.EventID)
			redacted[q.EventID][pointer] = true
		}
		_, err := p.world.exports.Get(context.Background(), "redactions/"+q.ID.String()+".json")
		p.world.require(err == nil, "each redaction has a certificate", "%s: %v", q.ID, err)
	}
	for _, events := range b.partitions {
		for i := range events {
			e := &events[i]
			if s := p.known[e.ID]; s != nil {
				p.checkStatement(s, e, redacted[e.ID])
			}
			if e.Type == redaction.EventType {
				again, carriedOut := announced[e.Stream.ID]
				p.world.require(carriedOut && !again, "each redaction is announced once", "event %d of partition %d announces %s", e.Sequence, e.Partition, e.Stream.ID)
				announced[e.Stream.ID] = true
			}
		}
	}
	for id, done := range announced {
		p.world.require(done, "each redaction is announced once", "no event announces %s", id)
	}
	p.world.checkCustomRows(b, remarks, func(projection.Projection) (func(events []event.Recorded) map[string]string, error) {
		return foldRemarks, nil
	})
}

// checkStatement compares an event with what was written and redacted.
func (p *redactions) checkStatement(s *statement, e *event.Recorded, redacted map[string]bool) {
	for pointer, t := range s.texts {
		p.world.require(bytes.Contains(e.Payload, []byte(t.text)) != redacted[pointer], "a redaction replaces its texts and no others", "event %d of %s, %s is redacted: %t", e.Sequence, s.entity.Code, pointer, redacted[pointer])
		p.world.require(t.redacted.IsZero() || redacted[pointer], "a redaction stays", "event %d of %s, %s", e.Sequence, s.entity.Code, pointer)
	}
	p.world.require(bytes.Count(e.Payload, []byte(shredding.Redacted)) == len(redacted), "a redaction replaces its texts and no others", "event %d of %s has %s, and %d of its texts were redacted", e.Sequence, s.entity.Code, e.Payload, len(redacted))
}

// foldRemarks computes the rows of the projection of remarks from the log.
func foldRemarks(events []event.Recorded) map[string]string {
	lists := map[string][]json.RawMessage{}
	for i := range events {
		e := &events[i]
		if data, err := e.Data(); e.Type == remarkType && err == nil {
			lists[e.Stream.ID] = append(lists[e.Stream.ID], data)
		}
	}
	out := map[string]string{}
	for key, list := range lists {
		state, _ := json.Marshal(list) // of documents
		out[key] = string(state)
	}
	return out
}
