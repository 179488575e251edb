package eventtype_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
)

func validRegistration() eventtype.Registration {
	return eventtype.Registration{Type: "crm.lead.won", SchemaVersion: 1, Module: "crm", DataSchema: json.RawMessage(`{"type":"object"}`)}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	r := validRegistration()
	require.NoError(t, r.Validate())
	require.Equal(t, eventtype.Standard, r.RetentionClass, "the class that was not given")

	type finding struct{ field, code string }
	for name, c := range map[string]struct {
		change func(*eventtype.Registration)
		want   finding
	}{
		"name":             {func(r *eventtype.Registration) { r.Type = "Lead" }, finding{"/type", "event_type.name_invalid"}},
		"no version":       {func(r *eventtype.Registration) { r.SchemaVersion = 0 }, finding{"/schema_version", "event_type.version_invalid"}},
		"version too high": {func(r *eventtype.Registration) { r.SchemaVersion = 32768 }, finding{"/schema_version", "event_type.version_invalid"}},
		"no module":        {func(r *eventtype.Registration) { r.Module = "" }, finding{"/module", "event_type.module_missing"}},
		"no schema":        {func(r *eventtype.Registration) { r.DataSchema = nil }, finding{"/data_schema", "event_type.schema_invalid"}},
		"boolean schema":   {func(r *eventtype.Registration) { r.DataSchema = json.RawMessage(`true`) }, finding{"/data_schema", "event_type.schema_invalid"}},
		"reference without role": {func(r *eventtype.Registration) {
			r.RequiredEntityRefs = []eventtype.RequiredRef{{EntityType: "lead", Role: "subject", Cardinality: eventtype.One}, {EntityType: "lead", Cardinality: eventtype.One}}
		}, finding{"/required_entity_refs/1", "event_type.reference_invalid"}},
		"reference cardinality": {func(r *eventtype.Registration) {
			r.RequiredEntityRefs = []eventtype.RequiredRef{{EntityType: "lead", Role: "subject", Cardinality: "many"}}
		}, finding{"/required_entity_refs/0", "event_type.reference_invalid"}},
		"nameless dimension": {func(r *eventtype.Registration) {
			r.RequiredDimensions = []string{"department", " "}
		}, finding{"/required_dimensions/1", "event_type.dimension_invalid"}},
		"nameless optional dimension": {func(r *eventtype.Registration) {
			r.OptionalDimensions = []string{""}
		}, finding{"/optional_dimensions/0", "event_type.dimension_invalid"}},
		"retention": {func(r *eventtype.Registration) { r.RetentionClass = "for_ever" }, finding{"/retention_class", "event_type.retention_invalid"}},
		"nameless key": {func(r *eventtype.Registration) {
			r.BusinessKeys = []eventtype.BusinessKeyRule{{Fields: []string{"no"}}}
		}, finding{"/business_keys/0", "event_type.business_key_invalid"}},
		"key without fields": {func(r *eventtype.Registration) {
			r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "no"}}
		}, finding{"/business_keys/0", "event_type.business_key_invalid"}},
		"normalisation": {func(r *eventtype.Registration) {
			r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "no", Fields: []string{"no"}, Normalise: "lower"}}
		}, finding{"/business_keys/0/normalise", "event_type.business_key_invalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := validRegistration()
			c.change(&r)
			f, ok := fault.As(r.Validate())
			require.True(t, ok)
			require.Equal(t, "event_type.invalid", f.Code)
			require.Equal(t, fault.Invalid, f.Kind)
			require.Len(t, f.Violations, 1)
			require.Equal(t, c.want, finding{f.Violations[0].Field, f.Violations[0].Code})
		})
	}
}

func TestValidate_AllFindings(t *testing.T) {
	t.Parallel()
	r := eventtype.Registration{RetentionClass: "x", BusinessKeys: []eventtype.BusinessKeyRule{{Normalise: "x"}}}
	f, ok := fault.As(r.Validate())
	require.True(t, ok)
	require.Len(t, f.Violations, 7)
}

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, valid := range map[string]bool{
		"ap.invoice": true, "ap.invoice.received": true, "a1_b.c_2": true,
		"ap": false, "": false, "ap.": false, ".ap.x": false, "ap..x": false, "ap.invoice.line.added": false,
		"Ap.invoice": false, "ap.Invoice": false, "1ap.x": false, "ap.1x": false, "_a.b": false, "ap.in-voice": false, "äp.x": false, "ap.x\n": false, " ap.x": false,
		"a." + strings.Repeat("x", 198): true, "a." + strings.Repeat("x", 199): false,
	} {
		require.Equal(t, valid, eventtype.ValidName(name), "%q", name)
	}
	require.Equal(t, "ap", eventtype.Prefix("ap.invoice.received"))
	require.Equal(t, "ap", eventtype.Prefix("ap"))
	require.Equal(t, "event_type.not_found", eventtype.NotRegistered("a.b").Code)
}

