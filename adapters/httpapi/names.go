package httpapi

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/administration"
	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/tenancy"
	access "github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// Names finds the sealed names of persons: administration.Principals.
type Names interface {
	// SealedNames returns documents with the member data.name by person id; a person without a
	// name has none.
	SealedNames(ctx context.Context, tenantID string, persons []string) (map[string]module.SealedDocument, error)
}

const actionNames = "principals.names"

// namesOf returns the names of persons by id for a caller who may read them, and nil for all
// others. A person whose name was erased has none.
func (s *Server) namesOf(ctx context.Context, persons []string) (map[string]string, error) {
	p := callOf(ctx).principal
	if len(persons) == 0 {
		return nil, nil
	}
	if err := s.config.Access.Authorize(ctx, p, tenancy.Action{Name: actionNames}); err != nil {
		if fault.KindOf(err) == fault.Forbidden {
			err = nil
		}
		return nil, err
	}
	sealed, err := s.config.Names.SealedNames(ctx, p.TenantID, persons)
	if err != nil || len(sealed) == 0 {
		return nil, err
	}
	var ids []string
	var documents []module.SealedDocument
	for id, document := range sealed {
		ids, documents = append(ids, id), append(documents, document)
	}
	if err := convertToUnavailable(s.config.Personal.Open(ctx, documents, nameReader{s})); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for i, id := range ids {
		var named struct {
			Data struct {
				Name json.RawMessage `json:"name"`
			} `json:"data"`
		}
		var name string
		if err := json.Unmarshal(documents[i].Document, &named); err != nil {
			return nil, err
		}
		if text := string(named.Data.Name); text == shredding.Redacted || text == shredding.Masked {
			continue
		}
		if err := json.Unmarshal(named.Data.Name, &name); err != nil {
			return nil, err
		}
		names[id] = name
	}
	return names, nil
}

// nameReader reads the names of principals, and no other personal value.
type nameReader struct{ server *Server }

// Reads implements module.Reader.
func (nameReader) Reads(recordType string, class shredding.Class) bool {
	return recordType == administration.PrincipalNamed && class == shredding.Identity
}

// Disclose implements module.Reader: the names that are joined to one answer are recorded
// together, one access for each person.
func (r nameReader) Disclose(ctx context.Context, opened []module.Opened) error {
	accesses := convert(opened, func(o module.Opened) access.Access {
		return access.Access{Kind: access.PersonalData, LegalEntity: ports.AdministrativeCode, Subject: o.Subject, Class: o.Class, Values: o.Values}
	})
	return r.server.config.Disclosures.Record(ctx, callOf(ctx).principal, purposeOf(ctx), accesses...)
}
