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

// emptyPayload is stored instead of a payload that was not validated, which may hold
// personal data in any member, and read instead of one that repeats redacted values.
var emptyPayload = json.RawMessage("{}")

// sealedPayload is a payload in its stored form, sealed once for all retries.
type sealedPayload struct {
	plain    []byte                // what was sealed; another plan may keep another payload
	document json.RawMessage       // plain with its personal values sealed
	used     []event.SealedSubject // the keys that they were sealed with
}

// storedPayload returns the payload for the intent's row and the keys that this write
// sealed values with. A row that exists keeps its payload. The first write stores Plan.Kept
// or, without it, the payload, and seals its personal values; a refusal is stored with
// {"present":true,"class":"..."} instead of each; a payload that was not found valid is stored
// as {}.
func (a *attempt) storedPayload(ctx context.Context) (json.RawMessage, []event.SealedSubject, error) {
	if a.stored.Revision > 0 {
		return a.stored.Payload, nil, nil
	}
	if !a.payloadValid {
		return emptyPayload, nil, nil
	}
	plain := a.payload
	if a.keptPayload != nil {
		plain = a.keptPayload
	}
	if a.intentType.Manifest().Empty() {
		return plain, nil, nil
	}
	if a.sealed != nil && bytes.Equal(a.sealed.plain, plain) && !a.recordingRefusal {
		return a.sealed.document, a.sealed.used, nil
	}
	fields, err := a.intentType.Manifest().Resolve(plain, "", nil)
	if err != nil || len(fields) == 0 {
		return plain, nil, prependPayloadPointer(err)
	}
	if a.recordingRefusal {
		// A refused intent has no purpose to keep personal data for, and no key is created for
		// it: the person may be registered under another id later.
		document, err := shredding.DescribeDocument(nil, plain, fields)
		return document, nil, err
	}
	if a.service.Sealer == nil {
		return nil, nil, keysMissingFault().WithField("/payload" + fields[0].Pointer)
	}
	document, used, err := a.service.Sealer.Seal(ctx, module.SealRequest{
		TenantID: a.entity.TenantID, At: module.LocationOf(&a.stored), Class: a.intentType.KeyClass(), Document: plain, Fields: fields,
	})
	if err != nil {
		return nil, nil, prependPayloadPointer(err)
	}
	a.sealed = &sealedPayload{plain: plain, document: document, used: used}
	return document, used, nil
}

func keysMissingFault() *fault.Error {
	return fault.New(fault.FailedPrecondition, "pii.keys_missing",
		"this installation has no key service, so personal data can neither be stored nor read; leave the personal fields out or have one configured")
}

// forgetKeys drops the cached keys of a request, so that the next try fetches them again.
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

// recordRefusal stores a refused intent. If the payload cannot be sealed, the intent is
// stored with an empty payload; if the key service is unavailable, it is not stored.
func (a *attempt) recordRefusal(ctx context.Context, row intent.Intent) error {
	refused := outcomeWrite{about: intent.Refused}
	_, err := a.write(ctx, row, refused)
	if err == nil || !a.payloadValid || a.intentType.Manifest().Empty() {
		return err
	}
	switch fault.KindOf(err) {
	case fault.Unavailable, fault.Timeout, fault.Internal:
		return err
	}
	if code := fault.CodeOf(err); !strings.HasPrefix(code, "pii.") && !strings.HasPrefix(code, "keys.") && !strings.HasPrefix(code, "kms.") {
		return err
	}
	a.payloadValid = false
	_, err = a.write(ctx, row, refused)
	return err
}

// openPayload opens a stored payload for planning: what Plan.Kept or the caller's payload was
// at the submission. An intent about a person who was erased since then cannot be executed:
// pii.subject_erased.
func (a *attempt) openPayload(ctx context.Context) error {
	a.payload = a.stored.Payload
	if !shredding.HasSealed(a.stored.Payload) {
		a.personalTextsRead = true
		return nil
	}
	sealed, err := shredding.FindSealed(a.stored.Payload)
	if err != nil {
		return err
	}
	if a.service.Opener == nil {
		return keysMissingFault()
	}
	documents := []module.SealedDocument{{At: module.LocationOf(&a.stored), Document: a.stored.Payload}}
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
	return a.readPersonalTexts(pointers)
}

// minPersonalText is the length, in bytes, of the shortest personal text that
// checkNoPersonalText searches for. Shorter texts would be found by coincidence.
const minPersonalText = 4

