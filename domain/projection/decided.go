package projection

import (
	"encoding/hex"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
)

// DecidedVersion is what was decided about a version of a custom projection.
type DecidedVersion struct {
	Version       int               `json:"version"`
	Role          Role              `json:"role"`                   // Building, Active or Retained
	Scope         event.PartitionID `json:"partition_id,omitempty"` // as in Projection
	Base          int               `json:"from_snapshot,omitempty"`
	SelfSwitching bool              `json:"switch,omitempty"`
	Status        Status            `json:"status"` // Running, Paused or Stopped
	Settings      Settings          `json:"settings"`
	Digest        string            `json:"definition_sha256"`
}

// Decided is the part of a version that persons decide.
func (p Projection) Decided() DecidedVersion {
	digest := DefinitionDigest(p.Definition)
	return DecidedVersion{
		Version: p.Version, Role: p.Role, Scope: p.Scope, Base: p.Base, SelfSwitching: p.SelfSwitching && p.Role == Building, Status: p.Status.Decided(), Settings: p.Settings,
		Digest: hex.EncodeToString(digest[:]),
	}
}

// Decided is the status that an operator has chosen: one that was not interrupted runs, also while it waits to
// begin or is halted at an event.
func (s Status) Decided() Status {
	if s == Paused || s == Stopped {
		return s
	}
	return Running
}

// DecidedVersions are the live versions of a custom projection, by number. A version that took the
// rows of one partition from another is among them only once something was decided about it.
type DecidedVersions []DecidedVersion

// Find returns the version of a number.
func (d DecidedVersions) Find(version int) (DecidedVersion, bool) {
	i := slices.IndexFunc(d, func(v DecidedVersion) bool { return v.Version == version })
	if i < 0 {
		return DecidedVersion{}, false
	}
	return d[i], true
}

// Active returns the active version; its number is 0 if there is none.
func (d DecidedVersions) Active() DecidedVersion {
	i := slices.IndexFunc(d, func(v DecidedVersion) bool { return v.Role == Active })
	if i < 0 {
		return DecidedVersion{}
	}
	return d[i]
}

// Next is the number after the highest; 1 if there is no version.
func (d DecidedVersions) Next() int {
	next := 1
	for _, v := range d {
		next = max(next, v.Version+1)
	}
	return next
}

// With adds a version or replaces it.
func (d DecidedVersions) With(v DecidedVersion) DecidedVersions {
	out := append(d.Without(v.Version), v)
	slices.SortFunc(out, func(a, b DecidedVersion) int { return a.Version - b.Version })
	return out
}

// Without leaves a version out.
func (d DecidedVersions) Without(version int) DecidedVersions {
	return slices.DeleteFunc(slices.Clone(d), func(v DecidedVersion) bool { return v.Version == version })
}

// Activate makes a version active. The active one is retained, and the version that was retained
// before goes. A version that is active already stays so: a switch whose event was recorded and that
// then failed is tried again.
func (d DecidedVersions) Activate(to DecidedVersion) DecidedVersions {
	if d.Active().Version == to.Version {
		return d
	}
	out := slices.DeleteFunc(slices.Clone(d), func(v DecidedVersion) bool { return v.Version == to.Version || v.Role == Retained && v.Scope == 0 })
	for i := range out {
		if out[i].Role == Active {
			out[i].Role = Retained
		}
	}
	to.Role, to.SelfSwitching = Active, false
	return out.With(to)
}

// Deactivate takes a switch back that had no effect: versions have the roles of before again.
func (d DecidedVersions) Deactivate(before DecidedVersions) DecidedVersions {
	out := slices.Clone(d)
	for _, v := range before {
		if now, known := d.Find(v.Version); known {
			now.Role, now.SelfSwitching = v.Role, v.SelfSwitching
			v = now
		}
		out = out.With(v)
	}
	return out
}

// ActivatePartition replaces rows of one partition in the active version by those of a version,
// which goes, as does the one that was retained for the partition before.
func (d DecidedVersions) ActivatePartition(version int, of event.PartitionID) DecidedVersions {
	return slices.DeleteFunc(d.Without(version), func(v DecidedVersion) bool { return v.Role == Retained && v.Scope == of })
}
