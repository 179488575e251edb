package subscriptions

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

// DeadLetter is a parked message with the code of its legal entity.
type DeadLetter struct {
	LegalEntity string
	ports.ParkedMessage
}

// DeadLetterQuery selects dead letters of a subscription.
type DeadLetterQuery struct {
	LegalEntity string     // "": all that the caller sees
	EventIDs    []event.ID // none: all
	Code        string     // "": any
	After       string     // Next of the page before
	Limit       int
}

// DeadLetterPage is a page of dead letters, by legal entity and sequence.
type DeadLetterPage struct {
	DeadLetters []DeadLetter
	Next        string // "": the last page
}

// visiblePartitions returns the legal entities that the caller may see and in which the
// subscription has a cursor, by partition.
func (s *Service) visiblePartitions(ctx context.Context, c Caller, sub *subscription.Subscription, legalEntity string) ([]event.PartitionID, map[event.PartitionID]string, error) {
	entities, err := s.config.Access.Visible(ctx, c.Principal)
	if err != nil {
		return nil, nil, err
	}
	backlogs, err := s.config.Store.Backlogs(ctx, sub.UID)
	if err != nil {
		return nil, nil, err
	}
	codes := map[event.PartitionID]string{}
	var out []event.PartitionID
	for _, le := range entities {
		if (legalEntity == "" || legalEntity == le.Code) &&
			slices.ContainsFunc(backlogs, func(b ports.DeliveryBacklog) bool { return b.Partition == le.Partition }) {
			codes[le.Partition] = le.Code
			out = append(out, le.Partition)
		}
	}
	slices.Sort(out)
	return out, codes, nil
}

// DeadLetters lists parked messages. Faults: subscription.not_found, cursor.malformed.
func (s *Service) DeadLetters(ctx context.Context, c Caller, id string, q DeadLetterQuery) (DeadLetterPage, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return DeadLetterPage{}, err
	}
	from, after, ok := parseDeadLetterCursor(q.After)
	if !ok {
		return DeadLetterPage{}, fault.New(fault.Invalid, "cursor.malformed", "this is not a cursor; use next_cursor of the page before, unchanged").WithField("cursor")
	}
	partitions, codes, err := s.visiblePartitions(ctx, c, &sub, q.LegalEntity)
	if err != nil {
		return DeadLetterPage{}, err
	}
	found, err := s.config.Store.ParkedMessages(ctx, sub.UID, partitions, from, ports.ParkedQuery{After: after, EventIDs: q.EventIDs, Code: q.Code, Limit: q.Limit + 1})
	if err != nil {
		return DeadLetterPage{}, err
	}
	out := DeadLetterPage{DeadLetters: make([]DeadLetter, 0, len(found))}
	if len(found) > q.Limit {
		found = found[:q.Limit]
		last := found[len(found)-1]
		out.Next = strconv.FormatUint(uint64(last.Partition), 36) + "." + strconv.FormatUint(uint64(last.Sequence), 36)
	}
	for _, m := range found {
		out.DeadLetters = append(out.DeadLetters, DeadLetter{codes[m.Partition], m})
	}
	return out, nil
}

func parseDeadLetterCursor(text string) (event.PartitionID, event.Sequence, bool) {
	if text == "" {
		return 0, 0, true
	}
	p, n, _ := strings.Cut(text, ".")
	partition, err := strconv.ParseUint(p, 36, 31)
	if err != nil {
		return 0, 0, false
	}
	sequence, err := strconv.ParseUint(n, 36, 63)
	return event.PartitionID(partition), event.Sequence(sequence), err == nil
}

// DeadLetterGroups counts parked messages by the code of their failure, the most
// frequent first.
func (s *Service) DeadLetterGroups(ctx context.Context, c Caller, id string) ([]ports.ParkedGroup, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return nil, err
	}
	partitions, _, err := s.visiblePartitions(ctx, c, &sub, "")
	if err != nil {
		return nil, err
	}
	return s.config.Store.ParkedGroups(ctx, sub.UID, partitions)
}

