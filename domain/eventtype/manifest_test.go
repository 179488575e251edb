package eventtype_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

func hired() eventtype.Registration {
	return eventtype.Registration{
		Type: "hr.employee.hired", SchemaVersion: 1, Module: "hr",
		DataSchema:         json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"email":{"type":"string"},"grade":{"type":"integer"}}}`),
		RequiredEntityRefs: []eventtype.RequiredRef{{EntityType: "employee", Role: "subject", Cardinality: eventtype.One}},
		PIIFields:          []eventtype.PIIField{{Path: "$.email", Class: "contact", Subject: json.RawMessage(`{"entity_role":"subject"}`)}},
	}
}

func TestCheckPersonal(t *testing.T) {
	t.Parallel()
	sound := hired()
	require.Empty(t, sound.CheckPersonal())
	require.NoError(t, sound.Validate())
	m, found := eventtype.Manifest(sound.PIIFields)
	require.Empty(t, found)
	class, known := m.ClassAt("/data/email", "/data")
	require.True(t, known)
	require.Equal(t, shredding.Contact, class)
	m, found = eventtype.Manifest(nil)
	require.Nil(t, m)
	require.Empty(t, found)

	for name, c := range map[string]struct {
		change      func(*eventtype.Registration)
		field, code string
	}{
		"path":       {func(r *eventtype.Registration) { r.PIIFields[0].Path = "/email" }, "/pii_fields/0/path", "pii.path_invalid"},
		"schema":     {func(r *eventtype.Registration) { r.PIIFields[0].Path = "$.iban" }, "/pii_fields/0/path", "pii.path_not_in_schema"},
		"many":       {func(r *eventtype.Registration) { r.RequiredEntityRefs[0].Cardinality = eventtype.OneOrMore }, "/pii_fields/0/subject/entity_role", "pii.role_unknown"},
		"other role": {func(r *eventtype.Registration) { r.RequiredEntityRefs[0].Role = "payee" }, "/pii_fields/0/subject/entity_role", "pii.role_unknown"},
		"key": {func(r *eventtype.Registration) {
			r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "k", Fields: []string{"grade", "email"}}}
		}, "/business_keys/0/fields/1", "pii.business_key"},
		"key document": {func(r *eventtype.Registration) {
			r.BusinessKeys = []eventtype.BusinessKeyRule{{Name: "k", Fields: []string{"grade"}, Document: "email"}}
		}, "/business_keys/0/document", "pii.business_key"},
		"undeclared": {func(r *eventtype.Registration) { r.PIIFields = nil }, "/data_schema/properties/email", "pii.undeclared"},
	} {
		t.Run(name, func(t *testing.T) {
			r := hired()
			c.change(&r)
			found := r.CheckPersonal()
			require.NotEmpty(t, found)
			require.Equal(t, c.field, found[0].Field)
			require.Equal(t, c.code, found[0].Code)
			require.Equal(t, "event_type.invalid", fault.CodeOf(eventtype.Invalid(found)))
		})
	}
	require.NoError(t, eventtype.Invalid(nil))
}
