package redaction

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
)

const (
	maxPointers     = 64
	maxPointerBytes = 1000

	codeNotRedactable = "redaction.not_redactable"
)

// Types finds the version of a type that an event was stored in, also a deprecated one.
// registry.Registry has it.
type Types interface {
	StoredVersion(ctx context.Context, tenantID, eventType string, version uint32) (*module.RegisteredType, error)
}

// Declared knows what modules declare redactable. module.Catalog has it.
type Declared interface {
	RedactableMembers(eventType string, version uint32) (paths []string, owned bool)
}

// Rules decide which values may be redacted.
type Rules struct {
	Types    Types
	Declared Declared
	Upcaster module.Upcaster
}

// redact returns the payload of an event with "[REDACTED]" at the pointers and every other byte
// unchanged, or refuses:
//
//	redaction.pointer_invalid   Invalid: no value below /data, or a pointer inside another
//	redaction.pointer_personal  Invalid: a pointer names a member that looks like personal data
//	redaction.sealed            FailedPrecondition: erase the person instead
//	redaction.repeated          FailedPrecondition: redacted already
//	redaction.not_redactable    FailedPrecondition: an amount, an id, a key, or a member that its module does not declare
//	redaction.schema_violated   FailedPrecondition: the data would not fit the schema, or could not be read in the newest version
func (r Rules) redact(ctx context.Context, e event.Recorded, pointers []string) ([]byte, error) {
	if e.Payload == nil || e.ContentEncoding != "" {
		return nil, shredding.RedactionEventNotFound()
	}
	if err := checkPointers(pointers); err != nil {
		return nil, err
	}
	t, err := r.Types.StoredVersion(ctx, e.Scope.TenantID, e.Type, e.SchemaVersion)
	if err != nil {
		return nil, err
	}
	body, err := e.Body()
	if err != nil {
		return nil, err
	}
	out := e.Payload
	for _, p := range pointers {
		value, err := valueAt(e.Payload, p)
		if err != nil {
			return nil, err
		}
		if err := r.checkMember(t, e, body, p, value); err != nil {
			return nil, err
		}
		if out, err = jsondoc.Splice(nil, out, p, []byte(shredding.Redacted)); err != nil {
			return nil, err
		}
	}
	return out, r.checkResult(ctx, t, e, out, pointers)
}

// checkPointers checks what the pointers alone show.
func checkPointers(pointers []string) error {
	if len(pointers) < 1 || len(pointers) > maxPointers {
		return fault.New(fault.Invalid, "redaction.invalid", "a redaction names 1 to %d values of an event; correct the pointers", maxPointers).WithField("/pointers")
	}
	for i, p := range pointers {
		if len(p) > maxPointerBytes || !strings.HasPrefix(p, "/data/") {
			return pointerInvalid(p)
		}
		for token := range strings.SplitSeq(p, "/") {
			if kind := shredding.PersonalPattern(jsondoc.UnescapeToken(token)); kind != "" {
				return fault.New(fault.Invalid, "redaction.pointer_personal",
					"the name of a member on a pointer looks like personal data itself (%s), and pointers are kept for ever; redact the whole object around it", kind)
			}
		}
		for j, other := range pointers {
			if i != j && (p == other || strings.HasPrefix(other, p+"/")) {
				return fault.New(fault.Invalid, "redaction.pointer_invalid", "a pointer is given twice, or leads into the value of another; leave one out").WithField(other)
			}
		}
	}
	return nil
}

func pointerInvalid(p string) error {
	return shredding.RedactionPointerInvalid().WithField(p)
}

// valueAt returns the value at a pointer, which must be in clear.
func valueAt(payload []byte, pointer string) ([]byte, error) {
	start, end, found, err := jsondoc.Locate(payload, pointer)
	if err != nil || !found {
		return nil, pointerInvalid(pointer)
	}
	value := payload[start:end]
	if shredding.HasSealed(value) || isInsideSealed(payload, pointer) {
		return nil, shredding.RedactionOfSealed().WithField(pointer)
	}
	if string(value) == shredding.Redacted {
		return nil, shredding.RedactionRepeated().WithField(pointer)
	}
	return value, nil
}

// isInsideSealed reports whether a pointer leads into the object that holds a sealed value.
func isInsideSealed(payload []byte, pointer string) bool {
	parent := pointer[:strings.LastIndexByte(pointer, '/')]
	start, end, found, err := jsondoc.Locate(payload, parent)
	if err != nil || !found || payload[start] != '{' {
		return false
	}
	_, sealed, err := jsondoc.Member(payload[start:end], "$pii")
	return err == nil && sealed
}

func notRedactable(pointer, reason string) error {
	return fault.New(fault.FailedPrecondition, codeNotRedactable, "%s; leave the pointer out", reason).WithField(pointer)
}

