package eventtype

import (
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// Manifest reads declarations of personal data. The findings, with pointers below
// /pii_fields, are those of shredding.ParseManifest.
func Manifest(declared []PIIField) (*shredding.Manifest, []fault.Violation) {
	if len(declared) == 0 {
		return nil, nil
	}
	out := make([]shredding.Declaration, len(declared))
	for i, f := range declared {
		out[i] = shredding.Declaration(f)
	}
	return shredding.ParseManifest(out)
}

// CheckPersonal looks for what would let events of the type hold personal data in
// clear or without a subject, also where nothing is declared. The findings, with
// pointers into the registration, are those of shredding.ParseManifest and
// shredding.Manifest.Check.
func (r *Registration) CheckPersonal() []fault.Violation {
	m, found := Manifest(r.PIIFields)
	if len(found) > 0 {
		return found
	}
	t := shredding.EventType{Schema: r.DataSchema}
	for _, ref := range r.RequiredEntityRefs {
		t.Roles = append(t.Roles, shredding.Role{Name: ref.Role, One: ref.Cardinality == One})
	}
	for _, k := range r.BusinessKeys {
		t.BusinessKeys = append(t.BusinessKeys, shredding.BusinessKey{Fields: k.Fields, Document: k.Document})
	}
	return m.Check(t)
}
