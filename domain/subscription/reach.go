package subscription

import "slices"

// The legal entities whose events a subscription delivers are those of its filter that its owner
// is entitled to. In lists of entitlements, as in filters, none is all legal entities.

// VisibleTo reports whether a caller is entitled to one of the subscription's legal entities.
func (s *Subscription) VisibleTo(caller, owner []string) bool {
	parts := slices.DeleteFunc([][]string{s.Filter.LegalEntities, owner, caller}, func(p []string) bool { return len(p) == 0 })
	return len(parts) == 0 || slices.ContainsFunc(parts[0], func(code string) bool {
		return !slices.ContainsFunc(parts[1:], func(p []string) bool { return !slices.Contains(p, code) })
	})
}

// Reader is a caller who reads subscriptions.
type Reader struct {
	PersonID      string
	Operator      bool     // may know of those of other persons in LegalEntities
	LegalEntities []string // that the caller is entitled to
}

// Visible returns those of subs whose existence the reader may know. owned lists the legal
// entities that an owner is entitled to. It is asked once for each owner, and only where they
// matter: for operators of some legal entities.
func Visible(r Reader, subs []Subscription, owned func(tenantID, personID string) ([]string, error)) ([]Subscription, error) {
	visible, byOwner := []Subscription{}, map[string][]string{}
	for _, s := range subs {
		if s.Owner != r.PersonID && !r.Operator {
			continue
		}
		if _, known := byOwner[s.Owner]; !known && s.Owner != r.PersonID && len(r.LegalEntities) > 0 {
			owner, err := owned(s.TenantID, s.Owner)
			if err != nil {
				return nil, err
			}
			byOwner[s.Owner] = owner
		}
		if s.Owner == r.PersonID || s.VisibleTo(r.LegalEntities, byOwner[s.Owner]) {
			visible = append(visible, s)
		}
	}
	return visible, nil
}

// Within reports whether a caller is entitled to all of the subscription's legal entities, also to
// those that are created later.
func (s *Subscription) Within(caller, owner []string) bool {
	if len(caller) == 0 {
		return true
	}
	covered := s.Filter.LegalEntities
	if len(covered) == 0 {
		covered = owner
	}
	return len(covered) > 0 && !slices.ContainsFunc(covered, func(code string) bool {
		return matchesAny(owner, code) && !slices.Contains(caller, code)
	})
}
