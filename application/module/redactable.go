package module

import (
	"fmt"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/schema"
)

// RedactableMembers returns the paths that a module declares as redactable in a version of
// an event type. owned is false for a type that no module owns, which declares nothing.
func (c *Catalog) RedactableMembers(eventType string, version uint32) (paths []string, owned bool) {
	for i := range c.EventTypes {
		if t := &c.EventTypes[i]; t.Type == eventType && t.SchemaVersion == version {
			return t.Redactable, true
		}
	}
	return nil, c.Owner(eventType) != ""
}

// CoversPointer reports whether an RFC 6901 pointer into data leads to a value of one of the
// paths.
func CoversPointer(paths []string, pointer string) bool {
	rest, ok := strings.CutPrefix(pointer, "/")
	tokens := strings.Split(rest, "/")
	return ok && slices.ContainsFunc(paths, func(path string) bool {
		steps, ok := event.ParsePath(path)
		return ok && slices.EqualFunc(steps, tokens, func(step, token string) bool {
			return step == event.EachElement || step == jsondoc.UnescapeToken(token)
		})
	})
}

// checkRedactable checks the declared paths of a type: each leads to a text that the schema does
// not limit to certain values, that is not personal data by the manifest, and from which no
// business key is derived.
func (t *EventType) checkRedactable() (errs []error) {
	for _, path := range t.Redactable {
		refuse := func(reason string) {
			errs = append(errs, fmt.Errorf("event type %s version %d: redactable member %s %s", t.Type, t.SchemaVersion, path, reason))
		}
		steps, ok := event.ParsePath(path)
		if !ok {
			refuse("is not a path such as $.lines[*].description")
			continue
		}
		words := memberSchema(t.Registration, steps)
		switch {
		case words == nil:
			refuse("is not in the schema")
		case words["type"] != "string":
			refuse("is not a text")
		case words["enum"] != nil || words["const"] != nil || words["pattern"] != nil || words["format"] != nil:
			refuse("takes certain texts only")
		case slices.ContainsFunc(t.PIIFields, func(f eventtype.PIIField) bool { return event.PathWithin(steps, f.Path) }):
			refuse("is sealed, and erased with its person")
		case slices.ContainsFunc(t.BusinessKeys, func(k eventtype.BusinessKeyRule) bool {
			return slices.Contains(k.Fields, steps[0]) || k.Document == steps[0]
		}):
			refuse("is part of a business key")
		}
	}
	return errs
}

// memberSchema returns the keywords of the schema of a member, nil if there is no such member.
func memberSchema(t eventtype.Registration, steps []string) map[string]any {
	document, ok := schema.Parse(t.DataSchema)
	if !ok {
		return nil
	}
	words := document.Root().Keywords()
	for _, step := range steps {
		next := words["items"]
		if step != event.EachElement {
			properties, _ := words["properties"].(map[string]any)
			next = properties[step]
		}
		if words, ok = next.(map[string]any); !ok {
			return nil
		}
	}
	return words
}
