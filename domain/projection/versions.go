package projection

import (
	"time"

	"github.com/erpbackbone/backbone/domain/event"
)

// NextVersion is the version that the next rebuild of a projection makes, with number, settings
// and definition taken from the active version. scope is the one partition that it covers,
// 0 for all; versions of different partitions may be built at the same time. Faults:
// projection.not_found, projection.rebuilding, projection.too_many_building.
func NextVersion(all []Projection, name string, scope event.PartitionID) (Projection, error) {
	next, hasActive := Projection{Name: name, Role: Building, Scope: scope, Status: Running}, false
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
			hasActive, next.Settings, next.Definition = true, known.Settings, known.Definition
		}
	}
	if !hasActive {
		return Projection{}, NotFound(shortName(name))
	}
	if len(next.Definition) > 0 {
		next.Code = next.Version
		return next, CheckLimits(all, next)
	}
	return next, nil
}

// CheckLimits bounds how many custom projections a tenant has, and how many of them read the
// log from the beginning at the same time. It counts the tenant's versions in all; a store
// checks again under the lock under which it adds p. Faults: projection.too_many,
// projection.too_many_building.
func CheckLimits(all []Projection, p Projection) error {
	tenantID, _, isCustom := SplitName(p.Name)
	if !isCustom {
		return nil
	}
	active, building := 0, 0
	for _, known := range all {
		if tenant, _, isCustom := SplitName(known.Name); !isCustom || tenant != tenantID {
			continue
		}
		switch known.Role {
		case Active:
			active++
		case Building:
			building++
		}
	}
	switch {
	case p.Role == Active && active >= MaxCustom:
		return refuse(CodeTooMany, "there are %d projections of your own already; delete one first", active)
	case p.Role == Building && building >= MaxBuilding:
		return refuse(codeTooManyBuilding, "%d projections of your own are being built already; wait for one of them, switch to it or cancel it", building)
	}
	return nil
}

// Progress is the progress of a building version, in events of the partitions that it reads.
type Progress struct {
	Done  uint64
	Total uint64
}

// Remaining is the number of events that it lacks.
func (p Progress) Remaining() uint64 {
	return p.Total - min(p.Done, p.Total)
}

// Sample is a progress at a time.
type Sample struct {
	At   time.Time
	Done uint64
}

// Pace derives from two samples the events read per second and the time that the remaining
// ones take; known is false while nothing moves.
func (p Progress) Pace(from, to Sample) (perSecond float64, left time.Duration, known bool) {
	seconds := to.At.Sub(from.At).Seconds()
	if seconds <= 0 || to.Done <= from.Done {
		return 0, 0, p.Remaining() == 0
	}
	perSecond = float64(to.Done-from.Done) / seconds
	return perSecond, time.Duration(float64(p.Remaining()) / perSecond * float64(time.Second)), true
}
