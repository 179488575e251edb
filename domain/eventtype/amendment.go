package eventtype

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// SchemaSince is a schema that a version had, from one amendment to the next.
type SchemaSince struct {
	DataSchema json.RawMessage
	At         time.Time
	By         string // person id, or ModuleActor
}

// Amend compares a registration with the registered one of the same version. A version may get
// further optional members, declare those as personal data, and change its description and
// examples; everything else takes a further version. Whatever its schema accepted, it accepts
// afterwards, unless an object was open: then earlier events may hold anything under the name of a
// new member, the comparison is not Compatible, and the stored events have to be looked at. Fault
// event_type.duplicate with one violation for each other difference.
func Amend(have, reg *Registration) (Comparison, error) {
	c := Compare(have, reg)
	var found []fault.Violation
	add := func(pointer, code, detail string) {
		found = append(found, fault.Violation{Field: pointer, Code: code, Detail: detail})
	}
	for i := range c.Differences {
		d := &c.Differences[i]
		d.Demand, d.Met = DemandAmendment, true
		switch {
		case d.Kind == OptionalAdded:
		case d.Kind == PersonalDataDeclared && !have.Declares(pathMembers(reg, d.Pointer)):
			d.Detail = "the member is new, so no event holds it in clear"
		default:
			d.Demand, d.Met = DemandVersion, false
			add(d.Pointer, "event_type."+string(d.Kind), "a version only gets optional members; take this back, or register the next version")
		}
	}
	if len(found) == 0 && !slices.ContainsFunc(c.Differences, func(d Difference) bool { return d.Kind == OptionalAdded }) {
		add(dataSchema, "event_type.changed", "the schema gets no member; register the next version")
	}
	if c.Truncated {
		add(dataSchema, "event_type.changed", "the schemas are too large to compare to the end; register the next version")
	}
	for pointer, isSame := range map[string]bool{
		"/optional_dimensions":  slices.Equal(have.OptionalDimensions, reg.OptionalDimensions),
		"/required_dimensions":  slices.Equal(have.RequiredDimensions, reg.RequiredDimensions),
		"/required_entity_refs": slices.Equal(have.RequiredEntityRefs, reg.RequiredEntityRefs),
		"/business_keys":        slices.EqualFunc(have.BusinessKeys, reg.BusinessKeys, func(a, b BusinessKeyRule) bool { return reflect.DeepEqual(a, b) }),
		"/upcasters":            slices.Equal(have.Upcasters, reg.Upcasters),
		"/module":               have.Module == reg.Module,
		dataSchema:              onlyAdds(have, reg, c.Differences),
	} {
		if !isSame && !slices.ContainsFunc(found, func(v fault.Violation) bool { return strings.HasPrefix(v.Field, pointer) }) {
			add(pointer, "event_type.changed", "a version only gets optional members; take this back, or register the next version")
		}
	}
	if len(found) == 0 {
		return c, nil
	}
	slices.SortStableFunc(found, func(a, b fault.Violation) int { return strings.Compare(a.Field, b.Field) })
	return c, fault.New(fault.Conflict, "event_type.duplicate",
		"version %d of event type %q is registered otherwise, and only optional members can be added to it; register the next version", reg.SchemaVersion, reg.Type).WithField("/schema_version").WithViolations(found...)
}

// Amends reports whether a registration amends the registered one of the same version without a
// look at stored events.
func Amends(have, reg *Registration) bool {
	c, err := Amend(have, reg)
	return err == nil && c.Compatible
}

// AmendmentNumber is the number of the row that a registration of a built-in version becomes: 0
// for its first one, and each amendment has the next one. In a request Schemas are those that the
// version has.
func (r *Registration) AmendmentNumber() int {
	if !r.Amends {
		return 0
	}
	return max(1, len(r.Schemas))
}

