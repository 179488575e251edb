package memory

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

type fence struct {
	request event.ID
	lifted  bool
}

type erasure struct {
	ports.ErasureRequest
	approvalStored time.Time
	fencedClasses  []shredding.KeyClass
	steps          []erasureStep
}

type erasureStep struct {
	ports.ErasureStep
	person string     // who moved it; "": the worker
	scope  event.Hash // that was approved
}

type receipt struct {
	ports.ErasureReceipt
	destruction ports.Destruction
}

func erasureNotFound() error {
	return fault.New(fault.NotFound, "erasure.not_found", "there is no such erasure request, hold or receipt; look at the list")
}

func erasureChanged() error {
	return fault.New(fault.Conflict, "erasure.changed", "another process has changed the request; read it again")
}

func moveRefused() error {
	return fault.New(fault.FailedPrecondition, "erasure.move_refused", "the erasure request cannot move to that state from its present one; read the request again")
}

func otherTenantsKey() error {
	return fault.New(fault.Internal, "keys.request_invalid", "the key store was asked for a key of another tenant; report this")
}

func receiptChanged() error {
	return fault.New(fault.Internal, "erasure.receipt_changed", "another receipt is stored under this number; compare the store with the export store before anything else is erased")
}

func (e *erasure) copy() ports.ErasureRequest {
	r := e.ErasureRequest
	r.Partitions, r.Classes = slices.Clone(r.Partitions), slices.Clone(r.Classes)
	r.Preview, r.Results = bytes.Clone(r.Preview), bytes.Clone(r.Results)
	return r
}

func (k *keyState) request(id event.ID) (*erasure, error) {
	for _, e := range k.requests {
		if e.ID == id {
			return e, nil
		}
	}
	return nil, erasureNotFound()
}

// change runs f on a request with the lock held.
func change[T any](k *keyState, id event.ID, f func(e *erasure) (T, error)) (out T, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, err := k.request(id)
	if err != nil {
		return out, err
	}
	return f(e)
}

func (k *keyState) enterState(e *erasure, s shredding.ErasureState) ports.ErasureRequest {
	step := erasureStep{ErasureStep: ports.ErasureStep{State: s, At: k.now(), Attempts: e.Attempts}, person: e.EndedBy}
	if s == shredding.ErasureApproved {
		step.person, step.scope = e.ApprovedBy, e.Scope
	}
	e.steps = append(e.steps, step)
	e.State, e.Attempts, e.LastError, e.UpdatedAt = s, 0, "", k.now()
	e.Revision++
	return e.copy()
}

// AddErasure implements ports.ErasureRegister.
func (k *ErasureRegister) AddErasure(_ context.Context, r ports.ErasureRequest) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.requests {
		same := e.TenantID == r.TenantID && e.Subject == r.Subject
		switch {
		case e.ID == r.ID && same && e.RequestedBy == r.RequestedBy && e.Basis == r.Basis && e.Reason == r.Reason && e.DueOn == r.DueOn:
			return nil
		case e.ID == r.ID:
			return erasureChanged()
		case same && !e.State.Final():
			return fault.New(fault.Conflict, "erasure.duplicate", "an erasure of this subject has begun already; follow that one").With("request_id", e.ID.String())
		}
	}
	r.State, r.Revision, r.UpdatedAt = shredding.ErasureRequested, 1, k.now()
	e := &erasure{ErasureRequest: r, steps: []erasureStep{{ErasureStep: ports.ErasureStep{State: r.State, At: r.UpdatedAt}, person: r.RequestedBy}}}
	e.ErasureRequest = e.copy()
	k.requests = append(k.requests, e)
	return nil
}

// Erasure implements ports.ErasureRegister.
func (k *ErasureRegister) Erasure(_ context.Context, tenantID string, id event.ID) (ports.ErasureRequest, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	e, err := k.request(id)
	if err != nil || tenantID != "" && e.TenantID != tenantID {
		return ports.ErasureRequest{}, erasureNotFound()
	}
	return e.copy(), nil
}

