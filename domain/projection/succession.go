package projection

import (
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Next is the version that a rebuild of a projection makes, with number, settings and
// definition after those of the version that is shown. Faults: projection.not_found,
// projection.rebuilding, projection.too_many_building.
func Next(all []Projection, name string) (Projection, error) { return NextIn(all, name, 0) }

// NextIn is Next for a version that is about one partition; 0: about all. Versions of
// other partitions may be built at the same time.
func NextIn(all []Projection, name string, scope event.PartitionID) (Projection, error) {
	next, shown := Projection{Name: name, Role: Building, Scope: scope, Status: Running}, false
	for _, known := range all {
		if known.Name != name {
			continue
		}
		next.Version = max(next.Version, known.Version+1)
		switch known.Role {
		case Building:
			if known.Scope == scope {
				return Projection{}, Rebuilding(name)
			}
		case Active:
			shown, next.Settings, next.Definition = true, known.Settings, known.Definition
		}
	}
	if !shown {
		return Projection{}, NotFound(own(name))
	}
	if len(next.Definition) > 0 {
		next.Code = next.Version
		tenant, _, _ := Owner(name)
		return next, mayBuild(all, tenant)
	}
	return next, nil
}

// mayBuild bounds how often a tenant's log is read from the beginning at a time.
func mayBuild(all []Projection, tenantID string) error {
	building := 0
	for _, p := range all {
		if tenant, _, owned := Owner(p.Name); owned && tenant == tenantID && p.Role == Building {
			building++
		}
	}
	if building >= MaxBuilding {
		return fault.New(fault.FailedPrecondition, "projection.too_many_building",
			"%d projections of your own are being built already; wait for one of them, switch to it or cancel it", building)
	}
	return nil
}

// own is what the tenant calls a projection of its own; others have one name only.
func own(name string) string {
	_, name, _ = Owner(name)
	return name
}
