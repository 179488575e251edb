package verify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// RegistryReport is the result of verifying the registry of event types.
type RegistryReport struct {
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

// RegistryHead is the last link of the registry's chain.
type RegistryHead struct {
	Change   int64  `json:"change"` // the number of the last one
	Checksum string `json:"checksum"`
}

// registryVersion is one version of one type.
type registryVersion struct {
	name    string
	version uint32
}

// Registry recomputes the chain of all changes of the event types and compares the
// registered versions with it: every version must exist as it was registered, and no other.
func Registry(ctx context.Context, store ports.RegistryAudit, options ...Option) (RegistryReport, error) {
	record, err := store.RegistryRecord(ctx)
	if err != nil {
		return RegistryReport{}, err
	}
	var settings run
	for _, o := range options {
		o(&settings)
	}
	report := RegistryReport{Changes: len(record.Changes), Versions: len(record.Versions), FindingList: FindingList{Findings: []Finding{}}}
	registered := report.walk(record, settings.reference)
	report.compare(record, registered)
	return report, nil
}

// walk follows the chain and returns the changes that registered a version.
func (r *RegistryReport) walk(record ports.RegistryRecord, reference *reference) map[registryVersion]*eventtype.Change {
	var earlier *RegistryHead
	if reference != nil {
		earlier = reference.registry
	}
	registered := make(map[registryVersion]*eventtype.Change, len(record.Versions))
	var link [sha256.Size]byte
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
		if c.Action == eventtype.ActionRegistered {
			registered[registryVersion{c.Type, c.SchemaVersion}] = c
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

// compare compares the stored versions with the changes that registered them.
func (r *RegistryReport) compare(record ports.RegistryRecord, registered map[registryVersion]*eventtype.Change) {
	for i := range record.Versions {
		v := &record.Versions[i]
		c := registered[registryVersion{v.Type, v.SchemaVersion}]
		delete(registered, registryVersion{v.Type, v.SchemaVersion})
		switch {
		case c == nil:
			r.add(RegistrationMismatch, 0, "%s version %d is there, and no change registered it", v.Type, v.SchemaVersion)
		case v.Altered || v.Digest != c.Digest || v.By != c.Actor || !v.At.Equal(c.At):
			r.add(RegistrationMismatch, c.Number, "%s version %d is not as it was registered", v.Type, v.SchemaVersion)
		}
	}
	for _, c := range record.Changes { // in their order
		if registered[registryVersion{c.Type, c.SchemaVersion}] != nil && c.Action == eventtype.ActionRegistered {
			r.add(RegistrationMismatch, c.Number, "%s version %d was registered and is not there", c.Type, c.SchemaVersion)
		}
	}
}
