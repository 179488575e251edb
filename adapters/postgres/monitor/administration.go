package monitor

import (
	"context"
	"fmt"
	"time"

	"github.com/erpbackbone/backbone/domain/eventtype"
)

// Administration is what tenants and nodes have set.
type Administration struct {
	ReservedTypes  []ReservedType    `json:"reserved_types"`  // at most 100
	UnclaimedTypes []UnclaimedType   `json:"unclaimed_types"` // of modules, and of tenants from before the administrative log; 1000 are looked at
	Policies       []InstalledPolicy `json:"policies"`        // by tenant, at most 1000
}

// ReservedType is an event type of a tenant under a prefix of the product.
type ReservedType struct {
	TenantID string `json:"tenant"`
	Type     string `json:"type"`
}

// UnclaimedType is a version with a business key that events may leave unclaimed.
type UnclaimedType struct {
	TenantID      string `json:"tenant"`
	Type          string `json:"type"`
	SchemaVersion uint32 `json:"schema_version"`
}

// InstalledPolicy identifies the policies that the log of a tenant recorded last.
type InstalledPolicy struct {
	TenantID   string    `json:"tenant"`
	SHA256     string    `json:"sha256"`
	Release    string    `json:"release"`
	RecordedAt time.Time `json:"recorded_at"`
}

// Administration returns what tenants and nodes have set.
func (m *Monitor) Administration(ctx context.Context) (a Administration, err error) {
	types, err := m.queries.ListReservedTypes(ctx, m.conn, eventtype.ReservedPrefixes())
	if err != nil {
		return a, monitorFault(ctx, err)
	}
	a.ReservedTypes, a.UnclaimedTypes, a.Policies = []ReservedType{}, []UnclaimedType{}, []InstalledPolicy{}
	for _, t := range types {
		a.ReservedTypes = append(a.ReservedTypes, ReservedType{t.TenantID, t.Type})
	}
	stored, err := m.queries.ListTenantTypes(ctx, m.conn)
	if err != nil {
		return a, monitorFault(ctx, err)
	}
	for _, row := range stored {
		t, err := eventtype.ParseDocument([]byte(row.Document))
		if err != nil {
			return a, err
		}
		if len(t.CheckBusinessKeys()) > 0 {
			a.UnclaimedTypes = append(a.UnclaimedTypes, UnclaimedType{row.TenantID, t.Type, t.SchemaVersion})
		}
	}
	policies, err := m.queries.ListInstalledPolicies(ctx, m.conn)
	if err != nil {
		return a, monitorFault(ctx, err)
	}
	for _, p := range policies {
		a.Policies = append(a.Policies, InstalledPolicy{p.TenantID, p.Sha256, p.Release, p.RecordedAt.UTC()})
	}
	return a, nil
}

// Findings judges what tenants and nodes have set. digest identifies the policies of the program
// that asks; "": unknown.
func (a Administration) Findings(digest string) []Finding {
	var out []Finding
	for _, t := range a.ReservedTypes {
		out = append(out, Finding{
			Section: "administration", Subject: "event type " + t.Type + " of tenant " + t.TenantID, Status: FindingWarn,
			Detail: "has a name that the product keeps for itself, from before such names were refused",
			Next:   "register the type under a name of its own, write new events there, and deprecate this one",
		})
	}
	for _, t := range a.UnclaimedTypes {
		out = append(out, Finding{
			Section: "administration", Subject: fmt.Sprintf("event type %s version %d of tenant %s", t.Type, t.SchemaVersion, t.TenantID), Status: FindingWarn,
			Detail: "has a business key whose fields may hold something other than a string or a number: such events claim nothing, and duplicates pass",
			Next:   "register a further version that names the fields under properties with type string, number or integer, write new events there, and deprecate this one",
		})
	}
	for _, p := range a.Policies {
		if digest != "" && p.SHA256 != digest {
			out = append(out, Finding{
				Section: "administration", Subject: "policies of tenant " + p.TenantID, Status: FindingWarn,
				Detail: "the node that recorded its policies last, on " + p.RecordedAt.Format(time.DateOnly) + " by release " + p.Release + ", decides by others than this program",
				Next:   "run the same program with the same modules on every node; after an upgrade restart the nodes that are left",
			})
		}
	}
	if len(out) == 0 {
		out = append(out, Finding{Section: "administration", Subject: "event types and policies", Status: FindingOK, Detail: "no reserved names, no business keys that claim nothing, and the recorded policies are those of this program"})
	}
	return out
}
