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

	"github.com/erpbackbone/backbone/application/erasure"
	"github.com/erpbackbone/backbone/application/module"
	paperkeeping "github.com/erpbackbone/backbone/application/papers"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/paper"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("papers", 0.3, func(w *world, r *rand.Rand) part {
	return &papers{world: w, customers: 2 + r.IntN(3), kept: map[string]*keptPaper{}, requests: map[event.ID]bool{}, open: map[string]func(ctx context.Context){}, threatened: map[shredding.Subject]bool{}, held: map[event.ID]*paperHold{}}
})

// papers are received from customers, some of whom are erased while papers come in and are read. Some
// papers are retained by law, and officers place and release legal holds.
type papers struct {
	world     *world
	customers int
	clerk     ports.Principal
	officer   ports.Principal
	approver  ports.Principal

	mu         sync.Mutex
	ids        []string
	kept       map[string]*keptPaper // by id
	erasures   []paperErasure        // that are complete
	holds      []*paperHold
	requests   map[event.ID]bool                    // that were followed to their end
	open       map[string]func(ctx context.Context) // requests without a definite answer, by key
	held       map[event.ID]*paperHold              // the hold that stood when a request was made
	threatened map[shredding.Subject]bool           // whose erasure was asked for
}

type keptPaper struct {
	id       string
	entity   ports.LegalEntity
	customer shredding.Subject
	retained bool
	file     []byte
}

// paperErasure is an erasure whose completion was answered.
type paperErasure struct {
	at       time.Time
	customer shredding.Subject
	entities []string
	classes  map[string]bool // that were erased
}

// paperHold is a legal hold that was answered and not released since. What was read under it stays.
type paperHold struct {
	id       event.ID
	customer shredding.Subject
	entity   string // "": all
	at       time.Time
	released bool            // or about to be
	read     map[string]bool // papers that a reading under the hold has shown
}

func (h *paperHold) covers(k *keptPaper) bool {
	return !h.released && h.customer == k.customer && (h.entity == "" || h.entity == k.entity.Code)
}

func (p *papers) prepare(ctx context.Context) (err error) {
	if p.clerk, err = p.world.enroll(ctx, "p-paper-clerk", event.Human, "cashier"); err != nil {
		return err
	}
	if p.officer, err = p.world.enroll(ctx, "p-paper-officer", event.Human, "compliance"); err != nil {
		return err
	}
	p.approver, err = p.world.enroll(ctx, "p-paper-approver", event.Human, "compliance_approver")
	return err
}

func (p *papers) work() {
	clerk := p.world.random("clerk of papers")
	p.world.begin(func(ctx context.Context) {
		for n := 0; pause(ctx, clerk, 700*time.Millisecond) == nil; n++ {
			p.keep(ctx, clerk, fmt.Sprintf("invoice %d", clerk.IntN(n+2)))
		}
	})
	reader := p.world.random("reader of papers")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, reader, 300*time.Millisecond) == nil {
			_ = p.read(ctx, reader) // no answer shows nothing
		}
	})
	officer := p.world.random("officer of papers")
	p.world.begin(func(ctx context.Context) {
		for n := 0; pause(ctx, officer, 4*time.Second) == nil; n++ {
			switch key := fmt.Sprintf("papers %d", n); officer.IntN(5) {
			case 0, 1:
				p.hold(ctx, officer, key)
			case 2:
				p.release(ctx, officer)
			default:
				var entities []string
				if officer.Float64() < 0.5 {
					entities = []string{"DE"}
				}
				p.erase(ctx, officer, key, p.customer(officer), entities)
			}
		}
	})
	approver := p.world.random("approver of papers")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, approver, time.Second) == nil {
			_ = p.followAll(ctx, approver) // the settling follows them to the end
		}
	})
}

func (p *papers) customer(r *rand.Rand) shredding.Subject {
	return shredding.Subject(fmt.Sprintf("customer:C%d", r.IntN(p.customers)))
}

// keep keeps a file that may have been kept before.
func (p *papers) keep(ctx context.Context, r *rand.Rand, text string) {
	k := &keptPaper{entity: p.world.entities[r.IntN(len(p.world.entities))], customer: p.customer(r), retained: r.Float64() < 0.2, file: []byte(text)}
	began := time.Now()
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error { // a refusal is an answer too
		found, created, err := n.services.Papers.Keep(ctx, paperkeeping.Keep{LegalEntity: k.entity, Actor: p.clerk.Actor(), Subject: k.customer, Retained: k.retained, MediaType: "application/pdf", Bytes: k.file})
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.world.require(!p.isErased(k, began) || !created, "no paper of an erased person is kept", "%s of %s at %s", text, k.customer, n.link.name)
		if known := p.kept[found.ID]; known != nil {
			p.world.require(bytes.Equal(known.file, k.file) && known.customer == k.customer && known.retained == k.retained && known.entity.Code == k.entity.Code, "a paper has one id", "%s has the files %s and %s", found.ID, known.file, k.file)
			return nil
		}
		k.id = found.ID
		p.kept[k.id] = k
		p.ids = append(p.ids, k.id)
		return nil
	})
}

