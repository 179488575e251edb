package eventtype

import (
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
)

// Upcaster converts data of an earlier version to the version that it is registered with.
// Stored events are not changed.
type Upcaster struct {
	FromVersion uint32 `json:"from_version"`
	// JQ is a program that makes one object out of the data. It sees nothing else, and
	// sealed values are tokens to it which it may move.
	JQ string `json:"jq"`
}

// maxUpcasters bounds the earlier versions that lead to one directly.
const maxUpcasters = 16

// upcastsFrom reports whether the registration declares an upcaster from a version.
func (r *Registration) upcastsFrom(from uint32) bool {
	return slices.ContainsFunc(r.Upcasters, func(u Upcaster) bool { return u.FromVersion == from })
}

func (r *Registration) checkUpcasters() (found []fault.Violation) {
	const code = "event_type.upcaster_invalid"
	if len(r.Upcasters) > maxUpcasters {
		return []fault.Violation{{Field: "/upcasters", Code: code, Detail: fmt.Sprintf("a version may have %d upcasters; convert earlier versions step by step", maxUpcasters)}}
	}
	for i, u := range r.Upcasters {
		field := fmt.Sprintf("/upcasters/%d", i)
		switch {
		case u.FromVersion < 1 || u.FromVersion >= r.SchemaVersion:
			found = append(found, fault.Violation{Field: field + "/from_version", Code: code, Detail: "it leads from an earlier version to this one; name that version"})
		case slices.ContainsFunc(r.Upcasters[:i], func(o Upcaster) bool { return o.FromVersion == u.FromVersion }):
			found = append(found, fault.Violation{Field: field + "/from_version", Code: code, Detail: "another upcaster leads from this version already; keep one"})
		}
		if strings.TrimSpace(u.JQ) == "" {
			found = append(found, fault.Violation{Field: field + "/jq", Code: code, Detail: "write the program; . leaves the data as they are"})
		}
	}
	return found
}

// markCoveredByUpcaster marks the demands that an upcaster of the newer version meets: earlier
// events are then read as the upcaster converts them, which is proven on all stored events
// before the version is registered. An upcaster cannot meet demands about claimed keys, the
// owner, or personal data that would be stored in clear.
func markCoveredByUpcaster(all []Difference, declared bool) []Difference {
	for i := range all {
		d := &all[i]
		switch d.Kind {
		case Renamed, Narrowed, EnumReduced, EnumChanged, TypeChanged, Changed:
			if d.Demand != DemandType {
				continue
			}
			d.Demand = DemandUpcaster
		case RequiredAdded:
			if d.Met || !declared {
				continue
			}
		default:
			continue
		}
		if !declared {
			if d.Demand == DemandUpcaster {
				d.Detail += "; an upcaster that converts earlier events is sufficient as well"
			}
			continue
		}
		d.Met, d.Detail = true, "the upcaster converts earlier events, which is proven on all of them before the version is registered"
	}
	return all
}