// checkMember refuses a value that is computed with. A module knows this of its own types and
// declares the members that are free. In other types a text is free unless it identifies
// something: the entities, the stream, a business key, a subject of personal data. Of an object
// or array, every value inside must be free.
func (r Rules) checkMember(t *module.RegisteredType, e event.Recorded, body event.Body, pointer string, value []byte) error {
	inData := strings.TrimPrefix(pointer, "/data")
	if paths, owned := r.Declared.RedactableMembers(t.Type, t.SchemaVersion); owned {
		if !module.CoversPointer(paths, inData) {
			return notRedactable(pointer, "the module of this event type computes with the value, or does not declare that it does not")
		}
		return nil
	}
	var decoded any
	if err := json.Unmarshal(value, &decoded); err != nil {
		return pointerInvalid(pointer)
	}
	steps := strings.Split(strings.TrimPrefix(inData, "/"), "/")
	for i := range steps {
		steps[i] = jsondoc.UnescapeToken(steps[i])
	}
	if slices.ContainsFunc(t.BusinessKeys, func(k eventtype.BusinessKeyRule) bool {
		return slices.Contains(k.Fields, steps[0]) || k.Document == steps[0]
	}) {
		return notRedactable(pointer, "a business key is derived from the value")
	}
	if slices.ContainsFunc(steps, isIDName) {
		return notRedactable(pointer, reasonID)
	}
	identifiers := identifiers{subjects: subjectPaths(t.PIIFields), texts: map[string]bool{e.Stream.ID: true}}
	for _, ref := range body.EntityRefs {
		identifiers.texts[ref.ID] = true
	}
	if reason := identifiers.refusal(steps, decoded); reason != "" {
		return notRedactable(pointer, reason)
	}
	return nil
}

const reasonID = "the value is or holds an id, which other events and read models are found by"

func isIDName(name string) bool { return name == "id" || strings.HasSuffix(name, "_id") }

// identifiers is what the texts of an event identify that belongs to no module.
type identifiers struct {
	subjects [][]string      // steps of the paths to the persons of sealed values
	texts    map[string]bool // ids of the stream and the entities
}

// refusal returns why a value may not be redacted, "" if it may. steps lead from the data to it.
func (ids identifiers) refusal(steps []string, value any) string {
	switch x := value.(type) {
	case string:
		if ids.texts[x] {
			return "the value is or holds the id of an entity or of the stream of the event"
		}
		if slices.ContainsFunc(ids.subjects, func(path []string) bool { return slices.EqualFunc(path, steps, isStep) }) {
			return "the value names the person whose sealed values are beside it"
		}
		return ""
	case []any:
		for _, v := range x {
			if reason := ids.refusal(append(steps, event.EachElement), v); reason != "" {
				return reason
			}
		}
		return ""
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(x)) {
			if isIDName(name) {
				return reasonID
			}
			if reason := ids.refusal(append(steps, name), x[name]); reason != "" {
				return reason
			}
		}
		return ""
	default:
		return "only texts are redacted: amounts, numbers and flags are not personal data by themselves"
	}
}

// isStep reports whether a step of a path goes to a member or an element.
func isStep(step, name string) bool { return step == event.EachElement || step == name }

// subjectPaths returns the paths that name the persons of declared fields.
func subjectPaths(fields []eventtype.PIIField) (paths [][]string) {
	for _, f := range fields {
		var subject struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(f.Subject, &subject) != nil {
			continue
		}
		if steps, ok := event.ParsePath(subject.Path); ok {
			paths = append(paths, steps)
		}
	}
	return paths
}

// checkResult refuses data that does not fit the schema any more, fails a check of its module,
// or could not be converted to the newest version. Faults that the stored data has already do
// not count. A text whose form is prescribed, such as an address of mail, may be replaced:
// readers meet the same text where a sealed value was erased.
func (r Rules) checkResult(ctx context.Context, t *module.RegisteredType, e event.Recorded, payload []byte, pointers []string) error {
	before, err := dataOf(e.Payload)
	if err != nil {
		return err
	}
	after, err := dataOf(payload)
	if err != nil {
		return err
	}
	known, err := t.Schema.Validate(before)
	if err != nil {
		return err
	}
	found, err := t.Schema.Validate(after)
	if err != nil {
		return err
	}
	for _, v := range found {
		isKnown := slices.ContainsFunc(known, func(k fault.Violation) bool { return k.Field == v.Field && k.Code == v.Code })
		isOwnForm := isForm(v.Code) && slices.Contains(pointers, "/data"+v.Field)
		if !isKnown && !isOwnForm {
			return schemaViolated("/data" + v.Field)
		}
	}
	body, err := e.Body()
	if err != nil {
		return err
	}
	for _, check := range t.Checks {
		if check(after, body.Dimensions) != nil && check(before, body.Dimensions) == nil {
			return schemaViolated(pointers[0])
		}
	}
	redacted := e
	redacted.Payload = payload
	if r.Upcaster.CheckUpcastable(ctx, redacted) != nil && r.Upcaster.CheckUpcastable(ctx, e) == nil {
		return schemaViolated(pointers[0])
	}
	return ctx.Err()
}

func schemaViolated(pointer string) error {
	return fault.New(fault.FailedPrecondition, "redaction.schema_violated",
		"without the value the data would not fit the schema of its type, a check of its module or its newest version; leave the pointer out").WithField(pointer)
}

// isForm reports whether a keyword of JSON Schema prescribes the form of a text.
func isForm(code string) bool {
	return slices.Contains([]string{"schema.pattern", "schema.format", "schema.min_length", "schema.max_length"}, code)
}

func dataOf(payload []byte) (json.RawMessage, error) {
	return event.Recorded{Payload: payload}.Data()
}
