package verify

import (
	"context"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// skipsAdopted is the event of skips from before there were events of them.
const skipsAdopted = projectionEvents + "skips_adopted"

// skip is an event that a person had a projection skip.
type skip struct {
	Projection string            `json:"projection"`
	Partition  event.PartitionID `json:"partition_id"`
	Sequence   event.Sequence    `json:"sequence,string"`
	By         string            `json:"skipped_by"`
	Reason     string            `json:"reason"`
}

// skips compares the dead letters of projections that say that a person skipped the event with what
// the administrative log recorded. A rebuild that comes to the same event makes a letter of its own, so
// that one event can be skipped several times, by other persons and for other reasons; a switch moves
// letters to other versions.
type skips map[skip]bool

func (s skips) note(c *chain, e *event.Recorded) {
	var data struct {
		skip
		Operation projection.Action `json:"operation"`
		Skips     []skip            `json:"skips"`
	}
	switch {
	case e.Type != skipsAdopted && e.Type != projectionOperated:
		return
	case !decodeData(e, &data):
		c.add(AnnouncementUnreadable, e.Sequence, "the event of a skip cannot be read")
		return
	case data.Operation == projection.Skip:
		data.By = e.ActorID
		data.Skips = append(data.Skips, data.skip)
	}
	for _, one := range data.Skips {
		s[one] = true
	}
}

// letterPage is how many dead letters are read at once.
const letterPage = 1000

func (s skips) compare(ctx context.Context, c *chain, store Store) error {
	entities, err := store.LegalEntities(ctx, c.entity.TenantID)
	if err != nil || len(entities) == 0 {
		return err
	}
	query := ports.DeadLetterQuery{Kind: ports.LetterOfProjection, Statuses: []string{ports.LetterSkipped}, Limit: letterPage}
	for _, le := range entities {
		query.Partitions = append(query.Partitions, le.Partition)
	}
	for {
		page, err := store.ListDeadLetters(ctx, query)
		if err != nil {
			return err
		}
		for _, l := range page {
			_, name, _ := projection.SplitName(l.Name)
			if !s[skip{name, l.Partition, l.Sequence, l.SettledBy, l.Reason}] {
				c.add(ProjectionMismatch, 0, fmt.Sprintf("no event says that a person had the projection %s skip event %d in this way", name, l.Sequence))
			}
		}
		if len(page) < letterPage {
			return nil
		}
		query.After = &page[len(page)-1]
	}
}
