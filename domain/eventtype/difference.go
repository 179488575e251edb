package eventtype

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/schema"
)

// DifferenceKind names how two versions of a type differ.
type DifferenceKind string

// The kinds of differences. Pointers refer to the newer registration; those of removed and
// renamed parts refer to the older one.
const (
	OptionalAdded   DifferenceKind = "optional_added"   // a member that events may carry
	RequiredAdded   DifferenceKind = "required_added"   // a member that events must carry now
	RequiredDropped DifferenceKind = "required_dropped" // a member that has become optional
	Removed         DifferenceKind = "removed"          // a member that the schema no longer names
	Renamed         DifferenceKind = "renamed"          // one member removed and one added with the same schema: a guess
	Narrowed        DifferenceKind = "narrowed"         // fewer values are accepted
	Widened         DifferenceKind = "widened"          // more values are accepted
	EnumReduced     DifferenceKind = "enum_reduced"
	EnumExtended    DifferenceKind = "enum_extended"
	EnumChanged     DifferenceKind = "enum_changed"
	TypeChanged     DifferenceKind = "type_changed" // no JSON type in common
	Changed         DifferenceKind = "changed"      // neither provably contains the other

	OwnerChanged            DifferenceKind = "owner_changed"
	RetentionChanged        DifferenceKind = "retention_changed"
	DimensionRequired       DifferenceKind = "dimension_required"
	DimensionNotRequired    DifferenceKind = "dimension_not_required"
	ReferenceRequired       DifferenceKind = "reference_required"
	ReferenceNotRequired    DifferenceKind = "reference_not_required"
	BusinessKeyAdded        DifferenceKind = "business_key_added"
	BusinessKeyRemoved      DifferenceKind = "business_key_removed"
	BusinessKeyChanged      DifferenceKind = "business_key_changed"
	PersonalDataDeclared    DifferenceKind = "pii_declared"
	PersonalDataNotDeclared DifferenceKind = "pii_not_declared"
	PersonalDataChanged     DifferenceKind = "pii_changed"
)

// Demand is what the policy of schema evolution requires for a difference. Stored events are
// never rewritten and versions are never deleted, so every demand is met by something new.
type Demand string

// The demands, weakest first.
const (
	DemandAmendment Demand = "amendment"                 // nothing but that the version is registered again, see Amend
	DemandVersion   Demand = "new_version"               // a version of its own
	DemandDefault   Demand = "new_version_with_default"  // with a `default` that fills the member in earlier events, or an upcaster
	DemandUpcaster  Demand = "new_version_with_upcaster" // with an upcaster that converts earlier events, or a new type
	DemandType      Demand = "new_type"                  // a new type, because earlier events would get another meaning
)

// Difference is one named difference of two versions.
type Difference struct {
	Kind    DifferenceKind `json:"kind"`
	Pointer string         `json:"pointer"` // RFC 6901 in the registration that Kind says
	Demand  Demand         `json:"demands"`
	Met     bool           `json:"met"` // the newer version gives what is demanded
	// Guess marks a difference that was concluded from similarity, such as a renaming.
	Guess  bool   `json:"guess,omitempty"`
	Detail string `json:"detail"`
}

// Comparison is the result of Compare.
type Comparison struct {
	Older       uint32       `json:"older"`
	Newer       uint32       `json:"newer"`
	Differences []Difference `json:"differences"`
	// Compatible is true if the newer schema provably accepts all data that the older one
	// accepts.
	Compatible bool `json:"compatible"`
	// Truncated is true if there are more differences than listed, or the schemas are too large
	// to compare completely.
	Truncated bool `json:"truncated,omitempty"`
}

// Unmet lists the differences whose demand is not met.
func (c *Comparison) Unmet() []Difference {
	return slices.DeleteFunc(slices.Clone(c.Differences), func(d Difference) bool { return d.Met })
}

// schemaDiff collects the differences of two schemas.
type schemaDiff struct {
	*containment
	found     []Difference
	truncated bool
	seen      map[nodePair]bool
}

const dataSchema = "/data_schema"

func (w *schemaDiff) add(kind DifferenceKind, n schema.Node, demand Demand, met bool, detail string) {
	if len(w.found) >= maxDifferences {
		w.truncated = true
		if met || len(w.found) >= 2*maxDifferences {
			return // the list is full
		}
	}
	at := dataSchema
	if !n.IsDerived() {
		at += n.At
	}
	w.found = append(w.found, Difference{Kind: kind, Pointer: at, Demand: demand, Met: met, Detail: detail})
}

