package jsonschema

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// invoiceSchema has the shape of a supplier invoice.
const invoiceSchema = `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object",
"required":["invoice_number","vendor_id","invoice_date","due_date","currency","total_amount","lines"],"additionalProperties":false,
"properties":{
 "invoice_number":{"type":"string","minLength":1,"maxLength":50},"vendor_id":{"type":"string","pattern":"^[A-Za-z0-9._:-]{1,64}$"},
 "invoice_date":{"type":"string","format":"date"},"due_date":{"type":"string","format":"date"},"currency":{"type":"string","pattern":"^[A-Z]{3}$"},
 "document_type":{"enum":["standard","prepayment","opening"]},
 "total_amount":{"type":"number","minimum":0},"tax_amount":{"type":"number","minimum":0},"description":{"type":"string","maxLength":500},
 "source_document":{"type":"object","properties":{"syntax":{"type":"string"},"sha256":{"type":"string","pattern":"^[0-9a-f]{64}$"}}},
 "tax_lines":{"type":"array","items":{"type":"object","required":["category","taxable_amount","tax_amount"],"properties":{
   "category":{"type":"string","maxLength":3},"rate":{"$ref":"#/definitions/amount"},"taxable_amount":{"$ref":"#/definitions/amount"},"tax_amount":{"$ref":"#/definitions/amount"}}}},
 "lines":{"type":"array","minItems":1,"maxItems":10000,"items":{"type":"object","required":["line_number","amount"],"additionalProperties":false,"properties":{
   "line_number":{"type":"integer","minimum":1},"description":{"type":"string"},"quantity":{"type":"number"},"unit_price":{"type":"number"},
   "amount":{"$ref":"#/definitions/amount"},"account":{"type":"string"},"tax_group":{"type":"string"},"kind":{"enum":["item","allowance","charge"]},
   "dimensions":{"type":"object","maxProperties":20,"additionalProperties":{"type":"string"}}}}}},
"definitions":{"amount":{"type":"number","exclusiveMinimum":-1000000000,"maximum":1000000000}}}`

const invoiceDocument = `{"invoice_number":"INV-2026-00417","vendor_id":"V-1042","invoice_date":"2026-03-31","due_date":"2026-04-30","currency":"EUR",
"document_type":"standard","total_amount":14875.00,"tax_amount":2375.00,"description":"Wartung und Ersatzteile, Werk S\u00fcd, M\u00e4rz 2026",
"source_document":{"syntax":"ubl-2.1","sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"},
"tax_lines":[{"category":"S","rate":19,"taxable_amount":12500.00,"tax_amount":2375.00}],
"lines":[
{"line_number":1,"description":"Maintenance contract, first quarter","quantity":3,"unit_price":2500.00,"amount":7500.00,"account":"6000","tax_group":"VAT19","kind":"item","dimensions":{"department":"OPS","cost_center":"CC-1400"}},
{"line_number":2,"description":"Spare parts set B","quantity":12.5,"unit_price":320.00,"amount":4000.00,"account":"5100","tax_group":"VAT19","kind":"item","dimensions":{"department":"PROD","cost_center":"CC-2100"}},
{"line_number":3,"description":"Freight","quantity":1,"unit_price":1000.00,"amount":1000.00,"account":"6000","tax_group":"VAT19","kind":"charge","dimensions":{"department":"OPS","cost_center":"CC-1400"}}]}`

func TestAcceptorDoesNotAllocate(t *testing.T) {
	s := mustCompile(t, invoiceSchema)
	require.NotNil(t, s.acceptor)
	require.True(t, s.acceptor.accepts([]byte(invoiceDocument)))
	found, err := s.validateWithLibrary(json.RawMessage(invoiceDocument))
	require.NoError(t, err)
	require.Empty(t, found)
	// Only the text with escapes is decoded.
	document := []byte(strings.ReplaceAll(invoiceDocument, `\u00`, ""))
	require.True(t, s.acceptor.accepts(document))
	require.Zero(t, testing.AllocsPerRun(100, func() { _ = s.acceptor.accepts(document) }))
}

func BenchmarkValidateInvoice(b *testing.B) {
	s := mustCompile(b, invoiceSchema)
	for name, validate := range map[string]func([]byte) bool{
		"gojsonschema": func(d []byte) bool { f, err := s.validateWithLibrary(d); return err == nil && len(f) == 0 },
		"acceptor":     func(d []byte) bool { f, err := s.Validate(d); return err == nil && len(f) == 0 },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(invoiceDocument)))
			b.ReportAllocs()
			for b.Loop() {
				if !validate([]byte(invoiceDocument)) {
					b.Fatal("refused")
				}
			}
		})
	}
}

