package pipeline

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// Tagged reads a tag's events as a planning without cached states does.
func (s *StateCache) Tagged(ctx context.Context, p event.PartitionID, tag string) ([]event.Recorded, error) {
	return s.newView(ports.LegalEntity{Partition: p}, false).Tagged(ctx, tag)
}
