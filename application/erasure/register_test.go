package erasure_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// register keeps requests, keys, holds and receipts in memory, with the rules of the
// stores.
type register struct {
	clock ports.Clock

	mu         sync.Mutex
	requests   map[event.ID]ports.ErasureRequest
	done       map[event.ID]ports.Destruction
	keys       map[ports.SubjectKeyID]*key
	fences     map[ports.SubjectKeyID]event.ID
	holds      map[event.ID]ports.LegalHold
	receipts   []ports.ErasureReceipt
	nodes      map[string]node
	generation int64
	replayed   []uint64
}

type key struct {
	versions  []shredding.Key
	destroyed bool
}

type node struct {
	forgotten int64
	at        time.Time
}

func newRegister(clock ports.Clock) *register {
	return &register{
		clock: clock, requests: map[event.ID]ports.ErasureRequest{}, done: map[event.ID]ports.Destruction{}, keys: map[ports.SubjectKeyID]*key{},
		fences: map[ports.SubjectKeyID]event.ID{}, holds: map[event.ID]ports.LegalHold{}, nodes: map[string]node{},
	}
}

func refuse(kind fault.Kind, code string) error { return fault.New(kind, code, "the register refuses") }

func changed() error { return refuse(fault.Conflict, "erasure.changed") }

// mint makes the next version of a key.
func (g *register) mint(id ports.SubjectKeyID) shredding.Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.keys[id]
	if k == nil {
		k = &key{}
		g.keys[id] = k
	}
	version := uint32(len(k.versions) + 1)
	dek := bytes.Repeat([]byte{byte(len(g.keys)), byte(version)}, shredding.DEKSize/2)
	made, err := shredding.NewKey(id.Class, version, dek)
	if err != nil {
		panic(err)
	}
	k.versions = append(k.versions, made)
	return made
}

// LeaseKeys implements memory.KeyLeases.
func (g *register) LeaseKeys(ids []ports.SubjectKeyID) ([]ports.SubjectKey, func()) {
	g.mu.Lock()
	out := make([]ports.SubjectKey, len(ids))
	for i, id := range ids {
		out[i] = ports.SubjectKey{SubjectKeyID: id, State: shredding.KeyAbsent}
		k := g.keys[id]
		switch {
		case k == nil:
		case k.destroyed:
			out[i].State = shredding.KeyDestroyed
		default:
			out[i].State, out[i].Active = shredding.KeyActive, uint32(len(k.versions))
		}
		if _, fenced := g.fences[id]; fenced && out[i].State == shredding.KeyActive {
			out[i].State = shredding.KeyFenced
		}
	}
	return out, g.mu.Unlock
}

func (g *register) AddErasure(_ context.Context, r ports.ErasureRequest) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if stands, known := g.requests[r.ID]; known {
		if stands.Subject != r.Subject || stands.RequestedBy != r.RequestedBy || stands.Reason != r.Reason {
			return changed()
		}
		return nil
	}
	for _, x := range g.requests {
		if x.TenantID == r.TenantID && x.Subject == r.Subject && !x.State.Final() {
			return fault.New(fault.Conflict, "erasure.duplicate", "one is under way").With("request_id", x.ID.String())
		}
	}
	r.State, r.Revision = shredding.ErasureRequested, 1
	g.requests[r.ID] = r
	return nil
}

func (g *register) Erasure(_ context.Context, tenantID string, id event.ID) (ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r, known := g.requests[id]
	if !known || tenantID != "" && r.TenantID != tenantID {
		return ports.ErasureRequest{}, refuse(fault.NotFound, "erasure.not_found")
	}
	return r, nil
}

func (g *register) Erasures(_ context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []ports.ErasureRequest
	for _, r := range g.requests {
		if (tenantID == "" || r.TenantID == tenantID) && (len(states) == 0 || slices.Contains(states, r.State)) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b ports.ErasureRequest) int {
		return cmp.Or(b.RequestedAt.Compare(a.RequestedAt), b.ID.Compare(a.ID))
	})
	return out[:min(limit, len(out))], nil
}

