package erasure

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/blindindex"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

const (
	// maxEviction is after which time no node decrypts with a destroyed key, whether it reported
	// or not: a vault uses a key for at most a minute after it began to read it from the store.
	maxEviction = time.Minute
	clockMargin = 2 * time.Second // how far this clock may differ from the register's
	nodeSilence = 2 * time.Minute // a node that had not reported for so long at the destruction counts as stopped
	maxSkew     = 5 * time.Minute // how far an approval may be in the future
)

// The codes of conditions that steps wait for. A wait that takes longer than maxWait counts as
// a failed attempt, except for waitEviction, which ends by itself.
const (
	waitEviction   = "erasure.eviction"
	waitProjection = "erasure.projection_behind"
	// waitRelease: a version that another release built holds copies. A node of that
	// release recomputes its rows, or an operator drops the version.
	waitRelease = "erasure.projection_of_other_release"
	// waitSweep: rows of a dropped version are still being removed.
	waitSweep = "erasure.projection_not_swept"
	waitIndex = "erasure.index_behind"
)

// step runs the step that follows a request's state, and records the state that it reaches. If
// the process dies in between, the next step records it first. recorded is the revision that this
// process has recorded, which step raises.
func (c Config) step(ctx context.Context, r ports.ErasureRequest, recorded *int) (ports.ErasureRequest, error) {
	if r.State == shredding.ErasureRequested && c.isPersons(r) {
		return r, nil // the call that requested it previews it
	}
	if err := c.recordOnce(ctx, r, recorded); err != nil {
		return r, err
	}
	next, err := c.takeStep(ctx, r)
	if err != nil {
		return next, err
	}
	return next, c.recordOnce(ctx, next, recorded)
}

func (c Config) recordOnce(ctx context.Context, r ports.ErasureRequest, recorded *int) error {
	if r.Revision == *recorded {
		return nil
	}
	if _, err := c.adopt(ctx, r.TenantID); err != nil {
		return err
	}
	if err := c.record(ctx, event.Actor{}, r); err != nil {
		return err
	}
	*recorded = r.Revision
	return nil
}

// takeStep moves a request on. Each case is one transaction of the register, or repeatable calls
// and then such a transaction: if the process dies, any worker runs the step again.
func (c Config) takeStep(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	switch r.State {
	case shredding.ErasureRequested:
		return c.preview(ctx, r)
	case shredding.ErasurePreviewed:
		return c.refuseIfAllKept(ctx, r)
	case shredding.ErasureApproved:
		return c.fence(ctx, r)
	case shredding.ErasureFenced:
		return c.destroy(ctx, r)
	case shredding.ErasureDestroyed:
		return c.issueReceipt(ctx, r)
	case shredding.ErasureReceipted:
		return c.announce(ctx, r)
	case shredding.ErasureAnnounced:
		return c.awaitEviction(ctx, r)
	case shredding.ErasureEvicted:
		return c.rebuild(ctx, r)
	case shredding.ErasureRebuilt:
		return c.verify(ctx, r)
	case shredding.ErasureVerified:
		return c.certify(ctx, r)
	default:
		return r, nil
	}
}

// fence checks that the request still has the approved scope, and makes the key store refuse
// leases to appends with the person's data. If the scope has changed, such as by a new legal
// entity, fence puts the request back to previewed without its approval; more events of the
// person do not change it. From the fence on the partitions are fixed, and the age of the
// approval is not checked again.
func (c Config) fence(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	if err := c.Gate.Check(ctx); err != nil {
		return r, err
	}
	s, err := c.survey(ctx, r)
	if err != nil {
		return r, err
	}
	now := c.now()
	if ahead := r.ApprovedAt.Sub(now); ahead > 0 && ahead < maxSkew {
		now = r.ApprovedAt // the approver's node has a clock that is a little ahead
	}
	switch err := shredding.CheckApproval(r.ApprovedAt, now, r.Scope, s.scope); fault.CodeOf(err) {
	case "":
	case codeExpired:
		return c.expire(ctx, r)
	default:
		if reason := refusalReason(s.classes); reason != "" {
			r.Classes = s.classes
			return c.refuse(ctx, r, reason)
		}
		return c.storePreview(ctx, r, s)
	}
	if reason := refusalReason(s.classes); reason != "" { // the call that previewed it was cut off before its refusal
		r.Classes = s.classes
		return c.refuse(ctx, r, reason)
	}
	if err := c.requireApproval(ctx, r); err != nil {
		return r, err
	}
	if err := c.applyHolds(ctx, r.TenantID, r.Subject); err != nil {
		return r, err
	}
	r.Partitions, r.Classes = s.partitions, s.classes
	fenced, err := c.Register.FenceErasure(ctx, r)
	switch {
	case isHeld(err):
		return c.refuseForHold(ctx, r)
	case fault.CodeOf(err) == codeExpired: // by the register's clock
		return c.expire(ctx, r)
	}
	return c.takeOrReread(ctx, r, fenced, err)
}

