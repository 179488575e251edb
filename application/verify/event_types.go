package verify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/ports"
)

// The events of an administrative log about event types.
const (
	eventTypePrefix        = "backbone.event_type."
	eventTypeHistorySealed = eventTypePrefix + "history_sealed"
	eventTypesBuiltIn      = eventTypePrefix + "built_in"
)

// eventTypes compares the registries that earlier releases left, and the rows of the built-in
// types, with what the administrative log of a tenant recorded. Types of the tenant itself are
// its events and have no rows.
type eventTypes struct {
	sealed *sealedRegistries
	at     event.Sequence // of sealed
	listed map[listedVersion]event.Sequence
}

// sealedRegistries is the data of eventTypeHistorySealed.
type sealedRegistries struct {
	LastChange       int64  `json:"last_change"`
	Checksum         string `json:"checksum"`
	SharedLastChange int64  `json:"shared_last_change"`
	SharedChecksum   string `json:"shared_checksum"`
}

// listedVersion is a version or an amendment of it, by the digest of its document.
type listedVersion struct {
	registryVersion
	digest string
}

// changedVersion is a member of eventTypesBuiltIn, and the data of the event of a change.
type changedVersion struct {
	Type           string `json:"type"`
	SchemaVersion  uint32 `json:"schema_version"`
	DocumentSHA256 string `json:"document_sha256"`
	Document       string `json:"document"`
}

func (t *eventTypes) note(c *chain, e *event.Recorded) {
	readable := true
	switch {
	case e.Type == eventTypeHistorySealed:
		t.sealed, t.at = &sealedRegistries{}, e.Sequence
		readable = decodeData(e, t.sealed)
	case e.Type == eventTypesBuiltIn:
		var list struct {
			Versions []changedVersion `json:"versions"`
		}
		readable = decodeData(e, &list)
		for _, v := range list.Versions {
			t.listed[listedVersion{registryVersion{v.Type, v.SchemaVersion}, v.DocumentSHA256}] = e.Sequence
		}
	case strings.HasPrefix(e.Type, eventTypePrefix):
		var changed changedVersion
		readable = decodeData(e, &changed)
		isAmendment := e.Type == eventTypePrefix+"amended" || e.Type == eventTypePrefix+"amendment_proposed"
		if sum := sha256.Sum256([]byte(changed.Document)); readable && (changed.Document != "" || isAmendment) && hex.EncodeToString(sum[:]) != changed.DocumentSHA256 {
			c.add(RegistrationMismatch, e.Sequence, fmt.Sprintf("the document of %s version %d has another digest than its event", changed.Type, changed.SchemaVersion))
		}
	}
	if !readable {
		c.add(AnnouncementUnreadable, e.Sequence, "the event of an event type cannot be read")
	}
}

func (t *eventTypes) compare(ctx context.Context, c *chain, store Store) error {
	own, err := store.RegistryRecord(ctx, c.entity.TenantID)
	if err != nil {
		return err
	}
	shared, err := store.RegistryRecord(ctx, "")
	if err != nil {
		return err
	}
	if t.sealed != nil {
		t.compareEnd(c, &own, t.sealed.LastChange, t.sealed.Checksum)
		t.compareEnd(c, &shared, t.sealed.SharedLastChange, t.sealed.SharedChecksum)
	}
	chained := map[registryVersion]bool{}
	for _, change := range shared.Changes {
		chained[registryVersion{change.Type, change.SchemaVersion}] = true
	}
	listed := maps.Clone(t.listed) // those that no version has yet
	var unlisted []listedVersion
	var before *ports.StoredVersion
	listedBefore := event.Sequence(0)
	for i := range shared.Versions {
		v := &shared.Versions[i]
		of := listedVersion{registryVersion{v.Type, v.SchemaVersion}, hex.EncodeToString(v.Digest[:])}
		isAmendment := before != nil && before.Type == v.Type && before.SchemaVersion == v.SchemaVersion
		sequence, ok := listed[of]
		delete(listed, of)
		switch {
		case !ok && (isAmendment || !chained[of.registryVersion]):
			unlisted = append(unlisted, of)
		case isAmendment && (v.Amendment != before.Amendment+1 || sequence < listedBefore), !isAmendment && v.Amendment != 0:
			c.add(RegistrationMismatch, sequence, fmt.Sprintf("the built-in type %s version %d was not amended in this order", v.Type, v.SchemaVersion))
		}
		before, listedBefore = v, sequence
	}
	gone := slices.SortedFunc(maps.Keys(listed), func(a, b listedVersion) int {
		return cmp.Or(a.compare(b.registryVersion), cmp.Compare(listed[a], listed[b]))
	})
	for _, of := range unlisted {
		if i := slices.IndexFunc(gone, func(l listedVersion) bool { return l.registryVersion == of.registryVersion }); i >= 0 {
			c.add(RegistrationMismatch, listed[gone[i]], fmt.Sprintf("the built-in type %s version %d is not as it was listed", of.name, of.version))
			gone = slices.Delete(gone, i, i+1)
			continue
		}
		c.add(RegistrationMismatch, 0, fmt.Sprintf("no event lists the built-in type %s version %d; a node that starts lists those of its release", of.name, of.version))
	}
	for _, of := range gone {
		c.add(RegistrationMismatch, listed[of], fmt.Sprintf("the built-in type %s version %d was listed and is not there", of.name, of.version))
	}
	return compareShared(ctx, c, store, &shared)
}

// compareShared finds names of built-in types that tenants may take, which they could once no release
// has the type any more. Versions that an earlier release moved to tenants are none of them.
func compareShared(ctx context.Context, c *chain, store Store, shared *ports.RegistryRecord) error {
	moved := map[registryVersion]bool{}
	for _, change := range shared.Changes {
		if change.Action == eventtype.ActionMoved {
			moved[registryVersion{change.Type, change.SchemaVersion}] = true
		}
	}
	var names []string
	for _, v := range shared.Versions {
		if !moved[registryVersion{v.Type, v.SchemaVersion}] {
			names = append(names, v.Type)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	stored, err := store.EventTypeNumbers(ctx, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		if of, known := stored[name]; known && !of.IsShared {
			c.add(RegistrationMismatch, 0, fmt.Sprintf("the name of the built-in type %s is stored as one that tenants may take", name))
		}
	}
	return nil
}

// compareEnd compares the end of the chain of a registry with what was recorded.
func (t *eventTypes) compareEnd(c *chain, record *ports.RegistryRecord, number int64, checksum string) {
	end, last := eventtype.ChainStart(record.TenantID), int64(0)
	if n := len(record.Changes); n > 0 {
		end, last = record.Changes[n-1].Checksum, record.Changes[n-1].Number
	}
	if last != number || hex.EncodeToString(end[:]) != checksum {
		c.add(RegistrationMismatch, t.at, fmt.Sprintf("the changes of event types from before the log end at %d otherwise than they did when the log sealed them at %d", last, number))
	}
}
