package projection

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
)

// Definition describes a custom projection, which a tenant creates at run time: the events
// that it reads, the key under which an event counts, and the fold of that key's state. It
// reads the tenant's legal entities only.
type Definition struct {
	TenantID    string `json:"tenant_id"`
	Description string `json:"description,omitempty"`
	Filter      Filter `json:"filter"`
	Key         string `json:"key"`  // jq: event -> text, or null for an event that does not count
	Fold        string `json:"fold"` // jq: {"state", "event"} -> the new state, or null to remove the row
}

// Filter selects events. Every member that is given must match.
type Filter struct {
	Types         []string       `json:"types,omitempty"`          // one of these
	Tags          []string       `json:"tags,omitempty"`           // all of these
	Entities      []FilterEntity `json:"entities,omitempty"`       // about one of these
	LegalEntities []string       `json:"legal_entities,omitempty"` // in one of these; none: in all of the tenant
}

// FilterEntity is an entity that an event may be about.
type FilterEntity struct {
	Type string `json:"entity_type"`
	ID   string `json:"entity_id,omitempty"` // "": any of the type
}

// Limits of definitions, in bytes unless a comment names another unit.
const (
	maxName        = 64
	maxDescription = 1000
	maxProgram     = 16 << 10
	maxFilterList  = 100 // entries
	maxFilterText  = 256
	// MaxKey bounds the result of a key program.
	MaxKey = 512
	// MaxState bounds the state of a key.
	MaxState = 64 << 10
	// MaxCustom is how many custom projections a tenant may have.
	MaxCustom = 50
	// MaxBuilding is how many of them may be rebuilt at the same time.
	MaxBuilding = 5
)

// CustomName is the full name of a tenant's custom projection. Names of projections of
// modules hold a point and no slash, so the two never collide.
func CustomName(tenantID, name string) string { return tenantID + "/" + name }

// SplitName splits a full name into the tenant and the name that the tenant gave; isCustom is
// false for projections of modules, which have no tenant.
func SplitName(full string) (tenantID, name string, isCustom bool) {
	cut := strings.LastIndexByte(full, '/')
	if cut < 0 {
		return "", full, false
	}
	return full[:cut], full[cut+1:], true
}

// CheckName refuses a name that a tenant may not give. Fault projection.definition_invalid.
func CheckName(name string) error {
	if !IsValidName(name) {
		return invalidDefinition("/name", "a name has 1 to 64 of a-z, 0-9, - and _; choose another")
	}
	return nil
}

// IsValidName reports whether a tenant may give the name.
func IsValidName(name string) bool {
	return name != "" && len(name) <= maxName && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == ""
}

func invalidDefinition(field, detail string) *fault.Error {
	return fault.New(fault.Invalid, CodeInvalid, "%s", detail).WithField(field)
}

// Check refuses a definition that exceeds its limits. Fault projection.definition_invalid
// with the field.
func (d Definition) Check() error {
	switch {
	case len(d.Description) > maxDescription:
		return invalidDefinition("/description", "a description has at most 1000 bytes; shorten it")
	case strings.TrimSpace(d.Key) == "" || len(d.Key) > maxProgram:
		return invalidDefinition("/key", "the key is a jq program of at most 16 KiB that makes a text from an event; write one")
	case strings.TrimSpace(d.Fold) == "" || len(d.Fold) > maxProgram:
		return invalidDefinition("/fold", "the fold is a jq program of at most 16 KiB that makes a state from a state and an event; write one")
	}
	for _, l := range []struct {
		field  string
		values []string
	}{{"types", d.Filter.Types}, {"tags", d.Filter.Tags}, {"legal_entities", d.Filter.LegalEntities}} {
		if err := checkList(l.field, l.values); err != nil {
			return err
		}
	}
	if len(d.Filter.Entities) > maxFilterList {
		return invalidDefinition("/filter/entities", "a filter lists at most 100 values; leave some out")
	}
	for _, e := range d.Filter.Entities {
		if e.Type == "" || len(e.Type) > maxFilterText || len(e.ID) > maxFilterText {
			return invalidDefinition("/filter/entities", "an entity has a type, and its texts have at most 256 bytes; correct it")
		}
	}
	return nil
}

func checkList(field string, values []string) error {
	if len(values) > maxFilterList {
		return invalidDefinition("/filter/"+field, "a filter lists at most 100 values; leave some out")
	}
	for _, v := range values {
		if v == "" || len(v) > maxFilterText {
			return invalidDefinition("/filter/"+field, "a value of a filter has 1 to 256 bytes; correct it")
		}
	}
	return nil
}

// Matches reports whether the filter selects an event; refs are the entities that the event
// is about.
func (f Filter) Matches(e *event.Skeleton, refs []event.EntityRef) bool {
	if len(f.Types) > 0 && !slices.Contains(f.Types, e.Type) || !f.Reads(e.Scope.LegalEntity) {
		return false
	}
	for _, tag := range f.Tags {
		if !slices.Contains(e.Tags, tag) {
			return false
		}
	}
	return len(f.Entities) == 0 || slices.ContainsFunc(refs, func(r event.EntityRef) bool {
		return slices.ContainsFunc(f.Entities, func(w FilterEntity) bool { return w.Type == r.Type && (w.ID == "" || w.ID == r.ID) })
	})
}

// Reads reports whether the filter selects events of a legal entity at all.
func (f Filter) Reads(legalEntity string) bool {
	return len(f.LegalEntities) == 0 || slices.Contains(f.LegalEntities, legalEntity)
}

// IsValidKey reports whether a text can be the key of a row.
func IsValidKey(key string) bool {
	return key != "" && len(key) <= MaxKey && utf8.ValidString(key) && !strings.ContainsAny(key, "\x00\U0010FFFF")
}

// Encode serializes a definition for the register.
func (d Definition) Encode() ([]byte, error) { return json.Marshal(d) }

// DefinitionDigest is the SHA-256 of a stored definition as Encode writes it, or of the text
// itself if it cannot be read.
func DefinitionDigest(stored []byte) event.Hash {
	if d, err := ParseDefinition(stored); err == nil {
		if again, err := d.Encode(); err == nil {
			stored = again
		}
	}
	return sha256.Sum256(stored)
}

// ParseDefinition reads the output of Encode. It refuses members that a later release has
// added, since this release would build other rows. Fault projection.definition_unreadable.
func ParseDefinition(stored []byte) (d Definition, err error) {
	decoder := json.NewDecoder(bytes.NewReader(stored))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&d); err != nil {
		return Definition{}, fault.New(fault.FailedPrecondition, CodeUnreadable,
			"the definition of this projection was written by another release and cannot be read by this one; ask a server of that release, or delete the projection and create it again").WithCause(err)
	}
	return d, nil
}

// shortName is the name that a tenant gave its custom projection; projections of modules
// have one name only.
func shortName(name string) string {
	_, name, _ = SplitName(name)
	return name
}
