package httpapi

import (
	"github.com/erpbackbone/backbone/adapters/httpapi/internal/api"
	"github.com/erpbackbone/backbone/application/projections"
	"github.com/erpbackbone/backbone/domain/event"
)

// rebuildAnswer tells how versions stand. What is about a legal entity alone is shown to
// those who see it.
func rebuildAnswer(b projections.Rebuild, codes map[event.PartitionID]string) api.ProjectionRebuild {
	out := api.ProjectionRebuild{
		Name: b.Projection, Active: b.Active, Retained: b.Retained, Dropping: append([]int{}, b.Dropping...), Building: buildingAnswer(b),
		LegalEntities: []api.ProjectionPart{}, Snapshots: []api.ProjectionSnapshot{},
	}
	for _, part := range b.Parts {
		if code, visible := codes[part.Partition]; visible {
			out.LegalEntities = append(out.LegalEntities, api.ProjectionPart{LegalEntity: code, Retained: part.Retained, Building: buildingAnswer(part)})
		}
	}
	for _, s := range b.Snapshots {
		code, visible := codes[s.Partition]
		if s.Partition != 0 && !visible {
			continue
		}
		snapshot := api.ProjectionSnapshot{
			Version: s.Version, LegalEntity: code, Complete: s.Complete, Outdated: !s.SameCode, StartedAt: timeText(s.StartedAt), StartedBy: s.StartedBy,
			LegalEntities: []api.ProjectionSnapshotPart{},
		}
		rows := uint64(0)
		for _, part := range s.Parts {
			code, visible := codes[part.Partition]
			if !visible {
				continue
			}
			rows += part.Rows
			snapshot.LegalEntities = append(snapshot.LegalEntities, api.ProjectionSnapshotPart{
				LegalEntity: code, Sequence: number(part.Sequence), RowCount: count(part.Rows), Usable: part.Usable, TakenAt: optionalTimeText(part.TakenAt),
			})
		}
		snapshot.RowCount = count(rows)
		out.Snapshots = append(out.Snapshots, snapshot)
	}
	return out
}

func buildingAnswer(b projections.Rebuild) (out api.ProjectionBuilding) {
	if b.Building == 0 {
		return out
	}
	out = api.ProjectionBuilding{
		Version: b.Building, Status: string(b.Status), StartedAt: timeText(b.StartedAt), StartedBy: b.StartedBy, Switch: b.SelfSwitching, FromSnapshot: b.Base,
		DoneEvents: count(b.Progress.Done), TotalEvents: count(b.Progress.Total), EventsPerSecond: b.PerSecond, CaughtUp: b.CaughtUp, Faulted: b.Halted,
	}
	if b.LeftKnown {
		out.SecondsLeft = b.Left.Seconds()
	}
	return out
}