// DeadLetter returns one parked message. Fault subscription.message_not_found.
func (s *Service) DeadLetter(ctx context.Context, c Caller, id string, eventID event.ID) (DeadLetter, error) {
	page, err := s.DeadLetters(ctx, c, id, DeadLetterQuery{EventIDs: []event.ID{eventID}, Limit: 1})
	if err != nil {
		return DeadLetter{}, err
	}
	if len(page.DeadLetters) == 0 {
		return DeadLetter{}, fault.New(fault.NotFound, "subscription.message_not_found", "no event of this id is parked here; GET .../parked lists those that are")
	}
	return page.DeadLetters[0], nil
}

// Decisions lists the decisions about dead letters and skipped messages, newest first.
func (s *Service) Decisions(ctx context.Context, c Caller, id string, limit int) ([]ports.ParkedDecision, map[event.PartitionID]string, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return nil, nil, err
	}
	partitions, codes, err := s.visiblePartitions(ctx, c, &sub, "")
	if err != nil {
		return nil, nil, err
	}
	out, err := s.config.Decisions.MessageDecisions(ctx, sub.TenantID, sub.ID, partitions, limit)
	if err != nil || len(out) >= limit {
		return out, codes, err
	}
	former, err := s.config.Store.FormerDecisionsOf(ctx, sub.TenantID, sub.ID, partitions, limit-len(out))
	return append(out, former...), codes, err
}

// DeadLetterResult says how many dead letters were replayed or discarded, and whether the same
// query would find more.
type DeadLetterResult struct {
	Messages int
	HasMore  bool
}

// Replay makes parked messages due again, at most Limit of them, with no attempt counted, and
// records the decision.
func (s *Service) Replay(ctx context.Context, c Caller, id string, q DeadLetterQuery, reason string) (DeadLetterResult, error) {
	return s.resolveDeadLetters(ctx, c, id, q, "replay", reason)
}

// Discard removes parked messages, at most Limit of them. The actor and the reason are
// recorded. Fault subscription.reason_missing.
func (s *Service) Discard(ctx context.Context, c Caller, id string, q DeadLetterQuery, reason string) (DeadLetterResult, error) {
	if strings.TrimSpace(reason) == "" {
		return DeadLetterResult{}, fault.New(fault.Invalid, "subscription.reason_missing", "say why these messages are discarded; the reason is stored for auditors").WithField("/reason")
	}
	return s.resolveDeadLetters(ctx, c, id, q, "discard", reason)
}

func (s *Service) resolveDeadLetters(ctx context.Context, c Caller, id string, q DeadLetterQuery, action, reason string) (DeadLetterResult, error) {
	if err := checkReason(reason); err != nil {
		return DeadLetterResult{}, err
	}
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return DeadLetterResult{}, err
	}
	partitions, _, err := s.visiblePartitions(ctx, c, &sub, q.LegalEntity)
	if err != nil {
		return DeadLetterResult{}, err
	}
	var out DeadLetterResult
	for _, p := range partitions {
		left := q.Limit - out.Messages
		var resolved int
		var more bool
		var counts subscription.Counts
		decision := s.messageDecision(c.Principal, &sub, p, action, reason)
		err := s.withLock(ctx, sub.UID, p, func(ctx context.Context, tx ports.DeliveryTx) error {
			resolved, more = 0, false
			parked, err := tx.Parked(ctx, ports.ParkedQuery{EventIDs: q.EventIDs, Code: q.Code, Limit: left + 1})
			if err != nil {
				return err
			}
			if more = len(parked) > left; more {
				parked = parked[:left]
			}
			if len(parked) == 0 {
				return nil
			}
			w, err := openWindow(ctx, tx, &sub)
			if err != nil {
				return err
			}
			for _, m := range parked {
				if action == "replay" {
					w.Replay(m)
				} else {
					w.Discard(m.Sequence)
				}
			}
			if err := decision.record(ctx, parked); err != nil {
				return err
			}
			resolved, counts = len(parked), w.Counts
			return saveWindow(ctx, tx, tx.Cursor(), w, &sub.Settings, false)
		})
		if err != nil {
			return out, err
		}
		out.Messages += resolved
		s.observe(&sub, counts)
		if more {
			out.HasMore = true
			break
		}
	}
	s.wakeUps.wake(sub.UID)
	return out, nil
}
