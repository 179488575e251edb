package httpapi

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/application/module"
)

// committedDocument is the contract that the generated code is made from. It
// lacks only what the running modules declare.
//
//go:embed openapi.yaml
var committedDocument []byte

// object is a YAML mapping under construction.
type object map[string]any

func ref(kind, name string) object { return object{"$ref": "#/components/" + kind + "/" + name} }

// document is the committed one with the declared read models as paths and the
// declared intents as the extension x-intents of POST /api/intents.
func document(models []readModel, intents []module.IntentType) ([]byte, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(committedDocument, &root); err != nil {
		return nil, fmt.Errorf("embedded OpenAPI document: %w", err)
	}
	paths := child(root.Content[0], "paths")
	for _, m := range models {
		if err := add(paths, "/api/"+m.path, object{"get": describe(m)}); err != nil {
			return nil, err
		}
	}
	listed := make([]object, len(intents))
	for i, t := range intents {
		var schema any
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			return nil, fmt.Errorf("schema of intent %s: %w", t.Type, err)
		}
		listed[i] = object{"type": t.Type, "description": t.Description, "emits": list(t.Emits), "payload_schema": schema}
		if len(t.PIIFields) > 0 {
			fields := make([]object, len(t.PIIFields))
			for j, f := range t.PIIFields {
				fields[j] = object{"path": f.Path, "class": f.Class}
			}
			listed[i]["pii_fields"] = fields
		}
	}
	if err := add(child(child(paths, "/api/intents"), "post"), "x-intents", listed); err != nil {
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

// child finds a member of a mapping of the committed document.
func child(mapping *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i+1]
		}
	}
	return &yaml.Node{Kind: yaml.MappingNode}
}

func add(mapping *yaml.Node, name string, v any) error {
	var value yaml.Node
	if err := value.Encode(v); err != nil {
		return fmt.Errorf("describe %s: %w", name, err)
	}
	mapping.Content = append(mapping.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: name}, &value)
	return nil
}

// describe makes the operation of a read model.
func describe(m readModel) object {
	parameters := []object{}
	for _, p := range m.Params {
		in := "query"
		if p.InPath {
			in = "path"
		}
		parameters = append(parameters, object{
			"name": p.Name, "in": in, "required": p.Required || p.InPath, "description": p.Description, "schema": parameterSchema(p.Type),
		})
	}
	for _, name := range []string{"LegalEntity", "AsOf", "KnownAt", "MinSequence", "Limit", "Cursor"} {
		parameters = append(parameters, ref("parameters", name))
	}
	return object{
		"tags": []string{"read_models"}, "operationId": "read_" + strings.NewReplacer("/", "_", "-", "_", "{", "", "}", "").Replace(m.path),
		"summary": m.Description, "parameters": parameters,
		"responses": object{
			"200": object{
				"description": "The report.",
				"content":     object{"application/json": object{"schema": reportSchema(m)}},
			},
			"default": ref("responses", "Problem"),
		},
	}
}

func parameterSchema(t module.ParamType) object {
	switch t {
	case module.ParamDate:
		return object{"type": "string", "format": "date"}
	case module.ParamBool:
		return object{"type": "boolean"}
	case module.ParamInteger:
		return object{"type": "integer", "format": "int64"}
	default:
		return object{"type": "string"}
	}
}

func reportSchema(m readModel) object {
	columns := object{}
	for _, c := range m.Columns {
		schema := columnSchema(c.Type)
		schema["description"] = c.Description
		columns[c.Name] = schema
	}
	rows := m.RowsName
	if rows == "" {
		rows = "rows"
	}
	properties := object{
		rows:       object{"type": "array", "items": object{"type": "object", "properties": columns}},
		"has_more": object{"type": "boolean"}, "next_cursor": object{"type": "string"},
	}
	required := []string{rows}
	if !m.Flat {
		properties["header"] = object{"type": "object", "description": "Parameters as resolved, and totals.", "additionalProperties": true}
		properties["footer"] = object{"type": "object", "additionalProperties": true}
		required = append(required, "header", "has_more")
	}
	return object{"type": "object", "required": required, "properties": properties}
}

// columnSchema says how a column is written. Amounts are text, so that no reader
// turns them into binary fractions.
func columnSchema(t string) object {
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
	case "object":
		return object{"type": "object", "additionalProperties": true}
	default:
		return object{"type": "string"}
	}
}
