package pipeline

import (
	"context"

	"github.com/erpbackbone/backbone/domain/event"
)

// Tagged is what a planning that looks is shown of a tag.
func (s *States) Tagged(ctx context.Context, p event.PartitionID, tag string) ([]event.Recorded, error) {
	return s.view(p, false).Tagged(ctx, tag)
}