func TestNormalise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ how, value, want string }{
		{"", " Inv 1.a ", " Inv 1.a "},
		{"document_number", "inv-2025/001", "INV-2025/001"},
		{"document_number", " INV 2025 001\t", "INV2025001"},
		{"document_number", "INV\u00a02025\u2003001", "INV2025001"}, // other blanks
		{"document_number", "ＩＮＶ－２０２５", "INV-2025"},                 // full width
		{"document_number", "№1", "NO1"},                            // compatibility form
		{"document_number", "①", "1"},
		{"document_number", "é", "É"},
		{"document_number", "e\u0301", "É"}, // composed
		{"document_number", "A.1", "A.1"},   // dots stay
		{"document_number", "A-1", "A-1"},   // dashes stay
		{"document_number", "0012", "0012"}, // leading zeros tell numbers apart
		{"tax_id", "nl8200.98.395.b.01", "NL820098395B01"},
		{"tax_id", "DE 123 456 789", "DE123456789"},
		{"tax_id", "ＤＥ１２３", "DE123"},
		{"tax_id", "12-3456789", "12-3456789"},
	} {
		got := eventtype.Normalise(c.how, c.value)
		require.Equal(t, c.want, got, "%s of %q", c.how, c.value)
		require.Equal(t, got, eventtype.Normalise(c.how, got), "normalising again changes nothing: %q", c.value)
	}
}

func fields(t *testing.T, doc string) map[string]json.RawMessage {
	t.Helper()
	var m map[string]json.RawMessage
	require.NoError(t, json.Unmarshal([]byte(doc), &m))
	return m
}

func TestBusinessKeyValues(t *testing.T) {
	t.Parallel()
	rule := eventtype.BusinessKeyRule{Name: "number", Fields: []string{"vendor", "number"}, Normalise: "document_number", Document: "id"}
	for name, c := range map[string]struct {
		doc      string
		claims   bool
		values   []string
		document string
	}{
		"both":             {`{"vendor":"v-1","number":"in 7","id":"I-7"}`, true, []string{"v-1", "in 7"}, "I-7"},
		"number":           {`{"vendor":"v","number": 1.50 }`, true, []string{"v", "1.50"}, ""},
		"negative":         {`{"vendor":"v","number":-3}`, true, []string{"v", "-3"}, ""},
		"escaped":          {`{"vendor":"v","number":"\u0041"}`, true, []string{"v", "A"}, ""},
		"one absent":       {`{"vendor":"v"}`, false, nil, ""},
		"one empty":        {`{"vendor":"v","number":""}`, false, nil, ""},
		"null":             {`{"vendor":"v","number":null}`, false, nil, ""},
		"boolean":          {`{"vendor":"v","number":true}`, false, nil, ""},
		"object":           {`{"vendor":"v","number":{"x":1}}`, false, nil, ""},
		"array":            {`{"vendor":"v","number":["x"]}`, false, nil, ""},
		"document missing": {`{"vendor":"v","number":"1","id":null}`, true, []string{"v", "1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			values, document, ok := rule.Values(fields(t, c.doc))
			require.Equal(t, c.claims, ok)
			require.Equal(t, c.values, values)
			require.Equal(t, c.document, document)
		})
	}
}

func TestClaimEscaping(t *testing.T) {
	t.Parallel()
	rule := eventtype.BusinessKeyRule{Name: "number", Fields: []string{"a", "b"}, Normalise: "document_number"}
	claim := rule.Claim("ap.invoice.received", []string{"v-1", "in 7"}, "I-7")
	require.Equal(t, "ap.invoice.received", claim.EventType)
	require.Equal(t, "number\x1fV-1\x1fIN7", claim.Key)
	require.Equal(t, "I-7", claim.Document)

	require.NotEqual(t, rule.Claim("x.y", []string{"ab", "c"}, "").Key, rule.Claim("x.y", []string{"a", "bc"}, "").Key)
	require.NotEqual(t, rule.Claim("x.y", []string{"a\x1fb", "c"}, "").Key, rule.Claim("x.y", []string{"a", "b\x1fc"}, "").Key,
		"a separator inside a value")
	require.NotEqual(t, rule.Claim("x.y", []string{"a\x1e", "c"}, "").Key, rule.Claim("x.y", []string{"a\x1e\x1fc"}, "").Key, "an escape at the end of a value")
	other := eventtype.BusinessKeyRule{Name: "other", Fields: []string{"a", "b"}, Normalise: "document_number"}
	require.NotEqual(t, rule.Claim("x.y", []string{"a", "b"}, "").Key, other.Claim("x.y", []string{"a", "b"}, "").Key)
}

func TestValues_EmptyAfterNormalisation(t *testing.T) {
	t.Parallel()
	rule := eventtype.BusinessKeyRule{Name: "number", Fields: []string{"number"}, Normalise: "tax_id"}
	for _, doc := range []string{`{"number":" "}`, `{"number":"\t\u00a0"}`, `{"number":"..."}`} {
		_, _, ok := rule.Values(fields(t, doc))
		require.False(t, ok, doc)
	}
}
