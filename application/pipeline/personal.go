package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/intent"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// nothing is stored in the place of a payload that may hold anything.
var nothing = json.RawMessage("{}")

// reseals is how often values are sealed again because a key had moved.
const reseals = 3

// Location is where the personal values of a stored intent's payload are sealed.
func Location(stored intent.Intent) shredding.Location {
	return shredding.Location{
		Partition: stored.Partition, Kind: shredding.KindIntent, Record: stored.ID, Type: stored.Type, SchemaVersion: module.IntentSchemaVersion,
	}
}

// sealedPayload is a payload as it goes to the store, sealed once for all tries.
type sealedPayload struct {
	plain    []byte
	document json.RawMessage
	used     []event.SealedSubject
}

// storedPayload gives the payload for the intent's row: as it is in the store; for
// the first write sealed; of a refusal without personal values; and nothing of one
// that was not found valid. The used keys are those that values were sealed with for
// this write.
func (a *attempt) storedPayload(ctx context.Context) (json.RawMessage, []event.SealedSubject, error) {
	if a.stored.Revision > 0 {
		return a.stored.Payload, nil, nil
	}
	if !a.valid {
		return nothing, nil, nil
	}
	plain := a.payload
	if a.kept != nil {
		plain = a.kept
	}
	if a.intentType.Manifest().Empty() {
		return plain, nil, nil
	}
	if a.sealed != nil && bytes.Equal(a.sealed.plain, plain) && !a.refused {
		return a.sealed.document, a.sealed.used, nil
	}
	fields, err := a.intentType.Manifest().Resolve(plain, "", nil)
	if err != nil || len(fields) == 0 {
		return plain, nil, inPayload(err)
	}
	if a.refused {
		// Nothing came of it, so nobody's data is kept, and no key made, for it: the person
		// may be known under another id.
		document, err := shredding.DescribeDocument(nil, plain, fields)
		return document, nil, err
	}
	if a.service.Sealer == nil {
		return nil, nil, keysMissing().WithField("/payload" + fields[0].Pointer)
	}
	document, used, err := a.service.Sealer.Seal(ctx, module.SealRequest{
		TenantID: a.entity.TenantID, At: Location(a.stored), Class: a.intentType.KeyClass(), Document: plain, Fields: fields,
	})
	if err != nil {
		return nil, nil, inPayload(err)
	}
	a.sealed = &sealedPayload{plain: plain, document: document, used: used}
	return document, used, nil
}

func keysMissing() *fault.Error {
	return fault.New(fault.FailedPrecondition, "pii.keys_missing",
		"this installation has no key service, so personal data can neither be stored nor read; leave the personal fields out or have one configured")
}

// whileKeysMove tries again while keys turn out to have moved, after the time that
// the store asks for.
func whileKeysMove(ctx context.Context, try func() (ports.AppendResult, error)) (res ports.AppendResult, err error) {
	for n := 0; ; n++ {
		if res, err = try(); fault.CodeOf(err) != shredding.CodeKeyMoved || n == reseals {
			return res, err
		}
		if moved, ok := fault.As(err); ok && wait(ctx, moved.RetryAfter) != nil {
			return res, err
		}
	}
}

// forgetKeys makes the next try ask for all keys of a request again.
func (a *attempt) forgetKeys(r ports.AppendRequest) {
	a.sealed = nil
	if a.service.Sealer == nil {
		return
	}
	used := r.Intent.Sealed
	for i := range r.Events {
		used = append(used[:len(used):len(used)], r.Events[i].Sealed...)
	}
	if len(used) > 0 {
		a.service.Sealer.Forget(r.Partition, used)
	}
}

// record stores a refused intent. If its payload cannot be sealed, it is stored
// without one; if the keys are only away, it is not stored.
func (a *attempt) record(ctx context.Context, row intent.Intent) error {
	_, err := a.write(ctx, row, ports.AppendRequest{})
	if err == nil || !a.valid || a.intentType.Manifest().Empty() {
		return err
	}
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.Internal:
		return err
	}
	if code := fault.CodeOf(err); !strings.HasPrefix(code, "pii.") && !strings.HasPrefix(code, "keys.") && !strings.HasPrefix(code, "kms.") {
		return err
	}
	a.valid = false
	_, err = a.write(ctx, row, ports.AppendRequest{})
	return err
}

