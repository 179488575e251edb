package simulation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	eventappend "github.com/erpbackbone/backbone/application/append"
	"github.com/erpbackbone/backbone/application/registry"
	"github.com/erpbackbone/backbone/application/streams"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/stream"
	"github.com/erpbackbone/backbone/ports"
)

var _ = takesPart("notes", 0.4, func(w *world, r *rand.Rand) part {
	return &notes{world: w, writers: 1 + r.IntN(3), streams: 1 + r.IntN(3), confirmed: map[event.ID]confirmedNote{}}
})

// notes are written by services, without intents: each writer expects the version that it has read.
// Streams of notes are deleted, recreated and described, all at once.
type notes struct {
	world   *world
	writers int
	streams int
	service ports.Principal

	mu        sync.Mutex
	confirmed map[event.ID]confirmedNote
}

const noteType = "note.note.written"

type confirmedNote struct {
	event    ports.AppendedEvent
	expected event.Version // the version that the writer had read
	begins   bool          // the stream, which did not exist when the writer read it
}

func (p *notes) prepare(ctx context.Context) (err error) {
	w := p.world
	p.service = ports.Principal{TenantID: tenantID, PersonID: "s-notes", PrincipalID: "s-notes-1", ActorType: event.System, RoleLabel: "module", Roles: []string{"module"}}
	admin := event.Actor{Type: event.Human, ID: "p-owner", Name: "admin"}
	_, err = w.nodes[0].current().app.Registry.Register(ctx, eventtype.Registration{
		TenantID: tenantID, Type: noteType, SchemaVersion: 1, Module: "note", RetentionClass: eventtype.Standard,
		DataSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["text"],"properties":{"text":{"type":"string"}}}`),
	}, admin, registry.ProofRequest{})
	return err
}

func (p *notes) work() {
	for i := range p.writers {
		r, name := p.world.random(fmt.Sprintf("writer %d", i)), fmt.Sprintf("note %d", i)
		p.world.begin(func(ctx context.Context) {
			for n := 0; pause(ctx, r, 800*time.Millisecond) == nil; n++ {
				p.write(ctx, r, fmt.Sprintf("%s-%d", name, n))
			}
		})
	}
}

func (p *notes) stream(r *rand.Rand) event.StreamID {
	return event.StreamID{Type: "note", ID: fmt.Sprintf("N%d", r.IntN(p.streams))}
}

// write reads the version of a stream and adds a note, or changes the stream, expecting that version.
func (p *notes) write(ctx context.Context, r *rand.Rand, key string) {
	le, id := p.world.entities[r.IntN(len(p.world.entities))], p.stream(r)
	var read streams.Status
	err := p.world.request(ctx, r, func(ctx context.Context, n *run) (err error) {
		read, err = n.services.Streams.Status(ctx, le, id, p.service.Roles)
		return err
	})
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return
	}
	expected := concurrency.NoStream()
	if read.Version > 0 && read.State == event.StreamActive {
		expected = concurrency.Exactly(read.Version)
	}
	digest := sha256.Sum256([]byte(key))
	change := streams.Change{LegalEntity: le, Stream: id, Actor: p.service.Actor(), PersonID: p.service.PersonID, Roles: p.service.Roles, Expected: expected, IdempotencyKey: key, Fingerprint: digest}
	what := r.Float64()
	_ = p.world.retry(ctx, r, func(ctx context.Context, n *run) error { // a refusal is an answer
		switch {
		case what < 0.1:
			_, err := n.services.Streams.Delete(ctx, change, false)
			return err
		case what < 0.2:
			_, err := n.services.Streams.SetMetadata(ctx, change, stream.Metadata{MaxCount: 5})
			return err
		}
		receipts, _, err := n.services.Appends.Append(ctx, eventappend.Request{
			LegalEntity: le, Actor: p.service.Actor(), PersonID: p.service.PersonID, Roles: p.service.Roles,
			Drafts:  []event.Draft{{Type: noteType, Stream: id, Data: map[string]string{"text": key}}},
			Streams: []concurrency.StreamExpectation{{Stream: id, Expected: expected}}, IdempotencyKey: key, Digest: digest,
		})
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.confirmed[receipts[0].ID] = confirmedNote{receipts[0], read.Version, expected == concurrency.NoStream()}
		}
		return err
	})
}

func (p *notes) settle(context.Context) error { return nil }

// check requires that each note follows the version that its writer had read, with nothing but
// metadata in between, and that one which begins a stream follows nothing or a deletion.
func (p *notes) check(b *books) {
	for _, le := range p.world.entities {
		events := b.partitions[le.Partition]
		last, exists := map[event.StreamID]event.Version{}, map[event.StreamID]bool{}
		for i := range events {
			e := &events[i]
			if e.Stream.Type != "note" {
				continue
			}
			if c, known := p.confirmed[e.ID]; known {
				p.world.require(c.event.Sequence == e.Sequence && c.event.Checksum == e.Checksum, "nothing confirmed is lost", "note %s", e.ID)
				p.world.require(c.begins && !exists[e.Stream] || !c.begins && c.expected >= last[e.Stream] && c.expected < e.StreamVersion, "expected versions are exact", "note %s at version %d follows %d, and its writer had read %d", e.ID, e.StreamVersion, last[e.Stream], c.expected)
				delete(p.confirmed, e.ID)
			}
			if e.Type == noteType || e.Type == stream.Deleted {
				last[e.Stream], exists[e.Stream] = e.StreamVersion, e.Type == noteType
			}
		}
	}
	p.world.require(len(p.confirmed) == 0, "nothing confirmed is lost", "%d notes", len(p.confirmed))
}
