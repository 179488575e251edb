package administration

import (
	"encoding/hex"
	"slices"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
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

// enrolled are the events of a new principal with its first token.
func enrolled(p ports.Principal) []event.Draft {
	return []event.Draft{rightsDraft(PrincipalEnrolled, p), tokenDraft(TokenIssued, p)}
}

// renewed are the events of another token for a principal, and of its rights if they change.
func renewed(before, p ports.Principal) []event.Draft {
	var drafts []event.Draft
	if !sameRights(before, p) {
		drafts = append(drafts, rightsDraft(PrincipalGranted, p))
	}
	return append(drafts, tokenDraft(TokenRotated, p))
}

func rightsDraft(eventType string, p ports.Principal) event.Draft {
	return draft(eventType, streamOf(p.PrincipalID), rightsData{
		PrincipalID: p.PrincipalID, PersonID: p.PersonID, Kind: p.ActorType, Label: p.RoleLabel, Roles: nonNil(p.Roles), LegalEntities: nonNil(p.LegalEntities),
	})
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
		slices.Equal(a.Roles, b.Roles) && slices.Equal(a.LegalEntities, b.LegalEntities)
}

// apply folds an event of a principal into it. An event of another type changes nothing.
func (r rightsData) apply(p *ports.Principal) {
	p.PrincipalID, p.PersonID, p.ActorType, p.RoleLabel = r.PrincipalID, r.PersonID, r.Kind, r.Label
	p.Roles, p.LegalEntities = r.Roles, r.LegalEntities
}

func (t tokenData) apply(p *ports.Principal) error {
	hash, err := hex.DecodeString(t.SHA256)
	if err != nil {
		return err
	}
	copy(p.TokenHash[:], hash)
	p.Development, p.ExpiresAt = t.Development, time.Time{}
	if t.ExpiresAt != nil {
		p.ExpiresAt = t.ExpiresAt.UTC()
	}
	return nil
}

func nonNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}
