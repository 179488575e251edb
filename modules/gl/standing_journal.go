package gl

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/concurrency"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/modules/gl/domain"
)

// standingJournal is the header of a posted journal that was not reversed.
type standingJournal struct {
	id   event.ID
	data domain.JournalPosted // without its lines
}

// standingJournals returns the journals with a tag that were not reversed, by number. That
// there are no more of them becomes an append condition. It reads every journal that ever had
// the tag, so the tag must be of few.
func standingJournals(ctx context.Context, s module.State, tag string) ([]standingJournal, error) {
	standing := map[string]standingJournal{}
	err := s.Decide(ctx, module.Projector{
		Items: []concurrency.Item{{
			Types: []string{domain.EventJournalPosted, domain.EventJournalReversed}, Tags: []string{tag},
		}},
		Apply: func(e event.Recorded, data []byte) error {
			if e.Type == domain.EventJournalReversed {
				var r domain.JournalReversed
				err := json.Unmarshal(data, &r)
				delete(standing, r.JournalID)
				return err
			}
			j, err := domain.DecodeJournal(data)
			if err != nil {
				return err
			}
			id, err := event.ParseID(e.Stream.ID)
			if err != nil {
				return err
			}
			j.Lines = nil
			standing[e.Stream.ID] = standingJournal{id: id, data: j}
			return nil
		},
	})
	if err != nil {
		return nil, err
	}
	return slices.SortedFunc(maps.Values(standing), func(a, b standingJournal) int {
		return strings.Compare(a.data.JournalNumber, b.data.JournalNumber)
	}), nil
}
