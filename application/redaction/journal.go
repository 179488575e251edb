package redaction

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

const (
	// personGrace is how long the worker leaves the event of a person's decision to the call of
	// that person. The worker appends the event of a call that died.
	personGrace = time.Minute
	sweepEvery  = time.Hour // how often the worker looks for such calls
)

// adopt records the requests that an earlier release stored. It comes before the first request
// of this release.
func (c Config) adopt(ctx context.Context, tenantID string) (event.Sequence, error) {
	return c.Journal.AdoptRevisions(ctx, tenantID, "redactions", func(ctx context.Context) ([]ports.Revision, error) {
		stored, err := c.Redactions.RedactionRequests(ctx, tenantID, nil, 0)
		if err != nil {
			return nil, err
		}
		all, err := c.entities(ctx, tenantID)
		if err != nil {
			return nil, err
		}
		out := make([]ports.Revision, len(stored))
		for i := range stored {
			if out[i], err = revision(all, &stored[i]); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}

// record appends the event of a request's present state, once, with the caller as its actor if it
// is the caller's decision (requests.ActorOf). The zero caller is the system.
func (c Config) record(ctx context.Context, caller event.Actor, all entities, r ports.RedactionRequest) error {
	actor, ok := requests.ActorOf(caller, requests.Decision{State: string(r.State), RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, EndedBy: r.EndedBy})
	if !ok {
		return nil
	}
	return c.recordAs(ctx, actor, all, r)
}

func (c Config) recordAs(ctx context.Context, actor event.Actor, all entities, r ports.RedactionRequest) error {
	revision, err := revision(all, &r)
	if err != nil {
		return err
	}
	return c.Journal.RecordRevision(ctx, r.TenantID, actor, revision)
}

// revision returns the event of a request's present state. Its data bind the stored row.
func revision(all entities, r *ports.RedactionRequest) (ports.Revision, error) {
	row, err := r.Digest()
	if err != nil {
		return ports.Revision{}, err
	}
	le, _ := all.byPartition(r.Partition)
	data := shredding.RedactionRecord{
		RequestID: r.ID, Revision: r.Revision, State: r.State, LegalEntity: le.Code, EventID: r.EventID, Sequence: r.Sequence,
		RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, EndedBy: r.EndedBy, Scope: scopeText(*r), Row: hex.EncodeToString(row[:]),
	}
	return ports.Revision{Stream: recordStream(r.ID), Number: r.Revision, Type: r.State.EventType(), Data: data}, nil
}

func recordStream(id event.ID) event.StreamID {
	return event.StreamID{Type: shredding.RedactionStream, ID: id.String()}
}

// requireApproval requires the event with which the approver approved the stored request, which
// waits to be carried out or was. Fault redaction.approval_unrecorded: the approver approves again,
// since the first call may have been cut off; once it is carried out, no approval is taken any more.
func (c Config) requireApproval(ctx context.Context, r ports.RedactionRequest) error {
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
	approval := shredding.Approval{RequestedBy: r.RequestedBy, ApprovedBy: r.ApprovedBy, Scope: scopeText(r), Lasting: shredding.RedactionLasts, Adopted: adopted}
	if r.State == shredding.RedactionApproved {
		row, err := r.Digest()
		if err != nil {
			return err
		}
		approval.Row = hex.EncodeToString(row[:])
	}
	switch {
	case approval.IsRecorded(moves):
		return nil
	case r.State.CarriedOut():
		return fault.New(fault.FailedPrecondition, codeUnrecorded, "the request is carried out, and no approval of it is recorded; run `backbone verify`, and find out whether the log was restored or the row forged")
	default:
		return fault.New(fault.FailedPrecondition, codeUnrecorded, "no event of the log is the approval of this request; the person who approved it approves it again")
	}
}

const codeUnrecorded = "redaction.approval_unrecorded"

// recordLeft records what calls left that died between the move of a request and its event,
// among the newest requests of each tenant.
func (c Config) recordLeft(ctx context.Context) error {
	every, err := c.entities(ctx, "")
	if err != nil {
		return err
	}
	tenants := map[string]entities{}
	for _, le := range every {
		tenants[le.TenantID] = append(tenants[le.TenantID], le)
	}
	var failures []error // of one tenant or request, which are no reason to leave out others
	for tenantID, all := range tenants {
		if _, err := c.adopt(ctx, tenantID); err != nil {
			failures = append(failures, err)
			continue
		}
		newest, err := c.Redactions.RedactionRequests(ctx, tenantID, nil, maxWork)
		failures = append(failures, err)
		for _, r := range newest {
			if !c.Clock.Now().Before(r.UpdatedAt.Add(personGrace)) {
				failures = append(failures, c.record(ctx, event.Actor{}, all, r))
			}
		}
	}
	return errors.Join(failures...)
}
