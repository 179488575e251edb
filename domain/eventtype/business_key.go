package eventtype

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// KeyFields finds the members of an event's data that rules read.
func KeyFields(rules []BusinessKeyRule, data json.RawMessage) (map[string]json.RawMessage, error) {
	var names []string
	for i := range rules {
		names = append(append(names, rules[i].Fields...), rules[i].Document)
	}
	values := make([][]byte, len(names))
	if err := jsondoc.Members(data, names, values); err != nil {
		return nil, err
	}
	fields := make(map[string]json.RawMessage, len(names))
	for i, value := range values {
		if value != nil {
			fields[names[i]] = value
		}
	}
	return fields, nil
}

// Values reads the rule's fields from an event's data. ok is false if a field is absent,
// neither string nor number, or empty after normalisation; such an event claims no key.
func (k BusinessKeyRule) Values(data map[string]json.RawMessage) (values []string, document string, ok bool) {
	values = make([]string, len(k.Fields))
	for i, f := range k.Fields {
		v, present := scalar(data[f])
		if !present || Normalise(k.Normalise, v) == "" {
			return nil, "", false
		}
		values[i] = v
	}
	if k.Document != "" {
		document, _ = scalar(data[k.Document])
	}
	return values, document, true
}

// ChangedKey finds the first rule under which data claim a key that the converted data do not claim;
// nil: each claim is kept.
func ChangedKey(rules []BusinessKeyRule, data, converted json.RawMessage) (*BusinessKeyRule, error) {
	before, err := KeyFields(rules, data)
	if err != nil {
		return nil, err
	}
	after, err := KeyFields(rules, converted)
	if err != nil {
		return nil, err
	}
	for i := range rules {
		k := &rules[i]
		held, _, isClaimed := k.Values(before)
		kept, _, isKept := k.Values(after)
		if isClaimed && (!isKept || k.Claim("", held, "") != k.Claim("", kept, "")) {
			return k, nil
		}
	}
	return nil, nil
}

// separator joins the parts of a key; escape precedes a separator or an escape inside a value.
const (
	separator = "\x1f"
	escape    = "\x1e"
)

var escaped = strings.NewReplacer(escape, escape+escape, separator, escape+separator)

// Claim builds the key that an event of the type claims. Values are normalised,
// escaped and joined by the unit separator, so that no value can imitate another
// key.
func (k BusinessKeyRule) Claim(eventType string, values []string, document string) event.BusinessKey {
	parts := make([]string, 0, len(values)+1)
	parts = append(parts, k.Name)
	for _, v := range values {
		parts = append(parts, escaped.Replace(Normalise(k.Normalise, v)))
	}
	return event.BusinessKey{EventType: eventType, Key: strings.Join(parts, separator), Document: document}
}

// Normalise applies one of the normalisations of natural keys.
func Normalise(how, value string) string {
	switch how {
	case NormaliseDocumentNumber:
		return normaliseDocumentNumber(value, false)
	case NormaliseTaxID:
		return normaliseDocumentNumber(value, true)
	default:
		return value
	}
}

// normaliseDocumentNumber converts a document number or tax id to NFKC and upper case without
// blanks; dots removes dots too, as tax ids need.
func normaliseDocumentNumber(value string, dots bool) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || (dots && r == '.') {
			return -1
		}
		return unicode.ToUpper(r)
	}, norm.NFKC.String(value))
}

func scalar(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "", false
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return "", false
		}
		return s, true
	case c == '-' || (c >= '0' && c <= '9'):
		return string(raw), true
	default:
		return "", false
	}
}