// Amended makes one registration of the rows of each version, which come in the order of type,
// version and amendment. A row that is no amendment of those before it has no effect.
func Amended(rows []Registration) (out []Registration) {
	for i := range rows {
		r, last := rows[i], len(out)-1
		if last < 0 || out[last].Type != r.Type || out[last].SchemaVersion != r.SchemaVersion {
			out = append(out, r)
			continue
		}
		before := &out[last]
		if !Amends(before, &r) {
			continue
		}
		if before.Schemas == nil {
			before.Schemas = []SchemaSince{{before.DataSchema, before.RegisteredAt, before.RegisteredBy}}
		}
		r.Schemas = append(before.Schemas, SchemaSince{r.DataSchema, r.RegisteredAt, r.RegisteredBy})
		r.RegisteredAt, r.RegisteredBy = before.RegisteredAt, before.RegisteredBy
		*before = r
	}
	return out
}

// pathMembers are the members on the way of the declaration at a pointer such as /pii_fields/0.
func pathMembers(reg *Registration, pointer string) []string {
	var i int
	if _, err := fmt.Sscanf(pointer, "/pii_fields/%d", &i); err != nil || i >= len(reg.PIIFields) {
		return nil
	}
	path := strings.ReplaceAll(strings.TrimPrefix(reg.PIIFields[i].Path, "$."), "[*]", "")
	return strings.Split(path, ".")
}

// onlyAdds reports whether nothing is left of the differences between two schemas, such as another
// default, once the added members are taken out of the newer one, and definitions that only the
// newer one has. Annotations do not count.
func onlyAdds(have, reg *Registration, differences []Difference) bool {
	older, okOlder := parse(have.DataSchema)
	newer, okNewer := parse(reg.DataSchema)
	if !okOlder || !okNewer {
		return false
	}
	for _, d := range differences {
		if d.Kind != OptionalAdded {
			continue
		}
		cut := strings.LastIndexByte(d.Pointer, '/')
		parent, ok := newer.At(strings.TrimPrefix(d.Pointer[:cut], dataSchema))
		members, isObject := parent.Value.(map[string]any)
		if !ok || !isObject {
			return false
		}
		delete(members, jsondoc.UnescapeToken(d.Pointer[cut+1:]))
	}
	before, _ := older.Root().Value.(map[string]any)
	after, _ := newer.Root().Value.(map[string]any)
	for _, word := range []string{"definitions", "$defs"} {
		known, _ := before[word].(map[string]any)
		given, _ := after[word].(map[string]any)
		for name := range given {
			if _, was := known[name]; !was {
				delete(given, name)
			}
		}
		if _, was := before[word]; !was && len(given) == 0 {
			delete(after, word)
		}
	}
	removeAnnotations(older.Root())
	removeAnnotations(newer.Root())
	return reflect.DeepEqual(before, after)
}

// EqualSchemas reports whether two JSON Schemas are equal apart from annotations: titles,
// descriptions, and x-not-pii, the reason why a member is not personal data. They document the
// schema and do not change what it accepts, so a release may change them in a version that is
// stored with others. The stored document is not changed.
func EqualSchemas(a, b json.RawMessage) bool {
	if bytes.Equal(a, b) || bytes.Equal(jsondoc.AppendCompact(nil, a), jsondoc.AppendCompact(nil, b)) {
		return true
	}
	x, parsedX := schema.Parse(a)
	y, parsedY := schema.Parse(b)
	if !parsedX || !parsedY {
		return false
	}
	removeAnnotations(x.Root())
	removeAnnotations(y.Root())
	return reflect.DeepEqual(x.Root().Value, y.Root().Value)
}

// removeAnnotations removes titles, descriptions and x-not-pii from a schema and the schemas inside
// it, but not from property names and plain values. Examples stay: a reference can lead into one.
func removeAnnotations(n schema.Node) {
	keywords, _ := n.Value.(map[string]any)
	delete(keywords, "x-not-pii")
	for _, word := range []string{"title", "description"} {
		if _, isText := keywords[word].(string); isText {
			delete(keywords, word)
		}
	}
	for _, p := range n.Parts() {
		removeAnnotations(p.Node)
	}
}