// readPersonalTexts collects the texts of the payload's personal values.
func (a *attempt) readPersonalTexts(pointers []string) error {
	a.personalTexts, a.personalTextsRead = nil, true
	for _, pointer := range pointers {
		start, end, _, err := jsondoc.Locate(a.payload, pointer)
		if err != nil {
			return err
		}
		var value any
		if err := json.Unmarshal(a.payload[start:end], &value); err != nil {
			return err
		}
		a.personalTexts = appendPersonalTexts(a.personalTexts, value)
	}
	return nil
}

// checkNoPersonalText refuses a value that contains a personal text of the payload, or one that
// the planner opened, and goes to audience, which is the policy, the store or another person: policy.personal_facts,
// a defect of the module.
func (a *attempt) checkNoPersonalText(value any, audience string) error {
	if !a.personalTextsRead && !a.intentType.Manifest().Empty() {
		fields, err := a.intentType.Manifest().Resolve(a.payload, "", nil)
		if err != nil {
			return nil //nolint:nilerr // the payload was refused for this error, and none of it is stored
		}
		pointers := make([]string, len(fields))
		for i, f := range fields {
			pointers[i] = f.Pointer
		}
		if err := a.readPersonalTexts(pointers); err != nil {
			return err
		}
	}
	return checkReveals(value, slices.Concat(a.personalTexts, a.openedTexts), audience)
}

// checkReveals refuses a value that contains one of the personal texts: policy.personal_facts.
func checkReveals(value any, personal []string, audience string) error {
	if len(personal) == 0 {
		return nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return err
	}
	var decoded any
	if err := json.Unmarshal(encoded, &decoded); err != nil {
		return err
	}
	leaks := false
	check := func(s string) { leaks = leaks || containsAny(s, personal) }
	memberNames := map[string]bool{}
	collectMemberNames(reflect.ValueOf(value), memberNames)
	visitTexts(decoded, check, func(name string) {
		if !memberNames[name] {
			check(name)
		}
	})
	if leaks {
		return personalFactsFault(audience)
	}
	return nil
}

func personalFactsFault(audience string) error {
	return fault.New(fault.Internal, "policy.personal_facts", "the module reveals personal data to %s; report this defect", audience)
}

// redactError replaces an error that contains personal texts. Texts that the planner opened go
// to no caller. The payload's may be in an error for the submitter (not forOtherPerson), who
// sent them, unless it is internal, because internal errors are logged.
func (a *attempt) redactError(err error, forOtherPerson bool) error {
	f, ok := fault.As(err)
	onlyOpened := ok && f.Kind != fault.Internal && !forOtherPerson
	if err == nil || onlyOpened && len(a.openedTexts) == 0 {
		return err
	}
	var texts []string
	for e := err; e != nil; e = errors.Unwrap(e) {
		texts = append(texts, e.Error())
	}
	parts := []any{texts}
	if ok {
		parts = append(parts, f.Field, f.Expected, f.Actual, f.Holder, f.Violations, f.Attributes)
	}
	const audience = "another person"
	if onlyOpened && checkReveals(parts, a.openedTexts, audience) == nil || !onlyOpened && a.checkNoPersonalText(parts, audience) == nil {
		return err
	}
	redacted := fault.New(fault.KindOf(err), fault.CodeOf(err), "the module's message contains personal data and is left out; report this defect")
	if ok {
		redacted.IntentID, redacted.RetryAfter = f.IntentID, f.RetryAfter
	}
	return redacted
}

// collectMemberNames collects the member names of the structs in a value. Such a name
// comes from the module's code, so it is no leak if a personal text happens to equal it.
func collectMemberNames(v reflect.Value, names map[string]bool) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		collectMemberNames(v.Elem(), names)
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			for i := range v.Len() {
				collectMemberNames(v.Index(i), names)
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			collectMemberNames(v.MapIndex(k), names)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names[cmp.Or(name, field.Name)] = true
			collectMemberNames(v.Field(i), names)
		}
	}
}

// visitTexts visits the texts of a decoded document and the names of its members.
func visitTexts(v any, visit, visitName func(string)) {
	switch v := v.(type) {
	case string:
		visit(v)
	case []any:
		for _, x := range v {
			visitTexts(x, visit, visitName)
		}
	case map[string]any:
		for name, x := range v {
			visitName(name)
			visitTexts(x, visit, visitName)
		}
	}
}
