package simulation

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/query"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("forms", 0.3, func(w *world, _ *rand.Rand) part {
	return &forms{world: w, versions: []uint32{1}, seen: map[string]uint32{}, texts: map[event.ID]string{}}
})

// forms are events of a type that gets new versions while they are written and read. Each version needs
// one more member, which its upcaster adds, so that an event shows which steps it has gone.
type forms struct {
	world               *world
	designer, confirmer event.Actor
	service             ports.Principal

	mu       sync.Mutex
	versions []uint32          // that are registered, ascending
	tried    []uint32          // whose confirmation was asked for
	rejected []uint32          // whose rejection was answered
	seen     map[string]uint32 // the version that each process has read events in
	texts    map[event.ID]string
}

const formType = "form.form.filled"

// form is the data of an event in some version.
type form map[string]any

// formIn is the data of an event as it is written in a version.
func formIn(versions []uint32, version uint32, text string) form {
	f := form{"text": text, "steps": fmt.Sprint(version)}
	for _, v := range versions {
		if v > 1 && v <= version {
			f[fmt.Sprintf("of_%d", v)] = v
		}
	}
	return f
}

// readAs is the same data as it reads in a later version.
func (f form) readAs(versions []uint32, from, to uint32) form {
	out := maps.Clone(f)
	for _, v := range versions {
		if v > from && v <= to {
			out[fmt.Sprintf("of_%d", v)] = v
			out["steps"] = fmt.Sprintf("%s-%d", out["steps"], v)
		}
	}
	return out
}

// registration is that of a version after the given ones.
func registration(versions []uint32, version uint32) eventtype.Registration {
	members, required := []string{`"text":{"type":"string"}`, `"steps":{"type":"string"}`}, []string{`"text"`, `"steps"`}
	for _, v := range append(slices.Clone(versions), version) {
		if v > 1 {
			members, required = append(members, fmt.Sprintf(`"of_%d":{"type":"integer"}`, v)), append(required, fmt.Sprintf(`"of_%d"`, v))
		}
	}
	r := eventtype.Registration{
		TenantID: tenantID, Type: formType, SchemaVersion: version, Module: "form", RetentionClass: eventtype.Standard,
		DataSchema: json.RawMessage(fmt.Sprintf(`{"type":"object","additionalProperties":false,"required":[%s],"properties":{%s}}`, strings.Join(required, ","), strings.Join(members, ","))),
	}
	if n := len(versions); n > 0 {
		r.Upcasters = []eventtype.Upcaster{{FromVersion: versions[n-1], JQ: fmt.Sprintf(`.of_%d = %d | .steps += "-%d"`, version, version, version)}}
	}
	return r
}

func (p *forms) prepare(ctx context.Context) error {
	p.service = ports.Principal{TenantID: tenantID, PersonID: "s-forms", PrincipalID: "s-forms-1", ActorType: event.System, RoleLabel: "module", Roles: []string{"module"}}
	for person, actor := range map[string]*event.Actor{"p-designer": &p.designer, "p-confirmer": &p.confirmer} {
		*actor = event.Actor{Type: event.Human, ID: person, Name: "admin"}
	}
	_, err := p.world.nodes[0].current().app.Registry.Register(ctx, registration(nil, 1), p.designer, registry.ProofRequest{})
	return err
}

func (p *forms) work() {
	designer := p.world.random("designer")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, designer, 2*time.Second) == nil {
			_ = p.world.request(ctx, designer, func(ctx context.Context, n *run) error { return p.evolve(ctx, designer, n) }) // the next step follows
		}
	})
	for i := range 2 {
		writer := p.world.random(fmt.Sprintf("writer of forms %d", i))
		p.world.begin(func(ctx context.Context) {
			for n := 0; pause(ctx, writer, time.Second) == nil; n++ {
				p.write(ctx, writer, fmt.Sprintf("form %d-%d", i, n))
			}
		})
	}
	reader := p.world.random("reader of forms")
	p.world.begin(func(ctx context.Context) {
		for pause(ctx, reader, 400*time.Millisecond) == nil {
			_ = p.world.request(ctx, reader, func(ctx context.Context, n *run) error { _, err := p.read(ctx, n, reader); return err }) // no answer shows nothing
		}
	})
}

