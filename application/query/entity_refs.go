package query

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// refMembers are the members of a stored entity reference.
var refMembers = []string{"entity_type", "entity_id", "role"}

// entityRefs collects the entity references of events, each once, in order of appearance.
// The events of a process repeat a few references, so a reference is decoded only the
// first time.
type entityRefs struct {
	found []event.EntityRef
	seen  map[string]bool // by type, id and role, joined by NUL, which none of them contains
	key   []byte
}

// add adds an event's references; none if its payload was removed.
func (r *entityRefs) add(e *event.Recorded) error {
	list, found, err := jsondoc.Member(e.Payload, "entity_refs")
	if err != nil || !found {
		return nil //nolint:nilerr // the payload was removed, which is no error here
	}
	if r.addUnescaped(list) {
		return nil
	}
	var decoded []event.EntityRef
	if err := json.Unmarshal(list, &decoded); err != nil {
		return fmt.Errorf("entity references of event %s: %w", e.ID, err)
	}
	for _, ref := range decoded {
		r.key = fmt.Appendf(r.key[:0], "%s\x00%s\x00%s", ref.Type, ref.ID, ref.Role)
		r.addKey(len(ref.Type), len(ref.ID))
	}
	return nil
}

// addUnescaped adds references without decoding them. It reports false for a list that has
// escapes or another form; the caller then decodes the whole list, and references that
// were already added are not added again.
func (r *entityRefs) addUnescaped(list []byte) bool {
	rest, ok := bytes.CutPrefix(list, []byte("["))
	if !ok || len(rest) == 0 {
		return false
	}
	for rest[0] != ']' {
		start, end, found, err := jsondoc.Locate(rest, "")
		if err != nil || !found || end == len(rest) {
			return false
		}
		var values [3][]byte
		if jsondoc.Members(rest[start:end], refMembers, values[:]) != nil {
			return false
		}
		r.key = r.key[:0]
		for i, v := range values {
			if len(v) < 2 || v[0] != '"' || bytes.IndexByte(v, '\\') >= 0 {
				return false
			}
			if values[i] = v[1 : len(v)-1]; i > 0 {
				r.key = append(r.key, 0)
			}
			r.key = append(r.key, values[i]...)
		}
		r.addKey(len(values[0]), len(values[1]))
		if rest = rest[end:]; rest[0] == ',' {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return false
		}
	}
	return len(rest) == 1
}

// addKey adds the reference in key, given the lengths of its type and id.
func (r *entityRefs) addKey(typeBytes, idBytes int) {
	if r.seen[string(r.key)] {
		return
	}
	if r.seen == nil {
		r.seen = map[string]bool{}
	}
	key := string(r.key)
	r.seen[key] = true
	role := typeBytes + 1 + idBytes + 1
	r.found = append(r.found, event.EntityRef{Type: key[:typeBytes], ID: key[typeBytes+1 : role-1], Role: key[role:]})
}
