package administration

import (
	"context"
	"encoding/json"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// PrincipalNamed records the display name of a person. It is an event of its own because the name
// is sealed under another retention class than rights: it goes with an erasure of the person,
// while the rights stay for as long as the books.
const PrincipalNamed = "backbone.principal.named"

// namedData is the data of PrincipalNamed.
type namedData struct {
	PrincipalID string `json:"principal_id"`
	PersonID    string `json:"person_id"`
	Name        string `json:"name"`
}

// SealedNames returns the sealed names of persons that have one, by person id, as documents with
// the member data.name. The directory itself never opens them.
func (p *Principals) SealedNames(ctx context.Context, tenantID string, persons []string) (map[string]module.SealedDocument, error) {
	if err := p.read(ctx); err != nil {
		return nil, err
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	f := p.foldOf(tenantID)
	if f == nil {
		return nil, nil
	}
	if f.broken != nil {
		return nil, f.broken
	}
	found := map[string]module.SealedDocument{}
	for _, person := range persons {
		if document, ok := f.names[person]; ok {
			found[person] = document
		}
	}
	return found, nil
}

// sealedName returns the sealed name that an event holds.
func sealedName(e *event.Recorded, data []byte) (module.SealedDocument, error) {
	var named struct {
		Name json.RawMessage `json:"name"`
	}
	if err := json.Unmarshal(data, &named); err != nil {
		return module.SealedDocument{}, err
	}
	document, err := json.Marshal(map[string]any{"data": named})
	return module.SealedDocument{
		At:       shredding.Location{Partition: e.Partition, Kind: shredding.KindEvent, Record: e.ID, Type: e.Type, SchemaVersion: e.SchemaVersion},
		Document: document,
	}, err
}

func registerNames(r *module.Registrar) {
	named := builtin(PrincipalNamed, "A person received a display name, which auditors see beside the person's id.",
		namedSchema, `{"principal_id":"p-0002-1","person_id":"p-0002","name":"Nadia Approver"}`)
	named.RetentionClass, named.MinRetentionYears = eventtype.PIISubject, 0
	named.PIIFields = []eventtype.PIIField{{Path: "$.name", Class: string(shredding.Identity), Subject: json.RawMessage(`{"path":"$.person_id","type":"person"}`)}}
	r.EventType(named)
}

const namedSchema = `{
  "type": "object",
  "additionalProperties": false,
  "required": ["principal_id", "person_id", "name"],
  "properties": {
    "principal_id": {"type": "string", "minLength": 1, "maxLength": 512},
    "person_id": {"type": "string", "minLength": 1, "maxLength": 512, "description": "pseudonymous id of the person"},
    "name": {"type": "string", "minLength": 1, "maxLength": 200}
  }
}`