// evolve takes the next step: it proposes a version, or decides about the one that is proposed.
func (p *forms) evolve(ctx context.Context, r *rand.Rand, n *run) error {
	all, err := p.learn(ctx, n)
	if err != nil {
		return err
	}
	next := uint32(1)
	for _, v := range all {
		next = max(next, v.SchemaVersion+1)
		if v.Proposal == nil {
			continue
		}
		d := registry.Decision{TenantID: tenantID, Type: formType, SchemaVersion: v.SchemaVersion, By: p.confirmer}
		switch fate := r.Float64(); {
		case fate < 0.1:
			d.By = p.designer
			_, err := n.app.Registry.Confirm(ctx, d, registry.ProofRequest{})
			p.world.require(err != nil, "another person confirms", "version %d", v.SchemaVersion)
			return err
		case fate < 0.3 && !slices.Contains(p.tried, v.SchemaVersion):
			_, err = n.app.Registry.Reject(ctx, d)
			if err == nil {
				p.mu.Lock()
				defer p.mu.Unlock()
				p.rejected = append(p.rejected, v.SchemaVersion)
			}
			return err
		}
		p.mu.Lock()
		p.tried = append(p.tried, v.SchemaVersion)
		p.mu.Unlock()
		_, err = n.app.Registry.Confirm(ctx, d, registry.ProofRequest{})
		return err
	}
	p.mu.Lock()
	reg := registration(p.versions, next)
	p.mu.Unlock()
	_, err = n.app.Registry.Register(ctx, reg, p.designer, registry.ProofRequest{})
	return err
}

// learn reads which versions are registered.
func (p *forms) learn(ctx context.Context, n *run) ([]eventtype.Registration, error) {
	all, err := n.app.Registry.ListVersions(ctx, tenantID, formType)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range slices.Backward(all) {
		p.world.require(v.Withheld || v.SchemaVersion == 1 || slices.Contains(p.tried, v.SchemaVersion), "a version is confirmed", "version %d at %s", v.SchemaVersion, n.link.name)
		if !v.Withheld && !slices.Contains(p.versions, v.SchemaVersion) {
			p.versions = append(p.versions, v.SchemaVersion)
		}
	}
	slices.Sort(p.versions)
	return all, nil
}

// write appends a form in a version that is registered, which every node takes.
func (p *forms) write(ctx context.Context, r *rand.Rand, key string) {
	p.mu.Lock()
	version := p.versions[max(0, len(p.versions)-1-r.IntN(2))]
	data := formIn(p.versions, version, key)
	p.mu.Unlock()
	content, _ := json.Marshal(data) // of texts and numbers
	le := p.world.entities[r.IntN(len(p.world.entities))]
	err := p.world.retry(ctx, r, func(ctx context.Context, n *run) error {
		receipts, _, err := n.services.Appends.Append(ctx, eventappend.Request{
			LegalEntity: le, Actor: p.service.Actor(), PersonID: p.service.PersonID, Roles: p.service.Roles,
			Drafts:         []event.Draft{{Type: formType, SchemaVersion: version, Stream: event.StreamID{Type: "form", ID: "F"}, Data: json.RawMessage(content)}},
			IdempotencyKey: key, Digest: event.HashPayload(event.Salt{}, content),
		})
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.texts[receipts[0].ID] = key
		}
		return err
	})
	p.world.require(err == nil || isUncertain(err) || fault.CodeOf(err) == "idempotency.in_progress", "a registered version is taken", "%s in version %d: %v", key, version, err)
}

