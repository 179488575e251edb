package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("persons", 0.4, func(w *world, r *rand.Rand) part {
	return &persons{world: w, erased: map[shredding.Subject]time.Time{}, joined: map[string][]event.ID{}}
})

// persons join as members, and some of them are erased while others read and write about them.
type persons struct {
	world    *world
	cashier  pipeline.Caller
	officer  ports.Principal
	approver ports.Principal

	mu        sync.Mutex
	joined    map[string][]event.ID // events by member
	members   []string
	requests  []event.ID
	requested []string                        // the members whom requests are about
	erased    map[shredding.Subject]time.Time // when a certificate was there
}

func emailOf(member string) string { return "mail-" + member + "@example.org" }

func (p *persons) prepare(ctx context.Context) (err error) {
	cashier, err := p.world.enroll(ctx, "p-clerk", event.Human, "cashier")
	if err != nil {
		return err
	}
	p.cashier = pipeline.Caller{Principal: cashier, Actor: cashier.Actor()}
	if p.officer, err = p.world.enroll(ctx, "p-officer", event.Human, "compliance"); err != nil {
		return err
	}
	p.approver, err = p.world.enroll(ctx, "p-approver", event.Human, "compliance_approver")
	return err
}

func (p *persons) work() {
	writer := p.world.random("writer about persons")
	p.world.begin(func(ctx context.Context) {
		for n := 0; pause(ctx, writer, 700*time.Millisecond) == nil; n++ {
			member := fmt.Sprintf("M%d", writer.IntN(n/3+2))
			if writer.Float64() < 0.3 {
				member, _ = p.chooseErased(writer, member, event.ID{})
			}
			p.join(ctx, writer, member, fmt.Sprintf("join %d", n))
		}
	})
	reader := p.world.random("reader about persons")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, reader, 400*time.Millisecond) == nil {
			_ = p.read(ctx, reader) // a reading that fails shows nothing
		}
	})
	officer := p.world.random("officer")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, officer, 8*time.Second) == nil {
			p.erase(ctx, officer)
		}
	})
}

// join writes an event about a member.
func (p *persons) join(ctx context.Context, r *rand.Rand, member, key string) {
	payload, _ := json.Marshal(joining{member, emailOf(member), "(wish of " + key + ")"}) // of texts
	entity := p.world.entities[0]
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error { // a refusal is an answer too
		out, err := n.app.Pipeline.Submit(ctx, p.cashier, pipeline.Request{Type: joinIntent, LegalEntity: entity, Payload: payload, IdempotencyKey: key})
		if err == nil && len(out.Events) == 1 {
			p.mu.Lock()
			defer p.mu.Unlock()
			if !slices.Contains(p.joined[member], out.Events[0].ID) {
				p.joined[member] = append(p.joined[member], out.Events[0].ID)
			}
			if !slices.Contains(p.members, member) {
				p.members = append(p.members, member)
			}
		}
		return err
	})
}

// choose picks a member, "" if there is none.
func (p *persons) choose(r *rand.Rand) (member string, id event.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.members) == 0 {
		return "", event.ID{}
	}
	member = p.members[r.IntN(len(p.members))]
	return member, p.joined[member][r.IntN(len(p.joined[member]))]
}

// chooseErased picks a member whose erasure was requested, else the given one.
func (p *persons) chooseErased(r *rand.Rand, member string, id event.ID) (string, event.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.requested) == 0 {
		return member, id
	}
	member = p.requested[r.IntN(len(p.requested))]
	return member, p.joined[member][r.IntN(len(p.joined[member]))]
}

func subjectOf(member string) shredding.Subject { return shredding.Subject("member:" + member) }

// read opens an event about a member at a node. Once a certificate says that the person is erased,
// no node shows a value any more.
func (p *persons) read(ctx context.Context, r *rand.Rand) error {
	member, id := p.choose(r)
	if r.Float64() < 0.5 {
		member, id = p.chooseErased(r, member, id)
	}
	if member == "" {
		return nil
	}
	p.mu.Lock()
	_, erased := p.erased[subjectOf(member)]
	p.mu.Unlock()
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		e, err := n.app.Store.Events.EventByID(ctx, p.world.entities[0].Partition, id)
		if err != nil {
			return err
		}
		document := []module.SealedDocument{{At: shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion}, Document: e.Payload}}
		if err := n.services.Vault.Open(ctx, document, module.Planning{}); err != nil {
			return err
		}
		clear := bytes.Contains(document[0].Document, []byte(emailOf(member)))
		p.world.require(!erased || !clear, "nothing is readable after its erasure", "%s at %s", member, n.link.name)
		p.world.require(erased || clear || bytes.Contains(document[0].Document, []byte("[REDACTED]")), "what is not erased is readable", "%s at %s: %s", member, n.link.name, document[0].Document)
		return nil
	})
}