// isErased reports whether an erasure that was answered before a time has reached a paper. It is called
// with the lock held.
func (p *papers) isErased(k *keptPaper, before time.Time) bool {
	class := eventtype.PIISubject
	if k.retained {
		class = eventtype.Regulatory
	}
	return slices.ContainsFunc(p.erasures, func(e paperErasure) bool {
		return e.at.Before(before) && e.customer == k.customer && e.classes[string(class)] && slices.Contains(e.entities, k.entity.Code)
	})
}

// read opens a paper. One of an erased person cannot be opened; one that is retained can, and so can
// one that was opened under a hold that stands.
func (p *papers) read(ctx context.Context, r *rand.Rand) error {
	p.mu.Lock()
	if len(p.ids) == 0 {
		p.mu.Unlock()
		return nil
	}
	k, began := p.kept[p.ids[r.IntN(len(p.ids))]], time.Now()
	p.mu.Unlock()
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		found, err := n.services.Papers.Find(ctx, k.entity, k.id)
		if err != nil {
			p.world.require(fault.KindOf(err) != fault.NotFound, "nothing confirmed is lost", "paper %s", k.id)
			return err
		}
		file, err := n.services.Papers.Open(ctx, k.entity, &found, module.Planning{})
		if err != nil && fault.KindOf(err) != fault.Gone {
			p.world.require(isUncertain(err), "papers are as they were kept", "%s: %v", k.id, err)
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		shown := err == nil
		p.world.require(!shown || bytes.Equal(file, k.file), "papers are as they were kept", "%s at %s", k.id, n.link.name)
		p.world.require(!shown || !p.isErased(k, began), "nothing is readable after its erasure", "paper %s of %s at %s", k.id, k.customer, n.link.name)
		p.world.require(shown || p.threatened[k.customer], "what is not erased is readable", "paper %s of %s at %s", k.id, k.customer, n.link.name)
		p.world.require(shown || !k.retained, "what is retained is readable", "paper %s of %s at %s", k.id, k.customer, n.link.name)
		for _, h := range p.holds {
			if !h.covers(k) {
				continue
			}
			p.world.require(shown || !h.read[k.id], "what is held is readable", "paper %s of %s at %s", k.id, k.customer, n.link.name)
			if shown && h.at.Before(began) {
				h.read[k.id] = true
			}
		}
		return nil
	})
}

// hold places a legal hold on a customer.
func (p *papers) hold(ctx context.Context, r *rand.Rand, key string) {
	h := &paperHold{customer: p.customer(r), read: map[string]bool{}}
	var entities []string
	if r.Float64() < 0.5 {
		h.entity = p.world.entities[r.IntN(len(p.world.entities))].Code
		entities = []string{h.entity}
	}
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		placed, _, err := n.services.Erasures.PlaceHold(ctx, p.officer, erasure.NewHold{Subject: string(h.customer), LegalEntities: entities, Reason: "a dispute", IdempotencyKey: key})
		if err != nil {
			return err
		}
		late, err := p.isTooLate(ctx, h.customer)
		if err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if h.id == (event.ID{}) && !late {
			h.id, h.at = placed[0].ID, time.Now()
			p.holds = append(p.holds, h)
		}
		return nil
	})
}

// isTooLate reports whether a hold protects nothing any more: a key is destroyed, which nodes may have
// in memory until the certificate.
func (p *papers) isTooLate(ctx context.Context, customer shredding.Subject) (bool, error) {
	all, err := p.world.keyStore.Erasures().Erasures(ctx, tenantID, nil, 0)
	return slices.ContainsFunc(all, func(r ports.ErasureRequest) bool { return r.Subject == customer && r.State.Irrevocable() }), err
}

func (p *papers) release(ctx context.Context, r *rand.Rand) {
	p.mu.Lock()
	var standing []*paperHold
	for _, h := range p.holds {
		if !h.released {
			standing = append(standing, h)
		}
	}
	if len(standing) == 0 {
		p.mu.Unlock()
		return
	}
	h := standing[r.IntN(len(standing))]
	h.released = true
	p.mu.Unlock()
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		_, err := n.services.Erasures.ReleaseHold(ctx, p.officer, h.id)
		return err
	})
}