// read reads forms as the API shows them. All events of an answer are in one version, which is that of
// the newest of them or a later one, and no earlier one than the process has used before.
func (p *forms) read(ctx context.Context, n *run, r *rand.Rand) (version uint32, err error) {
	le := p.world.entities[r.IntN(len(p.world.entities))]
	p.mu.Lock()
	before := p.seen[n.link.name]
	p.mu.Unlock()
	page, err := n.app.Query.Stream(ctx, query.StreamQuery{Entity: le, Stream: event.StreamID{Type: "form", ID: "F"}, Count: 100})
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = nil
		}
		return 0, err
	}
	shown, err := n.app.Upcaster.UpcastForDisplay(ctx, page.Events)
	if err != nil || len(shown) == 0 {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	version = shown[len(shown)-1].SchemaVersion
	known := append(slices.Clone(p.versions), p.tried...)
	slices.Sort(known)
	known = slices.Compact(known)
	for i := range shown {
		e, stored := &shown[i], &page.Events[i]
		p.world.require(e.UpcastError == "", "every event can be read", "event %d of %s at %s: %s", e.Sequence, le.Code, n.link.name, e.UpcastError)
		p.world.require(e.SchemaVersion == version, "events are read in one version", "event %d of %s at %s is in version %d, and others are in version %d", e.Sequence, le.Code, n.link.name, e.SchemaVersion, version)
		p.world.require(slices.Contains(known, e.SchemaVersion) && !slices.Contains(p.rejected, e.SchemaVersion), "events are read in registered versions", "event %d of %s at %s is in version %d", e.Sequence, le.Code, n.link.name, e.SchemaVersion)
		p.compare(le, e, stored, known)
	}
	p.world.require(version >= before, "processes do not go back to earlier versions", "%s reads in version %d after %d", n.link.name, version, before)
	p.seen[n.link.name] = max(p.seen[n.link.name], version)
	return version, nil
}

// compare requires that an event has gone all steps from its stored version to the one in which it is
// read. It is called with the lock held.
func (p *forms) compare(le ports.LegalEntity, e, stored *event.Recorded, known []uint32) {
	var was, is struct{ Data form }
	err := json.Unmarshal(stored.Payload, &was)
	if err == nil {
		err = json.Unmarshal(e.Payload, &is)
	}
	want := was.Data.readAs(slices.DeleteFunc(slices.Clone(known), func(v uint32) bool { return slices.Contains(p.rejected, v) }), stored.SchemaVersion, e.SchemaVersion)
	p.world.require(err == nil && fmt.Sprint(is.Data) == fmt.Sprint(want), "events go all steps to their newest version", "event %d of %s in version %d is %v, not %v", e.Sequence, le.Code, e.SchemaVersion, is.Data, want)
	text, confirmed := p.texts[e.ID]
	p.world.require(!confirmed || is.Data["text"] == text, "events go all steps to their newest version", "event %d of %s is %v, not of %s", e.Sequence, le.Code, is.Data, text)
}

// settle requires that every node comes to read in the newest version.
func (p *forms) settle(ctx context.Context) error {
	r := p.world.random("settling reader of forms")
	for _, node := range p.world.nodes {
		err := eventually(ctx, func() error {
			ctx, n := asRequest(ctx, r), node.current()
			if _, err := p.learn(ctx, n); err != nil {
				return err
			}
			version, err := p.read(ctx, n, r)
			if newest := p.versions[len(p.versions)-1]; err == nil && version > 0 && version < newest {
				err = fmt.Errorf("%s reads in version %d, not %d", n.link.name, version, newest)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// check requires that no event was stored in a version that was not registered.
func (p *forms) check(b *books) {
	for _, events := range b.partitions {
		for i := range events {
			e := &events[i]
			if e.Type == formType {
				p.world.require(slices.Contains(p.versions, e.SchemaVersion), "events are stored in registered versions", "event %d of partition %d in version %d", e.Sequence, e.Partition, e.SchemaVersion)
				delete(p.texts, e.ID)
			}
		}
	}
	p.world.require(len(p.texts) == 0, "nothing confirmed is lost", "%d forms", len(p.texts))
}