// erase requests and approves the erasure of a member.
func (p *persons) erase(ctx context.Context, r *rand.Rand) {
	member, _ := p.choose(r)
	if member == "" {
		return
	}
	var status erasure.Status
	err := p.world.retry(ctx, r, func(ctx context.Context, n *run) (err error) {
		status, err = n.services.Erasures.Request(ctx, p.officer, erasure.NewRequest{Subject: string(subjectOf(member)), LegalEntities: []string{"DE"}, Basis: "gdpr_art_17", Reason: "asked for it", IdempotencyKey: "erase " + member})
		return err
	})
	if err != nil {
		return
	}
	p.mu.Lock()
	if !slices.Contains(p.requests, status.ID) {
		p.requests, p.requested = append(p.requests, status.ID), append(p.requested, member)
	}
	p.mu.Unlock()
	follower := p.world.random("follower of " + status.ID.String())
	p.world.begin(func(ctx context.Context) {
		for p.follow(ctx, follower, status.ID) != nil && pause(ctx, follower, 500*time.Millisecond) == nil {
			continue // the settling follows it to the end
		}
	})
}

// follow approves a request as soon as that can be done, and notes when it is complete.
func (p *persons) follow(ctx context.Context, r *rand.Rand, id event.ID) error {
	var status erasure.Status
	err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		if status, err = n.services.Erasures.Get(ctx, p.officer, id); err != nil {
			return err
		}
		switch shredding.ErasureState(status.State) {
		case shredding.ErasurePreviewed, shredding.ErasureApproved: // again, since the first call may have been cut off
			status, err = n.services.Erasures.Approve(ctx, p.approver, id, status.Scope)
		}
		return err
	})
	if err != nil && fault.CodeOf(err) != "erasure.changed" {
		return err
	}
	switch shredding.ErasureState(status.State) {
	case shredding.ErasureCompleted:
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, known := p.erased[shredding.Subject(status.Subject)]; !known {
			p.erased[shredding.Subject(status.Subject)] = time.Now()
		}
		return nil
	case shredding.ErasureRefused, shredding.ErasureExpired, shredding.ErasureRejected, shredding.ErasureWithdrawn:
		return nil
	}
	return fmt.Errorf("request %s is %s: %v", id, status.State, status.Steps)
}

// settlesLast implements settlesLast.
func (*persons) settlesLast() {}

func (p *persons) settle(ctx context.Context) error {
	r := p.world.random("settling officer")
	for _, id := range p.requests {
		if err := eventually(ctx, func() error { return p.follow(ctx, r, id) }); err != nil {
			return err
		}
	}
	for range 2 * len(p.members) {
		// A node that could not read the receipts of erasures opens nothing before it has read them again.
		if err := eventually(ctx, func() error { return p.read(ctx, r) }); err != nil {
			return err
		}
	}
	return nil
}

// check requires that a receipt stands outside of the database for everyone who was erased, that one
// event announces it, and that no sealed value of the person follows that event.
func (p *persons) check(b *books) {
	announcements := 0
	for _, events := range b.partitions {
		announced := map[string]event.Sequence{}
		for i := range events {
			e := &events[i]
			var payload struct {
				Data struct {
					Subject string `json:"subject"`
					Member  string `json:"member"`
				} `json:"data"`
			}
			err := json.Unmarshal(e.Payload, &payload)
			p.world.require(err == nil, "payloads", "%v", err)
			switch e.Type {
			case erasure.SubjectErased:
				if !strings.HasPrefix(payload.Data.Subject, "member:") {
					continue // of another part
				}
				announcements++
				announced[payload.Data.Subject] = e.Sequence
			case joinedType:
				at := announced[string(subjectOf(payload.Data.Member))]
				p.world.require(at == 0, "nothing is written about a person after the erasure", "event %d about %s, who was erased with event %d", e.Sequence, payload.Data.Member, at)
			}
		}
	}
	p.world.require(announcements == len(p.erased), "each erasure is announced once", "%d events for %d persons", announcements, len(p.erased))
	receipts, err := p.world.exports.List(context.Background(), "receipts/")
	p.world.require(err == nil && len(receipts) >= len(p.erased), "each erasure has a receipt", "%d receipts for %d persons", len(receipts), len(p.erased))
}
