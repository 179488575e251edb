package eventtype

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// Defaults adds the required members that data of an earlier version lack, with the schema's
// defaults. The zero value adds nothing.
type Defaults struct{ doc *schema.Document }

// Bounds of filling: a schema may refer to itself.
const (
	mostFilled    = 1000
	deepestFilled = 32
)

// DefaultsOf reads the defaults of a schema.
func DefaultsOf(dataSchema json.RawMessage) Defaults {
	if !bytes.Contains(dataSchema, []byte(`"default"`)) && !bytes.Contains(dataSchema, []byte(`\u`)) {
		return Defaults{}
	}
	doc, _ := parse(dataSchema)
	return Defaults{doc}
}

// missingMember is a member to add to an object.
type missingMember struct {
	object, name string
	value        []byte
}

// Fill adds the members that are required, absent and have a default, at every level. All
// other bytes are unchanged, and data that lack nothing are returned as they are. Sealed
// values are skipped. Fault event_type.default_endless if defaults require each other without
// end.
func (d Defaults) Fill(data json.RawMessage) (json.RawMessage, error) {
	if d.doc == nil {
		return data, nil
	}
	v, err := jsondoc.Decode(data)
	if err != nil {
		return nil, fault.New(fault.Invalid, "json.malformed", "the data are no JSON; send one RFC 8259 document").WithCause(err)
	}
	var all []missingMember
	if !d.collectMissing(d.doc.Root(), v, "", 0, &all) {
		return nil, fault.New(fault.FailedPrecondition, "event_type.default_endless", "the schema's defaults require further defaults without end; write them out")
	}
	for _, f := range all {
		start, end, found, err := jsondoc.Locate(data, f.object)
		if err != nil || !found {
			return nil, err
		}
		object, err := jsondoc.SetMember(nil, data[start:end], f.name, f.value)
		if err != nil {
			return nil, err
		}
		data = slices.Concat(data[:start], object, data[end:])
	}
	return data, nil
}

// collectMissing collects the members that a value lacks. It reports false if there is no end
// of them.
func (d Defaults) collectMissing(n schema.Node, v any, pointer string, depth int, all *[]missingMember) bool {
	if depth > deepestFilled || len(*all) > mostFilled {
		return false
	}
	n, ok := n.Resolve()
	if !ok {
		return true
	}
	words := n.Keywords()
	for i, s := range schemaList(words, "allOf") {
		if !d.collectMissing(n.Child(s, "allOf", number(i)), v, pointer, depth+1, all) {
			return false
		}
	}
	switch v := v.(type) {
	case []any:
		items, one := words["items"].(map[string]any)
		if !one {
			return true
		}
		for i, inner := range v {
			if !d.collectMissing(n.Child(items, "items"), inner, pointer+"/"+strconv.Itoa(i), depth+1, all) {
				return false
			}
		}
	case map[string]any:
		if _, sealed := v["$pii"]; sealed {
			return true
		}
		return d.collectMissingMembers(n, words, v, pointer, depth, all)
	}
	return true
}

func (d Defaults) collectMissingMembers(n schema.Node, words, v map[string]any, pointer string, depth int, all *[]missingMember) bool {
	properties := schemasByName(words, "properties")
	for _, name := range names(words["required"]) {
		if _, has := v[name]; has {
			continue
		}
		value, given := DefaultOf(n.Child(properties[name], "properties", name))
		if !given {
			continue
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if encoder.Encode(value) != nil {
			continue
		}
		raw := bytes.TrimSpace(text.Bytes())
		*all = append(*all, missingMember{pointer, name, raw})
		v[name], _ = jsondoc.Decode(raw) // a copy, which may lack members itself
	}
	for _, name := range keys(v) {
		s, known := properties[name]
		if !known {
			continue
		}
		if !d.collectMissing(n.Child(s, "properties", name), v[name], pointer+"/"+jsondoc.EscapeToken(name), depth+1, all) {
			return false
		}
	}
	return true
}