const codeExpired = "erasure.approval_expired"

func (c Config) expire(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	r.State, r.EndReason = shredding.ErasureExpired, endedByExpiry
	return c.move(ctx, r)
}

// isHeld reports whether a legal hold forbids the erasure.
func isHeld(err error) bool { return fault.CodeOf(err) == "erasure.held" }

func (c Config) refuse(ctx context.Context, r ports.ErasureRequest, reason string) (ports.ErasureRequest, error) {
	refused, err := c.Register.RefuseErasure(ctx, r, reason)
	return c.takeOrReread(ctx, r, refused, err)
}

// refuseForHold ends a request because of a hold, with the day on which the hold ends. The
// register removes the fences in the same transaction.
func (c Config) refuseForHold(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	s, err := c.survey(ctx, r)
	if err != nil {
		return r, err
	}
	reason := refusalReason(s.classes)
	if reason == "" { // the hold was released in between
		return r, fault.New(fault.Conflict, "erasure.hold_moved", "a hold was placed and released while the step ran; the step is repeated")
	}
	r.Classes = s.classes
	return c.refuse(ctx, r, reason)
}

// destroy deletes the keys, which cannot be undone. A hold that was stored before refuses the
// request; one that is placed during the transaction waits for it, is stored and does not stop
// the request. If an append holds a lease for longer than the register waits for a lock, the
// attempt fails and is repeated. Until the destruction the person's values can be read.
func (c Config) destroy(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	// If the export store has receipts that this database lacks, one of them may already have
	// the number that the destruction would take.
	if err := c.Gate.Check(ctx); err != nil {
		return r, err
	}
	if err := c.requireApproval(ctx, r); err != nil {
		return r, err
	}
	if err := c.applyHolds(ctx, r.TenantID, r.Subject); err != nil {
		return r, err
	}
	_, destroyed, err := c.Register.DestroyErasure(ctx, r.ID, func(ctx context.Context) error { return c.requireNotRetained(ctx, r) })
	switch {
	case isHeld(err):
		return c.refuseForHold(ctx, r)
	case fault.CodeOf(err) == codeRetained:
		return c.refuseForRetention(ctx, r)
	}
	if err != nil {
		return r, err
	}
	return destroyed, nil
}

const codeRetained = "erasure.retained"

// requireNotRetained requires that no class that is erased must be kept: an append that was under way
// at the fence may have recorded something that the survey of the fence has not seen. Fault
// erasure.retained.
func (c Config) requireNotRetained(ctx context.Context, r ports.ErasureRequest) error {
	keep, err := c.retainedClasses(ctx, r)
	if err != nil {
		return err
	}
	for _, class := range r.Classes {
		if until, kept := keep[class.Class]; kept && class.Erased {
			return fault.New(fault.FailedPrecondition, codeRetained, "data of class %s was recorded while the erasure began, and is retained until %s; request the erasure again", class.Class, until)
		}
	}
	return nil
}

// retainedClasses are the classes in the partitions of a fenced request that must be kept, and until when.
func (c Config) retainedClasses(ctx context.Context, r ports.ErasureRequest) (map[shredding.KeyClass]event.Date, error) {
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return nil, err
	}
	return c.count(ctx, r.TenantID, r.Subject, dir, &survey{partitions: r.Partitions, preview: Preview{CountedAt: c.now()}})
}

