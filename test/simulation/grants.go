package simulation

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	reading "github.com/erpbackbone/backbone/application/disclosure"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("grants", 0.3, func(w *world, _ *rand.Rand) part { return &grants{world: w} })

// grants let an auditor read personal data for a time. Every value that the auditor sees is in the record
// of reads before.
type grants struct {
	world   *world
	clerk   pipeline.Caller
	officer ports.Principal
	auditor ports.Principal
	event   event.ID // about a member

	mu      sync.Mutex
	granted []*grant
	shown   []string // requests whose answer had the value
}

// grant is a grant with what its officer knows of it.
type grant struct {
	id     event.ID
	tried  time.Time // when it was asked for
	told   time.Time // when it was answered; zero: not yet
	until  time.Time
	ending bool      // its end was asked for
	ended  time.Time // when that was answered; zero: not yet
}

// clockError is how wrong the clock of a node may be.
const clockError = 2 * time.Second

const audited = "A0" // the member

func (p *grants) prepare(ctx context.Context) (err error) {
	clerk, err := p.world.enroll(ctx, "p-audit-clerk", event.Human, "cashier")
	if err != nil {
		return err
	}
	p.clerk = pipeline.Caller{Principal: clerk, Actor: clerk.Actor()}
	if p.officer, err = p.world.enroll(ctx, "p-audit-officer", event.Human, "compliance"); err != nil {
		return err
	}
	if p.auditor, err = p.world.enroll(ctx, "p-auditor", event.Human, "auditor"); err != nil {
		return err
	}
	payload, _ := json.Marshal(joining{Member: audited, Email: emailOf(audited)}) // of texts
	out, err := p.world.nodes[0].current().app.Pipeline.Submit(ctx, p.clerk, pipeline.Request{Type: joinIntent, LegalEntity: p.world.entities[0], Payload: payload, IdempotencyKey: "audited"})
	if err == nil {
		p.event = out.Events[0].ID
	}
	return err
}

func (p *grants) work() {
	officer := p.world.random("officer of grants")
	p.world.begin(func(ctx context.Context) {
		for n := 0; pause(ctx, officer, 3*time.Second) == nil; n++ {
			if officer.Float64() < 0.5 {
				p.end(ctx, officer)
				continue
			}
			p.grant(ctx, officer, fmt.Sprintf("grant %d", n))
		}
	})
	for i := range 2 {
		auditor := p.world.random(fmt.Sprintf("auditor of persons %d", i))
		p.world.begin(func(ctx context.Context) {
			for n := 0; pause(ctx, auditor, 400*time.Millisecond) == nil; n++ {
				_ = p.read(ctx, auditor, fmt.Sprintf("reading %d-%d", i, n)) // no answer shows nothing
			}
		})
	}
}

func (p *grants) grant(ctx context.Context, r *rand.Rand, key string) {
	g := &grant{tried: time.Now(), until: time.Now().Add(clockError + time.Duration(r.ExpFloat64()*float64(10*time.Second)))}
	p.mu.Lock()
	p.granted = append(p.granted, g)
	p.mu.Unlock()
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error { // it may be over before it is made
		made, _, err := n.services.Disclosures.Grant(ctx, p.officer, reading.NewGrant{PersonID: p.auditor.PersonID, Classes: []shredding.Class{"contact"}, Until: g.until, Reason: "an audit", IdempotencyKey: key})
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			g.id, g.told = made.ID, time.Now()
		}
		return err
	})
}

// end ends the newest grant.
func (p *grants) end(ctx context.Context, r *rand.Rand) {
	p.mu.Lock()
	var g *grant
	for _, one := range p.granted {
		if !one.told.IsZero() && !one.ending {
			g = one
		}
	}
	if g == nil {
		p.mu.Unlock()
		return
	}
	g.ending = true
	p.mu.Unlock()
	err := p.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		_, err := n.services.Disclosures.End(ctx, p.officer, g.id, "the audit is over")
		return err
	})
	if !isUncertain(err) { // it is over, by this call or by one whose answer was lost
		p.mu.Lock()
		defer p.mu.Unlock()
		g.ended = time.Now()
	}
}

// read opens the event as the auditor, who sees the value under a grant and with a reason only.
func (p *grants) read(ctx context.Context, r *rand.Rand, request string) error {
	why := reading.Purpose{Operation: "getEvent", RequestID: request}
	if r.Float64() < 0.8 {
		why.Reason = "an audit"
	}
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		began := time.Now()
		reader, err := n.services.Disclosures.Reader(ctx, p.auditor, why)
		if err != nil {
			return err
		}
		e, err := n.app.Store.Events.EventByID(ctx, p.world.entities[0].Partition, p.event)
		if err != nil {
			return err
		}
		documents := []module.SealedDocument{{At: shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion}, Document: e.Payload}}
		if err := n.services.Vault.Open(ctx, documents, reader); err != nil {
			return err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		shown := bytes.Contains(documents[0].Document, []byte(emailOf(audited)))
		may := slices.ContainsFunc(p.granted, func(g *grant) bool {
			return (g.ended.IsZero() || g.ended.After(began)) && g.until.Add(clockError).After(began)
		})
		must := slices.ContainsFunc(p.granted, func(g *grant) bool {
			return !g.told.IsZero() && g.told.Before(began) && !g.ending && g.until.Add(-clockError).After(time.Now())
		})
		p.world.require(!shown || may && why.Reason != "", "an auditor reads by grants only", "%s at %s for %q", request, n.link.name, why.Reason)
		p.world.require(shown || !must || why.Reason == "", "a grant lets its auditor read", "%s at %s: %s", request, n.link.name, documents[0].Document)
		if shown {
			p.shown = append(p.shown, request)
		}
		return nil
	})
}

// settle reads under a grant at every node, and no more after its end.
func (p *grants) settle(ctx context.Context) error {
	r := p.world.random("settling auditor of persons")
	p.grant(ctx, r, fmt.Sprintf("settling %d", len(p.granted)))
	for i := range 10 {
		if i == 5 {
			p.end(ctx, r)
		}
		if err := eventually(ctx, func() error { return p.read(ctx, r, fmt.Sprintf("settling %d", i)) }); err != nil {
			return err
		}
	}
	return nil
}

// check requires that each value that was shown is in the record of reads, with the grant.
func (p *grants) check(*books) {
	w := p.world
	logs, err := w.database.Directory.AdministrativeLogs(context.Background(), tenantID)
	if !w.require(err == nil && len(logs) == 1, "record of reads", "%v", err) {
		return
	}
	all, err := w.database.AccessLog.SearchAccesses(context.Background(), ports.AccessQuery{Log: logs[0].Partition, PersonID: p.auditor.PersonID, Limit: 1 << 20})
	w.require(err == nil, "record of reads", "%v", err)
	recorded := map[string]disclosure.Access{}
	for _, a := range all {
		recorded[a.RequestID] = a
	}
	for _, request := range p.shown {
		a, found := recorded[request]
		w.require(found && a.Subject == subjectOf(audited) && a.Class == "contact" && a.Values == 1, "what is shown is recorded", "%s: %v", request, a)
		w.require(slices.ContainsFunc(p.granted, func(g *grant) bool { return g.id == a.GrantID || g.told.IsZero() }), "what is shown is recorded", "%s by grant %s", request, a.GrantID)
	}
}
