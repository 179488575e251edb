package erasure

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// The events of holds come before their rows: no state of a row could refuse them. The call
// brings the row to what the log says, or the worker does.

func holdStream(id event.ID) event.StreamID {
	return event.StreamID{Type: shredding.HoldStream, ID: id.String()}
}

// placed returns the event of a hold.
func placed(dir directory, h ports.LegalHold) ports.Revision {
	return ports.Revision{Stream: holdStream(h.ID), Number: 1, Type: shredding.HoldPlaced, Data: shredding.HoldRecord{
		HoldID: h.ID, Revision: 1, Subject: h.Subject.String(), LegalEntity: dir.byPartition[h.Partition].Code, Reason: h.Reason,
		PlacedBy: h.PlacedBy, PlacedAt: event.Micros(h.PlacedAt), Until: h.Until,
	}}
}

// lifted returns the event of the end of a hold.
func lifted(h ports.LegalHold) ports.Revision {
	return ports.Revision{Stream: holdStream(h.ID), Number: 2, Type: shredding.HoldLifted, Data: shredding.HoldLiftedRecord{
		HoldID: h.ID, Revision: 2, LiftedBy: h.ReleasedBy, LiftedAt: event.Micros(h.ReleasedAt),
	}}
}

// adoptHolds records the holds in force that an earlier release stored.
func (c Config) adoptHolds(ctx context.Context, tenantID string, dir directory) error {
	_, err := c.Journal.AdoptRevisions(ctx, tenantID, "holds", func(ctx context.Context) (out []ports.Revision, err error) {
		stored, err := c.Register.AllHolds(ctx, tenantID)
		for _, h := range stored {
			if h.ReleasedAt.IsZero() {
				out = append(out, placed(dir, h))
			}
		}
		return out, err
	})
	return err
}

// holdsOf folds the events of holds, by hold.
func holdsOf(tenantID string, dir directory, events []event.Recorded) (map[event.ID]ports.LegalHold, error) {
	out := map[event.ID]ports.LegalHold{}
	for i := range events {
		raw, err := events[i].Data()
		if err != nil {
			return nil, err
		}
		switch events[i].Type {
		case shredding.HoldPlaced:
			var r shredding.HoldRecord
			if err := json.Unmarshal(raw, &r); err != nil {
				return nil, damagedHold()
			}
			out[r.HoldID] = ports.LegalHold{
				ID: r.HoldID, TenantID: tenantID, Subject: shredding.Subject(r.Subject), Partition: dir.byCode[r.LegalEntity].Partition, Reason: r.Reason,
				PlacedBy: r.PlacedBy, PlacedAt: r.PlacedAt, Until: r.Until,
			}
		case shredding.HoldLifted:
			var r shredding.HoldLiftedRecord
			if err := json.Unmarshal(raw, &r); err != nil {
				return nil, damagedHold()
			}
			h := out[r.HoldID]
			h.ReleasedBy, h.ReleasedAt = r.LiftedBy, r.LiftedAt
			out[r.HoldID] = h
		}
	}
	return out, nil
}

func damagedHold() error {
	return fault.New(fault.Internal, "administration.event_damaged", "an event of the administrative log cannot be read; run `backbone verify`")
}

// applyHolds stores the holds of the log that the register lacks: of a call that died between
// event and row, or whose row was removed. It comes before each fence and destruction.
//
//	erasure.hold_forged  FailedPrecondition: a row about the subject is not as the log has it; subject "" is of none
func (c Config) applyHolds(ctx context.Context, tenantID string, subject shredding.Subject) error {
	dir, err := c.directory(ctx, tenantID)
	if err != nil {
		return err
	}
	if err := c.adoptHolds(ctx, tenantID, dir); err != nil {
		return err
	}
	events, err := c.Journal.EventsOfTypes(ctx, tenantID, shredding.HoldPlaced, shredding.HoldLifted)
	if err != nil {
		return err
	}
	recorded, err := holdsOf(tenantID, dir, events)
	if err != nil {
		return err
	}
	stored, err := c.Register.AllHolds(ctx, tenantID)
	if err != nil {
		return err
	}
	for _, row := range stored {
		h, ok := recorded[row.ID]
		if ok && row.ReleasedAt.IsZero() && !h.ReleasedAt.IsZero() {
			continue // the call that lifted it died before the row
		}
		delete(recorded, row.ID)
		if ok && h.Subject == subject && !sameHold(row, h) {
			return fault.New(fault.FailedPrecondition, "erasure.hold_forged", "the row of hold %s is not as it was placed and lifted; run `backbone verify`, and find out who changed it", row.ID)
		}
	}
	for _, h := range recorded {
		if _, err := c.applyHold(ctx, h); err != nil {
			return err
		}
	}
	return nil
}

func sameHold(a, b ports.LegalHold) bool {
	return a.Subject == b.Subject && a.Partition == b.Partition && a.ReleasedAt.IsZero() == b.ReleasedAt.IsZero() && sameDay(a.Until, b.Until)
}

func sameDay(a, b *event.Date) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// applyHold brings the row of a hold to what the log says.
func (c Config) applyHold(ctx context.Context, h ports.LegalHold) (ports.LegalHold, error) {
	if err := c.Register.PlaceHold(ctx, h); err != nil || h.ReleasedAt.IsZero() {
		return h, err
	}
	return c.Register.ReleaseHold(ctx, h.TenantID, h.ID, h.ReleasedBy, h.ReleasedAt)
}
