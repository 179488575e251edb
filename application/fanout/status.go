package fanout

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// PartitionStatus is the position of a publisher in one legal entity.
type PartitionStatus struct {
	Publisher        string            `json:"publisher"`
	Partition        event.PartitionID `json:"partition_id"`
	TenantID         string            `json:"tenant_id"`
	LegalEntity      string            `json:"legal_entity"`
	PublishedThrough event.Sequence    `json:"published_through,string"`
	Head             event.Sequence    `json:"head,string"`
	LagEvents        uint64            `json:"lag_events"`
	LagSeconds       float64           `json:"lag_seconds"` // age of the oldest event that is not published; 0: none
	Holder           string            `json:"holder"`      // node that publishes it; "": none now
	Term             uint64            `json:"term"`
	MovedAt          *time.Time        `json:"moved_at,omitempty"`
	Failures         int               `json:"failures"` // in a row
	LastError        string            `json:"last_error,omitempty"`
	FailedAt         *time.Time        `json:"failed_at,omitempty"`
	NextAttemptAt    *time.Time        `json:"next_attempt_at,omitempty"` // at the latest, while a node publishes it
}

// StatusSources are the stores that Status reads.
type StatusSources struct {
	Cursors  ports.PublisherCursors
	Heads    ports.HeadReader
	Leases   ports.Leases
	Entities interface {
		LegalEntities(ctx context.Context, tenantID string) ([]ports.LegalEntity, error)
	}
	Log   Log
	Clock ports.Clock
}

// Status returns the position of a publisher in every legal entity, by tenant and code, also
// where nothing was published yet.
func Status(ctx context.Context, from StatusSources, publisher string) ([]PartitionStatus, error) {
	cursors, err := from.Cursors.PublisherCursors(ctx, publisher)
	if err != nil {
		return nil, err
	}
	heads, err := from.Heads.PartitionHeads(ctx)
	if err != nil {
		return nil, err
	}
	leases, err := from.Leases.List(ctx, LeaseName(publisher))
	if err != nil {
		return nil, err
	}
	entities, err := from.Entities.LegalEntities(ctx, "")
	if err != nil {
		return nil, err
	}
	now := from.Clock.Now()
	out := make([]PartitionStatus, 0, len(entities))
	for _, le := range entities {
		s := PartitionStatus{Publisher: publisher, Partition: le.Partition, TenantID: le.TenantID, LegalEntity: le.Code, Head: heads[le.Partition].Sequence}
		for _, c := range cursors {
			if c.Partition == le.Partition {
				s.PublishedThrough, s.Term, s.Failures, s.LastError = c.PublishedThrough, c.Term, c.Failures, c.LastError
				s.MovedAt, s.FailedAt = optional(c.MovedAt), optional(c.FailedAt)
			}
		}
		for _, l := range leases {
			if l.Partition == le.Partition && l.ExpiresAt.After(now) {
				s.Holder = l.Holder
			}
		}
		if s.Failures > 0 && s.FailedAt != nil && s.Holder != "" {
			s.NextAttemptAt = optional(s.FailedAt.Add(Backoff(StandardTiming.FirstPause, StandardTiming.LongestPause, s.Failures)))
		}
		if s.Head > s.PublishedThrough {
			s.LagEvents = uint64(s.Head - s.PublishedThrough)
			next, err := from.Log.Events(ctx, ports.EventQuery{Partition: le.Partition, After: s.PublishedThrough, Limit: 1, WithoutData: true})
			if err != nil {
				return nil, err
			}
			if len(next) > 0 {
				s.LagSeconds = max(now.Sub(next[0].RecordedAt).Seconds(), 0)
			}
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.TenantID, b.TenantID), cmp.Compare(a.LegalEntity, b.LegalEntity))
	})
	return out, nil
}

func optional(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