// compareNodes adds the differences between two schemas for the same value.
func (w *schemaDiff) compareNodes(older, newer schema.Node) {
	older, okOlder := older.Resolve()
	newer, okNewer := newer.Resolve()
	if !okOlder || !okNewer {
		w.addNarrowedOrWidened(older, newer, newer)
		return
	}
	pair := pairOf(older, newer)
	if w.seen[pair] || len(w.seen) > maxSteps/100 {
		return
	}
	w.seen[pair] = true
	if w.isEquivalent(older, newer) {
		w.sameValues(older, newer)
		return
	}
	wordsOlder, wordsNewer := older.Keywords(), newer.Keywords()
	compared := map[string]bool{} // keywords
	if isMembers(wordsOlder) && isMembers(wordsNewer) {
		compared["properties"], compared["required"] = true, true
		w.compareMembers(older, newer, wordsOlder, wordsNewer)
	}
	_, listOlder := wordsOlder["items"].(map[string]any)
	_, listNewer := wordsNewer["items"].(map[string]any)
	if listOlder && listNewer {
		compared["items"] = true
		w.compareNodes(older.Child(wordsOlder["items"], "items"), newer.Child(wordsNewer["items"], "items"))
	}
	if len(compared) == 0 {
		w.addNarrowedOrWidened(older, newer, newer)
		return
	}
	w.addNarrowedOrWidened(w.rest(older, wordsOlder, compared), w.rest(newer, wordsNewer, compared), newer)
}

// sameValues finds members that only one version names although both accept them, because the
// schema is open.
func (w *schemaDiff) sameValues(older, newer schema.Node) {
	wordsOlder, wordsNewer := older.Keywords(), newer.Keywords()
	if isMembers(wordsOlder) && isMembers(wordsNewer) {
		w.compareMembers(older, newer, wordsOlder, wordsNewer)
	}
}

func isMembers(words map[string]any) bool {
	_, has := words["properties"].(map[string]any)
	return has
}

// rest is a schema without the keywords that were compared already.
func (w *schemaDiff) rest(n schema.Node, words map[string]any, compared map[string]bool) schema.Node {
	out := maps.Clone(words)
	maps.DeleteFunc(out, func(word string, _ any) bool { return compared[word] })
	return n.Doc.Derive(out)
}

// addNarrowedOrWidened adds a difference that is not analysed further.
func (w *schemaDiff) addNarrowedOrWidened(older, newer, at schema.Node) {
	wider, tighter := w.isContained(older, newer), w.isContained(newer, older)
	wordsOlder, wordsNewer := older.Keywords(), newer.Keywords()
	_, enumOlder := listedValues(wordsOlder)
	_, enumNewer := listedValues(wordsNewer)
	enums := enumOlder && enumNewer
	switch {
	case wider && tighter:
	case wider && enums:
		w.add(EnumExtended, at, DemandVersion, true, "further values are listed; every earlier event still fits")
	case wider:
		w.add(Widened, at, DemandVersion, true, "more values are accepted; every earlier event still fits")
	case typesOf(wordsOlder)&typesOf(wordsNewer) == 0:
		w.add(TypeChanged, at, DemandType, false, "the JSON type is another one, so earlier events do not fit; register a new type and deprecate this one")
	case tighter && enums:
		w.add(EnumReduced, at, DemandType, false, "values are no longer listed that earlier events may hold; list them again, or register a new type")
	case tighter:
		w.add(Narrowed, at, DemandType, false, "values are refused that earlier events may hold; accept them again, or register a new type")
	case enums:
		w.add(EnumChanged, at, DemandType, false, "other values are listed, so earlier events may not fit; list the earlier ones too, or register a new type")
	default:
		w.add(Changed, at, DemandType, false, "it is not shown that earlier events still fit; take the change back, or register a new type")
	}
}

