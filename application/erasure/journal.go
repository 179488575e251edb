package erasure

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/erpbackbone/backbone/application/requests"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// personGrace is how long the worker leaves the event of a person's decision to the call of that
// person, which appends it as its actor. The worker appends the event of a call that died.
const personGrace = time.Minute

// adopt records the requests that an earlier release stored. It comes before the first request
// of this release, so that no event of a person is missing.
func (c Config) adopt(ctx context.Context, tenantID string) (event.Sequence, error) {
	return c.Journal.AdoptRevisions(ctx, tenantID, "erasures", func(ctx context.Context) ([]ports.Revision, error) {
		all, err := c.Register.Erasures(ctx, tenantID, nil, 0)
		if err != nil {
			return nil, err
		}
		out := make([]ports.Revision, len(all))
		for i, r := range all {
			if out[i], err = c.revision(ctx, r); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// record appends the event of a request's present state, once, with the caller as its actor if it
// is the caller's decision (requests.ActorOf). The zero caller is the system.
func (c Config) record(ctx context.Context, caller event.Actor, r ports.ErasureRequest) error {
	actor, ok := requests.ActorOf(caller, requests.Decision{State: string(r.State), RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, EndedBy: r.EndedBy})
	if !ok {
		return nil
	}
	revision, err := c.revision(ctx, r)
	if err != nil {
		return err
	}
	return c.Journal.RecordRevision(ctx, r.TenantID, actor, revision)
}

// revision returns the event of a request's present state. Its data bind the stored row.
func (c Config) revision(ctx context.Context, r ports.ErasureRequest) (ports.Revision, error) {
	dir, err := c.directory(ctx, r.TenantID)
	if err != nil {
		return ports.Revision{}, err
	}
	row, err := r.Digest()
	if err != nil {
		return ports.Revision{}, err
	}
	data := shredding.ErasureRecord{
		RequestID: r.ID, Revision: r.Revision, State: r.State, Subject: r.Subject.String(), LegalEntities: dir.codes(r.Partitions), Basis: r.Basis,
		RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, EndedBy: r.EndedBy, Scope: scopeText(r), Receipt: r.Receipt, Row: hex.EncodeToString(row[:]),
	}
	if r.State.Irrevocable() && r.State != shredding.ErasureDestroyed { // the receipt is signed
		note, err := c.storedReceipt(ctx, r.Receipt)
		if err != nil {
			return ports.Revision{}, err
		}
		hash := noteHash(note)
		data.ReceiptSHA256 = hex.EncodeToString(hash[:])
	}
	return ports.Revision{Stream: recordStream(r.ID), Number: r.Revision, Type: r.State.EventType(), Data: data}, nil
}

func recordStream(id event.ID) event.StreamID {
	return event.StreamID{Type: shredding.ErasureStream, ID: id.String()}
}

// requireApproval requires the event with which the approver approved the scope that the stored
// request is about to erase or has erased.
func (c Config) requireApproval(ctx context.Context, r ports.ErasureRequest) error {
	adopted, err := c.adopt(ctx, r.TenantID)
	if err != nil {
		return err
	}
	events, err := c.Journal.Revisions(ctx, r.TenantID, recordStream(r.ID))
	if err != nil {
		return err
	}
	moves, err := shredding.ReadMoves(events)
	if err != nil {
		return err
	}
	approval := shredding.Approval{
		RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, Scope: scopeText(r), Lasting: shredding.ErasureLasts, Adopted: adopted,
	}
	if !approval.IsRecorded(moves) {
		return waitFor(codeUnrecorded)
	}
	return nil
}

// codeUnrecorded: no event of the log is the approval of the request. The approver of one that is
// approved approves again, since the first call may have been cut off. One that went further does
// not complete: the log was restored to an earlier moment, or the row is forged.
const codeUnrecorded = "erasure.approval_unrecorded"

// recordLeft records what calls left that died between the move of a request and its event,
// among the newest requests, and stores the holds that the register lacks.
func (c Config) recordLeft(ctx context.Context) error {
	all, err := c.Register.Erasures(ctx, "", nil, maxListed)
	if err != nil {
		return err
	}
	entities, err := c.LegalEntities.LegalEntities(ctx, "")
	if err != nil {
		return err
	}
	var failures []error // of one tenant, which are no reason to leave out others
	tenants := map[string]bool{}
	for _, le := range entities {
		if !tenants[le.TenantID] {
			tenants[le.TenantID] = true
			if _, err := c.adopt(ctx, le.TenantID); err != nil {
				failures = append(failures, err)
				continue
			}
			if err := c.applyHolds(ctx, le.TenantID, ""); err != nil {
				failures = append(failures, err)
			}
		}
	}
	for _, r := range all {
		if c.isPersons(r) {
			continue
		}
		if err := c.record(ctx, event.Actor{}, r); err != nil && fault.KindOf(err) != fault.NotFound {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// isPersons reports whether the call of a person may still be at work on a request.
func (c Config) isPersons(r ports.ErasureRequest) bool {
	return c.now().Before(r.UpdatedAt.Add(personGrace))
}
