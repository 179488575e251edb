package projection

import (
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// NextVersion is the version that the next rebuild of a projection makes, with number, settings
// and definition taken from the active version. scope is the one partition that it covers,
// 0 for all; versions of different partitions may be built at the same time. Faults:
// projection.not_found, projection.rebuilding, projection.too_many_building.
func NextVersion(all []Projection, name string, scope event.PartitionID) (Projection, error) {
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
		return Projection{}, NotFound(shortName(name))
	}
	if len(next.Definition) > 0 {
		next.Code = next.Version
		return next, CheckLimits(all, next)
	}
	return next, nil
}

// CheckLimits bounds how many projections of its own a tenant has, and how often its log is
// read from the beginning at a time. It counts what all holds of the tenant besides the
// version itself; a store asks once more under the lock under which it adds. Faults:
// projection.too_many, projection.too_many_building.
func CheckLimits(all []Projection, p Projection) error {
	tenantID, _, owned := SplitName(p.Name)
	if !owned {
		return nil
	}
	shown, building := 0, 0
	for _, known := range all {
		if tenant, _, owned := SplitName(known.Name); !owned || tenant != tenantID {
			continue
		}
		switch known.Role {
		case Active:
			shown++
		case Building:
			building++
		}
	}
	switch {
	case p.Role == Active && shown >= MaxCustom:
		return fault.New(fault.FailedPrecondition, "projection.too_many", "there are %d projections of your own already; delete one first", shown)
	case p.Role == Building && building >= MaxBuilding:
		return fault.New(fault.FailedPrecondition, "projection.too_many_building",
			"%d projections of your own are being built already; wait for one of them, switch to it or cancel it", building)
	}
	return nil
}

// CodeWrongVersion says that another version is shown than a change was made for.
const CodeWrongVersion = "projection.wrong_expected_version"

// WrongVersion refuses to change a definition that somebody else has changed. expected is
// the version that readers were to be shown and shown the one that they are; 0: none.
func WrongVersion(name string, expected, shown int) *fault.Error {
	var detail *fault.Error
	switch {
	case shown == 0:
		detail = fault.New(fault.Conflict, CodeWrongVersion,
			"there is no projection %s, whose version %d this was made for; leave expected_version out to create it", shortName(name), expected)
	case expected == 0:
		detail = fault.New(fault.Conflict, CodeWrongVersion,
			"there is a projection %s already, whose version %d readers are shown; expected_version 0 is for one that is not there yet, so read the definition and decide anew", shortName(name), shown)
	default:
		detail = fault.New(fault.Conflict, CodeWrongVersion,
			"readers are shown version %d of projection %s, not version %d, which this change was made for; read the definition again and decide anew", shown, shortName(name), expected)
	}
	return detail.WithField("/expected_version").WithNumbers(expected, shown)
}

// shortName is what the tenant calls a projection of its own; others have one name only.
func shortName(name string) string {
	_, name, _ = SplitName(name)
	return name
}
