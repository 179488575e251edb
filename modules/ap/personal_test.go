package ap_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// manifest reads what a type declares.
func manifest(t *testing.T, fields []eventtype.PIIField) *shredding.Manifest {
	t.Helper()
	declared := make([]shredding.Declaration, len(fields))
	for i, f := range fields {
		declared[i] = shredding.Declaration{Path: f.Path, Class: f.Class, Subject: f.Subject}
	}
	m, findings := shredding.ParseManifest(declared)
	require.Empty(t, findings)
	return m
}

// Every member that is named like a person's datum is declared or says why it is
// none, in every version and in every intent.
func TestPersonalDataIsDeclared(t *testing.T) {
	t.Parallel()
	newBooks(t)
	for _, e := range catalog.EventTypes {
		var keys []shredding.BusinessKey
		for _, k := range e.BusinessKeys {
			keys = append(keys, shredding.BusinessKey{Fields: k.Fields, Document: k.Document})
		}
		var roles []shredding.Role
		for _, r := range e.RequiredEntityRefs {
			roles = append(roles, shredding.Role{Name: r.Role, One: r.Cardinality == eventtype.One})
		}
		findings := manifest(t, e.PIIFields).Check(shredding.EventType{Schema: e.DataSchema, Roles: roles, BusinessKeys: keys})
		require.Empty(t, findings, "%s version %d", e.Type, e.SchemaVersion)
	}
	for _, i := range catalog.IntentTypes() {
		require.Empty(t, manifest(t, i.PIIFields).Check(shredding.EventType{Schema: i.Schema}), i.Type)
	}
}
