package archive

import (
	"context"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// Status says what is in the archive.
type Status struct {
	Entities []EntityStatus `json:"legal_entities"`
}

// EntityStatus is the part of a legal entity that has archived payloads.
type EntityStatus struct {
	TenantID    string         `json:"tenant_id"`
	LegalEntity string         `json:"legal_entity"`
	Segments    int            `json:"segments"`
	Payloads    uint64         `json:"payloads"`
	Through     event.Sequence `json:"through_sequence"` // of the last range
	Head        event.Sequence `json:"head_sequence"`    // of the log
	ArchivedAt  time.Time      `json:"archived_at"`      // the newest
}

// Status says what the legal entities have in the archive, those that have something.
func (a *Archiver) Status(ctx context.Context) (Status, error) {
	sizes, err := a.Register.ArchiveSizes(ctx)
	if err != nil {
		return Status{}, err
	}
	entities, err := a.entitiesOf(ctx, Selection{})
	if err != nil {
		return Status{}, err
	}
	out := Status{Entities: []EntityStatus{}}
	for _, le := range entities {
		size, found := sizes[le.Partition]
		if !found {
			continue
		}
		head, err := a.Log.Head(ctx, le.Partition)
		if err != nil {
			return Status{}, err
		}
		out.Entities = append(out.Entities, EntityStatus{
			TenantID: le.TenantID, LegalEntity: le.Code, Segments: size.Segments, Payloads: size.Records, Through: size.Last, Head: head.Sequence, ArchivedAt: size.ArchivedAt,
		})
	}
	return out, nil
}