// refuseForRetention ends a request some of whose data must be kept, though they were not there when it
// was approved. The register removes the fences in the same transaction, so that the erasure of the
// rest can be requested again at once.
func (c Config) refuseForRetention(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	keep, err := c.retainedClasses(ctx, r)
	if err != nil {
		return r, err
	}
	r.Classes = slices.Clone(r.Classes)
	for i := range r.Classes {
		class := &r.Classes[i]
		if class.Erased {
			class.Erased, class.Refused = false, refusedByRetention
		}
		if until, kept := keep[class.Class]; kept {
			class.Until = &until
		}
	}
	return c.refuse(ctx, r, refusedByRetention)
}

// announce appends the event of the erasure to each partition's log.
func (c Config) announce(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	note, err := c.storedReceipt(ctx, r.Receipt)
	if err != nil {
		return r, err
	}
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return r, err
	}
	for _, p := range r.Partitions {
		// The log keeps idempotency keys for a limited time, but events for ever.
		if at, err := c.announcedAt(ctx, r, p); err != nil || at > 0 {
			if err != nil {
				return r, err
			}
			continue
		}
		le, known := dir.byPartition[p]
		if !known {
			return r, fault.New(fault.Internal, "legal_entity.not_found", "partition %d has no legal entity any more; compare the directory with its backup", p)
		}
		a, err := announcement(r, le, noteHash(note))
		if err != nil {
			return r, err
		}
		if err := c.Announcer.Announce(ctx, a); err != nil {
			return r, fmt.Errorf("announce in partition %d: %w", p, err)
		}
	}
	r.State = shredding.ErasureAnnounced
	return c.move(ctx, r)
}

// announcedAt returns the sequence of the announcement in a partition, 0 if there is none
// yet.
func (c Config) announcedAt(ctx context.Context, r ports.ErasureRequest, p event.PartitionID) (event.Sequence, error) {
	found, err := c.Streams.EventsOfStream(ctx, p, stream(r.ID), 1, 1)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return found[0].Sequence, nil
}

// awaitEviction waits until no node can decrypt with the destroyed keys any more: all nodes
// that ran at the destruction have reported that they evicted them, or every cached key has
// expired. A node that hangs or died delays an erasure by maxEviction and clockMargin at most.
// The register checks the same by its own clock (MoveErasure).
func (c Config) awaitEviction(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	now := c.now()
	if now.Before(r.DestroyedAt.Add(maxEviction + clockMargin)) {
		// DestroyedAt is by the register's clock, like the times of the nodes' reports.
		behind, err := c.Register.NodesBehind(ctx, r.Generation, r.DestroyedAt.Add(-nodeSilence))
		if err != nil {
			return r, err
		}
		if behind > 0 {
			return r, waitFor(waitEviction)
		}
	}
	r.State, r.EvictedAt = shredding.ErasureEvicted, now
	return c.move(ctx, r)
}

// isComplete reports whether the request erases every class.
func isComplete(r ports.ErasureRequest) bool {
	return !slices.ContainsFunc(r.Classes, func(c ports.ErasureClass) bool { return !c.Erased })
}

// rebuild recomputes the rows of read models that hold copies. In the new rows erased values
// read [REDACTED], and copies of classes that are kept stay sealed. First every version of
// every projection must have passed the announcement: all sealed values of the person come
// before it in the log, so no projection adds a copy later. No projection reads the
// administrative log.
func (c Config) rebuild(ctx context.Context, r ports.ErasureRequest) (ports.ErasureRequest, error) {
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return r, err
	}
	projected := slices.DeleteFunc(slices.Clone(r.Partitions), func(p event.PartitionID) bool { return dir.byPartition[p].IsAdministrative() })
	for _, p := range projected {
		if err := c.forgetCopies(ctx, r, p); err != nil {
			return r, err
		}
	}
	if isComplete(r) {
		for _, p := range projected {
			left, err := c.countCopies(ctx, p, r.Subject)
			if err != nil {
				return r, err
			}
			if left > 0 {
				return r, waitFor(waitSweep)
			}
		}
	}
	for _, p := range r.Partitions {
		if err := c.forgetInIndex(ctx, r, p); err != nil {
			return r, err
		}
	}
	r.State = shredding.ErasureRebuilt
	return c.move(ctx, r)
}

