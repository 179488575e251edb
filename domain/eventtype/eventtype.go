// Package eventtype defines event types: what a registration declares, and which new
// versions the policy of schema evolution allows.
//
// Registration is one version of a type: its owner, its schema, the dimensions and entity
// references that events must carry, the business keys that they claim, and its personal
// data. Compare lists the Differences between two versions and what the policy demands for
// each; Defaults fills members that events of earlier versions lack. application/registry
// calls the package. It does no I/O, compiles no schema and runs no upcaster.
package eventtype

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Cardinality says how many references of a kind an event must carry.
type Cardinality string

// The cardinalities.
const (
	One       Cardinality = "one"
	OneOrMore Cardinality = "one_or_more"
)

// AnyEntity stands for every entity type in a required reference.
const AnyEntity = "*"

// RequiredRef is a reference that every event of the type must carry.
type RequiredRef struct {
	EntityType  string      `json:"entity_type"`
	Role        string      `json:"role"`
	Cardinality Cardinality `json:"cardinality"`
}

// RetentionClass says how long events must be kept.
type RetentionClass string

// The retention classes.
const (
	Standard   RetentionClass = "standard"
	Regulatory RetentionClass = "regulatory"
	PIISubject RetentionClass = "pii_subject"
)

// PIIField declares personal data in the type's data.
type PIIField = shredding.Declaration

// BusinessKeyRule builds a natural key from data fields: the values at Fields
// (top-level names of data), each normalised, joined. An event that lacks one of
// the fields claims nothing.
type BusinessKeyRule struct {
	Name      string   `json:"name"`
	Fields    []string `json:"fields"`
	Normalise string   `json:"normalise,omitempty"` // "" verbatim; "document_number": NFKC, upper case, blanks removed; "tax_id": also dots removed
	Document  string   `json:"document,omitempty"`  // data field that names the document to a later claimant
}

// Registration is one version of an event type.
type Registration struct {
	Type               string            `json:"type"`
	SchemaVersion      uint32            `json:"schema_version"`
	Module             string            `json:"module"`
	DataSchema         json.RawMessage   `json:"data_schema"`
	RequiredDimensions []string          `json:"required_dimensions"`
	OptionalDimensions []string          `json:"optional_dimensions"`
	RequiredEntityRefs []RequiredRef     `json:"required_entity_refs"`
	PIIFields          []PIIField        `json:"pii_fields"`
	RetentionClass     RetentionClass    `json:"retention_class"`
	MinRetentionYears  int               `json:"minimum_retention_years,omitempty"`
	BusinessKeys       []BusinessKeyRule `json:"business_keys"`
	Description        string            `json:"description"`
	Examples           []json.RawMessage `json:"examples"`
	Upcasters          []Upcaster        `json:"upcasters,omitempty"` // lead to this version

	// Set by the registry.
	TenantID     string    `json:"-"` // whose type it is; "" a built-in module's, shared by all tenants
	Number       int32     `json:"-"` // small number of the type's name in the key index
	Active       bool      `json:"is_active"`
	Withheld     bool      `json:"-"` // proposed and not confirmed: no event is written or read in it
	Proposal     *Change   `json:"-"` // that waits for a second person; nil: none
	RegisteredAt time.Time `json:"registered_at"`
	RegisteredBy string    `json:"registered_by"`

	// Schemas are those that the version had and has, oldest first; nil unless it was amended.
	Schemas []SchemaSince `json:"-"`
	// Amendment is what the version would become by the proposal; nil unless that is an amendment.
	Amendment *Registration `json:"-"`
	Amends    bool          `json:"-"` // the version of the same number, in a request

	By event.Actor `json:"-"` // who registers it, in a request; RegisteredBy is its id
}

// typeName is two or three lower-case parts: module.entity.action.
var typeName = regexp.MustCompile(`^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*){1,2}$`)

// ValidName reports whether a type name has two or three parts of lower-case
// letters, digits and underscores.
func ValidName(name string) bool { return len(name) <= 200 && typeName.MatchString(name) }