// erase requests the erasure of a customer. Under a hold it is refused at once.
func (p *papers) erase(ctx context.Context, r *rand.Rand, key string, customer shredding.Subject, entities []string) {
	p.mu.Lock()
	var held *paperHold
	for _, h := range p.holds {
		if !h.released && h.customer == customer && (h.entity == "" || h.entity == "DE" || entities == nil) {
			held = h
		}
	}
	p.threatened[customer] = true
	p.open[key] = func(ctx context.Context) { p.erase(ctx, r, key, customer, entities) }
	p.mu.Unlock()
	err := p.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		status, err := n.services.Erasures.Request(ctx, p.officer, erasure.NewRequest{Subject: string(customer), LegalEntities: entities, Basis: "gdpr_art_17", Reason: "asked for it", IdempotencyKey: key})
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			// A repeated request whose first call was cut off may not be refused yet.
			p.world.require(held == nil || held.released || status.Replayed || shredding.ErasureState(status.State) == shredding.ErasureRefused, "no erasure passes a hold", "%s of %s is %s", status.ID, customer, status.State)
			if held != nil {
				p.held[status.ID] = held
			}
		}
		return err
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	if !isUncertain(err) {
		delete(p.open, key)
	}
}

// followAll approves each erasure of a customer that waits, and notes those that are complete.
func (p *papers) followAll(ctx context.Context, r *rand.Rand) error {
	var all []erasure.Status
	err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		all, err = n.services.Erasures.List(ctx, p.approver, nil, 1000)
		return err
	})
	for _, s := range all {
		if shredding.Subject(s.Subject).Type() != "customer" {
			continue // of another part
		}
		p.mu.Lock()
		done := p.requests[s.ID]
		p.mu.Unlock()
		if done {
			continue
		}
		if failed := p.follow(ctx, r, s.ID); err == nil {
			err = failed
		}
	}
	return err
}

func (p *papers) follow(ctx context.Context, r *rand.Rand, id event.ID) error {
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
	if err != nil {
		return err
	}
	state := shredding.ErasureState(status.State)
	if !state.Final() {
		return fmt.Errorf("erasure %s is %s: %v", id, status.State, status.Steps)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests[id] = true
	if state == shredding.ErasureCompleted {
		h := p.held[id]
		p.world.require(h == nil || h.released, "no erasure passes a hold", "%s of %s", id, status.Subject)
		e := paperErasure{at: time.Now(), customer: shredding.Subject(status.Subject), entities: status.LegalEntities, classes: map[string]bool{}}
		for _, c := range status.Classes {
			e.classes[c.Class] = c.Erased
		}
		p.erasures = append(p.erasures, e)
	}
	return nil
}

// settlesLast implements settlesLast.
func (*papers) settlesLast() {}

func (p *papers) settle(ctx context.Context) error {
	r := p.world.random("settling officer of papers")
	for _, key := range slices.Sorted(maps.Keys(p.open)) {
		p.open[key](ctx) // also one whose preview was cut off
	}
	if err := eventually(ctx, func() error { return p.followAll(ctx, r) }); err != nil {
		return err
	}
	for range 30 {
		if err := eventually(ctx, func() error { return p.read(ctx, r) }); err != nil {
			return err
		}
	}
	return nil
}

// check requires that the log has each paper once, and none that came after the erasure of its person.
func (p *papers) check(b *books) {
	for _, events := range b.partitions {
		erased, seen := map[shredding.Subject]bool{}, map[string]bool{} // in the class of papers that are not retained
		for i := range events {
			e := &events[i]
			switch e.Type {
			case erasure.SubjectErased:
				var payload struct {
					Data struct {
						Subject shredding.Subject `json:"subject"`
					} `json:"data"`
				}
				p.world.require(json.Unmarshal(e.Payload, &payload) == nil, "payloads", "event %d of partition %d", e.Sequence, e.Partition)
				erased[payload.Data.Subject] = true
			case paper.Kept, paper.Retained:
				body, err := e.Body()
				p.world.require(err == nil && !seen[e.Stream.ID], "a paper is kept once", "%s in partition %d", e.Stream.ID, e.Partition)
				seen[e.Stream.ID] = true
				subject := paper.SubjectOf(body.EntityRefs)
				p.world.require(e.Type == paper.Retained || !erased[subject], "nothing is written about a person after the erasure", "paper %s of %s", e.Stream.ID, subject)
			}
		}
		for _, id := range p.ids {
			k := p.kept[id]
			p.world.require(len(events) == 0 || events[0].Scope.LegalEntity != k.entity.Code || seen[id], "nothing confirmed is lost", "paper %s of %s", id, k.entity.Code)
		}
	}
}
