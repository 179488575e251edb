package administration

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
)

// Grants lists the grants of personal data to auditors of a tenant, the oldest first, the ended
// ones too. Fault administration.log_broken as in PrincipalByTokenHash.
func (p *Principals) Grants(ctx context.Context, tenantID string) ([]disclosure.Grant, error) {
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
	return slices.SortedFunc(maps.Values(f.grants), func(a, b disclosure.Grant) int {
		if c := a.GrantedAt.Compare(b.GrantedAt); c != 0 {
			return c
		}
		return a.ID.Compare(b.ID)
	}), nil
}

// applyGrant folds an event of a grant.
func (f *fold) applyGrant(e *event.Recorded, data []byte) error {
	id, err := event.ParseID(e.Stream.ID)
	if err != nil {
		return err
	}
	g := f.grants[id]
	switch e.Type {
	case disclosure.Granted:
		var d disclosure.GrantData
		if err := json.Unmarshal(data, &d); err != nil {
			return err
		}
		g = disclosure.Grant{ID: id, PersonID: d.PersonID, Classes: d.Classes, Until: d.Until.UTC(), Reason: d.Reason, GrantedBy: e.ActorID, GrantedAt: e.RecordedAt}
	case disclosure.Ended:
		var d disclosure.EndData
		if err := json.Unmarshal(data, &d); err != nil {
			return err
		}
		g.EndedBy, g.EndReason, g.EndedAt = e.ActorID, d.Reason, e.RecordedAt
	}
	f.grants[id] = g
	return nil
}
