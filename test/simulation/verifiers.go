package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/application/verify/jobs"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("verifiers", 0.3, func(w *world, _ *rand.Rand) part { return &verifiers{world: w, ended: map[event.ID]jobs.State{}} })

// verifiers let nodes verify the logs of the legal entities, and cancel what others have started.
type verifiers struct {
	world   *world
	auditor ports.Principal

	mu    sync.Mutex
	ended map[event.ID]jobs.State // how a verification ended, as its record says
}

func (p *verifiers) prepare(ctx context.Context) (err error) {
	p.auditor, err = p.world.enroll(ctx, "p-verifier", event.Human, "auditor")
	return err
}

func (p *verifiers) work() {
	for i := range 2 {
		r := p.world.random(fmt.Sprintf("verifier %d", i))
		p.world.begin(func(ctx context.Context) {
			for pause(ctx, r, 3*time.Second) == nil {
				if p.start(ctx, r, jobs.Request{Logs: p.world.entities}) == nil && r.Float64() < 0.5 { // else another one may run
					_ = p.look(ctx, r, true) // no answer says nothing
				}
			}
		})
		looking := p.world.random(fmt.Sprintf("reader of verifications %d", i))
		p.world.begin(func(ctx context.Context) {
			for pause(ctx, looking, 500*time.Millisecond) == nil {
				_ = p.look(ctx, looking, looking.Float64() < 0.1)
			}
		})
	}
}

func (p *verifiers) start(ctx context.Context, r *rand.Rand, request jobs.Request) error {
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		_, err := n.services.Verifications.Start(ctx, tenantID, p.auditor.Actor(), request)
		return err
	})
}

// look reads the newest verifications, or cancels one.
func (p *verifiers) look(ctx context.Context, r *rand.Rand, cancels bool) error {
	return p.world.request(ctx, r, func(ctx context.Context, n *run) error {
		p.mu.Lock()
		ended := maps.Clone(p.ended)
		p.mu.Unlock()
		all, err := n.services.Verifications.List(ctx, tenantID, 5)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, one := range all {
			p.learn(n, ended, one)
		}
		one := all[0]
		if cancels {
			one, err = n.services.Verifications.Cancel(ctx, tenantID, one.ID, p.auditor.Actor())
		} else {
			one, err = n.services.Verifications.Get(ctx, tenantID, one.ID)
		}
		if err == nil {
			p.learn(n, ended, one)
		}
		return err
	})
}

// learn requires that a verification which had ended before the request stays as it is.
func (p *verifiers) learn(n *run, ended map[event.ID]jobs.State, v jobs.Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is, known := ended[v.ID]; known {
		p.world.require(is == v.State, "a verification ends once", "%s at %s is %s, and was %s", v.ID, n.link.name, v.State, is)
	}
	if !v.EndedAt.IsZero() {
		p.ended[v.ID] = v.State
	}
}

// settle requires that each node comes to find everything sound.
func (p *verifiers) settle(ctx context.Context) error {
	r := p.world.random("settling verifier")
	if err := p.world.carryOutDecided(ctx); err != nil {
		return err
	}
	for _, node := range p.world.nodes {
		err := eventually(ctx, func() error {
			ctx, n := asRequest(ctx, r), node.current()
			v, err := n.services.Verifications.Start(ctx, tenantID, p.auditor.Actor(), jobs.Request{Logs: p.world.entities, WholeTenant: true, OpenKeys: true})
			for err == nil && v.State == jobs.Running {
				if err = ports.Sleep(ctx, time.Second); err == nil {
					v, err = n.services.Verifications.Get(ctx, tenantID, v.ID)
				}
			}
			if err == nil && v.State != jobs.Sound {
				err = fmt.Errorf("%s ended %s, %d findings, %s: %v", v.ID, v.State, v.Findings, v.Code, v.Checked)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// settlesLast implements settlesLast: a redaction that is under way is found.
func (p *verifiers) settlesLast() {}

// check requires that each verification has one end, the last of its events, and that none found damage.
func (p *verifiers) check(b *books) {
	ends := map[string]bool{}
	for _, events := range b.partitions {
		for i := range events {
			e := &events[i]
			var is struct {
				Data struct {
					Findings []jobs.Finding `json:"findings"`
				} `json:"data"`
			}
			switch e.Type {
			case jobs.Checked:
				p.world.require(json.Unmarshal(e.Payload, &is) == nil, "verifications are readable", "%s", e.Payload)
			case jobs.Ended:
				p.world.require(!ends[e.Stream.ID], "a verification ends once", "%s", e.Stream.ID)
				ends[e.Stream.ID] = true
				continue
			default:
				continue
			}
			p.world.require(!ends[e.Stream.ID], "a verification ends once", "%s goes on after its end", e.Stream.ID)
			for _, f := range is.Data.Findings {
				p.world.require(f.Kind == string(verify.RedactionUnannounced), "what is sound is found sound", "%s: %v", e.Stream.ID, f)
			}
		}
	}
	for id := range p.ended {
		p.world.require(ends[id.String()], "a verification ends once", "%s has no end in the log", id)
	}
}
