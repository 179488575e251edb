package eventtype

// Declares reports whether the schema of the data names the members of a path, such as
// {"lines", "account"} for $.lines[*].account, or may name them where that cannot be
// decided: in members by pattern, or behind a reference that leads nowhere. What a schema
// only does not forbid, it does not declare.
func (r *Registration) Declares(path []string) bool {
	doc, err := parse(r.DataSchema)
	return err != nil || declares(doc.node(), path, 0)
}

func declares(n node, path []string, depth int) bool {
	n, ok := n.resolve()
	if !ok || depth > maxNesting {
		return true
	}
	words := n.words()
	if len(path) == 0 || len(words) == 0 && n.v == true && depth > 0 {
		return true
	}
	if inner, has := schemasByName(words, "properties")[path[0]]; has && declares(n.child(inner, "properties", path[0]), path[1:], depth+1) {
		return true
	}
	if _, byPattern := words["patternProperties"]; byPattern {
		return true
	}
	if _, named := words["additionalProperties"].(map[string]any); named {
		return true
	}
	switch items := words["items"].(type) { // a path leads into every element
	case map[string]any:
		if declares(n.child(items, "items"), path, depth+1) {
			return true
		}
	case []any:
		return true
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := words[keyword].([]any)
		for i := range list {
			if declares(n.child(list[i], keyword), path, depth+1) {
				return true
			}
		}
	}
	for _, keyword := range []string{"if", "then", "else"} {
		if inner, has := words[keyword]; has && declares(n.child(inner, keyword), path, depth+1) {
			return true
		}
	}
	return false
}
