package eventtype

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// Compare lists the differences between two versions of a type, and what the policy of
// schema evolution demands for each:
//
//	a member becomes optional or is added as optional, more values are accepted,
//	    a member is removed                     a new version
//	a member becomes required                   a new version whose schema gives a default
//	a member is renamed, values are refused,
//	    the JSON type changes                   a new version with an upcaster
//	a key or the owner changes, personal
//	    data would be stored in clear           a new type; the old one is deprecated
//
// A change of meaning without a change of schema cannot be detected; it demands a new type
// as well. Compare is bounded: schemas that are too large to compare count as changed.
func Compare(older, newer *Registration) Comparison {
	out := Comparison{Older: older.SchemaVersion, Newer: newer.SchemaVersion}
	docOlder, okOlder := parse(older.DataSchema)
	docNewer, okNewer := parse(newer.DataSchema)
	if !okOlder || !okNewer {
		out.Differences = []Difference{{Kind: Changed, Pointer: dataSchema, Demand: DemandType, Detail: "the schemas cannot be compared; correct the new one"}}
		return out
	}
	w := &schemaDiff{containment: newContainment(), seen: map[nodePair]bool{}}
	out.Compatible = w.isContained(docOlder.Root(), docNewer.Root())
	w.compareNodes(docOlder.Root(), docNewer.Root())
	if !out.Compatible && !slices.ContainsFunc(w.found, explainsIncompatibility) {
		w.add(Changed, docNewer.Root(), DemandType, false, "it is not shown that earlier events still fit; take the change back, or register a new type")
	}
	out.Differences = append(w.found, registrationDifferences(older, newer)...)
	out.Differences = append(out.Differences, keyFieldDifferences(older, newer, memberTypes{root: docOlder.Root()}, memberTypes{root: docNewer.Root()})...)
	out.Truncated = w.truncated || w.exhausted()
	if w.exhausted() && len(out.Unmet()) == 0 {
		out.Differences = append(out.Differences, Difference{
			Kind: Changed, Pointer: dataSchema, Demand: DemandType, Detail: "the schemas are too large to compare to the end; split the type",
		})
	}
	out.Differences = markCoveredByUpcaster(out.Differences, newer.upcastsFrom(older.SchemaVersion))
	return out
}

// explainsIncompatibility reports whether earlier data may violate the newer schema because of
// a difference.
func explainsIncompatibility(d Difference) bool {
	switch d.Kind {
	case Widened, EnumExtended, RequiredDropped:
		return false
	default:
		return true
	}
}

// registrationDifferences lists the differences outside the schema.
func registrationDifferences(older, newer *Registration) (out []Difference) {
	add := func(kind DifferenceKind, demand Demand, detail, pointer string, args ...any) {
		out = append(out, Difference{Kind: kind, Pointer: fmt.Sprintf(pointer, args...), Demand: demand, Met: demand != DemandType, Detail: detail})
	}
	if newer.Module != "" && older.Module != newer.Module {
		add(OwnerChanged, DemandType, "another module owns the type; name that module, or register a type of your own", "/module")
	}
	if retention(older) != retention(newer) || older.MinRetentionYears != newer.MinRetentionYears {
		add(RetentionChanged, DemandVersion, "earlier events are kept as they were registered", "/retention_class")
	}
	for i, name := range newer.RequiredDimensions {
		if !slices.Contains(older.RequiredDimensions, name) {
			add(DimensionRequired, DemandVersion, "earlier events may lack the dimension", "/required_dimensions/%d", i)
		}
	}
	for i, name := range older.RequiredDimensions {
		if !slices.Contains(newer.RequiredDimensions, name) {
			add(DimensionNotRequired, DemandVersion, "readers must do without the dimension", "/required_dimensions/%d", i)
		}
	}
	for i, ref := range newer.RequiredEntityRefs {
		if !slices.Contains(older.RequiredEntityRefs, ref) {
			add(ReferenceRequired, DemandVersion, "earlier events may lack the reference, or have another number of them", "/required_entity_refs/%d", i)
		}
	}
	for i, ref := range older.RequiredEntityRefs {
		if !slices.ContainsFunc(newer.RequiredEntityRefs, func(r RequiredRef) bool { return r.EntityType == ref.EntityType && r.Role == ref.Role }) {
			add(ReferenceNotRequired, DemandVersion, "readers must do without the reference", "/required_entity_refs/%d", i)
		}
	}
	businessKeyDifferences(older, newer, add)
	personalDifferences(older, newer, add)
	return out
}

func retention(r *Registration) RetentionClass {
	if r.RetentionClass == "" {
		return Standard
	}
	return r.RetentionClass
}

type addDifference = func(kind DifferenceKind, demand Demand, detail, pointer string, args ...any)

