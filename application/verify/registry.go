package verify

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// RegistryReport is the result of verifying one registry of event types.
type RegistryReport struct {
	Tenant      string `json:"tenant"` // "": the shared registry of the built-in modules
	Changes     int    `json:"changes"`
	Versions    int    `json:"versions"`
	Head        int64  `json:"head_change"`
	Checksum    string `json:"head_checksum"`              // "" without a change
	Reference   *int64 `json:"reference_change,omitempty"` // of the earlier head that it was compared with
	FindingList        // their sequence is the number of a change
}

func (r *RegistryReport) add(kind FindingKind, change int64, detail string, args ...any) {
	r.FindingList.add(Finding{Kind: kind, Sequence: event.Sequence(change), Detail: fmt.Sprintf(detail, args...)})
}

// RegistryHead is the last link of the chain of one registry.
type RegistryHead struct {
	Tenant   string `json:"tenant,omitempty"`
	Change   int64  `json:"change"` // the number of the last one
	Checksum string `json:"checksum"`
}

// registryVersion is one version of one type.
type registryVersion struct {
	name    string
	version uint32
}

func (v registryVersion) compare(other registryVersion) int {
	return cmp.Or(cmp.Compare(v.name, other.name), cmp.Compare(v.version, other.version))
}

// Registries recomputes the chains of changes that earlier releases left, and compares the
// versions that they registered: every version must exist as it was registered, and no other, but
// for the built-in ones that Run compares with the administrative logs. With a tenant these are
// the shared registry and the tenant's, otherwise all. A registry that has an exported head and no
// changes has a report too.
func Registries(ctx context.Context, store ports.RegistryAudit, tenantID string, options ...Option) ([]RegistryReport, error) {
	records, err := readRegistries(ctx, store, tenantID)
	if err != nil {
		return nil, err
	}
	var settings run
	for _, o := range options {
		o(&settings)
	}
	var heads []RegistryHead
	if settings.reference != nil {
		heads = settings.reference.registries
	}
	for _, h := range heads {
		if tenantID != "" && h.Tenant != "" && h.Tenant != tenantID {
			continue
		}
		if !slices.ContainsFunc(records, func(r ports.RegistryRecord) bool { return r.TenantID == h.Tenant }) {
			records = append(records, ports.RegistryRecord{TenantID: h.Tenant})
		}
	}
	reports := make([]RegistryReport, len(records))
	for i := range records {
		record, r := records[i], &reports[i]
		*r = RegistryReport{Tenant: record.TenantID, Changes: len(record.Changes), Versions: len(record.Versions), FindingList: FindingList{Findings: []Finding{}}}
		var earlier *RegistryHead
		if j := slices.IndexFunc(heads, func(h RegistryHead) bool { return h.Tenant == record.TenantID }); j >= 0 {
			earlier = &heads[j]
		}
		r.compare(record, r.walk(record, earlier))
	}
	return reports, nil
}

// readRegistries reads those that exist.
func readRegistries(ctx context.Context, store ports.RegistryAudit, tenantID string) ([]ports.RegistryRecord, error) {
	if tenantID == "" {
		return store.RegistryRecords(ctx)
	}
	var records []ports.RegistryRecord
	for _, of := range []string{"", tenantID} {
		record, err := store.RegistryRecord(ctx, of)
		if err != nil {
			return nil, err
		}
		if record.Generation != 0 || len(record.Changes) > 0 || len(record.Versions) > 0 {
			records = append(records, record)
		}
	}
	return records, nil
}

// walk follows the chain and returns the changes that registered a version.
func (r *RegistryReport) walk(record ports.RegistryRecord, earlier *RegistryHead) map[registryVersion]*eventtype.Change {
	registered := make(map[registryVersion]*eventtype.Change, len(record.Versions))
	link := eventtype.ChainStart(record.TenantID)
	passed := earlier == nil
	for i := range record.Changes {
		c := &record.Changes[i]
		if c.Number != r.Head && c.Number != r.Head+1 {
			r.add(SequenceGap, c.Number, "change %d of the registry comes after change %d", c.Number, r.Head)
		}
		if link = c.ChainChecksum(link); link != c.Checksum {
			r.add(ChecksumMismatch, c.Number, "the change of %s version %d, or its place among the changes, is not what it was", c.Type, c.SchemaVersion)
			link = c.Checksum // so that later changes are checked by themselves
		}
		r.Head, r.Checksum = c.Number, hex.EncodeToString(c.Checksum[:])
		if !passed && c.Number == earlier.Change && r.Checksum == earlier.Checksum {
			passed = true
		}
		if of := (registryVersion{c.Type, c.SchemaVersion}); registers(c) && registered[of] == nil {
			registered[of] = c
		}
	}
	if r.Head != record.Generation {
		r.add(SequenceGap, r.Head+1, "the registry counts %d changes, and the last one that is there is %d", record.Generation, r.Head)
	}
	if earlier != nil {
		r.Reference = &earlier.Change
	}
	switch {
	case passed:
	case r.Head < earlier.Change:
		r.add(HeadBeyondEnd, earlier.Change, "the exported head is change %d of the registry, but the last one is %d", earlier.Change, r.Head)
	default:
		r.add(HeadMismatch, earlier.Change, "change %d of the registry has not the checksum of the exported head", earlier.Change)
	}
	return registered
}

// registers reports whether a change can be the first one of a version.
func registers(c *eventtype.Change) bool {
	return c.Action == eventtype.ActionRegistered || c.Action == eventtype.ActionProposed
}

// compare compares the stored versions with the changes that registered them.
func (r *RegistryReport) compare(record ports.RegistryRecord, registered map[registryVersion]*eventtype.Change) {
	for i := range record.Versions {
		v := &record.Versions[i]
		c := registered[registryVersion{v.Type, v.SchemaVersion}]
		delete(registered, registryVersion{v.Type, v.SchemaVersion})
		switch {
		case c == nil && record.TenantID != "":
			r.add(RegistrationMismatch, 0, "%s version %d is there, and no change registered it", v.Type, v.SchemaVersion)
		case c == nil && v.Altered:
			r.add(RegistrationMismatch, 0, "%s version %d is not as a release registers it", v.Type, v.SchemaVersion)
		case c == nil:
		case v.Altered || v.Digest != c.Digest || v.By != c.Actor || !v.At.Equal(c.At):
			r.add(RegistrationMismatch, c.Number, "%s version %d is not as it was registered", v.Type, v.SchemaVersion)
		}
	}
	for _, c := range record.Changes { // in their order
		if registered[registryVersion{c.Type, c.SchemaVersion}] != nil && registers(&c) {
			delete(registered, registryVersion{c.Type, c.SchemaVersion})
			r.add(RegistrationMismatch, c.Number, "%s version %d was registered and is not there", c.Type, c.SchemaVersion)
		}
	}
}
