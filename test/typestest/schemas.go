package typestest

import (
	"encoding/json"
	"sync"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/ports"
)

// Schemas compiles JSON Schemas, each text once in a process: a test that makes many registries
// would spend most of its time on it.
type Schemas struct{}

var compiled sync.Map // of schemaResult by text

type schemaResult struct {
	schema ports.Schema
	err    error
}

// Compile implements ports.SchemaCompiler.
func (Schemas) Compile(text json.RawMessage) (ports.Schema, error) {
	if known, ok := compiled.Load(string(text)); ok {
		return known.(schemaResult).schema, known.(schemaResult).err
	}
	schema, err := jsonschema.New().Compile(text)
	compiled.Store(string(text), schemaResult{schema, err})
	return schema, err
}
