package pipeline

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// SetReports gives planners read models.
func (s *Service) SetReports(r Reports) { s.states.reports = r }

// Tagged reads a tag's events as a planning without cached states does.
func (s *StateCache) Tagged(ctx context.Context, p event.PartitionID, tag string) ([]event.Recorded, error) {
	return s.newView(ports.LegalEntity{Partition: p}, false).Tagged(ctx, tag)
}

// ContainsWords exports containsWords.
var ContainsWords = containsWords
