package httpapi

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/application/module"
)

// coreDocument describes the routes that every server has. Read models and intents
// are added from what the running modules declare.
//
//go:embed openapi/openapi.yaml
var coreDocument []byte

// object is a YAML mapping under construction.
type object map[string]any

func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// Document assembles the OpenAPI document that a server with these modules serves:
// the core document with a path for every read model and file and a named schema for the
// payload of every intent. The extension x-intents of POST /api/intents lists the
// intents with the events they emit and the personal fields of their payloads.
func Document(catalog Catalog) ([]byte, error) {
	models, err := declaredReadModels(catalog)
	if err != nil {
		return nil, err
	}
	files, err := declaredFiles(catalog)
	if err != nil {
		return nil, err
	}
	return assembleDocument(models, files, catalog.IntentTypes())
}

func assembleDocument(models []readModel, files []servedFile, intents []module.IntentType) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(coreDocument, &root); err != nil {
		return nil, fmt.Errorf("embedded OpenAPI document: %w", err)
	}
	paths, schemas := childNode(root.Content[0], "paths"), childNode(childNode(root.Content[0], "components"), "schemas")
	for _, m := range models {
		if err := addMember(paths, "/api/"+m.path, object{"get": describeReadModel(m)}); err != nil {
			return nil, err
		}
		row, report := reportSchemas(m)
		if err := errors.Join(addMember(schemas, m.name()+"Row", row), addMember(schemas, m.name()+"Report", report)); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := addMember(paths, "/api/"+f.path, object{"get": describeFile(f)}); err != nil {
			return nil, err
		}
	}
	listed := make([]object, len(intents))
	for i, t := range intents {
		var schema any
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return nil, fmt.Errorf("schema of intent %s: %w", t.Type, err)
		}
		listed[i] = object{"type": t.Type, "description": t.Description, "emits": nonNil(t.Emits), "payload_schema": schema}
		if len(t.PIIFields) > 0 {
			fields := make([]object, len(t.PIIFields))
			for j, f := range t.PIIFields {
				fields[j] = object{"path": f.Path, "class": f.Class}
			}
			listed[i]["pii_fields"] = fields
		}
		if err := addMember(schemas, payloadName(t.Type), openAPISchema(schema)); err != nil {
			return nil, err
		}
	}
	if err := addMember(childNode(childNode(paths, "/api/intents"), "post"), "x-intents", listed); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(&root); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	return b.Bytes(), e.Close()
}

// childNode finds a member of a mapping of the core document.
func childNode(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return &yaml.Node{Kind: yaml.MappingNode}
}

func addMember(mapping *yaml.Node, name string, v any) error {
	var value yaml.Node
	if err := value.Encode(v); err != nil {
		return fmt.Errorf("describe %s: %w", name, err)
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &value)
	return nil
}

// payloadName names the schema of an intent's payload: ApSubmitInvoicePayload for
// ap.submit_invoice.
func payloadName(intentType string) string { return pascalCase(intentType) + "Payload" }

// openAPISchema writes JSON Schema's ["string", "null"] as OpenAPI 3.0 does, which has one
// type for each schema.
func openAPISchema(schema any) any {
	switch s := schema.(type) {
	case map[string]any:
		out := make(map[string]any, len(s)+1)
		for name, value := range s {
			types, several := value.([]any)
			if name == "type" && several && len(types) == 2 && types[1] == "null" {
				out["type"], out["nullable"] = types[0], true
				continue
			}
			out[name] = openAPISchema(value)
		}
		return out
	case []any:
		out := make([]any, len(s))
		for i := range s {
			out[i] = openAPISchema(s[i])
		}
		return out
	default:
		return schema
	}
}

// pascalCase joins the words of a name or path, each with a capital letter.
func pascalCase(text string) string {
	var b strings.Builder
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		b.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return b.String()
}