// forgetInIndex deletes what the person is found by. The index has passed the announcement then, so it
// adds nothing later: the values before open on no node any more.
func (c Config) forgetInIndex(ctx context.Context, r ports.ErasureRequest, p event.PartitionID) error {
	if c.Index == nil {
		return nil
	}
	announced, err := c.announcedAt(ctx, r, p)
	if err != nil {
		return err
	}
	if err := c.Index.ForgetSubject(ctx, p, r.Subject, erasedClasses(r), announced); fault.CodeOf(err) != blindindex.CodeBehind {
		return err
	}
	return waitFor(waitIndex)
}

// erasedClasses lists the key classes that the request erases.
func erasedClasses(r ports.ErasureRequest) (classes []shredding.KeyClass) {
	for _, c := range r.Classes {
		if c.Erased {
			classes = append(classes, c.Class)
		}
	}
	return classes
}

func (c Config) forgetCopies(ctx context.Context, r ports.ErasureRequest, p event.PartitionID) error {
	announced, err := c.announcedAt(ctx, r, p)
	if err != nil {
		return err
	}
	for _, name := range c.Copies.HoldersOfCopies() {
		err := c.Copies.Forget(ctx, name, p, r.Subject, announced)
		switch {
		case err == nil:
		case fault.CodeOf(err) == projection.CodeTargetBehind, fault.CodeOf(err) == projection.CodeBusy:
			return waitFor(waitProjection)
		case fault.CodeOf(err) == projection.CodeOtherCode:
			if isComplete(r) { // else the copies may be of classes that are kept
				return waitFor(waitRelease)
			}
		default:
			return fmt.Errorf("recompute rows of %s: %w", name, err)
		}
	}
	return nil
}

// countCopies counts the rows of all read models that hold sealed copies.
func (c Config) countCopies(ctx context.Context, p event.PartitionID, s shredding.Subject) (left int64, err error) {
	for _, name := range c.Copies.HoldersOfCopies() {
		n, err := c.Copies.CountCopies(ctx, name, p, s)
		if err != nil {
			return 0, err
		}
		left += n
	}
	return left, nil
}

// requestFollowUps makes one new request for every ended one that had to keep a class until a
// day that has passed, whether by retention or by a hold. The new request is in the name of
// the first requester and needs its own approval. A class that a hold without a last day kept
// has no such day: after the release a person has to request the erasure again.
func (c Config) requestFollowUps(ctx context.Context, now time.Time) error {
	for after := (event.ID{}); ; {
		ended, err := c.Register.ErasuresToFollow(ctx, event.DateOf(now), after, page)
		if err != nil {
			return err
		}
		for _, r := range ended {
			after = r.ID
			if err := c.requestFollowUp(ctx, r, now); err != nil {
				return err
			}
		}
		if len(ended) < page {
			return nil
		}
	}
}

func (c Config) requestFollowUp(ctx context.Context, r ports.ErasureRequest, now time.Time) error {
	next := ports.ErasureRequest{
		ID: module.DeriveID(r.ID, 1), TenantID: r.TenantID, Subject: r.Subject, Partitions: r.Partitions, AllEntities: r.AllEntities,
		Basis: r.Basis, Reason: fmt.Sprintf("follows request %s, which had to keep a part of the data until now", r.ID),
		RequestedBy: r.RequestedBy, RequestedAt: now, DueOn: event.DateOf(now.Add(shredding.ErasureDue)),
	}
	_, err := c.Register.Erasure(ctx, next.TenantID, next.ID)
	if err == nil {
		return nil // made before
	}
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	if err := c.Register.AddErasure(ctx, next); err != nil && fault.KindOf(err) != fault.Conflict {
		return err
	}
	return nil
}
