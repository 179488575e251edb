package subscriptions

import (
	"context"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/subscription"
	"github.com/erpbackbone/backbone/ports"
)

func sequenceText(n event.Sequence) string { return strconv.FormatUint(uint64(n), 10) }

// Progress is how far a subscription is in one legal entity.
type Progress struct {
	LegalEntity string
	ports.DeliveryBacklog
	Head      event.Sequence
	LagEvents uint64        // events after the read position, also those that the filter excludes, and open messages
	LagAge    time.Duration // age of the oldest event that is not done; 0: none
}

// Status is a subscription with its progress.
type Status struct {
	subscription.Subscription
	Progress  []Progress // in the legal entities that the caller sees
	LagEvents uint64
	LagAge    time.Duration // the longest
	InFlight  int
	Waiting   int
	Parked    int
	Counts    subscription.Counts
}

// Get returns a subscription with its progress. Fault subscription.not_found.
func (s *Service) Get(ctx context.Context, c Caller, id string) (Status, error) {
	sub, err := s.findManaged(ctx, c, id)
	if err != nil {
		return Status{}, err
	}
	out := Status{Subscription: sub, Progress: []Progress{}}
	_, codes, err := s.visiblePartitions(ctx, c, &sub, "")
	if err != nil {
		return out, err
	}
	backlogs, err := s.config.Store.Backlogs(ctx, sub.UID)
	if err != nil {
		return out, err
	}
	heads, err := s.config.Log.PartitionHeads(ctx)
	if err != nil {
		return out, err
	}
	var unread []ports.EventPosition
	for i := range backlogs {
		if b := &backlogs[i]; lag(b, heads[b.Partition].Sequence) > 0 {
			unread = append(unread, oldest(b))
		}
	}
	recorded := map[ports.EventPosition]time.Time{}
	if len(unread) > 0 {
		if recorded, err = s.config.Log.RecordedAt(ctx, unread); err != nil {
			return out, err
		}
	}
	now := s.config.Clock.Now()
	for _, b := range backlogs {
		code, seen := codes[b.Partition]
		if !seen {
			continue
		}
		p := Progress{LegalEntity: code, DeliveryBacklog: b, Head: heads[b.Partition].Sequence}
		p.LagEvents = lag(&b, p.Head)
		if at, known := recorded[oldest(&b)]; known && p.LagEvents > 0 {
			p.LagAge = max(now.Sub(at), 0)
		}
		out.Progress = append(out.Progress, p)
		out.LagEvents += p.LagEvents
		out.LagAge = max(out.LagAge, p.LagAge)
		out.InFlight += b.InFlight
		out.Waiting += b.Waiting
		out.Parked += b.Parked
		out.Counts.Add(b.Counts)
	}
	return out, nil
}

// oldest is the first event that is not done.
func oldest(b *ports.DeliveryBacklog) ports.EventPosition {
	if b.FirstOpen > 0 {
		return ports.EventPosition{Partition: b.Partition, Sequence: b.FirstOpen}
	}
	return ports.EventPosition{Partition: b.Partition, Sequence: b.ReadThrough + 1}
}

// lag counts the events that are not done.
func lag(b *ports.DeliveryBacklog, head event.Sequence) uint64 {
	open := uint64(b.InFlight + b.Waiting)
	if head > b.ReadThrough {
		open += uint64(head - b.ReadThrough)
	}
	return open
}
