package pipeline

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

// Tagged reads a tag's events as a planning without cached states does.
func (s *StateCache) Tagged(ctx context.Context, p event.PartitionID, tag string) ([]event.Recorded, error) {
	return s.newView(p, false).Tagged(ctx, tag)
}