// describeReadModel makes the operation of a read model.
func describeReadModel(m readModel) object {
	parameters := []object{}
	for _, p := range m.Params {
		in := "query"
		if p.InPath {
			in = "path"
		}
		parameters = append(parameters, object{
			"name": p.Name, "in": in, "required": p.Required || p.InPath, "description": p.Description, "schema": valueSchema(string(p.Type)),
		})
	}
	for _, name := range []string{"InLegalEntity", "AsOf", "KnownAt", "MinSequence", "Format", "Limit", "Cursor"} {
		parameters = append(parameters, ref("parameters", name))
	}
	return object{
		"tags": []string{"read_models"}, "operationId": "read" + m.name(), "x-action": actionReadModels,
		"summary": m.Description, "parameters": parameters,
		"responses": object{
			"200": object{
				"description": "The report.",
				"content": object{
					"application/json": object{"schema": ref("schemas", m.name()+"Report")},
					"text/csv":         object{"schema": object{"type": "string"}},
				},
			},
			"default": ref("responses", "ProblemAnswer"),
		},
	}
}

// describeFile makes the operation of a file. x-file tells the client's generator that the answer is
// no JSON.
func describeFile(f servedFile) object {
	parameters := []object{}
	for _, p := range f.Params {
		parameters = append(parameters, object{
			"name": p.Name, "in": "path", "required": true, "description": p.Description, "schema": object{"type": "string", "maxLength": 128},
		})
	}
	header := func(description string) object {
		return object{"description": description, "schema": object{"type": "string"}}
	}
	return object{
		"tags": []string{"files"}, "operationId": "download" + pascalCase(f.path), "x-action": actionFiles, "x-file": true,
		"summary": f.Description, "parameters": append(parameters, ref("parameters", "InLegalEntity")),
		"responses": object{
			"200": object{
				"description": "The file. It is never cached.",
				"headers": object{
					"Content-Disposition": header("Proposes a name for the file."),
					"ETag":                header("SHA-256 of the file in hexadecimal, in quotes."),
				},
				"content": object{f.MediaType: object{"schema": object{"type": "string", "format": "binary"}}},
			},
			"default": ref("responses", "ProblemAnswer"),
		},
	}
}

// name is the read model's in operation ids and schemas: ApOpenItems for ap/open-items.
func (m readModel) name() string { return pascalCase(m.path) }

// reportSchemas describe a read model's answer and one of its rows.
func reportSchemas(m readModel) (row, report object) {
	columns := object{}
	for _, c := range m.Columns {
		schema := valueSchema(c.Type)
		schema["description"] = c.Description
		columns[c.Name] = schema
	}
	rows := cmp.Or(m.RowsName, "rows")
	properties := object{
		rows:          object{"type": "array", "items": ref("schemas", m.name()+"Row")},
		"has_more":    object{"type": "boolean"},
		"next_cursor": ref("schemas", "NextCursor"),
	}
	required := []string{rows}
	if !m.Flat {
		properties["header"] = object{"type": "object", "description": "Parameters as resolved, and totals.", "additionalProperties": true, "x-go-type": "json.RawMessage"}
		properties["footer"] = object{"type": "object", "additionalProperties": true, "x-go-type": "json.RawMessage"}
		required = append(required, "header", "has_more")
	}
	return object{"type": "object", "properties": columns}, object{"type": "object", "required": required, "properties": properties}
}

// valueSchema is the schema of a column or parameter of a read model. Amounts are text, so
// that no reader converts them to binary fractions.
func valueSchema(t string) object {
	switch t {
	case "date":
		return object{"type": "string", "format": "date"}
	case "time":
		return object{"type": "string", "format": "date-time"}
	case "amount":
		return object{"type": "string", "pattern": `^-?[0-9]+(\.[0-9]+)?$`}
	case "integer":
		return object{"type": "integer", "format": "int64"}
	case "bool":
		return object{"type": "boolean"}
	case "object": // any JSON: the module decides whether it is an object or a list
		return object{"x-go-type": "json.RawMessage"}
	default:
		return object{"type": "string"}
	}
}