// compareMembers adds the differences between the members of two object schemas.
func (w *schemaDiff) compareMembers(older, newer schema.Node, wordsOlder, wordsNewer map[string]any) {
	before, after := schemasByName(wordsOlder, "properties"), schemasByName(wordsNewer, "properties")
	requiredBefore, requiredAfter := names(wordsOlder["required"]), names(wordsNewer["required"])
	renames := w.guessRenames(older, newer, before, after, requiredBefore, requiredAfter)
	for _, name := range keys(before, after) {
		schemaBefore, wasThere := before[name]
		schemaAfter, isThere := after[name]
		_, wasRequired := slices.BinarySearch(requiredBefore, name)
		_, isRequired := slices.BinarySearch(requiredAfter, name)
		gone, added := older.Child(schemaBefore, "properties", name), newer.Child(schemaAfter, "properties", name)
		switch {
		case wasThere && !isThere && isRequired:
			w.addNarrowedOrWidened(gone, additional(newer, wordsNewer), gone) // it is still carried, under what holds for any other member
		case wasThere && !isThere:
			if to, ok := renames[name]; ok {
				w.add(Renamed, gone, DemandType, false, "it seems to be called "+quoted(to)+" now, so earlier events would be read without it; "+
					"keep the name, or give the new member a default to say that it is another one, or register a new type")
				if last := len(w.found) - 1; w.found[last].Kind == Renamed {
					w.found[last].Guess = true
				}
				continue
			}
			w.add(Removed, gone, DemandVersion, true, "new events need not carry it; earlier events keep it")
		case isThere && !wasThere && slices.Contains(slices.Collect(maps.Values(renames)), name):
		case isThere && isRequired && (!wasThere || !wasRequired):
			w.addRequired(added)
			if wasThere {
				w.compareNodes(gone, added)
			}
		case isThere && !wasThere:
			w.add(OptionalAdded, added, DemandVersion, true, "events may carry it; earlier events do not")
		default:
			if wasRequired && !isRequired {
				w.add(RequiredDropped, added, DemandVersion, true, "events need not carry it any more; readers must do without it")
			}
			w.compareNodes(gone, added)
		}
	}
	for _, name := range requiredAfter { // required, but without a schema
		_, named := after[name]
		if _, was := slices.BinarySearch(requiredBefore, name); !named && !was {
			w.addRequired(newer.Child(nil, "required"))
		}
	}
	for _, name := range requiredBefore {
		_, known := before[name]
		_, named := after[name]
		if _, still := slices.BinarySearch(requiredAfter, name); !known && !named && !still {
			w.add(RequiredDropped, newer, DemandVersion, true, "member "+quoted(name)+" need not be carried any more; readers must do without it")
		}
	}
}

func (w *schemaDiff) addRequired(n schema.Node) {
	value, given := DefaultOf(n)
	switch {
	case !given:
		w.add(RequiredAdded, n, DemandDefault, false, "earlier events do not carry it; give its schema a default, or make it optional")
	case !w.accepts(withoutFormat(n), value):
		w.add(RequiredAdded, n, DemandDefault, false, "its default is not shown to fit its own schema; correct the default")
	default:
		w.add(RequiredAdded, n, DemandDefault, true, "its default is used in earlier events")
	}
}

// DefaultOf reads a member's default, beside a reference or where it leads.
func DefaultOf(n schema.Node) (any, bool) {
	words, _ := n.Value.(map[string]any)
	if value, given := words["default"]; given {
		return value, true
	}
	n, _ = n.Resolve()
	words, _ = n.Value.(map[string]any)
	value, given := words["default"]
	return value, given
}

// withoutFormat is a schema without its format, which is checked on the examples instead.
func withoutFormat(n schema.Node) schema.Node {
	resolved, ok := n.Resolve()
	if !ok {
		return n
	}
	words, isObject := resolved.Value.(map[string]any)
	if _, has := words["format"]; !isObject || !has {
		return resolved
	}
	out := maps.Clone(words)
	delete(out, "format")
	return n.Doc.Derive(out)
}

// guessRenames guesses which members were renamed: a removed member, if exactly one added
// member without a default has the same schema and is required as well, or optional as well.
func (w *schemaDiff) guessRenames(older, newer schema.Node, before, after map[string]any, requiredBefore, requiredAfter []string) map[string]string {
	var gone, added []string
	for _, name := range keys(before, after) {
		_, was := before[name]
		_, is := after[name]
		_, hasDefault := DefaultOf(newer.Child(after[name], "properties", name))
		switch {
		case was && !is:
			gone = append(gone, name)
		case is && !was && !hasDefault:
			added = append(added, name)
		}
	}
	if len(gone)*len(added) > 1024 {
		return nil
	}
	out := map[string]string{}
	claimed := map[string]int{}
	for _, from := range gone {
		var like []string
		for _, to := range added {
			if slices.Contains(requiredBefore, from) == slices.Contains(requiredAfter, to) &&
				w.isEquivalent(older.Child(before[from], "properties", from), newer.Child(after[to], "properties", to)) {
				like = append(like, to)
			}
		}
		if len(like) == 1 {
			out[from] = like[0]
			claimed[like[0]]++
		}
	}
	maps.DeleteFunc(out, func(_, to string) bool { return claimed[to] > 1 })
	return out
}

func quoted(name string) string {
	b, err := json.Marshal(name)
	if err != nil {
		return name
	}
	return strings.ToValidUTF8(string(b), "")
}
