package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/ports"
	"github.com/erpbackbone/backbone/test/oracle"
)

var _ = takesPart("cashiers", 1, func(w *world, r *rand.Rand) part {
	return &cashiers{world: w, tills: 1 + r.IntN(4), number: 2 + r.IntN(3), think: 150*time.Millisecond + time.Duration(r.ExpFloat64()*float64(1500*time.Millisecond)), submitted: map[string]*submission{}}
})

// cashiers submit intents, and supervisors decide about large amounts. They remember what they
// were told.
type cashiers struct {
	world       *world
	tills       int // of each legal entity; fewer make more conflicts
	number      int // of cashiers
	think       time.Duration
	cashier     pipeline.Caller
	supervisors []pipeline.Caller

	mu        sync.Mutex
	submitted map[string]*submission // by idempotency key
	refusals  []refusal
}

// submission is a request of a cashier, with all answers to it.
type submission struct {
	key      string
	entity   ports.LegalEntity
	kind     string
	payload  json.RawMessage
	intents  map[event.ID]bool // that answers named
	statuses map[intent.Status]bool
	events   []ports.AppendedEvent // that were confirmed
	told     bool                  // an answer said that it was executed
	open     bool                  // no definite answer yet
}

// refusal is an answer that there is not enough in the till, with the heads of the log before and
// after it.
type refusal struct {
	*submission
	from, to event.Sequence
}

// checkRefusals requires that each refusal was right at a moment between its request and its answer.
func (c *cashiers) checkRefusals(b *books) {
	for _, f := range c.refusals {
		var m movement
		var t transfer
		_ = json.Unmarshal(f.payload, &m) // of next
		_ = json.Unmarshal(f.payload, &t)
		till, needed := m.Till, -m.Amount
		if f.kind == transferIntent {
			till, needed = t.From, t.Amount
		}
		events := b.partitions[f.entity.Partition]
		least := foldBalances(events, f.from)[till].Balance
		for balance, n := least, int(f.from); n < int(f.to); n++ {
			if moved, _ := movementOf(&events[n]); events[n].Type == movedType && moved.Till == till {
				balance += moved.Amount
				least = min(least, balance)
			}
		}
		c.world.require(least < needed, "refusals are right", "%s: till %s had at least %d from event %d to %d and %d was refused", f.entity.Code, till, least, f.from, f.to, needed)
	}
}

func (c *cashiers) prepare(ctx context.Context) error {
	cashier, err := c.world.enroll(ctx, "p-cashier", event.Human, "cashier")
	if err != nil {
		return err
	}
	c.cashier = pipeline.Caller{Principal: cashier, Actor: cashier.Actor()}
	for _, person := range []string{"p-supervisor", "p-deputy"} {
		supervisor, err := c.world.enroll(ctx, person, event.Human, "supervisor")
		if err != nil {
			return err
		}
		c.supervisors = append(c.supervisors, pipeline.Caller{Principal: supervisor, Actor: supervisor.Actor()})
	}
	return nil
}

func (c *cashiers) work() {
	for i := range c.number {
		r := c.world.random(fmt.Sprintf("cashier %d", i))
		c.world.begin(func(ctx context.Context) {
			var own []*submission
			for n := 0; pause(ctx, r, c.think) == nil; n++ {
				if n > 0 && r.Float64() < 0.1 {
					c.send(ctx, r, own[r.IntN(n)]) // a request that was made before
				}
				own = append(own, c.next(r, fmt.Sprintf("%d-%d", i, n)))
				c.submit(ctx, r, own[n])
			}
		})
	}
	for _, s := range c.supervisors {
		r := c.world.random(s.Principal.PersonID)
		c.world.begin(func(ctx context.Context) {
			for pause(ctx, r, 2*time.Second) == nil {
				_ = c.decide(ctx, r, s) // what is left is decided at the next time
			}
		})
	}
}

// next makes a request: movements in and out, some of them large, some with a slip that may have
// been used, and transfers.
func (c *cashiers) next(r *rand.Rand, key string) *submission {
	till := func() string { return fmt.Sprintf("T%d", r.IntN(c.tills)) }
	s := &submission{key: key, entity: c.world.entities[r.IntN(len(c.world.entities))], intents: map[event.ID]bool{}, statuses: map[intent.Status]bool{}, open: true}
	var payload any
	if r.Float64() < 0.25 {
		s.kind, payload = transferIntent, transfer{From: till(), To: till(), Amount: 1 + r.Int64N(90)}
	} else {
		m := movement{Till: till(), Amount: r.Int64N(200) - 80}
		if r.Float64() < 0.1 {
			m.Amount = approvalFrom + r.Int64N(100)
		}
		if r.Float64() < 0.1 {
			m.Slip = fmt.Sprintf("S-%d", r.IntN(20))
		}
		s.kind, payload = moveIntent, m
	}
	s.payload, _ = json.Marshal(payload) // of texts and numbers
	c.mu.Lock()
	defer c.mu.Unlock()
	c.submitted[key] = s
	return s
}