// take finds a request at the revision that a caller saw.
func (g *register) take(r ports.ErasureRequest) (ports.ErasureRequest, error) {
	stands, known := g.requests[r.ID]
	if !known {
		return stands, refuse(fault.NotFound, "erasure.not_found")
	}
	if stands.Revision != r.Revision {
		return stands, changed()
	}
	return stands, nil
}

func (g *register) put(r ports.ErasureRequest) ports.ErasureRequest {
	r.Revision++
	r.Attempts, r.LastError = 0, ""
	g.requests[r.ID] = r
	return r
}

func (g *register) MoveErasure(_ context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stands, err := g.take(r)
	if err != nil {
		return r, err
	}
	if !stands.State.CanBecome(r.State) || slices.Contains([]shredding.ErasureState{shredding.ErasureApproved, shredding.ErasureFenced, shredding.ErasureDestroyed}, r.State) ||
		stands.State == shredding.ErasureFenced || r.State == shredding.ErasureReceipted && !g.receipts[r.Receipt-1].Exported {
		return r, refuse(fault.FailedPrecondition, "erasure.move_refused")
	}
	return g.put(r), nil
}

func (g *register) NoteErasureFailure(_ context.Context, id event.ID, code string) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.requests[id]
	r.Attempts, r.LastError = r.Attempts+1, code
	g.requests[id] = r
	return r.Attempts, nil
}

func (g *register) ApproveErasure(_ context.Context, id event.ID, approver string, scope event.Hash, at time.Time) (ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.requests[id]
	switch {
	case approver == "" || approver == r.RequestedBy:
		return r, refuse(fault.Forbidden, "erasure.same_person")
	case r.State == shredding.ErasureApproved && r.ApprovedBy == approver && r.Scope == scope:
		return r, nil
	case r.State != shredding.ErasurePreviewed:
		return r, refuse(fault.FailedPrecondition, "erasure.move_refused")
	case r.Scope != scope:
		return r, refuse(fault.FailedPrecondition, "erasure.scope_changed")
	}
	r.State, r.ApprovedBy, r.ApprovedAt = shredding.ErasureApproved, approver, at
	return g.put(r), nil
}

func (g *register) held(r ports.ErasureRequest) bool {
	for _, h := range g.holds {
		if g.inForce(h, r.TenantID, r.Subject, event.DateOf(g.clock.Now())) && (h.Partition == 0 || slices.Contains(r.Partitions, h.Partition)) {
			return true
		}
	}
	return false
}

func (g *register) inForce(h ports.LegalHold, tenantID string, s shredding.Subject, on event.Date) bool {
	return h.TenantID == tenantID && h.Subject == s && h.ReleasedAt.IsZero() && (h.Until == nil || *h.Until >= on)
}

// ids lists the keys that a request erases, in key order.
func ids(r ports.ErasureRequest) (out []ports.SubjectKeyID) {
	for _, p := range r.Partitions {
		for _, c := range r.Classes {
			if c.Erased {
				out = append(out, ports.SubjectKeyID{Partition: p, Subject: r.Subject, Class: c.Class})
			}
		}
	}
	return out
}

func (g *register) FenceErasure(_ context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stands, err := g.take(r)
	if err != nil {
		return r, err
	}
	if stands.State != shredding.ErasureApproved || len(ids(r)) == 0 {
		return r, refuse(fault.FailedPrecondition, "erasure.move_refused")
	}
	if g.held(stands) {
		return r, refuse(fault.FailedPrecondition, "erasure.held")
	}
	stands.Classes, stands.State = r.Classes, shredding.ErasureFenced
	for _, id := range ids(stands) {
		if _, fenced := g.fences[id]; !fenced {
			g.fences[id] = r.ID
		}
	}
	return g.put(stands), nil
}

func (g *register) RefuseErasure(_ context.Context, r ports.ErasureRequest, reason string) (ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	stands, err := g.take(r)
	if err != nil {
		return r, err
	}
	if !stands.State.CanBecome(shredding.ErasureRefused) {
		return r, refuse(fault.FailedPrecondition, "erasure.move_refused")
	}
	for id, by := range g.fences {
		if by == r.ID {
			delete(g.fences, id)
		}
	}
	stands.State, stands.EndReason, stands.Classes = shredding.ErasureRefused, reason, r.Classes
	return g.put(stands), nil
}

