package projections

import (
	"context"
	"slices"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/projection"
	"github.com/erpbackbone/backbone/ports"
)

// OwnRows folds rows of tenants' own projections anew: declarative.Service.
type OwnRows interface {
	// Refold folds the rows of a version to which events of an entity or about a person
	// contributed, and tells how many they are. Faults: projection.fenced,
	// projection.definition_unreadable, projection.target_too_large, projection.changed.
	Refold(ctx context.Context, p projection.Projection, o ports.RowsOf) (rows int, change ports.TargetChange, err error)
}

// rebuildOwn is Rebuild for a projection of a tenant's own. All rows of an entity are one
// transaction, since their keys may join events of several entities.
func (t *Targets) rebuildOwn(ctx context.Context, o TargetOrder) (TargetReport, error) {
	out := TargetReport{Projection: o.Name, DryRun: o.DryRun}
	all, err := t.config.Register.NamedProjections(ctx, o.Name)
	if err != nil {
		return out, err
	}
	all = slices.DeleteFunc(all, func(p projection.Projection) bool { return !p.Role.Alive() || o.Version != 0 && p.Version != o.Version })
	if len(all) == 0 {
		_, own, _ := projection.Owner(o.Name)
		return out, projection.VersionNotFound(own, o.Version)
	}
	for _, p := range all {
		for _, id := range slices.Sorted(slices.Values(o.Partitions)) {
			rows, change, err := t.config.Own.Refold(ctx, p, ports.RowsOf{Partition: id, Entity: o.Entity, Subject: o.Subject, DryRun: o.DryRun, By: o.By})
			code := fault.CodeOf(err)
			if code == projection.CodeFenced && o.Version != 0 { // dropped meanwhile
				err = projection.VersionNotFound(o.Name, o.Version)
			}
			if o.Version == 0 && code == projection.CodeUnreadable {
				out.Foreign = append(out.Foreign, p.Version)
				break
			}
			if o.Version == 0 && code == projection.CodeFenced || err == nil && rows == 0 {
				continue
			}
			if err != nil {
				return out, err
			}
			result := TargetResult{Version: p.Version, Partition: id}
			result.add(change)
			result.Entities = rows
			out.Rebuilt = append(out.Rebuilt, result)
		}
	}
	t.config.Logger.InfoContext(ctx, "rows of a projection were folded anew", "projection", o.Name, "of_subject", o.Subject != "", "entity_type", o.Entity.Type,
		"rows_differed", out.Rows(), "dry_run", o.DryRun, "by", o.By)
	return out, nil
}
