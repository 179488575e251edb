package module_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/jsonschema"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
)

type redactableModule struct{ paths []string }

func (redactableModule) Name() string { return "till" }

func (m redactableModule) Register(r *module.Registrar) error {
	r.Prefixes("till")
	r.EventType(module.EventType{
		Registration: eventtype.Registration{
			Type: "till.cash.moved", SchemaVersion: 1, Module: "till", Description: "Cash moved.",
			DataSchema: json.RawMessage(`{"type":"object","additionalProperties":false,"required":["number","amount","remark","person"],"properties":{
				"number":{"type":"string"},"amount":{"type":"number"},"currency":{"type":"string","pattern":"^[A-Z]{3}$"},"remark":{"type":"string"},
				"person":{"type":"string"},"code":{"type":"string"},"code_note":{"type":"string","x-not-pii":"a note about the cash"},
				"lines":{"type":"array","items":{"type":"object","additionalProperties":false,"properties":{"text":{"type":"string"}}}}}}`),
			RetentionClass: eventtype.Regulatory, PIIFields: []eventtype.PIIField{{Path: "$.code", Class: "identity", Subject: json.RawMessage(`{"path":"$.person","type":"person"}`)}},
			BusinessKeys: []eventtype.BusinessKeyRule{{Name: "number", Fields: []string{"number"}}},
		},
		Redactable: m.paths,
	})
	return nil
}

func TestBuild_redactable_members(t *testing.T) {
	t.Parallel()
	catalog, err := module.Build(jsonschema.New(), redactableModule{[]string{"$.remark", "$.lines[*].text", "$.code_note"}})
	require.NoError(t, err)
	paths, owned := catalog.RedactableMembers("till.cash.moved", 1)
	require.True(t, owned)
	require.Len(t, paths, 3)
	for pointer, want := range map[string]bool{
		"/remark": true, "/lines/0/text": true, "/lines/12/text": true,
		"/lines": false, "/lines/0": false, "/lines/0/text/x": false, "/amount": false, "": false, "remark": false,
	} {
		require.Equal(t, want, module.CoversPointer(paths, pointer), pointer)
	}
	paths, owned = catalog.RedactableMembers("till.cash.moved", 2)
	require.True(t, owned, "the module owns the prefix")
	require.Empty(t, paths)
	_, owned = catalog.RedactableMembers("hr.person.hired", 1)
	require.False(t, owned)

	for path, reason := range map[string]string{
		"$.amount": "is not a text", "$.currency": "takes certain texts only", "$.number": "is part of a business key", "$.code": "is sealed",
		"$.missing": "is not in the schema", "$.lines[*]": "is not a text", "remark": "is not a path",
	} {
		_, err := module.Build(jsonschema.New(), redactableModule{[]string{path}})
		require.ErrorContains(t, err, reason, path)
	}
}
