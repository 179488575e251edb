package verify

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
)

// accesses compares the record of reads with the periods that the administrative log recorded.
// Accesses of the last hours are in no period yet.
type accesses struct{ periods []recordedPeriod }

type recordedPeriod struct {
	disclosure.Period
	sequence event.Sequence
}

func (a *accesses) note(c *chain, e *event.Recorded) {
	if e.Type != disclosure.AccessRecorded || e.Stream != disclosure.AccessStream {
		return
	}
	p := recordedPeriod{sequence: e.Sequence}
	if !decodeData(e, &p.Period) {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of recorded accesses cannot be read")
	}
	if n := int(p.DeletedThrough); n > len(a.periods) || n > 0 && a.periods[n-1].To.After(e.RecordedAt.Add(-disclosure.MinRetention)) {
		c.add(AccessMismatch, e.Sequence, "accesses were deleted that were not old enough")
		p.DeletedThrough = 0
	}
	if n := len(a.periods); n > 0 && !a.periods[n-1].To.Equal(p.From) {
		c.add(AccessMismatch, e.Sequence, "the recorded period does not begin where the one before ended")
	}
	a.periods = append(a.periods, p)
}

func (a *accesses) compare(ctx context.Context, c *chain, store Store) error {
	deleted := 0
	for _, p := range a.periods {
		deleted = max(deleted, int(p.DeletedThrough))
	}
	for _, p := range a.periods[deleted:] {
		digest := disclosure.NewDigest()
		for access, err := range store.Accesses(ctx, c.entity.Partition, p.From, p.To) {
			if err != nil {
				return err
			}
			digest.Add(&access)
		}
		if sum := digest.Sum(); digest.Count != p.Accesses || hex.EncodeToString(sum[:]) != p.SHA256 {
			c.add(AccessMismatch, p.sequence, fmt.Sprintf("%d accesses from %s to %s are not the %d that were recorded",
				digest.Count, p.From.UTC().Format(timeFormat), p.To.UTC().Format(timeFormat), p.Accesses))
		}
	}
	return nil
}

const timeFormat = "2006-01-02T15:04Z"