func TestCompileAcceptor(t *testing.T) {
	t.Parallel()
	for source, fast := range map[string]bool{
		`{}`: true, `{"title":"x","x-not-pii":"y","$comment":"z"}`: true, `{"properties":{"a":{"$ref":"#/definitions/b"}},"definitions":{"b":{"oneOf":[{}]}}}`: false,
		`{"definitions":{"b":{"oneOf":[{}]}}}`: true, `{"format":"email"}`: false, `{"enum":[1]}`: false, `{"enum":["a",null,true]}`: true, `{"const":{}}`: false,
		`{"uniqueItems":true}`: false, `{"multipleOf":2}`: false, `{"items":[{}]}`: false, `{"minimum":1e3}`: false, `{"minimum":-1.50}`: true,
		`{"minProperties":1}`: true, `{"minProperties":2}`: false, `{"maxProperties":2}`: true, `{"patternProperties":{}}`: false, `{"enum":["a"],"const":"a"}`: false, `{"not":{}}`: false,
	} {
		require.Equal(t, fast, mustCompile(t, source).acceptor != nil, source)
	}
}

// The evaluator may only accept what gojsonschema accepts.
func TestAcceptorAgreesWithLibrary(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		draft := rapid.SampledFrom([]string{"", "04", "06", "07"}).Draw(t, "draft")
		source := drawSchema(t, draft, 3)
		if draft != "" {
			source["$schema"] = "http://json-schema.org/draft-" + draft + "/schema#"
		}
		text, err := json.Marshal(source)
		require.NoError(t, err)
		compiled, err := New().Compile(text)
		if err != nil {
			t.Skip("schema refused")
		}
		s := compiled.(*compiledSchema)
		if s.acceptor == nil {
			t.Fatalf("no acceptor for %s", text)
		}
		for range 8 {
			document := drawDocument(t, source, 4)
			found, err := s.validateWithLibrary([]byte(document))
			accepted := s.acceptor.accepts([]byte(document))
			if accepted && (err != nil || len(found) > 0) {
				t.Fatalf("accepted %s\nagainst %s\nbut the library finds %v %v", document, text, found, err)
			}
		}
	})
}

var (
	names    = []string{"a", "b", "ä", "a/b", ""}
	texts    = []string{"", "a", "ab", "ABC", "äöü", "ä", "2026-03-31", "2026-02-30", "2026-03-31T10:00:00Z", "a\"b\\c\n", "\u2028<&>", "1"}
	numerals = []string{"0", "-0", "1", "1.0", "1.50", "-1.5", "2", "0.1", "10", "12500.00", "9007199254740993", "-0.0", "1e2", "1E-2", "123456789012345678", "0.000000000000000001"}
)

func drawSchema(t *rapid.T, draft string, depth int) map[string]any {
	s := map[string]any{}
	maybe := func(k string, f func() any) {
		if rapid.IntRange(0, 3).Draw(t, k+"?") == 0 {
			s[k] = f()
		}
	}
	number := func() any {
		return json.Number(rapid.SampledFrom([]string{"0", "1", "1.5", "-1", "10", "12500", "0.1"}).Draw(t, "limit"))
	}
	maybe("type", func() any {
		all := []string{"null", "boolean", "integer", "number", "string", "array", "object"}
		return rapid.SliceOfNDistinct(rapid.SampledFrom(all), 1, 3, rapid.ID[string]).Draw(t, "types")
	})
	maybe("minLength", func() any { return rapid.IntRange(0, 2).Draw(t, "minLength") })
	maybe("maxLength", func() any { return rapid.IntRange(2, 4).Draw(t, "maxLength") })
	maybe("pattern", func() any {
		return rapid.SampledFrom([]string{"^a", "[0-9]$", "^[A-Z]{3}$", "ö", "^\\S*$"}).Draw(t, "pattern")
	})
	maybe("format", func() any { return rapid.SampledFrom([]string{"date", "date-time"}).Draw(t, "format") })
	maybe("minItems", func() any { return rapid.IntRange(0, 2).Draw(t, "minItems") })
	maybe("maxItems", func() any { return rapid.IntRange(0, 3).Draw(t, "maxItems") })
	maybe("minProperties", func() any { return rapid.IntRange(0, 1).Draw(t, "minProperties") })
	maybe("maxProperties", func() any { return rapid.IntRange(1, 2).Draw(t, "maxProperties") })
	maybe("minimum", number)
	maybe("maximum", number)
	for _, bound := range []string{"Minimum", "Maximum"} {
		maybe("exclusive"+bound, func() any {
			if draft == "04" || (draft == "" && rapid.Bool().Draw(t, "old")) {
				s[map[string]string{"Minimum": "minimum", "Maximum": "maximum"}[bound]] = number()
				return rapid.Bool().Draw(t, "exclusive")
			}
			return number()
		})
	}
	choices := append([]any{nil, true, false}, anys(texts)...)
	maybe("enum", func() any {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(choices), 1, 6, func(v any) string { return fmt.Sprintf("%T%v", v, v) }).Draw(t, "enum")
	})
	if s["enum"] == nil {
		maybe("const", func() any { return rapid.SampledFrom(choices).Draw(t, "const") })
	}
	maybe("required", func() any {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 2, rapid.ID[string]).Draw(t, "required")
	})
	if depth == 0 {
		return s
	}
	sub := func() any {
		if draft != "04" && rapid.IntRange(0, 9).Draw(t, "boolean") == 0 {
			return rapid.Bool().Draw(t, "pass")
		}
		return drawSchema(t, draft, depth-1)
	}
	maybe("items", sub)
	maybe("additionalProperties", func() any {
		if rapid.Bool().Draw(t, "closed") {
			return rapid.Bool().Draw(t, "open")
		}
		return drawSchema(t, draft, depth-1)
	})
	if rapid.Bool().Draw(t, "properties?") {
		m := map[string]any{}
		for _, n := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, 3, rapid.ID[string]).Draw(t, "properties") {
			m[n] = sub()
		}
		s["properties"] = m
	}
	return s
}