// Prefix is the first part of a type name, which a module owns.
func Prefix(name string) string {
	p, _, _ := strings.Cut(name, ".")
	return p
}

// ReservedPrefixes lists the prefixes that the product keeps for itself.
func ReservedPrefixes() []string { return []string{"backbone", "registry", "intent", "pii", "stream"} }

// Reserved reports whether a type name begins with a prefix that the product keeps for itself.
func Reserved(name string) bool { return slices.Contains(ReservedPrefixes(), Prefix(name)) }

// Validate checks what can be checked without looking into the schema; personal
// data are for CheckPersonal. All findings are returned in one fault.
func (r *Registration) Validate() error {
	var found []fault.Violation
	add := func(field, code, detail string, args ...any) {
		found = append(found, fault.Violation{Field: field, Code: code, Detail: fmt.Sprintf(detail, args...)})
	}
	if !ValidName(r.Type) {
		add("/type", "event_type.name_invalid", "use two or three parts such as module.entity.action in lower case")
	}
	if r.SchemaVersion < 1 || r.SchemaVersion > 32767 {
		add("/schema_version", "event_type.version_invalid", "versions start at 1")
	}
	if r.Module == "" {
		add("/module", "event_type.module_missing", "name the module that owns the type")
	}
	if len(r.DataSchema) == 0 || r.DataSchema[0] != '{' {
		add("/data_schema", "event_type.schema_invalid", "give a JSON Schema object")
	}
	for _, d := range []struct {
		field string
		names []string
	}{{"/required_dimensions", r.RequiredDimensions}, {"/optional_dimensions", r.OptionalDimensions}} {
		for i, name := range d.names {
			if strings.TrimSpace(name) == "" {
				add(fmt.Sprintf("%s/%d", d.field, i), "event_type.dimension_invalid", "name the dimension")
			}
		}
	}
	for i, ref := range r.RequiredEntityRefs {
		if ref.EntityType == "" || ref.Role == "" || (ref.Cardinality != One && ref.Cardinality != OneOrMore) {
			add(fmt.Sprintf("/required_entity_refs/%d", i), "event_type.reference_invalid", "entity_type, role and cardinality one or one_or_more are required")
		}
	}
	switch r.RetentionClass {
	case Standard, Regulatory, PIISubject:
	case "":
		r.RetentionClass = Standard
	default:
		add("/retention_class", "event_type.retention_invalid", "use standard, regulatory or pii_subject")
	}
	for i, k := range r.BusinessKeys {
		field := fmt.Sprintf("/business_keys/%d", i)
		if k.Name == "" || len(k.Fields) == 0 {
			add(field, "event_type.business_key_invalid", "name the key and its data fields")
		}
		if k.Normalise != "" && k.Normalise != NormaliseDocumentNumber && k.Normalise != NormaliseTaxID {
			add(field+"/normalise", "event_type.business_key_invalid", "use document_number or tax_id")
		}
	}
	return Invalid(append(found, r.checkUpcasters()...))
}

// Invalid is the fault for a registration with findings, nil without any.
func Invalid(found []fault.Violation) error {
	if len(found) == 0 {
		return nil
	}
	return fault.New(fault.Invalid, "event_type.invalid", "the registration has %d findings; correct them and register again", len(found)).WithViolations(found...)
}

// The normalisations of business keys.
const (
	NormaliseDocumentNumber = "document_number"
	NormaliseTaxID          = "tax_id"
)

// NotRegistered is the fault for an unknown type. It repeats the name only if it is
// formed like one: anything else may be anything.
func NotRegistered(name string) *fault.Error {
	if !ValidName(name) {
		return fault.New(fault.NotFound, "event_type.not_found", "there is no event type of this name, which is not even formed like one; GET /api/event-types lists all")
	}
	return fault.New(fault.NotFound, "event_type.not_found", "event type %q is not registered; register it first (POST /api/event-types)", name)
}
