package query

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// refMembers are the members of an entity reference as it is stored.
var refMembers = []string{"entity_type", "entity_id", "role"}

// refs gathers what events are about, each once, in order of appearance. The events of
// a process name the same few entities over and over, so that a reference is decoded
// only when it is new.
type refs struct {
	found []event.EntityRef
	seen  map[string]bool // by type, id and role, with NUL between them, which none of them has
	key   []byte
}

// add reads an event's references; nothing if its payload is not there.
func (r *refs) add(e *event.Recorded) error {
	list, found, err := jsondoc.Member(e.Payload, "entity_refs")
	if err != nil || !found {
		return nil //nolint:nilerr // a payload that was taken out is no error here
	}
	if r.addPlain(list) {
		return nil
	}
	var decoded []event.EntityRef
	if err := json.Unmarshal(list, &decoded); err != nil {
		return fmt.Errorf("entity references of event %s: %w", e.ID, err)
	}
	for _, ref := range decoded {
		r.key = fmt.Appendf(r.key[:0], "%s\x00%s\x00%s", ref.Type, ref.ID, ref.Role)
		r.take(len(ref.Type), len(ref.ID))
	}
	return nil
}

// addPlain reads references in the form in which they are written unless a text in
// them needs an escape. Of any other list it says false; what it has taken from it is
// taken once.
func (r *refs) addPlain(list []byte) bool {
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
		r.take(len(values[0]), len(values[1]))
		if rest = rest[end:]; rest[0] == ',' {
			rest = rest[1:]
		}
		if len(rest) == 0 {
			return false
		}
	}
	return len(rest) == 1
}

// take keeps the reference in key, whose type and id have so many bytes.
func (r *refs) take(typeBytes, idBytes int) {
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
