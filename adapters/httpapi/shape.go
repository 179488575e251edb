package httpapi

import (
	"cmp"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/erpbackbone/backbone/domain/jsondoc"
)

// documentedSchema is the part of a schema in the OpenAPI document that bounds lists and objects
// of a request body.
type documentedSchema struct {
	Ref           string                      `yaml:"$ref"`
	MaxItems      int                         `yaml:"maxItems"`
	MaxProperties int                         `yaml:"maxProperties"`
	Limit         string                      `yaml:"x-limit"` // the setting that is the maximum, instead of maxItems
	Code          string                      `yaml:"x-code"`  // of the refusal, if it is not the scanner's
	Items         *documentedSchema           `yaml:"items"`
	Properties    map[string]documentedSchema `yaml:"properties"`
	Additional    additionalProperties        `yaml:"additionalProperties"`
}

// additionalProperties is the schema of members that Properties does not name; nil for any or none.
type additionalProperties struct{ schema *documentedSchema }

// UnmarshalYAML implements yaml.Unmarshaler.
func (a *additionalProperties) UnmarshalYAML(value *yaml.Node) error {
	if value.Kind == yaml.ScalarNode {
		return nil // true or false
	}
	return value.Decode(&a.schema)
}

// shapes derives from the schemas of the document what the scanner refuses. Request bodies have no
// lists below oneOf or allOf; a test holds this.
type shapes struct {
	schemas map[string]documentedSchema
	limits  Limits
	named   map[string]*jsondoc.Shape // by name of the schema
}

// of returns the shape of a schema.
func (b *shapes) of(schema documentedSchema) (*jsondoc.Shape, error) {
	if name, found := strings.CutPrefix(schema.Ref, "#/components/schemas/"); found {
		if known, found := b.named[name]; found {
			return known, nil
		}
		shape, err := b.of(b.schemas[name])
		b.named[name] = shape
		return shape, err
	}
	shape := &jsondoc.Shape{Max: max(schema.MaxItems, schema.MaxProperties), Code: schema.Code}
	if schema.Limit != "" {
		if shape.Max = b.limits.setting(schema.Limit); shape.Max == 0 {
			return nil, fmt.Errorf("x-limit %s of the OpenAPI document is no setting", schema.Limit)
		}
	}
	if each := cmp.Or(schema.Items, schema.Additional.schema); each != nil {
		item, err := b.of(*each)
		if err != nil {
			return nil, err
		}
		if item.Bounds() {
			shape.Item = item
		}
	}
	for name, property := range schema.Properties {
		member, err := b.of(property)
		if err != nil {
			return nil, err
		}
		if member.Bounds() {
			shape.SetMember(name, member)
		}
	}
	return shape, nil
}

// setting returns the limit of a setting that the OpenAPI document names; 0 if there is none.
func (l Limits) setting(name string) int {
	switch name {
	case "limits.batch_events":
		return l.BatchEvents
	case "limits.entity_refs":
		return l.EntityRefs
	case "limits.tags":
		return l.Tags
	default:
		return 0
	}
}
