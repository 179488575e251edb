package subscriptions

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// resolveCursor replaces the cursor of a start, if it has one, by the positions that it encodes.
func (s *Service) resolveCursor(tenantID string, start *subscription.Start, field string) ([]ports.FeedMark, error) {
	start.Marks = nil
	if start.From != subscription.AtCursor {
		return nil, nil
	}
	if s.config.Cursors == nil {
		return nil, fault.New(fault.FailedPrecondition, "subscription.setting_unsupported", "this server cannot read the cursors of feeds; begin at a position or a time").WithField(field)
	}
	marks, err := s.config.Cursors.OpenFeed(start.Cursor, tenantID)
	if err != nil {
		return nil, cursorFault(err, field)
	}
	start.Marks = make(map[event.PartitionID]event.Sequence, len(marks))
	for _, m := range marks {
		if m.After > 0 {
			start.Marks[m.Partition] = m.After
		}
	}
	return marks, nil
}

// cursorFault rewords a fault about a cursor, since here no page preceded the request.
func cursorFault(err error, field string) error {
	f, ok := fault.As(err)
	if !ok {
		return err
	}
	switch f.Code {
	case "cursor.malformed":
		f = fault.New(f.Kind, f.Code, "this is not a cursor; give one of a feed of all legal entities or of GET /api/streams/$all, unchanged")
	case "cursor.foreign":
		f = fault.New(f.Kind, f.Code, "this cursor is of another query or of another tenant; give one of a feed of all legal entities or of GET /api/streams/$all")
	}
	return f.WithField(field)
}

// checkSameLog refuses marks of another log: after a failover that lost the end of the log,
// other events may have the sequences that the feed had reached.
func (s *Service) checkSameLog(ctx context.Context, entities []ports.LegalEntity, marks []ports.FeedMark, field string) error {
	if len(marks) == 0 {
		return nil
	}
	heads, err := s.config.Log.PartitionHeads(ctx)
	if err != nil {
		return err
	}
	for _, m := range marks {
		if m.After == 0 || !slices.ContainsFunc(entities, func(le ports.LegalEntity) bool { return le.Partition == m.Partition }) {
			continue
		}
		head := heads[m.Partition]
		checksum, exists := head.Checksum, head.Sequence == m.After
		if head.Sequence > m.After {
			events, err := s.config.Store.EventsAt(ctx, m.Partition, []event.Sequence{m.After})
			if err != nil {
				return err
			}
			if exists = len(events) == 1; exists {
				checksum = events[0].Checksum
			}
		}
		if !exists || [8]byte(checksum[:8]) != m.ChecksumPrefix {
			return fault.New(fault.Conflict, "cursor.diverged",
				"the log is not the one that this cursor was made on, as after a failover that lost its end; begin at a position or a time").WithField(field)
		}
	}
	return nil
}

// newCursors returns cursors for the legal entities that have none yet.
func (s *Service) newCursors(ctx context.Context, sub *subscription.Subscription, entities []ports.LegalEntity, existing []ports.DeliveryBacklog) ([]ports.DeliveryCursor, error) {
	has := make(map[event.PartitionID]bool, len(existing))
	for _, b := range existing {
		has[b.Partition] = true
	}
	// Most polls add no cursor and need no heads.
	readHeads := sync.OnceValues(func() (map[event.PartitionID]ports.Head, error) { return s.config.Log.PartitionHeads(ctx) })
	headOf := func(p event.PartitionID) (event.Sequence, error) {
		heads, err := readHeads()
		return heads[p].Sequence, err
	}
	var out []ports.DeliveryCursor
	isNew := len(existing) == 0 // the subscription is being created
	for _, le := range entities {
		if has[le.Partition] || !covers(&sub.Filter, le) {
			continue
		}
		var through event.Sequence
		var err error
		switch start := sub.CurrentStart(); {
		case start.From == subscription.Position && start.Positions[le.Code] > 0:
			through = start.Positions[le.Code] - 1
			var head event.Sequence
			if head, err = headOf(le.Partition); err == nil && isNew && through > head {
				err = positionInvalid("/settings/start_positions")
			}
		case start.From == subscription.End && isNew:
			through, err = headOf(le.Partition)
		case start.From == subscription.End && le.CreatedAt.Before(sub.CreatedAt):
			through, err = s.config.Log.SequenceAt(ctx, le.Partition, sub.CreatedAt)
		case start.From == subscription.AtTime:
			through, err = s.config.Log.SequenceAt(ctx, le.Partition, start.Time.Add(-time.Microsecond))
		case start.From == subscription.AtCursor && start.Marks[le.Partition] > 0:
			through, err = headOf(le.Partition)
			through = min(start.Marks[le.Partition], through)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, ports.DeliveryCursor{Partition: le.Partition, ReadThrough: through})
	}
	return out, nil
}