// submit sends a request until it has a definite answer, and now and then twice at once.
func (c *cashiers) submit(ctx context.Context, r *rand.Rand, s *submission) {
	if r.Float64() < 0.05 {
		twin := c.world.random("twin " + s.key)
		c.world.begin(func(ctx context.Context) { c.send(ctx, twin, s) })
	}
	c.send(ctx, r, s)
}

func (c *cashiers) send(ctx context.Context, r *rand.Rand, s *submission) {
	_ = c.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		c.mu.Lock()
		told, from := s.told, c.world.head(s.entity)
		c.mu.Unlock()
		out, err := n.app.Pipeline.Submit(ctx, c.cashier, pipeline.Request{Type: s.kind, LegalEntity: s.entity, Payload: s.payload, IdempotencyKey: s.key})
		c.learn(s, told, out, err)
		if fault.CodeOf(err) == codeOverdrawn {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.refusals = append(c.refusals, refusal{s, from, c.world.head(s.entity)})
		}
		return err
	})
}

// learn remembers an answer. A refusal leaves the key free, so that a refused request may be executed
// later; what was executed is never refused after that.
func (c *cashiers) learn(s *submission, told bool, out pipeline.Outcome, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		if !isUncertain(err) && fault.CodeOf(err) != "idempotency.in_progress" {
			s.open = false
			c.world.require(!told, "one key, one answer", "key %s was executed, and refused later with %s", s.key, fault.CodeOf(err))
		}
		return
	}
	s.intents[out.IntentID], s.statuses[out.Status], s.open = true, true, false
	if out.Status == intent.Executed {
		s.events, s.told = out.Events, true
	}
}

// decide approves or rejects what waits.
func (c *cashiers) decide(ctx context.Context, r *rand.Rand, by pipeline.Caller) error {
	var waiting pipeline.List
	err := c.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		waiting, err = n.app.Pipeline.List(ctx, pipeline.ListRequest{
			TenantID: tenantID, LegalEntities: c.world.entities, Filter: pipeline.ListFilter{Status: intent.PendingApproval}, Limit: 20,
		})
		return err
	})
	for _, in := range waiting.Intents {
		d := pipeline.Decision{Intent: in.ID, IdempotencyKey: "decide " + in.ID.String()}
		for _, le := range c.world.entities {
			if le.Partition == in.Partition {
				d.LegalEntity = le
			}
		}
		reject := r.Float64() < 0.25
		if r.Float64() < 0.3 { // another supervisor decides at the same time
			for _, other := range c.supervisors {
				if other.Principal.PersonID != by.Principal.PersonID {
					twin := c.world.random("twin of " + d.IdempotencyKey + by.Principal.PersonID)
					c.world.begin(func(ctx context.Context) { _ = c.decideOne(ctx, twin, other, d, twin.Float64() < 0.5) }) // one of them comes too late
				}
			}
		}
		if failed := c.decideOne(ctx, r, by, d, reject); err == nil {
			err = failed
		}
	}
	return err
}

func (c *cashiers) decideOne(ctx context.Context, r *rand.Rand, by pipeline.Caller, d pipeline.Decision, reject bool) error {
	return c.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		if reject {
			_, err := n.app.Pipeline.Reject(ctx, by, d)
			return err
		}
		_, err := n.app.Pipeline.Approve(ctx, by, d)
		return err
	})
}

// settle asks again for every answer that is open, and decides about all that waits.
func (c *cashiers) settle(ctx context.Context) error {
	r := c.world.random("settling cashier")
	c.mu.Lock()
	var open []*submission
	for _, s := range c.submitted {
		if s.open {
			open = append(open, s)
		}
	}
	c.mu.Unlock()
	sortBy(open, func(s *submission) string { return s.key })
	for _, s := range open {
		c.send(ctx, r, s)
		if s.open {
			return fmt.Errorf("request %s has no definite answer", s.key)
		}
	}
	return nil
}

func (c *cashiers) check(b *books) {
	c.checkRefusals(b)
	var answers []oracle.Answers
	for _, s := range c.submitted {
		answers = append(answers, oracle.Answers{Key: s.key, Partition: s.entity.Partition, Intents: s.intents, Events: s.events})
	}
	oracle.Require(c.world.require).Confirmed(b.partitions, answers)
}