func businessKeyDifferences(older, newer *Registration, add addDifference) {
	for i, k := range newer.BusinessKeys {
		j := slices.IndexFunc(older.BusinessKeys, func(o BusinessKeyRule) bool { return o.Name == k.Name })
		switch {
		case j < 0:
			add(BusinessKeyAdded, DemandVersion, "earlier events claim nothing under it", "/business_keys/%d", i)
		case !slices.Equal(older.BusinessKeys[j].Fields, k.Fields) || older.BusinessKeys[j].Normalise != k.Normalise:
			add(BusinessKeyChanged, DemandType, "what earlier events claimed would be claimed again; keep fields and normalisation, or add a key of another name", "/business_keys/%d", i)
		}
	}
	for i, k := range older.BusinessKeys {
		if !slices.ContainsFunc(newer.BusinessKeys, func(n BusinessKeyRule) bool { return n.Name == k.Name }) {
			add(BusinessKeyRemoved, DemandType, "what earlier events claimed would be claimed again; keep the key, or register a new type", "/business_keys/%d", i)
		}
	}
}

// keyFieldDifferences lists the fields of kept business keys that every event carried and that events may
// lack now.
func keyFieldDifferences(older, newer *Registration, before, after memberTypes) (out []Difference) {
	for i, k := range newer.BusinessKeys {
		if !slices.ContainsFunc(older.BusinessKeys, func(o BusinessKeyRule) bool { return o.Name == k.Name && slices.Equal(o.Fields, k.Fields) }) {
			continue
		}
		for j, name := range k.Fields {
			if was := before.of(name); was&isAbsent == 0 && after.of(name)&^was&(isAbsent|isNull) != 0 {
				out = append(out, Difference{
					Kind: BusinessKeyChanged, Pointer: fmt.Sprintf("/business_keys/%d/fields/%d", i, j), Demand: DemandType,
					Detail: "every event carried " + quoted(name) + ", and one without it would claim no key; require it again and refuse null, or register a new type",
				})
			}
		}
	}
	return out
}

func personalDifferences(older, newer *Registration, add addDifference) {
	for i, f := range newer.PIIFields {
		j := slices.IndexFunc(older.PIIFields, func(o PIIField) bool { return o.Path == f.Path })
		switch {
		case j < 0:
			add(PersonalDataDeclared, DemandVersion, "where earlier events carry it, they hold it in clear", "/pii_fields/%d", i)
		case older.PIIFields[j].Class != f.Class || !equalJSON(older.PIIFields[j].Subject, f.Subject):
			add(PersonalDataChanged, DemandVersion, "earlier events stay sealed under their own class and subject", "/pii_fields/%d", i)
		}
	}
	doc, ok := parse(newer.DataSchema)
	for i, f := range older.PIIFields {
		if slices.ContainsFunc(newer.PIIFields, func(n PIIField) bool { return n.Path == f.Path }) {
			continue
		}
		if ok && !namesMember(doc, f.Path) {
			continue // the member was removed together with its declaration
		}
		add(PersonalDataNotDeclared, DemandType, "the value would be stored in clear while earlier events seal it; declare it, or leave the member out", "/pii_fields/%d", i)
	}
}

// namesMember reports whether the first member of a path is one of the schema's.
func namesMember(doc *schema.Document, path string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "$."), ".")
	first, _, _ = strings.Cut(first, "[")
	root, ok := doc.Root().Resolve()
	if !ok {
		return true
	}
	words := root.Keywords()
	if !isMembers(words) {
		return true
	}
	_, has := schemasByName(words, "properties")[first]
	return has
}

func equalJSON(a, b json.RawMessage) bool {
	if len(a) == 0 || len(b) == 0 {
		return len(a) == len(b)
	}
	x, errX := jsondoc.Decode(a)
	y, errY := jsondoc.Decode(b)
	return errX == nil && errY == nil && sameValue(x, y)
}

// Refusal is the fault for a version with unmet demands; nil if all are met. Violations have
// the code event_type.<kind>.
func (c *Comparison) Refusal(name string) error {
	unmet := c.Unmet()
	if len(unmet) == 0 {
		return nil
	}
	f := fault.New(fault.FailedPrecondition, "event_type.incompatible",
		"events of version %[3]d of event type %[2]q cannot be read as version %[1]d; change the schema as each of the violations says, or register a new type and deprecate this one",
		c.Newer, name, c.Older)
	violations := make([]fault.Violation, len(unmet))
	for i, d := range unmet {
		violations[i] = fault.Violation{Field: d.Pointer, Code: "event_type." + string(d.Kind), Detail: d.Detail}
	}
	return f.WithViolations(violations...)
}