func anys(in []string) (out []any) {
	for _, s := range in {
		out = append(out, s)
	}
	return out
}

// drawDocument draws a document, which satisfies the schema in most cases.
func drawDocument(t *rapid.T, s any, depth int) string {
	m, _ := s.(map[string]any)
	kinds := []string{"null", "boolean", "integer", "number", "string", "array", "object"}
	if allowed, ok := m["type"].([]string); ok && rapid.IntRange(0, 9).Draw(t, "keep type") > 0 {
		kinds = allowed
	}
	kind := rapid.SampledFrom(kinds).Draw(t, "kind")
	if depth == 0 && (kind == "array" || kind == "object") {
		kind = "null"
	}
	if list, ok := m["enum"].([]any); ok && rapid.IntRange(0, 3).Draw(t, "keep enum") > 0 {
		text, _ := json.Marshal(rapid.SampledFrom(list).Draw(t, "choice"))
		return string(text)
	}
	if c, ok := m["const"]; ok && rapid.Bool().Draw(t, "keep const") {
		text, _ := json.Marshal(c)
		return string(text)
	}
	gap := rapid.SampledFrom([]string{"", "", " ", "\n\t"}).Draw(t, "gap")
	switch kind {
	case "boolean":
		return rapid.SampledFrom([]string{"true", "false"}).Draw(t, "bool")
	case "integer", "number":
		return rapid.SampledFrom(numerals).Draw(t, "number")
	case "string":
		text, _ := json.Marshal(rapid.SampledFrom(texts).Draw(t, "text"))
		return string(text)
	case "array":
		out := "[" + gap
		for i := range rapid.IntRange(0, 3).Draw(t, "length") {
			if i > 0 {
				out += "," + gap
			}
			out += drawDocument(t, m["items"], depth-1)
		}
		return out + gap + "]"
	case "object":
		out := "{" + gap
		inner, _ := m["properties"].(map[string]any)
		// Names may repeat: the last one counts for the library.
		for i, n := range rapid.SliceOfN(rapid.SampledFrom(names), 0, 4).Draw(t, "members") {
			if i > 0 {
				out += gap + ","
			}
			key, _ := json.Marshal(n)
			value, ok := inner[n]
			if !ok {
				value = m["additionalProperties"]
			}
			out += string(key) + gap + ":" + drawDocument(t, value, depth-1)
		}
		return out + gap + "}"
	default:
		return "null"
	}
}

// FuzzAcceptor feeds raw bytes: what the evaluator accepts must be JSON and valid.
func FuzzAcceptor(f *testing.F) {
	schemas := []*compiledSchema{
		mustCompile(f, invoiceSchema),
		mustCompile(f, `{}`),
		mustCompile(f, `{"type":["object","array","string","number"],"required":["a"],"properties":{"a":{"$ref":"#"},"b":{"enum":["x","ä",null]}},"items":{"$ref":"#"},"minimum":-1.5,"exclusiveMaximum":12.25,"minLength":1,"maxLength":3,"minProperties":1,"maxProperties":3}`),
	}
	for _, seed := range []string{invoiceDocument, `{"a":{"a":1}}`, `[1.50,"äöü",{"a":"\u00e4"}]`, `"\ud800"`, "\"\xff\"", `1e5`, `-0`, `01`, `1.`, `.5`, `-`, `tru`, `{"a":1,}`, `[1,]`, `{"a":1} `, `{"a":1}x`, "\ufeff1", `"\x"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		for _, s := range schemas {
			if !s.acceptor.accepts(document) {
				continue
			}
			if !json.Valid(document) {
				t.Fatalf("accepted what is not JSON: %q", document)
			}
			if found, err := s.validateWithLibrary(document); err != nil || len(found) > 0 {
				t.Fatalf("accepted %q, the library finds %v %v", document, found, err)
			}
		}
	})
}
