package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/jsondoc"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// newView is the state of the log that one planning sees.
func (a *attempt) newView(useCache bool) *planView {
	v := a.service.states.newView(a.entity, useCache)
	v.open, v.findEntity = a.open, a.findEntity
	return v
}

// open implements module.State.Open. It notes the texts that it opens, which no one may be shown:
// neither the policy nor the caller, and the store only sealed.
func (a *attempt) open(ctx context.Context, document json.RawMessage) (json.RawMessage, error) {
	if !shredding.HasSealed(document) {
		return document, nil
	}
	sealed, err := shredding.FindSealed(document)
	if err != nil || len(sealed) == 0 {
		return document, err
	}
	for _, s := range sealed {
		if s.Origin == nil {
			return nil, fmt.Errorf("%s opens a sealed value at %q that does not name where it was sealed; keep values as folds get them", a.intentType.Type, s.Pointer)
		}
	}
	if a.service.Opener == nil {
		return nil, keysMissingFault()
	}
	reader := &plannerReader{opens: a.intentType.Opens, file: a.fileReader}
	documents := []module.SealedDocument{{At: shredding.Location{Partition: a.entity.Partition}, Document: document}}
	if err := a.service.Opener.Open(ctx, documents, reader); err != nil {
		return nil, err
	}
	if reader.undeclared != "" {
		return nil, classUndeclaredFault(a.intentType.Type, "of class "+string(reader.undeclared))
	}
	if reader.withheld != "" {
		return nil, fault.New(fault.Forbidden, "file.forbidden", "the file has personal data of class %s, which you do not read; ask a person whose role reads it", reader.withheld)
	}
	var texts []string
	for _, s := range sealed {
		start, end, found, err := jsondoc.Locate(documents[0].Document, s.Pointer)
		if err != nil {
			return nil, err
		}
		switch value := documents[0].Document[start:end]; {
		case !found || string(value) == shredding.Masked:
			return nil, classUndeclaredFault(a.intentType.Type, "of a class that no registered type declares")
		case string(value) != shredding.Redacted:
			var decoded any
			if err := json.Unmarshal(value, &decoded); err != nil {
				return nil, err
			}
			texts = appendPersonalTexts(texts, decoded)
		}
	}
	return documents[0].Document, a.noteOpened(texts)
}

func classUndeclaredFault(intentType, class string) error {
	return fault.New(fault.Internal, "pii.class_undeclared", "the planner of %s opens a personal value %s, which the intent type does not declare in Opens; report this defect", intentType, class)
}

// plannerReader reads the classes that an intent type or file declares. A planner gives the values
// to no caller, so nothing is recorded. A file does: its reader has to read the classes too, and
// is told of what was opened.
type plannerReader struct {
	opens      []shredding.Class
	file       *fileReader     // nil for a planner
	undeclared shredding.Class // a class that was asked for and is not in opens
	withheld   shredding.Class // a class that the caller of a file does not read
}

// Reads implements module.Rights.
func (r *plannerReader) Reads(recordType string, class shredding.Class) bool {
	if !slices.Contains(r.opens, class) {
		r.undeclared = class
		return false
	}
	if r.file != nil && !r.file.caller.Reads(recordType, class) {
		r.withheld = class
		return false
	}
	return true
}

// Disclose implements module.Reader.
func (r *plannerReader) Disclose(_ context.Context, opened []module.Opened) error {
	if r.file != nil {
		r.file.add(opened)
	}
	return nil
}

// noteOpened adds to openedTexts those texts that the caller did not send in clear: repeating
// the caller's own words reveals nothing. It leaves out short figures, such as the number of a
// small account, which equal codes of other things by coincidence.
func (a *attempt) noteOpened(texts []string) error {
	payload := a.payload
	if fields, err := a.intentType.Manifest().Resolve(payload, "", nil); err == nil && len(fields) > 0 {
		if payload, err = shredding.DescribeDocument(nil, payload, fields); err != nil {
			return err
		}
	}
	var sent any
	if err := json.Unmarshal(payload, &sent); err != nil {
		return err
	}
	for _, text := range texts {
		known := slices.Contains(a.openedTexts, text) || len(text) < minPersonalFigures && strings.Trim(text, "0123456789") == ""
		visitTexts(sent, func(s string) { known = known || strings.Contains(s, text) }, func(string) {})
		if !known {
			a.openedTexts = append(a.openedTexts, text)
		}
	}
	return nil
}

// minPersonalFigures is the length of the shortest opened text of digits alone that is searched
// for.
const minPersonalFigures = 8

// checkEvents refuses events that would store a text that the planner opened in clear:
// policy.personal_facts. It finds whole words only, since ids and digests hold any short text by
// coincidence.
func (a *attempt) checkEvents(events []event.Prepared) error {
	if len(a.openedTexts) == 0 {
		return nil
	}
	leaks := false
	check := func(s string) {
		leaks = leaks || slices.ContainsFunc(a.openedTexts, func(text string) bool { return containsWords(s, text) })
	}
	for i := range events {
		e := &events[i]
		var payload any
		if err := json.Unmarshal(e.Payload, &payload); err != nil {
			return err
		}
		visitTexts(payload, check, func(string) {})
		for _, s := range append([]string{e.Stream.ID, e.CorrelationID}, e.Tags...) {
			check(s)
		}
	}
	if leaks {
		return personalFactsFault("the store")
	}
	return nil
}

// containsWords reports whether a text occurs in s without a letter or digit right before or
// after it.
func containsWords(s, text string) bool {
	inWord := func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; ; {
		i := strings.Index(s[from:], text)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(text)
		before, _ := utf8.DecodeLastRuneInString(s[:start])
		after, _ := utf8.DecodeRuneInString(s[end:])
		if !inWord(before) && !inWord(after) {
			return true
		}
		from = start + 1
	}
}

// maskOpened replaces texts that the planner opened in the drafts of a dry run, which the caller
// gets in clear.
func (a *attempt) maskOpened(drafts []event.Draft) ([]event.Draft, error) {
	if len(a.openedTexts) == 0 {
		return drafts, nil
	}
	masked := slices.Clone(drafts)
	for i := range masked {
		data, err := json.Marshal(masked[i].Data)
		if err != nil {
			return nil, err
		}
		decoder := json.NewDecoder(bytes.NewReader(data))
		decoder.UseNumber()
		var decoded any
		if err := decoder.Decode(&decoded); err != nil {
			return nil, err
		}
		if data, err = json.Marshal(maskTexts(decoded, a.openedTexts)); err != nil {
			return nil, err
		}
		masked[i].Data = json.RawMessage(data)
	}
	return masked, nil
}

// maskTexts replaces the texts in a decoded document that contain a personal one.
func maskTexts(v any, personal []string) any {
	switch v := v.(type) {
	case string:
		if containsAny(v, personal) {
			return json.RawMessage(shredding.Masked)
		}
	case []any:
		for i := range v {
			v[i] = maskTexts(v[i], personal)
		}
	case map[string]any:
		for name := range v {
			v[name] = maskTexts(v[name], personal)
		}
	}
	return v
}

func containsAny(s string, personal []string) bool {
	return slices.ContainsFunc(personal, func(text string) bool { return strings.Contains(s, text) })
}

// appendPersonalTexts adds the texts of a decoded personal value that are long enough to search
// for.
func appendPersonalTexts(texts []string, value any) []string {
	visitTexts(value, func(s string) {
		if len(s) >= minPersonalText {
			texts = append(texts, s)
		}
	}, func(string) {})
	return texts
}