// Erasures implements ports.ErasureRegister.
func (k *ErasureRegister) Erasures(_ context.Context, tenantID string, states []shredding.ErasureState, limit int) ([]ports.ErasureRequest, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := []ports.ErasureRequest{}
	for _, e := range k.requests {
		if (tenantID == "" || e.TenantID == tenantID) && (len(states) == 0 || slices.Contains(states, e.State)) {
			out = append(out, e.copy())
		}
	}
	slices.SortFunc(out, func(a, b ports.ErasureRequest) int {
		return cmp.Or(b.RequestedAt.Compare(a.RequestedAt), bytes.Compare(b.ID[:], a.ID[:]))
	})
	return first(out, limit), nil
}

// ErasuresToFollow implements ports.ErasureRegister.
func (k *ErasureRegister) ErasuresToFollow(_ context.Context, on event.Date, after event.ID, limit int) ([]ports.ErasureRequest, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	out := []ports.ErasureRequest{}
	for _, e := range k.requests {
		kept := slices.ContainsFunc(e.Classes, func(c ports.ErasureClass) bool { return !c.Erased && c.Until != nil && *c.Until < on })
		if kept && bytes.Compare(e.ID[:], after[:]) > 0 && (e.State == shredding.ErasureCompleted || e.State == shredding.ErasureRefused) {
			out = append(out, e.copy())
		}
	}
	slices.SortFunc(out, func(a, b ports.ErasureRequest) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return first(out, limit), nil
}

// ErasureSteps implements ports.ErasureRegister.
func (k *ErasureRegister) ErasureSteps(_ context.Context, tenantID string, id event.ID) ([]ports.ErasureStep, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	e, err := k.request(id)
	if err != nil || tenantID != "" && e.TenantID != tenantID {
		return []ports.ErasureStep{}, nil
	}
	out := make([]ports.ErasureStep, len(e.steps))
	for i, s := range e.steps {
		out[i] = s.ErasureStep
	}
	return out, nil
}

// MoveErasure implements ports.ErasureRegister.
func (k *ErasureRegister) MoveErasure(_ context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return change(k.keyState, r.ID, func(e *erasure) (ports.ErasureRequest, error) {
		if e.Revision == r.Revision+1 && e.State == r.State && e.Scope == r.Scope && bytes.Equal(e.Preview, r.Preview) &&
			e.EndedBy == r.EndedBy && e.EndReason == r.EndReason && e.EvictedAt.Equal(r.EvictedAt) && e.CompletedAt.Equal(r.CompletedAt) && bytes.Equal(e.Results, r.Results) {
			return e.copy(), nil
		}
		if e.Revision != r.Revision {
			return ports.ErasureRequest{}, erasureChanged()
		}
		switch to := r.State; {
		case !e.State.CanBecome(to), to == shredding.ErasureApproved, to == shredding.ErasureFenced, to == shredding.ErasureDestroyed,
			to == shredding.ErasureRefused && e.State == shredding.ErasureFenced, to == shredding.ErasurePreviewed && r.Scope == (event.Hash{}),
			to == shredding.ErasureReceipted && !k.isExported(e.ID), to == shredding.ErasureEvicted && k.mayBeCached(e):
			return ports.ErasureRequest{}, moveRefused()
		case to == shredding.ErasurePreviewed:
			e.Partitions, e.Scope, e.Preview = slices.Clone(r.Partitions), r.Scope, bytes.Clone(r.Preview)
			e.ApprovedBy, e.ApprovedAt = "", time.Time{}
		}
		if !e.State.Fences() {
			e.Classes = slices.Clone(r.Classes)
		}
		e.EndedBy, e.EndReason, e.EvictedAt, e.CompletedAt, e.Results = r.EndedBy, r.EndReason, r.EvictedAt, r.CompletedAt, bytes.Clone(r.Results)
		return k.enterState(e, r.State), nil
	})
}

// mayBeCached reports whether a node may still open values with the keys of an erasure: it
// reported shortly before the destruction, has not reported an eviction since, and keys may
// still be cached.
func (k *keyState) mayBeCached(e *erasure) bool {
	if !k.now().Before(e.DestroyedAt.Add(time.Minute)) {
		return false
	}
	for _, n := range k.nodes {
		if !n.at.Before(e.DestroyedAt.Add(-2*time.Minute)) && n.generation < e.Generation {
			return true
		}
	}
	return false
}

func (k *keyState) isExported(request event.ID) bool {
	return slices.ContainsFunc(k.receipts, func(r *receipt) bool { return r.RequestID == request && len(r.Note) > 0 && r.Exported })
}

// NoteErasureFailure implements ports.ErasureRegister.
func (k *ErasureRegister) NoteErasureFailure(_ context.Context, id event.ID, code string) (attempts int, err error) {
	return change(k.keyState, id, func(e *erasure) (int, error) {
		e.Attempts++
		e.LastError, e.UpdatedAt = code, k.now()
		return e.Attempts, nil
	})
}

// ApproveErasure implements ports.ErasureRegister.
func (k *ErasureRegister) ApproveErasure(_ context.Context, id event.ID, approver string, scope event.Hash, at time.Time) (ports.ErasureRequest, error) {
	return change(k.keyState, id, func(e *erasure) (ports.ErasureRequest, error) {
		if err := shredding.CheckApprover(e.RequestedBy, approver); err != nil {
			return ports.ErasureRequest{}, err
		}
		switch {
		case e.State == shredding.ErasureApproved && e.ApprovedBy == approver && e.Scope == scope:
			return e.copy(), nil
		case e.State != shredding.ErasurePreviewed:
			return ports.ErasureRequest{}, moveRefused()
		case e.Scope != scope:
			return ports.ErasureRequest{}, fault.New(fault.FailedPrecondition, "erasure.scope_changed", "the request concerns other data than was approved; approve the new preview")
		}
		e.ApprovedBy, e.ApprovedAt, e.approvalStored = approver, at.UTC(), k.now()
		return k.enterState(e, shredding.ErasureApproved), nil
	})
}

func (k *keyState) checkHolds(e *erasure) error {
	today := event.DateOf(k.now())
	for _, h := range k.holds {
		if h.TenantID == e.TenantID && h.Subject == e.Subject && inForce(&h, today) && (h.Partition == 0 || slices.Contains(e.Partitions, h.Partition)) {
			return fault.New(fault.FailedPrecondition, "erasure.held", "a legal hold stands against the erasure; wait until it ends or have it released")
		}
	}
	return nil
}

func inForce(h *ports.LegalHold, on event.Date) bool {
	return h.ReleasedAt.IsZero() && (h.Until == nil || *h.Until >= on)
}

// FenceErasure implements ports.ErasureRegister.
func (k *ErasureRegister) FenceErasure(_ context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	return change(k.keyState, r.ID, func(e *erasure) (ports.ErasureRequest, error) {
		var erased []shredding.KeyClass
		for _, c := range r.Classes {
			if c.Erased {
				erased = append(erased, c.Class)
			}
		}
		slices.Sort(erased)
		erased = slices.Compact(erased)
		switch {
		case e.State == shredding.ErasureFenced && e.Revision == r.Revision+1 && slices.Equal(erased, e.fencedClasses):
			return e.copy(), nil
		case e.Revision != r.Revision:
			return ports.ErasureRequest{}, erasureChanged()
		case e.State != shredding.ErasureApproved || len(erased) == 0:
			return ports.ErasureRequest{}, moveRefused()
		case k.now().Sub(e.approvalStored) >= shredding.ApprovalValidity:
			return ports.ErasureRequest{}, fault.New(fault.FailedPrecondition, "erasure.approval_expired", "the approval is missing or too old; request the erasure again")
		}
		for id, s := range k.subjects {
			if id.Subject == e.Subject && slices.Contains(e.Partitions, id.Partition) && s.tenantID != e.TenantID {
				return ports.ErasureRequest{}, otherTenantsKey()
			}
		}
		if err := k.checkHolds(e); err != nil {
			return ports.ErasureRequest{}, err
		}
		e.fencedClasses, e.Classes = erased, slices.Clone(r.Classes)
		for _, id := range e.keys() {
			k.fence(id, e.ID)
		}
		return k.enterState(e, shredding.ErasureFenced), nil
	})
}

func (k *keyState) fence(id ports.SubjectKeyID, request event.ID) {
	if !k.isFenced(id) {
		k.fences[id] = &fence{request: request}
	}
}

// keys are those of the fenced classes, by partition and class.
func (e *erasure) keys() []ports.SubjectKeyID {
	var out []ports.SubjectKeyID
	for _, p := range slices.Sorted(slices.Values(e.Partitions)) {
		for _, c := range e.fencedClasses {
			out = append(out, ports.SubjectKeyID{Partition: p, Subject: e.Subject, Class: c})
		}
	}
	return out
}

// RefuseErasure implements ports.ErasureRegister.
func (k *ErasureRegister) RefuseErasure(_ context.Context, r ports.ErasureRequest, reason string) (ports.ErasureRequest, error) {
	return change(k.keyState, r.ID, func(e *erasure) (ports.ErasureRequest, error) {
		switch {
		case e.State == shredding.ErasureRefused && e.Revision == r.Revision+1 && e.EndReason == reason:
			return e.copy(), nil
		case e.Revision != r.Revision:
			return ports.ErasureRequest{}, erasureChanged()
		case !e.State.CanBecome(shredding.ErasureRefused):
			return ports.ErasureRequest{}, moveRefused()
		}
		for _, f := range k.fences {
			f.lifted = f.lifted || f.request == e.ID
		}
		e.EndedBy, e.EndReason, e.Classes = r.EndedBy, reason, slices.Clone(r.Classes)
		return k.enterState(e, shredding.ErasureRefused), nil
	})
}

// DestroyErasure implements ports.ErasureRegister.
func (k *ErasureRegister) DestroyErasure(ctx context.Context, id event.ID, check func(ctx context.Context) error) (ports.Destruction, ports.ErasureRequest, error) {
	if check != nil && k.isAt(id, shredding.ErasureFenced) {
		if err := check(ctx); err != nil { // without the lock, since it may read this store; no append has a lease any more
			return ports.Destruction{}, ports.ErasureRequest{}, err
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	e, err := k.request(id)
	if err != nil {
		return ports.Destruction{}, ports.ErasureRequest{}, err
	}
	var done *receipt
	if i := slices.IndexFunc(k.receipts, func(r *receipt) bool { return r.RequestID == id }); i >= 0 {
		done = k.receipts[i]
	}
	switch {
	case e.State == shredding.ErasureFenced:
		if done == nil {
			if err := k.checkHolds(e); err != nil {
				return ports.Destruction{}, ports.ErasureRequest{}, err
			}
			done = k.destroy(e)
		}
		d := done.destruction
		e.DestroyedAt, e.Generation, e.Receipt = d.DestroyedAt, d.Generation, d.Receipt
		k.enterState(e, shredding.ErasureDestroyed)
	case done == nil || e.Receipt == 0:
		return ports.Destruction{}, ports.ErasureRequest{}, moveRefused()
	}
	d := done.destruction
	d.Keys = slices.Clone(d.Keys)
	d.PreviousKnown = d.Receipt == 1
	for _, r := range k.receipts {
		if r.Number+1 == d.Receipt && len(r.Note) > 0 {
			d.PreviousHash, d.PreviousKnown = sha256.Sum256(r.Note), true
		}
	}
	return d, e.copy(), nil
}

func (k *ErasureRegister) isAt(id event.ID, state shredding.ErasureState) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e, err := k.request(id)
	return err == nil && e.State == state
}

func (k *keyState) destroy(e *erasure) *receipt {
	k.generation++
	number := uint64(1)
	if n := len(k.receipts); n > 0 {
		number = k.receipts[n-1].Number + 1
	}
	d := ports.Destruction{DestroyedAt: k.now(), Generation: k.generation, Receipt: number}
	for _, id := range e.keys() {
		s := k.ensureKey(id, e.TenantID)
		key := ports.DestroyedKey{Partition: id.Partition, Class: id.Class, Reference: s.Reference}
		for _, v := range s.Versions {
			key.Fingerprints = append(key.Fingerprints, v.Fingerprint)
		}
		s.State, s.Active, s.Versions = shredding.KeyDestroyed, 0, nil
		d.Keys = append(d.Keys, key)
		k.notify(s.Reference)
	}
	r := &receipt{ErasureReceipt: ports.ErasureReceipt{Number: number, RequestID: e.ID, TenantID: e.TenantID}, destruction: d}
	k.receipts = append(k.receipts, r)
	return r
}

// ensureKey finds a key, or adds a destroyed one for an unknown subject.
func (k *keyState) ensureKey(id ports.SubjectKeyID, tenantID string) *subjectKey {
	s, ok := k.subjects[id]
	if !ok {
		s = &subjectKey{tenantID: tenantID, SubjectKey: ports.SubjectKey{SubjectKeyID: id, Reference: uuid.NewString(), State: shredding.KeyDestroyed}}
		k.subjects[id] = s
	}
	return s
}