func (g *register) DestroyErasure(_ context.Context, id event.ID) (ports.Destruction, ports.ErasureRequest, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.requests[id]
	d, known := g.done[id]
	if !known {
		if r.State != shredding.ErasureFenced {
			return d, r, refuse(fault.FailedPrecondition, "erasure.move_refused")
		}
		if g.held(r) {
			return d, r, refuse(fault.FailedPrecondition, "erasure.held")
		}
		g.generation++
		d = ports.Destruction{DestroyedAt: event.Micros(g.clock.Now()), Generation: g.generation, Receipt: uint64(len(g.receipts) + 1)}
		for _, keyID := range ids(r) {
			out := ports.DestroyedKey{Partition: keyID.Partition, Class: keyID.Class, Reference: fmt.Sprint(keyID)}
			if k := g.keys[keyID]; k != nil {
				for _, v := range k.versions {
					f, err := v.Fingerprint()
					if err != nil {
						return d, r, err
					}
					out.Fingerprints = append(out.Fingerprints, f)
				}
			}
			g.keys[keyID] = &key{destroyed: true}
			d.Keys = append(d.Keys, out)
		}
		g.receipts = append(g.receipts, ports.ErasureReceipt{Number: d.Receipt, RequestID: id, TenantID: r.TenantID})
		g.done[id] = d
		r.State, r.DestroyedAt, r.Generation, r.Receipt = shredding.ErasureDestroyed, d.DestroyedAt, d.Generation, d.Receipt
		r = g.put(r)
	}
	d.PreviousKnown = d.Receipt == 1
	if d.Receipt > 1 {
		if before := g.receipts[d.Receipt-2].Note; before != nil {
			d.PreviousHash, d.PreviousKnown = hash(before), true
		}
	}
	return d, r, nil
}

func (g *register) SaveReceipt(_ context.Context, number uint64, note []byte, exported bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.receipts[number-1]
	if r.Note != nil && !bytes.Equal(r.Note, note) {
		return refuse(fault.Internal, "erasure.receipt_changed")
	}
	r.Note, r.Exported = note, r.Exported || exported
	return nil
}

func (g *register) Receipts(_ context.Context, from uint64, limit int) ([]ports.ErasureReceipt, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if from > uint64(len(g.receipts)) {
		return nil, nil
	}
	out := g.receipts[max(from, 1)-1:]
	return slices.Clone(out[:min(limit, len(out))]), nil
}

func (g *register) ReplayErasure(_ context.Context, receipt ports.ErasureReceipt, keys []ports.ReplayKey) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replayed = append(g.replayed, receipt.Number)
	if receipt.Number <= uint64(len(g.receipts)) {
		return nil
	}
	for _, k := range keys {
		id := ports.SubjectKeyID{Partition: k.Partition, Subject: k.Subject, Class: k.Class}
		g.fences[id], g.keys[id] = receipt.RequestID, &key{destroyed: true}
	}
	g.receipts = append(g.receipts, receipt)
	return nil
}

func (g *register) NodesBehind(_ context.Context, generation int64, since time.Time) (behind int, _ error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		if !n.at.Before(since) && n.forgotten < generation {
			behind++
		}
	}
	return behind, nil
}

func (g *register) report(name string, forgotten int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nodes[name] = node{forgotten, g.clock.Now()}
}

func (g *register) PlaceHold(_ context.Context, h ports.LegalHold) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds[h.ID] = h
	return nil
}

func (g *register) ReleaseHold(_ context.Context, tenantID string, id event.ID, by string, at time.Time) (ports.LegalHold, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h, known := g.holds[id]
	if !known || h.TenantID != tenantID {
		return h, refuse(fault.NotFound, "erasure.not_found")
	}
	h.ReleasedBy, h.ReleasedAt = by, at
	g.holds[id] = h
	return h, nil
}

func (g *register) Holds(_ context.Context, tenantID string, s shredding.Subject, on event.Date) (out []ports.LegalHold, _ error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range g.holds {
		if g.inForce(h, tenantID, s, on) {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b ports.LegalHold) int { return a.ID.Compare(b.ID) })
	return out, nil
}
