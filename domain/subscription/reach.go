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
