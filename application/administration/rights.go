package administration

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/ports"
)

// rightsData is the data of PrincipalEnrolled and PrincipalGranted.
type rightsData struct {
	PrincipalID   string          `json:"principal_id"`
	PersonID      string          `json:"person_id"`
	Kind          event.ActorType `json:"kind"`
	Label         string          `json:"label"`
	Roles         []string        `json:"roles"`
	LegalEntities []string        `json:"legal_entities"`
	Service       *serviceData    `json:"service,omitempty"`
	Reason        string          `json:"reason,omitempty"` // since version 2
}

// rightsVersion is the schema version of PrincipalEnrolled and PrincipalGranted.
const rightsVersion = 2

// serviceData is ports.Binding.
type serviceData struct {
	ResponsiblePerson string            `json:"responsible_person"`
	Modules           []string          `json:"modules"`
	ContractedTypes   []string          `json:"contracted_types"`
	PIIClasses        []shredding.Class `json:"pii_classes"`
	TrustLevel        ports.TrustLevel  `json:"trust_level"`
}

type revokedData struct {
	PrincipalID string `json:"principal_id"`
	Reason      string `json:"reason,omitempty"`
}

// tokenData is the data of TokenIssued and TokenRotated.
type tokenData struct {
	PrincipalID string     `json:"principal_id"`
	SHA256      string     `json:"token_sha256"`
	ExpiresAt   *time.Time `json:"expires_at,omitempty"`
	Development bool       `json:"development,omitempty"`
}

func streamOf(principalID string) event.StreamID {
	return event.StreamID{Type: principalStream, ID: principalID}
}

// expiredData is the data of TokenExpired.
type expiredData struct {
	PrincipalID string    `json:"principal_id"`
	SHA256      string    `json:"token_sha256"`
	ExpiredAt   time.Time `json:"expired_at"`
}

// reviewedData is the data of PrincipalReviewed.
type reviewedData struct {
	PrincipalID string        `json:"principal_id"`
	Version     event.Version `json:"version"` // of the stream, with the rights that were reviewed
	Reason      string        `json:"reason"`
}

// enrolmentDrafts are the events of a new principal with its first token.
func enrolmentDrafts(p ports.Principal, reason string) []event.Draft {
	return append([]event.Draft{rightsDraft(PrincipalEnrolled, p, reason), tokenDraft(TokenIssued, p)}, nameDrafts(p)...)
}

// renewalDrafts are the events of another token for a principal, and of its rights if they change or
// there is a reason for them.
func renewalDrafts(before, p ports.Principal, reason string) []event.Draft {
	var drafts []event.Draft
	if reason != "" || !sameRights(before, p) {
		drafts = append(drafts, rightsDraft(PrincipalGranted, p, reason))
	}
	return append(append(drafts, tokenDraft(TokenRotated, p)), nameDrafts(p)...)
}

// nameDrafts names the person, if there is a name.
func nameDrafts(p ports.Principal) []event.Draft {
	if p.Name == "" {
		return nil
	}
	return []event.Draft{draft(PrincipalNamed, streamOf(p.PrincipalID), namedData{PrincipalID: p.PrincipalID, PersonID: p.PersonID, Name: p.Name})}
}

func rightsDraft(eventType string, p ports.Principal, reason string) event.Draft {
	data := rightsData{
		Reason:      reason,
		PrincipalID: p.PrincipalID, PersonID: p.PersonID, Kind: p.ActorType, Label: p.RoleLabel, Roles: nonNil(p.Roles), LegalEntities: nonNil(p.LegalEntities),
	}
	if b := p.Binding; b.ResponsiblePerson != "" {
		data.Service = &serviceData{b.ResponsiblePerson, nonNil(b.Modules), nonNil(b.ContractedTypes), nonNil(b.PIIClasses), b.TrustLevel}
	}
	d := draft(eventType, streamOf(p.PrincipalID), data)
	d.SchemaVersion = rightsVersion
	return d
}

func tokenDraft(eventType string, p ports.Principal) event.Draft {
	data := tokenData{PrincipalID: p.PrincipalID, SHA256: hex.EncodeToString(p.TokenHash[:]), Development: p.Development}
	if !p.ExpiresAt.IsZero() {
		at := event.Micros(p.ExpiresAt)
		data.ExpiresAt = &at
	}
	return draft(eventType, streamOf(p.PrincipalID), data)
}

func sameRights(a, b ports.Principal) bool {
	return a.PersonID == b.PersonID && a.ActorType == b.ActorType && a.RoleLabel == b.RoleLabel &&
		slices.Equal(a.Roles, b.Roles) && slices.Equal(a.LegalEntities, b.LegalEntities) && sameBinding(a.Binding, b.Binding)
}

func sameBinding(a, b ports.Binding) bool {
	return a.ResponsiblePerson == b.ResponsiblePerson && a.TrustLevel == b.TrustLevel && slices.Equal(a.Modules, b.Modules) &&
		slices.Equal(a.ContractedTypes, b.ContractedTypes) && slices.Equal(a.PIIClasses, b.PIIClasses)
}

// apply folds an event of a principal into it. An event of another type changes nothing.
func (r rightsData) apply(p *ports.Principal) {
	p.PrincipalID, p.PersonID, p.ActorType, p.RoleLabel = r.PrincipalID, r.PersonID, r.Kind, r.Label
	p.Roles, p.LegalEntities, p.Binding = r.Roles, r.LegalEntities, ports.Binding{}
	if s := r.Service; s != nil {
		p.Binding = ports.Binding{ResponsiblePerson: s.ResponsiblePerson, Modules: s.Modules, ContractedTypes: s.ContractedTypes, PIIClasses: s.PIIClasses, TrustLevel: s.TrustLevel}
	}
}

func (t tokenData) apply(p *ports.Principal) error {
	hash, err := hex.DecodeString(t.SHA256)
	if err != nil {
		return err
	}
	copy(p.TokenHash[:], hash)
	p.Development, p.ExpiresAt, p.ExpiryRecorded = t.Development, time.Time{}, false
	if t.ExpiresAt != nil {
		p.ExpiresAt = t.ExpiresAt.UTC()
	}
	return nil
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