func positionInvalid(field string) *fault.Error {
	return fault.New(fault.Invalid, "subscription.position_invalid", "a position is the sequence of the first event to be delivered, 1 to one after the last event of a legal entity that the subscription covers; correct it").WithField(field)
}

// Reset moves a subscription, forwards or backwards, in the legal entities that the caller sees;
// its owner and operators may do so. It drops open messages and dead letters after the position,
// and the events after it are delivered again. A late answer to a dropped message has no effect
// until the event is delivered again, and then counts for that delivery, unless it names another
// consumer. Legal entities that are not named stay where they are with Position; with
// AtCursor they begin at their first event, as in the feed. Those that join later begin at
// the same start, except with Position. A reset that is cut off after its record is repeated by its
// caller. Faults: subscription.unrecorded,
// subscription.position_invalid, subscription.changed, cursor.malformed, cursor.foreign,
// cursor.diverged.
func (s *Service) Reset(ctx context.Context, c Caller, id string, to subscription.Start) (subscription.Subscription, error) {
	sub, record, err := s.recorded(ctx, c, id, s.findManaged)
	if err != nil {
		return sub, err
	}
	entities, err := s.config.Access.Visible(ctx, c.Principal)
	if err != nil {
		return sub, err
	}
	backlogs, err := s.config.Store.Backlogs(ctx, sub.UID)
	if err != nil {
		return sub, err
	}
	marks, err := s.resolveCursor(sub.TenantID, &to, "/cursor")
	if err != nil {
		return sub, err
	}
	covered := slices.DeleteFunc(slices.Clone(entities), func(le ports.LegalEntity) bool {
		return !slices.ContainsFunc(backlogs, func(b ports.DeliveryBacklog) bool { return b.Partition == le.Partition })
	})
	if err := s.checkSameLog(ctx, covered, marks, "/cursor"); err != nil {
		return sub, err
	}
	heads, err := s.config.Log.PartitionHeads(ctx)
	if err != nil {
		return sub, err
	}
	targets := map[event.PartitionID]event.Sequence{}
	named := 0
	for _, le := range covered {
		switch to.From {
		case subscription.Beginning:
			targets[le.Partition] = 0
		case subscription.End:
			targets[le.Partition] = heads[le.Partition].Sequence
		case subscription.AtCursor:
			targets[le.Partition] = to.Marks[le.Partition]
		case subscription.AtTime:
			if targets[le.Partition], err = s.config.Log.SequenceAt(ctx, le.Partition, to.Time.Add(-time.Microsecond)); err != nil {
				return sub, err
			}
		default:
			if n := to.Positions[le.Code]; n > 0 {
				named++
				if targets[le.Partition] = n - 1; n-1 > heads[le.Partition].Sequence {
					return sub, positionInvalid("/positions")
				}
			}
		}
	}
	if named != len(to.Positions) {
		return sub, positionInvalid("/positions")
	}
	if to.From != subscription.Position && (sub.Owner == c.Principal.PersonID || len(c.Principal.LegalEntities) == 0) {
		// Any other caller sees only some legal entities and decides nothing for those that join.
		sub = s.withResetStart(sub, to)
	}
	if sub, err = s.decide(ctx, c, ports.SubscriptionReset, sub, record, targets); err != nil {
		return sub, err
	}
	for p, n := range targets {
		if err := s.resetPartition(ctx, sub.UID, p, n); err != nil {
			return sub, err
		}
	}
	s.wakeUps.wake(sub.UID)
	return sub, nil
}

// withResetStart sets where legal entities that join after a reset begin.
func (s *Service) withResetStart(sub subscription.Subscription, to subscription.Start) subscription.Subscription {
	to.Cursor = "" // replaced by its marks
	if to.From == subscription.End {
		to = subscription.Start{From: subscription.AtTime, Time: event.Micros(s.config.Clock.Now())}
	}
	sub.ResetStart = &to
	return sub
}

func (s *Service) resetPartition(ctx context.Context, uid event.ID, p event.PartitionID, n event.Sequence) error {
	return s.withLock(ctx, uid, p, func(ctx context.Context, tx ports.DeliveryTx) error {
		c := tx.Cursor()
		c.ReadThrough, c.Checkpoint, c.Pending = n, n, 0
		if err := tx.Clear(ctx, n); err != nil {
			return err
		}
		return tx.Save(ctx, c, nil, nil)
	})
}