// openPayload opens a stored payload for planning. An intent about somebody who was
// erased since cannot be carried out any more: pii.subject_erased.
func (a *attempt) openPayload(ctx context.Context) error {
	a.payload = a.stored.Payload
	if !shredding.HasSealed(a.stored.Payload) {
		a.knowPersons = true
		return nil
	}
	sealed, err := shredding.FindSealed(a.stored.Payload)
	if err != nil {
		return err
	}
	if a.service.Opener == nil {
		return keysMissing()
	}
	documents := []module.SealedDocument{{At: Location(a.stored), Document: a.stored.Payload}}
	if err := a.service.Opener.Open(ctx, documents, module.Planning{}); err != nil {
		return err
	}
	a.payload = documents[0].Document
	pointers := make([]string, len(sealed))
	for i, s := range sealed {
		start, end, found, err := jsondoc.Locate(a.payload, s.Pointer)
		if err != nil {
			return err
		}
		if value := string(a.payload[start:end]); !found || value == shredding.Redacted || value == shredding.Masked {
			return shredding.Erased("/payload" + s.Pointer).WithIntent(a.stored.ID.String())
		}
		pointers[i] = s.Pointer
	}
	return a.readPersons(pointers)
}

// minimumTell is the length from which on a text found elsewhere is taken for the
// personal value itself, in bytes.
const minimumTell = 4

// readPersons notes the texts of personal values.
func (a *attempt) readPersons(pointers []string) error {
	a.persons, a.knowPersons = nil, true
	for _, pointer := range pointers {
		start, end, _, err := jsondoc.Locate(a.payload, pointer)
		if err != nil {
			return err
		}
		var value any
		if err := json.Unmarshal(a.payload[start:end], &value); err != nil {
			return err
		}
		eachText(value, func(s string) {
			if len(s) >= minimumTell {
				a.persons = append(a.persons, s)
			}
		}, func(string) {})
	}
	return nil
}

// withoutPersons wants none of the payload's personal texts in what others see or
// the store keeps: policy.personal_facts, the module's mistake.
func (a *attempt) withoutPersons(shown any, to string) error {
	if !a.knowPersons && !a.intentType.Manifest().Empty() {
		fields, err := a.intentType.Manifest().Resolve(a.payload, "", nil)
		if err != nil {
			return nil //nolint:nilerr // the payload was refused for it; nothing of it is known or kept
		}
		pointers := make([]string, len(fields))
		for i, f := range fields {
			pointers[i] = f.Pointer
		}
		if err := a.readPersons(pointers); err != nil {
			return err
		}
	}
	if len(a.persons) == 0 {
		return nil
	}
	encoded, err := json.Marshal(shown)
	if err != nil {
		return err
	}
	var decoded any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return err
	}
	told := false
	look := func(s string) {
		told = told || slices.ContainsFunc(a.persons, func(person string) bool { return strings.Contains(s, person) })
	}
	fixed := map[string]bool{}
	memberNames(reflect.ValueOf(shown), fixed)
	eachText(decoded, look, func(name string) {
		if !fixed[name] {
			look(name)
		}
	})
	if told {
		return fault.New(fault.Internal, "policy.personal_facts", "the module shows personal data to %s; report this defect", to)
	}
	return nil
}

// discreet leaves out of an error what would show personal values of the payload: to
// others than the submitter, who has sent them, and to logs, which get the texts of
// errors that nobody foresaw.
func (a *attempt) discreet(err error, others bool) error {
	f, ok := fault.As(err)
	if err == nil || ok && f.Kind != fault.Internal && !others {
		return err
	}
	var texts []string
	for e := err; e != nil; e = errors.Unwrap(e) {
		texts = append(texts, e.Error())
	}
	shown := []any{texts}
	if ok {
		shown = append(shown, f.Field, f.Expected, f.Actual, f.Holder, f.Violations, f.Attributes)
	}
	if a.withoutPersons(shown, "others") == nil {
		return err
	}
	hidden := fault.New(fault.KindOf(err), fault.CodeOf(err), "what the module says about this holds personal data and is left out; report this defect")
	if ok {
		hidden.IntentID, hidden.RetryAfter = f.IntentID, f.RetryAfter
	}
	return hidden
}

// memberNames notes how the structs in a value name their members: a person's text
// that is such a name comes from the module's code, not from the person.
func memberNames(v reflect.Value, names map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		memberNames(v.Elem(), names)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				memberNames(v.Index(i), names)
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			memberNames(v.MapIndex(k), names)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names[cmp.Or(name, field.Name)] = true
			memberNames(v.Field(i), names)
		}
	}
}

// eachText visits the texts of a decoded document and the names of its members.
func eachText(v any, visit, visitName func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, x := range v {
			eachText(x, visit, visitName)
		}
	case map[string]any:
		for name, x := range v {
			visitName(name)
			eachText(x, visit, visitName)
		}
	}
}
